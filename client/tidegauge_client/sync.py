"""The client for scripts without an event loop: each object runs one in a thread of its own.

``SyncProducer.send`` returns a ``concurrent.futures.Future``; every other method waits for its result. Objects may be
used from any thread. Errors are those of the asynchronous classes.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Collection, Coroutine, Iterable, Mapping, Sequence
from concurrent.futures import Future
from types import TracebackType
from typing import Any, Generic, Self, TypeVar

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.partition import TopicPartition
from tidegauge.v1 import metadata_pb2
from tidegauge_client.admin import Admin, OffsetAndTimestamp, TopicConfig
from tidegauge_client.consumer import Consumer
from tidegauge_client.metadata import ClusterInfo, TopicInfo
from tidegauge_client.partition_queue import RecordMetadata
from tidegauge_client.producer import Producer
from tidegauge_client.records import Headers
from tidegauge_client.sender import Counters
from tidegauge_client.subscription import ConsumerRecord

Result = TypeVar("Result")
Inner = TypeVar("Inner", Producer, Consumer, Admin)


class LoopThread:
    """An event loop in a daemon thread."""

    def __init__(self, name: str) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()

    def submit(self, coroutine: Coroutine[Any, Any, Result]) -> Future[Result]:
        """Start a coroutine on the loop.

        Raises:
            TidegaugeError: INVALID_REQUEST, the loop is closed.
        """
        if self._loop.is_closed():
            coroutine.close()
            raise TidegaugeError(ErrorCode.INVALID_REQUEST, "it is closed")
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop)

    def run(self, coroutine: Coroutine[Any, Any, Result]) -> Result:
        """Run a coroutine to its end; Ctrl-C cancels it."""
        future = self.submit(coroutine)
        try:
            return future.result()
        except KeyboardInterrupt:
            future.cancel()
            raise

    def close(self) -> None:
        """End the loop and its thread; idempotent."""
        if self._loop.is_closed():
            return
        self.submit(_cancel_others()).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


async def _cancel_others() -> None:
    """Cancel everything that is pending when the loop ends, for example after Ctrl-C."""
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)


class _Facade(Generic[Inner]):
    """Start, stop and context manager."""

    _loop: LoopThread
    _inner: Inner

    def start(self) -> None:
        """Find the cluster.

        Raises:
            TidegaugeError: BROKER_NOT_AVAILABLE, no bootstrap server responds.
        """
        try:
            self._loop.run(self._inner.start())
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """Close; a producer first sends what is left. Idempotent."""
        if self._loop._loop.is_closed():  # noqa: SLF001 - one module
            return
        try:
            self._loop.run(self._inner.stop())
        finally:
            self._loop.close()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


async def _made(kind: type[Result], servers: str | Sequence[str], options: Mapping[str, Any]) -> Result:
    """Build an object on the loop that it will use."""
    return kind(servers, **options)  # type: ignore[call-arg]  # all three take servers and keywords


class SyncProducer(_Facade[Producer]):
    """``Producer`` without ``await``; keywords are the same."""

    def __init__(self, bootstrap_servers: str | Sequence[str], **options: Any) -> None:
        self._loop = LoopThread("tidegauge-producer")
        self._inner = self._loop.run(_made(Producer, bootstrap_servers, options))

    @property
    def counters(self) -> Counters:
        """Return the numbers of records sent, acknowledged, failed, and sent again."""
        return self._inner.counters

    def send(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None = None,
        *,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        headers: Headers = (),
    ) -> Future[RecordMetadata]:
        """Hand a record over, waiting for buffer memory if necessary; the future is the acknowledgement."""
        acknowledged: Future[RecordMetadata] = Future()

        def answered(future: asyncio.Future[RecordMetadata]) -> None:
            if future.cancelled():
                acknowledged.cancel()
            elif (problem := future.exception()) is not None:
                acknowledged.set_exception(problem)
            else:
                acknowledged.set_result(future.result())

        async def hand_over() -> None:
            promise = await self._inner.send(
                topic, value, key, partition=partition, timestamp_ms=timestamp_ms, headers=headers
            )
            promise.add_done_callback(answered)

        self._loop.run(hand_over())
        return acknowledged

    def flush(self) -> None:
        """Wait until every record is acknowledged or has failed."""
        self._loop.run(self._inner.flush())


class SyncConsumer(_Facade[Consumer]):
    """``Consumer`` without ``await``; keywords are the same."""

    def __init__(self, bootstrap_servers: str | Sequence[str], **options: Any) -> None:
        self._loop = LoopThread("tidegauge-consumer")
        self._inner = self._loop.run(_made(Consumer, bootstrap_servers, options))

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Read exactly these partitions."""

        async def work() -> None:
            self._inner.assign(partitions)

        self._loop.run(work())

    def subscribe(self, topics: Collection[str]) -> None:
        """Read all partitions of these topics."""
        self._loop.run(self._inner.subscribe(topics))

    def assignment(self) -> list[TopicPartition]:
        """Return the partitions that are read."""
        return self._inner.assignment()

    def seek(self, topic_partition: TopicPartition, offset: int) -> None:
        """Continue at an offset."""

        async def work() -> None:
            self._inner.seek(topic_partition, offset)

        self._loop.run(work())

    def seek_to_beginning(self, partitions: Iterable[TopicPartition] = ()) -> None:
        """Continue at the log start offset (none named: of all partitions)."""
        self._loop.run(self._inner.seek_to_beginning(partitions))

    def seek_to_end(self, partitions: Iterable[TopicPartition] = ()) -> None:
        """Continue at the high watermark (none named: of all partitions)."""
        self._loop.run(self._inner.seek_to_end(partitions))

    def position(self, topic_partition: TopicPartition) -> int:
        """Return the offset of the next record that poll returns."""
        return self._loop.run(self._inner.position(topic_partition))

    def high_watermark(self, topic_partition: TopicPartition) -> int | None:
        """Return the high watermark as of the last fetch."""
        return self._inner.high_watermark(topic_partition)

    def poll(self, timeout_ms: float = 0, max_records: int | None = None) -> list[ConsumerRecord]:
        """Return the next records; none if the timeout passes first."""
        return self._loop.run(self._inner.poll(timeout_ms, max_records))


