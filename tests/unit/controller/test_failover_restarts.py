"""A new controller finds brokers that registered after a partition's state was written (failover.py; not Kafka's).

Kafka takes such a broker for its former incarnation. It may have lost records that it never flushed, and would write
other records at the same offsets in the same epoch; docs/results/searches.md has histories of it.
"""

from __future__ import annotations

import pytest
from memory_zookeeper import MemoryZooKeeper, Term, term_of_topic

from tidegauge.control import NO_LEADER, LeaderAndIsrRequest
from tidegauge.partition import TopicPartition
from tidegauge.znodes import delete_topic_path
from tidegauge_controller.zookeeper.decisions.context import ControllerSettings

AT = TopicPartition("orders", 0)
Outcome = tuple[int, int, tuple[int, ...]]


def topic() -> MemoryZooKeeper:
    """Brokers 1 to 3; leader 1 in epoch 0, all in the ISR."""
    return term_of_topic(AT.topic).zookeeper


def outcome(zookeeper: MemoryZooKeeper) -> Outcome:
    state = zookeeper.state(AT)
    return state.leader, state.leader_epoch, state.isr


@pytest.mark.parametrize(
    ("restarted", "dead", "expected"),
    [
        ((), (), (1, 0, (1, 2, 3))),
        ((1,), (), (2, 1, (2, 3))),  # the leader: another member leads
        ((2,), (), (1, 1, (1, 3))),  # a follower leaves, as after a bounce
        ((2, 3), (), (1, 1, (1,))),
        ((1, 2, 3), (), (1, 1, (1,))),  # all: the leader, because no other has more, in a new epoch
        ((1,), (2,), (3, 2, (3,))),  # a dead one leaves as ever
        ((1,), (2, 3), (1, 1, (1,))),  # no other replica is online
        ((2, 3), (1,), (2, 1, (2,))),
    ],
)
def test_who_restarted_unseen_is_treated_as_bounced(
    restarted: tuple[int, ...], dead: tuple[int, ...], expected: Outcome
):
    """One member with a log of which something is known is preferred; the epoch rises in any case."""
    zookeeper = topic()
    for broker_id in restarted:
        zookeeper.register_broker(broker_id)
    for broker_id in dead:
        zookeeper.unregister_broker(broker_id)
    term = Term(zookeeper, 9).start()
    assert outcome(zookeeper) == expected
    reported = {
        broker_id: message.partitions[-1].state.leader_epoch
        for broker_id, message in term.sent
        if isinstance(message, LeaderAndIsrRequest)
    }
    assert reported == dict.fromkeys({1, 2, 3} - set(dead), expected[1])


def test_kafkas_rule_changes_nothing():
    """The switch: ``controller.failover.trusts.restarted.brokers=true``."""
    zookeeper = topic()
    zookeeper.register_broker(1)
    Term(zookeeper, 9, ControllerSettings(trusts_restarted_brokers=True)).start()
    assert outcome(zookeeper) == (1, 0, (1, 2, 3))


def test_the_next_controller_finds_nothing_more_to_do():
    zookeeper = topic()
    zookeeper.register_broker(1)
    Term(zookeeper, 9).start()
    before = outcome(zookeeper)
    Term(zookeeper, 9).start()
    assert outcome(zookeeper) == before


def test_a_leaderless_partition_is_led_by_its_last_member_again():
    zookeeper = topic()
    state = zookeeper.state(AT)
    zookeeper.write_state(AT, state.__class__(NO_LEADER, 4, (2,), 1))
    zookeeper.register_broker(2)
    Term(zookeeper, 9).start()
    assert outcome(zookeeper) == (2, 5, (2,))


def test_a_lost_race_is_run_again():
    """Another writer writes between reading and writing: the decision is repeated on the new state."""
    zookeeper = topic()
    zookeeper.register_broker(3)
    term = Term(zookeeper, 9)
    state = zookeeper.state(AT)
    interfered = []

    def interfere() -> None:
        if zookeeper.version(AT) == 0 and not interfered:
            interfered.append(True)
            zookeeper.write_state(AT, state.__class__(1, 0, (1, 3), 1))
            zookeeper.register_broker(3)
            term.context.live[3] = term.context.live[3]._replace(epoch=zookeeper.zxid)
        elif not interfered:
            term.before_write = interfere

    term.before_write = interfere
    term.start()
    assert interfered
    assert outcome(zookeeper) == (1, 1, (1,))


def test_a_topic_to_be_deleted_is_left_alone():
    zookeeper = topic()
    zookeeper.register_broker(1)
    zookeeper.create(delete_topic_path(AT.topic), None)
    term = Term(zookeeper, 9)
    term.start()
    assert not any(note.fields.get("strategy") == "restarted" for note in term.notes)
