"""Requests of a member of a classic group in a cluster that is driven by hand: one of each kind in flight."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tidegauge_proof.hand.coordination import Call, Coordination
from tidegauge_proof.hand.group_names import OFFSETS
from tidegauge_proof.hand.messages import CLIENT
from tidegauge_proof.simulator.groups.members import Member


def ask_for_member(
    coordination: Coordination,
    member: Member,
    kind: str,
    request: Any,
    responded: Callable[[Any], None],
    hears: Callable[[], bool] = lambda: True,
) -> bool:
    """Send a member's request to the group coordinator; return whether there is one.

    Args:
        coordination: the cluster's coordinators.
        member: takes the response in.
        kind: of request; a later one of the same kind takes its place.
        request: to send.
        responded: called with the response when the member has taken it in.
        hears: whether the member's process takes a response now; else the request stays in flight.
    """
    token = object()

    def done(result: Any) -> None:
        if member.in_flight.get(kind) is token and hears():
            del member.in_flight[kind]
            member.responded(kind, result)
            responded(result)

    def lost() -> None:
        if member.in_flight.get(kind) is token:
            del member.in_flight[kind]

    member.in_flight[kind] = token
    is_sent = coordination.ask(OFFSETS, Call(CLIENT, request, done, lost))
    if not is_sent:
        lost()
    return is_sent
