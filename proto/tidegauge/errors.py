"""The one table of errors: number, name, retriable, definite, meaning.

The numbers are Kafka's (``org.apache.kafka.common.protocol.Errors``) and are forever; the protobuf enum
``ErrorCode`` has the same ones (a test compares). *Retriable* says that the same request may succeed later;
*refresh_metadata* that the client should ask who leads first; *definite* that the request certainly had no
effect: after an error that is not definite nobody knows, and a retry without idempotence may write twice.
"""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple


class ErrorCode(IntEnum):
    """Kafka's error numbers."""

    UNKNOWN_SERVER_ERROR = -1
    NONE = 0
    OFFSET_OUT_OF_RANGE = 1
    CORRUPT_MESSAGE = 2
    UNKNOWN_TOPIC_OR_PARTITION = 3
    LEADER_NOT_AVAILABLE = 5
    NOT_LEADER_OR_FOLLOWER = 6
    REQUEST_TIMED_OUT = 7
    BROKER_NOT_AVAILABLE = 8
    REPLICA_NOT_AVAILABLE = 9
    MESSAGE_TOO_LARGE = 10
    STALE_CONTROLLER_EPOCH = 11
    NETWORK_EXCEPTION = 13
    COORDINATOR_LOAD_IN_PROGRESS = 14
    INVALID_TOPIC_EXCEPTION = 17
    RECORD_LIST_TOO_LARGE = 18
    NOT_ENOUGH_REPLICAS = 19
    NOT_ENOUGH_REPLICAS_AFTER_APPEND = 20
    INVALID_REQUIRED_ACKS = 21
    INVALID_TIMESTAMP = 32
    UNSUPPORTED_VERSION = 35
    TOPIC_ALREADY_EXISTS = 36
    INVALID_PARTITIONS = 37
    INVALID_REPLICATION_FACTOR = 38
    INVALID_REPLICA_ASSIGNMENT = 39
    INVALID_CONFIG = 40
    NOT_CONTROLLER = 41
    INVALID_REQUEST = 42
    POLICY_VIOLATION = 44
    OUT_OF_ORDER_SEQUENCE_NUMBER = 45
    DUPLICATE_SEQUENCE_NUMBER = 46
    INVALID_PRODUCER_EPOCH = 47
    OPERATION_NOT_ATTEMPTED = 55
    KAFKA_STORAGE_ERROR = 56
    UNKNOWN_PRODUCER_ID = 59
    REASSIGNMENT_IN_PROGRESS = 60
    FETCH_SESSION_ID_NOT_FOUND = 70
    INVALID_FETCH_SESSION_EPOCH = 71
    TOPIC_DELETION_DISABLED = 73
    FENCED_LEADER_EPOCH = 74
    UNKNOWN_LEADER_EPOCH = 75
    UNSUPPORTED_COMPRESSION_TYPE = 76
    STALE_BROKER_EPOCH = 77
    OFFSET_NOT_AVAILABLE = 78
    PREFERRED_LEADER_NOT_AVAILABLE = 80
    ELIGIBLE_LEADERS_NOT_AVAILABLE = 83
    ELECTION_NOT_NEEDED = 84
    NO_REASSIGNMENT_IN_PROGRESS = 85
    INVALID_RECORD = 87
    INVALID_UPDATE_VERSION = 95
    UNKNOWN_TOPIC_ID = 100
    INCONSISTENT_TOPIC_ID = 103
    INCONSISTENT_CLUSTER_ID = 104
    INELIGIBLE_REPLICA = 107

    @classmethod
    def of(cls, number: int) -> ErrorCode:
        """The code with this number; an unknown number is UNKNOWN_SERVER_ERROR."""
        try:
            return cls(number)
        except ValueError:
            return cls.UNKNOWN_SERVER_ERROR


class ErrorInfo(NamedTuple):
    """One row of the table."""

    code: ErrorCode
    retriable: bool
    refresh_metadata: bool
    definite: bool
    meaning: str


