"""Messages about a broker's previous incarnation must not count for the process that came after it (found by
``simulate``).

Two ways by which a restart is overlooked although every controller looks: a leader's proposal that is decided when the
joiner has restarted (KIP-903; Kafka in ZooKeeper mode takes it), and a state written by a controller that had not yet
seen a restart, and read by one that can't know that.
"""

from __future__ import annotations

import pytest

from tidegauge_broker.replica.messages import ACKS_ALL, CoreSettings, TopicRules
from tidegauge_controller.rules import alter_partition
from tidegauge_proof.simulator.checker import Checker, Violation
from tidegauge_proof.simulator.world import World

CONTROLLER = 0


def make_world(*, refuses: bool = True) -> World:
    """Two replicas, led by 1; 2 was away, is out of the ISR, and has caught up: leader 1 has a proposal to send."""
    settings = CoreSettings(
        replica_lag_time_max_ms=2000, replica_fetch_backoff_ms=100, refuses_previous_incarnation=refuses
    )
    world = World((1, 2), settings, TopicRules(), Checker(may_lose=True), controller=CONTROLLER)
    world.kill(2)
    world.expire(2)
    settle(world)
    for _ in range(3):
        world.produce(1, ACKS_ALL, 1, 60_000)
    world.start(2)
    settle(world)
    while not world.proposals.outbox[1]:
        assert world.whole_round(2)
    assert world.state_now.isr == (1,)
    assert world.brokers[2].log.log_end_offset == 3
    return world


def settle(world: World) -> None:
    """The controller decides all it can, and everybody hears of it."""
    while world.elected is not None:
        controller = world.elected
        if world.controllers[controller].is_busy:
            world.decide(controller, 1000)
        elif reached := [b for b in world.brokers if world.controllers[controller].queues.get(b)]:
            for broker_id in reached:
                world.deliver_all(broker_id)
        else:
            return


def come_to_rest(world: World) -> None:
    """Both fetch, ISR changes are decided, a record is written, both fetch again."""
    for _ in range(4):
        world.pass_time(500)
        for broker_id in (1, 2):
            for _ in range(3):
                world.whole_round(broker_id)
            if world.proposals.may_propose(broker_id) and world.elected is not None:
                world.proposals.propose(broker_id, world.elected)
        settle(world)
        while world.traffic.verdicts:
            world.proposals.tell(world.traffic.verdicts.pop(0), world.now_ms)
        world.produce(world.state_now.leader, ACKS_ALL, 1, 60_000)


def lose_all(world: World, broker_id: int) -> None:
    """A power loss takes its log, and a new process registers over the old session."""
    world.cut_power(broker_id, 0)
    world.start(broker_id)


def join_after_a_restart(world: World) -> None:
    """The leader's proposal for the joiner's previous incarnation is decided when its new incarnation is known."""
    lose_all(world, 2)
    settle(world)
    world.proposals.propose(1, CONTROLLER)
    settle(world)


def test_a_joiner_that_has_restarted_since_it_fetched_is_not_taken_in():
    """It joins once its new incarnation has caught up, too (KIP-903)."""
    world = make_world()
    join_after_a_restart(world)
    assert world.state_now.isr == (1,)
    come_to_rest(world)
    assert world.state_now.isr == (1, 2)
    assert len(world.checker.committed) > 3
    assert world.checker.lost == []


def test_kafkas_rule_takes_it_in_and_loses_what_is_committed(monkeypatch: pytest.MonkeyPatch):
    """An ISR member without the records is elected, and a replica that has them truncates them, with a sound disk."""
    monkeypatch.setattr(alter_partition, "_joiner_is_another", lambda *_: False)
    world = make_world()
    join_after_a_restart(world)
    assert world.state_now.isr == (1, 2)
    assert world.brokers[2].log.log_end_offset == 0
    world.kill(1)
    world.expire(1)
    settle(world)
    assert world.state_now.leader == 2
    world.start(1)
    settle(world)
    come_to_rest(world)
    assert ["records 0,1,2" in words for words in world.checker.lost] == [True]