class SyncAdmin(_Facade[Admin]):
    """``Admin`` without ``await``; keywords are the same."""

    def __init__(self, bootstrap_servers: str | Sequence[str], **options: Any) -> None:
        self._loop = LoopThread("tidegauge-admin")
        self._inner = self._loop.run(_made(Admin, bootstrap_servers, options))

    def metadata(self, topics: Collection[str] | None = None) -> ClusterInfo:
        """Return one broker's view."""
        return self._loop.run(self._inner.metadata(topics))

    def list_topics(self) -> list[str]:
        """Return all topics, sorted by name."""
        return self._loop.run(self._inner.list_topics())

    def describe_topics(self, topics: Collection[str]) -> list[TopicInfo]:
        """Return the named topics, in the order given."""
        return self._loop.run(self._inner.describe_topics(topics))

    def describe_topic_config(self, topic: str) -> list[TopicConfig]:
        """Return a topic's settings."""
        return self._loop.run(self._inner.describe_topic_config(topic))

    def describe_replicas(
        self, topics: Collection[str] = ()
    ) -> dict[int, list[metadata_pb2.ReplicaDescription] | None]:
        """Return what each live broker holds; None for one that did not respond."""
        return self._loop.run(self._inner.describe_replicas(topics))

    def create_topic(self, name: str, **options: Any) -> str:
        """Create a topic; keywords as ``Admin.create_topic``."""
        return self._loop.run(self._inner.create_topic(name, **options))

    def wait_for_topic(self, name: str, *, timeout_ms: float = 30_000) -> None:
        """Wait until every live broker knows the topic with its leaders."""
        self._loop.run(self._inner.wait_for_topic(name, timeout_ms=timeout_ms))

    def list_offsets(self, wanted: Mapping[TopicPartition, int]) -> dict[TopicPartition, OffsetAndTimestamp]:
        """Return offsets by time."""
        return self._loop.run(self._inner.list_offsets(wanted))
