"""The words that explanations of groups share. Pure."""

from __future__ import annotations

from tidegauge_client.group_descriptions import GroupDescription, MemberDescription


def lasting(group: GroupDescription) -> str:
    """Return how long a group has been in its state, as a clause; empty: that is not known."""
    return "" if group.state_age_ms is None else f" for {seconds(group.state_age_ms)}"


def because(group: GroupDescription) -> str:
    """Return why the last rebalance began, as a clause; empty: that is not known."""
    return f", because: {group.reason}" if group.reason else ""


def at_most(left_ms: int | None) -> str:
    """Return how long it may last still, in words."""
    return "for an unknown time" if left_ms is None else f"for another {seconds(left_ms)} at most"


def session_left(member: MemberDescription) -> str:
    """Return how long the session of a member lasts without a heartbeat, as a clause; empty: that is not known."""
    left_ms = member.session_left_ms
    return "" if left_ms is None else f"; its session lasts another {seconds(left_ms)}"


def seconds(duration_ms: int) -> str:
    """Return a duration in seconds, in words."""
    return f"{duration_ms / 1000:.1f} s" if duration_ms < 10_000 else f"{round(duration_ms / 1000)} s"
