"""The one table of Kafka's APIs: key, name, versions and first flexible version, as Apache Kafka 3.9.1 has them.

The versions are those that a 3.9.1 broker in ZooKeeper mode serves. A Tidegauge broker serves each of them that it
has a handler for. Absent, as a broker in ZooKeeper mode does not serve them: the APIs of KRaft and of telemetry. The
APIs of consumer groups (KIP-848) and of share groups (KIP-932), which 3.9.1 in ZooKeeper mode rejects with
UNSUPPORTED_VERSION, are in the table as extensions, in the versions of 4.3.1 (``EXTENSIONS``).
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
        rpcs: names of the RPCs of gRPC that do the same; none: Kafka's protocol alone has it.
    """

    key: int
    name: str
    first: int
    last: int
    flexible_from: int
    rpcs: tuple[str, ...] = ()

    def has(self, version: int) -> bool:
        """Whether this version exists."""
        return self.first <= version <= self.last

    def is_flexible(self, version: int) -> bool:
        """Whether the version has compact types, tagged fields, and a header of that kind."""
        return version >= self.flexible_from


APIS: dict[int, Api] = {}
"""The APIs, by key."""


def _api(key: int, name: str, first: int, last: int, flexible_from: int, *rpcs: str) -> int:
    """Put an API into ``APIS``; return its key."""
    APIS[key] = Api(key, name, first, last, flexible_from, rpcs)
    return key


