"""The APIs that nodes of a KRaft quorum and tools call at controllers: key, name, versions, first flexible version.

They are those of Apache Kafka 4.3.1. Fetch and ApiVersions have other versions and fields there than at a broker in
ZooKeeper mode, so this table and its messages are a set of their own (docs/adr/0024-two-generated-protocols.md).
Source: ``org.apache.kafka.common.protocol.ApiKeys``; KIP-595, KIP-630 (FetchSnapshot), KIP-919 (60,
70), KIP-853 (80 to 82).
"""

from __future__ import annotations

from tidegauge.kafka.apis import API_VERSIONS, DESCRIBE_CLUSTER, FETCH, Api, Protocol

VOTE = 52
BEGIN_QUORUM_EPOCH = 53
END_QUORUM_EPOCH = 54
DESCRIBE_QUORUM = 55
FETCH_SNAPSHOT = 59
CONTROLLER_REGISTRATION = 70
ADD_RAFT_VOTER = 80
REMOVE_RAFT_VOTER = 81
UPDATE_RAFT_VOTER = 82

KRAFT_APIS: dict[int, Api] = {
    row[0]: Api(*row)
    for row in (
        (FETCH, "Fetch", 4, 18, 12),
        (API_VERSIONS, "ApiVersions", 0, 4, 3),
        (VOTE, "Vote", 0, 2, 0),
        (BEGIN_QUORUM_EPOCH, "BeginQuorumEpoch", 0, 1, 0),
        (END_QUORUM_EPOCH, "EndQuorumEpoch", 0, 1, 0),
        (DESCRIBE_QUORUM, "DescribeQuorum", 0, 2, 0),
        (FETCH_SNAPSHOT, "FetchSnapshot", 0, 1, 0),
        (DESCRIBE_CLUSTER, "DescribeCluster", 0, 2, 0),
        (CONTROLLER_REGISTRATION, "ControllerRegistration", 0, 0, 0),
        (ADD_RAFT_VOTER, "AddRaftVoter", 0, 1, 0),
        (REMOVE_RAFT_VOTER, "RemoveRaftVoter", 0, 0, 0),
        (UPDATE_RAFT_VOTER, "UpdateRaftVoter", 0, 0, 0),
    )
}

KRAFT_PROTOCOL = Protocol(KRAFT_APIS, "tidegauge.kafka.kraft.messages")
"""What the nodes of a quorum serve; an argument of the functions of ``tidegauge.kafka.frames``."""
