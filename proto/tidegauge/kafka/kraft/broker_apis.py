"""The APIs that a broker in KRaft mode serves: keys and versions, as Apache Kafka 4.3.1's brokers have them.

The messages are those that brokers in ZooKeeper mode have, some with fields of later versions added (``LATER``). For
APIs that only KRaft mode has they are a controller's (``apis``). Lower versions were removed by KIP-896, and so were
the control requests of ZooKeeper mode (4 to 7). Delegation tokens are not served at all.
Source: ``org.apache.kafka.common.protocol.ApiKeys``; KIP-896; the ApiVersions response of a broker of 4.3.1.
"""

from __future__ import annotations

from tidegauge.kafka import apis
from tidegauge.kafka.apis import APIS, Api, Protocol
from tidegauge.kafka.kraft.apis import (
    ADD_RAFT_VOTER,
    DESCRIBE_QUORUM,
    DESCRIBE_TOPIC_PARTITIONS,
    KRAFT_APIS,
    LIST_CONFIG_RESOURCES,
    REMOVE_RAFT_VOTER,
    UNREGISTER_BROKER,
)

LATER: dict[int, int] = {
    apis.PRODUCE: 13,
    apis.FETCH: 18,
    apis.LIST_OFFSETS: 11,
    apis.METADATA: 13,
    apis.OFFSET_COMMIT: 10,
    apis.OFFSET_FETCH: 10,
    apis.DESCRIBE_GROUPS: 6,
    apis.END_TXN: 5,
    apis.WRITE_TXN_MARKERS: 2,
    apis.TXN_OFFSET_COMMIT: 5,
    apis.LIST_TRANSACTIONS: 2,
    apis.DESCRIBE_LOG_DIRS: 5,
    apis.ALTER_PARTITION_REASSIGNMENTS: 1,
    apis.UPDATE_FEATURES: 2,
    apis.DESCRIBE_CLUSTER: 2,
}
"""APIs of which later versions are served than ZooKeeper mode has: the highest one."""
_LOWEST: dict[int, int] = {
    apis.PRODUCE: 3,
    apis.FETCH: 4,
    apis.LIST_OFFSETS: 1,
    apis.OFFSET_COMMIT: 2,
    apis.OFFSET_FETCH: 1,
    apis.CREATE_TOPICS: 2,
    apis.DELETE_TOPICS: 1,
    apis.OFFSET_FOR_LEADER_EPOCH: 2,
    apis.WRITE_TXN_MARKERS: 1,
    apis.DESCRIBE_ACLS: 1,
    apis.CREATE_ACLS: 1,
    apis.DELETE_ACLS: 1,
    apis.DESCRIBE_CONFIGS: 1,
    apis.ALTER_REPLICA_LOG_DIRS: 1,
    apis.DESCRIBE_LOG_DIRS: 1,
}
_REMOVED = frozenset(
    {
        apis.LEADER_AND_ISR,
        apis.STOP_REPLICA,
        apis.UPDATE_METADATA,
        apis.CONTROLLED_SHUTDOWN,
        apis.CREATE_DELEGATION_TOKEN,
        apis.RENEW_DELEGATION_TOKEN,
        apis.EXPIRE_DELEGATION_TOKEN,
        apis.DESCRIBE_DELEGATION_TOKEN,
        apis.ALTER_PARTITION,
        apis.ALLOCATE_PRODUCER_IDS,
    }
)
"""APIs of ZooKeeper mode that a broker in KRaft mode does not serve; the last two are its controllers'."""
ADVERTISED_FROM: dict[int, int] = {apis.PRODUCE: 0}
"""The lowest advertised version, if it is lower than the lowest served one: for old librdkafka (KAFKA-18659)."""
OF_KRAFT = (
    *(DESCRIBE_QUORUM, UNREGISTER_BROKER, LIST_CONFIG_RESOURCES),
    *(DESCRIBE_TOPIC_PARTITIONS, ADD_RAFT_VOTER, REMOVE_RAFT_VOTER),
)
FORWARDED = frozenset(
    {
        apis.CREATE_TOPICS,
        apis.DELETE_TOPICS,
        apis.CREATE_ACLS,
        apis.DELETE_ACLS,
        apis.ALTER_CONFIGS,
        apis.CREATE_PARTITIONS,
        apis.ELECT_LEADERS,
        apis.INCREMENTAL_ALTER_CONFIGS,
        apis.ALTER_PARTITION_REASSIGNMENTS,
        apis.LIST_PARTITION_REASSIGNMENTS,
        apis.ALTER_CLIENT_QUOTAS,
        apis.ALTER_USER_SCRAM_CREDENTIALS,
        apis.UPDATE_FEATURES,
        DESCRIBE_QUORUM,
        UNREGISTER_BROKER,
        ADD_RAFT_VOTER,
        REMOVE_RAFT_VOTER,
    }
)
"""The APIs that a broker forwards to the active controller (KIP-590)."""


def _row(api: Api) -> Api:
    return api._replace(first=_LOWEST.get(api.key, api.first), last=LATER.get(api.key, api.last))


KRAFT_BROKER_APIS: dict[int, Api] = {
    **{key: _row(api) for key, api in APIS.items() if key not in _REMOVED},
    **{key: KRAFT_APIS[key] for key in OF_KRAFT},
}
"""The APIs, by key; those served follow from the handlers that there are, and from the controller's versions."""

AMONG_BROKERS = Protocol(
    {**APIS, apis.WRITE_TXN_MARKERS: _row(APIS[apis.WRITE_TXN_MARKERS])._replace(first=0)}, "tidegauge.kafka.messages"
)
"""The APIs between brokers of either mode; a marker has its transaction's version if the peer can read it."""
KRAFT_BROKER_PROTOCOL = Protocol(
    KRAFT_BROKER_APIS, "tidegauge.kafka.messages", dict.fromkeys(OF_KRAFT, "tidegauge.kafka.kraft.messages")
)
"""The APIs that a broker in KRaft mode serves; an argument of the functions of ``tidegauge.kafka.frames``."""
