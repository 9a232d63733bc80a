"""The view of a gRPC request for the guard of Kafka's API: the names in it, as Kafka's request has them. Pure.

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
    add_partitions_to_txn,
    create_partitions,
    create_topics,
    delete_records,
    delete_topics,
    describe_configs,
    fetch,
    incremental_alter_configs,
    init_producer_id,
    list_offsets,
    metadata,
    offset_for_leader_epoch,
    produce,
)
from tidegauge_broker.server.configs.resource_types import ConfigResourceType

_FOLLOWER = 0
"""Any replica id: who fetches as a follower needs the same, whichever it is."""


class Form(NamedTuple):
    """The authorization of an RPC's requests.

    Attributes:
        api: whose guard does it.
        version: of Kafka's request.
        to_kafka: makes Kafka's request.
        items: field of the gRPC request with the items judged one by one; empty: it is judged as a whole.
        results: field of the response with their results.
        listed: makes of a gRPC response Kafka's response with the names in it, of which the guard leaves out some;
            None: the response lists nothing that the request does not name.
        keep: removes from a gRPC response what the guard has left out of Kafka's.
        is_called_without_items: whether the handler must respond even if no item is left.
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
    """Return an item's name for the guard: its topic, name, or itself."""
    if isinstance(item, str):
        return item
    return str(item.topic if hasattr(item, "topic") else item.name)


def _names(items: Iterable[Any]) -> list[str]:
    return list(dict.fromkeys(map(name_of, items)))


def _kept(items: Any, names: set[str]) -> None:
    """Remove items without one of these names from a repeated field."""
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
    data = [produce.TopicProduceData(name, partition_data=partitions) for name, partitions in topics.items()]
    return produce.ProduceRequest(request.transactional_id or None, request.acks, topic_data=data)


def _fetch(names: Sequence[str], replica_id: int = -1) -> Any:
    topics = [fetch.FetchTopic(name, partitions=[fetch.FetchPartition()]) for name in names]
    return fetch.FetchRequest(replica_id=replica_id, topics=topics)


def _metadata(request: Any) -> Any:
    topics = None if request.all_topics else [metadata.MetadataRequestTopic(name=name) for name in request.topics]
    return metadata.MetadataRequest(topics, request.allow_auto_topic_creation)


def _resource(kind: int) -> int:
    return kind or ConfigResourceType.BROKER  # an unset field means a broker


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
    "VerifyPartitions": Form(
        apis.ADD_PARTITIONS_TO_TXN,
        4,
        lambda one: add_partitions_to_txn.AddPartitionsToTxnRequest(
            [add_partitions_to_txn.AddPartitionsToTxnTransaction(one.transactional_id, verify_only=True)]
        ),
    ),
}
FORMS: Mapping[str, Form] = {
    **_BROKER_SERVICE,
    **_ADMIN_SERVICE,
    **_AMONG_BROKERS,
}
"""The forms, by the name of the RPC; no two services have a method of the same name."""


def form_of(rpc: str, request: Any) -> Form:
    """Return the form of a request."""
    if rpc == "Metadata" and request.all_topics:
        return ALL_TOPICS
    return FORMS[rpc]
