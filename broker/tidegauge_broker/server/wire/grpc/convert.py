"""Messages of the client and replication planes: ``replica.messages`` <-> protobuf. Nothing is decided here.

A value of -1 or None inside is an absent field outside. The control plane has its own such module,
``tidegauge_controller.wire``.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tidegauge.errors import ErrorCode
from tidegauge.partition import TopicPartition
from tidegauge.v1 import common_pb2, fetch_pb2, metadata_pb2, offsets_pb2, produce_pb2
from tidegauge_broker.replica.messages import (
    UNDEFINED_EPOCH_END,
    DeleteRecordsResult,
    EpochEnd,
    EpochEndResult,
    EpochLookup,
    FetchedPartition,
    FetchPartition,
    FetchResult,
    LeaderHint,
    LogOnDisk,
    OffsetResult,
    ProducePartition,
    ProduceRequest,
    ProduceResult,
    ReplicaView,
)
from tidegauge_broker.replica.refusals import Refusal
from tidegauge_controller.wire import from_error, to_endpoint, to_error

__all__ = ["from_error", "to_endpoint", "to_error"]


def _known(value: int) -> int | None:
    return None if value < 0 else value


def _to_hint(hint: LeaderHint | None) -> common_pb2.LeaderHint | None:
    return None if hint is None else common_pb2.LeaderHint(leader_id=hint.leader, leader_epoch=hint.leader_epoch)


def _to_epoch_end(end: EpochEnd | None) -> common_pb2.EpochEndOffset | None:
    if end is None:
        return None
    return common_pb2.EpochEndOffset(leader_epoch=_known(end.epoch), end_offset=_known(end.end_offset))


def from_produce(message: produce_pb2.ProduceRequest) -> ProduceRequest:
    """Convert a produce request."""
    return ProduceRequest(
        message.acks,
        message.timeout_ms,
        [ProducePartition(TopicPartition(item.topic, item.partition), item.records) for item in message.partitions],
    )


def to_produce_response(correlation_id: int, results: Sequence[ProduceResult]) -> produce_pb2.ProduceResponse:
    """Convert the response to a produce request."""
    return produce_pb2.ProduceResponse(
        correlation_id=correlation_id,
        partitions=[
            produce_pb2.ProducePartitionResult(
                topic=result.topic_partition.topic,
                partition=result.topic_partition.partition,
                error=to_error(result.error),
                error_message=result.message,
                base_offset=_known(result.base_offset),
                log_append_time_ms=_known(result.log_append_time_ms),
                log_start_offset=_known(result.log_start_offset),
                current_leader=_to_hint(result.leader_hint),
            )
            for result in results
        ],
    )


def from_fetch_partition(message: fetch_pb2.FetchPartition) -> FetchPartition:
    """Convert what a reader asks of one partition."""
    return FetchPartition(
        TopicPartition(message.topic, message.partition),
        message.fetch_offset,
        message.partition_max_bytes,
        message.current_leader_epoch if message.HasField("current_leader_epoch") else None,
        message.last_fetched_epoch if message.HasField("last_fetched_epoch") else None,
        message.log_start_offset if message.HasField("log_start_offset") else -1,
    )


def to_fetch_partition(wanted: FetchPartition) -> fetch_pb2.FetchPartition:
    """Convert what a follower asks of one partition."""
    return fetch_pb2.FetchPartition(
        topic=wanted.topic_partition.topic,
        partition=wanted.topic_partition.partition,
        current_leader_epoch=wanted.current_leader_epoch,
        fetch_offset=wanted.fetch_offset,
        last_fetched_epoch=wanted.last_fetched_epoch,
        log_start_offset=_known(wanted.log_start_offset),
        partition_max_bytes=wanted.max_bytes,
    )


def to_fetch_result(result: FetchResult) -> fetch_pb2.FetchPartitionResult:
    """Convert the result of one partition, without its records."""
    return fetch_pb2.FetchPartitionResult(
        topic=result.topic_partition.topic,
        partition=result.topic_partition.partition,
        error=to_error(result.error),
        error_message=result.message,
        high_watermark=_known(result.high_watermark),
        last_stable_offset=_known(result.last_stable_offset),
        aborted_transactions=[
            fetch_pb2.AbortedTransaction(producer_id=one.producer_id, first_offset=one.first_offset)
            for one in result.aborted_transactions or ()
        ],
        log_start_offset=_known(result.log_start_offset),
        log_end_offset=_known(result.log_end_offset),
        diverging_epoch=_to_epoch_end(result.diverging),
        current_leader=_to_hint(result.leader_hint),
    )


def from_fetch_result(message: fetch_pb2.FetchPartitionResult) -> FetchedPartition:
    """Convert one partition of a response into the follower's view of it."""
    return FetchedPartition(
        TopicPartition(message.topic, message.partition),
        from_error(message.error),
        message.high_watermark if message.HasField("high_watermark") else -1,
        message.log_start_offset if message.HasField("log_start_offset") else -1,
        message.log_end_offset if message.HasField("log_end_offset") else -1,
        _from_epoch_end(message.diverging_epoch) if message.HasField("diverging_epoch") else None,
        LeaderHint(message.current_leader.leader_id, message.current_leader.leader_epoch)
        if message.HasField("current_leader")
        else None,
        message.records,
    )


