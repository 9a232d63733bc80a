"""Senders and receivers: each event with the lane on which it happened and the lane from which it came. Pure.

Lanes are ``clients``, one for each broker, and ``controller``, whichever broker that is. An event names its cause; the
sender follows from it: a produce comes from clients, a fetch's response from the leader that this broker then
followed, a LeaderAndIsr and the verdict on a proposed ISR from the controller, a proposal goes to it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from tidegauge.event_log import broker_of
from tidegauge.lazy_dataclasses import dataclass
from tidegauge_lab.timeline.choice import Event

CLIENTS: Final = "clients"
CONTROLLER: Final = "controller"
Lane = int | str
"""A broker's id, CLIENTS or CONTROLLER."""

_BY_CONTROLLER = frozenset({"election", "controller", "reassignment", "fencing", "elr"})
_FROM_CONTROLLER = frozenset({"LeaderAndIsr", "AlterPartition", "StopReplica"})


@dataclass(frozen=True, slots=True)
class Step:
    """One event in its place.

    Attributes:
        event: what happened.
        lane: where; None for what the lab did to no broker, which concerns all.
        sender: from where the message came that caused it.
        receiver: to where the event sends a message.
    """

    event: Event
    lane: Lane | None
    sender: Lane | None = None
    receiver: Lane | None = None


def steps(events: Iterable[Event]) -> Iterator[Step]:
    """Place each event. All events are needed, from the start: roles tell who fetched from whom."""
    leaders: dict[tuple[int, str, int], int] = {}
    for event in events:
        broker, kind = broker_of(event), event.get("kind")
        if kind in _BY_CONTROLLER:
            yield Step(event, CONTROLLER)
            continue
        if broker is None:
            yield Step(event, None)
            continue
        topic = event.get("topic")
        if topic is None:
            yield Step(event, broker)
            continue
        at = (broker, str(topic), event.get("partition", 0))
        if kind == "role":
            leaders[at] = event.get("leader", -1)
        receiver = CONTROLLER if kind == "isr" and event.get("state") != "committed" else None
        yield Step(event, broker, None if receiver else _sender(event, leaders.get(at, -1), broker), receiver)


def _sender(event: Event, leader: int, broker: int) -> Lane | None:
    cause = event.get("cause")
    if cause == "Produce":
        return CLIENTS if event.get("kind") == "log_end_offset" else None
    if cause == "FetchResponse":
        return None if leader in {-1, broker} else leader
    return CONTROLLER if cause in _FROM_CONTROLLER else None
