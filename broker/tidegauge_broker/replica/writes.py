"""Requests of clients that change a log: produce and DeleteRecords.

Source: ReplicaManager.appendRecords and deleteRecords.
"""

from __future__ import annotations

from collections.abc import Sequence

from tidegauge.errors import ErrorCode
from tidegauge.partition import INTERNAL_TOPICS, TopicPartition
from tidegauge.wall_time import WallTime
from tidegauge_broker.replica.delayed_delete_records import DelayedDeleteRecords
from tidegauge_broker.replica.delayed_produce import DelayedProduce
from tidegauge_broker.replica.effects import Effect, RespondToProduce
from tidegauge_broker.replica.hosted import HostedPartitions, contain, message_for
from tidegauge_broker.replica.messages import (
    ACKS_ALL,
    DeleteRecordsResult,
    ProducePartition,
    ProduceRequest,
    ProduceResult,
    RecordsToDelete,
)
from tidegauge_broker.replica.parked import ParkedOperations
from tidegauge_broker.replica.partition import Partition
from tidegauge_broker.replica.ports import Metadata
from tidegauge_broker.replica.preparation import Allowance, Preparation
from tidegauge_broker.replica.record_errors import NamedRecords
from tidegauge_broker.replica.verification import ProducerBatch, VerificationGuard

_ACKS = frozenset({ACKS_ALL, 0, 1})


