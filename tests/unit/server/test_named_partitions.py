"""The objects of a request, for faults that mean some topics, partitions or groups only, on both wires."""

from __future__ import annotations

from typing import Any

import pytest

from tidegauge.kafka.messages.create_topics import CreatableTopic, CreateTopicsRequest
from tidegauge.kafka.messages.delete_topics import DeleteTopicsRequest
from tidegauge.kafka.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from tidegauge.kafka.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from tidegauge.kafka.messages.find_coordinator import FindCoordinatorRequest
from tidegauge.kafka.messages.heartbeat import HeartbeatRequest
from tidegauge.kafka.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from tidegauge.kafka.messages.metadata import MetadataRequest, MetadataRequestTopic
from tidegauge.kafka.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tidegauge.partition import TopicPartition
from tidegauge.v1 import control_pb2, fetch_pb2, metadata_pb2, produce_pb2, topics_pb2
from tidegauge_broker.server.wire.grpc import named_partitions as grpc
from tidegauge_broker.server.wire.kafka import named_partitions as kafka

ID = bytes(15) + b"1"


def name_of(topic_id: bytes) -> str | None:
    return "by-id" if topic_id == ID else None


KAFKA: list[tuple[Any, list[tuple[str, int]]]] = [
    (
        ProduceRequest(
            topic_data=[TopicProduceData("t", partition_data=[PartitionProduceData(0), PartitionProduceData(3)])]
        ),
        [("t", 0), ("t", 3)],
    ),
    (FetchRequest(topics=[FetchTopic(topic="t", partitions=[FetchPartition(2)])]), [("t", 2)]),
    (FetchRequest(topics=[FetchTopic(topic_id=ID, partitions=[FetchPartition(2)])]), [("by-id", 2)]),
    (FetchRequest(topics=[FetchTopic(topic_id=ID[::-1], partitions=[FetchPartition(2)])]), []),
    (ListOffsetsRequest(topics=[ListOffsetsTopic("t", [ListOffsetsPartition(1)])]), [("t", 1)]),
    (MetadataRequest(topics=[MetadataRequestTopic(name="t")]), [("t", -1)]),
    (MetadataRequest(topics=None), []),
    (CreateTopicsRequest(topics=[CreatableTopic("t")]), [("t", -1)]),
    (DeleteTopicsRequest(topic_names=["t"]), [("t", -1)]),
    (ElectLeadersRequest(topic_partitions=[TopicPartitions("t", [4])]), [("t", 4)]),
    (None, []),
]


@pytest.mark.parametrize(("message", "named"), KAFKA)
def test_kafkas_messages(message: Any, named: list[tuple[str, int]]) -> None:
    assert list(kafka.named_partitions(message, name_of)) == [TopicPartition(*at) for at in named]


GRPC: list[tuple[Any, list[tuple[str, int]]]] = [
    (produce_pb2.ProduceRequest(partitions=[produce_pb2.ProducePartition(topic="t", records=b"r")]), [("t", 0)]),
    (fetch_pb2.FetchRequest(partitions=[fetch_pb2.FetchPartition(topic="t", partition=2)]), [("t", 2)]),
    (metadata_pb2.MetadataRequest(topics=["t"]), [("t", -1)]),
    (topics_pb2.CreateTopicsRequest(topics=[topics_pb2.NewTopic(name="t")]), [("t", -1)]),
    (topics_pb2.DeleteTopicsRequest(names=["t"]), [("t", -1)]),
    (
        control_pb2.LeaderAndIsrRequest(partitions=[control_pb2.LeaderAndIsrPartition(topic="t", partition=5)]),
        [("t", 5)],
    ),
]


@pytest.mark.parametrize(("message", "named"), GRPC)
def test_messages_in_protobuf(message: Any, named: list[tuple[str, int]]) -> None:
    assert list(grpc.named_partitions(message)) == [TopicPartition(*at) for at in named]


def test_groups() -> None:
    assert kafka.named_group(HeartbeatRequest(group_id="g")) == "g"
    assert kafka.named_group(FindCoordinatorRequest(key="g")) == "g"
    assert kafka.named_group(FindCoordinatorRequest(coordinator_keys=["g"])) == "g"
    assert kafka.named_group(FindCoordinatorRequest(coordinator_keys=["g", "h"])) == ""
    assert kafka.named_group(MetadataRequest()) == ""
