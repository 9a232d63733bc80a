"""The one table of errors: number, name, retriable, definite, meaning.

The numbers are Kafka's (``org.apache.kafka.common.protocol.Errors``) and are forever; the protobuf enum
``ErrorCode`` has the same ones (a test compares). *Retriable* says that the same request may succeed later,
*refresh_metadata* that the client should refresh its metadata first. *Definite* says that the request certainly had no
effect: after any other error the outcome is unknown, and a retry without idempotence may write twice.
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
    OFFSET_METADATA_TOO_LARGE = 12
    NETWORK_EXCEPTION = 13
    COORDINATOR_LOAD_IN_PROGRESS = 14
    COORDINATOR_NOT_AVAILABLE = 15
    NOT_COORDINATOR = 16
    INVALID_TOPIC_EXCEPTION = 17
    RECORD_LIST_TOO_LARGE = 18
    NOT_ENOUGH_REPLICAS = 19
    NOT_ENOUGH_REPLICAS_AFTER_APPEND = 20
    INVALID_REQUIRED_ACKS = 21
    ILLEGAL_GENERATION = 22
    INCONSISTENT_GROUP_PROTOCOL = 23
    INVALID_GROUP_ID = 24
    UNKNOWN_MEMBER_ID = 25
    INVALID_SESSION_TIMEOUT = 26
    REBALANCE_IN_PROGRESS = 27
    INVALID_COMMIT_OFFSET_SIZE = 28
    TOPIC_AUTHORIZATION_FAILED = 29
    GROUP_AUTHORIZATION_FAILED = 30
    CLUSTER_AUTHORIZATION_FAILED = 31
    INVALID_TIMESTAMP = 32
    UNSUPPORTED_SASL_MECHANISM = 33
    ILLEGAL_SASL_STATE = 34
    UNSUPPORTED_VERSION = 35
    TOPIC_ALREADY_EXISTS = 36
    INVALID_PARTITIONS = 37
    INVALID_REPLICATION_FACTOR = 38
    INVALID_REPLICA_ASSIGNMENT = 39
    INVALID_CONFIG = 40
    NOT_CONTROLLER = 41
    INVALID_REQUEST = 42
    UNSUPPORTED_FOR_MESSAGE_FORMAT = 43
    POLICY_VIOLATION = 44
    OUT_OF_ORDER_SEQUENCE_NUMBER = 45
    DUPLICATE_SEQUENCE_NUMBER = 46
    INVALID_PRODUCER_EPOCH = 47
    INVALID_TXN_STATE = 48
    INVALID_PRODUCER_ID_MAPPING = 49
    INVALID_TRANSACTION_TIMEOUT = 50
    CONCURRENT_TRANSACTIONS = 51
    TRANSACTION_COORDINATOR_FENCED = 52
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED = 53
    SECURITY_DISABLED = 54
    OPERATION_NOT_ATTEMPTED = 55
    KAFKA_STORAGE_ERROR = 56
    LOG_DIR_NOT_FOUND = 57
    SASL_AUTHENTICATION_FAILED = 58
    UNKNOWN_PRODUCER_ID = 59
    REASSIGNMENT_IN_PROGRESS = 60
    DELEGATION_TOKEN_AUTH_DISABLED = 61
    DELEGATION_TOKEN_REQUEST_NOT_ALLOWED = 64
    DELEGATION_TOKEN_AUTHORIZATION_FAILED = 65
    NON_EMPTY_GROUP = 68
    GROUP_ID_NOT_FOUND = 69
    FETCH_SESSION_ID_NOT_FOUND = 70
    INVALID_FETCH_SESSION_EPOCH = 71
    LISTENER_NOT_FOUND = 72
    TOPIC_DELETION_DISABLED = 73
    FENCED_LEADER_EPOCH = 74
    UNKNOWN_LEADER_EPOCH = 75
    UNSUPPORTED_COMPRESSION_TYPE = 76
    STALE_BROKER_EPOCH = 77
    OFFSET_NOT_AVAILABLE = 78
    MEMBER_ID_REQUIRED = 79
    PREFERRED_LEADER_NOT_AVAILABLE = 80
    GROUP_MAX_SIZE_REACHED = 81
    FENCED_INSTANCE_ID = 82
    ELIGIBLE_LEADERS_NOT_AVAILABLE = 83
    ELECTION_NOT_NEEDED = 84
    NO_REASSIGNMENT_IN_PROGRESS = 85
    GROUP_SUBSCRIBED_TO_TOPIC = 86
    INVALID_RECORD = 87
    UNSTABLE_OFFSET_COMMIT = 88
    THROTTLING_QUOTA_EXCEEDED = 89
    PRODUCER_FENCED = 90
    RESOURCE_NOT_FOUND = 91
    DUPLICATE_RESOURCE = 92
    UNACCEPTABLE_CREDENTIAL = 93
    INVALID_UPDATE_VERSION = 95
    PRINCIPAL_DESERIALIZATION_FAILURE = 97
    SNAPSHOT_NOT_FOUND = 98
    POSITION_OUT_OF_RANGE = 99
    UNKNOWN_TOPIC_ID = 100
    DUPLICATE_BROKER_REGISTRATION = 101
    BROKER_ID_NOT_REGISTERED = 102
    INCONSISTENT_TOPIC_ID = 103
    INCONSISTENT_CLUSTER_ID = 104
    TRANSACTIONAL_ID_NOT_FOUND = 105
    FETCH_SESSION_TOPIC_ID_ERROR = 106
    INELIGIBLE_REPLICA = 107
    NEW_LEADER_ELECTED = 108
    FENCED_MEMBER_EPOCH = 110
    UNRELEASED_INSTANCE_ID = 111
    UNSUPPORTED_ASSIGNOR = 112
    STALE_MEMBER_EPOCH = 113
    MISMATCHED_ENDPOINT_TYPE = 114
    UNSUPPORTED_ENDPOINT_TYPE = 115
    INVALID_REGISTRATION = 119
    TRANSACTION_ABORTABLE = 120
    INVALID_RECORD_STATE = 121
    SHARE_SESSION_NOT_FOUND = 122
    INVALID_SHARE_SESSION_EPOCH = 123
    FENCED_STATE_EPOCH = 124
    INVALID_VOTER_KEY = 125
    DUPLICATE_VOTER = 126
    VOTER_NOT_FOUND = 127
    INVALID_REGULAR_EXPRESSION = 128
    SHARE_SESSION_LIMIT_REACHED = 133

    @classmethod
    def of(cls, number: int) -> ErrorCode:
        """Return the code with this number; an unknown number is UNKNOWN_SERVER_ERROR."""
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
        (e.UNKNOWN_SERVER_ERROR, no, no, no, "The broker met an unexpected error; its log has the details."),
        (e.NONE, no, no, definite, "Success."),
        (e.OFFSET_OUT_OF_RANGE, no, no, definite, "The offset is below the log start offset or above the end."),
        (e.CORRUPT_MESSAGE, retry, no, definite, "A record batch does not match its CRC or is malformed."),
        (e.UNKNOWN_TOPIC_OR_PARTITION, retry, refresh, definite, "This broker does not know the topic-partition."),
        (e.LEADER_NOT_AVAILABLE, retry, refresh, definite, "There is no live leader for the partition right now."),
        (e.NOT_LEADER_OR_FOLLOWER, retry, refresh, no, "This broker does not lead the partition (any more)."),
        (e.REQUEST_TIMED_OUT, retry, no, no, "The request timed out; its outcome is unknown."),
        (e.BROKER_NOT_AVAILABLE, no, no, definite, "The broker is not available."),
        (e.REPLICA_NOT_AVAILABLE, retry, refresh, definite, "The replica is not available."),
        (e.MESSAGE_TOO_LARGE, no, no, definite, "A record batch is larger than max.message.bytes."),
        (e.STALE_CONTROLLER_EPOCH, no, no, definite, "The request comes from an older controller."),
        (
            e.OFFSET_METADATA_TOO_LARGE,
            no,
            no,
            definite,
            "The metadata of a committed offset is longer than offset.metadata.max.bytes.",
        ),
        (e.NETWORK_EXCEPTION, retry, refresh, no, "The connection broke before the response came."),
        (
            e.COORDINATOR_LOAD_IN_PROGRESS,
            retry,
            no,
            definite,
            "The coordinator is loading its state, or no block of producer ids is available yet.",
        ),
        (
            e.COORDINATOR_NOT_AVAILABLE,
            retry,
            refresh,
            definite,
            "The coordinator of the group or transaction is not available yet.",
        ),
        (
            e.NOT_COORDINATOR,
            retry,
            refresh,
            definite,
            "This broker is not the coordinator of the group or transaction.",
        ),
        (
            e.INVALID_TOPIC_EXCEPTION,
            no,
            no,
            definite,
            "The topic name is illegal, or the topic does not allow this operation.",
        ),
        (e.RECORD_LIST_TOO_LARGE, no, no, definite, "The record set is larger than a segment."),
        (e.NOT_ENOUGH_REPLICAS, retry, no, definite, "Fewer in-sync replicas than min.insync.replicas."),
        (e.NOT_ENOUGH_REPLICAS_AFTER_APPEND, retry, no, no, "Appended, but with too few in-sync replicas."),
        (e.INVALID_REQUIRED_ACKS, no, no, definite, "acks must be -1 (all), 0 or 1."),
        (e.ILLEGAL_GENERATION, no, no, definite, "The generation is not the group's current one."),
        (
            e.INCONSISTENT_GROUP_PROTOCOL,
            no,
            no,
            definite,
            "The member supports none of the protocols that all members of the group support.",
        ),
        (e.INVALID_GROUP_ID, no, no, definite, "The group id is empty or not allowed."),
        (e.UNKNOWN_MEMBER_ID, no, no, definite, "The group has no such member."),
        (
            e.INVALID_SESSION_TIMEOUT,
            no,
            no,
            definite,
            "The session timeout is outside the range that the broker allows.",
        ),
        (e.REBALANCE_IN_PROGRESS, no, no, definite, "The group is rebalancing; the member must rejoin."),
        (e.INVALID_COMMIT_OFFSET_SIZE, no, no, definite, "The committed offsets are larger than a batch may be."),
        (
            e.TOPIC_AUTHORIZATION_FAILED,
            no,
            no,
            definite,
            "The topic may not be used so by clients, or by this principal.",
        ),
        (e.GROUP_AUTHORIZATION_FAILED, no, no, definite, "The principal may not use the group so."),
        (e.CLUSTER_AUTHORIZATION_FAILED, no, no, definite, "The principal may not do this with the cluster."),
        (e.INVALID_TIMESTAMP, no, no, definite, "A record's timestamp is outside the allowed range."),
        (e.UNSUPPORTED_SASL_MECHANISM, no, no, definite, "The broker does not support the SASL mechanism."),
        (e.ILLEGAL_SASL_STATE, no, no, definite, "The request is not allowed in this state of SASL authentication."),
        (e.UNSUPPORTED_VERSION, no, no, definite, "The peer does not support this request."),
        (e.TOPIC_ALREADY_EXISTS, no, no, definite, "The topic exists or is marked for deletion."),
        (e.INVALID_PARTITIONS, no, no, definite, "The number of partitions is not allowed."),
        (e.INVALID_REPLICATION_FACTOR, no, no, definite, "The replication factor is not allowed."),
        (e.INVALID_REPLICA_ASSIGNMENT, no, no, definite, "The replica assignment is not allowed."),
        (e.INVALID_CONFIG, no, no, definite, "A setting is unknown or its value is not allowed."),
        (e.NOT_CONTROLLER, retry, refresh, definite, "This broker is not the active controller."),
        (e.INVALID_REQUEST, no, no, definite, "The request is contradictory or incomplete."),
        (
            e.UNSUPPORTED_FOR_MESSAGE_FORMAT,
            no,
            no,
            definite,
            "The records are in a message format that the broker does not store.",
        ),
        (e.POLICY_VIOLATION, no, no, definite, "The topic's cleanup.policy forbids it."),
        (e.OUT_OF_ORDER_SEQUENCE_NUMBER, no, no, definite, "The producer's sequence has a gap or is too old."),
        (e.DUPLICATE_SEQUENCE_NUMBER, no, no, definite, "Not returned by a 3.9 broker: a duplicate succeeds."),
        (e.INVALID_PRODUCER_EPOCH, no, no, definite, "The producer's epoch is older than the stored one."),
        (e.INVALID_TXN_STATE, no, no, definite, "The transaction's state does not allow the operation."),
        (e.INVALID_PRODUCER_ID_MAPPING, no, no, definite, "The producer id is not the one of the transactional id."),
        (
            e.INVALID_TRANSACTION_TIMEOUT,
            no,
            no,
            definite,
            "The transaction timeout is larger than transaction.max.timeout.ms.",
        ),
        (e.CONCURRENT_TRANSACTIONS, retry, no, definite, "Another operation of the transaction is still in progress."),
        (e.TRANSACTION_COORDINATOR_FENCED, no, no, definite, "The transaction marker is from a former coordinator."),
        (e.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, no, no, definite, "The principal may not use the transactional id."),
        (e.SECURITY_DISABLED, no, no, definite, "The broker has no authorizer."),
        (e.OPERATION_NOT_ATTEMPTED, no, no, definite, "The operation was not attempted for this item."),
        (e.KAFKA_STORAGE_ERROR, retry, refresh, no, "The log directory is offline after a disk error."),
        (e.LOG_DIR_NOT_FOUND, no, no, definite, "The broker has no such log directory."),
        (e.SASL_AUTHENTICATION_FAILED, no, no, definite, "The credentials were not accepted."),
        (e.UNKNOWN_PRODUCER_ID, no, no, definite, "Not returned by a 3.9 broker."),
        (e.REASSIGNMENT_IN_PROGRESS, no, no, definite, "Partitions of the topic are being reassigned."),
        (e.DELEGATION_TOKEN_AUTH_DISABLED, no, no, definite, "The broker has no delegation tokens."),
        (
            e.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED,
            no,
            no,
            definite,
            "Delegation tokens need an authenticated connection.",
        ),
        (e.DELEGATION_TOKEN_AUTHORIZATION_FAILED, no, no, definite, "The principal may not use the delegation token."),
        (e.NON_EMPTY_GROUP, no, no, definite, "The group has members."),
        (e.GROUP_ID_NOT_FOUND, no, no, definite, "There is no such group."),
        (e.FETCH_SESSION_ID_NOT_FOUND, retry, no, definite, "The fetch session is not known."),
        (e.INVALID_FETCH_SESSION_EPOCH, retry, no, definite, "The fetch session's epoch is not the next one."),
        (
            e.LISTENER_NOT_FOUND,
            retry,
            refresh,
            definite,
            "The leader has no listener of the name through which the client is connected.",
        ),
        (e.TOPIC_DELETION_DISABLED, no, no, definite, "Topic deletion is disabled (delete.topic.enable)."),
        (e.FENCED_LEADER_EPOCH, retry, refresh, definite, "The request's leader epoch is older than the broker's."),
        (e.UNKNOWN_LEADER_EPOCH, retry, no, definite, "The request's leader epoch is newer than the broker's."),
        (e.UNSUPPORTED_COMPRESSION_TYPE, no, no, definite, "The compression codec is not supported."),
        (e.STALE_BROKER_EPOCH, no, no, definite, "The request was made for an earlier broker epoch."),
        (e.OFFSET_NOT_AVAILABLE, retry, no, definite, "The new leader's high watermark still lags its epoch start."),
        (e.MEMBER_ID_REQUIRED, no, no, definite, "The member must join again with the member id of this response."),
        (e.PREFERRED_LEADER_NOT_AVAILABLE, retry, refresh, definite, "The preferred leader is not alive or in sync."),
        (e.GROUP_MAX_SIZE_REACHED, no, no, definite, "The group has as many members as group.max.size allows."),
        (e.FENCED_INSTANCE_ID, no, no, definite, "Another member has taken over the group instance id."),
        (e.ELIGIBLE_LEADERS_NOT_AVAILABLE, retry, refresh, definite, "No replica may become leader."),
        (e.ELECTION_NOT_NEEDED, retry, refresh, definite, "The partition has the right leader already."),
        (e.NO_REASSIGNMENT_IN_PROGRESS, no, no, definite, "No reassignment of the partition is in progress."),
        (e.GROUP_SUBSCRIBED_TO_TOPIC, no, no, definite, "The group is subscribed to the topic."),
        (e.INVALID_RECORD, no, no, definite, "A record violates a rule of the log."),
        (e.UNSTABLE_OFFSET_COMMIT, retry, no, definite, "A transaction with offsets of the group has not ended yet."),
        (e.THROTTLING_QUOTA_EXCEEDED, retry, no, definite, "The quota of controller mutations is exceeded."),
        (e.PRODUCER_FENCED, no, no, definite, "A newer producer with the same transactional id has taken over."),
        (e.RESOURCE_NOT_FOUND, no, no, definite, "There is no such resource."),
        (e.DUPLICATE_RESOURCE, no, no, definite, "The request names something twice."),
        (e.UNACCEPTABLE_CREDENTIAL, no, no, definite, "The credential does not meet the rules."),
        (e.INVALID_UPDATE_VERSION, no, no, definite, "The partition epoch is not the one in ZooKeeper."),
        (e.PRINCIPAL_DESERIALIZATION_FAILURE, no, no, definite, "The forwarded principal can't be read."),
        (e.SNAPSHOT_NOT_FOUND, no, no, definite, "The snapshot does not exist."),
        (e.POSITION_OUT_OF_RANGE, no, no, definite, "The position is not within the snapshot."),
        (e.UNKNOWN_TOPIC_ID, retry, refresh, definite, "The topic id is not known."),
        (e.DUPLICATE_BROKER_REGISTRATION, no, no, definite, "Another broker with this id is alive."),
        (e.BROKER_ID_NOT_REGISTERED, no, no, definite, "No broker with this id has registered."),
        (e.INCONSISTENT_TOPIC_ID, retry, refresh, definite, "The topic id differs from partition.metadata."),
        (e.INCONSISTENT_CLUSTER_ID, no, no, definite, "The request was made for another cluster."),
        (e.TRANSACTIONAL_ID_NOT_FOUND, no, no, definite, "There is no such transactional id."),
        (
            e.FETCH_SESSION_TOPIC_ID_ERROR,
            retry,
            no,
            definite,
            "The fetch session was opened by topic names and is used by topic ids, or the reverse.",
        ),
        (e.INELIGIBLE_REPLICA, no, no, definite, "A proposed in-sync replica is not alive, or is shutting down."),
        (
            e.NEW_LEADER_ELECTED,
            no,
            no,
            definite,
            "The change completed a reassignment, and another replica leads now.",
        ),
        (e.FENCED_MEMBER_EPOCH, no, no, definite, "The member must drop its partitions and join again."),
        (e.UNRELEASED_INSTANCE_ID, no, no, definite, "Another member of the group still has the instance id."),
        (e.UNSUPPORTED_ASSIGNOR, no, no, definite, "No server-side assignor has this name (group.consumer.assignors)."),
        (e.STALE_MEMBER_EPOCH, no, no, definite, "The request's member epoch is not the member's; learn it first."),
        (e.MISMATCHED_ENDPOINT_TYPE, no, no, definite, "The request is for controllers, not for brokers."),
        (e.UNSUPPORTED_ENDPOINT_TYPE, no, no, definite, "There is no such endpoint type."),
        (e.INVALID_REGISTRATION, no, no, definite, "The registration lacks or repeats what it must have once."),
        (e.TRANSACTION_ABORTABLE, no, no, definite, "The partition is not in the transaction; abort it and go on."),
        (e.INVALID_RECORD_STATE, no, no, definite, "The member does not have the records that it acknowledges."),
        (e.SHARE_SESSION_NOT_FOUND, retry, no, definite, "The share session is not known; open one with epoch 0."),
        (e.INVALID_SHARE_SESSION_EPOCH, retry, no, definite, "The share session's epoch is not the next one."),
        (e.FENCED_STATE_EPOCH, no, no, definite, "The share partition was initialized again since."),
        (e.INVALID_VOTER_KEY, no, no, definite, "The request was meant for another voter of the quorum."),
        (e.DUPLICATE_VOTER, no, no, definite, "The node is a voter already."),
        (e.VOTER_NOT_FOUND, no, no, definite, "The node is no voter, or is the last one."),
        (e.INVALID_REGULAR_EXPRESSION, no, no, definite, "The regular expression is not of RE2's syntax."),
        (e.SHARE_SESSION_LIMIT_REACHED, retry, no, definite, "The broker has as many share sessions as it allows."),
    ]
    return {row[0]: ErrorInfo(*row) for row in rows}


ERROR_TABLE: dict[ErrorCode, ErrorInfo] = _table()


class TidegaugeError(Exception):
    """An error with Kafka's number and a sentence for the user.

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
        """Whether a client should refresh its metadata before it tries again."""
        return ERROR_TABLE[self.code].refresh_metadata

    @property
    def definite(self) -> bool:
        """Whether the request certainly had no effect."""
        return ERROR_TABLE[self.code].definite
