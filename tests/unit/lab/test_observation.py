"""Which of several brokers' responses counts."""

from __future__ import annotations

from dataclasses import replace

from tidegauge.partition import TopicPartition
from tidegauge.v1.common_pb2 import ERROR_CODE_UNKNOWN_TOPIC_OR_PARTITION
from tidegauge.v1.metadata_pb2 import MetadataResponse, PartitionMetadata, ReplicaDescription, TopicMetadata
from tidegauge_client.metadata import ClusterInfo, from_response
from tidegauge_lab.observation import Observation, kafka_brokers, metadata_in, newest_states

AT = TopicPartition("orders", 0)


def response(
    leader: int | None, leader_epoch: int, partition_epoch: int = 0, *, controller_epoch: int = 1, topic_id: str = "A"
) -> ClusterInfo:
    state = PartitionMetadata(partition=0, leader_id=leader, leader_epoch=leader_epoch, partition_epoch=partition_epoch)
    topic = TopicMetadata(name="orders", topic_id=topic_id, partitions=[state])
    return from_response(MetadataResponse(controller_epoch=controller_epoch, topics=[topic]))


def leader_of(*views: ClusterInfo) -> int | None:
    found, reverse = (newest_states(dict(enumerate(some))) for some in (views, reversed(views)))
    assert found == reverse, "whatever the order of the views"
    return found[AT].leader_id


def test_the_newest_state_of_a_partition_counts() -> None:
    assert leader_of(response(0, 3), response(1, 4), response(2, 2, 9)) == 1
    assert leader_of(response(0, 3, 1), response(1, 3, 2)) == 1
    assert leader_of(response(0, 3), response(None, 4)) is None


def test_a_topic_created_again_begins_at_epoch_0_and_is_the_newer_one_all_the_same() -> None:
    """A broker partitioned from the controller still shows the deleted topic, in a high leader epoch (KIP-516)."""
    old = response(0, 17, 40, topic_id="A")
    assert leader_of(old, response(1, 0, topic_id="B", controller_epoch=2)) == 1
    assert leader_of(old, response(1, 0, topic_id="B"), response(1, 0, topic_id="B")) == 1


def test_the_controllers_own_response_says_which_topics_there_are() -> None:
    """Two of three brokers may be partitioned from it, and the topic may be deleted."""
    old = response(0, 17, 40, topic_id="A")
    new = replace(response(1, 0, topic_id="B"), controller_id=2)
    assert newest_states({0: old, 1: old, 2: new})[AT].leader_id == 1
    without = ClusterInfo(controller_epoch=1, controller_id=2)
    assert newest_states({0: old, 1: old, 2: without}) == {}
    unknown = TopicMetadata(name="orders", error=ERROR_CODE_UNKNOWN_TOPIC_OR_PARTITION)
    asked = from_response(MetadataResponse(controller_epoch=1, topics=[unknown]))
    assert newest_states({0: old, 1: asked, 2: asked}) == {}, "most know no such topic"


def test_the_apache_kafka_brokers_are_those_of_the_newest_view() -> None:
    """Rule 1; a view without one is no reason to show one that has left."""
    old = MetadataResponse(controller_epoch=1, controller_id=0)
    old.brokers_without_listener.add(broker_id=3, host="h", port=9094)
    new = MetadataResponse(controller_epoch=2, controller_id=0)
    new.brokers_without_listener.add(broker_id=4, host="h", port=9095)
    views = {0: from_response(old), 1: from_response(new)}
    assert kafka_brokers(views) == {4: "h:9095"}
    assert kafka_brokers({}) == {}


def test_a_broker_that_did_not_respond_says_nothing() -> None:
    silent = Observation()
    assert (silent.held, silent.replica(AT)) == ({}, None)
    said = Observation(
        response(1, 0), [ReplicaDescription(topic="orders", partition=1), ReplicaDescription(topic="orders")]
    )
    assert said.replica(AT) == ReplicaDescription(topic="orders")
    assert list(metadata_in({0: silent, 1: said})) == [1]
