"""The Spark data source ``tidegauge``: batch and streaming readers of committed records.

Contract: the columns and options of Spark's Kafka source, so that only ``format`` changes. Nothing at or above the high
watermark is read: an end offset is a high watermark, and brokers serve consumers only below it.

- Three processes hold three readers (planner, streaming planner, worker), so nothing is remembered between methods but
  what is said here; a task gets everything by its ``InputPartition``.
- ``read`` rides out leader changes by itself: in local mode a task has one attempt.
- ``partitions`` is deterministic, so that a batch that is run again has the same tasks.
- No ``pushFilters``: defining it makes every query fail while Spark's switch for it is off.
- The stream reader inherits ``SupportsTriggerAvailableNow``: without it AvailableNow is one batch without limit.

This is the only module that names pyspark's classes (untyped here). gRPC and pyarrow are imported when first needed.
Source: ``KafkaMicroBatchStream``, ``KafkaBatch``; ecosystem notes on the Python Data Source API.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Mapping
from typing import Any

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows, SupportsTriggerAvailableNow
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    IntegerType,
    LongType,
    StringType,
    StructType,
    TimestampType,
)

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.partition import TopicPartition
from tidegauge_spark.offsets import EARLIEST, OffsetsJson, from_json, rate_limit, to_json
from tidegauge_spark.options import Columns, Options, parse_options
from tidegauge_spark.planner import OffsetRange, plan_batch, split_ranges
from tidegauge_spark.resolve import ask, ask_latest, resolve

log = logging.getLogger(__name__)

LOSS_HINT = (
    "Some data may have been lost because they are not available any more. If you don't want your query to fail on "
    'such cases, set the source option "failOnDataLoss" to "false"'
)


def spark_schema(columns: Columns) -> Any:
    """The schema in Spark's types; ``decode.arrow_schema`` is the same in Arrow's."""
    schema = StructType().add("key", BinaryType()).add("value", BinaryType()).add("topic", StringType())
    schema = schema.add("partition", IntegerType()).add("offset", LongType())
    schema = schema.add("timestamp", TimestampType()).add("timestampType", IntegerType())
    if columns.headers:
        pair = StructType().add("key", StringType()).add("value", BinaryType())
        schema = schema.add("headers", ArrayType(pair))
    if columns.leader_epoch:
        schema = schema.add("leaderEpoch", IntegerType()).add("highWatermark", LongType())
    return schema


def _client(options: Options) -> Any:
    from tidegauge_spark.transport import client_for  # noqa: PLC0415  (gRPC only in the process that calls)

    return client_for(options.connection)


class RangePartition(InputPartition):  # type: ignore[misc]  # pyspark ships no types that mypy may follow
    """What one task reads, and what the planner knew of the leader."""

    def __init__(self, offsets: OffsetRange, leader_id: int | None, leader_epoch: int, topic_id: str) -> None:
        super().__init__(offsets)
        self.offsets = offsets
        self.leader_id = leader_id
        self.leader_epoch = leader_epoch
        self.topic_id = topic_id


def _input_partitions(options: Options, client: Any, ranges: list[OffsetRange]) -> list[RangePartition]:
    pieces = split_ranges(ranges, options.min_partitions)
    return [RangePartition(piece, *client.leader(piece.topic_partition)) for piece in pieces]


def _report_losses(options: Options, losses: list[str]) -> None:
    if losses and options.fail_on_data_loss:
        raise TidegaugeError(ErrorCode.OFFSET_OUT_OF_RANGE, f"{'; '.join(losses)}. {LOSS_HINT}")
    for loss in losses:
        log.warning("%s (failOnDataLoss is false)", loss)


def read_range(options: Options, client: Any, partition: RangePartition) -> Iterator[Any]:
    """Arrow batches of one range, each record once and in order.

    Raises:
        TidegaugeError: records of the range are gone and failOnDataLoss is true; no progress for
            kafkaConsumer.pollTimeoutMs; a corrupt batch.
    """
    from tidegauge_spark.decode import ArrowDecoder  # noqa: PLC0415  (pyarrow only in the worker)
    from tidegauge_spark.transport import PartitionLeader  # noqa: PLC0415  (gRPC only in the worker)

    topic_partition, from_offset, until_offset = partition.offsets
    planned = PartitionLeader(partition.leader_id, partition.leader_epoch, partition.topic_id)
    decoder = ArrowDecoder(topic_partition, from_offset, until_offset, options.columns)
    while not decoder.done:
        try:
            for fetched in client.fetch(topic_partition, planned, lambda: decoder.next_offset):
                yield from decoder.decode(fetched.records, fetched.high_watermark)
                if decoder.done:
                    break
        except TidegaugeError as error:
            decoder.skip_to(_after_loss(options, client, topic_partition, decoder.next_offset, until_offset, error))
    yield from decoder.rest()


def _after_loss(
    options: Options,
    client: Any,
    topic_partition: TopicPartition,
    offset: int,
    until_offset: int,
    error: TidegaugeError,
) -> int:
    """Where to go on when the leader no longer has an offset: Kafka's log start, else the end of the range."""
    if error.code not in {ErrorCode.OFFSET_OUT_OF_RANGE, ErrorCode.INCONSISTENT_TOPIC_ID}:
        raise error
    _report_losses(options, [f"Cannot read {topic_partition} at offset {offset} of {until_offset}: {error.message}"])
    if error.code is ErrorCode.OFFSET_OUT_OF_RANGE:
        earliest = ask(client, [topic_partition], EARLIEST)[topic_partition]
        if earliest > offset:
            return earliest
    return until_offset


