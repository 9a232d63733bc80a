"""The one table of Kafka's APIs: key, name, versions and first flexible version, as Apache Kafka 3.9.1 has them.

The versions are those that a 3.9.1 broker in ZooKeeper mode serves. What of them a Tidegauge broker serves is what it
has a handler for. Absent, as a broker in ZooKeeper mode does not serve them: the APIs of KRaft, of telemetry and of
share groups; and 68 and 69, which 3.9.1 advertises and then answers with UNSUPPORTED_VERSION.
Source: ``org.apache.kafka.common.protocol.ApiKeys``; the ApiVersions response of 3.9.1.
"""

from __future__ import annotations

import functools
import re
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


PRODUCE, FETCH, LIST_OFFSETS, METADATA, API_VERSIONS = 0, 1, 2, 3, 18
CREATE_TOPICS, DELETE_TOPICS, DELETE_RECORDS, INIT_PRODUCER_ID, OFFSET_FOR_LEADER_EPOCH = 19, 20, 21, 22, 23
CONTROLLED_SHUTDOWN = 7

APIS: dict[int, Api] = {
    row[0]: Api(*row)
    for row in (
        (PRODUCE, "Produce", 0, 11, 9),
        (FETCH, "Fetch", 0, 17, 12),
        (LIST_OFFSETS, "ListOffsets", 0, 9, 6),
        (METADATA, "Metadata", 0, 12, 9),
        (4, "LeaderAndIsr", 0, 7, 4),
        (5, "StopReplica", 0, 4, 2),
        (6, "UpdateMetadata", 0, 8, 6),
        (CONTROLLED_SHUTDOWN, "ControlledShutdown", 0, 3, 3),
        (8, "OffsetCommit", 0, 9, 8),
        (9, "OffsetFetch", 0, 9, 6),
        (10, "FindCoordinator", 0, 6, 3),
        (11, "JoinGroup", 0, 9, 6),
        (12, "Heartbeat", 0, 4, 4),
        (13, "LeaveGroup", 0, 5, 4),
        (14, "SyncGroup", 0, 5, 4),
        (15, "DescribeGroups", 0, 5, 5),
        (16, "ListGroups", 0, 5, 3),
        (17, "SaslHandshake", 0, 1, NEVER),
        (API_VERSIONS, "ApiVersions", 0, 4, 3),
        (CREATE_TOPICS, "CreateTopics", 0, 7, 5),
        (DELETE_TOPICS, "DeleteTopics", 0, 6, 4),
        (DELETE_RECORDS, "DeleteRecords", 0, 2, 2),
        (INIT_PRODUCER_ID, "InitProducerId", 0, 5, 2),
        (OFFSET_FOR_LEADER_EPOCH, "OffsetForLeaderEpoch", 0, 4, 4),
        (24, "AddPartitionsToTxn", 0, 5, 3),
        (25, "AddOffsetsToTxn", 0, 4, 3),
        (26, "EndTxn", 0, 4, 3),
        (27, "WriteTxnMarkers", 0, 1, 1),
        (28, "TxnOffsetCommit", 0, 4, 3),
        (29, "DescribeAcls", 0, 3, 2),
        (30, "CreateAcls", 0, 3, 2),
        (31, "DeleteAcls", 0, 3, 2),
        (32, "DescribeConfigs", 0, 4, 4),
        (33, "AlterConfigs", 0, 2, 2),
        (34, "AlterReplicaLogDirs", 0, 2, 2),
        (35, "DescribeLogDirs", 0, 4, 2),
        (36, "SaslAuthenticate", 0, 2, 2),
        (37, "CreatePartitions", 0, 3, 2),
        (38, "CreateDelegationToken", 0, 3, 2),
        (39, "RenewDelegationToken", 0, 2, 2),
        (40, "ExpireDelegationToken", 0, 2, 2),
        (41, "DescribeDelegationToken", 0, 3, 2),
        (42, "DeleteGroups", 0, 2, 2),
        (43, "ElectLeaders", 0, 2, 2),
        (44, "IncrementalAlterConfigs", 0, 1, 1),
        (45, "AlterPartitionReassignments", 0, 0, 0),
        (46, "ListPartitionReassignments", 0, 0, 0),
        (47, "OffsetDelete", 0, 0, NEVER),
        (48, "DescribeClientQuotas", 0, 1, 1),
        (49, "AlterClientQuotas", 0, 1, 1),
        (50, "DescribeUserScramCredentials", 0, 0, 0),
        (51, "AlterUserScramCredentials", 0, 0, 0),
        (56, "AlterPartition", 0, 3, 0),
        (57, "UpdateFeatures", 0, 1, 0),
        (60, "DescribeCluster", 0, 1, 0),
        (61, "DescribeProducers", 0, 0, 0),
        (65, "DescribeTransactions", 0, 0, 0),
        (66, "ListTransactions", 0, 1, 0),
        (67, "AllocateProducerIds", 0, 0, 0),
    )
}


def module_name(name: str) -> str:
    """Return the module of ``tidegauge.kafka.messages`` that holds an API's messages."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()


@functools.cache
def message_class(key: int, *, response: bool) -> type:
    """Return the class of an API's request or response; its module is imported on first use."""
    api = APIS[key]
    module = import_module(f"tidegauge.kafka.messages.{module_name(api.name)}")
    found: type = getattr(module, f"{api.name}{'Response' if response else 'Request'}")
    return found
