"""The states of a group, and which may follow which: one table, from which docs/groups.md draws its diagram.

Source: GroupState and its ``validPreviousStates`` in Kafka's GroupMetadata.
"""

from __future__ import annotations

from typing import NamedTuple

from tidegauge.groups import GroupState

EMPTY = GroupState.EMPTY
PREPARING = GroupState.PREPARING_REBALANCE
COMPLETING = GroupState.COMPLETING_REBALANCE
STABLE = GroupState.STABLE
DEAD = GroupState.DEAD


class Transition(NamedTuple):
    """One row: ``old`` is None for a group's first state."""

    old: GroupState | None
    new: GroupState
    when: str


TRANSITIONS = (
    Transition(None, EMPTY, "first JoinGroup or commit, or loaded without members"),
    Transition(None, STABLE, "loaded with members"),
    Transition(EMPTY, PREPARING, "a member joins"),
    Transition(PREPARING, COMPLETING, "the join phase ends with members"),
    Transition(PREPARING, EMPTY, "the join phase ends without members"),
    Transition(COMPLETING, STABLE, "the leader's assignment is committed"),
    Transition(COMPLETING, PREPARING, "a member joins, leaves or expires; the write fails; a SyncGroup is missing"),
    Transition(STABLE, PREPARING, "a member joins, leaves or expires; the leader rejoins; a subscription changes"),
    Transition(EMPTY, DEAD, "deleted, or the last offset expired"),
    Transition(EMPTY, DEAD, "unloaded"),
    Transition(PREPARING, DEAD, "unloaded"),
    Transition(COMPLETING, DEAD, "unloaded"),
    Transition(STABLE, DEAD, "unloaded"),
)
ALLOWED = frozenset((row.old, row.new) for row in TRANSITIONS)
CAN_REBALANCE = frozenset(row.old for row in TRANSITIONS if row.new is PREPARING)
"""The states in which a rebalance may begin (GroupMetadata.canRebalance)."""
