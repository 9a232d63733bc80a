"""A short schedule as a scenario file: what of it a person can do to real processes, the rest as comments.

Contract: ``as_scenario`` takes the acts of a history (``History.story``), one after the other. An act for which the lab
has a verb becomes that verb: produces, rounds of held followers, kills, starts, shutdowns, pauses, network
partitions, power losses, flushes, the end of a session, preferred elections. Acts not to be forced on real processes
(which message comes first, when a controller decides, who becomes it) become comments at their places, and so does
the result of the simulated cluster. The file is sound, so that ``tidegauge scenario run`` plays it, but it promises no
more than its verbs do: where the invariant broke by the order of messages, real processes may well keep it. Stories
that break the invariant to the last expectation come from ``lab_story``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from tidegauge.control import NO_LEADER
from tidegauge_broker.replica.messages import ACKS_ALL
from tidegauge_proof.simulator.actions import swarm_of
from tidegauge_proof.simulator.acts import FAULTS_END, Act, words_of
from tidegauge_proof.simulator.simulation import DEFAULT_POWER, DEFAULT_RULE, History

_TOPIC = "story"
_PARTITION = f"{_TOPIC}-0"
_SEVERAL = "  There were {} partitions in {} log directories of each broker; here stands the first partition."


@dataclass(slots=True)
class _Stage:
    """The state of the file so far."""

    running: set[int]
    leader: int
    """Whom the controller has made the leader last, there."""
    lines: list[str] = field(default_factory=list)
    paused: set[int] = field(default_factory=set)
    cut: set[tuple[int, int]] = field(default_factory=set)
    taken: set[int] = field(default_factory=set)
    """Followers whose request waits at the leader."""
    values: int = 0

    def do(self, *steps: str) -> None:
        """Add steps."""
        self.lines += [f"  - {step}" for step in steps]

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
        """Add a comment."""
        self.lines.append(f"  # {words}")

    def not_forced(self, done: Act) -> None:
        """Add a comment on an act that can't be asked of real processes."""
        self.say(f"not forced: {words_of(done)}")


