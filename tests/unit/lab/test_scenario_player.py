"""The player of scenarios, on fake connections and a fake cluster: its reactions to its input."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.partition import TopicPartition
from tidegauge.v1 import lab_pb2
from tidegauge_client.metadata import TopicIdentity
from tidegauge_lab.local.roles import Role
from tidegauge_lab.local.waiting import TimeLimitError
from tidegauge_lab.scenario import player
from tidegauge_lab.scenario.cluster_connections import Response
from tidegauge_lab.scenario.facts import Facts, Replica
from tidegauge_lab.scenario.loader import parse
from tidegauge_lab.scenario.outcome import Outcome
from tidegauge_lab.scenario.pace import AT_ONCE, Pace
from tidegauge_lab.scenario.readers import NO_LEADER, LoggedRecord
from tidegauge_lab.switches import Step

HEAD = """\
title: A story.
cluster: {brokers: 2}
topics:
  - {name: story, assignment: [0, 1]}
steps:
"""
AT = TopicPartition("story", 0)
LED = Facts(
    leader=0,
    epoch=0,
    isr=(0, 1),
    replicas={0: Replica("leader", 0, 1, 1, ((0, 0),), {1: 1}), 1: Replica("follower", 0, 1, 0)},
    logs={0: (LoggedRecord("m1", 0),), 1: (LoggedRecord("m1", 0),)},
    assigned=(0, 1),
)


@dataclass
class FakeConnections:
    """Gives what the test set, and keeps what it was asked."""

    facts: Facts = LED
    responses: list[Response] = field(default_factory=list)
    rounds: list[Step] = field(default_factory=list)
    done: list[tuple[Any, ...]] = field(default_factory=list)

    def know_nodes(self) -> None:
        self.done.append(("know nodes",))

    def create_topic(
        self, name: str, assignment: Sequence[Sequence[int]], config: Mapping[str, str], *, is_fresh: bool = False
    ) -> None:
        self.done.append(("create", name, dict(config)))

    def look(self, at: TopicPartition, assigned: Sequence[int]) -> Facts:
        return self.facts

    def produce(
        self, at: TopicPartition, value: str, timestamp_ms: int, acks: int, broker_id: int, wait_ms: int
    ) -> Future[Response]:
        self.done.append(("produce", value, acks, broker_id))
        future: Future[Response] = Future()
        future.set_result(self.responses.pop(0) if self.responses else Response("ack", offset=0))
        return future

    def hold(self, at: TopicPartition, brokers: Sequence[int]) -> None:
        self.done.append(("hold", *brokers))

    def step(self, at: TopicPartition, broker_id: int, until: str) -> Step:
        self.done.append(("step", broker_id, until))
        return self.rounds.pop(0)

    def readable(self, at: TopicPartition, leader: int) -> list[str]:
        return ["m1"]

    def topic_identity(self, name: str) -> TopicIdentity:
        return TopicIdentity(f"id of {name}", "cluster")

    def audit(self, topic: str, histories: Sequence[Path]) -> Any:
        self.done.append(("audit", topic, [path.name for path in histories]))
        return SimpleNamespace(count=lambda _: 0, is_violation=lambda _: True, tallies={})


class FakeCluster:
    """Nothing runs."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory / "cluster"
        self.killed: list[int] = []

    def kill(self, *brokers: int, expire: bool = False) -> None:
        if 1 in self.killed:
            raise TidegaugeError(ErrorCode.BROKER_NOT_AVAILABLE, "there is no broker 1 any more")
        self.killed.extend(brokers)

    def resolve(self, role: Role, _fits: object = None) -> int:
        """Return another broker for each kind of role."""
        return 3 if role.partition is None else 2


def round_of(offset: int, hw: int, *, kept_back: bool = False, error: ErrorCode = ErrorCode.NONE) -> Step:
    response = lab_pb2.StepFetchResponse()
    response.fetch.fetch_offset = offset
    if not kept_back:
        response.fetch_result.high_watermark = hw
    return Step(AT, 1, error, "", 0, kept_back, "a round", (), response)


@pytest.fixture
def connections() -> FakeConnections:
    return FakeConnections()


