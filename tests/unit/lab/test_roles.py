"""Roles name the broker that holds them now, by the newest metadata (kill, stop, ... ``--leader-of T-P``)."""

from __future__ import annotations

import click
import pytest
from click.testing import CliRunner

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.groups import partition_of
from tidegauge.partition import TopicPartition
from tidegauge.v1 import metadata_pb2
from tidegauge_client.metadata import ClusterInfo, from_response
from tidegauge_client.quorum_admin import QuorumReplica, QuorumView
from tidegauge_lab.cli import faults
from tidegauge_lab.local.role_holders import (
    PartitionView,
    coordinator_of,
    follower_of,
    in_quorum,
    leader_of,
    partition_view,
)
from tidegauge_lab.local.roles import (
    GROUP,
    METADATA,
    SHARE,
    SHARE_PARTITION,
    TRANSACTION,
    Coordinated,
    Role,
    RoleKind,
    is_of_quorum,
    read_coordinated,
    require_controller,
)

PARTITION = TopicPartition("orders", 1)


def response(leader: int | None, leader_epoch: int, partition_epoch: int = 0) -> ClusterInfo:
    state = metadata_pb2.PartitionMetadata(
        partition=1, leader_epoch=leader_epoch, partition_epoch=partition_epoch, replicas=[2, 0, 1]
    )
    if leader is not None:
        state.leader_id = leader
    topic = metadata_pb2.TopicMetadata(name="orders", partitions=[metadata_pb2.PartitionMetadata(partition=0), state])
    return from_response(metadata_pb2.MetadataResponse(topics=[topic]))


def test_the_response_with_the_highest_leader_epoch_counts() -> None:
    responses = [response(2, 4), response(0, 5), response(2, 4)]
    assert partition_view(dict(enumerate(responses)), PARTITION) == PartitionView(0, (2, 0, 1))
    assert partition_view(dict(enumerate(reversed(responses))), PARTITION).leader == 0


def test_within_an_epoch_the_newer_state_counts() -> None:
    assert partition_view({0: response(0, 5, 7), 1: response(None, 5, 8)}, PARTITION).leader is None


def test_an_unknown_topic_or_partition_is_reported() -> None:
    for wanted in (TopicPartition("orders", 7), TopicPartition("nothing", 1)):
        with pytest.raises(TidegaugeError) as caught:
            partition_view({0: response(0, 1)}, wanted)
        assert caught.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    with pytest.raises(TidegaugeError, match="no broker responds"):
        partition_view({}, PARTITION)


def test_without_a_leader_nothing_is_done() -> None:
    assert leader_of(PartitionView(2, (2, 0)), PARTITION) == 2
    with pytest.raises(
        TidegaugeError, match=r"orders-1 has no leader.*`tidegauge explain orders-1` says why; nothing was done"
    ):
        leader_of(PartitionView(None, (2, 0)), PARTITION)
    with pytest.raises(TidegaugeError, match="no active controller"):
        require_controller(None)
    assert require_controller(0) == 0


def test_the_follower_is_the_first_in_assignment_order_that_can_be_changed() -> None:
    view = PartitionView(0, (2, 0, 1))
    assert follower_of(view, PARTITION, lambda _: True) == 2
    assert follower_of(view, PARTITION, lambda broker_id: broker_id == 1) == 1
    assert follower_of(view, PARTITION, lambda _: False) == 2
    with pytest.raises(TidegaugeError, match="no follower"):
        follower_of(PartitionView(0, (0,)), PARTITION, lambda _: True)


def test_roles_are_shown_in_words() -> None:
    assert str(Role(RoleKind.LEADER, PARTITION)) == "leader of orders-1"
    assert str(Role(RoleKind.CONTROLLER)) == "the controller"


@pytest.mark.parametrize("verb", [faults.kill, faults.stop, faults.pause, faults.resume, faults.start])
@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["one"],
        ["-1"],
        ["1", "--controller"],
        ["--leader-of", "orders-0", "--controller"],
        ["--leader-of", "orders"],
    ],
    ids=["no target", "no number", "negative", "id and role", "two roles", "no partition"],
)
def test_wrong_usage_ends_with_2_before_anything_is_looked_at(verb: click.Command, arguments: list[str]) -> None:
    result = CliRunner().invoke(verb, ["--dir", "/nonexistent", *arguments])
    assert result.exit_code == 2, result.output


def test_without_a_cluster_a_fault_fails_with_1() -> None:
    result = CliRunner().invoke(faults.kill, ["1", "--dir", "/nonexistent", "-o", "json"])
    assert result.exit_code == 1
    assert result.stdout == ""
    assert '"BROKER_NOT_AVAILABLE"' in result.stderr
    assert "there is no cluster in /nonexistent" in result.stderr


def led_by(*leaders: int | None, topic_name: str = "__consumer_offsets") -> ClusterInfo:
    """Metadata in which these brokers lead the partitions of an internal topic."""
    states = []
    for index, leader in enumerate(leaders):
        state = metadata_pb2.PartitionMetadata(partition=index, leader_epoch=1, replicas=[0, 1, 2])
        if leader is not None:
            state.leader_id = leader
        states.append(state)
    topic = metadata_pb2.TopicMetadata(name=topic_name, partitions=states)
    return from_response(metadata_pb2.MetadataResponse(topics=[topic]))