class _Reads:
    """What both readers share: ``read``, which runs in a worker on a copy of the reader."""

    def __init__(self, options: Options) -> None:
        self.options = options

    def read(self, partition: Any) -> Iterator[Any]:
        """Arrow batches of one task. Spark calls it with a bare InputPartition when a batch query has no tasks."""
        if not isinstance(partition, RangePartition):
            return iter(())
        return read_range(self.options, _client(self.options), partition)


class TidegaugeReader(_Reads, DataSourceReader):  # type: ignore[misc]  # pyspark ships no types that mypy may follow
    """Reads once from startingOffsets to endingOffsets."""

    def partitions(self) -> list[RangePartition]:
        """One task per topic-partition, or more with minPartitions."""
        options = self.options
        client = _client(options)
        found = client.partitions(options.subscription)
        start = resolve(client, found, options.starting, "starting", latest_if_no_match=options.latest_if_no_match)
        end = resolve(client, found, options.ending, "ending", latest_if_no_match=True)
        plan = plan_batch(start, end, {})
        _report_losses(options, plan.losses)
        return _input_partitions(options, client, plan.ranges)


class TidegaugeStreamReader(_Reads, DataSourceStreamReader, SupportsTriggerAvailableNow):  # type: ignore[misc]  # pyspark ships no types that mypy may follow
    """Micro-batches. Its state (the frozen end of AvailableNow) lives in the driver's streaming planner only."""

    def __init__(self, options: Options) -> None:
        super().__init__(options)
        self._frozen: dict[TopicPartition, int] | None = None
        self._latest: dict[TopicPartition, int] = {}

    def initialOffset(self) -> OffsetsJson:  # noqa: N802  (Spark's name)
        """Where a new query begins; written to its checkpoint once and used ever after."""
        options = self.options
        client = _client(options)
        found = client.partitions(options.subscription)
        starting = resolve(client, found, options.starting, "starting", latest_if_no_match=options.latest_if_no_match)
        return to_json(starting)

    def getDefaultReadLimit(self) -> Any:  # noqa: N802  (Spark's name)
        """MaxOffsetsPerTrigger as Spark's limit; without it everything there is."""
        limit = self.options.max_offsets_per_trigger
        return ReadAllAvailable() if limit is None else ReadMaxRows(limit)

    def latestOffset(self, start: Mapping[str, Mapping[str, int]], limit: Any) -> OffsetsJson:  # noqa: N802  (Spark's name)
        """The end of the next batch: the high watermarks, or less with a limit."""
        begin = from_json(start)
        latest = self._frozen if self._frozen is not None else self._ask_latest(begin)
        self._latest = latest
        if not isinstance(limit, ReadMaxRows):
            return to_json(latest)
        added = latest.keys() - begin.keys()
        begin.update(ask(_client(self.options), added, EARLIEST))
        return to_json(rate_limit(limit.max_rows, begin, latest))

    def reportLatestOffset(self) -> OffsetsJson | None:  # noqa: N802  (Spark's name)
        """The high watermarks of the last trigger, for the query's progress."""
        return to_json(self._latest) if self._latest else None

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802  (Spark's name)
        """Freezes the end: the query stops once it has read what is committed now."""
        self._frozen = self._ask_latest({})

    def partitions(
        self, start: Mapping[str, Mapping[str, int]], end: Mapping[str, Mapping[str, int]]
    ) -> list[RangePartition]:
        """The tasks of one batch: one per topic-partition with something to read, or more with minPartitions."""
        begin, until = from_json(start), from_json(end)
        client = _client(self.options)
        client.partitions(self.options.subscription)
        plan = plan_batch(begin, until, ask(client, until.keys() - begin.keys(), EARLIEST))
        _report_losses(self.options, plan.losses)
        return _input_partitions(self.options, client, plan.ranges)

    def _ask_latest(self, known: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        options = self.options
        client = _client(options)
        found = client.partitions(options.subscription)
        pause_s = options.offset_retry_interval_ms / 1000
        return ask_latest(client, found, known, retries=options.offset_retries, pause=lambda: time.sleep(pause_s))


class TidegaugeDataSource(DataSource):  # type: ignore[misc]  # pyspark ships no types that mypy may follow
    """``spark.read.format("tidegauge")`` and ``spark.readStream.format("tidegauge")``."""

    @classmethod
    def name(cls) -> str:
        """The format's name."""
        return "tidegauge"

    def _parsed(self, schema: Any, *, streaming: bool) -> Options:
        options = parse_options(dict(self.options.items()), streaming=streaming)
        if schema != spark_schema(options.columns):
            raise TidegaugeError(
                ErrorCode.INVALID_REQUEST,
                "The tidegauge source has a fixed schema and cannot be read with a custom one; leave out .schema(...)",
            )
        return options

    def schema(self) -> Any:
        """Fixed, but for the optional columns."""
        flags = {name.lower(): str(value).lower() == "true" for name, value in self.options.items()}
        return spark_schema(Columns(flags.get("includeheaders", False), flags.get("includeleaderepoch", False)))

    def reader(self, schema: Any) -> TidegaugeReader:
        """A batch reader.

        Raises:
            TidegaugeError: an option is missing or wrong.
        """
        return TidegaugeReader(self._parsed(schema, streaming=False))

    def streamReader(self, schema: Any) -> TidegaugeStreamReader:  # noqa: N802  (Spark's name)
        """A streaming reader.

        Raises:
            TidegaugeError: an option is missing or wrong.
        """
        return TidegaugeStreamReader(self._parsed(schema, streaming=True))
