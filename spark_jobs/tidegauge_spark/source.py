"""The Spark data source ``tidegauge``: batch and streaming readers of committed records, and writers.

Contract: the columns and options of Spark's Kafka source, so that only ``format`` changes. Nothing at or above the high
watermark is read: an end offset is a high watermark, and brokers serve consumers only below it.

- Three processes hold three readers (planner, streaming planner, worker), so nothing is remembered between methods but
  the state described here; a task gets everything by its ``InputPartition``.
- ``read`` survives leader changes by itself: in local mode a task has one attempt.
- ``partitions`` is deterministic, so that a batch that is run again has the same tasks.
- No ``pushFilters``: defining it makes every query fail while Spark's switch for it is off.
- The stream reader inherits ``SupportsTriggerAvailableNow``: without it AvailableNow is one batch without limit.

This is the only module that names pyspark's classes (untyped here). gRPC and pyarrow are imported when first needed.
Source: ``KafkaMicroBatchStream``, ``KafkaBatch``; Spark's Python Data Source API (``pyspark.sql.datasource``).
"""

from __future__ import annotations

import itertools
import logging
import time
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceStreamArrowWriter,
    DataSourceStreamReader,
    InputPartition,
    WriterCommitMessage,
)
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows, ReadMinRows, SupportsTriggerAvailableNow
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
from tidegauge_spark.epochs import EpochTracker
from tidegauge_spark.offsets import (
    EARLIEST,
    LATEST,
    OffsetsJson,
    StoredOffsets,
    TriggerDelay,
    epochs_from_json,
    from_json,
    rate_limit,
    to_json,
    to_stored,
    topic_ids_from_json,
)
from tidegauge_spark.options import Columns, Options, ignored_options, parse_options
from tidegauge_spark.planner import (
    OffsetRange,
    check_start_before_end,
    group_ranges,
    losses_by_deletion,
    plan_batch,
    recreated_partitions,
    split_ranges,
    without,
)
from tidegauge_spark.ranges import read_range, report_losses
from tidegauge_spark.resolve import ask, ask_latest, resolve
from tidegauge_spark.setup import missing
from tidegauge_spark.shipping import Shipped
from tidegauge_spark.write_options import WriteOptions, check_columns, parse_write_options

log = logging.getLogger(__name__)


def spark_schema(columns: Columns) -> Any:
    """Return the schema in Spark's types; ``decode.arrow_schema`` is the same in Arrow's."""
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
    try:
        from tidegauge_spark.transport import client_for  # noqa: PLC0415  (gRPC only in the process that calls)
    except ModuleNotFoundError as error:
        raise missing(error) from None

    return client_for(options.connection)


class RangePartition(InputPartition):  # type: ignore[misc]  # pyspark ships no types that mypy may follow
    """What one task reads, and the planner's knowledge of the leader."""

    def __init__(
        self, offsets: OffsetRange, leader_id: int | None, leader_epoch: int, topic_id: str, last_epoch: int = -1
    ) -> None:
        super().__init__(offsets)
        self.offsets = offsets
        self.leader_id = leader_id
        self.leader_epoch = leader_epoch
        self.topic_id = topic_id
        self.last_epoch = last_epoch

    def read(self, options: Options, client: Any) -> Iterator[Any]:
        """Yield Arrow batches of the range; to be called in the worker."""
        from tidegauge_spark.cluster_metadata import PartitionLeader  # noqa: PLC0415  (protobuf only in the worker)

        leader = PartitionLeader(self.leader_id, self.leader_epoch, self.topic_id)
        return read_range(options, client, self.offsets, leader, self.last_epoch)


class GroupPartition(InputPartition):  # type: ignore[misc]  # pyspark ships no types that mypy may follow
    """Several small ranges that one task reads one after the other."""

    def __init__(self, pieces: list[RangePartition]) -> None:
        super().__init__([piece.offsets for piece in pieces])
        self.pieces = pieces


