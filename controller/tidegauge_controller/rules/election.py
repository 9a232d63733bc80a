"""Leader election: Kafka's strategies as pure functions.

Each takes a partition's assignment, its state and the online brokers, and returns the state to write, or None if there
is no eligible leader. The leader epoch rises by one in every one of them; the partition epoch is the version that the
write expects. Source: kafka.controller.Election and PartitionLeaderElectionAlgorithms.

| strategy | leader | ISR |
|---|---|---|
| offline | first assigned replica online and in the ISR | its members that are online, order kept |
| offline, unclean allowed and no ISR member online | first assigned replica online | only the leader; recovering |
| reassign | first target replica online and in the ISR | unchanged |
| preferred | the first assigned replica, if online and in the ISR | unchanged |
| tried in place of offline | a function's choice of those online | as offline, or unclean if it is no member |
| controlled shutdown | first assigned replica in the ISR, alive, not shutting down | without those that shut down |
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum

from tidegauge.cluster_metadata import Leadership
from tidegauge.control import NO_LEADER
from tidegauge.partition import TopicPartition
from tidegauge_controller.rules.cluster_state import ClusterState

Choose = Callable[[tuple[int, ...], tuple[int, ...], tuple[int, ...]], int | None]
"""Chooses a leader by the assigned replicas, the online ones of them, and the ISR; None: there is no leader."""


class Strategy(Enum):
    """The strategy that chooses a leader."""

    INITIAL = "initial"
    OFFLINE = "offline"
    UNCLEAN = "unclean"
    REASSIGN = "reassign"
    PREFERRED = "preferred"
    CONTROLLED_SHUTDOWN = "controlled-shutdown"
    REMOVE_FROM_ISR = "remove-from-isr"
    RESTARTED = "restarted"


@dataclass(frozen=True, slots=True)
class Election:
    """The outcome of an election: the state to write (None: no eligible leader) and who learns of it."""

    leadership: Leadership | None
    recipients: tuple[int, ...]


def next_state(
    old: Leadership, controller_epoch: int, leader: int, isr: tuple[int, ...], *, recovering: bool
) -> Leadership:
    """Return the state in the next leader epoch."""
    return Leadership(leader, old.leader_epoch + 1, isr, recovering, old.partition_epoch, controller_epoch)


def _elected(
    context: ClusterState,
    old: Leadership,
    leader: int,
    isr: tuple[int, ...],
    recipients: tuple[int, ...],
    *,
    recovering: bool,
) -> Election:
    """Return the election of an ISR member; only unclean ones add members."""
    assert leader in isr, "the ISR holds its leader"
    assert leader in recipients, "the leader hears of it"
    assert recovering or set(isr) <= set(old.isr), "only an unclean election lets others in"
    return Election(next_state(old, context.epoch, leader, isr, recovering=recovering), recipients)


def elect_initial(context: ClusterState, at: TopicPartition) -> Election:
    """Elect for a new partition: the live assigned replicas are the ISR, the first of them leads, in epoch 0."""
    live = tuple([replica for replica in context.assignment(at).replicas if context.is_online(replica, at)])
    if not live:
        return Election(None, ())
    return Election(
        Leadership(live[0], 0, live, recovering=False, partition_epoch=0, controller_epoch=context.epoch), live
    )


def needs_unclean(context: ClusterState, at: TopicPartition, old: Leadership) -> bool:
    """Whether no ISR member is online, so that only an unclean election could help."""
    return not any(context.is_online(replica, at) for replica in old.isr)


def elect_offline(context: ClusterState, at: TopicPartition, old: Leadership, *, unclean: bool) -> Election:
    """Elect after the loss of a leader: an online ISR member, or if allowed and there is none, any online replica."""
    assigned = context.assignment(at).replicas
    live = tuple([replica for replica in assigned if context.is_online(replica, at)])
    for replica in live:
        if replica in old.isr:
            isr = tuple([member for member in old.isr if context.is_online(member, at)])
            return _elected(context, old, replica, isr, live, recovering=old.recovering)
    if unclean and live:
        return _elected(context, old, live[0], (live[0],), live, recovering=True)
    return Election(None, live)


def elect_tried(context: ClusterState, at: TopicPartition, old: Leadership, choose: Choose) -> Election:
    """Elect after the loss of a leader by a function's choice, which is tried in place of Kafka's rule."""
    assigned = context.assignment(at).replicas
    live = tuple([replica for replica in assigned if context.is_online(replica, at)])
    chosen = choose(assigned, live, old.isr) if live else None
    if chosen not in live:
        return Election(None, live)
    if chosen in old.isr:
        isr = tuple([member for member in old.isr if context.is_online(member, at)])
        return _elected(context, old, chosen, isr, live, recovering=old.recovering)
    return _elected(context, old, chosen, (chosen,), live, recovering=True)


def elect_reassigned(context: ClusterState, at: TopicPartition, old: Leadership) -> Election:
    """Elect at the end of a reassignment whose target does not contain the leader, or whose leader is dead."""
    target = context.assignment(at).target
    for replica in target:
        if context.is_online(replica, at) and replica in old.isr:
            return _elected(context, old, replica, old.isr, target, recovering=old.recovering)
    return Election(None, target)


def can_lead(context: ClusterState, at: TopicPartition, state: Leadership, broker_id: int) -> bool:
    """Whether a replica is online and in the ISR, so that it may be elected."""
    return broker_id in state.isr and context.is_online(broker_id, at)


def elect_preferred(context: ClusterState, at: TopicPartition, old: Leadership) -> Election:
    """Elect the first assigned replica."""
    assigned = context.assignment(at).replicas
    if assigned and can_lead(context, at, old, assigned[0]):
        return _elected(context, old, assigned[0], old.isr, assigned, recovering=old.recovering)
    return Election(None, assigned)


def elect_for_controlled_shutdown(context: ClusterState, at: TopicPartition, old: Leadership) -> Election:
    """Elect before the leader's broker shuts down: another ISR member takes over."""
    live = tuple(
        [
            replica
            for replica in context.assignment(at).replicas
            if context.is_online(replica, at, shutting_down_counts=True)
        ]
    )
    for replica in live:
        if replica in old.isr and replica not in context.shutting_down:
            isr = tuple([member for member in old.isr if member not in context.shutting_down])
            return _elected(context, old, replica, isr, live, recovering=old.recovering)
    return Election(None, live)


def remove_from_isr(old: Leadership, broker_id: int, controller_epoch: int) -> Leadership:
    """Remove an offline replica from the ISR unless it is the last. No leader if it led; the leader epoch rises."""
    isr: Sequence[int] = old.isr if len(old.isr) == 1 else [member for member in old.isr if member != broker_id]
    leader = NO_LEADER if old.leader == broker_id else old.leader
    return next_state(old, controller_epoch, leader, tuple(isr), recovering=old.recovering)
