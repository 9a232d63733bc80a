"""Reads a local replica's log as it is, up to its log end offset, leader or not: for accountants, not for consumers.

Rules:
- Offsets and bytes of a response are of one moment: they are read on the event loop, between two steps of the core.
- Reading counts for nothing: no remote log end offset, no caught-up clock, no purgatory.
- The first read without an offset begins at the log start offset.

Source: Kafka's ReplicaVerificationTool, which fetches as the debugging consumer (replica id -2) from every replica.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import grpc.aio

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.partition import TopicPartition
from tidegauge.v1 import replica_log_service_pb2, replica_log_service_pb2_grpc
from tidegauge_broker.replica.roles import Role
from tidegauge_broker.server.replication.replica_manager import ReplicaManager
from tidegauge_controller import wire

MAX_BYTES = 16 * 1024 * 1024
"""Maximum size of the records in a response; a request can only lower it."""


@dataclass(frozen=True, slots=True)
class ReplicaPart:
    """A part of a replica's log, and the replica's state at the same moment.

    Attributes:
        leader_epoch: -1 before the first LeaderAndIsr.
        file: the segment file in which ``records`` begins.
        file_position: the byte in it at which it begins.
        error: OFFSET_OUT_OF_RANGE, NONE, or CORRUPT_MESSAGE: the file holds no complete batch there.
    """

    leader_epoch: int
    log_start_offset: int
    high_watermark: int
    log_end_offset: int
    records: bytes = b""
    file: str = ""
    file_position: int = 0
    error: ErrorCode = ErrorCode.NONE
    message: str = ""


def read_replica(
    replicas: ReplicaManager, topic_partition: TopicPartition, from_offset: int | None, max_bytes: int
) -> ReplicaPart:
    """Return a part of the local replica.

    Raises:
        TidegaugeError: UNKNOWN_TOPIC_OR_PARTITION, no replica is here; KAFKA_STORAGE_ERROR, it is offline.
    """
    partition = replicas.core.partition(topic_partition)
    if partition is None:
        raise TidegaugeError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"There is no replica of {topic_partition} here")
    log = replicas.logs.get(topic_partition)
    if log is None or partition.role is Role.OFFLINE:
        raise TidegaugeError(ErrorCode.KAFKA_STORAGE_ERROR, f"The replica of {topic_partition} here is offline")
    begin = log.log_start_offset if from_offset is None else from_offset
    at = (partition.leader_epoch, log.log_start_offset, partition.high_watermark, log.log_end_offset)
    if not log.log_start_offset <= begin <= log.log_end_offset:
        return ReplicaPart(
            *at,
            error=ErrorCode.OFFSET_OUT_OF_RANGE,
            message=f"Offset {begin} is outside the log, which holds {log.log_start_offset} to {log.log_end_offset}",
        )
    try:
        records = log.read(begin, log.log_end_offset, min(max(0, max_bytes), MAX_BYTES), at_least_one_batch=True)
        file, position = log.place_of(begin)
    except TidegaugeError as problem:
        if problem.code is not ErrorCode.CORRUPT_MESSAGE:
            raise
        return ReplicaPart(*at, error=problem.code, message=problem.message)
    return ReplicaPart(*at, records=records, file=file, file_position=position)


class ReplicaLogServicer(replica_log_service_pb2_grpc.ReplicaLogServiceServicer):
    """The methods of ``replica_log_service.proto``."""

    def __init__(self, replicas: ReplicaManager) -> None:
        self._replicas = replicas

    async def ReadReplica(
        self,
        request: replica_log_service_pb2.ReadReplicaRequest,
        context: grpc.aio.ServicerContext[Any, Any],
    ) -> replica_log_service_pb2.ReadReplicaResponse:
        """See ``replica_log_service.proto``."""
        del context
        try:
            part = read_replica(
                self._replicas,
                TopicPartition(request.topic, request.partition),
                request.from_offset if request.HasField("from_offset") else None,
                request.max_bytes,
            )
        except TidegaugeError as problem:
            return replica_log_service_pb2.ReadReplicaResponse(
                error=wire.to_error(problem.code), error_message=problem.message
            )
        return replica_log_service_pb2.ReadReplicaResponse(
            error=wire.to_error(part.error),
            error_message=part.message,
            leader_epoch=None if part.leader_epoch < 0 else part.leader_epoch,
            log_start_offset=part.log_start_offset,
            high_watermark=part.high_watermark,
            log_end_offset=part.log_end_offset,
            records=part.records,
            file=part.file,
            file_position=part.file_position,
        )
