"""The published traces of replication with eligible leader replicas (KIP-966, part 1), each decided step by step."""

from __future__ import annotations

from tests.unit.metadata.cluster_world import World
from tests.unit.metadata.test_partition_changes import MIN_ISR, alter, changed, reassign, restart

from tidegauge.errors import ErrorCode
from tidegauge_controller.metadata.decisions.configs import Alteration, Operation, alter_configs
from tidegauge_controller.metadata.image import TOPIC, ConfigResource


def test_a_member_that_returns_with_a_new_epoch_while_its_expansion_is_in_flight_is_refused() -> None:
    """KIP-903: the leader proposed the epoch that it fetched with; only a proposal with the new one adds it."""
    world = World()
    world.create("t", [0, 1, 2])
    world.fence(2)
    former = world.epoch(2)
    restart(world, 2)
    in_flight = alter(world, [0, 1, 2], new_isr=((0, world.epoch(0)), (1, world.epoch(1)), (2, former)))
    assert [one.error for one in in_flight.response] == [ErrorCode.INELIGIBLE_REPLICA]
    assert in_flight.records == []
    again = alter(world, [0, 1, 2], new_isr=tuple((one, world.epoch(one)) for one in (0, 1, 2)))
    assert changed(again.records) == [{"isr": [0, 1, 2]}]


def test_a_member_that_left_below_min_isr_and_restarts_uncleanly_is_no_longer_eligible() -> None:
    """Its log may lack acknowledged records: it does not lead, though no other replica could."""
    world = World()
    world.create("t", [0, 1], configs={MIN_ISR: "2"})
    world.take(alter(world, [0]))
    assert (world.state().isr, world.state().elr) == ((0,), (1,))
    world.fence(1)
    assert restart(world, 1) == [{"eligible_leader_replicas": []}]
    world.fence(0)
    state = world.state()
    assert (state.leader, state.isr, state.elr, state.last_known_elr) == (-1, (), (0,), (0,))
    assert restart(world, 0, is_clean=True) == [
        {"isr": [0], "leader": 0, "eligible_leader_replicas": [], "last_known_elr": []}
    ]


def test_the_former_leader_of_an_elected_eligible_replica_returns_as_a_follower() -> None:
    """Its proposals in its former epoch are refused. It joins when the new leader proposes it."""
    world = World()
    world.create("t", [0, 1], configs={MIN_ISR: "2"})
    world.fence(1)
    former = world.state()
    world.fence(0)
    restart(world, 1, is_clean=True)
    assert (world.state().leader, world.state().isr, world.state().elr) == (1, (1,), (0,))
    assert restart(world, 0, is_clean=True) == []
    late = alter(world, [0], sender=0, leader_epoch=former.leader_epoch, partition_epoch=former.partition_epoch)
    assert [one.error for one in late.response] == [ErrorCode.FENCED_LEADER_EPOCH]
    joined = alter(world, [0, 1])
    assert changed(world.take(joined)) == [{"isr": [0, 1], "eligible_leader_replicas": []}]
    assert world.state().leader == 1


def test_a_reassignment_that_a_proposal_completes_deposes_the_leader_that_proposed_it() -> None:
    """The response is NEW_LEADER_ELECTED, and what the former leader proposes next is of a former epoch."""
    world = World([0, 1, 2, 3])
    world.create("t", [0, 1, 2], configs={MIN_ISR: "2"})
    reassign(world, (3, 1, 2))
    before = world.state()
    completed = alter(world, [0, 1, 2, 3])
    assert [one.error for one in completed.response] == [ErrorCode.NEW_LEADER_ELECTED]
    world.take(completed)
    state = world.state()
    assert (state.leader, state.leader_epoch, state.isr, state.elr) == (3, before.leader_epoch + 1, (1, 2, 3), ())
    late = alter(world, [1, 2], sender=0, leader_epoch=before.leader_epoch, partition_epoch=before.partition_epoch)
    assert [one.error for one in late.response] == [ErrorCode.FENCED_LEADER_EPOCH]


def test_a_lower_min_isr_clears_eligible_replicas_which_lead_no_more() -> None:
    """ClearElrRecord: members chosen under the former setting may lack what one replica alone acknowledges now."""
    world = World()
    world.create("t", [0, 1], configs={MIN_ISR: "2"})
    world.fence(1)
    assert world.state().elr == (1,)
    lower = {ConfigResource(TOPIC, "t"): {MIN_ISR: Alteration(Operation.SET, "1")}}
    world.take(alter_configs(world.view, lower))
    assert world.state().elr == ()
    world.fence(0)
    assert (world.state().leader, world.state().elr, world.state().last_known_elr) == (-1, (0,), (0,))
    assert restart(world, 1, is_clean=True) == []
    assert world.state().leader == -1
