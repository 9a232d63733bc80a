"""A schedule as a scenario file, to be played on real processes: ``tidegauge scenario run FILE`` (docs/scenarios.md).

An action on a process has a step there. An action that only a cluster in memory has (hold one message, lose it,
repeat it) becomes a comment, and the file says so.
"""

from __future__ import annotations

from collections.abc import Callable

from tidegauge.control import NO_LEADER
from tidegauge_proof.hand import facts
from tidegauge_proof.hand.actions import ABOUT_MESSAGES, ACKS, Action
from tidegauge_proof.hand.schedule import write_schedule
from tidegauge_proof.hand.session import Session

TOPIC = "story"
COMMAND = "tidegauge scenario run played.yaml"


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
        "topics:",
        f"  - {{name: {TOPIC}, assignment: {list(settings.assignment)}, config: {{{', '.join(config)}}}}}",
        "steps:",
    ]
    count = len(lines)
    for action in schedule.actions:
        leader = again.cluster.world.state_now.leader
        number = again.cluster.world.clients.numbers
        said = again.do(action)
        lines += _steps_of(action, number, said, again)
        now = again.cluster.world.state_now.leader
        if now not in {leader, NO_LEADER}:
            lines.append(f"  - wait_leader: {now}")
    if len(lines) == count:
        lines.append("  - expect: {leader: " + str(settings.assignment[0]) + "}")
    lines += _end(again)
    return "\n".join(lines) + "\n"


def _end(session: Session) -> list[str]:
    """Return the final logs as a comment: real processes take more time for a step."""
    logs = facts.logs_of(session.cluster)
    named = [f"{broker}: [{', '.join(str(one['value']) for one in log)}]" for broker, log in logs.items()]
    return [f"  # in the browser the logs were {{{', '.join(named)}}}"]


def _steps_of(action: Action, number: int, said: str, session: Session) -> list[str]:
    if action.kind in ABOUT_MESSAGES or action.kind not in _STEPS:
        return [f"  # {said} (no step does this to real processes)"]
    return [f"  - {step}" for step in _STEPS[action.kind](action, number, session)]


def _produce(action: Action, number: int, session: Session) -> list[str]:
    del session
    values = [f"m{number + place}" for place in range(action.value("count"))]
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
