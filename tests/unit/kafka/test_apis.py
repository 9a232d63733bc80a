"""The numbers in each request's header (Kafka's ApiKeys), and the permissions if nothing is denied."""

from __future__ import annotations

from tidegauge.cluster_metadata.access_lists import ResourceType
from tidegauge.kafka.apis import APIS
from tidegauge_broker.security.acls.authorizer import OPERATIONS
from tidegauge_broker.server.wire.kafka.handlers.common import CLUSTER_OPERATIONS, TOPIC_OPERATIONS

NAMES_FROM_0 = (
    "Produce Fetch ListOffsets Metadata LeaderAndIsr StopReplica UpdateMetadata ControlledShutdown OffsetCommit "
    "OffsetFetch FindCoordinator JoinGroup Heartbeat LeaveGroup SyncGroup DescribeGroups ListGroups SaslHandshake "
    "ApiVersions CreateTopics DeleteTopics DeleteRecords InitProducerId OffsetForLeaderEpoch AddPartitionsToTxn "
    "AddOffsetsToTxn EndTxn WriteTxnMarkers TxnOffsetCommit DescribeAcls CreateAcls DeleteAcls DescribeConfigs "
    "AlterConfigs AlterReplicaLogDirs DescribeLogDirs SaslAuthenticate CreatePartitions CreateDelegationToken "
    "RenewDelegationToken ExpireDelegationToken DescribeDelegationToken DeleteGroups ElectLeaders "
    "IncrementalAlterConfigs AlterPartitionReassignments ListPartitionReassignments OffsetDelete DescribeClientQuotas "
    "AlterClientQuotas DescribeUserScramCredentials AlterUserScramCredentials"
)
LATER = {
    "AlterPartition": 56,
    "UpdateFeatures": 57,
    "DescribeCluster": 60,
    "DescribeProducers": 61,
    "DescribeTransactions": 65,
    "ListTransactions": 66,
    "AllocateProducerIds": 67,
    "ConsumerGroupHeartbeat": 68,
    "ConsumerGroupDescribe": 69,
    "ShareGroupHeartbeat": 76,
    "ShareGroupDescribe": 77,
    "ShareFetch": 78,
    "ShareAcknowledge": 79,
    "InitializeShareGroupState": 83,
    "ReadShareGroupState": 84,
    "WriteShareGroupState": 85,
    "DeleteShareGroupState": 86,
    "ReadShareGroupStateSummary": 87,
    "DescribeShareGroupOffsets": 90,
    "AlterShareGroupOffsets": 91,
    "DeleteShareGroupOffsets": 92,
}


def test_every_api_has_kafkas_number() -> None:
    numbers = {name: key for key, name in enumerate(NAMES_FROM_0.split())} | LATER
    assert {api.name: key for key, api in APIS.items()} == {api.name: numbers[api.name] for api in APIS.values()}
    assert len(APIS) == len({api.name for api in APIS.values()})
    assert numbers.keys() == {api.name for api in APIS.values()}


def test_without_an_authorizer_all_operations_of_a_resource_are_allowed() -> None:
    for bits, kind in ((TOPIC_OPERATIONS, ResourceType.TOPIC), (CLUSTER_OPERATIONS, ResourceType.CLUSTER)):
        assert bits == sum(1 << operation for operation in OPERATIONS[kind])