def _table() -> dict[ErrorCode, ErrorInfo]:
    e = ErrorCode
    retry, refresh, definite = True, True, True
    no = False
    rows = [
        (e.UNKNOWN_SERVER_ERROR, no, no, no, "The broker met something it did not expect; its log says what."),
        (e.NONE, no, no, definite, "Success."),
        (e.OFFSET_OUT_OF_RANGE, no, no, definite, "The offset is below the log start offset or above the end."),
        (e.CORRUPT_MESSAGE, retry, no, definite, "A record batch does not match its CRC or is malformed."),
        (e.UNKNOWN_TOPIC_OR_PARTITION, retry, refresh, definite, "This broker does not know the topic-partition."),
        (e.LEADER_NOT_AVAILABLE, retry, refresh, definite, "There is no live leader for the partition right now."),
        (e.NOT_LEADER_OR_FOLLOWER, retry, refresh, no, "This broker does not lead the partition (any more)."),
        (e.REQUEST_TIMED_OUT, retry, no, no, "The condition did not come in time; the outcome is unknown."),
        (e.BROKER_NOT_AVAILABLE, no, no, definite, "The broker is not available."),
        (e.REPLICA_NOT_AVAILABLE, retry, refresh, definite, "The replica is not available."),
        (e.MESSAGE_TOO_LARGE, no, no, definite, "A record batch is larger than max.message.bytes."),
        (e.STALE_CONTROLLER_EPOCH, no, no, definite, "The request comes from an older controller."),
        (e.NETWORK_EXCEPTION, retry, refresh, no, "The connection broke before the answer came."),
        (e.COORDINATOR_LOAD_IN_PROGRESS, retry, no, definite, "No block of producer ids is at hand yet."),
        (e.INVALID_TOPIC_EXCEPTION, no, no, definite, "The topic name is illegal or the topic can't be used so."),
        (e.RECORD_LIST_TOO_LARGE, no, no, definite, "The record set is larger than a segment."),
        (e.NOT_ENOUGH_REPLICAS, retry, no, definite, "Fewer in-sync replicas than min.insync.replicas."),
        (e.NOT_ENOUGH_REPLICAS_AFTER_APPEND, retry, no, no, "Appended, but with too few in-sync replicas."),
        (e.INVALID_REQUIRED_ACKS, no, no, definite, "acks must be -1 (all), 0 or 1."),
        (e.INVALID_TIMESTAMP, no, no, definite, "A record's timestamp is outside the allowed range."),
        (e.UNSUPPORTED_VERSION, no, no, definite, "The peer does not support this request."),
        (e.TOPIC_ALREADY_EXISTS, no, no, definite, "The topic exists or is marked for deletion."),
        (e.INVALID_PARTITIONS, no, no, definite, "The number of partitions is not allowed."),
        (e.INVALID_REPLICATION_FACTOR, no, no, definite, "The replication factor is not allowed."),
        (e.INVALID_REPLICA_ASSIGNMENT, no, no, definite, "The replica assignment is not allowed."),
        (e.INVALID_CONFIG, no, no, definite, "A setting is unknown or its value is not allowed."),
        (e.NOT_CONTROLLER, retry, refresh, definite, "This broker is not the active controller."),
        (e.INVALID_REQUEST, no, no, definite, "The request contradicts itself or lacks something."),
        (e.POLICY_VIOLATION, no, no, definite, "The topic's cleanup.policy forbids it."),
        (e.OUT_OF_ORDER_SEQUENCE_NUMBER, no, no, definite, "The producer's sequence has a gap or is too old."),
        (e.DUPLICATE_SEQUENCE_NUMBER, no, no, definite, "Never answered: a duplicate succeeds, as in Kafka 3.9."),
        (e.INVALID_PRODUCER_EPOCH, no, no, definite, "The producer's epoch is older than the stored one."),
        (e.OPERATION_NOT_ATTEMPTED, no, no, definite, "The item was not tried."),
        (e.KAFKA_STORAGE_ERROR, retry, refresh, no, "The log folder is offline after a disk error."),
        (e.UNKNOWN_PRODUCER_ID, no, no, definite, "Never answered by a 3.9 broker."),
        (e.REASSIGNMENT_IN_PROGRESS, no, no, definite, "Partitions of the topic are being reassigned."),
        (e.FETCH_SESSION_ID_NOT_FOUND, retry, no, definite, "The fetch session is not known."),
        (e.INVALID_FETCH_SESSION_EPOCH, retry, no, definite, "The fetch session's epoch does not follow."),
        (e.TOPIC_DELETION_DISABLED, no, no, definite, "Topic deletion is disabled (delete.topic.enable)."),
        (e.FENCED_LEADER_EPOCH, retry, refresh, definite, "The request's leader epoch is older than the broker's."),
        (e.UNKNOWN_LEADER_EPOCH, retry, no, definite, "The request's leader epoch is newer than the broker's."),
        (e.UNSUPPORTED_COMPRESSION_TYPE, no, no, definite, "The compression codec is not supported."),
        (e.STALE_BROKER_EPOCH, no, no, definite, "The request belongs to an earlier registration."),
        (e.OFFSET_NOT_AVAILABLE, retry, no, definite, "The new leader's high watermark still lags its epoch start."),
        (e.PREFERRED_LEADER_NOT_AVAILABLE, retry, refresh, definite, "The preferred leader is not alive or in sync."),
        (e.ELIGIBLE_LEADERS_NOT_AVAILABLE, retry, refresh, definite, "No replica may become leader."),
        (e.ELECTION_NOT_NEEDED, retry, refresh, definite, "The partition has the right leader already."),
        (e.NO_REASSIGNMENT_IN_PROGRESS, no, no, definite, "No reassignment runs for the partition."),
        (e.INVALID_RECORD, no, no, definite, "A record breaks a rule of the log."),
        (e.INVALID_UPDATE_VERSION, no, no, definite, "The partition epoch is not the one in ZooKeeper."),
        (e.UNKNOWN_TOPIC_ID, retry, refresh, definite, "The topic id is not known."),
        (e.INCONSISTENT_TOPIC_ID, retry, refresh, definite, "The topic id differs from partition.metadata."),
        (e.INCONSISTENT_CLUSTER_ID, no, no, definite, "The request was made for another cluster."),
        (e.INELIGIBLE_REPLICA, no, no, definite, "A proposed in-sync replica is not alive or shuts down."),
    ]
    return {row[0]: ErrorInfo(*row) for row in rows}


ERROR_TABLE: dict[ErrorCode, ErrorInfo] = _table()


class TidegaugeError(Exception):
    """An error with Kafka's number and a sentence for people.

    Attributes:
        code: Kafka's number and name.
        message: what happened, why by Kafka's rule, and what to do.
    """

    def __init__(self, code: ErrorCode, message: str = "") -> None:
        self.code = code
        self.message = message or ERROR_TABLE[code].meaning
        super().__init__(self.message)

    def __str__(self) -> str:
        return f"{self.code.name} ({int(self.code)}): {self.message}"

    @property
    def retriable(self) -> bool:
        """Whether the same request may succeed later."""
        return ERROR_TABLE[self.code].retriable

    @property
    def refresh_metadata(self) -> bool:
        """Whether a client should ask who leads before it tries again."""
        return ERROR_TABLE[self.code].refresh_metadata

    @property
    def definite(self) -> bool:
        """Whether the request certainly had no effect."""
        return ERROR_TABLE[self.code].definite
