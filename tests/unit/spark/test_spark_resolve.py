"""From options to offsets: earliest, latest, times, explicit offsets (KafkaOffsetReaderAdmin)."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from tidegauge.errors import TidegaugeError
from tidegauge.partition import TopicPartition
from tidegauge_spark.offsets import EARLIEST, LATEST
from tidegauge_spark.options import OffsetLimit
from tidegauge_spark.resolve import ask_latest, resolve

ZERO, ONE = TopicPartition("t", 0), TopicPartition("t", 1)
BOTH = [ZERO, ONE]


class Log:
    """Partition 0 holds offsets 5..9 with times 50..90, partition 1 nothing (log start and end 3)."""

    def offsets(self, asked: Mapping[TopicPartition, int]) -> dict[TopicPartition, int | None]:
        return {one: self._offset(one, time) for one, time in asked.items()}

    @staticmethod
    def _offset(partition: TopicPartition, time: int) -> int | None:
        start, end = (5, 10) if partition == ZERO else (3, 3)
        if time in {EARLIEST, LATEST}:
            return start if time == EARLIEST else end
        return next((offset for offset in range(start, end) if offset * 10 >= time), None)


def start(limit: OffsetLimit, *, latest_if_no_match: bool = False) -> dict[TopicPartition, int]:
    return resolve(Log(), BOTH, limit, "starting", latest_if_no_match=latest_if_no_match)


def test_earliest_and_latest() -> None:
    assert start(OffsetLimit(everywhere=EARLIEST)) == {ZERO: 5, ONE: 3}
    assert start(OffsetLimit(everywhere=LATEST)) == {ZERO: 10, ONE: 3}


def test_explicit_offsets_may_hold_words() -> None:
    assert start(OffsetLimit(offsets={ZERO: 7, ONE: LATEST})) == {ZERO: 7, ONE: 3}
    with pytest.raises(TidegaugeError, match="must specify all TopicPartitions"):
        start(OffsetLimit(offsets={ZERO: 7}))


def test_times() -> None:
    """startingOffsetsByTimestampStrategy: no match is an error, or latest."""
    assert start(OffsetLimit(timestamp_ms=61), latest_if_no_match=True) == {ZERO: 7, ONE: 3}
    with pytest.raises(TidegaugeError, match="No offset matched from request of topic-partition t-1 and timestamp 61"):
        start(OffsetLimit(timestamp_ms=61))
    assert start(OffsetLimit(timestamps_ms={ZERO: 0, ONE: 0}), latest_if_no_match=True) == {ZERO: 5, ONE: 3}
    with pytest.raises(TidegaugeError, match="startingOffsetsByTimestamp contains specific offsets"):
        start(OffsetLimit(timestamps_ms={ZERO: 0}))


@pytest.mark.parametrize(("retries", "expected", "pauses"), [(3, 12, 2), (1, 8, 1), (0, 8, 0)])
def test_latest_below_what_is_known_is_asked_again(retries: int, expected: int, pauses: int) -> None:
    """KAFKA-7703: an offset that went backwards is accepted only after some retries."""
    responses = iter([8, 8, 12, 12])
    waited: list[None] = []

    class Flapping:
        def offsets(self, asked: Mapping[TopicPartition, int]) -> dict[TopicPartition, int | None]:
            return {ZERO: next(responses)}

    latest = ask_latest(Flapping(), [ZERO], {ZERO: 11}, retries=retries, pause=lambda: waited.append(None))
    assert latest == {ZERO: expected}
    assert len(waited) == pauses
