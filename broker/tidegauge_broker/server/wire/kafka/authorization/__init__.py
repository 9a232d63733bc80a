"""What each API of Kafka's protocol needs to be allowed: a guard before its handler, where there is an authorizer.

Without ``authorizer.class.name`` there are no guards: handlers are called as they are.
Source: ``KafkaApis``; ApiVersions and SASL need nothing, and delegation tokens are refused anyway.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from tidegauge.cluster_metadata.access_lists import Operation
from tidegauge.errors import ErrorCode
from tidegauge.kafka import apis
from tidegauge.kafka.messages import alter_configs, describe_configs, incremental_alter_configs
from tidegauge_broker.server.cluster.ports import AccessLists
from tidegauge_broker.server.wire.kafka.authorization import listed, parts, whole
from tidegauge_broker.server.wire.kafka.authorization.asking import (
    BY_CLUSTER_MESSAGE,
    BY_TOPIC,
    BY_TOPIC_MESSAGE,
    Ask,
    Guard,
)
from tidegauge_broker.server.wire.kafka.request import Context, Handler
from tidegauge_broker.server.wire.kafka.responses import Response


def _described(resource: Any, error: ErrorCode) -> Any:
    message = BY_TOPIC_MESSAGE if error is BY_TOPIC else BY_CLUSTER_MESSAGE
    return describe_configs.DescribeConfigsResult(error, message, resource.resource_type, resource.resource_name)


def _altered(resource: Any, error: ErrorCode) -> Any:
    kind, name = resource.resource_type, resource.resource_name
    return alter_configs.AlterConfigsResourceResponse(error, None, kind, name)


def _incrementally_altered(resource: Any, error: ErrorCode) -> Any:
    kind, name = resource.resource_type, resource.resource_name
    return incremental_alter_configs.AlterConfigsResourceResponse(error, None, kind, name)


_OF_BROKERS = whole.of_cluster(Operation.CLUSTER_ACTION)
_ALTERS = whole.of_cluster(Operation.ALTER)
_DESCRIBES = whole.of_cluster(Operation.DESCRIBE)
_READS_GROUP = whole.of_group(Operation.READ)
GUARDS: Mapping[int, Guard] = {
    apis.PRODUCE: parts.produce,
    apis.FETCH: whole.fetch,
    apis.LIST_OFFSETS: parts.LIST_OFFSETS,
    apis.METADATA: listed.metadata,
    apis.LEADER_AND_ISR: _OF_BROKERS,
    apis.STOP_REPLICA: _OF_BROKERS,
    apis.UPDATE_METADATA: _OF_BROKERS,
    apis.CONTROLLED_SHUTDOWN: _OF_BROKERS,
    apis.OFFSET_COMMIT: parts.offset_commit,
    apis.OFFSET_FETCH: listed.offset_fetch,
    apis.FIND_COORDINATOR: listed.find_coordinator,
    apis.JOIN_GROUP: _READS_GROUP,
    apis.HEARTBEAT: _READS_GROUP,
    apis.LEAVE_GROUP: _READS_GROUP,
    apis.SYNC_GROUP: _READS_GROUP,
    apis.DESCRIBE_GROUPS: listed.describe_groups,
    apis.LIST_GROUPS: listed.list_groups,
    apis.CREATE_TOPICS: parts.create_topics,
    apis.DELETE_TOPICS: parts.delete_topics,
    apis.DELETE_RECORDS: parts.DELETE_RECORDS,
    apis.INIT_PRODUCER_ID: whole.init_producer_id,
    apis.OFFSET_FOR_LEADER_EPOCH: parts.offset_for_leader_epoch,
    apis.ADD_PARTITIONS_TO_TXN: parts.add_partitions_to_txn,
    apis.ADD_OFFSETS_TO_TXN: whole.add_offsets_to_txn,
    apis.END_TXN: whole.end_txn,
    apis.WRITE_TXN_MARKERS: whole.write_txn_markers,
    apis.TXN_OFFSET_COMMIT: parts.txn_offset_commit,
    apis.DESCRIBE_ACLS: _DESCRIBES,
    apis.CREATE_ACLS: _ALTERS,
    apis.DELETE_ACLS: _ALTERS,
    apis.DESCRIBE_CONFIGS: parts.of_configs(Operation.DESCRIBE_CONFIGS, "results", _described),
    apis.ALTER_CONFIGS: parts.of_configs(Operation.ALTER_CONFIGS, "responses", _altered, in_order=True),
    apis.ALTER_REPLICA_LOG_DIRS: _ALTERS,
    apis.DESCRIBE_LOG_DIRS: _DESCRIBES,
    apis.CREATE_PARTITIONS: parts.create_partitions,
    apis.DELETE_GROUPS: parts.delete_groups,
    apis.ELECT_LEADERS: _ALTERS,
    apis.INCREMENTAL_ALTER_CONFIGS: parts.of_configs(
        Operation.ALTER_CONFIGS, "responses", _incrementally_altered, in_order=True
    ),
    apis.ALTER_PARTITION_REASSIGNMENTS: _ALTERS,
    apis.LIST_PARTITION_REASSIGNMENTS: _DESCRIBES,
    apis.OFFSET_DELETE: listed.offset_delete,
    apis.DESCRIBE_CLIENT_QUOTAS: whole.of_cluster(Operation.DESCRIBE_CONFIGS),
    apis.ALTER_CLIENT_QUOTAS: whole.of_cluster(Operation.ALTER_CONFIGS),
    apis.DESCRIBE_USER_SCRAM_CREDENTIALS: _DESCRIBES,
    apis.ALTER_USER_SCRAM_CREDENTIALS: whole.of_controller(Operation.ALTER),
    apis.ALTER_PARTITION: _OF_BROKERS,
    apis.UPDATE_FEATURES: _ALTERS,
    apis.DESCRIBE_CLUSTER: whole.describe_cluster,
    apis.DESCRIBE_PRODUCERS: parts.DESCRIBE_PRODUCERS,
    apis.DESCRIBE_TRANSACTIONS: listed.describe_transactions,
    apis.LIST_TRANSACTIONS: listed.list_transactions,
    apis.ALLOCATE_PRODUCER_IDS: _OF_BROKERS,
}
UNGUARDED = frozenset(
    {
        *(apis.API_VERSIONS, apis.SASL_HANDSHAKE, apis.SASL_AUTHENTICATE),
        *(apis.CREATE_DELEGATION_TOKEN, apis.RENEW_DELEGATION_TOKEN, apis.EXPIRE_DELEGATION_TOKEN),
        apis.DESCRIBE_DELEGATION_TOKEN,
    }
)
"""APIs that need nothing to be allowed."""


def guarded(handlers: Mapping[int, Handler], acls: AccessLists | None) -> dict[int, Handler]:
    """Return the handlers behind their guards; as they are where there is no authorizer."""
    if acls is None:
        return dict(handlers)
    return {
        key: handler if key in UNGUARDED else partial(_guard, GUARDS[key], acls, key, handler)
        for key, handler in handlers.items()
    }


def _guard(guard: Guard, acls: AccessLists, key: int, handler: Handler, request: Any, context: Context) -> Response:
    return guard(request, Ask(acls, context, key), handler)
