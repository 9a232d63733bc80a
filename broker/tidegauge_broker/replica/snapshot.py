"""A broker core's state as a value, and a core that is set to it: for searches that visit states, not histories.

``snapshot`` and ``restore`` hold all that a core of one partition acts on except times, parked operations, and
the content of its log. A new field of Partition, Leader, Follower, Rounds or BrokerCore that decides anything has
to be added here; ``tests/unit/exhaustive`` compares with cores that are never restored.
"""

# The one place beside the classes themselves that knows all their fields:
# ruff: noqa: SLF001
# pyright: reportPrivateUsage=false
from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from tidegauge.control import IsrProposal
from tidegauge.partition import TopicPartition
from tidegauge_broker.replica.broker import BrokerCore
from tidegauge_broker.replica.epoch_cache import EpochCache
from tidegauge_broker.replica.follower import Follower
from tidegauge_broker.replica.isr import CommittedIsr, PendingExpand, PendingShrink
from tidegauge_broker.replica.leader import Leader
from tidegauge_broker.replica.messages import EpochEntry, FetchPartition, FetchRound
from tidegauge_broker.replica.partition import Partition
from tidegauge_broker.replica.ports import LoadedLog
from tidegauge_broker.replica.remote_replica import RemoteReplica
from tidegauge_broker.replica.roles import Role


class ProposalSnapshot(NamedTuple):
    """An ISR that a leader has proposed; ``joiner_epoch``: the broker epoch of the joining replica, -1 for none."""

    leader_epoch: int
    partition_epoch: int
    new_isr: tuple[int, ...]
    joiner_epoch: int


class LeaderSnapshot(NamedTuple):
    """A replica as leader. ``joins`` is the replica that a pending change adds, ``remotes`` the ends it has seen."""

    isr: tuple[int, ...]
    pending: ProposalSnapshot | None
    joins: int | None
    remotes: tuple[tuple[int, int], ...]
    epoch_start: int


class FollowerSnapshot(NamedTuple):
    """A replica as follower. ``in_flight`` is the number of the request it waits for, 0 if it waits for none."""

    leader: int
    in_flight: int
    failed: bool
    truncating: bool
    reconciled: bool


class ReplicaSnapshot(NamedTuple):
    """A process's view of its replica; without either role it only hosts it."""

    leader: int
    leader_epoch: int
    partition_epoch: int
    high_watermark: int
    epochs: tuple[tuple[int, int], ...]
    leads: LeaderSnapshot | None
    follows: FollowerSnapshot | None


class Fixed(NamedTuple):
    """The common part of all states of a search."""

    topic_partition: TopicPartition
    topic_id: str
    replicas: tuple[int, ...]


def snapshot(partition: Partition) -> ReplicaSnapshot:
    """Return the state of a replica."""
    leads, follows = partition.leader_role, partition.follower_role
    return ReplicaSnapshot(
        partition.leader,
        partition.leader_epoch,
        partition.partition_epoch,
        partition.high_watermark,
        tuple((entry.epoch, entry.start_offset) for entry in partition.epochs.entries),
        None if leads is None else _of_leader(leads),
        None if follows is None else _of_follower(follows),
    )


def _of_leader(role: Leader) -> LeaderSnapshot:
    pending = role.isr.proposal
    return LeaderSnapshot(
        tuple(sorted(role.isr.isr)),
        None if pending is None else snapshot_of_proposal(pending),
        role.isr.new_replica if isinstance(role.isr, PendingExpand) else None,
        tuple(sorted((broker, remote.log_end_offset) for broker, remote in role.remotes.items())),
        role.epoch_start_offset,
    )


def _of_follower(role: Follower) -> FollowerSnapshot:
    asks_epochs = role.partition.truncation_rule.name != "kip-320"
    reconciled = not role.truncating if asks_epochs else role.lag is not None
    return FollowerSnapshot(role.leader, role.in_flight or 0, role.failed, role.truncating, reconciled)


def snapshot_of_proposal(proposal: IsrProposal) -> ProposalSnapshot:
    """Return a proposal as a value; the order of an ISR means nothing."""
    isr = tuple(sorted(proposal.new_isr))
    return ProposalSnapshot(proposal.leader_epoch, proposal.partition_epoch, isr, proposal.joiner_epoch)


def proposal_of(saved: ProposalSnapshot, fixed: Fixed) -> IsrProposal:
    """Return a proposal as brokers and the controller speak of it."""
    epoch, version, isr, joiner_epoch = saved
    return IsrProposal(fixed.topic_partition, fixed.topic_id, epoch, isr, version, joiner_epoch=joiner_epoch)


def rounds_in_flight(core: BrokerCore) -> tuple[tuple[int, int], ...]:
    """Return the requests of a core that have no response yet: (number, leader)."""
    in_flight = core.following.rounds._in_flight
    return tuple(sorted((number, chosen.leader) for number, chosen in in_flight.items()))


def number_next_round(core: BrokerCore, number: int) -> None:
    """Have the core's next round carry this number."""
    core.following.rounds._last_request_id = number - 1


def restore(
    core: BrokerCore, saved: ReplicaSnapshot, rounds: Iterable[tuple[int, int]], loaded: LoadedLog, fixed: Fixed
) -> Partition:
    """Set a new core to a state; return the replica that it hosts now.

    Args:
        core: has been given nothing yet.
        saved: what ``snapshot`` returned.
        rounds: what ``rounds_in_flight`` returned.
        loaded: what the core finds on disk.
        fixed: what no state changes.
    """
    at = fixed.topic_partition
    rules = core.partition_states.rules[at.topic]
    partition = core.hosted.by_name[at] = Partition(at, core.broker_id, core.settings, rules, fixed.topic_id, loaded)
    partition.leader = saved.leader
    partition.leader_epoch = saved.leader_epoch
    partition.partition_epoch = saved.partition_epoch
    partition.high_watermark = saved.high_watermark
    partition.epochs = EpochCache()
    partition.epochs._entries = [EpochEntry(*entry) for entry in saved.epochs]  # also such as a broken rule leaves
    if saved.leader_epoch >= 0:
        partition.replicas = fixed.replicas
    for number, leader in rounds:
        core.following.rounds._in_flight[number] = FetchRound(number, leader, [FetchPartition(at, 0, 1)])
    if saved.leads is not None:
        partition.enter(Role.LEADER)
        partition.leader_role = _leader(partition, saved.leads, fixed)
    if saved.follows is not None:
        partition.enter(Role.FOLLOWER)
        role = partition.follower_role = _follower(partition, saved.follows)
        core.following.rounds.begin(partition, role.leader)
    return partition


def _follower(partition: Partition, saved: FollowerSnapshot) -> Follower:
    role = Follower(partition)
    role.leader = saved.leader
    role.in_flight = saved.in_flight or None
    role.failed = saved.failed
    role.truncating = saved.truncating
    role.lag = 0 if saved.reconciled else None
    return role


def _leader(partition: Partition, saved: LeaderSnapshot, fixed: Fixed) -> Leader:
    role = Leader(partition)
    role.epoch_start_offset = saved.epoch_start
    role.remotes = {broker: RemoteReplica(broker, end) for broker, end in saved.remotes}
    if saved.pending is None:
        role.isr = CommittedIsr(saved.isr)
        return role
    proposal = proposal_of(saved.pending, fixed)
    if saved.joins is not None:
        role.isr = PendingExpand(saved.isr, saved.joins, proposal)
    else:
        role.isr = PendingShrink(saved.isr, proposal)
    return role
