"""The words that explanations of groups share. Pure."""

from __future__ import annotations

from tidegauge_client.group_descriptions import GroupDescription, MemberDescription


def lasting(group: GroupDescription) -> str:
    """Return the age of a group's state, as a clause; empty if unknown."""
    return "" if group.state_age_ms is None else f" for {seconds(group.state_age_ms)}"


def because(group: GroupDescription) -> str:
    """Return why the last rebalance began, as a clause; empty if unknown."""
    return f", because: {group.reason}" if group.reason else ""


def at_most(left_ms: int | None) -> str:
    """Return how long it may last still, in words."""
    return "for an unknown time" if left_ms is None else f"for another {seconds(left_ms)} at most"


def session_left(member: MemberDescription) -> str:
    """Return the rest of a member's session, as a clause; empty if unknown."""
    left_ms = member.session_left_ms
    return "" if left_ms is None else f"; its session lasts another {seconds(left_ms)}"


def seconds(duration_ms: int) -> str:
    """Return a duration in seconds, in words."""
    return f"{duration_ms / 1000:.1f} s" if duration_ms < 10_000 else f"{round(duration_ms / 1000)} s"
