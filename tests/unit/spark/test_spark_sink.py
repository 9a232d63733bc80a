"""The sink beside the look back itself: where it begins and ends in a topic, and which marks count (sink.py)."""

from __future__ import annotations

from collections.abc import Mapping

from tidegauge.partition import TopicPartition
from tidegauge_spark.epochs import EpochEnd
from tidegauge_spark.marks import MARK_HEADER, Mark
from tidegauge_spark.offsets import EARLIEST, LATEST
from tidegauge_spark.options import Subscription
from tidegauge_spark.sink import ClusterView, rows_of
from tidegauge_spark.write_options import parse_write_options

AT = TopicPartition("t", 0)
OPTIONS = parse_write_options({"kafka.bootstrap.servers": "127.0.0.1:1", "topic": "t"}, streaming=True)


class CommittedMeanwhile:
    """A leader with three records of an earlier attempt, which are committed after some requests for offsets."""

    def __init__(self, after: int) -> None:
        self._left = after

    def partitions(self, _: Subscription, *, asks_all: bool = False) -> dict[TopicPartition, None]:
        return {AT: None} if asks_all else {}

    def offsets(self, asked: Mapping[TopicPartition, int]) -> dict[TopicPartition, int | None]:
        high_watermark = 0 if self._left > 0 else 3
        self._left -= 1
        by_time = None if high_watermark == 0 else 0
        return {at: {EARLIEST: 0, LATEST: high_watermark}.get(which, by_time) for at, which in asked.items()}

    def epoch_ends(self, asked: Mapping[TopicPartition, int]) -> dict[TopicPartition, EpochEnd]:
        return dict.fromkeys(asked, EpochEnd(0, 3))

    def leader_epoch(self, _: TopicPartition) -> int:
        return 0


def test_records_that_are_committed_between_two_requests_are_looked_at() -> None:
    """What an earlier attempt sent may be committed at any moment; the look back must span it all the same."""
    for after in range(4):
        view = ClusterView(OPTIONS)
        view._client = CommittedMeanwhile(after)
        assert view.bounds("t") == {AT: (0, 3)}, f"committed after {after} requests"


def test_a_mark_that_comes_with_a_row_is_left_out() -> None:
    """Rows of a topic that a stream wrote carry its marks; the look back compares records without any."""
    pairs = [{"key": "h", "value": b"1"}, {"key": MARK_HEADER, "value": Mark("upstream", 3, 0).encode()}]
    (row,) = rows_of({"value": ["x"], "headers": [pairs]}, "t", 1)
    assert row.content.headers == (("h", b"1"),)