TaskPartition = RangePartition | GroupPartition


def _input_partitions(
    options: Options, client: Any, ranges: list[OffsetRange], epochs: Mapping[TopicPartition, int]
) -> list[TaskPartition]:
    """Return the tasks; ``epochs`` has the leader epoch of the record before each range, as far as it is known."""
    begins = {(one.topic_partition, one.from_offset) for one in ranges}
    split = split_ranges(ranges, options.min_partitions, options.max_records_per_partition)
    # A user who asks for more tasks than there are ranges does not want fewer.
    groups = group_ranges(split) if options.min_partitions is None else [[piece] for piece in split]
    tasks: list[TaskPartition] = []
    for group in groups:
        pieces = []
        for piece in group:
            leader_id, leader_epoch, topic_id = client.leader(piece.topic_partition)
            last_epoch = epochs.get(piece.topic_partition, -1) if piece[:2] in begins else -1
            pieces.append(RangePartition(piece, leader_id, leader_epoch, topic_id, last_epoch))
        tasks.append(pieces[0] if len(pieces) == 1 else GroupPartition(pieces))
    return tasks


def _sentences(truncations: Mapping[TopicPartition, int], read: Mapping[TopicPartition, int]) -> list[str]:
    return [
        f"Log truncation detected for partition {one}: it was read up to offset {read[one]}, and the leader's log "
        f"differs from offset {diverges_at} on (an unclean election, or the topic was created again)"
        for one, diverges_at in sorted(truncations.items())
    ]


class _Reads(Shipped):
    """The method that both readers share: ``read``, which runs in a worker on a copy of the reader."""

    def __init__(self, options: Options) -> None:
        self.options = options

    def read(self, partition: Any) -> Iterator[Any]:
        """Yield Arrow batches of one task; Spark passes a bare InputPartition when a batch query has no tasks."""
        if isinstance(partition, RangePartition):
            return partition.read(self.options, _client(self.options))
        if not isinstance(partition, GroupPartition):
            return iter(())
        client = _client(self.options)
        return itertools.chain.from_iterable(piece.read(self.options, client) for piece in partition.pieces)


class TidegaugeReader(_Reads, DataSourceReader):  # type: ignore[misc]  # pyspark ships no types that mypy may follow
    """Reads once from startingOffsets to endingOffsets."""

    def partitions(self) -> list[TaskPartition]:
        """Return one task per topic-partition, or more with minPartitions; many small ones share tasks."""
        options = self.options
        client = _client(options)
        # An old view of one broker would leave out, in silence, what a new topic or partition holds.
        found = client.partitions(options.subscription, asks_all=True)
        start = resolve(client, found, options.starting, "starting", latest_if_no_match=options.latest_if_no_match)
        end = resolve(client, found, options.ending, "ending", latest_if_no_match=True)
        check_start_before_end(start, end)
        return _input_partitions(options, client, plan_batch(start, end, {}).ranges, {})