PRODUCE = _api(0, "Produce", 0, 11, 9, "Produce", "ProduceStream")
FETCH = _api(1, "Fetch", 0, 17, 12, "Fetch")
LIST_OFFSETS = _api(2, "ListOffsets", 0, 9, 6, "ListOffsets")
METADATA = _api(3, "Metadata", 0, 12, 9, "Metadata")
LEADER_AND_ISR = _api(4, "LeaderAndIsr", 0, 7, 4, "LeaderAndIsr")
STOP_REPLICA = _api(5, "StopReplica", 0, 4, 2, "StopReplica")
UPDATE_METADATA = _api(6, "UpdateMetadata", 0, 8, 6, "UpdateMetadata")
CONTROLLED_SHUTDOWN = _api(7, "ControlledShutdown", 0, 3, 3, "ControlledShutdown")
OFFSET_COMMIT = _api(8, "OffsetCommit", 0, 9, 8)
OFFSET_FETCH = _api(9, "OffsetFetch", 0, 9, 6)
FIND_COORDINATOR = _api(10, "FindCoordinator", 0, 6, 3)
JOIN_GROUP = _api(11, "JoinGroup", 0, 9, 6)
HEARTBEAT = _api(12, "Heartbeat", 0, 4, 4)
LEAVE_GROUP = _api(13, "LeaveGroup", 0, 5, 4)
SYNC_GROUP = _api(14, "SyncGroup", 0, 5, 4)
DESCRIBE_GROUPS = _api(15, "DescribeGroups", 0, 5, 5)
LIST_GROUPS = _api(16, "ListGroups", 0, 5, 3)
SASL_HANDSHAKE = _api(17, "SaslHandshake", 0, 1, NEVER)
API_VERSIONS = _api(18, "ApiVersions", 0, 4, 3)
CREATE_TOPICS = _api(19, "CreateTopics", 0, 7, 5, "CreateTopics")
DELETE_TOPICS = _api(20, "DeleteTopics", 0, 6, 4, "DeleteTopics")
DELETE_RECORDS = _api(21, "DeleteRecords", 0, 2, 2, "DeleteRecords")
INIT_PRODUCER_ID = _api(22, "InitProducerId", 0, 5, 2, "InitProducerId")
OFFSET_FOR_LEADER_EPOCH = _api(23, "OffsetForLeaderEpoch", 0, 4, 4, "OffsetsForLeaderEpoch")
ADD_PARTITIONS_TO_TXN = _api(24, "AddPartitionsToTxn", 0, 5, 3, "VerifyPartitions")
ADD_OFFSETS_TO_TXN = _api(25, "AddOffsetsToTxn", 0, 4, 3)
END_TXN = _api(26, "EndTxn", 0, 4, 3)
WRITE_TXN_MARKERS = _api(27, "WriteTxnMarkers", 0, 1, 1, "WriteMarkers")
TXN_OFFSET_COMMIT = _api(28, "TxnOffsetCommit", 0, 4, 3)
DESCRIBE_ACLS = _api(29, "DescribeAcls", 0, 3, 2)
CREATE_ACLS = _api(30, "CreateAcls", 0, 3, 2)
DELETE_ACLS = _api(31, "DeleteAcls", 0, 3, 2)
DESCRIBE_CONFIGS = _api(32, "DescribeConfigs", 0, 4, 4, "DescribeConfigs")
ALTER_CONFIGS = _api(33, "AlterConfigs", 0, 2, 2)
ALTER_REPLICA_LOG_DIRS = _api(34, "AlterReplicaLogDirs", 0, 2, 2)
DESCRIBE_LOG_DIRS = _api(35, "DescribeLogDirs", 0, 4, 2)
SASL_AUTHENTICATE = _api(36, "SaslAuthenticate", 0, 2, 2)
CREATE_PARTITIONS = _api(37, "CreatePartitions", 0, 3, 2, "CreatePartitions")
CREATE_DELEGATION_TOKEN = _api(38, "CreateDelegationToken", 0, 3, 2)
RENEW_DELEGATION_TOKEN = _api(39, "RenewDelegationToken", 0, 2, 2)
EXPIRE_DELEGATION_TOKEN = _api(40, "ExpireDelegationToken", 0, 2, 2)
DESCRIBE_DELEGATION_TOKEN = _api(41, "DescribeDelegationToken", 0, 3, 2)
DELETE_GROUPS = _api(42, "DeleteGroups", 0, 2, 2)
ELECT_LEADERS = _api(43, "ElectLeaders", 0, 2, 2, "ElectLeaders")
INCREMENTAL_ALTER_CONFIGS = _api(44, "IncrementalAlterConfigs", 0, 1, 1, "AlterConfigs")
ALTER_PARTITION_REASSIGNMENTS = _api(45, "AlterPartitionReassignments", 0, 0, 0, "AlterPartitionReassignments")
LIST_PARTITION_REASSIGNMENTS = _api(46, "ListPartitionReassignments", 0, 0, 0, "ListPartitionReassignments")
OFFSET_DELETE = _api(47, "OffsetDelete", 0, 0, NEVER)
DESCRIBE_CLIENT_QUOTAS = _api(48, "DescribeClientQuotas", 0, 1, 1)
ALTER_CLIENT_QUOTAS = _api(49, "AlterClientQuotas", 0, 1, 1)
DESCRIBE_USER_SCRAM_CREDENTIALS = _api(50, "DescribeUserScramCredentials", 0, 0, 0)
ALTER_USER_SCRAM_CREDENTIALS = _api(51, "AlterUserScramCredentials", 0, 0, 0)
ALTER_PARTITION = _api(56, "AlterPartition", 0, 3, 0, "AlterPartition")
UPDATE_FEATURES = _api(57, "UpdateFeatures", 0, 1, 0)
DESCRIBE_CLUSTER = _api(60, "DescribeCluster", 0, 1, 0)
DESCRIBE_PRODUCERS = _api(61, "DescribeProducers", 0, 0, 0)
DESCRIBE_TRANSACTIONS = _api(65, "DescribeTransactions", 0, 0, 0)
LIST_TRANSACTIONS = _api(66, "ListTransactions", 0, 1, 0)
ALLOCATE_PRODUCER_IDS = _api(67, "AllocateProducerIds", 0, 0, 0, "AllocateProducerIds")
CONSUMER_GROUP_HEARTBEAT = _api(68, "ConsumerGroupHeartbeat", 0, 1, 0)
CONSUMER_GROUP_DESCRIBE = _api(69, "ConsumerGroupDescribe", 0, 1, 0)
SHARE_GROUP_HEARTBEAT = _api(76, "ShareGroupHeartbeat", 1, 1, 0)
SHARE_GROUP_DESCRIBE = _api(77, "ShareGroupDescribe", 1, 1, 0)
SHARE_FETCH = _api(78, "ShareFetch", 1, 2, 0)
SHARE_ACKNOWLEDGE = _api(79, "ShareAcknowledge", 1, 2, 0)
INITIALIZE_SHARE_GROUP_STATE = _api(83, "InitializeShareGroupState", 0, 0, 0)
READ_SHARE_GROUP_STATE = _api(84, "ReadShareGroupState", 0, 0, 0)
WRITE_SHARE_GROUP_STATE = _api(85, "WriteShareGroupState", 0, 1, 0)
DELETE_SHARE_GROUP_STATE = _api(86, "DeleteShareGroupState", 0, 0, 0)
READ_SHARE_GROUP_STATE_SUMMARY = _api(87, "ReadShareGroupStateSummary", 0, 1, 0)
DESCRIBE_SHARE_GROUP_OFFSETS = _api(90, "DescribeShareGroupOffsets", 0, 1, 0)
ALTER_SHARE_GROUP_OFFSETS = _api(91, "AlterShareGroupOffsets", 0, 0, 0)
DELETE_SHARE_GROUP_OFFSETS = _api(92, "DeleteShareGroupOffsets", 0, 0, 0)

