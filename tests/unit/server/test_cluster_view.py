"""Metadata as one listener's clients see it (ZkMetadataCache.getPartitionMetadata)."""

from __future__ import annotations

from tidegauge.cluster_metadata import PartitionState
from tidegauge.control import NO_LEADER, Endpoint
from tidegauge.errors import ErrorCode
from tidegauge.listeners import Listener
from tidegauge.metadata_update import ReportedPartition
from tidegauge.partition import TopicPartition
from tidegauge_broker.server.service.cluster_view import Unreachable, endpoints_through, partition_view

INSIDE, OUTSIDE = Listener("INSIDE", "10.0.0.1", 9092), Listener("OUTSIDE", "example.org", 9093)


def entry(leader: int, offline: tuple[int, ...] = ()) -> ReportedPartition:
    state = PartitionState(
        topic_partition=TopicPartition("t", 0),
        topic_id="id",
        controller_epoch=1,
        leader=leader,
        leader_epoch=4,
        isr=(1, 2),
        partition_epoch=7,
        replicas=(3, 1, 2),
    )
    return ReportedPartition(state, offline_replicas=offline)


def test_a_client_is_given_the_addresses_of_its_listener_and_the_brokers_that_have_it() -> None:
    both = Endpoint(1, "10.0.0.1", 9092, "rack", (INSIDE, OUTSIDE))
    inside_only = Endpoint(2, "10.0.0.2", 9092, None, (INSIDE,))
    assert endpoints_through("OUTSIDE", [both, inside_only]) == [Endpoint(1, "example.org", 9093, "rack")]
    assert [one.broker_id for one in endpoints_through("INSIDE", [both, inside_only])] == [1, 2]


def test_a_leader_that_cannot_be_reached_is_not_named() -> None:
    for leader in (3, NO_LEADER):
        view = partition_view(entry(leader), {1, 2})
        assert (view.error, view.leader, view.leader_epoch) == (ErrorCode.LEADER_NOT_AVAILABLE, None, 4)
    view = partition_view(entry(1), {1, 2})
    assert (view.error, view.leader, list(view.isr)) == (ErrorCode.NONE, 1, [1, 2])


def test_offline_replicas_are_those_of_dead_brokers_and_of_failed_directories_in_order() -> None:
    assert partition_view(entry(1, offline=(2,)), {1, 2}).offline_replicas == [2, 3]
    assert partition_view(entry(1), {1, 2, 3}).offline_replicas == []


def test_over_grpc_a_leader_without_the_listener_is_named_with_its_error() -> None:
    """A client of gRPC must not take an Apache Kafka broker for dead: KIP-226's error, and the leader beside it."""
    view = partition_view(entry(1), {2}, {1, 2}, Unreachable.ALIVE)
    assert (view.error, view.leader, view.offline_replicas) == (ErrorCode.LISTENER_NOT_FOUND, 1, [3])
    hidden = partition_view(entry(1), {2}, {1, 2}, Unreachable.ERROR)
    assert (hidden.error, hidden.leader, hidden.offline_replicas) == (ErrorCode.LISTENER_NOT_FOUND, None, [1, 3])
    old = partition_view(entry(1), {2}, {1, 2}, Unreachable.DEAD)
    assert (old.error, old.leader) == (ErrorCode.LEADER_NOT_AVAILABLE, None)
    dead = partition_view(entry(3), {2}, {1, 2}, Unreachable.ALIVE)
    assert (dead.error, dead.leader) == (ErrorCode.LEADER_NOT_AVAILABLE, None)
