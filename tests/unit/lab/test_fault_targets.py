"""Which broker a fault inside a broker is for (cli/fault_targets.py)."""

from __future__ import annotations

from dataclasses import replace

import click
import pytest

from tidegauge.errors import TidegaugeError
from tidegauge.groups import OFFSETS_TOPIC, partition_of
from tidegauge.partition import TopicPartition
from tidegauge.v1 import metadata_pb2
from tidegauge_client.metadata import ClusterInfo, from_response
from tidegauge_lab.cli.fault_targets import broker_with, taken_target
from tidegauge_lab.local.roles import GROUP, TRANSACTION, Coordinated, Role, RoleKind

AT = TopicPartition("orders", 0)
OF_GROUP = Coordinated(GROUP, "g")
OPTIONS = {
    "target_id": None,
    "target_leader_of": None,
    "target_follower_of": None,
    "target_coordinator_of": None,
    "target_controller": False,
}


def partition(number: int, leader: int) -> metadata_pb2.PartitionMetadata:
    return metadata_pb2.PartitionMetadata(partition=number, leader_id=leader, leader_epoch=1, replicas=[0, 1, 2])


def said(controller: int, epoch: int) -> ClusterInfo:
    """Return a broker's view: 1 leads orders-0, 2 the group's partition."""
    mine = partition_of("g", 3)
    offsets = [partition(number, 2 if number == mine else 0) for number in range(3)]
    topics = [
        metadata_pb2.TopicMetadata(name="orders", partitions=[partition(0, 1)]),
        metadata_pb2.TopicMetadata(name=OFFSETS_TOPIC, partitions=offsets),
    ]
    return from_response(metadata_pb2.MetadataResponse(controller_id=controller, controller_epoch=epoch, topics=topics))


def test_a_broker_is_named_in_exactly_one_way() -> None:
    assert taken_target({**OPTIONS, "target_id": 2}) == 2
    assert taken_target({**OPTIONS, "target_coordinator_of": OF_GROUP}) == Role(RoleKind.COORDINATOR, of=OF_GROUP)
    assert taken_target({**OPTIONS, "target_leader_of": AT}) == Role(RoleKind.LEADER, AT)
    for wrong in ({}, {"target_id": 0, "target_controller": True}):
        with pytest.raises(click.UsageError, match="Name one broker"):
            taken_target({**OPTIONS, **wrong})


def test_a_coordinator_is_looked_up_in_its_internal_topic() -> None:
    assert Role(RoleKind.COORDINATOR, of=OF_GROUP).topics == [OFFSETS_TOPIC]
    assert Role(RoleKind.COORDINATOR, of=Coordinated(TRANSACTION, "t")).topics == ["__transaction_state"]
    assert Role(RoleKind.LEADER, AT).topics == ["orders"]
    assert Role(RoleKind.CONTROLLER).topics == []


def test_a_role_is_that_of_the_newest_metadata() -> None:
    responses = {0: said(0, 3), 1: said(2, 4)}
    assert broker_with(Role(RoleKind.CONTROLLER), responses) == 2
    responses[2] = replace(said(2, 4), controller_id=None)
    assert broker_with(Role(RoleKind.CONTROLLER), responses) == 2, "a broker without a ZooKeeper session names none"
    assert broker_with(Role(RoleKind.LEADER, AT), responses) == 1
    assert broker_with(Role(RoleKind.COORDINATOR, of=OF_GROUP), responses) == 2
    for none in ({}, {0: said(0, 3), 1: replace(said(2, 4), controller_id=None)}):
        with pytest.raises(TidegaugeError, match="no active controller"):
            broker_with(Role(RoleKind.CONTROLLER), none)
