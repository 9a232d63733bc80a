"""A schedule in words, as ``tidegauge simulate`` tells one: the action of each step, and the logs it changed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tidegauge.control import NO_LEADER
from tidegauge_proof.exhaustive.cluster import Action, ClusterState
from tidegauge_proof.exhaustive.frozen import BrokerState, ControllerState, Exchange, Letter


def tell(schedule: Sequence[Action], states: Sequence[ClusterState]) -> list[str]:
    """Return a line for each step; ``states``: before the first and after each."""
    lines = []
    for number, action in enumerate(schedule):
        before = states[number]
        after = states[number + 1] if number + 1 < len(states) else None
        lines.append(f"{_done(before, after, action)}{'' if after is None else _changes(before, after)}")
    return lines


def picture(state: ClusterState) -> str:
    """Every log, with the high watermark as a bar, and what the controller holds."""
    now: ControllerState = state.controller.value
    logs = "  ".join(f"{broker}: {_log(cell.value)}" for broker, cell in enumerate(state.brokers, 1))
    return f"{logs}  ({_decision(now)})"


def _done(before: ClusterState, after: ClusterState | None, action: Action) -> str:
    kind, *rest = action
    if kind in _SIMPLE:
        return _SIMPLE[kind].format(*rest)
    if kind == "leader_and_isr":
        letter: Letter = rest[0]
        role = "leads" if letter.leader == letter.broker else f"follows {letter.leader}"
        return f"{letter.broker} hears that it {role} in epoch {letter.leader_epoch}, ISR {_ids(letter.isr)}"
    if kind in {"elect", "drop", "look", "rebalance"}:
        decided = "" if after is None else f": {_decision(after.controller.value)}"
        return f"the controller {_CONTROLLER[kind].format(*rest)}{decided}"
    if kind == "alter":
        verdict = "" if rest[1] else ", but the verdict is lost"
        return f"the controller judges the ISR that {rest[0]} proposes{verdict}"
    if kind == "round":
        return _round(before, *rest)
    if kind == "shrink":
        return f"the lag time is over at {rest[0]}{f', but not for {_ids(rest[1])}' if rest[1] else ''}"
    exchange: Exchange = rest[0]
    asked = f"{exchange.follower} to {exchange.request.leader}"
    return _MESSAGES[kind].format(what="a response" if exchange.response else "a request", asked=asked)


def _round(before: ClusterState, follower: int, may_join: Any, has_response: Any) -> str:
    replica = before.brokers[follower - 1].value.replica
    leader, truncating = replica.follows.leader, replica.follows.truncating
    asks = f"asks {leader} where its latest epoch ends" if truncating else f"fetches from {leader}"
    joins = ", which takes it for live" if may_join else ""
    return f"{follower} {asks}{joins}{'' if has_response else '; the response is lost'}"


_SIMPLE = {
    "produce": "produce at {0}",
    "ask": "{0} sends a request",
    "checkpoint": "{0} writes its high watermark to disk",
    "kill": "kill {0}",
    "power": "power loss at {0}, which keeps {1}",
    "start": "start {0}",
    "expire": "the session of {0} ends",
    "register": "{0} registers again",
}
_CONTROLLER = {
    "elect": "elects {0}",
    "drop": "takes {0} out of the ISR",
    "look": "sees who is registered",
    "rebalance": "elects the preferred leader",
}
_MESSAGES = {
    "arrive": "{what} of {asked} arrives",
    "receive": "{what} for {asked} arrives",
    "lose": "{what} of {asked} is lost",
}


def _changes(before: ClusterState, after: ClusterState) -> str:
    changed = [
        f"{broker} {_log(now.value)}"
        for broker, (was, now) in enumerate(zip(before.brokers, after.brokers, strict=True), 1)
        if _log(was.value) != _log(now.value)
    ]
    known, now = before.controller.value, after.controller.value
    if known.isr != now.isr and known.leader_epoch == now.leader_epoch:
        changed.append(_decision(now))
    return f" -> {', '.join(changed)}" if changed else ""


def _log(state: BrokerState) -> str:
    records = [f"m{number}@{epoch}" for epoch, number in state.records]
    high_watermark = state.checkpoint if state.replica is None else state.replica.high_watermark
    records.insert(high_watermark, "|")
    return f"[{' '.join(records)}]"


def _decision(state: ControllerState) -> str:
    leader = "none" if state.leader == NO_LEADER else state.leader
    return f"leader {leader} epoch {state.leader_epoch} ISR {_ids(state.isr)}"


def _ids(brokers: Sequence[int]) -> str:
    return ",".join(map(str, brokers))
