"""A short schedule as a scenario file: what of it a person can do to real processes, the rest as comments.

Contract: ``as_scenario`` reads the words of a told history (``History.story``), one step after the other. What the lab
has a verb for becomes that verb: produces, rounds of held followers, kills, starts, shutdowns, pauses, cuts, power
cuts, flushes, the end of a session, preferred elections. What nobody can force on real processes (which message comes
first, when a controller decides, who becomes it) stands as a comment at its place, and so does what the simulated
cluster came to. The file is sound, so that ``tidegauge scenario run`` plays it, but it promises no more than its verbs
do: where the invariant broke by the order of messages, real processes may well keep it. Stories that break the
invariant to the last expectation come from ``lab_story``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from tidegauge.control import NO_LEADER
from tidegauge_proof.simulator.actions import swarm_of
from tidegauge_proof.simulator.simulation import DEFAULT_POWER, DEFAULT_RULE, History

_TOPIC = "story"
_PARTITION = f"{_TOPIC}-0"


@dataclass(slots=True)
class _Stage:
    """What the file has done so far."""

    running: set[int]
    leader: int
    """Whom the controller has made the leader last, there."""
    lines: list[str] = field(default_factory=list)
    paused: set[int] = field(default_factory=set)
    cut: set[tuple[int, int]] = field(default_factory=set)
    taken: set[int] = field(default_factory=set)
    """Followers whose request waits at the leader."""
    values: int = 0
    forced: int = 0

    def do(self, *steps: str) -> None:
        """Verbs."""
        self.lines += [f"  - {step}" for step in steps]
        self.forced += len(steps)

    def reaches_the_leader(self, broker_id: int) -> bool:
        """Whether a follower's round can come to an end: else a step would wait in vain."""
        ends = {broker_id, self.leader}
        return (
            len(ends) == 2
            and ends <= self.running
            and not ends & self.paused
            and (broker_id, self.leader) not in self.cut
        )

    def say(self, words: str) -> None:
        """A comment."""
        self.lines.append(f"  # {words}")


def as_scenario(history: History, rule: str = DEFAULT_RULE, power: str = DEFAULT_POWER) -> str:
    """The file (docs/scenarios.md) of a history that was told in words."""
    swarm = swarm_of(history.seed, rule, power)
    broken = history.violation
    stage = _Stage(set(swarm.replicas), swarm.replicas[0])
    for words in history.story:
        _translate(stage, words)
    lines = [
        f"title: The short schedule of seed {history.seed} under {rule}, as far as it can be asked of real processes.",
        "teaches: |",
        f"  {broken.invariant + ' broke in the simulation: ' + broken.message if broken else 'Nothing broke.'}",
        "  Comments stand for what can't be forced: the order of messages, a controller's moment.",
        f"rule: replica.truncation.rule={rule}; found by simulation (seed {history.seed}), cut short",
        "cluster:",
        f"  brokers: {max(swarm.replicas) + 1}",
        f"  controller: {swarm.replicas[0]}",
        "  settings:",
        f"    replica.truncation.rule: {rule}",
        f"    min.insync.replicas: {swarm.min_insync_replicas}",
        "    replica.high.watermark.checkpoint.interval.ms: 3600000",
        *(["    log.flush.interval.messages: 1"] if swarm.flushes else []),
        "topics:",
        f"  - {{name: {_TOPIC}, assignment: {list(swarm.replicas)}}}",
        "steps:",
        f"  - hold_fetch: {list(swarm.replicas)}",
        *stage.lines,
    ]
    return "\n".join(lines) + "\n"


def _translate(stage: _Stage, words: str) -> None:
    for pattern, act in _ACTS:
        match = pattern.fullmatch(words)
        if match is not None:
            act(stage, match)
            return
    stage.say(f"not forced: {words}" if words else "a step that finds nothing to do")


def _produce(stage: _Stage, match: re.Match[str]) -> None:
    count, acks, broker_id = int(match[1]), match[2], int(match[3])
    values = [f"m{stage.values + place}" for place in range(count)]
    stage.values += count
    if count > 1:
        stage.say(f"one batch of {count} there")
    if broker_id in stage.paused or broker_id not in stage.running:
        stage.say(f"not forced: {match[0]}")
    else:
        stage.do(f"produce: {{values: {_flow(values)}, acks: {acks}, via: {broker_id}, answer: later}}")


def _idempotent(stage: _Stage, match: re.Match[str]) -> None:
    if match[2]:
        stage.say(f"not forced: {match[0]}")
    else:
        stage.do(f"produce: {{values: p{match[1]}, via: {match[3]}, answer: later}}")


def _round(stage: _Stage, match: re.Match[str]) -> None:
    if not stage.reaches_the_leader(int(match[1])):
        stage.say(f"not forced: {match[0]}")
        return
    stage.taken.discard(int(match[1]))
    stage.do(f"step_fetch: {match[1]}")


def _ask(stage: _Stage, match: re.Match[str]) -> None:
    if not stage.reaches_the_leader(int(match[1])):
        stage.say(f"not forced: {match[0]}")
        return
    stage.taken.add(int(match[1]))
    stage.do(f"step_fetch: {{broker: {match[1]}, until: request}}")


