"""The client for scripts without an event loop: each object runs one in a thread of its own.

``SyncProducer.send`` returns a ``concurrent.futures.Future``; every other method waits for its result. Objects may be
used from any thread. Errors are those of the asynchronous classes.

Made by tools/generate-mirrors.py from ``Producer`` and ``Consumer``; change them instead.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Literal, Unpack

from tidegauge.errors import TidegaugeError
from tidegauge.partition import TopicPartition
from tidegauge_client.bootstrap import SecurityArguments
from tidegauge_client.consumer import Consumer
from tidegauge_client.group.group_consumer import GroupMetadata
from tidegauge_client.isolation import IsolationLevel
from tidegauge_client.kafka_offsets import OffsetAndMetadata
from tidegauge_client.loop_thread import Facade, LoopThread, made_on
from tidegauge_client.metadata import BrokerInfo, TopicIdentity, TopicInfo
from tidegauge_client.producer import Producer
from tidegauge_client.producer_facade import ProducerFacade
from tidegauge_client.sender import Counters
from tidegauge_client.subscription import ConsumerRecord
from tidegauge_client.sync_admin import SyncAdmin
from tidegauge_client.wires import Wire

__all__ = ["SyncAdmin", "SyncConsumer", "SyncProducer"]


class SyncProducer(ProducerFacade):
    """``Producer`` without ``await``; keywords are the same."""

    def __init__(
        self,
        bootstrap_servers: str | Sequence[str],
        *,
        acks: Literal["all", 0, 1, -1] = "all",
        linger_ms: float = 0,
        batch_size_bytes: int = 16_384,
        compression: str = "none",
        max_in_flight: int = 5,
        delivery_timeout_ms: float = 120_000,
        request_timeout_ms: float = 30_000,
        buffer_memory_bytes: int = 33_554_432,
        idempotence: bool | None = None,
        max_request_size_bytes: int = 1_048_576,
        retry_backoff_ms: float = 100,
        max_block_ms: float = 60_000,
        transactional_id: str | None = None,
        transaction_timeout_ms: int = 60_000,
        client_id: str = "",
        wire: Wire = "kafka",
        **security: Unpack[SecurityArguments],
    ) -> None:
        """Build the client; arguments are those of ``Producer``."""
        self._loop = LoopThread("tidegauge-producer")
        self._inner = made_on(
            self._loop,
            lambda: Producer(
                bootstrap_servers,
                acks=acks,
                linger_ms=linger_ms,
                batch_size_bytes=batch_size_bytes,
                compression=compression,
                max_in_flight=max_in_flight,
                delivery_timeout_ms=delivery_timeout_ms,
                request_timeout_ms=request_timeout_ms,
                buffer_memory_bytes=buffer_memory_bytes,
                idempotence=idempotence,
                max_request_size_bytes=max_request_size_bytes,
                retry_backoff_ms=retry_backoff_ms,
                max_block_ms=max_block_ms,
                transactional_id=transactional_id,
                transaction_timeout_ms=transaction_timeout_ms,
                client_id=client_id,
                wire=wire,
                **security,
            ),
        )

    @property
    def counters(self) -> Counters:
        """Return the numbers of records sent, acknowledged, failed, and sent again."""
        return self._inner.counters

    def flush(self) -> None:
        """Send everything at once and wait until every record is acknowledged or has failed."""
        self._loop.run(self._inner.flush())

    def partitions_for(self, topic: str, *, timeout_ms: float | None = None) -> TopicInfo:
        """Return a topic's partitions; wait for metadata up to the timeout or max_block_ms.

        Raises:
            TidegaugeError: UNKNOWN_TOPIC_OR_PARTITION, INVALID_TOPIC_EXCEPTION.
        """
        return self._loop.run(self._inner.partitions_for(topic, timeout_ms=timeout_ms))

    def topic_identity(self, topic: str) -> TopicIdentity:
        """Return the ids of a topic and its cluster, empty while unknown."""
        return self._inner.topic_identity(topic)

    def led_by_kafka(self, topic: str) -> dict[int, BrokerInfo]:
        """Return a topic's partitions led by Apache Kafka brokers, with leaders."""
        return self._inner.led_by_kafka(topic)

    def init_transactions(self) -> None:
        """Take over the transactional id: earlier producers of it are fenced, their open transaction is aborted.

        Raises:
            TidegaugeError: REQUEST_TIMED_OUT after max_block_ms; INVALID_TRANSACTION_TIMEOUT, ...
        """
        self._loop.run(self._inner.init_transactions())

    def begin_transaction(self) -> None:
        """Begin a transaction; all records until its end belong to it.

        Raises:
            TidegaugeError: INVALID_TXN_STATE, an earlier call does not fit; PRODUCER_FENCED.
        """
        self._loop.run(self._inner.begin_transaction())

    def send_offsets_to_transaction(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata], group: GroupMetadata
    ) -> None:
        """Store a group's offsets, the next ones to read, that count when the transaction is committed (KIP-447).

        Args:
            offsets: by partition.
            group: ``group_metadata()`` of the consumer, by which a member of an older generation is rejected.

        Raises:
            TidegaugeError: ILLEGAL_GENERATION, UNKNOWN_MEMBER_ID and others; the transaction must be aborted then.
        """
        self._loop.run(self._inner.send_offsets_to_transaction(offsets, group))

    def commit_transaction(self) -> None:
        """Send the remaining records, wait for their acknowledgements, and commit; return when the commit is decided.

        Raises:
            TidegaugeError: INVALID_TXN_STATE, a record has failed, and the transaction must be aborted.
                REQUEST_TIMED_OUT, the outcome is unknown: call it again. PRODUCER_FENCED.
        """
        self._loop.run(self._inner.commit_transaction())

    def abort_transaction(self) -> None:
        """Drop unacknowledged records, and abort; the next transaction may begin after it.

        Raises:
            TidegaugeError: REQUEST_TIMED_OUT: call it again; PRODUCER_FENCED.
        """
        self._loop.run(self._inner.abort_transaction())


