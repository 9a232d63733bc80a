"""The roles of a replica, and which may follow which: one table, from which docs/replication.md draws its diagram.

A replica begins as soon as its log is open, and ends when it is deleted; an offline one stays so until its process
ends. A state that names no live leader changes no role in ZooKeeper mode; in KRaft mode it ends both. A stop without
deletion only ends a follower's fetches.
Source: Partition.makeLeader and makeFollower, HostedPartition, ReplicaManager.handleLogDirFailure, stopPartitions and
applyLocalFollowersDelta.
"""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple


class Role(Enum):
    """The current role of a replica."""

    NONE = "none"
    """Hosted, but its leader is unknown, dead or absent: it neither serves nor fetches."""
    LEADER = "leader"
    FOLLOWER = "follower"
    OFFLINE = "offline"
    """Its log directory failed."""


_NONE = Role.NONE
_LEADER = Role.LEADER
_FOLLOWER = Role.FOLLOWER
_OFFLINE = Role.OFFLINE


class Transition(NamedTuple):
    """One row: ``old`` is None for a replica's first role, ``new`` is None when it is deleted."""

    old: Role | None
    new: Role | None
    when: str


_NAMED = "the controller's state names this broker as leader"
_OTHER = "the controller's state names another, live broker as leader"
_LEADERLESS = "metadata of KRaft mode name no live leader"
_FAILED = "its log or log directory fails, or a decision about it has a defect"
_DELETED = "stopped with deletion"

TRANSITIONS = (
    Transition(None, _NONE, "its log is open"),
    Transition(_NONE, _LEADER, _NAMED),
    Transition(_NONE, _FOLLOWER, _OTHER),
    Transition(_LEADER, _LEADER, f"{_NAMED} again, in a later leader epoch"),
    Transition(_LEADER, _FOLLOWER, _OTHER),
    Transition(_FOLLOWER, _LEADER, _NAMED),
    Transition(_FOLLOWER, _FOLLOWER, f"{_OTHER}, or the same one in a later leader epoch"),
    Transition(
        _LEADER, _NONE, f"{_LEADERLESS}; or a decision about it has a defect: it serves nothing until it is offline"
    ),
    Transition(_FOLLOWER, _NONE, _LEADERLESS),
    Transition(_NONE, _OFFLINE, _FAILED),
    Transition(_LEADER, _OFFLINE, _FAILED),
    Transition(_FOLLOWER, _OFFLINE, _FAILED),
    Transition(_NONE, None, _DELETED),
    Transition(_LEADER, None, _DELETED),
    Transition(_FOLLOWER, None, _DELETED),
)
ALLOWED = frozenset((row.old, row.new) for row in TRANSITIONS)


def check_transition(old: Role | None, new: Role | None) -> None:
    """Assert that the table allows a change of role; every one goes through here."""
    assert (old, new) in ALLOWED, f"A replica may not change from {old} to {new}"