@pytest.fixture
def run(connections: FakeConnections, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(player, "SETTLE_SECONDS", 0.0)
    monkeypatch.setattr(player, "WAIT_SECONDS", 0.0)

    def play(
        steps: str,
        deadline: float = float("inf"),
        check: Callable[[], None] = player.nothing_to_check,
        *,
        verbose: bool = False,
        pace: Pace = AT_ONCE,
    ) -> tuple[Outcome, list[str]]:
        story = parse(HEAD + steps, "story.yaml")
        reported: list[str] = []
        outcome = Outcome(story.name)
        cluster: Any = FakeCluster(tmp_path)
        lent: Any = connections
        one = player.Player(story, cluster, lent, reported.append, deadline, outcome, check, verbose=verbose, pace=pace)
        try:
            one.play()
        finally:
            one.close()
        return outcome, reported

    return play


def test_a_pace_is_asked_before_each_step_and_its_wait_does_not_count(run: Any) -> None:
    class Slow(Pace):
        def __init__(self) -> None:
            self.seen: list[object] = []

        def before(self, number: int) -> float:
            self.seen.append(number)
            return 1e6 if number == 0 else 0.0

        def after(self, outcome: Outcome) -> None:
            self.seen.append(outcome.steps[-1].verb)

    slow = Slow()
    steps = "  - produce: m1\n  - expect: {leo: {0: 1}}\n  - expect: {leo: {0: 7}}\n  - produce: m2\n"
    outcome, _ = run(steps, deadline=time.monotonic() - 1e5, pace=slow)
    assert outcome.failure.endswith("the LEO of broker 0 is 1, not 7"), "not the limit, which had been over"
    assert slow.seen == [0, "produce", 1, "expect", 2, "expect"]
    with pytest.raises(TimeLimitError):
        run(steps, deadline=time.monotonic() - 1e5)


def test_a_step_keeps_what_it_reported_and_the_logs_that_it_showed(run: Any, connections: FakeConnections) -> None:
    connections.rounds = [round_of(0, 0)]
    outcome, _ = run("  - hold_fetch: 1\n  - step_fetch: 1\n  - expect: {leo: {0: 1}}\n")
    assert [step.details for step in outcome.steps] == [[], ["a round"], []]
    assert [step.logs for step in outcome.steps] == [[], [], ["0: [m1@0]", "1: [m1@0]"]]


def test_steps_are_shown_with_their_notes_and_the_state_where_it_changed(run: Any) -> None:
    outcome, reported = run("  - produce: m1\n    note: the first\n  - expect: {leo: {0: 1}, hw: {0: 1, 1: 0}}\n")
    assert (outcome.passed, outcome.expectations) == (True, 2)
    state = "0: 1/1*  1: 1/0   ISR 0,1  epoch 0  leader 0"
    assert [line.strip().removeprefix("0.0s").strip() for line in reported] == [
        "Produce m1 with acks=all",
        "the first",
        state,
        "log 0: [m1@0]",
        "log 1: [m1@0]",
    ]
    assert [step["verb"] for step in outcome.as_json()["steps"]] == ["produce", "expect"]
    assert json.dumps(outcome.as_json())


def test_an_expectation_is_shown_by_its_note_and_verbosely_as_the_file_has_it(run: Any) -> None:
    steps = "  - expect: {leo: {0: 1}}\n    note: m1 is there\n  - expect: {hw: {0: 1}}\n"
    _, reported = run(steps)
    assert [line for line in reported if "s  " in line] == ["   0.0s  m1 is there"]
    _, reported = run(steps, verbose=True)
    assert [line.strip() for line in reported if "expect" in line] == ["line 6: expect leo=0:1", "0.0s  expect hw=0:1"]


def test_a_long_expectation_is_wrapped(run: Any) -> None:
    logs = ", ".join(f"{broker}: [{', '.join(f'm{n}@0' for n in range(30))}]" for broker in (0, 1))
    _, reported = run(f"  - expect: {{log: {{{logs}}}}}\n    note: much\n", verbose=True)
    assert max(map(len, reported)) <= 120


def test_the_first_expectation_that_does_not_hold_ends_the_story_with_its_line(
    run: Any, connections: FakeConnections
) -> None:
    outcome, reported = run("  - expect: {epoch: 1, isr: [0]}\n  - produce: m1\n")
    assert outcome.failure == ("line 6: expect epoch=1 isr=0: the leader epoch is 0, not 1; the ISR is 0,1, not 0")
    assert ("produce", "m1", -1, 0) not in connections.done
    assert reported[-1].endswith("log 1: [m1@0]"), "the logs are shown where it failed"


def test_an_error_of_the_cluster_ends_the_story_with_its_line(run: Any) -> None:
    outcome, _ = run("  - kill: 1\n  - kill: 0\n")
    assert outcome.failure == "line 7: kill 0: BROKER_NOT_AVAILABLE (8): there is no broker 1 any more"


def test_a_produce_must_end_as_the_step_says(run: Any, connections: FakeConnections) -> None:
    connections.responses = [Response("NOT_ENOUGH_REPLICAS", "too few")]
    assert run("  - produce: {values: m1, error: NOT_ENOUGH_REPLICAS}\n")[0].passed
    connections.responses = [Response("NOT_ENOUGH_REPLICAS", "too few")]
    outcome, _ = run("  - produce: m1\n")
    assert outcome.failure.endswith("the response to m1 is NOT_ENOUGH_REPLICAS, not ack. too few")


def test_a_leader_that_moved_is_asked_again_but_not_a_broker_that_was_named(
    run: Any, connections: FakeConnections, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(player, "WAIT_SECONDS", 60.0)
    monkeypatch.setattr(player, "_LOOK_AGAIN_SECONDS", 0.0)
    connections.responses = [Response("NOT_LEADER_OR_FOLLOWER"), Response("ack")]
    assert run("  - produce: m1\n")[0].passed
    connections.responses = [Response("NOT_LEADER_OR_FOLLOWER"), Response("ack")]
    outcome, _ = run("  - produce: {values: m2, via: 1}\n")
    assert "the response to m2 is NOT_LEADER_OR_FOLLOWER, not ack" in outcome.failure
    assert [step for step in connections.done if step[0] == "produce"] == [
        ("produce", "m1", -1, 0),
        ("produce", "m1", -1, 0),
        ("produce", "m2", -1, 1),
    ]


def test_a_round_that_stops_at_its_request_counts_once_in_the_table(run: Any, connections: FakeConnections) -> None:
    connections.rounds = [round_of(0, 0, kept_back=True), round_of(0, 0), round_of(1, 1)]
    outcome, _ = run(
        "  - hold_fetch: 1\n  - mark: a\n  - step_fetch: {broker: 1, until: request}\n  - step_fetch: 1\n"
        "  - table: {phase: x, since: a, leader: 0, followers: 1}\n  - step_fetch: 1\n"
        "  - table: {phase: y, since: a, leader: 0, followers: 1}\n"
    )
    assert outcome.passed
    first, second = (step.table for step in outcome.steps if step.table)
    assert first[1].note == "the first fetch carried offset 0"
    assert second[1].note == "the second fetch carried offset 1"
    assert second[4].note == "min(LeaderHW=1, FollowerLEO=1)=0"


def test_a_refused_round_fails_the_story_unless_it_was_expected(run: Any, connections: FakeConnections) -> None:
    fenced = round_of(1, 0, error=ErrorCode.FENCED_LEADER_EPOCH)
    connections.rounds = [fenced]
    assert run("  - step_fetch: {broker: 1, error: FENCED_LEADER_EPOCH}\n")[0].passed
    connections.rounds = [fenced]
    outcome, _ = run("  - step_fetch: 1\n")
    assert outcome.failure.endswith("the round ended with FENCED_LEADER_EPOCH, not no error.")
    connections.rounds = [round_of(1, 0)]
    assert "not FENCED" in run("  - step_fetch: {broker: 1, error: FENCED_LEADER_EPOCH}\n")[0].failure


def test_a_leader_is_there_when_it_says_so_itself(run: Any, connections: FakeConnections) -> None:
    assert run("  - wait_leader: 0\n")[0].passed
    assert run("  - wait_leader: none\n")[0].failure.endswith("the leader is 0")
    connections.facts = replace(LED, epoch=1)
    assert run("  - wait_leader: 0\n")[0].failure.endswith("broker 0 does not say that it leads")
    connections.facts = replace(LED, leader=NO_LEADER)
    assert run("  - wait_leader: none\n")[0].passed


def test_what_the_accountant_finds_must_be_what_the_story_says(run: Any, connections: FakeConnections) -> None:
    assert run("  - produce: m1\n  - verify: {}\n")[0].passed
    assert ("audit", "story", ["history.jsonl"]) in connections.done
    outcome, _ = run("  - produce: m1\n  - verify: {lost: 1}\n")
    assert outcome.failure.endswith("the accountant finds nothing, not 1 lost")


def test_the_limit_of_the_story_ends_it_with_its_own_error(run: Any) -> None:
    with pytest.raises(TimeLimitError, match="story is not at its end after 120 s"):
        run("  - produce: m1\n", deadline=0.0)


def test_a_check_ends_the_story_in_the_midst_of_a_wait(
    run: Any, connections: FakeConnections, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C, whose exception Python has lost in a destructor."""
    monkeypatch.setattr(player, "WAIT_SECONDS", 60.0)
    monkeypatch.setattr(player, "_LOOK_AGAIN_SECONDS", 0.0)
    looks = iter(range(10))

    def check() -> None:
        if next(looks) == 5:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run("  - wait_leader: none\n", check=check)


def test_a_broker_is_named_by_its_role_at_the_moment_of_the_step(run: Any) -> None:
    """The coordinator of a group is not known when the file is written: it moves with every failover."""
    outcome, reported = run(
        "  - kill: {coordinator_of: group:g}\n  - kill: {brokers: [{leader_of: story-0}, 0]}\n", verbose=True
    )
    assert outcome.failure == ""
    text = "\n".join(reported)
    assert "Kill the coordinator of group:g (SIGKILL)" in text
    assert "the coordinator of group:g is broker 3" in text
    assert "Kill the leader of story-0 and broker 0 (SIGKILL)" in text
    assert "the leader of story-0 is broker 2" in text
