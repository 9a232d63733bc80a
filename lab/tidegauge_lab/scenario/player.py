"""Plays a scenario on real processes, step by step, and says what came of it.

Rules:
- A step returns when its effect is true; what a step waits for has a limit, and the scenario has one for all.
- The first step that does not do what it says, or an expectation that does not hold, ends the scenario as failed, with
  the step's line and the actual state. An expectation has ten seconds to become true, since brokers learn of each
  other's changes a little later; what must not have changed is therefore expected after a wait for what must.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import TimeoutError as FutureTimeoutError
from functools import singledispatchmethod
from pathlib import Path
from typing import Any

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.faults.actions import RESUME, START
from tidegauge.partition import TopicPartition
from tidegauge_client.isolation import IsolationLevel
from tidegauge_lab.accountant.books import Kind
from tidegauge_lab.local.cluster import LocalCluster
from tidegauge_lab.local.process_actions import on_processes
from tidegauge_lab.local.processes import ProcessState
from tidegauge_lab.local.roles import Role, RoleKind
from tidegauge_lab.local.waiting import TimeLimitError, holds_within
from tidegauge_lab.scenario import broker_steps, checks, fault_steps, state_steps, table
from tidegauge_lab.scenario.cluster_connections import ACKNOWLEDGED, ClusterConnections, Response
from tidegauge_lab.scenario.consumers import Consumers
from tidegauge_lab.scenario.facts import LEADER, Facts
from tidegauge_lab.scenario.group_player import GroupPlayer
from tidegauge_lab.scenario.group_steps import GROUP_STEPS
from tidegauge_lab.scenario.model import Scenario
from tidegauge_lab.scenario.outcome import Outcome, PlayedStep, Speak, StepFailed, described, headline
from tidegauge_lab.scenario.pace import AT_ONCE, Pace
from tidegauge_lab.scenario.producers import Producers
from tidegauge_lab.scenario.quorum_player import QuorumPlayer, QuorumStep
from tidegauge_lab.scenario.senders import Senders
from tidegauge_lab.scenario.share_player import SharePlayer
from tidegauge_lab.scenario.share_steps import SHARE_STEPS
from tidegauge_lab.scenario.step_base import PartitionStep, Step
from tidegauge_lab.scenario.transaction_player import TransactionPlayer
from tidegauge_lab.scenario.transaction_steps import TRANSACTION_STEPS
from tidegauge_lab.scenario.wait_player import WaitPlayer
from tidegauge_lab.scenario.wait_steps import WAIT_STEPS
from tidegauge_lab.scenario.wording import brokers
from tidegauge_lab.switches import Step as Round

WAIT_SECONDS = 60.0
SETTLE_SECONDS = 10.0
_PRODUCE_MS = 30_000
_REFUSAL_MS = 2000
"""Timeout of a request that is expected to fail."""
_FITS = {RESUME: ProcessState.PAUSED, START: ProcessState.DOWN}
"""The state of the follower that a role means, for actions on brokers that are not up."""
_LOOK_AGAIN_SECONDS = 0.1
SHARE_HISTORY = "share-history.jsonl"
_MOVING = frozenset({ErrorCode.NOT_LEADER_OR_FOLLOWER.name, ErrorCode.LEADER_NOT_AVAILABLE.name})

Tell = Callable[[str], None]
_DETAIL = " " * 11
Check = Callable[[], None]


def nothing_to_check() -> None:
    """Do nothing: no check was asked for."""


class Player:
    """One run.

    Args:
        scenario: the scenario to play.
        cluster: its processes.
        connections: everything over the network.
        tell: takes the story, a line at a time.
        deadline: of a monotonic clock, in seconds.
        outcome: is filled in.
        check: called again and again, and may raise what ends the run.
        verbose: whether the story also has each step as in the file.
        histories: where histories are written; None: beside the cluster's directory.
        pace: when each step is played.
    """

    def __init__(
        self,
        scenario: Scenario,
        cluster: LocalCluster,
        connections: ClusterConnections,
        tell: Tell,
        deadline: float,
        outcome: Outcome,
        check: Check = nothing_to_check,
        *,
        verbose: bool = False,
        speak: Speak = str,
        histories: Path | None = None,
        pace: Pace = AT_ONCE,
    ) -> None:
        self._scenario = scenario
        self._cluster = cluster
        self._connections = connections
        self._tell = tell
        self._deadline = deadline
        self._outcome = outcome
        self._check = check
        self._verbose = verbose
        self._speak = speak
        self._pace = pace
        self._assigned: dict[TopicPartition, Sequence[int]] = {}
        self._senders = Senders(connections, histories or cluster.directory.parent)
        directory = histories or cluster.directory.parent
        consumers = Consumers(lambda: _servers(cluster, "confluent-kafka"), directory)
        self._waits = WaitPlayer(cluster, connections, self._look, scenario.partition_of, self._wait, self._ids)
        self._quorum = QuorumPlayer(cluster, self._wait, self._ids, self._detail, connections.know_nodes)
        self._groups = GroupPlayer(
            consumers, connections, self._wait, scenario.first_partition.topic if scenario.topics else ""
        )
        producers = Producers(lambda library: _servers(cluster, library), directory)
        self._transactions = TransactionPlayer(
            producers, consumers, self._senders, connections, self._wait, self._readable, scenario.partition_of
        )
        self._shares = SharePlayer(
            connections, self._wait, scenario.partition_of, directory / SHARE_HISTORY, self._detail
        )
        parts: tuple[tuple[Sequence[type[Step]], Callable[[Any], None]], ...] = (
            (WAIT_STEPS, self._waits.do),
            (GROUP_STEPS, self._groups.do),
            (SHARE_STEPS, self._shares.do),
            (TRANSACTION_STEPS, self._transactions.do),
        )
        self._players = {step: do for steps, do in parts for step in steps}
        self._marks: dict[str, Facts] = {}
        self._rounds: dict[tuple[TopicPartition, int], table.Rounds] = {}
        self._rows: list[table.Row] = []
        self._details: list[str] = []
        self._kept_back: set[tuple[TopicPartition, int]] = set()
        self._shown_state = ""
        self._shown_logs: list[str] = []

    def play(self) -> None:
        """Create the topics and play all steps; the outcome is filled in."""
        for topic in self._scenario.topics:
            self._create(topic.name, topic.assignment, topic.config, is_fresh=True)
        self.play_steps()

    def take_over(self, names: Collection[str]) -> None:
        """Take the scenario's topics of these names as those that are there."""
        for topic in self._scenario.topics:
            for number, replicas in enumerate(topic.assignment if topic.name in names else ()):
                self._assigned[TopicPartition(topic.name, number)] = replicas

    def play_steps(self) -> None:
        """Play all steps on topics that are there; the outcome is filled in."""
        begin = time.monotonic()
        for number, step in enumerate(self._scenario.steps):
            self._rows, self._details = [], []
            self._deadline += self._pace.before(number)
            self._remaining()
            for line in headline(step, time.monotonic() - begin, verbose=self._verbose, speak=self._speak):
                self._tell(line)
            self._outcome.expectations += step.expectations()
            try:
                self._players.get(type(step), self._do)(step)
            except StepFailed as failed:
                self._outcome.failure = f"line {step.line}: {described(step)}: {failed.message}"
            except TimeLimitError:
                raise
            except TidegaugeError as problem:
                self._outcome.failure = f"line {step.line}: {described(step)}: {problem}"
            self._note(step, time.monotonic() - begin)
            self._pace.after(self._outcome)
            if self._outcome.failure:
                return

    def close(self) -> None:
        """Close what the run has opened."""
        self._groups.close()
        self._shares.close()
        self._transactions.close()
        self._senders.close()

    def _note(self, step: Step, seconds: float) -> None:
        at = None
        if isinstance(step, PartitionStep):
            at = self._at(step)
        elif self._scenario.topics:
            at = self._scenario.first_partition
        played = PlayedStep(step.line, step.verb, described(step), round(seconds, 3), details=self._details)
        self._outcome.steps.append(played)
        if at is None or at not in self._assigned:  # a cluster without topics has no state to show
            return
        facts = self._look(at)
        played.state, played.table = facts.line, self._rows
        for line in table.lines(self._rows) if self._rows else ():
            self._tell(f"         {line}")
        logs = facts.log_lines if isinstance(step, state_steps.Expect) or self._outcome.failure else self._shown_logs
        if facts.line != self._shown_state:
            about = "" if at == self._scenario.first_partition else f"{at}   "
            self._tell(f"{_DETAIL}{about}{facts.line}")
        if logs != self._shown_logs:
            played.logs = logs
            for line in logs:
                self._tell(f"{_DETAIL}log {line}")
        self._shown_state, self._shown_logs = facts.line, logs

    def _detail(self, text: str) -> None:
        """Say something that the step in hand has done."""
        self._details.append(text)
        self._tell(f"{_DETAIL}{self._speak(text)}")

    # Common parts of the steps

    def _create(
        self, name: str, assignment: Sequence[Sequence[int]], config: Mapping[str, str], *, is_fresh: bool = False
    ) -> None:
        self._connections.create_topic(name, assignment, config, is_fresh=is_fresh)
        for number, replicas in enumerate(assignment):
            self._assigned[TopicPartition(name, number)] = replicas

    def _at(self, step: PartitionStep) -> TopicPartition:
        return self._scenario.partition_of(step)

    def _look(self, at: TopicPartition) -> Facts:
        return self._connections.look(at, self._assigned[at])

    def _readable(self, at: TopicPartition, isolation_level: IsolationLevel) -> list[str]:
        return self._connections.readable(at, self._look(at).leader, isolation_level)

    def _remaining(self, instead: str = "") -> float:
        """Return the remaining seconds; ``instead`` is the actual state during a wait."""
        self._check()
        left = self._deadline - time.monotonic()
        if left <= 0:
            rest = f": {instead}" if instead else ""
            limit_seconds = self._scenario.limit_seconds
            raise TimeLimitError(f"{self._scenario.name} is not at its end after {limit_seconds:g} s{rest}")
        return left

    def _wait(self, problems: Callable[[], Sequence[str]], limit_seconds: float | None = None) -> None:
        """Until there are no problems any more."""
        last: list[str] = []

        def none_left() -> bool:
            self._check()
            last[:] = problems()
            return not last

        limit = min(WAIT_SECONDS if limit_seconds is None else limit_seconds, self._remaining())
        if not holds_within(none_left, limit, pause_seconds=_LOOK_AGAIN_SECONDS):
            self._remaining("; ".join(last))
            raise StepFailed("; ".join(last))

    # The steps

    @singledispatchmethod
    def _do(self, step: Step) -> None:
        raise AssertionError(f"{step.verb} is in the vocabulary, so it can be done")

    @_do.register
    def _create_topic(self, step: broker_steps.CreateTopic) -> None:
        if step.error is ErrorCode.NONE:
            self._create(step.name, step.assignment, step.config or {})
            return
        error = self._connections.try_to_create_topic(step.name, step.assignment, step.config or {}, _REFUSAL_MS)
        if error is not step.error:
            raise StepFailed(f"the request ended with {error.name}, not {step.error.name}")

    @_do.register
    def _produce(self, step: broker_steps.Produce) -> None:
        at = self._at(step)
        for value in step.values:
            if step.answer == "later":
                self._produce_later(step, at, value)
                continue
            response = self._produce_until_led(step, at, value)
            wanted = ACKNOWLEDGED if step.error is ErrorCode.NONE else step.error.name
            if response.state != wanted:
                raise StepFailed(
                    f"the response to {value} is {response.state}, not {wanted}. {response.message}".strip()
                )

    def _produce_until_led(self, step: broker_steps.Produce, at: TopicPartition, value: str) -> Response:
        """Produce, again where the leader has moved; a broker that was named is asked once."""
        responses: list[Response] = []

        def settled() -> bool:
            target = self._leader(at) if step.via is None else step.via
            future = self._senders.send(step, at, value, target, _PRODUCE_MS)
            try:
                responses.append(future.result(min(self._remaining(), _PRODUCE_MS / 1000 + 10)))
            except FutureTimeoutError:
                raise StepFailed(f"no response to {value}") from None
            expected = step.error.name if step.error is not ErrorCode.NONE else ""
            return step.via is not None or responses[-1].state not in _MOVING - {expected}

        holds_within(settled, min(WAIT_SECONDS, self._remaining()), pause_seconds=_LOOK_AGAIN_SECONDS)
        return responses[-1]

    def _produce_later(self, step: broker_steps.Produce, at: TopicPartition, value: str) -> None:
        """Send, and go on once the broker has appended it, or has responded already."""
        target = self._leader(at) if step.via is None else step.via
        before = self._leo(at, target)
        future = self._senders.send(step, at, value, target, self._pace.later_ms)

        def appended() -> list[str]:
            leo = self._leo(at, target)
            return (
                [] if future.done() or leo > before else [f"broker {target} has not appended {value}: its LEO is {leo}"]
            )

        self._wait(appended)

    def _leo(self, at: TopicPartition, broker_id: int) -> int:
        replica = self._look(at).replicas.get(broker_id)
        return -1 if replica is None else replica.leo

    def _leader(self, at: TopicPartition) -> int:
        """Return the broker that leads, by the cluster's view and its own."""
        found: list[int] = []

        def led() -> list[str]:
            facts = self._look(at)
            replica = facts.replicas.get(facts.leader)
            if replica is not None and replica.role == LEADER:
                found.append(facts.leader)
                return []
            return [f"{at} has no leader that knows it is"]

        self._wait(led)
        return found[0]

    @_do.register
    def _wait_answer(self, step: broker_steps.WaitResponse) -> None:
        wanted = ACKNOWLEDGED if step.error is ErrorCode.NONE else step.error.name

        def differing() -> list[str]:
            found = self._senders.responses()
            return [f"the response to {value} is {found[value]}" for value in step.values if found[value] != wanted]

        self._wait(differing)

    @_do.register
    def _hold(self, step: broker_steps.HoldFetch) -> None:
        at = self._at(step)
        ids = self._ids(step.brokers)
        if step.release:
            self._connections.release(at, ids)
            return
        self._connections.hold(at, ids)
        for broker_id in ids:
            self._rounds[at, broker_id] = table.Rounds()

    @_do.register
    def _step(self, step: broker_steps.StepFetch) -> None:
        at = self._at(step)
        [broker_id] = self._ids([step.broker])
        for _ in range(step.rounds):
            done = self._connections.step(at, broker_id, step.until)
            self._detail(done.text)
            self._note_round(at, broker_id, done)
            if done.error is not step.error:
                wanted = "no error" if step.error is ErrorCode.NONE else step.error.name
                raise StepFailed(f"the round ended with {done.error.name}, not {wanted}. {done.message}".strip())

    def _note_round(self, at: TopicPartition, broker_id: int, done: Round) -> None:
        """Keep what the round carried, for tables; a round that stopped at its request is counted once."""
        rounds = self._rounds.get((at, broker_id), table.Rounds())
        said = done.response
        is_new = said.HasField("fetch") and (at, broker_id) not in self._kept_back
        offsets = (*rounds.offsets, said.fetch.fetch_offset) if is_new else rounds.offsets
        reported = (
            said.fetch_result.high_watermark if said.fetch_result.HasField("high_watermark") else rounds.reported_hw
        )
        self._rounds[at, broker_id] = table.Rounds(offsets, reported)
        self._kept_back.discard((at, broker_id))
        if done.response_withheld:
            self._kept_back.add((at, broker_id))

    @_do.register
    def _process(self, step: broker_steps.ProcessStep) -> None:
        ids = self._ids(step.brokers, _FITS.get(step.kind, ProcessState.UP))
        on_processes(self._cluster, step.kind, *ids, **step.values)
        if isinstance(step, broker_steps.Start):
            self._connections.reconnect(ids)

    def _ids(self, brokers: Sequence[int | Role], fits: ProcessState = ProcessState.UP) -> list[int]:
        return [one if isinstance(one, int) else self._broker_with(one, fits) for one in brokers]

    def _broker_with(self, role: Role, fits: ProcessState) -> int:
        """Return and report the broker that has a role now, in this state."""
        named = role.kind is RoleKind.VOTER
        broker_id = self._quorum.voter(role.name) if named else self._cluster.resolve(role, fits)
        self._detail(f"{brokers([role])} is {brokers([broker_id])}")
        return broker_id

    @_do.register
    def _set_fault(self, step: fault_steps.FaultStep) -> None:
        [broker_id] = self._ids([step.broker])
        self._detail(f"broker {broker_id}: {self._connections.set_fault(broker_id, step.fault).text}")

    @_do.register
    def _release_requests(self, step: broker_steps.ReleaseRequests) -> None:
        for broker_id in self._ids(step.brokers):
            self._connections.release_requests(broker_id, step.which)

    @_do.register
    def _clear_faults(self, step: broker_steps.ClearFaults) -> None:
        for broker_id in self._ids(step.brokers):
            self._connections.clear_faults(broker_id)

    @_do.register
    def _heal(self, step: broker_steps.Heal) -> None:
        for broker_id in self._ids(step.brokers):
            self._connections.heal(broker_id)

    @_do.register
    def _expire(self, step: broker_steps.ExpireSession) -> None:
        self._connections.expire_session(*self._ids([step.broker]))

    @_do.register
    def _elect(self, step: broker_steps.Elect) -> None:
        code = self._connections.elect(self._at(step), unclean=step.type == "unclean")
        if code is not step.error:
            raise StepFailed(f"the election ended with {code.name}, not {step.error.name}")

    @_do.register
    def _sync(self, step: broker_steps.Sync) -> None:
        for broker_id in self._ids(step.brokers):
            self._connections.sync(broker_id, self._at(step))

    @_do.register
    def _drop_unsynced(self, step: broker_steps.DropUnsynced) -> None:
        for broker_id in self._ids(step.brokers, ProcessState.DOWN):
            lost_bytes = self._cluster.cut_power(broker_id)
            self._detail(f"{lost_bytes} bytes of broker {broker_id} were not on its disk")

    @_do.register
    def _quorum_step(self, step: QuorumStep) -> None:
        self._quorum.do(step)

    @_do.register
    def _mark(self, step: state_steps.Mark) -> None:
        self._marks[step.name] = self._look(self._at(step))

    @_do.register
    def _table(self, step: state_steps.Table) -> None:
        at = self._at(step)
        before, after = self._marks[step.since], self._look(at)
        for broker_id in (step.leader, *step.followers):
            if broker_id not in before.replicas or broker_id not in after.replicas:
                raise StepFailed(f"broker {broker_id} does not respond, or has no replica")
        rounds = {follower: self._rounds.get((at, follower), table.Rounds()) for follower in step.followers}
        self._rows = table.rows(step.phase, before, after, step.leader, step.followers, rounds)

    @_do.register
    def _expect(self, step: state_steps.Expect) -> None:
        at = self._at(step)

        def differing() -> list[str]:
            facts = self._look(at)
            return checks.differences(
                step, facts, self._senders.responses(), lambda: self._connections.readable(at, facts.leader)
            )

        self._wait(differing, SETTLE_SECONDS)

    @_do.register
    def _verify(self, step: state_steps.Verify) -> None:
        topic = step.topic or self._scenario.first_partition.topic
        report = self._connections.audit(topic, self._senders.histories())
        found = {kind.value: report.count(kind) for kind in Kind if report.is_violation(kind) and report.count(kind)}
        for kind in Kind:
            for example in report.tallies[kind].examples if kind in report.tallies else ():
                self._detail(f"{kind.value}: {example.message}")
        if found != dict(step.found):
            raise StepFailed(f"the accountant finds {_counts(found)}, not {_counts(step.found)}")


def _servers(cluster: LocalCluster, library: str) -> str:
    own = library == "tidegauge"
    return ",".join(cluster.bootstrap_servers if own else cluster.kafka_bootstrap_servers)


def _counts(found: Mapping[str, int]) -> str:
    return ", ".join(f"{count} {name}" for name, count in sorted(found.items())) or "nothing"
