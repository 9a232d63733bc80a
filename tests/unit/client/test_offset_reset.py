"""To which offsets ``reset-offsets`` sets a group (KIP-122)."""

from __future__ import annotations

import pytest

from tidegauge.partition import TopicPartition
from tidegauge_client import offset_reset

A, B = TopicPartition("a", 0), TopicPartition("b", 3)


def test_an_offset_outside_its_log_is_moved_to_its_end_with_a_warning() -> None:
    """ConsumerGroupService.checkOffsetsRange, in Kafka's words."""
    found, warnings = offset_reset.within_range({A: 99, B: 1}, {A: 0, B: 5}, {A: 10, B: 20})
    assert found == {A: 10, B: 5}
    assert warnings == [
        "New offset (99) is higher than latest offset for topic partition a-0. Value will be set to 10",
        "New offset (1) is lower than earliest offset for topic partition b-3. Value will be set to 5",
    ]
    assert offset_reset.within_range({A: 10}, {A: 0}, {A: 10}) == ({A: 10}, [])


def test_a_shift_needs_a_committed_offset() -> None:
    assert offset_reset.shifted([A], {A: 7}, -3) == {A: 4}
    with pytest.raises(ValueError, match="Cannot shift offset for partition b-3"):
        offset_reset.shifted([A, B], {A: 7}, -3)


def test_what_is_exported_can_be_read_again() -> None:
    offsets = {A: 4, B: 0}
    assert offset_reset.exported(offsets) == ["a,0,4", "b,3,0"]
    assert offset_reset.read_file("\n".join(offset_reset.exported(offsets))) == offsets
    with pytest.raises(ValueError, match="line 2 is not topic,partition,offset"):
        offset_reset.read_file("a,0,4\na,b")


@pytest.mark.parametrize(
    ("text", "found"), [("orders", ("orders", ())), ("orders:0", ("orders", (0,))), ("orders:0,2", ("orders", (0, 2)))]
)
def test_topics_may_name_partitions(text: str, found: tuple[str, tuple[int, ...]]) -> None:
    assert offset_reset.parse_topic(text) == found


def test_a_topic_with_a_partition_that_is_no_number_is_refused() -> None:
    with pytest.raises(ValueError, match="Invalid topic arg"):
        offset_reset.parse_topic("orders:x")


@pytest.mark.parametrize(
    ("text", "found_ms"),
    [
        ("1970-01-01T00:00:01.500", 1500),
        ("1970-01-01T01:00:01+01:00", 1000),
        ("1970-01-01T00:00:00Z", 0),
    ],
)
def test_a_time_without_a_zone_is_utc(text: str, found_ms: int) -> None:
    """Utils.getDateTime."""
    assert offset_reset.parse_datetime(text) == found_ms


@pytest.mark.parametrize(
    ("text", "found_ms"), [("PT2H30M", 9_000_000), ("P1D", 86_400_000), ("P1DT1S", 86_401_000), ("PT0.5S", 500)]
)
def test_durations_are_those_of_iso_8601(text: str, found_ms: int) -> None:
    assert offset_reset.parse_duration(text) == found_ms


@pytest.mark.parametrize("text", ["", "P", "2h", "PT", "P1H"])
def test_other_durations_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not a duration"):
        offset_reset.parse_duration(text)


def test_the_table_has_kafkas_columns() -> None:
    header, line = offset_reset.table("g", {A: 4})
    assert header.split() == ["GROUP", "TOPIC", "PARTITION", "NEW-OFFSET"]
    assert line.split() == ["g", "a", "0", "4"]
