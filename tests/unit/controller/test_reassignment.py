"""Reassignment phase by phase: znodes, epochs, requests, responses (KIP-455)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from memory_zookeeper import MemoryZooKeeper, Term

from tidegauge.cluster_metadata import Assignment
from tidegauge.control import (
    AlterPartitionRequest,
    IsrProposal,
    LeaderAndIsrRequest,
    PartitionsResponse,
    StopReplicaRequest,
    UpdateMetadataRequest,
)
from tidegauge.errors import ErrorCode
from tidegauge.partition import TopicPartition
from tidegauge.znodes import (
    REASSIGN_PARTITIONS,
    PartitionStateNode,
    TopicNode,
    delete_topic_path,
    encode_reassignments,
    topic_path,
)
from tidegauge_controller.zookeeper.decisions.alter_partition import process_alter_partition
from tidegauge_controller.zookeeper.decisions.broker_events import process_broker_change
from tidegauge_controller.zookeeper.decisions.context import Replica, ReplicaStatus
from tidegauge_controller.zookeeper.decisions.deletion import process_delete_markers
from tidegauge_controller.zookeeper.decisions.reassignment import (
    alter_reassignments,
    complete_reassignments,
    list_reassignments,
    process_legacy_reassignments,
    process_replicas_deleted,
)
from tidegauge_controller.zookeeper.decisions.topic_events import process_topic_change

AT = TopicPartition("orders", 0)
NEXT = TopicPartition("orders", 1)
TOPIC = topic_path("orders")
IN_PLACE = ErrorCode.NONE, ""


def term_of(replicas: tuple[int, ...] = (1, 2, 3), *, brokers: Sequence[int] = (1, 2, 3, 4, 5, 6)) -> Term:
    """A topic with two partitions on these replicas; nothing sent yet."""
    zookeeper = MemoryZooKeeper()
    for broker_id in brokers:
        zookeeper.register_broker(broker_id)
    term = Term(zookeeper).start()
    zookeeper.add_topic(AT.topic, {0: replicas, 1: replicas})
    term.run(process_topic_change(term.context))
    forget(term)
    return term


def forget(term: Term) -> None:
    term.take_sent()
    term.writes.clear()
    term.notes.clear()


def alter(term: Term, target: Sequence[int] | None, at: TopicPartition = AT) -> tuple[ErrorCode, str]:
    response: tuple[ErrorCode, str] = term.run(alter_reassignments(term.context, {at: target}))[at]
    return response


def node(term: Term) -> TopicNode:
    return TopicNode.decode("orders", term.zookeeper.nodes[TOPIC].data)


def entry(term: Term, partition: int = 0) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    """RS, AR, RR as ZooKeeper has them."""
    found = node(term)
    return (
        tuple(found.assignment[partition]),
        tuple(found.adding_replicas.get(partition, ())),
        tuple(found.removing_replicas.get(partition, ())),
    )


def grow_isr(term: Term, isr: tuple[int, ...], at: TopicPartition = AT) -> None:
    """The leader proposes; then the controller looks whether that completes a reassignment."""
    state = term.context.leadership[at]
    topic_id = term.context.topic_ids["orders"]
    proposal = IsrProposal(at, topic_id, state.leader_epoch, isr, state.partition_epoch)
    request = AlterPartitionRequest(state.leader, term.context.live[state.leader].epoch, [proposal])
    assert term.run(process_alter_partition(term.context, request)).partitions[0].error is ErrorCode.NONE
    forget(term)
    term.run(complete_reassignments(term.context))


def respond_to_deletions(term: Term) -> None:
    """All brokers that were asked to delete a replica of the partition respond that they did."""
    for broker_id, message in term.take_sent():
        if isinstance(message, StopReplicaRequest) and message.partitions[0].delete:
            reported = [item.topic_partition for item in message.partitions]
            term.run(process_replicas_deleted(term.context, broker_id, reported, PartitionsResponse()))


def requests(term: Term, kind: type) -> list[tuple[int, Any]]:
    return [(broker_id, message) for broker_id, message in term.sent if isinstance(message, kind)]


def states_of(term: Term, *broker_ids: int) -> list[ReplicaStatus | None]:
    return [term.context.replica_status.get(Replica(AT, broker_id)) for broker_id in broker_ids]


# U1 to A2


def test_it_begins_with_the_topic_znode_the_epoch_and_new_replicas():
    """U1, U2, A1, A2: RS is TRS, then the removed replicas. The leader epoch rises by one. isNew: only added ones."""
    term = term_of()
    assert alter(term, (4, 5, 3)) == IN_PLACE
    assert entry(term) == ((4, 5, 3, 1, 2), (4, 5), (1, 2))
    assert entry(term, 1) == ((1, 2, 3), (), ())
    assert term.zookeeper.state(AT) == PartitionStateNode(1, 1, (1, 2, 3), 1)
    reported = {
        i: m.partitions[0] for i, m in requests(term, LeaderAndIsrRequest) if m.partitions[0].state.leader_epoch
    }
    assert {i: item.is_new for i, item in reported.items()} == {1: False, 2: False, 3: False, 4: True, 5: True}
    state = reported[1].state
    assert (state.replicas, state.adding_replicas, state.removing_replicas) == ((4, 5, 3, 1, 2), (4, 5), (1, 2))
    assert states_of(term, 4, 5) == [ReplicaStatus.NEW, ReplicaStatus.NEW]
    assert not requests(term, StopReplicaRequest)
    assert list_reassignments(term.context) == {AT: Assignment((4, 5, 3, 1, 2), (4, 5), (1, 2))}


def test_the_topic_znode_is_written_before_anything_else():
    term = term_of()
    alter(term, (4,))
    assert [write.path for write in term.writes][:2] == [TOPIC, f"{TOPIC}/partitions/0/state"]


def test_it_waits_while_a_target_is_missing_in_the_isr():
    term = term_of()
    alter(term, (4, 5, 3))
    grow_isr(term, (1, 2, 3, 4))
    assert term.writes == []
    assert term.sent == []


def test_partitions_that_an_admin_adds_meanwhile_are_kept():
    """Kafka writes the complete znode from memory; here other entries stay as they are (rule 3)."""
    term = term_of()

    def add_a_partition() -> None:
        found = node(term)
        term.zookeeper.set(TOPIC, TopicNode({**found.assignment, 2: (1, 2, 3)}, found.topic_id).encode())

    term.before_write = add_a_partition
    assert alter(term, (4, 5, 3)) == IN_PLACE
    assert sorted(node(term).assignment) == [0, 1, 2]
    assert entry(term) == ((4, 5, 3, 1, 2), (4, 5), (1, 2))


# B1 to B8


def test_it_ends_when_the_isr_holds_all_targets_though_it_holds_more():
    """TRS is a subset of the ISR, which need not equal it. The leader 1 leaves: the reassign election chooses 4.

    Leader epochs: creation 0, A1 1, B3 2, B4 one for each of 1 and 2.
    """
    term = term_of()
    alter(term, (4, 5, 3))
    grow_isr(term, (1, 2, 3, 4, 5))
    assert term.zookeeper.state(AT) == PartitionStateNode(4, 4, (3, 4, 5), 1)
    assert [note.fields["strategy"] for note in term.notes if note.kind == "election"] == [
        "reassign",
        "remove-from-isr",
        "remove-from-isr",
    ]
    assert term.context.assignment(AT) == Assignment((4, 5, 3))
    assert states_of(term, 1, 2, 3, 4, 5) == [None, None, *[ReplicaStatus.ONLINE] * 3]
    stops = [(i, m.partitions[0].delete) for i, m in requests(term, StopReplicaRequest)]
    assert sorted(stops) == [(1, False), (1, True), (2, False), (2, True)]
    assert stops.index((1, False)) < stops.index((1, True))


def test_the_last_znode_waits_for_the_deletions():
    """B6 after the responses of all live brokers that lose a replica: a controller's death leaves nothing on disks."""
    term = term_of()
    alter(term, (4, 5, 3))
    grow_isr(term, (1, 2, 3, 4, 5))
    assert entry(term) == ((4, 5, 3, 1, 2), (4, 5), (1, 2))
    assert list_reassignments(term.context) == {AT: Assignment((4, 5, 3, 1, 2), (), (1, 2))}
    term.run(process_replicas_deleted(term.context, 1, [AT], PartitionsResponse()))
    assert entry(term)[2] == (1, 2)
    term.take_sent()
    term.run(process_replicas_deleted(term.context, 2, [AT], PartitionsResponse()))
    assert entry(term) == ((4, 5, 3), (), ())
    assert {i for i, _ in requests(term, UpdateMetadataRequest)} == {1, 2, 3, 4, 5, 6}
    assert list_reassignments(term.context) == {}
    assert term.context.reassigning == set()