SHARE_APIS: dict[int, Api] = {key: api for key, api in APIS.items() if key >= SHARE_GROUP_HEARTBEAT}
"""The APIs of share groups (KIP-932), in the versions of 4.3.1."""
OF_CONSUMER_GROUPS = frozenset((CONSUMER_GROUP_HEARTBEAT, CONSUMER_GROUP_DESCRIBE))
"""Keys of the APIs of the consumer protocol (KIP-848)."""
EXTENSIONS = OF_CONSUMER_GROUPS.union(SHARE_APIS)
"""Keys that no broker of 3.9.1 in ZooKeeper mode serves: theirs are the messages of 4.3.1 (docs/groups.md)."""


def snake(name: str) -> str:
    """Return a name of Kafka's definitions in snake case."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()


class Protocol:
    """A set of APIs with the messages generated for it.

    Two releases of Kafka give several sets: what a broker in ZooKeeper mode serves, what a broker in KRaft mode serves
    (``kraft.broker_apis``), and what a quorum of controllers serves (``kraft.apis``).

    Args:
        apis: by key.
        package: the package of their messages.
        elsewhere: packages of those whose messages are not there, by key.
    """

    def __init__(self, apis: Mapping[int, Api], package: str, elsewhere: Mapping[int, str] | None = None) -> None:
        self.apis = apis
        self._package = package
        self._elsewhere = elsewhere or {}

    def of(self, apis: Mapping[int, Api]) -> Protocol:
        """Return the same messages with other rows, of the same APIs or fewer."""
        return Protocol(apis, self._package, self._elsewhere)

    def message_class(self, key: int, *, response: bool) -> type:
        """Return an API's request or response class, importing its module on first use."""
        api = self.apis[key]
        module = import_module(f"{self._elsewhere.get(key, self._package)}.{snake(api.name)}")
        found: type = getattr(module, f"{api.name}{'Response' if response else 'Request'}")
        return found


BROKER_PROTOCOL = Protocol(APIS, "tidegauge.kafka.messages")
"""The APIs that a broker in ZooKeeper mode serves."""


@functools.cache
def message_class(key: int, *, response: bool) -> type:
    """Return the class of an API's request or response in ``BROKER_PROTOCOL``."""
    return BROKER_PROTOCOL.message_class(key, response=response)
