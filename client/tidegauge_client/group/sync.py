"""The group consumer for scripts without an event loop, as in ``tidegauge_client.sync``.

Made by tools/generate-mirrors.py from ``GroupConsumer``; change them instead.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Unpack

from tidegauge.errors import TidegaugeError
from tidegauge.partition import TopicPartition
from tidegauge_client.consumer import ConsumerArguments
from tidegauge_client.group.group_consumer import GroupConsumer, GroupMetadata, Offsets
from tidegauge_client.group.sync_base import GroupConsumerFacade
from tidegauge_client.kafka_offsets import OffsetAndMetadata
from tidegauge_client.loop_thread import LoopThread, made_on
from tidegauge_client.metadata import BrokerInfo, TopicIdentity
from tidegauge_client.subscription import ConsumerRecord


class SyncGroupConsumer(GroupConsumerFacade):
    """``GroupConsumer`` without ``await``; keywords are the same."""

    def __init__(
        self,
        bootstrap_servers: str | Sequence[str],
        group_id: str,
        *,
        group_instance_id: str | None = None,
        partition_assignment_strategy: Sequence[str] = ("range",),
        session_timeout_ms: int = 45_000,
        heartbeat_interval_ms: int = 3_000,
        max_poll_interval_ms: int = 300_000,
        enable_auto_commit: bool = True,
        auto_commit_interval_ms: int = 5_000,
        close_timeout_ms: float = 30_000,
        **settings: Unpack[ConsumerArguments],
    ) -> None:
        """Build the client; arguments are those of ``GroupConsumer``."""
        self._loop = LoopThread("tidegauge-group-consumer")
        self._inner = made_on(
            self._loop,
            lambda: GroupConsumer(
                bootstrap_servers,
                group_id,
                group_instance_id=group_instance_id,
                partition_assignment_strategy=partition_assignment_strategy,
                session_timeout_ms=session_timeout_ms,
                heartbeat_interval_ms=heartbeat_interval_ms,
                max_poll_interval_ms=max_poll_interval_ms,
                enable_auto_commit=enable_auto_commit,
                auto_commit_interval_ms=auto_commit_interval_ms,
                close_timeout_ms=close_timeout_ms,
                **settings,
            ),
        )

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Read exactly these partitions, as no member of the group, from the offsets that it has committed.

        Raises:
            TidegaugeError: INVALID_REQUEST, the consumer has subscribed to topics.
        """

        async def work() -> None:
            self._inner.assign(partitions)

        self._loop.run(work())

    def unsubscribe(self) -> None:
        """Give the partitions up and leave the group; nothing is committed."""
        self._loop.run(self._inner.unsubscribe())

    def subscription(self) -> set[str]:
        """Return the topics that are subscribed to."""
        return self._inner.subscription()

    def enforce_rebalance(self, reason: str = "rebalance enforced by user") -> None:
        """Join the group again in the next poll (KIP-568)."""

        async def work() -> None:
            self._inner.enforce_rebalance(reason)

        self._loop.run(work())

    def group_metadata(self) -> GroupMetadata:
        """Return the member and its generation."""
        return self._inner.group_metadata()

    def group_trouble(self) -> TidegaugeError | None:
        """Return why the group can't be joined at the moment; it is retried."""
        return self._inner.group_trouble()

    def commit_sync(self, offsets: Offsets | None = None, *, timeout_ms: float = 60_000) -> None:
        """Commit offsets, after the commits that were begun before, and wait until they are committed.

        Args:
            offsets: the next offset to read of each partition; None: the positions, behind what poll has returned.
            timeout_ms: how long it may take, with the commits before it and retries while the coordinator moves.

        Raises:
            CommitFailedError: the group has rebalanced; others may have the partitions already.
            TidegaugeError: REBALANCE_IN_PROGRESS, complete the rebalance with poll; REQUEST_TIMED_OUT, the offsets may
                be committed all the same. FENCED_INSTANCE_ID, OFFSET_METADATA_TOO_LARGE, INVALID_REQUEST.
        """
        self._loop.run(self._inner.commit_sync(offsets, timeout_ms=timeout_ms))

    def committed(
        self, partitions: Collection[TopicPartition], *, timeout_ms: float = 60_000
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """Return the offsets that the group has committed; None if there is none.

        Raises:
            TidegaugeError: REQUEST_TIMED_OUT, no coordinator responded in time, or a commit is still in flight.
        """
        return self._loop.run(self._inner.committed(partitions, timeout_ms=timeout_ms))

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