class TidegaugeStreamReader(_Reads, DataSourceStreamReader, SupportsTriggerAvailableNow):  # type: ignore[misc]  # pyspark ships no types that mypy may follow
    """Micro-batches. Its state is only in the driver's streaming planner, and can be rebuilt from the checkpoint."""

    def __init__(self, options: Options) -> None:
        super().__init__(options)
        self._frozen: dict[TopicPartition, int] | None = None
        self._has_asked_all = False
        self._latest: dict[TopicPartition, int] = {}
        self._epochs = EpochTracker()
        least = options.min_offsets_per_trigger
        self._delay = None if least is None else TriggerDelay(least, options.max_trigger_delay_ms)

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802  (Spark's name)
        """Return where a new query begins; written to its checkpoint once and used from then on."""
        options = self.options
        client = _client(options)
        found, topic_ids = self._find(client, {}, asks_all=True)
        starting = resolve(client, found, options.starting, "starting", latest_if_no_match=options.latest_if_no_match)
        return to_stored(starting, {}, topic_ids)

    def getDefaultReadLimit(self) -> Any:  # noqa: N802  (Spark's name)
        """Return the limit that Spark passes to ``latestOffset``; with Trigger.Once it passes ReadAllAvailable instead.

        Spark gives Python sources no composite limit, so with both options the reader itself applies the lower one.
        """
        most, least = self.options.max_offsets_per_trigger, self.options.min_offsets_per_trigger
        if most is not None:
            return ReadMaxRows(most)
        return ReadAllAvailable() if least is None else ReadMinRows(least)

    def latestOffset(self, start: StoredOffsets, limit: Any) -> dict[str, Any]:  # noqa: N802  (Spark's name)
        """Return the end of the next batch: the high watermarks, or less with a limit; ``start`` to make it wait."""
        begin, epochs, stored_ids = from_json(start), epochs_from_json(start), topic_ids_from_json(start)
        client = _client(self.options)
        found, topic_ids = self._find(client, stored_ids, begin, asks_all=not self._has_asked_all)
        recreated = self._recreated(begin, stored_ids, topic_ids)
        begin, epochs = without(begin, recreated), without(epochs, recreated)
        if self._frozen is not None:
            # What is read already and is not frozen was missing in old metadata: the query ends behind what it has now.
            unfrozen = [one for one in found if one in recreated or (one in begin and one not in self._frozen)]
            self._frozen |= ask(client, unfrozen, LATEST)
        latest = self._latest_after(client, found, begin, epochs)
        self._latest = latest
        is_limited = not isinstance(limit, ReadAllAvailable)
        delay = self._delay if is_limited and self._frozen is None and not recreated else None
        if delay is not None and delay.waits(begin, latest, time.monotonic() * 1000):
            return dict(start)
        end = latest
        most = self.options.max_offsets_per_trigger
        if is_limited and most is not None:
            added = latest.keys() - begin.keys()
            end = rate_limit(most, begin | ask(client, added, EARLIEST), latest)
        # A checkpoint from before topics' ids were stored gets them with the next records: no batch begins for them.
        ids = {topic: topic_ids[topic] for topic in topic_ids if stored_ids or end != begin}
        return to_stored(end, self._epochs_of(client, end, begin, epochs), ids)

    def _find(
        self,
        client: Any,
        stored_ids: Mapping[str, str],
        read: Collection[TopicPartition] = (),
        *,
        asks_all: bool = False,
    ) -> tuple[Collection[TopicPartition], Mapping[str, str]]:
        """Return the partitions that are read now, and their topics' ids: if in doubt those of ``settle_topics``.

        With ``asks_all`` they are those in any case. A run of a query begins so, and whatever decides for good what it
        reads: its initial offsets, and the end of a run with AvailableNow. Later, one broker is asked, not always the
        same: what it does not show yet is found by the next trigger, and begins at its earliest offset.

        Doubtful are topics of another id than is stored, and those of which partitions that were read are missing: a
        broker that the controller can't reach shows old metadata. Without them the batch would lose partitions, and a
        later one would read them again from their beginning.
        """
        subscription = self.options.subscription
        found = client.partitions(subscription, asks_all=asks_all)
        ids = {one.topic: leader.topic_id for one, leader in found.items() if leader.topic_id}
        if asks_all:
            self._has_asked_all = True
            return found, ids
        missing = [one for one in read if one not in found and subscription.covers(one)]
        doubtful = {topic for topic, stored in stored_ids.items() if ids.get(topic, stored) != stored}
        doubtful |= {one.topic for one in missing}
        if not doubtful:
            return found, ids
        settled = client.settle_topics(doubtful)
        return {*found, *(one for one in missing if one in settled.partitions)}, ids | settled.topic_ids

    def _recreated(
        self, offsets: Mapping[TopicPartition, int], before: Mapping[str, str], after: Mapping[str, str]
    ) -> set[TopicPartition]:
        """Return the partitions of topics that were created again since they were read: lost data."""
        recreated = recreated_partitions(offsets, before, after)
        self._epochs.forget(recreated)
        report_losses(self.options, losses_by_deletion(recreated, offsets))
        return recreated

    def _latest_after(
        self,
        client: Any,
        found: Collection[TopicPartition],
        begin: Mapping[TopicPartition, int],
        epochs: Mapping[TopicPartition, int],
    ) -> dict[TopicPartition, int]:
        """Return high watermarks, but none below what was read while the leader still has those records."""
        latest = dict(self._frozen) if self._frozen is not None else self._ask_latest(client, found, begin)
        known = {one: offset for one, offset in begin.items() if one in latest}
        truncations = self._epochs.truncations(client, known, epochs)
        report_losses(self.options, _sentences(truncations, known))
        behind = {one: offset for one, offset in known.items() if latest[one] < offset and one not in truncations}
        for one in self._epochs.lagging(client, behind):
            latest[one] = behind[one]
        return latest

    def _epochs_of(
        self,
        client: Any,
        end: Mapping[TopicPartition, int],
        begin: Mapping[TopicPartition, int],
        epochs: Mapping[TopicPartition, int],
    ) -> dict[TopicPartition, int]:
        """Return the epochs of the ends; unmoved ends keep theirs, so that an epoch alone begins no batch."""
        moved = {one: offset for one, offset in end.items() if begin.get(one) != offset}
        kept = {one: epoch for one, epoch in epochs.items() if one in end and one not in moved}
        return kept | self._epochs.epochs_before(client, moved)

    def reportLatestOffset(self) -> OffsetsJson | None:  # noqa: N802  (Spark's name)
        """Return the high watermarks of the last trigger, for the query's progress."""
        return to_json(self._latest) if self._latest else None

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802  (Spark's name)
        """Freeze the end: the query stops once it has read what is committed now."""
        client = _client(self.options)
        self._frozen = self._ask_latest(client, self._find(client, {}, asks_all=True)[0], {})

    def partitions(self, start: StoredOffsets, end: StoredOffsets) -> list[TaskPartition]:
        """Return the tasks of one batch: one per topic-partition with something to read, or more with minPartitions.

        Many small ones share tasks.
        """
        begin, until = from_json(start), from_json(end)
        client = _client(self.options)
        topic_ids = topic_ids_from_json(end)
        begin = without(begin, recreated_partitions(begin, topic_ids_from_json(start), topic_ids))
        # Nothing is left of a batch whose topic was deleted and created again after it was planned.
        recreated = self._recreated(until, topic_ids, self._find(client, topic_ids)[1])
        begin, until = without(begin, recreated), without(until, recreated)
        # A batch that a restarted query runs again may end where the log has been truncated since.
        truncations = self._epochs.truncations(client, until, without(epochs_from_json(end), recreated))
        if truncations:
            report_losses(self.options, _sentences(truncations, until))
            latest = ask(client, truncations, LATEST)
            until |= {one: max(begin.get(one, 0), min(until[one], latest[one])) for one in truncations}
        plan = plan_batch(begin, until, ask(client, until.keys() - begin.keys(), EARLIEST))
        report_losses(self.options, plan.losses)
        # A topic that was created again has no record before its first.
        epochs = {one: epoch for one, epoch in epochs_from_json(start).items() if one in begin}
        return _input_partitions(self.options, client, plan.ranges, epochs)

    def _ask_latest(
        self, client: Any, found: Collection[TopicPartition], known: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, int]:
        options = self.options
        pause_s = options.offset_retry_interval_ms / 1000
        return ask_latest(client, found, known, retries=options.offset_retries, pause=lambda: time.sleep(pause_s))


class Wrote(WriterCommitMessage):  # type: ignore[misc]  # pyspark ships no types that mypy may follow
    """What one task wrote, and what an earlier attempt had written already."""

    def __init__(self, sent: int, skipped: int) -> None:
        self.sent = sent
        self.skipped = skipped


class _Writes(Shipped):
    """The method that both writers share: ``write``, which runs in a worker on a copy of the writer."""

    def __init__(self, options: WriteOptions) -> None:
        self.options = options

    def write(self, iterator: Iterator[Any]) -> Wrote:
        """Write the Arrow batches of one task."""
        try:
            from tidegauge_spark.sink import write_arrow  # noqa: PLC0415  (asyncio and the client only in the worker)
        except ModuleNotFoundError as error:
            raise missing(error) from None

        done = write_arrow(self.options, iterator)
        return Wrote(done.sent, done.skipped)


class TidegaugeWriter(_Writes, DataSourceArrowWriter):  # type: ignore[misc]  # pyspark ships no types that mypy may follow
    """Writes a DataFrame."""


class TidegaugeStreamWriter(_Writes, DataSourceStreamArrowWriter):  # type: ignore[misc]  # pyspark ships no types that mypy may follow
    """Writes micro-batches."""


class TidegaugeDataSource(Shipped, DataSource):  # type: ignore[misc]  # pyspark ships no types that mypy may follow
    """``spark.read.format("tidegauge")`` and ``spark.readStream.format("tidegauge")``."""

    @classmethod
    def name(cls) -> str:
        """Return the format's name."""
        return "tidegauge"

    def _parsed(self, schema: Any, *, streaming: bool) -> Options:
        options = parse_options(dict(self.options.items()), streaming=streaming)
        for sentence in ignored_options(self.options, streaming=streaming):
            log.warning(sentence)
        if schema != spark_schema(options.columns):
            raise TidegaugeError(
                ErrorCode.INVALID_REQUEST,
                "The tidegauge source has a fixed schema and cannot be read with a custom one; leave out .schema(...)",
            )
        return options

    def schema(self) -> Any:
        """Return the schema, fixed but for the optional columns; ``load()`` calls it, so options are checked here."""
        given = dict(self.options.items())
        try:
            options = parse_options(given, streaming=False)
        except TidegaugeError as of_batch:
            try:
                options = parse_options(given, streaming=True)
            except TidegaugeError:
                raise of_batch from None
        return spark_schema(options.columns)

    def reader(self, schema: Any) -> TidegaugeReader:
        """Return a batch reader.

        Raises:
            TidegaugeError: an option is missing or wrong.
        """
        return TidegaugeReader(self._parsed(schema, streaming=False))

    def streamReader(self, schema: Any) -> TidegaugeStreamReader:  # noqa: N802  (Spark's name)
        """Return a streaming reader.

        Raises:
            TidegaugeError: an option is missing or wrong.
        """
        return TidegaugeStreamReader(self._parsed(schema, streaming=True))

    def _write_options(self, schema: Any, *, streaming: bool) -> WriteOptions:
        options = parse_write_options(dict(self.options.items()), streaming=streaming)
        check_columns({field.name: field.dataType.simpleString() for field in schema.fields}, options.topic)
        return options

    def writer(self, schema: Any, overwrite: bool) -> TidegaugeWriter:
        """Return a batch writer.

        Raises:
            TidegaugeError: an option or a column is missing or wrong; mode overwrite.
        """
        if overwrite:
            raise TidegaugeError(
                ErrorCode.INVALID_REQUEST,
                "Save mode overwrite not allowed for tidegauge: a log is only appended to; use mode append",
            )
        return TidegaugeWriter(self._write_options(schema, streaming=False))

    def streamWriter(self, schema: Any, overwrite: bool) -> TidegaugeStreamWriter:  # noqa: ARG002, N802  (Spark's names; a log has one mode)
        """Return a streaming writer; output mode append or update, as in Kafka's sink.

        Raises:
            TidegaugeError: an option or a column is missing or wrong.
        """
        return TidegaugeStreamWriter(self._write_options(schema, streaming=True))