def test_the_last_znode_does_not_wait_for_a_dead_broker():
    term = term_of()
    alter(term, (4, 5, 3))
    term.zookeeper.unregister_broker(2)
    term.run(process_broker_change(term.context))
    grow_isr(term, (1, 3, 4, 5))
    assert entry(term)[2] == (1, 2)
    respond_to_deletions(term)
    assert entry(term) == ((4, 5, 3), (), ())


def test_a_broker_that_dies_before_it_responds_is_not_waited_for():
    term = term_of()
    alter(term, (4, 5, 3))
    grow_isr(term, (1, 2, 3, 4, 5))
    response_deletions_of_one = PartitionsResponse()
    term.run(process_replicas_deleted(term.context, 1, [AT], response_deletions_of_one))
    term.zookeeper.unregister_broker(2)
    term.run(process_broker_change(term.context))
    assert entry(term) == ((4, 5, 3), (), ())


def test_a_leader_that_stays_gets_a_new_epoch_and_the_shorter_list():
    """B3: leader epoch + 1 and LeaderAndIsr with RS = TRS, the ISR still with those that go; then B4."""
    term = term_of()
    alter(term, (1, 4))
    grow_isr(term, (1, 2, 3, 4))
    first = requests(term, LeaderAndIsrRequest)[0][1].partitions[0].state
    assert (first.leader, first.leader_epoch, first.replicas) == (1, 2, (1, 4))
    assert first.isr == (1, 2, 3, 4)
    assert (first.adding_replicas, first.removing_replicas) == ((), ())
    assert term.zookeeper.state(AT) == PartitionStateNode(1, 4, (1, 4), 1)


