"""The one table of Kafka's APIs: key, name, versions and first flexible version, as Apache Kafka 3.9.1 has them.

The versions are those that a 3.9.1 broker in ZooKeeper mode serves. What of them a Tidegauge broker serves is what it
has a handler for. Absent, as a broker in ZooKeeper mode does not serve them: the APIs of KRaft, of telemetry and of
share groups. 68 and 69 (KIP-848), which 3.9.1 in ZooKeeper mode rejects with UNSUPPORTED_VERSION, stand in the table as
an extension, in the versions of 4.3.1 (``EXTENSIONS``).
Source: ``org.apache.kafka.common.protocol.ApiKeys``; the ApiVersions response of 3.9.1.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from importlib import import_module
from typing import NamedTuple

NEVER = 2**15 - 1
"""First flexible version of an API that has none."""


class Api(NamedTuple):
    """One API.

    Attributes:
        key: its number in a request's header.
        name: as Kafka's protocol guide calls it.
        first: lowest version.
        last: highest version.
        flexible_from: first version with compact types and tagged fields (KIP-482).
    """

    key: int
    name: str
    first: int
    last: int
    flexible_from: int

    def has(self, version: int) -> bool:
        """Whether this version exists."""
        return self.first <= version <= self.last

    def is_flexible(self, version: int) -> bool:
        """Whether the version has compact types, tagged fields, and a header of that kind."""
        return version >= self.flexible_from


PRODUCE = 0
FETCH = 1
LIST_OFFSETS = 2
METADATA = 3
LEADER_AND_ISR = 4
STOP_REPLICA = 5
UPDATE_METADATA = 6
CONTROLLED_SHUTDOWN = 7
OFFSET_COMMIT = 8
OFFSET_FETCH = 9
FIND_COORDINATOR = 10
JOIN_GROUP = 11
HEARTBEAT = 12
LEAVE_GROUP = 13
SYNC_GROUP = 14
DESCRIBE_GROUPS = 15
LIST_GROUPS = 16
SASL_HANDSHAKE = 17
API_VERSIONS = 18
CREATE_TOPICS = 19
DELETE_TOPICS = 20
DELETE_RECORDS = 21
INIT_PRODUCER_ID = 22
OFFSET_FOR_LEADER_EPOCH = 23
ADD_PARTITIONS_TO_TXN = 24
ADD_OFFSETS_TO_TXN = 25
END_TXN = 26
WRITE_TXN_MARKERS = 27
TXN_OFFSET_COMMIT = 28
DESCRIBE_ACLS = 29
CREATE_ACLS = 30
DELETE_ACLS = 31
DESCRIBE_CONFIGS = 32
ALTER_CONFIGS = 33
ALTER_REPLICA_LOG_DIRS = 34
DESCRIBE_LOG_DIRS = 35
SASL_AUTHENTICATE = 36
CREATE_PARTITIONS = 37
CREATE_DELEGATION_TOKEN = 38
RENEW_DELEGATION_TOKEN = 39
EXPIRE_DELEGATION_TOKEN = 40
DESCRIBE_DELEGATION_TOKEN = 41
DELETE_GROUPS = 42
ELECT_LEADERS = 43
INCREMENTAL_ALTER_CONFIGS = 44
ALTER_PARTITION_REASSIGNMENTS = 45
LIST_PARTITION_REASSIGNMENTS = 46
OFFSET_DELETE = 47
DESCRIBE_CLIENT_QUOTAS = 48
ALTER_CLIENT_QUOTAS = 49
DESCRIBE_USER_SCRAM_CREDENTIALS = 50
ALTER_USER_SCRAM_CREDENTIALS = 51
ALTER_PARTITION = 56
UPDATE_FEATURES = 57
DESCRIBE_CLUSTER = 60
DESCRIBE_PRODUCERS = 61
DESCRIBE_TRANSACTIONS = 65
LIST_TRANSACTIONS = 66
ALLOCATE_PRODUCER_IDS = 67
CONSUMER_GROUP_HEARTBEAT = 68
CONSUMER_GROUP_DESCRIBE = 69

EXTENSIONS = frozenset((CONSUMER_GROUP_HEARTBEAT, CONSUMER_GROUP_DESCRIBE))
"""Keys that no broker of 3.9.1 in ZooKeeper mode serves: theirs are the messages of 4.3.1 (docs/groups.md)."""

APIS: dict[int, Api] = {
    row[0]: Api(*row)
    for row in (
        (PRODUCE, "Produce", 0, 11, 9),
        (FETCH, "Fetch", 0, 17, 12),
        (LIST_OFFSETS, "ListOffsets", 0, 9, 6),
        (METADATA, "Metadata", 0, 12, 9),
        (LEADER_AND_ISR, "LeaderAndIsr", 0, 7, 4),
        (STOP_REPLICA, "StopReplica", 0, 4, 2),
        (UPDATE_METADATA, "UpdateMetadata", 0, 8, 6),
        (CONTROLLED_SHUTDOWN, "ControlledShutdown", 0, 3, 3),
        (OFFSET_COMMIT, "OffsetCommit", 0, 9, 8),
        (OFFSET_FETCH, "OffsetFetch", 0, 9, 6),
        (FIND_COORDINATOR, "FindCoordinator", 0, 6, 3),
        (JOIN_GROUP, "JoinGroup", 0, 9, 6),
        (HEARTBEAT, "Heartbeat", 0, 4, 4),
        (LEAVE_GROUP, "LeaveGroup", 0, 5, 4),
        (SYNC_GROUP, "SyncGroup", 0, 5, 4),
        (DESCRIBE_GROUPS, "DescribeGroups", 0, 5, 5),
        (LIST_GROUPS, "ListGroups", 0, 5, 3),
        (SASL_HANDSHAKE, "SaslHandshake", 0, 1, NEVER),
        (API_VERSIONS, "ApiVersions", 0, 4, 3),
        (CREATE_TOPICS, "CreateTopics", 0, 7, 5),
        (DELETE_TOPICS, "DeleteTopics", 0, 6, 4),
        (DELETE_RECORDS, "DeleteRecords", 0, 2, 2),
        (INIT_PRODUCER_ID, "InitProducerId", 0, 5, 2),
        (OFFSET_FOR_LEADER_EPOCH, "OffsetForLeaderEpoch", 0, 4, 4),
        (ADD_PARTITIONS_TO_TXN, "AddPartitionsToTxn", 0, 5, 3),
        (ADD_OFFSETS_TO_TXN, "AddOffsetsToTxn", 0, 4, 3),
        (END_TXN, "EndTxn", 0, 4, 3),
        (WRITE_TXN_MARKERS, "WriteTxnMarkers", 0, 1, 1),
        (TXN_OFFSET_COMMIT, "TxnOffsetCommit", 0, 4, 3),
        (DESCRIBE_ACLS, "DescribeAcls", 0, 3, 2),
        (CREATE_ACLS, "CreateAcls", 0, 3, 2),
        (DELETE_ACLS, "DeleteAcls", 0, 3, 2),
        (DESCRIBE_CONFIGS, "DescribeConfigs", 0, 4, 4),
        (ALTER_CONFIGS, "AlterConfigs", 0, 2, 2),
        (ALTER_REPLICA_LOG_DIRS, "AlterReplicaLogDirs", 0, 2, 2),
        (DESCRIBE_LOG_DIRS, "DescribeLogDirs", 0, 4, 2),
        (SASL_AUTHENTICATE, "SaslAuthenticate", 0, 2, 2),
        (CREATE_PARTITIONS, "CreatePartitions", 0, 3, 2),
        (CREATE_DELEGATION_TOKEN, "CreateDelegationToken", 0, 3, 2),
        (RENEW_DELEGATION_TOKEN, "RenewDelegationToken", 0, 2, 2),
        (EXPIRE_DELEGATION_TOKEN, "ExpireDelegationToken", 0, 2, 2),
        (DESCRIBE_DELEGATION_TOKEN, "DescribeDelegationToken", 0, 3, 2),
        (DELETE_GROUPS, "DeleteGroups", 0, 2, 2),
        (ELECT_LEADERS, "ElectLeaders", 0, 2, 2),
        (INCREMENTAL_ALTER_CONFIGS, "IncrementalAlterConfigs", 0, 1, 1),
        (ALTER_PARTITION_REASSIGNMENTS, "AlterPartitionReassignments", 0, 0, 0),
        (LIST_PARTITION_REASSIGNMENTS, "ListPartitionReassignments", 0, 0, 0),
        (OFFSET_DELETE, "OffsetDelete", 0, 0, NEVER),
        (DESCRIBE_CLIENT_QUOTAS, "DescribeClientQuotas", 0, 1, 1),
        (ALTER_CLIENT_QUOTAS, "AlterClientQuotas", 0, 1, 1),
        (DESCRIBE_USER_SCRAM_CREDENTIALS, "DescribeUserScramCredentials", 0, 0, 0),
        (ALTER_USER_SCRAM_CREDENTIALS, "AlterUserScramCredentials", 0, 0, 0),
        (ALTER_PARTITION, "AlterPartition", 0, 3, 0),
        (UPDATE_FEATURES, "UpdateFeatures", 0, 1, 0),
        (DESCRIBE_CLUSTER, "DescribeCluster", 0, 1, 0),
        (DESCRIBE_PRODUCERS, "DescribeProducers", 0, 0, 0),
        (DESCRIBE_TRANSACTIONS, "DescribeTransactions", 0, 0, 0),
        (LIST_TRANSACTIONS, "ListTransactions", 0, 1, 0),
        (ALLOCATE_PRODUCER_IDS, "AllocateProducerIds", 0, 0, 0),
        (CONSUMER_GROUP_HEARTBEAT, "ConsumerGroupHeartbeat", 0, 1, 0),
        (CONSUMER_GROUP_DESCRIBE, "ConsumerGroupDescribe", 0, 1, 0),
    )
}


def snake(name: str) -> str:
    """Return a name of Kafka's definitions as Python writes it: of a field, or of a generated module."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()


class Protocol:
    """A set of APIs with the messages generated for it.

    Two releases of Kafka give two sets: what a broker in ZooKeeper mode serves, and what a quorum of controllers
    serves (``kraft.apis``).
    """

    def __init__(self, apis: Mapping[int, Api], package: str) -> None:
        self.apis = apis
        self._package = package

    def message_class(self, key: int, *, response: bool) -> type:
        """Return the class of an API's request or response; its module is imported on first use."""
        api = self.apis[key]
        module = import_module(f"{self._package}.{snake(api.name)}")
        found: type = getattr(module, f"{api.name}{'Response' if response else 'Request'}")
        return found


BROKER_PROTOCOL = Protocol(APIS, "tidegauge.kafka.messages")
"""What a broker in ZooKeeper mode serves."""


@functools.cache
def message_class(key: int, *, response: bool) -> type:
    """Return the class of an API's request or response in ``BROKER_PROTOCOL``."""
    return BROKER_PROTOCOL.message_class(key, response=response)
