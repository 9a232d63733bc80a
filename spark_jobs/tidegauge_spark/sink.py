"""The sink ``tidegauge``: writes rows of a batch or a stream as records.

Contract: as Spark's Kafka sink, at-least-once; with ``idempotent=true`` (a stream's default) a micro-batch that is run
again, after a failed task or a restart from the checkpoint, writes only what is missing (``tidegauge_spark.marks``).

- ``write`` runs in a worker on a copy of the writer and ends when everything is acknowledged; a record that is not
  fails the task.
- Query, run, batch and attempt come from Spark's task context.
- pyspark's classes are named in ``source``; gRPC, pyarrow and the client are imported by the worker.

Source: ``KafkaStreamingWrite``, ``KafkaRowWriter``; local properties of ``MicroBatchExecution``.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.partition import TopicPartition
from tidegauge_spark.marks import MARK_HEADER, Content, Mark, RunMemory, Seen, Written, decode_mark, look_back
from tidegauge_spark.offsets import EARLIEST, LATEST
from tidegauge_spark.options import Options, Subscription, parse_options
from tidegauge_spark.planner import OffsetRange
from tidegauge_spark.ranges import read_range
from tidegauge_spark.write_options import WriteOptions

BATCH_ID = "streaming.sql.batchId"
QUERY_ID = "sql.streaming.queryId"
RUN_ID = "spark.jobGroup.id"
"""Names of Spark's local properties in a micro-batch; the job group of a stream is its run id."""

_memory = RunMemory()


class RowToWrite(NamedTuple):
    """One row; ``partition`` None lets the producer choose."""

    content: Content
    partition: int | None


class Attempt(NamedTuple):
    """Identity of a task's attempt."""

    mark: Mark
    attempt: int


def rows_of(columns: Mapping[str, list[Any]], topic: str, rows: int) -> Iterator[RowToWrite]:
    """Yield the rows of a batch of columns.

    A mark among the headers is left out: the row comes from a topic that a stream has written, and the mark says who
    wrote that record, not this one.

    Raises:
        TidegaugeError: INVALID_REQUEST, a row without a topic.
    """
    nothing: list[Any] = [None] * rows
    topics = nothing if topic else columns.get("topic", nothing)
    keys, values = columns.get("key", nothing), columns["value"]
    partitions, headers = columns.get("partition", nothing), columns.get("headers", nothing)
    for key, value, own_topic, partition, pairs in zip(keys, values, topics, partitions, headers, strict=True):
        where = topic or own_topic
        if where is None:
            raise TidegaugeError(
                ErrorCode.INVALID_REQUEST,
                "A row contains a null topic. Use the topic option for setting a default topic.",
            )
        pairs_given = tuple((str(pair["key"]), pair["value"]) for pair in pairs or () if pair["key"] != MARK_HEADER)
        yield RowToWrite(Content(where, _bytes(key), _bytes(value), pairs_given), partition)


def _bytes(value: Any) -> bytes | None:
    return value.encode() if isinstance(value, str) else value


def current_attempt(name: str) -> Attempt | None:
    """Return the attempt in Spark's task context; None outside of a micro-batch.

    Args:
        name: of the write among those of its micro-batch; empty: it has none.
    """
    from pyspark import TaskContext  # noqa: PLC0415  (only in a worker)

    context = TaskContext.get()
    if context is None:
        return None
    query_id, batch_id = context.getLocalProperty(QUERY_ID), context.getLocalProperty(BATCH_ID)
    if not query_id or not batch_id:
        return None
    run = str(context.getLocalProperty(RUN_ID)).partition("-")[0]  # the first part of a UUID: there are few runs
    named = f"{query_id}:{name}" if name else query_id
    return Attempt(Mark(named, int(batch_id), context.partitionId(), run, context.stageId()), context.attemptNumber())


