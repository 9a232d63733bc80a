"""Stable offsets in histories of consume, transform, produce: given out by a coordinator whose broker leads, else not.

The cluster is one of ``forced_history``: three brokers, and nothing happens but what a test does.
"""

from __future__ import annotations

from typing import Any

import pytest

from tidegauge.errors import ErrorCode
from tidegauge.groups import OffsetFetch
from tidegauge.partition import TopicPartition
from tidegauge.znodes import PartitionStateNode
from tidegauge_proof.simulator.actions import swarm_of
from tidegauge_proof.simulator.exactly_once.cluster import OFFSETS, Call, Caller
from tidegauge_proof.simulator.exactly_once.network import TIMELY
from tidegauge_proof.simulator.exactly_once.stage import Stage, staged
from tidegauge_proof.simulator.groups.members import GROUP, TOPIC
from tidegauge_proof.simulator.swarm import MUST_SURVIVE

NONE, NOT_COORDINATOR = ErrorCode.NONE, ErrorCode.NOT_COORDINATOR
AT = TopicPartition(TOPIC, 0)


@pytest.fixture
def stage() -> Stage:
    swarm = swarm_of(0, "kip-320", MUST_SURVIVE, directories=1)
    swarm.replicas, swarm.min_insync_replicas, swarm.flushes = (1, 2, 3), 2, False
    stage = staged(0, TIMELY, swarm)
    stage.cluster.network.is_calm = True
    for coordinators in (stage.cluster.transactions, stage.cluster.groups):
        while loading := coordinators.loading():
            coordinators.go_on_loading(loading[0])
    stage.world.pass_time(1_000)
    _followers_fetch(stage)
    return stage


def _followers_fetch(stage: Stage) -> None:
    for broker_id in stage.world.brokers:
        stage.world.whole_round(broker_id)
    stage.cluster.settle()


def _leader(stage: Stage) -> int:
    return stage.cluster.partitions[OFFSETS].state_now.leader


def _fetch(stage: Stage, *, require_stable: bool = True) -> list[Any]:
    """Ask the leader for offsets; return the list that gets the result once the coordinator has responded."""
    results: list[Any] = []
    request = OffsetFetch(GROUP, (AT,), require_stable=require_stable)
    call = Call(Caller("copier"), request, results.append, lambda: not results)
    stage.cluster.ask_coordinator("group", _leader(stage), call)
    _deliver(stage)
    return results


def _deliver(stage: Stage) -> None:
    """Deliver the messages on their way now."""
    stage.cluster.network.deliver_all()
    stage.cluster.settle()


def _fetch_without_zookeeper(stage: Stage) -> list[Any]:
    """Fetch stable offsets of a leader without a session, whose read has failed."""
    stage.world.without_session.add(_leader(stage))
    results = _fetch(stage)
    _deliver(stage)
    return results


def _pass_time(stage: Stage, ms: int) -> None:
    stage.world.pass_time(ms)
    stage.cluster.step_timers()


def test_the_state_in_zookeeper_is_read_after_the_coordinators_result(stage: Stage):
    results = _fetch(stage)
    assert [message.words for message in stage.cluster.network.messages] == [
        f"read of the state of {OFFSETS} by {_leader(stage)}"
    ]
    _deliver(stage)
    assert not results, "the response is another message"
    _deliver(stage)
    assert [result.error for result in results] == [NONE]


def test_offsets_that_need_not_be_stable_are_given_out_at_once(stage: Stage):
    results = _fetch(stage, require_stable=False)
    _deliver(stage)
    assert [result.error for result in results] == [NONE]


def test_a_leader_that_is_replaced_before_the_read_does_not_respond_with_offsets(stage: Stage):
    results = _fetch(stage)
    state = stage.world.store.state(OFFSETS)
    next_leader = next(one for one in stage.world.brokers if one != state.leader)
    next_state = PartitionStateNode(next_leader, state.leader_epoch + 1, state.isr, state.controller_epoch)
    stage.world.store.write_state(OFFSETS, next_state)
    _deliver(stage)
    _deliver(stage)
    assert [result.error for result in results] == [NOT_COORDINATOR]


def test_without_zookeeper_followers_prove_the_leadership(stage: Stage):
    results = _fetch_without_zookeeper(stage)
    for _ in range(2):
        assert not stage.cluster.network.messages
        _pass_time(stage, 100)
        _followers_fetch(stage)
    _pass_time(stage, 100)
    _deliver(stage)
    assert [result.error for result in results] == [NONE]


def test_a_leader_without_followers_does_not_respond_with_offsets(stage: Stage):
    """Its process may be paused before it has looked for the last time; it looks again when it goes on."""
    leader = _leader(stage)
    results = _fetch_without_zookeeper(stage)
    stage.world.paused.add(leader)
    _pass_time(stage, 2_000)
    assert not stage.cluster.network.messages
    stage.world.paused.clear()
    _pass_time(stage, 1)
    _deliver(stage)
    assert [result.error for result in results] == [NOT_COORDINATOR]


def test_a_process_that_dies_meanwhile_does_not_respond(stage: Stage):
    results = _fetch_without_zookeeper(stage)
    stage.world.kill(_leader(stage))
    stage.world.start(_leader(stage))
    _pass_time(stage, 2_000)
    _deliver(stage)
    assert not results