@pytest.mark.parametrize(
    ("target", "isr_at_last"),
    [((1, 2, 3, 4), (1, 2, 3, 4)), ((1,), (1,)), ((2, 1, 3), (1, 2, 3)), ((1, 2, 3), (1, 2, 3))],
    ids=["grow", "shrink", "reorder", "same"],
)
def test_the_replication_factor_may_change(target: tuple[int, ...], isr_at_last: tuple[int, ...]):
    """More replicas, fewer, only another order: targets that are in the ISR already end at once."""
    term = term_of()
    assert alter(term, target) == IN_PLACE
    respond_to_deletions(term)
    if set(target) - {1, 2, 3}:
        assert list_reassignments(term.context)
        grow_isr(term, isr_at_last)
    assert entry(term) == (target, (), ())
    assert term.zookeeper.state(AT).isr == isr_at_last
    assert term.context.reassigning == set()


def test_a_dead_leader_among_the_targets_is_replaced():
    term = term_of()
    alter(term, (1, 4))
    grow_isr(term, (1, 2, 3))
    term.zookeeper.unregister_broker(1)
    term.run(process_broker_change(term.context))
    assert term.context.leadership[AT].leader == 2
    term.zookeeper.register_broker(1)
    term.run(process_broker_change(term.context))
    grow_isr(term, (2, 3, 4, 1))
    respond_to_deletions(term)
    assert entry(term) == ((1, 4), (), ())
    assert term.context.leadership[AT].leader == 1


# Replacing and cancelling


def test_a_new_target_replaces_the_old_one_and_deletes_who_is_not_needed():
    """U3: broker 4 was added by the first and is not in the second; ORS stays 1, 2, 3."""
    term = term_of()
    alter(term, (4, 5, 3))
    forget(term)
    assert alter(term, (5, 6, 3)) == IN_PLACE
    assert entry(term) == ((5, 6, 3, 1, 2), (5, 6), (1, 2))
    stops = [(i, m.partitions[0].delete) for i, m in requests(term, StopReplicaRequest)]
    assert stops == [(4, False), (4, True)]
    assert states_of(term, 4, 5, 6) == [None, ReplicaStatus.NEW, ReplicaStatus.NEW]


