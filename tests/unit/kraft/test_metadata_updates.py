"""The changes of a broker's view of its cluster between two images (KRaftMetadataCache)."""

from __future__ import annotations

from dataclasses import replace

from tidegauge.partition import TopicPartition
from tidegauge_broker.server.cluster.kraft.metadata_updates import (
    changed_partitions,
    endpoint_of,
    leaving_brokers,
    live_brokers,
)
from tidegauge_controller.metadata.image import (
    EMPTY,
    MetadataImage,
    NodeEndpoint,
    PartitionRegistration,
    RegisteredBroker,
    TopicImage,
)
from tidegauge_controller.metadata.sorted_map import SortedMap

ID, OTHER_ID = "AAAAAAAAAAAAAAAAAAAAZA", "AAAAAAAAAAAAAAAAAAAAZQ"
DIRECTORY = "BBBBBBBBBBBBBBBBBBBBBA"
P0 = PartitionRegistration((1, 2), (DIRECTORY, DIRECTORY), (1, 2), 1, 3, 4)
AT = TopicPartition("t", 0)


def broker(broker_id: int, **changes: object) -> RegisteredBroker:
    """A broker that is alive, with two listeners."""
    endpoints = (NodeEndpoint("PLAINTEXT", "h", 9092, 0), NodeEndpoint("GRPC", "g", 19092, 0))
    one = RegisteredBroker(broker_id, 7, "i", endpoints, {}, fenced=False, log_dirs=(DIRECTORY,))
    return replace(one, **changes)  # type: ignore[arg-type] # of its fields


def image(*brokers: RegisteredBroker, topics: dict[str, TopicImage] | None = None) -> MetadataImage:
    """An image of these brokers and topics."""
    made = SortedMap[int, RegisteredBroker]().updated({one.broker_id: one for one in brokers})
    return replace(EMPTY, brokers=made, topics=SortedMap[str, TopicImage]().updated(topics or {}))


def topic(registration: PartitionRegistration = P0, topic_id: str = ID) -> dict[str, TopicImage]:
    """A topic of one partition."""
    partitions = SortedMap[int, PartitionRegistration]().updated({0: registration})
    return {topic_id: TopicImage("t", topic_id, partitions)}


def test_a_fenced_broker_is_not_alive_and_one_that_leaves_is() -> None:
    """KRaftMetadataCache.getAliveBrokers: not fenced; in controlled shutdown it is still there."""
    found = image(broker(1), broker(2, fenced=True), broker(3, in_controlled_shutdown=True))
    assert [one.broker_id for one in live_brokers(found, "PLAINTEXT")] == [1, 3]
    assert leaving_brokers(found) == {3}


def test_a_broker_is_reached_at_the_listener_of_brokers() -> None:
    assert endpoint_of(broker(1), "GRPC").address == "g:19092"
    assert endpoint_of(broker(1), "NONE").address == "h:9092", "without that listener at its first one"
    assert endpoint_of(broker(1), "PLAINTEXT").protocols == {"PLAINTEXT": "PLAINTEXT", "GRPC": "PLAINTEXT"}


def test_only_what_changed_is_reported() -> None:
    old = image(broker(1), broker(2), topics=topic())
    assert list(changed_partitions(old, old)) == []
    new = image(broker(1), broker(2), topics=topic(replace(P0, isr=(1,), partition_epoch=5)))
    [one] = changed_partitions(old, new)
    assert (one.state.topic_partition, one.state.isr, one.state.partition_epoch) == (AT, (1,), 5)
    assert not one.deleted


def test_a_deleted_topic_is_reported_before_its_successor() -> None:
    """A topic that was created again has another id: the old partitions go first."""
    old, new = image(topics=topic()), image(topics=topic(topic_id=OTHER_ID))
    assert [(one.deleted, one.state.topic_id) for one in changed_partitions(old, new)] == [
        (True, ID),
        (False, OTHER_ID),
    ]


def test_a_directory_that_fails_makes_its_replicas_offline() -> None:
    """KRaftMetadataCache.getOfflineReplicas: the directory is not among the online ones of the registration."""
    old = image(broker(1), broker(2), topics=topic())
    new = image(broker(1), broker(2, log_dirs=("CCCCCCCCCCCCCCCCCCCCCA",)), topics=topic())
    [one] = changed_partitions(old, new)
    assert one.offline_replicas == (2,)