class SyncConsumer(Facade[Consumer]):
    """``Consumer`` without ``await``; keywords are the same."""

    def __init__(
        self,
        bootstrap_servers: str | Sequence[str],
        *,
        auto_offset_reset: Literal["latest", "earliest", "none"] = "latest",
        fetch_max_wait_ms: int = 500,
        fetch_min_bytes: int = 1,
        fetch_max_bytes: int = 52_428_800,
        max_partition_fetch_bytes: int = 1_048_576,
        max_poll_records: int = 500,
        request_timeout_ms: float = 30_000,
        retry_backoff_ms: float = 100,
        metadata_max_age_ms: float = 300_000,
        check_crcs: bool = True,
        isolation_level: IsolationLevel = "read_uncommitted",
        client_id: str = "",
        wire: Wire = "kafka",
        **security: Unpack[SecurityArguments],
    ) -> None:
        """Build the client; arguments are those of ``Consumer``."""
        self._loop = LoopThread("tidegauge-consumer")
        self._inner = made_on(
            self._loop,
            lambda: Consumer(
                bootstrap_servers,
                auto_offset_reset=auto_offset_reset,
                fetch_max_wait_ms=fetch_max_wait_ms,
                fetch_min_bytes=fetch_min_bytes,
                fetch_max_bytes=fetch_max_bytes,
                max_partition_fetch_bytes=max_partition_fetch_bytes,
                max_poll_records=max_poll_records,
                request_timeout_ms=request_timeout_ms,
                retry_backoff_ms=retry_backoff_ms,
                metadata_max_age_ms=metadata_max_age_ms,
                check_crcs=check_crcs,
                isolation_level=isolation_level,
                client_id=client_id,
                wire=wire,
                **security,
            ),
        )

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Read exactly these partitions; the positions of those that stay are kept."""

        async def work() -> None:
            self._inner.assign(partitions)

        self._loop.run(work())

    def subscribe(self, topics: Collection[str], *, timeout_ms: float = 60_000) -> None:
        """Read all partitions of these topics; partitions added later are found with the metadata.

        Raises:
            TidegaugeError: UNKNOWN_TOPIC_OR_PARTITION, INVALID_TOPIC_EXCEPTION.
        """
        self._loop.run(self._inner.subscribe(topics, timeout_ms=timeout_ms))

    def topic_identity(self, topic: str) -> TopicIdentity:
        """Return the ids of a topic and its cluster, empty while unknown."""
        return self._inner.topic_identity(topic)

    def led_by_kafka(self, topic: str) -> dict[int, BrokerInfo]:
        """Return a topic's partitions led by Apache Kafka brokers, with leaders."""
        return self._inner.led_by_kafka(topic)

    def assignment(self) -> list[TopicPartition]:
        """Return the partitions that are read."""
        return self._inner.assignment()

    def seek(self, topic_partition: TopicPartition, offset: int) -> None:
        """Continue at an offset.

        Raises:
            TidegaugeError: INVALID_REQUEST, not assigned or negative.
        """

        async def work() -> None:
            self._inner.seek(topic_partition, offset)

        self._loop.run(work())

    def seek_to_beginning(self, partitions: Iterable[TopicPartition] = ()) -> None:
        """Continue at the log start offset (none named: of all partitions), looked up now.

        Raises:
            TidegaugeError: REQUEST_TIMED_OUT, no leader responded in time.
        """
        self._loop.run(self._inner.seek_to_beginning(partitions))

    def seek_to_end(self, partitions: Iterable[TopicPartition] = ()) -> None:
        """Continue at the high watermark (none named: of all partitions), looked up now.

        Raises:
            TidegaugeError: REQUEST_TIMED_OUT, no leader responded in time.
        """
        self._loop.run(self._inner.seek_to_end(partitions))

    def position(self, topic_partition: TopicPartition, *, timeout_ms: float = 60_000) -> int:
        """Return the offset of the next record of poll; look it up if unknown.

        Raises:
            TidegaugeError: INVALID_REQUEST, not assigned, REQUEST_TIMED_OUT, or OFFSET_OUT_OF_RANGE without a reset
                policy.
        """
        return self._loop.run(self._inner.position(topic_partition, timeout_ms=timeout_ms))

    def high_watermark(self, topic_partition: TopicPartition) -> int | None:
        """Return the high watermark as of the last fetch; None before the first."""
        return self._inner.high_watermark(topic_partition)

    def troubles(self) -> dict[TopicPartition, TidegaugeError]:
        """Return the reasons why partitions can't be read now; they are retried."""
        return self._inner.troubles()

    def take_notices(self) -> list[str]:
        """Return notices about positions since the last call, such as resets."""

        async def work() -> list[str]:
            return self._inner.take_notices()

        return self._loop.run(work())

    def poll(self, timeout_ms: float = 0, max_records: int | None = None) -> list[ConsumerRecord]:
        """Return the next records, as soon as some arrive; none after the timeout.

        Raises:
            TidegaugeError: OFFSET_OUT_OF_RANGE without a reset policy, CORRUPT_MESSAGE, or another error that is not
                retriable. Positions are unchanged; ``seek`` skips the cause.
        """
        return self._loop.run(self._inner.poll(timeout_ms, max_records))