def test_to_cancel_brings_the_original_replicas_back():
    """Even where an added one leads by then: the reassign election among ORS."""
    term = term_of()
    alter(term, (4, 5, 3))
    grow_isr(term, (1, 2, 3, 4))
    assert alter(term, None) == IN_PLACE
    assert entry(term)[1:] == ((), ())
    assert sorted(entry(term)[0]) == [1, 2, 3]
    assert term.zookeeper.state(AT).isr == (1, 2, 3)
    assert {i for i, m in requests(term, StopReplicaRequest) if m.partitions[0].delete} == {4, 5}
    assert list_reassignments(term.context) == {}
    assert [note.fields["state"] for note in term.notes if note.kind == "reassignment"] == ["cancelled", "completed"]


def test_there_is_nothing_to_cancel():
    term = term_of()
    assert alter(term, None)[0] is ErrorCode.NO_REASSIGNMENT_IN_PROGRESS
    assert term.writes == []


def test_the_same_target_again_changes_no_znode_of_the_topic_but_the_epoch():
    term = term_of()
    alter(term, (4, 5, 3))
    version = term.zookeeper.nodes[TOPIC].version
    assert alter(term, (4, 5, 3)) == IN_PLACE
    assert term.zookeeper.nodes[TOPIC].version == version
    assert term.zookeeper.state(AT).leader_epoch == 2


# Rejections


@pytest.mark.parametrize(
    ("target", "words"),
    [
        ((), "Empty replica list specified in partition reassignment."),
        ((1, 1), "Duplicate replica ids in partition reassignment replica list: [1, 1]"),
        ((1, -2), "Invalid broker id in replica list: [1, -2]"),
        (
            (1, 9),
            "Replica assignment has brokers that are not alive. Replica list: [9], "
            "live broker list: [1, 2, 3, 4, 5, 6]",
        ),
    ],
)
def test_what_is_no_list_of_live_brokers_is_refused(target: tuple[int, ...], words: str):
    term = term_of()
    assert alter(term, target) == (ErrorCode.INVALID_REPLICA_ASSIGNMENT, words)
    assert term.writes == []
    assert term.sent == []


def test_only_new_replicas_must_live():
    """A dead original replica may stay in the target; the reassignment waits for it."""
    term = term_of()
    term.zookeeper.unregister_broker(3)
    term.run(process_broker_change(term.context))
    assert alter(term, (1, 3, 4)) == IN_PLACE
    assert list_reassignments(term.context)


@pytest.mark.parametrize("at", [TopicPartition("nothing", 0), TopicPartition("orders", 7)])
def test_an_unknown_partition(at: TopicPartition):
    term = term_of()
    assert alter(term, (1, 2), at) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "The partition does not exist.")
    assert alter(term, None, at)[0] is ErrorCode.NO_REASSIGNMENT_IN_PROGRESS


def test_one_partitions_refusal_is_no_others():
    term = term_of()
    response = term.run(alter_reassignments(term.context, {AT: (), NEXT: (4, 5, 6)}))
    assert response[AT][0] is ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert response[NEXT] == IN_PLACE
    assert list(list_reassignments(term.context, [AT, NEXT])) == [NEXT]


# Deletion of the topic


def test_a_topic_that_is_deleted_is_not_reassigned():
    term = term_of()
    term.zookeeper.create(delete_topic_path("orders"), None)
    term.run(process_delete_markers(term.context))
    assert alter(term, (4, 5, 6))[0] is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_deletion_waits_for_the_reassignment():
    term = term_of()
    alter(term, (4, 5, 3))
    alter(term, (4, 5, 3), NEXT)
    term.zookeeper.create(delete_topic_path("orders"), None)
    term.run(process_delete_markers(term.context))
    assert "orders" not in term.context.topics_deletion_started
    grow_isr(term, (1, 2, 3, 4, 5))
    respond_to_deletions(term)
    assert "orders" not in term.context.topics_deletion_started, "the other partition is not done"
    grow_isr(term, (1, 2, 3, 4, 5), NEXT)
    respond_to_deletions(term)
    assert "orders" in term.context.topics_deletion_started


# Fail-over and brokers that come back


def test_the_next_controller_goes_on_from_the_topic_znode():
    term = term_of()
    alter(term, (4, 5, 3))
    successor = Term(term.zookeeper, 2).start()
    assert successor.context.reassigning == {AT}
    assert successor.zookeeper.state(AT).leader_epoch == 2, "A1 again"
    grow_isr(successor, (1, 2, 3, 4, 5))
    respond_to_deletions(successor)
    assert entry(successor) == ((4, 5, 3), (), ())


