"""The metadata cache shows what the controller sent last (Kafka's ZkMetadataCache)."""

from __future__ import annotations

import asyncio

import pytest

from tidegauge.cluster_metadata import PartitionState
from tidegauge.control import ControlHeader
from tidegauge.listeners import Listener
from tidegauge.metadata_update import Endpoint, MetadataUpdate, ReportedPartition
from tidegauge.partition import TopicPartition
from tidegauge_broker.replica.messages import LeaderHint
from tidegauge_broker.server.metadata import metadata_cache
from tidegauge_broker.server.metadata.metadata_cache import MetadataCache

AT = TopicPartition("orders", 0)
SENDER = ControlHeader(0, 1, 10)


def reported(live, *partitions, sender: ControlHeader = SENDER) -> MetadataUpdate:
    endpoints = [Endpoint(broker, "127.0.0.1", 9000 + broker) for broker in live]
    return MetadataUpdate(sender.controller_id, sender.controller_epoch, endpoints, list(partitions))


def led_by(leader: int, epoch: int, *, deleted: bool = False) -> ReportedPartition:
    state = PartitionState(AT, "id", 1, leader, epoch, (1, 2), 3, (1, 2))
    return ReportedPartition(state, deleted=deleted)


async def test_live_brokers_are_replaced_whole_and_partitions_one_by_one():
    cache = MetadataCache()
    cache.update(reported([0, 1], led_by(1, 4)))
    cache.update(reported([0]))
    assert cache.live_brokers() == {0}
    assert cache.leader_hint(AT) == LeaderHint(1, 4)
    assert cache.leader_of(AT) is None, "a leader that is not alive is none"
    assert cache.knows(AT)
    assert not cache.knows(TopicPartition("orders", 1))


async def test_a_controller_is_named_with_its_own_epoch_or_not_at_all():
    """A view with one controller's id and another one's epoch misled whoever compares the epochs of several views."""
    cache = MetadataCache()
    assert cache.controller(1) == (None, 0), "nothing has come from it yet"
    cache.update(reported([0, 1], sender=ControlHeader(1, 4, 1)))
    assert cache.controller(1) == (1, 4)
    assert cache.controller(0) == (None, 4), "ZooKeeper was quicker than the new controller's first request"
    cache.update(reported([0, 1], sender=ControlHeader(0, 5, 1)))
    assert cache.controller(1) == (None, 5), "the new controller's first request was quicker than ZooKeeper"
    assert cache.controller(0) == (0, 5)
    assert cache.controller(None) == (None, 5)
    cache.update(reported([1], sender=ControlHeader(0, 5, 1)))
    assert cache.controller(0) == (None, 5), "it is not alive"


async def test_a_deleted_topic_is_forgotten_with_its_last_partition():
    cache = MetadataCache()
    cache.update(reported([1], led_by(1, 4)))
    assert cache.update(reported([1], led_by(1, 4, deleted=True))) == {"orders"}
    assert not cache.knows_topic("orders")
    assert list(cache.topics()) == []


async def test_a_topic_counts_as_deleted_until_it_is_created_again():
    """Also where its deletion had begun before this broker heard of the topic."""
    cache = MetadataCache()
    assert not cache.was_deleted("orders")
    cache.update(reported([1], led_by(1, 4, deleted=True)))
    cache.update(reported([1]))
    assert cache.was_deleted("orders")
    cache.update(reported([1], led_by(1, 0)))
    assert not cache.was_deleted("orders")


async def test_of_very_many_deleted_topics_the_newest_are_remembered(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(metadata_cache, "_MAX_DELETED_TOPICS", 1)
    cache = MetadataCache()
    states = [PartitionState(TopicPartition(topic, 0), "id", 1, 1, 0, (1,), 0, (1,)) for topic in ("old", "new")]
    cache.update(reported([1], *(ReportedPartition(state, deleted=True) for state in states)))
    assert [cache.was_deleted(topic) for topic in ("old", "new")] == [False, True]


async def test_whoever_waits_for_a_change_is_woken_by_it():
    cache = MetadataCache()
    waiting = asyncio.ensure_future(cache.wait_changed(60_000))
    await asyncio.sleep(0)
    cache.update(reported([1]))
    await asyncio.wait_for(waiting, 5)


async def test_followers_and_the_control_plane_may_have_listeners_of_their_own():
    """An endpoint's own address is the control plane's; ``address`` is the followers', ``grpc_address`` gRPC's."""
    listeners = (Listener("PLAINTEXT", "h", 1), Listener("GRPC", "h", 2))
    apart, over_kafka, over_grpc = MetadataCache("", "PLAINTEXT"), MetadataCache("GRPC"), MetadataCache()
    for cache in (apart, over_kafka, over_grpc):
        own = listeners[0] if cache is over_kafka else listeners[1]
        endpoint = Endpoint(1, own.host, own.port, None, listeners)
        cache.update(MetadataUpdate(0, 1, [endpoint], []))
    found = [
        (cache.endpoint(1).address, cache.address(1), cache.grpc_address(1)) for cache in (apart, over_kafka, over_grpc)
    ]
    assert found == [("h:2", "h:1", "h:2"), ("h:1", "h:1", "h:2"), ("h:2", "h:2", "h:2")]
    assert (apart.address(2), apart.grpc_address(2)) == (None, None)
