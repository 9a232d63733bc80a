"""One handler per API, by its key. What is not here is not served, and not advertised."""

from __future__ import annotations

from tidegauge.kafka import apis
from tidegauge_broker.server.wire.kafka.handlers import (
    alter_configs,
    alter_partition_reassignments,
    api_versions,
    create_partitions,
    create_topics,
    delete_records,
    delete_topics,
    describe_cluster,
    describe_configs,
    describe_log_dirs,
    describe_producers,
    elect_leaders,
    fetch,
    incremental_alter_configs,
    init_producer_id,
    list_offsets,
    list_partition_reassignments,
    metadata,
    offset_for_leader_epoch,
    produce,
    sasl,
    security,
)
from tidegauge_broker.server.wire.kafka.request import Handler

HANDLERS: dict[int, Handler] = {
    apis.PRODUCE: produce.handle,
    apis.FETCH: fetch.handle,
    apis.LIST_OFFSETS: list_offsets.handle,
    apis.METADATA: metadata.handle,
    apis.SASL_HANDSHAKE: sasl.handshake,
    apis.CREATE_TOPICS: create_topics.handle,
    apis.DELETE_TOPICS: delete_topics.handle,
    apis.DELETE_RECORDS: delete_records.handle,
    apis.INIT_PRODUCER_ID: init_producer_id.handle,
    apis.OFFSET_FOR_LEADER_EPOCH: offset_for_leader_epoch.handle,
    apis.DESCRIBE_ACLS: security.describe_acls,
    apis.CREATE_ACLS: security.create_acls,
    apis.DELETE_ACLS: security.delete_acls,
    apis.DESCRIBE_CONFIGS: describe_configs.handle,
    apis.ALTER_CONFIGS: alter_configs.handle,
    apis.DESCRIBE_LOG_DIRS: describe_log_dirs.handle,
    apis.SASL_AUTHENTICATE: sasl.authenticate,
    apis.CREATE_PARTITIONS: create_partitions.handle,
    apis.DESCRIBE_DELEGATION_TOKEN: security.describe_delegation_token,
    apis.ELECT_LEADERS: elect_leaders.handle,
    apis.INCREMENTAL_ALTER_CONFIGS: incremental_alter_configs.handle,
    apis.ALTER_PARTITION_REASSIGNMENTS: alter_partition_reassignments.handle,
    apis.LIST_PARTITION_REASSIGNMENTS: list_partition_reassignments.handle,
    apis.DESCRIBE_CLIENT_QUOTAS: security.describe_client_quotas,
    apis.DESCRIBE_USER_SCRAM_CREDENTIALS: security.describe_user_scram_credentials,
    apis.DESCRIBE_CLUSTER: describe_cluster.handle,
    apis.DESCRIBE_PRODUCERS: describe_producers.handle,
}
HANDLERS[apis.API_VERSIONS] = api_versions.handler_for(sorted([*HANDLERS, apis.API_VERSIONS]))
