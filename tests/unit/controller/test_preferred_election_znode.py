"""``/admin/preferred_replica_election``, the request of tools before 2.4."""

from __future__ import annotations

from dataclasses import replace

from memory_zookeeper import MemoryZooKeeper, Term

from tidegauge.partition import TopicPartition
from tidegauge.znodes import PREFERRED_REPLICA_ELECTION, delete_topic_path, encode_preferred_election
from tidegauge_controller.zookeeper.decisions.broker_events import process_broker_change
from tidegauge_controller.zookeeper.decisions.deletion import process_delete_markers
from tidegauge_controller.zookeeper.decisions.leaders import process_preferred_election_znode
from tidegauge_controller.zookeeper.decisions.steps import CreateNode
from tidegauge_controller.zookeeper.decisions.topic_events import process_topic_change

ORDERS = [TopicPartition("orders", number) for number in range(3)]


def misplaced() -> tuple[MemoryZooKeeper, Term]:
    """orders-0 and orders-1 prefer 1, which came back; orders-1's ISR lacks it. orders-2 is led by its preferred 2."""
    zookeeper = MemoryZooKeeper()
    for broker_id in (1, 2, 3):
        zookeeper.register_broker(broker_id)
    term = Term(zookeeper, 9).start()
    zookeeper.add_topic("orders", {0: [1, 2], 1: [1, 3], 2: [2, 1]})
    term.run(process_topic_change(term.context))
    zookeeper.unregister_broker(1)
    term.run(process_broker_change(term.context))
    zookeeper.register_broker(1)
    term.run(process_broker_change(term.context))
    zookeeper.write_state(ORDERS[0], replace(zookeeper.state(ORDERS[0]), isr=(2, 1)))
    return zookeeper, term


def request(zookeeper: MemoryZooKeeper, *partitions: TopicPartition) -> None:
    zookeeper.write(CreateNode(PREFERRED_REPLICA_ELECTION, encode_preferred_election(partitions)))


def leaders(term: Term) -> list[tuple[int, int]]:
    return [(term.context.leadership[at].leader, term.context.leadership[at].leader_epoch) for at in ORDERS]


def test_what_can_be_led_by_its_preferred_replica_is_and_the_znode_goes():
    zookeeper, term = misplaced()
    assert leaders(term) == [(2, 1), (3, 1), (2, 1)]
    request(zookeeper, *ORDERS, TopicPartition("unknown", 0))
    term.run(process_preferred_election_znode(term.context))
    assert leaders(term) == [(1, 2), (3, 1), (2, 1)], "orders-1's preferred replica is not in sync"
    assert zookeeper.read(PREFERRED_REPLICA_ELECTION).data is None
    assert [note.cause for note in term.notes][-1] == "PreferredReplicaElection"
    before = len(term.writes)
    term.run(process_preferred_election_znode(term.context))
    assert len(term.writes) == before, "its own deletion is no request"


def test_a_topic_that_is_deleted_is_left_alone():
    zookeeper, term = misplaced()
    zookeeper.write(CreateNode(delete_topic_path("orders"), None))
    zookeeper.unregister_broker(3)  # so that the deletion waits
    term.run(process_broker_change(term.context))
    term.run(process_delete_markers(term.context))
    before = {at: state for at, state in term.context.leadership.items() if at == ORDERS[0]}
    request(zookeeper, ORDERS[0])
    term.run(process_preferred_election_znode(term.context))
    assert {at: term.context.leadership[at] for at in before} == before
    assert zookeeper.read(PREFERRED_REPLICA_ELECTION).data is None


def test_what_no_reader_can_read_is_removed():
    zookeeper, term = misplaced()
    zookeeper.write(CreateNode(PREFERRED_REPLICA_ELECTION, b"rubbish"))
    term.run(process_preferred_election_znode(term.context))
    assert zookeeper.read(PREFERRED_REPLICA_ELECTION).data is None
    assert leaders(term) == [(2, 1), (3, 1), (2, 1)]


def test_a_new_controller_finds_the_request_of_before():
    zookeeper, _ = misplaced()
    request(zookeeper, ORDERS[0])
    successor = Term(zookeeper, 2).start()
    assert successor.context.leadership[ORDERS[0]].leader == 1
    assert zookeeper.read(PREFERRED_REPLICA_ELECTION).data is None