def test_the_next_controller_ends_what_was_in_sync_when_the_last_one_died():
    term = term_of()
    alter(term, (4, 5, 3))
    state = term.zookeeper.state(AT)
    term.zookeeper.write_state(AT, PartitionStateNode(state.leader, state.leader_epoch, (1, 2, 3, 4, 5), 1))
    successor = Term(term.zookeeper, 2).start()
    respond_to_deletions(successor)
    assert entry(successor) == ((4, 5, 3), (), ())


def test_a_targets_broker_that_comes_back_is_notified_again():
    term = term_of()
    alter(term, (4, 5, 3))
    term.zookeeper.unregister_broker(4)
    term.run(process_broker_change(term.context))
    forget(term)
    term.zookeeper.register_broker(4)
    term.run(process_broker_change(term.context))
    last = [m.partitions for i, m in requests(term, LeaderAndIsrRequest) if i == 4][-1]
    assert [item.is_new for item in last if item.state.topic_partition == AT] == [True]
    assert term.zookeeper.state(AT).leader_epoch == 2


# The znode of older tools


def ask_by_znode(term: Term, **targets: Sequence[int]) -> None:
    wanted = {TopicPartition("orders", int(name[1:])): tuple(target) for name, target in targets.items()}
    term.zookeeper.create(REASSIGN_PARTITIONS, encode_reassignments(wanted))
    term.run(process_legacy_reassignments(term.context))


def test_the_znode_of_older_tools_begins_reassignments_and_goes_with_the_last_one():
    term = term_of()
    ask_by_znode(term, p0=(4, 5, 3), p1=(1, 2))
    assert entry(term) == ((4, 5, 3, 1, 2), (4, 5), (1, 2))
    respond_to_deletions(term)
    assert entry(term, 1) == ((1, 2), (), ())
    left = term.zookeeper.nodes[REASSIGN_PARTITIONS].data
    assert left == encode_reassignments({AT: (4, 5, 3)})
    epoch = term.zookeeper.state(AT).leader_epoch
    term.run(process_legacy_reassignments(term.context))
    assert term.zookeeper.state(AT).leader_epoch == epoch, "what the controller itself wrote there is no news"
    grow_isr(term, (1, 2, 3, 4, 5))
    respond_to_deletions(term)
    assert REASSIGN_PARTITIONS not in term.zookeeper.nodes


def test_what_cannot_be_begun_is_taken_out_of_the_znode():
    term = term_of()
    ask_by_znode(term, p0=(4, 5, 3), p9=(1, 2))
    assert term.zookeeper.nodes[REASSIGN_PARTITIONS].data == encode_reassignments({AT: (4, 5, 3)})


def test_a_request_takes_precedence_over_the_znode():
    term = term_of()
    ask_by_znode(term, p0=(4, 5, 3))
    alter(term, (6, 2, 3))
    assert REASSIGN_PARTITIONS not in term.zookeeper.nodes
    assert entry(term) == ((6, 2, 3, 1), (6,), (1,))


@pytest.mark.parametrize("data", [b"", b"{", b'{"version":1,"partitions":[]}', b'{"partitions":[{"topic":1}]}'])
def test_a_znode_that_says_nothing_goes(data: bytes):
    term = term_of()
    term.zookeeper.create(REASSIGN_PARTITIONS, data)
    term.run(process_legacy_reassignments(term.context))
    assert REASSIGN_PARTITIONS not in term.zookeeper.nodes


# Lists of replicas

LISTS = st.lists(st.integers(0, 7), min_size=1, max_size=5, unique=True).map(tuple)


@given(LISTS, st.lists(LISTS, min_size=1, max_size=4))
def test_origin_and_target_are_kept_through_any_number_of_replacements(
    origin: tuple[int, ...], targets: list[tuple[int, ...]]
):
    """RS begins with TRS in its order and holds all of ORS. AR and RR are the differences. A cancellation restores."""
    assignment = Assignment(origin)
    for target in targets:
        assignment = assignment.reassigned_to(target)
        assert assignment.target == target
        assert assignment.replicas[: len(target)] == target
        assert set(assignment.origin) == set(origin)
        assert set(assignment.adding) == set(target) - set(origin)
        assert set(assignment.removing) == set(origin) - set(target)
        assert len(set(assignment.replicas)) == len(assignment.replicas)
    back = assignment.reassigned_to(assignment.origin)
    assert not back.is_reassigning
    assert set(back.replicas) == set(origin)