def _answered(stage: _Stage, match: re.Match[str]) -> None:
    if int(match[2]) in stage.taken and stage.reaches_the_leader(int(match[2])):
        stage.taken.discard(int(match[2]))
        stage.do(f"step_fetch: {match[2]}")
    else:
        stage.say(f"not forced: {match[0]}")


def _decides(stage: _Stage, match: re.Match[str]) -> None:
    """A controller decides by itself; where it makes another the leader, that is waited for."""
    leader = int(match[1])
    stage.say(f"there: {match[0]}")
    if leader != stage.leader:
        stage.leader = leader
        stage.do(f"wait_leader: {'none' if leader == NO_LEADER else leader}")


def _kill(stage: _Stage, match: re.Match[str]) -> None:
    _gone(stage, int(match[1]))
    stage.do(f"kill: {match[1]}")


def _power_cut(stage: _Stage, match: re.Match[str]) -> None:
    broker_id, keep, end = int(match[1]), int(match[2]), int(match[3])
    _gone(stage, broker_id)
    stage.do(f"kill: {broker_id}")
    if keep < end:
        stage.say(f"there {keep} of {end} records are left; here those that were flushed")
        stage.do(f"drop_unsynced: {broker_id}")


def _gone(stage: _Stage, broker_id: int) -> None:
    stage.running.discard(broker_id)
    stage.paused.discard(broker_id)
    stage.taken.discard(broker_id)
    stage.cut -= {link for link in stage.cut if link[0] == broker_id}


def _start(stage: _Stage, match: re.Match[str]) -> None:
    stage.running.add(int(match[1]))
    stage.do(f"start: {{brokers: {match[1]}, held: {_PARTITION}}}")


def _stop(stage: _Stage, match: re.Match[str]) -> None:
    _gone(stage, int(match[1]))
    stage.do(f"stop: {match[1]}")


def _expire(stage: _Stage, match: re.Match[str]) -> None:
    if int(match[1]) in stage.running:
        stage.do(f"expire_zk_session: {match[1]}")
    else:
        stage.say(f"the session of {match[1]} ends by itself")


def _pause(stage: _Stage, match: re.Match[str]) -> None:
    stage.paused.add(int(match[1]))
    stage.do(f"pause: {match[1]}")


def _resume(stage: _Stage, match: re.Match[str]) -> None:
    stage.paused.discard(int(match[1]))
    stage.do(f"resume: {match[1]}")


def _cut(stage: _Stage, match: re.Match[str]) -> None:
    links = [link.split(">") for link in match[1].split(", ")]
    for one, other in ((int(source), int(target)) for source, target in links):
        if (one, other) not in stage.cut and one in stage.running:
            stage.cut.add((one, other))
            stage.do(f"isolate: {{broker: {one}, from: [{other}], direction: out}}")


def _heal(stage: _Stage, match: re.Match[str] | None = None) -> None:
    del match
    brokers = sorted({one for one, _ in stage.cut if one in stage.running})
    stage.cut.clear()
    if brokers:
        stage.do(f"heal: {brokers}")


def _flush(stage: _Stage, match: re.Match[str]) -> None:
    stage.do(f"sync: {match[1]}")


def _elect(stage: _Stage, match: re.Match[str]) -> None:
    del match
    stage.do("elect: preferred")


def _end(stage: _Stage, match: re.Match[str]) -> None:
    """The faults end, as in the simulation; then everybody fetches by himself."""
    del match
    for broker_id in sorted(stage.paused):
        stage.do(f"resume: {broker_id}")
    _heal(stage)
    if stage.running:
        stage.do(f"hold_fetch: {{brokers: {sorted(stage.running)}, release: true}}")


def _flow(values: Sequence[str]) -> str:
    return values[0] if len(values) == 1 else f"[{', '.join(values)}]"


_ACTS: tuple[tuple[re.Pattern[str], Callable[[_Stage, re.Match[str]], None]], ...] = tuple(
    (re.compile(pattern), act)
    for pattern, act in (
        (r"produce (\d+) with acks=(\w+) at (\d+)", _produce),
        (r"idempotent produce of sequence (\d+)( again)? at (\d+)", _idempotent),
        (r"round of (\d+)", _round),
        (r"(\d+) asks (?:\d+)", _ask),
        (r"answer of (\d+) arrives at (\d+)", _answered),
        (r"controller \d+ decides; leader (-?\d+) epoch \d+ ISR [\d,]+", _decides),
        (r"kill (\d+)", _kill),
        (r"power cut at (\d+), which keeps (\d+) of (\d+)(?: and a part of the next batch)?", _power_cut),
        (r"start (\d+)", _start),
        (r"controlled shutdown of (\d+) ends", _stop),
        (r"session of (\d+) ends", _expire),
        (r"pause (\d+)", _pause),
        (r"resume (\d+)", _resume),
        (r"links cut: (.+)", _cut),
        (r"links healed", _heal),
        (r"(\d+) flushes its log", _flush),
        (r"controller \d+ looks for preferred leaders", _elect),
        (r"the faults end", _end),
    )
)
