"""The names by which faults name APIs, whichever wire carries the request. Pure.

An API has Kafka's name. A fault may give the name of gRPC's RPC instead, where that is another one; what only gRPC has
(DescribeReplicas) has that name alone. A follower's fetch is ReplicaFetch over either protocol: Fetch means consumers'.
"""

from __future__ import annotations

GRPC = "gRPC"
KAFKA = "Kafka protocol"
WIRES = (GRPC, KAFKA)
"""What carries requests."""
_OF_KAFKA_ALONE = frozenset(
    {
        "AddOffsetsToTxn",
        "AlterClientQuotas",
        "AlterConfigs",
        "AlterReplicaLogDirs",
        "AlterUserScramCredentials",
        "ApiVersions",
        "CreateAcls",
        "CreateDelegationToken",
        "DeleteAcls",
        "DeleteGroups",
        "DescribeAcls",
        "DescribeClientQuotas",
        "DescribeCluster",
        "DescribeDelegationToken",
        "DescribeGroups",
        "DescribeLogDirs",
        "DescribeProducers",
        "DescribeTransactions",
        "DescribeUserScramCredentials",
        "EndTxn",
        "ExpireDelegationToken",
        "FindCoordinator",
        "Heartbeat",
        "JoinGroup",
        "LeaveGroup",
        "ListGroups",
        "ListTransactions",
        "OffsetCommit",
        "OffsetDelete",
        "OffsetFetch",
        "RenewDelegationToken",
        "SaslAuthenticate",
        "SaslHandshake",
        "SyncGroup",
        "TxnOffsetCommit",
        "UpdateFeatures",
    }
)
"""APIs of Kafka's protocol that no RPC has."""
_APIS_OF_RPCS = {
    "AddOffsets": "AddOffsetsToTxn",
    "AddPartitions": "AddPartitionsToTxn",
    "AlterConfigs": "IncrementalAlterConfigs",
    "CommitOffsets": "OffsetCommit",
    "CommitOffsetsInTransaction": "TxnOffsetCommit",
    "DeleteGroup": "DeleteGroups",
    "DeleteOffsets": "OffsetDelete",
    "DescribeGroup": "DescribeGroups",
    "DescribeTransaction": "DescribeTransactions",
    "EndTransaction": "EndTxn",
    "FetchOffsets": "OffsetFetch",
    "InitTransactions": "InitProducerId",
    "OffsetsForLeaderEpoch": "OffsetForLeaderEpoch",
    "ProduceStream": "Produce",
    "VerifyPartitions": "AddPartitionsToTxn",
    "WriteMarkers": "WriteTxnMarkers",
}
FORMER_RPCS = frozenset(
    {
        "AddOffsets",
        "AddPartitions",
        "CommitOffsets",
        "CommitOffsetsInTransaction",
        "DeleteGroup",
        "DeleteOffsets",
        "DescribeGroup",
        "DescribeTransaction",
        "EndTransaction",
        "FetchOffsets",
        "InitTransactions",
    }
)
"""RPCs of earlier versions: in rules and scenario files their names mean their APIs still."""

_OF_TRANSACTIONAL_ID = frozenset({"AddPartitionsToTxn", "DescribeTransactions", "EndTxn", "InitProducerId", "Produce"})
"""APIs whose requests name a transactional id and no group; AddOffsetsToTxn and TxnOffsetCommit name both."""


def is_over_grpc(api: str) -> bool:
    """Return whether an RPC of gRPC has this API of Kafka's protocol."""
    return api not in _OF_KAFKA_ALONE


def api_of(rpc: str) -> str:
    """Return the name of the API to which an RPC of gRPC belongs."""
    return _APIS_OF_RPCS.get(rpc, rpc)


def apis_meant(name: str) -> frozenset[str]:
    """Return the APIs that a fault means; two for AlterConfigs, the name of one of Kafka's and of another one's RPC."""
    return frozenset({name, api_of(name)})


def kind_of_id(name: str) -> str:
    """Return what the id is by which a fault narrows the calls of an API or RPC: of a group, or a transactional id."""
    return "transactional id" if api_of(name) in _OF_TRANSACTIONAL_ID else "group"
