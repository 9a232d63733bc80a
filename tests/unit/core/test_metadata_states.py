"""States of KRaft's metadata: a leader epoch may come again, and there may be no leader (ReplicaManager.applyDelta)."""

from __future__ import annotations

from dataclasses import replace

import pytest
from lone_broker import ME, OTHER, A, LoneBroker, broker_of, fetch, produce

from tidegauge.errors import ErrorCode
from tidegauge.partition_state import NO_LEADER, PartitionState
from tidegauge_broker.replica.roles import Role

THIRD = 3
STATE = PartitionState(A, "id", 1, ME, 0, (ME, OTHER), 0, (ME, OTHER))


def take(broker: LoneBroker, state: PartitionState) -> ErrorCode:
    """Take over a state of the metadata; return its outcome."""
    core = broker.core
    loaded = {at: broker.load(at) for at in core.logs_needed([state])}
    errors, effects = core.take_over(
        [state],
        loaded,
        broker.now_ms,
        cause="Metadata",
        may_refuse=False,
        report=lambda *_: None,
        of_metadata=True,
    )
    broker.execute(effects)
    return errors[A]


def leading() -> LoneBroker:
    """A broker that leads A in leader epoch 0 and partition epoch 0."""
    broker = broker_of(A)
    assert take(broker, STATE) is ErrorCode.NONE
    return broker


def test_the_same_leader_epoch_brings_another_isr_and_keeps_what_is_known_of_followers() -> None:
    """Partition.makeLeader: epoch start offset and replica states stay unless the leader epoch rose."""
    broker = leading()
    produce(broker, A)
    fetch(broker, {A: 1}, replica_id=OTHER)
    partition = broker.core.partition(A)
    assert partition is not None
    role = partition.leader_role
    assert role is not None
    remote = role.remotes[OTHER]
    produce(broker, A)
    take(broker, replace(STATE, isr=(ME,), partition_epoch=1))
    assert partition.leader_role is role
    assert role.remotes[OTHER] is remote
    assert remote.log_end_offset == 1
    assert role.epoch_start_offset == 0
    assert role.isr.isr == (ME,)
    assert (partition.leader_epoch, partition.partition_epoch) == (0, 1)


def test_a_smaller_isr_lets_the_high_watermark_move() -> None:
    """Partition.makeLeader ends with maybeIncrementLeaderHW, since the ISR may be down to one."""
    broker = leading()
    produce(broker, A)
    partition = broker.core.partition(A)
    assert partition is not None
    assert partition.high_watermark == 0
    broker.now_ms += 60_000
    take(broker, replace(STATE, isr=(ME,), partition_epoch=1))
    assert partition.high_watermark == 1


def test_a_reassignment_adds_a_replica_in_the_same_leader_epoch() -> None:
    """KIP-455 in KRaft: the first step of a reassignment names no leader, so the leader epoch stays."""
    broker = leading()
    take(broker, replace(STATE, partition_epoch=1, replicas=(ME, OTHER, THIRD), adding_replicas=(THIRD,)))
    partition = broker.core.partition(A)
    assert partition is not None
    assert partition.leader_role is not None
    assert set(partition.leader_role.remotes) == {OTHER, THIRD}
    assert partition.adding_replicas == (THIRD,)


@pytest.mark.parametrize("partition_epoch", [0, 1])
def test_a_state_that_is_no_newer_changes_nothing(partition_epoch: int) -> None:
    """The response to AlterPartition may be quicker than the metadata: a lower partition epoch is skipped."""
    broker = leading()
    take(broker, replace(STATE, isr=(ME,), partition_epoch=1))
    assert take(broker, replace(STATE, partition_epoch=partition_epoch)) is ErrorCode.NONE
    partition = broker.core.partition(A)
    assert partition is not None
    assert partition.leader_role is not None
    assert partition.leader_role.isr.isr == (ME,)


@pytest.mark.parametrize("was", [Role.LEADER, Role.FOLLOWER])
def test_without_a_leader_a_replica_neither_leads_nor_fetches(was: Role) -> None:
    """ReplicaManager.applyLocalFollowersDelta: leader -1 makes no fetcher; a former leader must not lead on."""
    broker = broker_of(A)
    take(broker, STATE if was is Role.LEADER else replace(STATE, leader=OTHER))
    partition = broker.core.partition(A)
    assert partition is not None
    assert partition.role is was
    take(broker, replace(STATE, leader=NO_LEADER, leader_epoch=1, partition_epoch=1, isr=()))
    assert partition.role is Role.NONE
    assert partition.leader_role is None
    assert partition.follower_role is None
    assert partition.leader_epoch == 1
    assert partition.refusal_as_leader(0) is ErrorCode.FENCED_LEADER_EPOCH


def test_a_leader_comes_back_after_none() -> None:
    """The next leader epoch names a leader again."""
    broker = leading()
    take(broker, replace(STATE, leader=NO_LEADER, leader_epoch=1, partition_epoch=1, isr=()))
    take(broker, replace(STATE, leader=OTHER, leader_epoch=2, partition_epoch=2))
    partition = broker.core.partition(A)
    assert partition is not None
    assert partition.role is Role.FOLLOWER
    take(broker, replace(STATE, leader=ME, leader_epoch=3, partition_epoch=3))
    assert partition.role is Role.LEADER
