"""Which commits the checker of consume, transform, produce counts, where an append fails beside what the log says (T9).

Each is a short history of a cluster of three brokers, step by step. A commit that has failed does not count at its
coordinator, though its batch may be in the log; the checker knows it by its CRC.
"""

from __future__ import annotations

from typing import Any

import pytest

from tidegauge.errors import ErrorCode
from tidegauge.groups import OffsetCommit, OffsetToCommit
from tidegauge_proof.simulator.actions import swarm_of
from tidegauge_proof.simulator.checker import Violation
from tidegauge_proof.simulator.exactly_once.clients import SIMPLE, SIMPLE_GROUP
from tidegauge_proof.simulator.exactly_once.cluster import OFFSETS, Call, Caller
from tidegauge_proof.simulator.exactly_once.joint_checker import OffsetsChecker
from tidegauge_proof.simulator.exactly_once.network import TIMELY
from tidegauge_proof.simulator.exactly_once.stage import Stage, staged
from tidegauge_proof.simulator.swarm import MUST_SURVIVE

E = ErrorCode
PAST_COMMIT_TIMEOUT_MS = 6_000


class Offsets:
    """A cluster whose steps a test takes; ``responses`` are those to its commits."""

    def __init__(self) -> None:
        swarm = swarm_of(0, "kip-320", MUST_SURVIVE, directories=1)
        swarm.replicas, swarm.min_insync_replicas, swarm.flushes = (1, 2, 3), 2, False
        self.stage: Stage = staged(0, TIMELY, swarm)
        self.world, self.cluster = self.stage.world, self.stage.cluster
        self.cluster.network.is_calm = True
        self.responses: list[ErrorCode] = []
        self.goes_on()

    @property
    def state(self) -> Any:
        """Return the offsets partition's state in ZooKeeper."""
        return self.cluster.partitions[OFFSETS].state_now

    def goes_on(self) -> None:
        """Controller, leaders and followers do what they can, without time passing, until nothing is left to do."""
        world = self.world
        for _ in range(8):
            running = [broker_id for broker_id in world.brokers if world.is_up(broker_id)]
            world.decide_all()
            for broker_id in running:
                world.deliver_all(broker_id)
                while world.proposals.may_propose(broker_id):
                    world.proposals.propose(broker_id, world.elected or 0)
            world.decide_all()
            verdicts, world.traffic.verdicts = world.traffic.verdicts, []
            for verdict in verdicts:
                world.proposals.tell(verdict, world.now_ms)
            for broker_id in running:
                world.whole_round(broker_id)
            self.loads()
            self.cluster.network.deliver_all()

    def loads(self) -> None:
        """Complete the coordinators' loads."""
        self.cluster.settle()
        for coordinators in (self.cluster.transactions, self.cluster.groups):
            while loading := coordinators.loading():
                coordinators.go_on_loading(loading[0])
        self.cluster.settle()

    def dies(self, broker_id: int) -> None:
        world = self.world
        world.kill(broker_id)
        world.expire(broker_id)
        if world.elected is None:
            world.elect(next(one for one in world.brokers if world.is_up(one) and one not in world.without_session))

    def commit(self, offset: int) -> None:
        """A consumer without a group commits at the coordinator, in the ms that it is."""
        request = OffsetCommit(SIMPLE_GROUP, (OffsetToCommit(SIMPLE, offset),))

        def done(result: Any) -> None:
            self.responses += result.partitions.values()

        self.cluster.ask_coordinator("group", self.state.leader, Call(Caller("simple"), request, done, lambda: True))
        self.cluster.network.deliver_all()
        self.cluster.settle()


def sent_again_in_the_same_millisecond() -> Offsets:
    """A commit is refused for too few replicas, and sent again: its batch is the same to the last bit."""
    offsets = Offsets()
    others = [one for one in (1, 2, 3) if one != offsets.state.leader]
    begin_ms = offsets.world.now_ms
    for one in others:
        offsets.dies(one)
    offsets.goes_on()
    offsets.commit(7)
    offsets.goes_on()
    assert offsets.responses == [E.COORDINATOR_NOT_AVAILABLE]
    for one in others:
        offsets.world.start(one)
    offsets.goes_on()
    offsets.commit(7)
    offsets.goes_on()
    assert offsets.responses == [E.COORDINATOR_NOT_AVAILABLE, E.NONE]
    assert offsets.world.now_ms == begin_ms
    return offsets


def loaded_while_it_was_pending() -> Offsets:
    """Broker 3 misses an epoch of broker 2's, so that it loads its log again with a commit in flight.

    A preferred election has 2 lead; the request that says so is lost with the controller, and 2 dies. No follower
    fetches until the append of the commit has timed out.
    """
    offsets = Offsets()
    world = offsets.world
    offsets.dies(2)
    offsets.goes_on()
    world.start(2)
    offsets.goes_on()
    assert (offsets.state.leader, set(offsets.state.isr), world.elected) == (3, {1, 2, 3}, 1)
    offsets.commit(7)
    for one in (1, 2):
        world.whole_round(one)
    missed = offsets.state.leader_epoch
    world.rebalance(1)
    world.decide_all()
    assert (offsets.state.leader, offsets.state.leader_epoch) == (2, missed + 1)
    world.expire(1)
    world.end_term(1)
    offsets.dies(2)
    world.decide_all()
    world.deliver_all(3)
    assert offsets.state.leader == 3
    offsets.loads()
    world.pass_time(PAST_COMMIT_TIMEOUT_MS)
    offsets.loads()
    offsets.cluster.network.deliver_all()
    assert offsets.responses == [E.REQUEST_TIMED_OUT]
    world.register_again(1)
    world.start(2)
    world.pass_time(0)
    offsets.goes_on()
    assert set(offsets.state.isr) == {1, 2, 3}
    return offsets


def test_a_commit_that_is_sent_again_in_the_same_millisecond_counts():
    """Its batch has the CRC of the one that failed, which the checker leaves out. Found by seed 10,100,020."""
    sent_again_in_the_same_millisecond().stage.checker.offsets.rests()


def test_a_commit_that_was_loaded_while_it_was_pending_counts_though_it_fails():
    """A coordinator that missed an epoch loads again, commits in flight included. Found by seed 10,410,118."""
    loaded_while_it_was_pending().stage.checker.offsets.rests()


@pytest.mark.parametrize("history", [sent_again_in_the_same_millisecond, loaded_while_it_was_pending])
def test_a_checker_that_leaves_out_whatever_has_failed_blames_the_coordinator(history, monkeypatch: pytest.MonkeyPatch):
    appended = OffsetsChecker.appended

    def forgets_what_it_counts(self: OffsetsChecker, broker, batch, result) -> None:
        failed = set(self._failed.get(broker.broker_id, ()))
        self._counted.clear()
        appended(self, broker, batch, result)
        self._failed.setdefault(broker.broker_id, set()).update(failed)

    monkeypatch.setattr(OffsetsChecker, "appended", forgets_what_it_counts)
    offsets = history()
    with pytest.raises(Violation, match="T9"):
        offsets.stage.checker.offsets.rests()