def as_scenario(history: History, rule: str = DEFAULT_RULE, power: str = DEFAULT_POWER) -> str:
    """Return the scenario file (docs/scenarios.md) of a history whose story was kept."""
    swarm = swarm_of(history.seed, rule, power, history.directories)
    broken = history.violation
    stage = _Stage(set(swarm.replicas), swarm.replicas[0])
    for done in history.story:
        _translate(stage, done)
    lines = [
        f"title: The short schedule of seed {history.seed} under {rule}, as far as it can be asked of real processes.",
        "teaches: |",
        f"  {broken.invariant + ' broke in the simulation: ' + broken.message if broken else 'Nothing broke.'}",
        "  Comments stand for what can't be forced: the order of messages, a controller's moment.",
        *([_SEVERAL.format(swarm.partitions, swarm.directories)] if swarm.directories > 1 else []),
        f"rule: replica.truncation.rule={rule}; found by simulation (seed {history.seed}), shortened",
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


def _translate(stage: _Stage, done: Act | None) -> None:
    if done is None:
        stage.say("a step that finds nothing to do")
        return
    translate = _TRANSLATIONS.get(done.kind)
    if translate is None:
        stage.not_forced(done)
    else:
        translate(stage, done)


def _produce(stage: _Stage, done: Act) -> None:
    count, broker_id = done["count"], done["broker"]
    values = [f"m{stage.values + place}" for place in range(count)]
    stage.values += count
    if count > 1:
        stage.say(f"one batch of {count} there")
    if done["partitions"] != [0] or broker_id in stage.paused or broker_id not in stage.running:
        stage.not_forced(done)
        return
    acks = "all" if done["acks"] == ACKS_ALL else done["acks"]
    stage.do(f"produce: {{values: {_flow(values)}, acks: {acks}, via: {broker_id}, answer: later}}")


def _idempotent(stage: _Stage, done: Act) -> None:
    if done["again"] or done["partitions"] != [0]:
        stage.not_forced(done)
    else:
        stage.do(f"produce: {{values: p{done['sequence']}, via: {done['broker']}, answer: later}}")


def _round(stage: _Stage, done: Act) -> None:
    broker_id = done["broker"]
    if not stage.reaches_the_leader(broker_id):
        stage.not_forced(done)
        return
    stage.taken.discard(broker_id)
    stage.do(f"step_fetch: {broker_id}")


def _ask(stage: _Stage, done: Act) -> None:
    broker_id = done["broker"]
    if len(done["leaders"]) > 1 or not stage.reaches_the_leader(broker_id):
        stage.not_forced(done)
        return
    stage.taken.add(broker_id)
    stage.do(f"step_fetch: {{broker: {broker_id}, until: request}}")


def _responded(stage: _Stage, done: Act) -> None:
    broker_id = done["broker"]
    if broker_id in stage.taken and stage.reaches_the_leader(broker_id):
        stage.taken.discard(broker_id)
        stage.do(f"step_fetch: {broker_id}")
    else:
        stage.not_forced(done)


def _decides(stage: _Stage, done: Act) -> None:
    """Wait for the leader that the simulated controller elected: a real one decides by itself."""
    leader = done["states"][0][0]
    stage.say(f"there: {words_of(done)}")
    if leader != stage.leader:
        stage.leader = leader
        stage.do(f"wait_leader: {'none' if leader == NO_LEADER else leader}")


def _kill(stage: _Stage, done: Act) -> None:
    _gone(stage, done["broker"])
    stage.do(f"kill: {done['broker']}")


def _power_cut(stage: _Stage, done: Act) -> None:
    broker_id, keep, end = done["broker"], done["keep"][0], done["end"][0]
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


def _start(stage: _Stage, done: Act) -> None:
    stage.running.add(done["broker"])
    stage.do(f"start: {{brokers: {done['broker']}, held: {_PARTITION}}}")


def _stop(stage: _Stage, done: Act) -> None:
    _gone(stage, done["broker"])
    stage.do(f"stop: {done['broker']}")


def _expire(stage: _Stage, done: Act) -> None:
    if done["broker"] in stage.running:
        stage.do(f"expire_zk_session: {done['broker']}")
    else:
        stage.say(f"the session of {done['broker']} ends by itself")


def _pause(stage: _Stage, done: Act) -> None:
    stage.paused.add(done["broker"])
    stage.do(f"pause: {done['broker']}")


def _resume(stage: _Stage, done: Act) -> None:
    stage.paused.discard(done["broker"])
    stage.do(f"resume: {done['broker']}")


def _cut(stage: _Stage, done: Act) -> None:
    for one, other in done["links"]:
        if (one, other) not in stage.cut and one in stage.running:
            stage.cut.add((one, other))
            stage.do(f"isolate: {{broker: {one}, from: [{other}], direction: out}}")


def _heal(stage: _Stage, done: Act) -> None:
    del done
    brokers = sorted({one for one, _ in stage.cut if one in stage.running})
    stage.cut.clear()
    if brokers:
        stage.do(f"heal: {brokers}")


def _flush(stage: _Stage, done: Act) -> None:
    stage.do(f"sync: {done['broker']}")


def _elect(stage: _Stage, done: Act) -> None:
    del done
    stage.do("elect: preferred")


def _end(stage: _Stage, done: Act) -> None:
    """End the faults, as the simulation does; then every follower fetches by itself."""
    for broker_id in sorted(stage.paused):
        stage.do(f"resume: {broker_id}")
    _heal(stage, done)
    if stage.running:
        stage.do(f"hold_fetch: {{brokers: {sorted(stage.running)}, release: true}}")


def _flow(values: Sequence[str]) -> str:
    return values[0] if len(values) == 1 else f"[{', '.join(values)}]"


_TRANSLATIONS: dict[str, Callable[[_Stage, Act], None]] = {
    "produce": _produce,
    "produce_idempotently": _idempotent,
    "whole_round": _round,
    "ask": _ask,
    "answer": _responded,
    "decide": _decides,
    "kill": _kill,
    "cut_power": _power_cut,
    "start": _start,
    "stop": _stop,
    "expire": _expire,
    "pause": _pause,
    "resume": _resume,
    "cut_links": _cut,
    "heal_links": _heal,
    "flush": _flush,
    "rebalance": _elect,
    FAULTS_END: _end,
}
"""Acts for which the lab has a verb; every other kind of act becomes a comment."""
