"""How a gRPC request looks to the guard of Kafka's API: the names in it, as Kafka's request has them. Pure.

A guard (``wire.kafka.authorization``) needs of a request the names of topics, groups and transactional ids, and a
partition of each topic to hang an error on. So a form makes a request of Kafka's of no more than that, in the one
version whose errors fit the response of gRPC.

An RPC that Kafka has no API for needs what the nearest one needs: DescribeReplicas what DescribeLogDirs does,
ReadReplica what a consumer's Fetch does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from tidegauge.kafka import apis
from tidegauge.kafka.apis import message_class
from tidegauge.kafka.messages import (
    add_offsets_to_txn,
    add_partitions_to_txn,
    create_partitions,
    create_topics,
    delete_groups,
    delete_records,
    delete_topics,
    describe_configs,
    describe_groups,
    describe_producers,
    describe_transactions,
    end_txn,
    fetch,
    find_coordinator,
    heartbeat,
    incremental_alter_configs,
    init_producer_id,
    join_group,
    leave_group,
    list_groups,
    list_offsets,
    list_transactions,
    metadata,
    offset_commit,
    offset_delete,
    offset_fetch,
    offset_for_leader_epoch,
    produce,
    sync_group,
    txn_offset_commit,
)
from tidegauge_broker.server.service.broker_service import ConfigResourceType

_FOLLOWER = 0
"""Any replica id: who fetches as a follower needs the same, whichever it is."""


class Form(NamedTuple):
    """How requests of an RPC are judged.

    Attributes:
        api: whose guard does it.
        version: of Kafka's request.
        to_kafka: makes Kafka's request.
        items: field of the gRPC request with what is judged one by one; empty: it is judged as a whole.
        results: field of the response with their results.
        listed: makes of a gRPC response Kafka's response with the names in it, of which the guard leaves out some;
            None: the response lists nothing that the request does not name.
        keep: removes from a gRPC response what the guard has left out of Kafka's.
        is_called_without_items: whether the handler has something to say where nothing is left of the items.
    """

    api: int
    version: int
    to_kafka: Callable[[Any], Any]
    items: str = ""
    results: str = ""
    listed: Callable[[Any], Any] | None = None
    keep: Callable[[Any, Any], None] | None = None
    is_called_without_items: bool = False


def name_of(item: Any) -> str:
    """Return the name by which an item of a request is judged: its topic, its name, or itself."""
    if isinstance(item, str):
        return item
    return str(item.topic if hasattr(item, "topic") else item.name)


def _names(items: Iterable[Any]) -> list[str]:
    return list(dict.fromkeys(map(name_of, items)))


def _kept(items: Any, names: set[str]) -> None:
    """Remove what has none of these names from a repeated field."""
    remaining = [item for item in items if name_of(item) in names]
    del items[:]
    items.extend(remaining)


def _nothing(api: int) -> Callable[[Any], Any]:
    """Return what makes an empty request: the guard asks for the cluster alone."""
    return lambda _: message_class(api, response=False)()


def _whole(api: int, version: int = 0) -> Form:
    return Form(api, version, _nothing(api))


def _of_partitions(
    api: int, version: int, make: Callable[[Any, list[str]], Any], items: str = "partitions", results: str = ""
) -> Form:
    """Return the form of a request whose partitions are judged by their topics."""
    return Form(api, version, lambda one: make(one, _names(getattr(one, items))), items, results or items)


def _produce(request: Any) -> Any:
    topics: dict[str, list[Any]] = {}
    for one in request.partitions:
        topics.setdefault(one.topic, []).append(produce.PartitionProduceData(one.partition, one.records))
    data = [produce.TopicProduceData(name, partitions) for name, partitions in topics.items()]
    return produce.ProduceRequest(request.transactional_id or None, request.acks, topic_data=data)


def _fetch(names: Sequence[str], replica_id: int = -1) -> Any:
    topics = [fetch.FetchTopic(name, partitions=[fetch.FetchPartition()]) for name in names]
    return fetch.FetchRequest(replica_id=replica_id, topics=topics)


def _metadata(request: Any) -> Any:
    topics = None if request.all_topics else [metadata.MetadataRequestTopic(name=name) for name in request.topics]
    return metadata.MetadataRequest(topics, request.allow_auto_topic_creation)


def _offsets_to_fetch(request: Any) -> Any:
    if request.all_partitions:
        return offset_fetch.OffsetFetchRequest(request.group_id, None)
    names = _names(request.partitions)
    topics = [offset_fetch.OffsetFetchRequestTopic(name, [0]) for name in names]
    return offset_fetch.OffsetFetchRequest(request.group_id, topics)


def _resource(kind: int) -> int:
    return kind or ConfigResourceType.BROKER  # an unset field means a broker


def _transaction_listed(response: Any) -> Any:
    topics = [describe_transactions.TopicData(name, [0]) for name in _names(response.partitions)]
    return describe_transactions.DescribeTransactionsResponse(
        transaction_states=[describe_transactions.TransactionState(topics=topics)]
    )


def _keep_groups(response: Any, left: Any) -> None:
    names = {one.group_id for one in left.groups}
    remaining = [one for one in response.groups if one.group_id in names]
    del response.groups[:]
    response.groups.extend(remaining)


def _keep_transactions(response: Any, left: Any) -> None:
    names = {one.transactional_id for one in left.transaction_states}
    remaining = [one for one in response.transactions if one.transactional_id in names]
    del response.transactions[:]
    response.transactions.extend(remaining)


_EPOCH_ENDS = _of_partitions(
    apis.OFFSET_FOR_LEADER_EPOCH,
    4,
    lambda _, names: offset_for_leader_epoch.OffsetForLeaderEpochRequest(
        topics=[
            offset_for_leader_epoch.OffsetForLeaderTopic(name, [offset_for_leader_epoch.OffsetForLeaderPartition()])
            for name in names
        ]
    ),
)
_PRODUCE = Form(apis.PRODUCE, 9, _produce, "partitions", "partitions")
_BROKER_SERVICE: Mapping[str, Form] = {
    "Produce": _PRODUCE,
    "ProduceStream": _PRODUCE,
    "Fetch": _of_partitions(apis.FETCH, 11, lambda _, names: _fetch(names)),
    "ListOffsets": _of_partitions(
        apis.LIST_OFFSETS,
        7,
        lambda _, names: list_offsets.ListOffsetsRequest(
            topics=[list_offsets.ListOffsetsTopic(name, [list_offsets.ListOffsetsPartition()]) for name in names]
        ),
    ),
    "OffsetsForLeaderEpoch": _EPOCH_ENDS,
    "Metadata": Form(apis.METADATA, 12, _metadata, "topics", "topics", is_called_without_items=True),
    "DescribeReplicas": _whole(apis.DESCRIBE_LOG_DIRS, 4),
    "InitProducerId": Form(apis.INIT_PRODUCER_ID, 4, lambda _: init_producer_id.InitProducerIdRequest(None)),
    "DeleteRecords": _of_partitions(
        apis.DELETE_RECORDS,
        2,
        lambda _, names: delete_records.DeleteRecordsRequest(
            [delete_records.DeleteRecordsTopic(name, [delete_records.DeleteRecordsPartition()]) for name in names]
        ),
    ),
    "ReadReplica": Form(apis.FETCH, 11, lambda one: _fetch([one.topic])),
}
ALL_TOPICS = Form(
    apis.METADATA,
    12,
    _metadata,
    listed=lambda response: metadata.MetadataResponse(
        topics=[metadata.MetadataResponseTopic(name=one.name) for one in response.topics]
    ),
    keep=lambda response, left: _kept(response.topics, {str(one.name) for one in left.topics}),
)
"""Metadata of all topics."""
_ADMIN_SERVICE: Mapping[str, Form] = {
    "CreateTopics": Form(
        apis.CREATE_TOPICS,
        7,
        lambda one: create_topics.CreateTopicsRequest(
            [create_topics.CreatableTopic(topic.name) for topic in one.topics]
        ),
        "topics",
        "topics",
    ),
    "DeleteTopics": Form(
        apis.DELETE_TOPICS,
        5,
        lambda one: delete_topics.DeleteTopicsRequest(topic_names=list(one.names)),
        "names",
        "topics",
    ),
    "CreatePartitions": Form(
        apis.CREATE_PARTITIONS,
        3,
        lambda one: create_partitions.CreatePartitionsRequest(
            [create_partitions.CreatePartitionsTopic(topic.name) for topic in one.topics]
        ),
        "topics",
        "topics",
    ),
    "ElectLeaders": _whole(apis.ELECT_LEADERS, 2),
    "AlterPartitionReassignments": _whole(apis.ALTER_PARTITION_REASSIGNMENTS),
    "ListPartitionReassignments": _whole(apis.LIST_PARTITION_REASSIGNMENTS),
    "DescribeConfigs": Form(
        apis.DESCRIBE_CONFIGS,
        4,
        lambda one: describe_configs.DescribeConfigsRequest(
            [describe_configs.DescribeConfigsResource(_resource(one.resource_type), one.resource_name)]
        ),
    ),
    "AlterConfigs": Form(
        apis.INCREMENTAL_ALTER_CONFIGS,
        1,
        lambda one: incremental_alter_configs.IncrementalAlterConfigsRequest(
            [incremental_alter_configs.AlterConfigsResource(_resource(one.resource_type), one.resource_name)]
        ),
    ),
}
_AMONG_BROKERS: Mapping[str, Form] = {
    "LeaderAndIsr": _whole(apis.LEADER_AND_ISR),
    "UpdateMetadata": _whole(apis.UPDATE_METADATA),
    "StopReplica": _whole(apis.STOP_REPLICA),
    "AlterPartition": _whole(apis.ALTER_PARTITION),
    "ControlledShutdown": _whole(apis.CONTROLLED_SHUTDOWN),
    "AllocateProducerIds": _whole(apis.ALLOCATE_PRODUCER_IDS),
    "ReplicaFetch": Form(apis.FETCH, 11, lambda _: _fetch([""], _FOLLOWER)),
    "ReplicaOffsetsForLeaderEpoch": _EPOCH_ENDS,
    "WriteMarkers": _whole(apis.WRITE_TXN_MARKERS),
}
_GROUP_SERVICE: Mapping[str, Form] = {
    "FindCoordinator": Form(
        apis.FIND_COORDINATOR, 3, lambda one: find_coordinator.FindCoordinatorRequest(one.group_id, 0)
    ),
    "JoinGroup": Form(apis.JOIN_GROUP, 9, lambda one: join_group.JoinGroupRequest(one.group_id)),
    "SyncGroup": Form(apis.SYNC_GROUP, 5, lambda one: sync_group.SyncGroupRequest(one.group_id)),
    "Heartbeat": Form(apis.HEARTBEAT, 4, lambda one: heartbeat.HeartbeatRequest(one.group_id)),
    "LeaveGroup": Form(apis.LEAVE_GROUP, 5, lambda one: leave_group.LeaveGroupRequest(one.group_id)),
    "CommitOffsets": _of_partitions(
        apis.OFFSET_COMMIT,
        8,
        lambda one, names: offset_commit.OffsetCommitRequest(
            one.group_id,
            topics=[
                offset_commit.OffsetCommitRequestTopic(name, [offset_commit.OffsetCommitRequestPartition()])
                for name in names
            ],
        ),
        "offsets",
    ),
    "FetchOffsets": Form(apis.OFFSET_FETCH, 7, _offsets_to_fetch, "partitions", "offsets"),
    "DeleteOffsets": _of_partitions(
        apis.OFFSET_DELETE,
        0,
        lambda one, names: offset_delete.OffsetDeleteRequest(
            one.group_id,
            [
                offset_delete.OffsetDeleteRequestTopic(name, [offset_delete.OffsetDeleteRequestPartition()])
                for name in names
            ],
        ),
        "partitions",
        "offsets",
    ),
    "DescribeGroup": Form(apis.DESCRIBE_GROUPS, 5, lambda one: describe_groups.DescribeGroupsRequest([one.group_id])),
    "ListGroups": Form(
        apis.LIST_GROUPS,
        4,
        _nothing(apis.LIST_GROUPS),
        listed=lambda response: list_groups.ListGroupsResponse(
            groups=[list_groups.ListedGroup(one.group_id) for one in response.groups]
        ),
        keep=_keep_groups,
    ),
    "DeleteGroup": Form(apis.DELETE_GROUPS, 2, lambda one: delete_groups.DeleteGroupsRequest([one.group_id])),
}
ALL_OFFSETS = Form(
    apis.OFFSET_FETCH,
    7,
    _offsets_to_fetch,
    listed=lambda response: offset_fetch.OffsetFetchResponse(
        topics=[offset_fetch.OffsetFetchResponseTopic(name) for name in _names(response.offsets)]
    ),
    keep=lambda response, left: _kept(response.offsets, {one.name for one in left.topics}),
)
"""FetchOffsets of all partitions of a group."""
_TRANSACTION_SERVICE: Mapping[str, Form] = {
    "InitTransactions": Form(
        apis.INIT_PRODUCER_ID, 4, lambda one: init_producer_id.InitProducerIdRequest(one.transactional_id)
    ),
    "AddPartitions": _of_partitions(
        apis.ADD_PARTITIONS_TO_TXN,
        3,
        lambda one, names: add_partitions_to_txn.AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=one.transactional_id,
            v3_and_below_topics=[add_partitions_to_txn.AddPartitionsToTxnTopic(name, [0]) for name in names],
        ),
    ),
    "AddOffsets": Form(
        apis.ADD_OFFSETS_TO_TXN,
        3,
        lambda one: add_offsets_to_txn.AddOffsetsToTxnRequest(one.transactional_id, group_id=one.group_id),
    ),
    "CommitOffsetsInTransaction": _of_partitions(
        apis.TXN_OFFSET_COMMIT,
        3,
        lambda one, names: txn_offset_commit.TxnOffsetCommitRequest(
            one.transactional_id,
            one.group_id,
            topics=[
                txn_offset_commit.TxnOffsetCommitRequestTopic(
                    name, [txn_offset_commit.TxnOffsetCommitRequestPartition()]
                )
                for name in names
            ],
        ),
        "offsets",
    ),
    "EndTransaction": Form(apis.END_TXN, 3, lambda one: end_txn.EndTxnRequest(one.transactional_id)),
    "DescribeTransaction": Form(
        apis.DESCRIBE_TRANSACTIONS,
        0,
        lambda one: describe_transactions.DescribeTransactionsRequest([one.transactional_id]),
        listed=_transaction_listed,
        keep=lambda response, left: _kept(
            response.partitions, {topic.topic for one in left.transaction_states for topic in one.topics}
        ),
    ),
    "ListTransactions": Form(
        apis.LIST_TRANSACTIONS,
        1,
        _nothing(apis.LIST_TRANSACTIONS),
        listed=lambda response: list_transactions.ListTransactionsResponse(
            transaction_states=[
                list_transactions.TransactionState(one.transactional_id) for one in response.transactions
            ]
        ),
        keep=_keep_transactions,
    ),
    "DescribeProducers": Form(
        apis.DESCRIBE_PRODUCERS,
        0,
        lambda one: describe_producers.DescribeProducersRequest([describe_producers.TopicRequest(one.topic, [0])]),
    ),
}
VERIFICATION = Form(
    apis.ADD_PARTITIONS_TO_TXN,
    4,
    lambda one: add_partitions_to_txn.AddPartitionsToTxnRequest(
        [add_partitions_to_txn.AddPartitionsToTxnTransaction(one.transactional_id, verify_only=True)]
    ),
)
"""AddPartitions that only verifies, as brokers ask it."""
FORMS: Mapping[str, Form] = {
    **_BROKER_SERVICE,
    **_ADMIN_SERVICE,
    **_AMONG_BROKERS,
    **_GROUP_SERVICE,
    **_TRANSACTION_SERVICE,
}
"""By the name of the RPC; no two services have a method of the same name."""


def form_of(rpc: str, request: Any) -> Form:
    """Return the form of a request."""
    if rpc == "Metadata" and request.all_topics:
        return ALL_TOPICS
    if rpc == "FetchOffsets" and request.all_partitions:
        return ALL_OFFSETS
    if rpc == "AddPartitions" and request.verify_only:
        return VERIFICATION
    return FORMS[rpc]