class ClusterView:
    """``TopicView`` of a real cluster."""

    def __init__(self, options: WriteOptions) -> None:
        self._options = options
        given = {"kafka.bootstrap.servers": ",".join(options.bootstrap_servers), "subscribe": "any"}
        read = {"includeHeaders": "true", "failOnDataLoss": "false"}
        secure = {f"kafka.{name}": value for name, value in options.security}
        self._read_options: Options = parse_options(given | read | secure, streaming=False)
        from tidegauge_spark.transport import client_for  # noqa: PLC0415  (gRPC only in the worker)

        self._client = client_for(self._read_options.connection)

    def bounds(self, topic: str) -> dict[TopicPartition, tuple[int, int]]:
        """Return the first record that is young enough, and the leaders' log ends, committed or not.

        High watermarks come first: what is committed between two requests is young, and must not lie below the first.
        """
        client = self._client
        found = client.partitions(Subscription(topics=(topic,)), asks_all=True)
        since_ms = max(0, time.time_ns() // 1_000_000 - self._options.lookback_ms)
        high_watermarks = client.offsets(dict.fromkeys(found, LATEST))
        young = client.offsets(dict.fromkeys(found, since_ms))
        earliest = client.offsets(dict.fromkeys(found, EARLIEST))
        ends = client.epoch_ends({one: client.leader_epoch(one) for one in found})
        bounds = {}
        for one in found:
            end = ends[one]
            high_watermark = high_watermarks[one] or 0
            last = high_watermark if end is None else max(high_watermark, end.end_offset)
            # No committed record is that young: an uncommitted one may be.
            first = young[one]
            bounds[one] = (max(earliest[one] or 0, high_watermark if first is None else first), last)
        return bounds

    def read(self, topic_partition: TopicPartition, from_offset: int, until_offset: int) -> Iterator[Seen]:
        """Yield all records of a range; wait until it is committed."""
        leader = self._client.leader(topic_partition)
        offsets = OffsetRange(topic_partition, from_offset, until_offset)
        options = self._read_options._replace(columns=self._read_options.columns._replace(headers=True))
        for arrow in read_range(options, self._client, offsets, leader):
            columns = arrow.to_pydict()
            for key, value, pairs in zip(columns["key"], columns["value"], columns["headers"], strict=True):
                headers = tuple((pair["key"], pair["value"]) for pair in pairs or ())
                marks = [decode_mark(value) for name, value in headers if name == MARK_HEADER]
                others = tuple(one for one in headers if one[0] != MARK_HEADER)
                content = Content(topic_partition.topic, key, value, others)
                yield Seen(topic_partition.partition, content, marks[-1] if marks else None)


class TaskWriter:
    """Writes the rows of one task."""

    def __init__(self, options: WriteOptions, attempt: Attempt | None) -> None:
        self._options = options
        self._attempt = attempt if options.is_idempotent else None
        self._looked_at: set[str] = set()
        self._written = Written()
        self._view: ClusterView | None = None
        self._failure: BaseException | None = None
        self.sent = 0
        self.skipped = 0

    def write(self, rows: Iterable[RowToWrite]) -> None:
        """Send the rows that are not in the topic yet and wait for all acknowledgements.

        Raises:
            TidegaugeError: a record was not acknowledged; the task fails.
        """
        asyncio.run(self._write(rows))
        if self._attempt is not None:
            mark = self._attempt.mark
            _memory.done(mark.query_id, mark.run, mark.batch_id)

    async def _write(self, rows: Iterable[RowToWrite]) -> None:
        from tidegauge_client import Producer  # noqa: PLC0415  (grpc.aio only in the worker)
        from tidegauge_client.bootstrap import parse_bootstrap  # noqa: PLC0415  (as above)
        from tidegauge_spark.broker_channels import security_from  # noqa: PLC0415  (as above)

        servers = parse_bootstrap(self._options.bootstrap_servers, security_from(self._options.security))
        mark = () if self._attempt is None else ((MARK_HEADER, self._attempt.mark.encode()),)
        async with Producer(servers, **dict(self._options.producer)) as producer:
            for content, partition in rows:
                if self._is_in_topic(content, partition):
                    self.skipped += 1
                    continue
                future = await producer.send(
                    content.topic,
                    content.value,
                    content.key,
                    partition=partition,
                    headers=content.headers + mark,
                )
                future.add_done_callback(self._responded)
                self.sent += 1
                if self._failure is not None:
                    break
            await producer.flush()
        if self._failure is not None:
            raise self._failure

    def _responded(self, future: asyncio.Future[Any]) -> None:
        error = None if future.cancelled() else future.exception()
        self._failure = self._failure or error

    def _is_in_topic(self, content: Content, partition: int | None) -> bool:
        """Return whether an earlier attempt has written this row; search a topic when its first row comes.

        Raises:
            TidegaugeError: INVALID_REQUEST, records of another write of the micro-batch are there.
        """
        if self._attempt is None:
            return False
        mark, attempt = self._attempt
        if content.topic not in self._looked_at:
            self._looked_at.add(content.topic)
            if _memory.must_look(mark.query_id, mark.run, mark.batch_id, attempt):
                self._view = self._view or ClusterView(self._options)
                look_back(self._view, content.topic, mark, self._written.add)
        return self._written.take(content, partition)


def write_arrow(options: WriteOptions, batches: Iterable[Any]) -> TaskWriter:
    """Write Arrow batches as one task.

    Raises:
        TidegaugeError: a record was not acknowledged; idempotent=true outside of a micro-batch.
    """
    attempt = current_attempt(options.name)
    if options.is_idempotent and attempt is None:
        raise TidegaugeError(
            ErrorCode.INVALID_REQUEST,
            "idempotent=true needs a micro-batch: only there a query, a batch and a task have names that stay when "
            "they are run again. Write with writeStream, or inside foreachBatch",
        )
    writer = TaskWriter(options, attempt)
    writer.write(row for batch in batches for row in rows_of(batch.to_pydict(), options.topic, batch.num_rows))
    return writer
