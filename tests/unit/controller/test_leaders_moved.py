"""Planned leadership changes and the smaller decisions of KafkaController.

Controlled shutdown, preferred leaders, elections on demand, producer ids, added partitions and deleted topics, illegal
transitions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest
from memory_zookeeper import MemoryZooKeeper, Term

from tidegauge.cluster_metadata import ProducerIdBlock
from tidegauge.control import (
    NO_LEADER,
    LeaderAndIsrRequest,
    PartitionsResponse,
    StopReplicaRequest,
    UpdateMetadataRequest,
)
from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.partition import TopicPartition
from tidegauge.znodes import (
    DELETE_TOPICS,
    PRODUCER_ID_BLOCK,
    PartitionStateNode,
    TopicNode,
    decode_producer_ids,
    delete_topic_path,
    encode_producer_ids,
    topic_path,
)
from tidegauge_controller.admin import NewTopic
from tidegauge_controller.rules.topics import check_assignment, check_new_topic
from tidegauge_controller.zookeeper.decisions.broker_events import (
    process_broker_change,
    process_leader_and_isr_response,
)
from tidegauge_controller.zookeeper.decisions.context import ControllerSettings, PartitionStatus, Replica, ReplicaStatus
from tidegauge_controller.zookeeper.decisions.deletion import process_delete_markers, process_stop_replica_response
from tidegauge_controller.zookeeper.decisions.leaders import (
    elect_leaders,
    partitions_to_rebalance,
    process_controlled_shutdown,
    rebalance_leaders,
)
from tidegauge_controller.zookeeper.decisions.partition_machine import change_partitions
from tidegauge_controller.zookeeper.decisions.producer_ids import allocate_producer_ids
from tidegauge_controller.zookeeper.decisions.replica_machine import change_replicas
from tidegauge_controller.zookeeper.decisions.topic_events import process_topic_change, process_topic_data

NONE = ErrorCode.NONE


def part(index: int, topic: str = "orders") -> TopicPartition:
    return TopicPartition(topic, index)


AT = part(0)


def term_of(assignment: Mapping[int, Sequence[int]], *, brokers: Sequence[int] = (1, 2, 3), **settings: object) -> Term:
    zookeeper = MemoryZooKeeper()
    for broker_id in brokers:
        zookeeper.register_broker(broker_id)
    term = Term(zookeeper, 9, ControllerSettings(**settings)).start()
    zookeeper.add_topic("orders", assignment)
    term.run(process_topic_change(term.context))
    term.take_sent()
    return term


def change(term: Term) -> None:
    term.run(process_broker_change(term.context))


def row(term: Term, at: TopicPartition = AT) -> tuple[int, tuple[int, ...], int]:
    node = term.zookeeper.state(at)
    return node.leader, node.isr, node.leader_epoch


# Controlled shutdown


def shut_down(term: Term, broker_id: int, offset: int = 0) -> tuple[ErrorCode, list[TopicPartition]]:
    epoch = term.context.live[broker_id].epoch + offset if broker_id in term.context.live else 1
    outcome: tuple[ErrorCode, list[TopicPartition]] = term.run(
        process_controlled_shutdown(term.context, broker_id, epoch)
    )
    return outcome


def test_leaders_move_and_followers_leave_the_isr_for_one_epoch_each():
    term = term_of({0: (1, 2, 3), 1: (2, 1, 3), 2: (1,)})
    assert shut_down(term, 1) == (NONE, [])
    assert row(term, part(0)) == (2, (2, 3), 1)
    assert row(term, part(1)) == (2, (2, 3), 1)
    assert row(term, part(2)) == (1, (1,), 0)  # one replica: it goes offline with the broker
    stops = [(i, m.partitions[0].topic_partition) for i, m in term.sent if isinstance(m, StopReplicaRequest)]
    assert stops[0] == (1, part(1))
    assert {at for _, at in stops} == {part(1)}
    # The one that goes still hears metadata, and that it leads no more.
    assert 1 in {i for i, m in term.sent if isinstance(m, UpdateMetadataRequest)}
    leader_and_isr = [m for i, m in term.sent if i == 1 and isinstance(m, LeaderAndIsrRequest)]
    assert [item.state.leader for item in leader_and_isr[0].partitions] == [2]


def test_a_single_replica_is_not_touched_even_where_it_leads_no_more():
    """Only partitions with more than one replica are; here its log directory has failed."""
    term = term_of({0: (1,)})
    failed = PartitionsResponse(partitions={AT: ErrorCode.KAFKA_STORAGE_ERROR})
    term.run(process_leader_and_isr_response(term.context, 1, failed))
    assert row(term) == (NO_LEADER, (1,), 1)
    term.take_sent()
    assert shut_down(term, 1) == (NONE, [])
    assert row(term) == (NO_LEADER, (1,), 1)
    assert term.sent == []


def test_what_it_still_leads_is_reported():
    term = term_of({0: (1, 2), 1: (1, 3)})
    term.zookeeper.unregister_broker(2)
    change(term)
    assert row(term) == (1, (1,), 1)
    assert shut_down(term, 1) == (NONE, [part(0)])
    assert row(term) == (1, (1,), 1)
    assert row(term, part(1)) == (3, (3,), 1)


@pytest.mark.parametrize(
    ("broker_id", "offset", "error"),
    [(1, -1, ErrorCode.STALE_BROKER_EPOCH), (1, 1, NONE), (7, 0, ErrorCode.BROKER_NOT_AVAILABLE)],
)
def test_only_a_lower_broker_epoch_is_stale(broker_id: int, offset: int, error: ErrorCode):
    """Unlike AlterPartition, which wants equality."""
    term = term_of({0: (1, 2, 3)})
    assert shut_down(term, broker_id, offset) == (error, [])
    assert (1 in term.context.shutting_down) == (error is NONE)


def test_the_death_after_a_controlled_shutdown_costs_nothing_more():
    term = term_of({0: (1, 2, 3)})
    shut_down(term, 1)
    term.zookeeper.unregister_broker(1)
    change(term)
    assert row(term) == (2, (2, 3), 1)


# Preferred leaders


def misplaced(count: int, of: int, **settings: object) -> Term:
    """Partitions that prefer 1; ``count`` of them are led by 2, all have the full ISR."""
    term = term_of(dict.fromkeys(range(of), (1, 2)), brokers=(1, 2), **settings)
    for index in range(count):
        node = PartitionStateNode(2, 1, (1, 2), 1)
        term.context.leadership[part(index)] = node.at_version(term.zookeeper.write_state(part(index), node))
    return term


@pytest.mark.parametrize(
    ("count", "of", "percentage", "chosen"),
    [(1, 9, 10, 1), (1, 10, 10, 0), (2, 10, 10, 2), (1, 1, 10, 1), (0, 3, 0, 0), (1, 10, 0, 1), (3, 10, 30, 0)],
)
def test_strictly_more_than_the_tolerated_share(count: int, of: int, percentage: int, chosen: int):
    """1 of 9 is 11 %, 1 of 10 is 10 % and stays."""
    term = misplaced(count, of, leader_imbalance_percentage=percentage)
    assert partitions_to_rebalance(term.context) == [part(index) for index in range(chosen)]


def test_a_rebalance_costs_one_epoch_and_keeps_the_isr():
    term = misplaced(1, 1)
    term.run(rebalance_leaders(term.context))
    assert row(term) == (1, (1, 2), 2)
    term.take_sent()
    term.run(rebalance_leaders(term.context))
    assert term.sent == []


def test_a_preferred_leader_that_can_not_lead_is_left_alone():
    term = misplaced(1, 1)
    term.context.shutting_down.add(1)
    assert partitions_to_rebalance(term.context) == []
    term.context.shutting_down.clear()
    state = term.context.leadership[AT]
    term.context.leadership[AT] = type(state)(2, 1, (2,), False, 1, 1)
    assert partitions_to_rebalance(term.context) == []


# Elections on demand


def elect(
    term: Term, partitions: Sequence[TopicPartition] | None, *, unclean: bool = False
) -> dict[TopicPartition, ErrorCode]:
    responses = term.run(elect_leaders(term.context, partitions, unclean=unclean))
    return {at: error for at, (error, _) in responses.items()}


def test_preferred_on_demand():
    term = misplaced(1, 2)
    unknown = part(9)
    term.context.topics_to_delete.add("gone")
    term.context.assignments["gone"] = {0: term.context.assignment(AT)}
    assert elect(term, [part(0), part(1), unknown, part(0, "gone")]) == {
        part(0): NONE,
        part(1): ErrorCode.ELECTION_NOT_NEEDED,
        unknown: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        part(0, "gone"): ErrorCode.INVALID_TOPIC_EXCEPTION,
    }
    assert row(term) == (1, (1, 2), 2)


def test_all_partitions_leave_those_out_that_need_none():
    assert elect(misplaced(1, 3), None) == {part(0): NONE}


def test_a_preferred_leader_that_is_not_available():
    term = misplaced(1, 1)
    term.zookeeper.unregister_broker(1)
    change(term)
    assert elect(term, [AT]) == {AT: ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE}


def test_unclean_on_demand_needs_no_setting():
    term = term_of({0: (1, 2)}, brokers=(1, 2))
    assert elect(term, [AT], unclean=True) == {AT: ErrorCode.ELECTION_NOT_NEEDED}
    for broker_id in (2, 1):
        term.zookeeper.unregister_broker(broker_id)
        change(term)
    assert row(term) == (NO_LEADER, (1,), 2)
    assert elect(term, [AT], unclean=True) == {AT: ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE}
    term.zookeeper.register_broker(2)
    change(term)
    assert row(term)[0] == NO_LEADER
    assert elect(term, [AT], unclean=True) == {AT: NONE}
    assert row(term) == (2, (2,), 3)
    assert term.zookeeper.state(AT).recovering


# Illegal transitions


@pytest.mark.parametrize(
    ("before", "target"),
    [
        (PartitionStatus.ONLINE, PartitionStatus.NEW),
        (PartitionStatus.NEW, PartitionStatus.NON_EXISTENT),
        (PartitionStatus.ONLINE, PartitionStatus.NON_EXISTENT),
        (PartitionStatus.NON_EXISTENT, PartitionStatus.ONLINE),
        (PartitionStatus.NON_EXISTENT, PartitionStatus.OFFLINE),
    ],
)
def test_an_illegal_change_of_a_partition_is_skipped(before: PartitionStatus, target: PartitionStatus):
    term = term_of({0: (1, 2, 3)})
    term.context.partition_status[AT] = before
    assert set(term.run(change_partitions(term.context, [AT], target))) == {AT}
    assert term.context.partition_status[AT] is before
    assert [message for _, message in term.sent] == []


@pytest.mark.parametrize(
    ("before", "target"),
    [
        (ReplicaStatus.ONLINE, ReplicaStatus.NEW),
        (ReplicaStatus.NON_EXISTENT, ReplicaStatus.ONLINE),
        (ReplicaStatus.DELETION_STARTED, ReplicaStatus.OFFLINE),
        (ReplicaStatus.ONLINE, ReplicaStatus.DELETION_STARTED),
        (ReplicaStatus.OFFLINE, ReplicaStatus.DELETION_SUCCESSFUL),
        (ReplicaStatus.ONLINE, ReplicaStatus.DELETION_INELIGIBLE),
        (ReplicaStatus.OFFLINE, ReplicaStatus.NON_EXISTENT),
    ],
)
def test_an_illegal_change_of_a_replica_is_skipped(before: ReplicaStatus, target: ReplicaStatus):
    term = term_of({0: (1, 2, 3)})
    replica = Replica(AT, 2)
    term.context.replica_status[replica] = before
    assert set(term.run(change_replicas(term.context, [replica], target))) == {replica}
    assert term.context.replica_status[replica] is before
    assert (term.sent, row(term)) == ([], (1, (1, 2, 3), 0))


# Producer ids


def test_blocks_of_a_thousand_are_given_out_once_each():
    term = term_of({0: (1,)})
    epoch = term.context.live[1].epoch
    assert term.run(allocate_producer_ids(term.context, 1, epoch)) == (NONE, 0, 1000)
    assert term.run(allocate_producer_ids(term.context, 1, epoch)) == (NONE, 1000, 1000)
    assert decode_producer_ids(term.zookeeper.nodes[PRODUCER_ID_BLOCK].data) == ProducerIdBlock(1, 1000, 1999)
    term.before_write = lambda: term.zookeeper.set(
        PRODUCER_ID_BLOCK, encode_producer_ids(ProducerIdBlock(7, 2000, 2999))
    )
    assert term.run(allocate_producer_ids(term.context, 1, epoch)) == (NONE, 3000, 1000)
    for stale in (epoch - 1, epoch + 1):
        assert term.run(allocate_producer_ids(term.context, 1, stale)) == (ErrorCode.STALE_BROKER_EPOCH, 0, 0)
    term.zookeeper.set(PRODUCER_ID_BLOCK, b"{")
    assert term.run(allocate_producer_ids(term.context, 1, epoch))[0] is ErrorCode.UNKNOWN_SERVER_ERROR


# Topics are extended, deleted, and rejected


def grow(term: Term) -> None:
    topic_id = term.context.topic_ids["orders"]
    term.zookeeper.set(topic_path("orders"), TopicNode({0: (1, 2), 1: (2, 1)}, topic_id).encode())
    term.run(process_topic_data(term.context, "orders"))


def test_added_partitions_begin_like_new_ones():
    term = term_of({0: (1, 2)})
    grow(term)
    assert row(term, part(1)) == (2, (2, 1), 0)
    assert row(term) == (1, (1, 2), 0)


def test_while_a_topic_is_deleted_added_partitions_are_taken_back():
    term = term_of({0: (1, 2)})
    term.context.topics_to_delete.add("orders")
    grow(term)
    node = TopicNode.decode("orders", term.zookeeper.nodes[topic_path("orders")].data)
    assert dict(node.assignment) == {0: (1, 2)}
    assert node.topic_id == term.context.topic_ids["orders"]


def mark(term: Term) -> None:
    term.zookeeper.create(delete_topic_path("orders"), None)
    term.run(process_delete_markers(term.context))


def deletions(term: Term) -> list[int]:
    return [i for i, m in term.take_sent() if isinstance(m, StopReplicaRequest) and m.partitions[0].delete]


def test_a_topic_is_deleted_to_its_last_znode():
    """Brokers forget it, stop, delete; with the last success its znodes go."""
    term = term_of({0: (1, 2)}, brokers=(1, 2))
    mark(term)
    forgotten = [m for _, m in term.sent if isinstance(m, UpdateMetadataRequest) and m.partitions]
    assert forgotten[0].partitions[0].deleted
    stops = [m.partitions[0] for _, m in term.sent if isinstance(m, StopReplicaRequest)]
    assert {stop.leader_epoch for stop in stops} == {None}  # not checked while the topic goes
    assert deletions(term) == [1, 2]
    ok = PartitionsResponse(partitions={AT: NONE})
    term.run(process_stop_replica_response(term.context, 1, [AT], ok))
    assert topic_path("orders") in term.zookeeper.nodes
    term.run(process_stop_replica_response(term.context, 2, [AT], ok))
    assert [path for path in term.zookeeper.nodes if "orders" in path] == []
    assert (term.context.topics, term.context.topics_to_delete, term.context.leadership) == (set(), set(), {})


def test_a_dead_replica_holds_the_deletion_up_until_its_broker_returns():
    term = term_of({0: (1, 2)}, brokers=(1, 2))
    term.zookeeper.unregister_broker(2)
    change(term)
    mark(term)
    assert deletions(term) == [1]
    ok = PartitionsResponse(partitions={AT: NONE})
    term.run(process_stop_replica_response(term.context, 1, [AT], ok))
    assert term.zookeeper.children(DELETE_TOPICS) == ["orders"]
    term.zookeeper.register_broker(2)
    change(term)
    assert deletions(term) == [2]
    term.run(process_stop_replica_response(term.context, 2, [AT], ok))
    assert term.zookeeper.children(DELETE_TOPICS) == []


def test_markers_of_unknown_topics_and_where_deletion_is_disabled_are_dropped():
    term = term_of({0: (1, 2)}, delete_topic_enable=False)
    mark(term)
    assert (term.zookeeper.children(DELETE_TOPICS), term.context.topics_to_delete) == ([], set())
    term = term_of({0: (1, 2)})
    term.zookeeper.create(delete_topic_path("nobody"), None)
    term.run(process_delete_markers(term.context))
    assert term.zookeeper.children(DELETE_TOPICS) == []


@pytest.mark.parametrize(
    ("assignment", "sentence"),
    [
        ({0: (1, 2), 1: (1,)}, "All partitions should have the same number of replicas"),
        ({0: (1, 1)}, "Duplicate replica assignment found"),
        ({0: ()}, "Duplicate replica assignment found"),
    ],
)
def test_assignments_that_are_refused(assignment: dict[int, tuple[int, ...]], sentence: str):
    with pytest.raises(TidegaugeError, match=sentence) as refused:
        check_assignment(assignment)
    assert refused.value.code is ErrorCode.INVALID_REPLICA_ASSIGNMENT


@pytest.mark.parametrize(
    ("name", "error"),
    [
        ("a b", ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("orders", ErrorCode.TOPIC_ALREADY_EXISTS),
        ("going", ErrorCode.TOPIC_ALREADY_EXISTS),
        ("a.b", ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("fine", NONE),
    ],
)
def test_names_that_are_refused(name: str, error: ErrorCode):
    def check() -> None:
        check_new_topic(NewTopic(name), {0: (1,)}, existing={"orders", "a_b"}, marked_for_deletion={"going"})

    if error is NONE:
        check()
        return
    with pytest.raises(TidegaugeError) as refused:
        check()
    assert refused.value.code is error
