"""Reading a range that the partition does not have in full."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any

import pytest

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.partition import TopicPartition
from tidegauge_client.records import NewRecord, encode_batch
from tidegauge_spark.offsets import LATEST
from tidegauge_spark.options import parse_options
from tidegauge_spark.planner import OffsetRange
from tidegauge_spark.ranges import read_range
from tidegauge_spark.transport import Fetched

ZERO = TopicPartition("t", 0)
LATE = TidegaugeError(ErrorCode.REQUEST_TIMED_OUT, "read t-0: no progress for 120000 ms")


class Client:
    """A partition of three records, whose reads at the end make no progress."""

    def __init__(self, latest: int | TidegaugeError) -> None:
        self.latest = latest

    def fetch(self, topic_partition: TopicPartition, leader: Any, position: Any, *_: Any) -> Iterator[Fetched]:
        if position() == 0:
            records = tuple(NewRecord(b"v%d" % number) for number in range(3))
            yield Fetched(bytes(encode_batch(records, producer_id=-1, producer_epoch=-1, base_sequence=-1)), 3, ())
        raise LATE

    def offsets(self, asked: dict[TopicPartition, int]) -> dict[TopicPartition, int]:
        assert asked == {ZERO: LATEST}
        if isinstance(self.latest, TidegaugeError):
            raise self.latest
        return {ZERO: self.latest}


def read(client: Client, until: int, **given: str) -> int:
    """Return the number of rows of a range."""
    options = parse_options({"kafka.bootstrap.servers": "a:1", "subscribe": "t", **given}, streaming=False)
    batches: Collection[Any] = list(read_range(options, client, OffsetRange(ZERO, 0, until), None))  # type: ignore[arg-type]
    return sum(batch.num_rows for batch in batches)


def test_an_end_beyond_the_partitions_gives_the_rows_that_there_are(caplog: pytest.LogCaptureFixture) -> None:
    """KafkaDataConsumer.get with failOnDataLoss=false; with true the query says what it could not read."""
    named = {"endingOffsets": '{"t":{"0":100}}'}
    assert read(Client(3), 100, failOnDataLoss="false", **named) == 3
    assert "Cannot read t-0 at offset 3 of 100: the partition ends there" in caplog.text
    with pytest.raises(TidegaugeError, match='set the source option "failOnDataLoss" to "false"') as caught:
        read(Client(3), 100, **named)
    assert caught.value.code is ErrorCode.OFFSET_OUT_OF_RANGE


@pytest.mark.parametrize("latest", [50, TidegaugeError(ErrorCode.NETWORK_EXCEPTION, "no broker responds")])
def test_a_read_that_is_only_slow_is_no_loss(latest: int | TidegaugeError) -> None:
    """There are records, or no broker can say whether there are: the query fails, whatever failOnDataLoss says."""
    with pytest.raises(TidegaugeError, match="no progress"):
        read(Client(latest), 100, failOnDataLoss="false", endingOffsets='{"t":{"0":100}}')


def test_an_end_that_the_partition_once_had_is_waited_for() -> None:
    """A new leader's high watermark only lags: a stream, or the sink that looks for its records, must not go on."""
    with pytest.raises(TidegaugeError, match="no progress"):
        read(Client(3), 100, failOnDataLoss="false")