def test_the_coordinator_of_a_group_leads_the_partition_of_its_hash() -> None:
    """Java's hash of "g" is 103: partition 3 of 10 (GroupMetadataManager.partitionFor)."""
    leaders: list[int | None] = [0] * 10
    leaders[3] = 2
    group = Coordinated(GROUP, "g")
    assert coordinator_of({0: led_by(*leaders)}, group) == 2
    leaders[3] = None
    with pytest.raises(TidegaugeError, match="__consumer_offsets-3 has no leader"):
        coordinator_of({0: led_by(*leaders)}, group)


def test_the_coordinator_of_a_transactional_id_leads_the_partition_of_its_hash() -> None:
    """The same hash, of the transactional id, in __transaction_state (TransactionStateManager.partitionFor)."""
    leaders: list[int | None] = [0] * 10
    leaders[3] = 2
    of_transactions = led_by(*leaders, topic_name="__transaction_state")
    both = ClusterInfo(topics={**led_by(*[1] * 10).topics, **of_transactions.topics})
    assert coordinator_of({0: both}, Coordinated(TRANSACTION, "g")) == 2
    assert coordinator_of({0: both}, Coordinated(GROUP, "g")) == 1
    with pytest.raises(TidegaugeError, match="no __transaction_state yet, which the first transactional producer"):
        coordinator_of({0: led_by(0)}, Coordinated(TRANSACTION, "g"))


def test_a_cluster_that_had_no_group_yet_has_no_coordinator() -> None:
    with pytest.raises(TidegaugeError, match="no broker coordinates group g") as caught:
        coordinator_of({0: response(0, 1)}, Coordinated(GROUP, "g"))
    assert caught.value.code is ErrorCode.COORDINATOR_NOT_AVAILABLE
    with pytest.raises(TidegaugeError, match="no broker responds"):
        coordinator_of({}, Coordinated(GROUP, "g"))


def test_share_names_the_groups_coordinator_and_with_a_partition_the_share_coordinator() -> None:
    """SharePartitionKey.asCoordinatorKey: Java's hash of "q:AAAAAAAAAAAAAAAAAAAAAQ:0" in __share_group_state."""
    of_group, of_partition = read_coordinated("share:g"), read_coordinated("share:q/orders-0")
    assert (of_group, of_partition) == ((SHARE, "g", None), (SHARE_PARTITION, "q", TopicPartition("orders", 0)))
    assert read_coordinated("share:a/b") == (SHARE, "a/b", None), "no partition: the group's id has a slash"
    assert str(of_partition) == "share:q/orders-0"
    role = Role(RoleKind.COORDINATOR, of=of_partition)
    assert role.topics == ["__share_group_state", "orders"]
    key = "q:AAAAAAAAAAAAAAAAAAAAAQ:0"
    leaders: list[int | None] = [1] * 10
    leaders[partition_of(key, 10)] = 2
    states = led_by(*leaders, topic_name="__share_group_state").topics
    orders = metadata_pb2.TopicMetadata(name="orders", topic_id="AAAAAAAAAAAAAAAAAAAAAQ")
    topics = from_response(metadata_pb2.MetadataResponse(topics=[orders])).topics
    assert coordinator_of({0: ClusterInfo(topics={**states, **topics})}, of_partition) == 2
    assert coordinator_of({0: led_by(*[0] * 10)}, of_group) == 0
    with pytest.raises(TidegaugeError, match="no broker knows topic orders"):
        coordinator_of({0: ClusterInfo(topics=states)}, of_partition)


@pytest.mark.parametrize("text", ["g", "group:", "transaction:", "transactional:t", "share:", ""])
def test_a_target_that_names_nothing_coordinated_is_wrong_usage(text: str) -> None:
    assert read_coordinated("group:a:b") == (GROUP, "a:b", None)
    assert read_coordinated("transaction:a:b") == (TRANSACTION, "a:b", None)
    with pytest.raises(ValueError, match="names no group and no transactional id"):
        read_coordinated(text)
    assert CliRunner().invoke(faults.kill, ["--coordinator-of", text]).exit_code == 2


def quorum(leader: int, *voters: int) -> QuorumView:
    replicas = tuple(QuorumReplica(one, bytes(16), 9, 0, 0) for one in voters)
    return QuorumView("c", leader, 4, 9, replicas, (), {})


def test_in_kraft_mode_the_quorum_says_who_has_the_roles_of_its_log() -> None:
    """A broker's metadata name any broker as the controller (KIP-590), so they are not asked."""
    view = quorum(3001, 3002, 3000, 3001)
    leader, follower = Role(RoleKind.LEADER, METADATA), Role(RoleKind.FOLLOWER, METADATA)
    for role in (leader, follower, Role(RoleKind.CONTROLLER)):
        assert is_of_quorum(role)
    assert not is_of_quorum(Role(RoleKind.LEADER, PARTITION))
    assert in_quorum(Role(RoleKind.CONTROLLER), view, lambda _: True) == in_quorum(leader, view, lambda _: True) == 3001
    assert in_quorum(follower, view, lambda _: True) == 3000
    assert in_quorum(follower, view, lambda one: one == 3002) == 3002
    with pytest.raises(TidegaugeError, match="no active controller"):
        in_quorum(follower, None, lambda _: True)
    with pytest.raises(TidegaugeError, match="its only replica leads"):
        in_quorum(follower, quorum(3000, 3000), lambda _: True)
    assert str(follower) == "follower of the quorum"