def _from_epoch_end(message: common_pb2.EpochEndOffset) -> EpochEnd:
    if not message.HasField("end_offset"):
        return UNDEFINED_EPOCH_END
    return EpochEnd(message.leader_epoch if message.HasField("leader_epoch") else -1, message.end_offset)


def to_epoch_end_result(result: EpochEndResult) -> offsets_pb2.OffsetForLeaderEpochResult:
    """Return the message for the end of an epoch."""
    return offsets_pb2.OffsetForLeaderEpochResult(
        topic=result.topic_partition.topic,
        partition=result.topic_partition.partition,
        error=to_error(result.error),
        error_message="" if result.error is ErrorCode.NONE else result.error.name,
        end=_to_epoch_end(result.end),
    )


def from_epoch_questions(message: offsets_pb2.OffsetsForLeaderEpochRequest) -> list[EpochLookup]:
    """Convert the partitions of a request."""
    return [
        EpochLookup(
            TopicPartition(item.topic, item.partition),
            item.leader_epoch,
            item.current_leader_epoch if item.HasField("current_leader_epoch") else None,
        )
        for item in message.partitions
    ]


def to_epoch_end_results(results: Iterable[EpochEndResult]) -> offsets_pb2.OffsetsForLeaderEpochResponse:
    """Convert a response with all its partitions."""
    return offsets_pb2.OffsetsForLeaderEpochResponse(partitions=[to_epoch_end_result(result) for result in results])


def from_epoch_end_result(message: offsets_pb2.OffsetForLeaderEpochResult) -> EpochEndResult:
    """Return the end of an epoch in the leader's log."""
    return EpochEndResult(
        TopicPartition(message.topic, message.partition), from_error(message.error), _from_epoch_end(message.end)
    )


def to_epoch_question(question: EpochLookup) -> offsets_pb2.OffsetForLeaderEpochPartition:
    """Return the message that asks for the end of an epoch."""
    return offsets_pb2.OffsetForLeaderEpochPartition(
        topic=question.topic_partition.topic,
        partition=question.topic_partition.partition,
        current_leader_epoch=question.current_leader_epoch,
        leader_epoch=question.leader_epoch,
    )


def to_delete_records_result(result: DeleteRecordsResult) -> offsets_pb2.DeleteRecordsResult:
    """Convert one partition's low watermark."""
    return offsets_pb2.DeleteRecordsResult(
        topic=result.topic_partition.topic,
        partition=result.topic_partition.partition,
        error=to_error(result.error),
        error_message=result.message,
        low_watermark=_known(result.low_watermark),
    )


def to_offset_result(
    topic_partition: TopicPartition, result: OffsetResult, timestamp_ms: int
) -> offsets_pb2.ListOffsetsResult:
    """Convert one partition's offset."""
    return offsets_pb2.ListOffsetsResult(
        topic=topic_partition.topic,
        partition=topic_partition.partition,
        error=to_error(result.error),
        error_message=result.message,
        offset=_known(result.offset),
        timestamp_ms=_known(timestamp_ms),
        leader_epoch=_known(result.leader_epoch),
    )


def to_replica(view: ReplicaView, on_disk: LogOnDisk) -> metadata_pb2.ReplicaDescription:
    """Convert the complete description of one replica."""
    return metadata_pb2.ReplicaDescription(
        topic=view.topic_partition.topic,
        partition=view.topic_partition.partition,
        role=view.role,
        leader_epoch=_known(view.leader_epoch),
        leader_id=_known(view.leader),
        last_stable_offset=view.last_stable_offset,
        log_end_offset=view.log_end_offset,
        high_watermark=view.high_watermark,
        log_start_offset=view.log_start_offset,
        epochs=[
            metadata_pb2.EpochEntry(leader_epoch=entry.epoch, start_offset=entry.start_offset) for entry in view.epochs
        ],
        remote_replicas=[
            metadata_pb2.RemoteReplica(
                broker_id=remote.broker_id,
                log_end_offset=_known(remote.log_end_offset),
                caught_up_ago_ms=_known(remote.caught_up_ago_ms),
                log_start_offset=_known(remote.log_start_offset),
            )
            for remote in view.remote_replicas
        ],
        isr=view.isr,
        maximal_isr=view.maximal_isr,
        partition_epoch=view.partition_epoch,
        size_bytes=on_disk.size_bytes,
        log_dir=on_disk.log_dir,
        leader_epoch_start_offset=_known(view.leader_epoch_start_offset),
        topic_id=view.topic_id,
    )


def to_refused(refusal: Refusal, ago_ms: int) -> metadata_pb2.RefusedRequest:
    """Convert a refused request."""
    return metadata_pb2.RefusedRequest(
        topic=refusal.topic_partition.topic,
        partition=refusal.topic_partition.partition,
        request=refusal.request,
        reason=to_error(refusal.error),
        leader_epoch=refusal.leader_epoch,
        topic_id=refusal.topic_id,
        own_topic_id=refusal.own_topic_id,
        ago_ms=ago_ms,
    )