class Writes:
    """Appends to logs and raises their starts, for partitions that this broker leads.

    Args:
        hosted: the replicas.
        parked: operations that wait for them; a write waits there for the followers.
        metadata: the broker's view of the cluster.
        wall: by which records get their append time, and their own times are checked.
    """

    __slots__ = ("_hosted", "_metadata", "_parked", "_wall")

    def __init__(self, hosted: HostedPartitions, parked: ParkedOperations, metadata: Metadata, wall: WallTime) -> None:
        self._hosted = hosted
        self._parked = parked
        self._metadata = metadata
        self._wall = wall

    def produce(self, request: ProduceRequest, token: object, now_ms: int, *, wake_later: bool = False) -> list[Effect]:
        """Append; RespondToProduce(token) comes now or later. ``BrokerCore.produce`` explains ``wake_later``."""
        out: list[Effect] = []
        results: list[ProduceResult] = []
        required: dict[int, int] = {}
        touched: list[Partition] = []
        seen: set[TopicPartition] = set()
        named = NamedRecords()
        for index, item in enumerate(request.partitions):
            topic_partition = item.topic_partition
            if request.acks not in _ACKS:
                result = ProduceResult(
                    topic_partition,
                    ErrorCode.INVALID_REQUIRED_ACKS,
                    f"acks is {request.acks}; it must be -1 (all), 0 or 1",
                )
            elif topic_partition.topic in INTERNAL_TOPICS and not (request.from_coordinator or request.may_be_internal):
                result = ProduceResult(
                    topic_partition,
                    ErrorCode.INVALID_TOPIC_EXCEPTION,
                    f"Cannot append to internal topic {topic_partition.topic}",
                )
            elif topic_partition in seen:
                result = ProduceResult(
                    topic_partition, ErrorCode.INVALID_REQUEST, f"{topic_partition} appears twice in one request"
                )
            else:
                result, required_offset = self._append(request, item, now_ms, touched, out)
                if required_offset >= 0:
                    required[index] = required_offset
                elif result.record_errors:
                    result.record_errors = named.within_limit(result.record_errors)
            seen.add(topic_partition)
            results.append(result)
        alive = self._metadata.live_brokers()
        for partition in touched:
            try:
                assert partition.leader_role is not None
                partition.leader_role.maybe_advance_high_watermark(now_ms, alive, "Produce", out)
            except Exception as problem:  # noqa: BLE001 - a defect, which concerns this partition alone
                contain(partition, problem, out)
        tried: set[int] = set()
        for partition in touched:
            self._parked.settle(partition, out, fetches_tried=tried, wake_later=wake_later)
        for partition in touched:
            partition.unwritten.clear()
        if request.acks == ACKS_ALL and required:
            operation = DelayedProduce(token, now_ms + request.timeout_ms, results, required, self._commit_outcome)
            self._parked.produces.try_or_watch(operation, out)
        else:
            out.append(RespondToProduce(token, results))
        return out

    def _append(
        self, request: ProduceRequest, item: ProducePartition, now_ms: int, touched: list[Partition], out: list[Effect]
    ) -> tuple[ProduceResult, int]:
        topic_partition = item.topic_partition
        leader, error = self._hosted.leader_of(topic_partition, None)
        if leader is None:
            return (
                ProduceResult(
                    topic_partition,
                    error,
                    message_for(error, topic_partition),
                    leader_hint=self._hosted.leader_hint(topic_partition),
                ),
                -1,
            )
        try:
            result, required_offset = leader.append(item, request, self._wall.at(now_ms), out)
        except Exception as problem:  # noqa: BLE001 - a defect, which concerns this partition alone
            contain(leader.partition, problem, out)
            error = ErrorCode.UNKNOWN_SERVER_ERROR
            return ProduceResult(topic_partition, error, message_for(error, topic_partition)), -1
        if required_offset >= 0:
            touched.append(leader.partition)
        return result, required_offset

    def preparations(self, request: ProduceRequest, wall_ms: int) -> list[Preparation]:
        """Return the batches to prepare elsewhere before a request is appended.

        ``preparation`` has the rules.

        A batch that is refused anyway needs none.
        """
        allowance = Allowance()
        found: list[Preparation] = []
        for item in request.partitions if request.acks in _ACKS else ():
            if item.topic_partition.topic in INTERNAL_TOPICS and not request.may_be_internal:
                continue
            leader, _ = self._hosted.leader_of(item.topic_partition, None)
            if leader is not None and item.prepared is None and allowance.is_heavy(item, leader.partition.rules):
                found.append(Preparation(item, leader.partition.rules, wall_ms))
        return found

    def begin_verification(
        self, topic_partition: TopicPartition, batch: ProducerBatch, now_ms: int
    ) -> VerificationGuard | ErrorCode | None:
        """Note that a transactional batch is verified before it is appended; return the guard for its append.

        Returns:
            INVALID_PRODUCER_EPOCH if Kafka 4 knows a higher epoch of the producer.
            None if nothing has to be verified: the producer's transaction is open here, verification is off, which
            does not matter if the partition is added instead, or this broker does not lead, which the append will
            find out.
        """
        leader, _ = self._hosted.leader_of(topic_partition, None)
        if leader is None:
            return None
        partition = leader.partition
        if not (batch.raises_epoch or partition.settings.verifies_transactions):
            return None
        if leader.knows_later_epoch(batch):
            return ErrorCode.INVALID_PRODUCER_EPOCH
        if leader.has_open(batch.producer_id, batch.producer_epoch):
            return None
        return partition.verifications.begin(batch, now_ms)

    def _commit_outcome(self, topic_partition: TopicPartition, offset: int) -> tuple[ErrorCode, str] | None:
        leader, error = self._hosted.leader_of(topic_partition, None)
        return (error, message_for(error, topic_partition)) if leader is None else leader.commit_outcome(offset)

    def delete_records(
        self, wanted: Sequence[RecordsToDelete], timeout_ms: int, token: object, now_ms: int
    ) -> list[Effect]:
        """Raise log start offsets; RespondToDeleteRecords(token) comes when all live replicas have followed."""
        out: list[Effect] = []
        results: list[DeleteRecordsResult] = []
        required: dict[int, int] = {}
        for index, item in enumerate(wanted):
            leader, error = self._hosted.leader_of(item.topic_partition, None)
            if leader is None:
                words = message_for(error, item.topic_partition)
                results.append(DeleteRecordsResult(item.topic_partition, error, words))
                continue
            try:
                result, offset = leader.delete_records(item.before_offset, out)
            except Exception as problem:  # noqa: BLE001 - a defect, which concerns this partition alone
                contain(leader.partition, problem, out)
                error = ErrorCode.UNKNOWN_SERVER_ERROR
                results.append(
                    DeleteRecordsResult(item.topic_partition, error, message_for(error, item.topic_partition))
                )
                continue
            results.append(result)
            if offset >= 0:
                required[index] = offset
                self._parked.settle(leader.partition, out)
        operation = DelayedDeleteRecords(token, now_ms + timeout_ms, results, required, self._low_watermark)
        self._parked.deletions.try_or_watch(operation, out)
        return out

    def _low_watermark(self, topic_partition: TopicPartition) -> int | tuple[ErrorCode, str]:
        leader, error = self._hosted.leader_of(topic_partition, None)
        if leader is None:
            return error, message_for(error, topic_partition)
        return leader.low_watermark(self._metadata.live_brokers())