def overlook_a_restart(world: World, broker_id: int = 1) -> None:
    """A controller that has not seen a member restart writes the leader's proposal, and dies; the next one reads it."""
    world.proposals.propose(1, CONTROLLER)
    lose_all(world, broker_id)
    world.decide(CONTROLLER, 1000)
    assert (world.state_now.leader, world.state_now.isr) == (1, (1, 2))
    world.kill(CONTROLLER)
    world.expire(CONTROLLER)
    world.elect(2)


def test_a_leader_refuses_the_epoch_of_its_previous_incarnation():
    """It would write other records at the same offsets in the same epoch; the other member of the ISR leads instead."""
    world = make_world()
    epoch = world.state_now.leader_epoch
    overlook_a_restart(world)
    settle(world)
    assert (world.state_now.leader, world.state_now.isr) == (2, (2,))
    assert world.state_now.leader_epoch > epoch
    come_to_rest(world)
    assert world.state_now.isr == (2, 1)
    assert len(world.checker.committed) > 3
    assert world.checker.lost == []


def test_a_leader_that_does_not_refuse_makes_logs_differ():
    """The check is needed: without it the first record that it writes is at the offset of another, committed one."""
    world = make_world(refuses=False)
    epoch = world.state_now.leader_epoch
    overlook_a_restart(world)
    settle(world)
    assert (world.state_now.leader, world.state_now.leader_epoch) == (1, epoch)
    with pytest.raises(Violation, match=r"LogMatchingHw|StrongIsr"):
        come_to_rest(world)


def test_a_broker_that_refuses_is_notified_again_though_its_leader_has_taken_it_out_of_the_isr_meanwhile():
    """Else it has heard of no leader, and fetches from no broker for good (seed 3,247,467)."""
    world = make_world()
    overlook_a_restart(world, 2)
    world.proposals.tell(world.traffic.verdicts.pop(), world.now_ms)
    world.decide_all()
    assert world.state_now.isr == (1, 2)
    world.produce(1, ACKS_ALL, 1, 60_000)
    world.pass_time(2500)
    world.proposals.propose(1, 2)
    world.decide_all()
    assert world.state_now.isr == (1,), "before 2 has heard, and refused, that it is a member"
    settle(world)
    come_to_rest(world)
    assert world.state_now.isr == (1, 2)
    assert world.brokers[2].log.log_end_offset > 3


def test_the_last_member_leads_on_in_a_new_epoch():
    """If no other replica is in sync, it leads with the records that it has left, and the lost ones are named."""
    world = make_world()
    epoch = world.state_now.leader_epoch
    world.kill(2)
    world.expire(2)
    settle(world)
    lose_all(world, 1)
    settle(world)
    assert (world.state_now.leader, world.state_now.isr) == (1, (1,))
    assert world.state_now.leader_epoch > epoch
    assert len(world.checker.lost) == 1


def test_a_broker_that_has_asked_a_controller_asks_none_before_it():
    """Else the earlier one, which knows too little, refuses what the later one has written, and the leader believes it.

    ``/controller`` never goes back for who reads it, so the model must not either: with an earlier controller's refusal
    seed 3,042,417 counted an ISR member out that could still be elected.
    """
    world = make_world()
    world.expire(CONTROLLER)
    world.elect(2)
    settle(world)
    assert world.proposals.may_ask(1, CONTROLLER)
    world.proposals.propose(1, 2)
    settle(world)
    assert world.state_now.isr == (1, 2)
    verdict = world.traffic.verdicts.pop()
    verdict.verdict = None
    world.proposals.tell(verdict, world.now_ms)
    assert world.proposals.outbox[1], "it asks again"
    assert world.proposals.may_ask(1, 2)
    assert not world.proposals.may_ask(1, CONTROLLER)


def test_a_replica_that_works_again_is_not_stopped_by_a_response_of_the_process_before_it():
    """The response waits behind a look at the brokers that finds the restart (seed 60,200,973 with two directories)."""
    world = make_world()
    come_to_rest(world)
    assert world.state_now.isr == (1, 2)
    world.fail_directory(2, 0, 0)
    world.produce(1, ACKS_ALL, 1, 60_000)
    world.whole_round(2)
    world.decide_all()
    world.controllers[CONTROLLER].brokers_changed = True
    world.decide(CONTROLLER, 0)
    world.deliver_all(2)
    world.mend(2)
    world.kill(2)
    world.start(2)
    settle(world)
    come_to_rest(world)
    assert world.state_now.isr == (1, 2)
