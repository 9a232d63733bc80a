"""The APIs of a controller's listener, and the APIs that a broker has in KRaft mode but not in ZooKeeper mode.

They have the versions of Apache Kafka 4.3.1. An API that ZooKeeper mode has too has other versions and fields there,
so this table and its messages are a set of their own (docs/adr/0024-two-generated-protocols.md).
Source: ``org.apache.kafka.common.protocol.ApiKeys``; KIP-500, KIP-590 (Envelope), KIP-595, KIP-630 (FetchSnapshot),
KIP-631 (62 to 64, 67), KIP-853 (80 to 82), KIP-858 (73), KIP-919 (60, 70), KIP-966 (75), KIP-1142 (74).
"""

from __future__ import annotations

from tidegauge.kafka.apis import NEVER, Api, Protocol

KRAFT_APIS: dict[int, Api] = {}
"""The APIs, by key."""


def _api(key: int, name: str, first: int, last: int, flexible_from: int) -> int:
    """Put an API into ``KRAFT_APIS``; return its key."""
    KRAFT_APIS[key] = Api(key, name, first, last, flexible_from)
    return key


FETCH = _api(1, "Fetch", 4, 18, 12)
SASL_HANDSHAKE = _api(17, "SaslHandshake", 0, 1, NEVER)
API_VERSIONS = _api(18, "ApiVersions", 0, 4, 3)
CREATE_TOPICS = _api(19, "CreateTopics", 2, 7, 5)
DELETE_TOPICS = _api(20, "DeleteTopics", 1, 6, 4)
DESCRIBE_ACLS = _api(29, "DescribeAcls", 1, 3, 2)
CREATE_ACLS = _api(30, "CreateAcls", 1, 3, 2)
DELETE_ACLS = _api(31, "DeleteAcls", 1, 3, 2)
DESCRIBE_CONFIGS = _api(32, "DescribeConfigs", 1, 4, 4)
ALTER_CONFIGS = _api(33, "AlterConfigs", 0, 2, 2)
SASL_AUTHENTICATE = _api(36, "SaslAuthenticate", 0, 2, 2)
CREATE_PARTITIONS = _api(37, "CreatePartitions", 0, 3, 2)
ELECT_LEADERS = _api(43, "ElectLeaders", 0, 2, 2)
INCREMENTAL_ALTER_CONFIGS = _api(44, "IncrementalAlterConfigs", 0, 1, 1)
ALTER_PARTITION_REASSIGNMENTS = _api(45, "AlterPartitionReassignments", 0, 1, 0)
LIST_PARTITION_REASSIGNMENTS = _api(46, "ListPartitionReassignments", 0, 0, 0)
ALTER_CLIENT_QUOTAS = _api(49, "AlterClientQuotas", 0, 1, 1)
DESCRIBE_USER_SCRAM_CREDENTIALS = _api(50, "DescribeUserScramCredentials", 0, 0, 0)
ALTER_USER_SCRAM_CREDENTIALS = _api(51, "AlterUserScramCredentials", 0, 0, 0)
VOTE = _api(52, "Vote", 0, 2, 0)
BEGIN_QUORUM_EPOCH = _api(53, "BeginQuorumEpoch", 0, 1, 1)
END_QUORUM_EPOCH = _api(54, "EndQuorumEpoch", 0, 1, 1)
DESCRIBE_QUORUM = _api(55, "DescribeQuorum", 0, 2, 0)
ALTER_PARTITION = _api(56, "AlterPartition", 2, 3, 0)
UPDATE_FEATURES = _api(57, "UpdateFeatures", 0, 2, 0)
ENVELOPE = _api(58, "Envelope", 0, 0, 0)
FETCH_SNAPSHOT = _api(59, "FetchSnapshot", 0, 1, 0)
DESCRIBE_CLUSTER = _api(60, "DescribeCluster", 0, 2, 0)
BROKER_REGISTRATION = _api(62, "BrokerRegistration", 0, 4, 0)
BROKER_HEARTBEAT = _api(63, "BrokerHeartbeat", 0, 2, 0)
UNREGISTER_BROKER = _api(64, "UnregisterBroker", 0, 0, 0)
ALLOCATE_PRODUCER_IDS = _api(67, "AllocateProducerIds", 0, 0, 0)
CONTROLLER_REGISTRATION = _api(70, "ControllerRegistration", 0, 0, 0)
ASSIGN_REPLICAS_TO_DIRS = _api(73, "AssignReplicasToDirs", 0, 0, 0)
LIST_CONFIG_RESOURCES = _api(74, "ListConfigResources", 0, 1, 0)
DESCRIBE_TOPIC_PARTITIONS = _api(75, "DescribeTopicPartitions", 0, 0, 0)
ADD_RAFT_VOTER = _api(80, "AddRaftVoter", 0, 1, 0)
REMOVE_RAFT_VOTER = _api(81, "RemoveRaftVoter", 0, 0, 0)
UPDATE_RAFT_VOTER = _api(82, "UpdateRaftVoter", 0, 0, 0)

KRAFT_PROTOCOL = Protocol(KRAFT_APIS, "tidegauge.kafka.kraft.messages")
"""The messages of these APIs; an argument of the functions of ``tidegauge.kafka.frames``."""
