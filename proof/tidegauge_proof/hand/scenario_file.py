"""A schedule as a scenario file, to be played on real processes: ``tidegauge scenario run FILE`` (docs/scenarios.md).

An action on a process has a step there. An action that only a cluster in memory has (hold one message, lose it,
repeat it) becomes a comment, and the file says so.
"""

from __future__ import annotations

from collections.abc import Callable

from tidegauge.control import NO_LEADER
from tidegauge_proof.hand import facts
from tidegauge_proof.hand.actions import ABOUT_MESSAGES, ACKS, KINDS, Action
from tidegauge_proof.hand.client_scenario import (
    KINDS_WITH_A_STEP,
    client_of,
    step_of,
    step_that_waits,
    topics_of,
    waits_for,
)
from tidegauge_proof.hand.schedule import write_schedule
from tidegauge_proof.hand.session import Session
from tidegauge_proof.hand.settings import Settings

TOPIC = "story"
COMMAND = "tidegauge scenario run played.yaml"
_OF_CLIENTS = [
    "    group.min.session.timeout.ms: 1000",
    "    transaction.abort.timed.out.transaction.cleanup.interval.ms: 1000",
]
"""Settings of the coordinators that are lower here than by default."""
_V2 = ["  mode: kraft", "  controllers: 1", "  features: {transaction.version: 2}"]


def as_scenario(session: Session) -> str:
    """Return the file of what a session has done so far."""
    schedule, settings = session.schedule, session.schedule.settings
    again = Session()
    again.begin(settings)
    config = [f"min.insync.replicas: {settings.min_insync_replicas}"]
    config += ["unclean.leader.election.enable: true"] if settings.unclean else []
    lines = [
        "title: A schedule that was played by hand in a browser.",
        "teaches: |",
        f"  {write_schedule(schedule)}",
        f"rule: replica.truncation.rule={settings.rule_name}",
        "cluster:",
        f"  brokers: {max(2, len(settings.brokers))}",
        f"  controller: {settings.controller}",
        "  settings:",
        f"    replica.truncation.rule: {settings.rule_name}",
        *(["    log.flush.interval.messages: 1"] if settings.flushes else []),
        *(_OF_CLIENTS if settings.placed else []),
        *(_V2 if settings.transactions_v2 else []),
        "topics:",
        *_topics(settings, config),
        "steps:",
    ]
    count = len(lines)
    open_ends: set[tuple[str, int]] = set()
    for action in schedule.actions:
        leader = again.cluster.world.state_now.leader
        lines += _awaited(action, again, open_ends)
        number = _next_number(action, again)
        said = again.do(action)
        if action.kind != "wait":  # real time goes on by itself
            lines += _steps_of(action, number, said, again, session)
        if (client := waits_for(action, again.cluster)) is not None:
            open_ends.add(client)
        now = again.cluster.world.state_now.leader
        if now not in {leader, NO_LEADER}:
            lines.append(f"  - wait_leader: {now}")
    if all(one.startswith("  #") for one in lines[count:]):
        lines.append("  - expect: {leader: " + str(settings.assignment[0]) + "}")
    lines += _end(again)
    return "\n".join(lines) + "\n"


def _end(session: Session) -> list[str]:
    """Return the final logs as a comment: real processes take more time for a step."""
    logs = facts.logs_of(session.cluster)
    named = [f"{broker}: [{', '.join(str(one['value']) for one in log)}]" for broker, log in logs.items()]
    return [f"  # in the browser the logs were {{{', '.join(named)}}}"]


def _awaited(action: Action, session: Session, open_ends: set[tuple[str, int]]) -> list[str]:
    """Return the step that waits for a client's last outcome, if needed."""
    client = client_of(action)
    if client is None or client not in open_ends:
        return []
    open_ends.discard(client)
    return [f"  - {step_that_waits(client, session.schedule.settings, session.cluster)}"]


def _topics(settings: Settings, config: list[str]) -> list[str]:
    if settings.placed:
        return topics_of(settings, dict(one.split(": ") for one in config))
    return [f"  - {{name: {TOPIC}, assignment: {list(settings.assignment)}, config: {{{', '.join(config)}}}}}"]


def _next_number(action: Action, session: Session) -> int:
    """Return the number of the next record of an action's partition."""
    has_partition = "partition" in [one.name for one in KINDS[action.kind].parameters]
    place = action.value("partition") if has_partition else 0
    data = session.cluster.data
    return data[place].clients.numbers if place < len(data) else 0


def _steps_of(action: Action, number: int, said: str, session: Session, played: Session) -> list[str]:
    if action.kind in KINDS_WITH_A_STEP:
        return [f"  - {step_of(action, session.schedule.settings, session.cluster, number, played.cluster)}"]
    if action.kind in ABOUT_MESSAGES or action.kind not in _STEPS:
        return [f"  # {said} (no step does this to real processes)"]
    return [f"  - {step}" for step in _STEPS[action.kind](action, number, session)]


def _produce(action: Action, number: int, session: Session) -> list[str]:
    values = [session.cluster.label(number + place) for place in range(action.value("count"))]
    acks = {0: "0", 1: "1", -1: "all"}[ACKS[action.value("acks")]]
    named = values[0] if len(values) == 1 else f"[{', '.join(values)}]"
    return [f"produce: {{values: {named}, acks: {acks}, via: {action.value('broker')}, answer: later}}"]


def _plain(step: str) -> Callable[[Action, int, Session], list[str]]:
    return lambda action, number, session: [f"{step}: {action.value('broker')}"]  # noqa: ARG005 - one form for all


def _hold(action: Action, number: int, session: Session) -> list[str]:
    del number, session
    broker = action.value("broker")
    return [
        f"hold_fetch: {broker}" if action.kind == "hold_fetch" else f"hold_fetch: {{brokers: {broker}, release: true}}"
    ]


def _cut(action: Action, number: int, session: Session) -> list[str]:
    del number, session
    return [f"isolate: {{broker: {action.value('broker')}, from: [{action.value('other')}], direction: out}}"]


def _part(action: Action, number: int, session: Session) -> list[str]:
    del number, session
    return [f"isolate: {{broker: {action.value('broker')}, from: zookeeper}}"]


def _heal(action: Action, number: int, session: Session) -> list[str]:
    del action, number
    brokers = [b for b in session.cluster.world.brokers if session.cluster.world.is_up(b)]
    return [f"heal: {brokers}"]


def _power_loss(action: Action, number: int, session: Session) -> list[str]:
    del number, session
    broker = action.value("broker")
    return [f"kill: {broker}", f"drop_unsynced: {broker}"]


_STEPS: dict[str, Callable[[Action, int, Session], list[str]]] = {
    "produce": _produce,
    **{name: _plain(name) for name in ("kill", "stop", "pause", "resume", "start", "step_fetch")},
    "flush": _plain("sync"),
    "hold_fetch": _hold,
    "release_fetch": _hold,
    "cut_link": _cut,
    "part_zookeeper": _part,
    "heal_links": _heal,
    "power_loss": _power_loss,
    "elect": lambda action, number, session: ["elect: preferred"],  # noqa: ARG005 - one form for all
}
