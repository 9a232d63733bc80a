"""Effects that a member of a group asks of its shell: requests to the coordinator, rebalance steps. Pure values."""

from __future__ import annotations

from typing import NamedTuple

from tidegauge.errors import TidegaugeError
from tidegauge.lazy_dataclasses import dataclass


class Generation(NamedTuple):
    """A generation of a group with the member's id in it; -1 and empty if there is none."""

    number: int = -1
    member_id: str = ""
    protocol: str = ""


@dataclass(frozen=True, slots=True)
class FindCoordinator:
    """Look the coordinator up, at any broker."""


@dataclass(frozen=True, slots=True)
class PrepareJoin:
    """Commit, tell the listener, give all partitions up; ``is_lost``: others may already read them."""

    is_lost: bool


@dataclass(frozen=True, slots=True)
class SendJoin:
    """Send JoinGroup, and SyncGroup after it."""

    generation: Generation
    reason: str


@dataclass(frozen=True, slots=True)
class TakeAssignment:
    """Read the partitions of an assignment, and tell the listener."""

    generation: Generation
    assignment: bytes


@dataclass(frozen=True, slots=True)
class SendHeartbeat:
    """Send a heartbeat."""

    generation: Generation


@dataclass(frozen=True, slots=True)
class LeaveGroup:
    """Send LeaveGroup."""

    generation: Generation
    reason: str


@dataclass(frozen=True, slots=True)
class Fail:
    """Raise an error to the application."""

    problem: TidegaugeError


Effect = FindCoordinator | PrepareJoin | SendJoin | TakeAssignment | SendHeartbeat | LeaveGroup | Fail
