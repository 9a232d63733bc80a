"""The consumers of scenarios (group_player.py, consumer_process.py) on fakes of processes, clients and coordinators."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge_lab.group_conditions import GroupCondition
from tidegauge_lab.scenario import consumer_process, group_steps
from tidegauge_lab.scenario.consumers import Consumers, settings_of
from tidegauge_lab.scenario.group_player import GroupPlayer
from tidegauge_lab.scenario.outcome import StepFailed


class Consumer:
    """Takes commands and has one response."""

    def __init__(self, response: dict[str, Any] | None) -> None:
        self.sent: list[dict[str, Any]] = []
        self._response = response

    def send(self, **command: Any) -> None:
        self.sent.append(command)

    def response(self, _limit_seconds: float) -> dict[str, Any] | None:
        return self._response


class ClusterConnections:
    """A coordinator that says one thing of a group."""

    def __init__(self, found: str | TidegaugeError) -> None:
        self.found = found
        self.asked: list[GroupCondition] = []

    def look_at_group(self, _group: str, condition: GroupCondition) -> str:
        self.asked.append(condition)
        if isinstance(self.found, TidegaugeError):
            raise self.found
        return self.found


def test_settings_that_the_consumer_protocol_refuses_are_left_out_there_and_only_there() -> None:
    """KIP-848: the broker decides on sessions, heartbeats and assignors; a client refuses to be created with them."""
    classic = settings_of("confluent-kafka", {"group.id": "g"})
    consumer = settings_of("confluent-kafka", {"group.id": "g", "group.protocol": "consumer"})
    assert classic.keys() - consumer.keys() == {"partition.assignment.strategy", "heartbeat.interval.ms"}
    assert consumer["auto.offset.reset"] == "earliest"
    own = settings_of("confluent-kafka", {"group.protocol": "consumer", "heartbeat.interval.ms": "1"})
    assert own["heartbeat.interval.ms"] == "1", "a step's own setting reaches the client, which refuses it"


def test_an_error_that_a_consumer_reports_must_be_the_expected_one() -> None:
    refused = Consumer({"error": "UNRELEASED_INSTANCE_ID", "message": "no."})
    player(refused).do(group_steps.WaitConsumerError(line=1, consumer="a", error="UNRELEASED_INSTANCE_ID"))
    with pytest.raises(StepFailed) as failed:
        player(Consumer({})).do(group_steps.WaitConsumerError(line=1, consumer="a", error="UNRELEASED_INSTANCE_ID"))
    assert failed.value.message == "a has reported no fatal error, not UNRELEASED_INSTANCE_ID"


def once(problems: Callable[[], Sequence[str]], limit_seconds: float | None = None) -> None:
    """A wait that looks once."""
    del limit_seconds
    if found := problems():
        raise StepFailed("; ".join(found))


def player(consumer: Consumer, connections: Any = None) -> GroupPlayer:
    consumers: Any = {"a": consumer}
    return GroupPlayer(consumers, connections, once, "story")


def test_a_consumer_must_get_exactly_the_values_of_its_step() -> None:
    consumer = Consumer({"values": ["m1", "m3"]})
    with pytest.raises(StepFailed) as failed:
        player(consumer).do(group_steps.Consume(line=1, consumer="a", values=("m1", "m2")))
    assert failed.value.message == "a got m1, m3, not m1, m2"
    assert consumer.sent[0]["count"] == 2
    player(consumer).do(group_steps.Consume(line=1, consumer="a", values=("m1", "m3"), busy=True))
    assert consumer.sent[1]["busy"]


def test_a_commit_must_end_as_its_step_says() -> None:
    refused = Consumer({"error": "UNKNOWN_MEMBER_ID", "message": "no."})
    player(refused).do(group_steps.Commit(line=1, consumer="a", error="UNKNOWN_MEMBER_ID"))
    with pytest.raises(StepFailed) as failed:
        player(refused).do(group_steps.Commit(line=1, consumer="a"))
    assert failed.value.message == "the commit of a ended with UNKNOWN_MEMBER_ID, not no error. no."
    with pytest.raises(StepFailed):
        player(Consumer({"committed": {}})).do(group_steps.WaitCommit(line=1, consumer="a", error="CommitFailedError"))


def test_a_commit_whose_response_is_awaited_later_is_only_sent() -> None:
    silent = Consumer(None)
    player(silent).do(group_steps.Commit(line=1, consumer="a", answer="later"))
    assert silent.sent == [{"do": "commit"}]
    with pytest.raises(StepFailed) as failed:
        player(silent).do(group_steps.WaitCommit(line=1, consumer="a"))
    assert failed.value.message == "a did not respond within 60 s"


def test_an_expectation_of_a_group_is_exact_and_a_wait_is_not() -> None:
    connections = ClusterConnections("group g is Empty")
    for step in (group_steps.WaitGroup, group_steps.ExpectGroup):
        with pytest.raises(StepFailed) as failed:
            player(Consumer(None), connections).do(step(line=1, group="g", generation=2, committed={"story-0": 1}))
        assert failed.value.message == "group g is Empty"
    assert [one.is_exact for one in connections.asked] == [False, True]
    assert {str(at): offset for at, offset in (connections.asked[0].committed or {}).items()} == {"story-0": 1}
    connections.found = TidegaugeError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "no coordinator")
    with pytest.raises(StepFailed):
        player(Consumer(None), connections).do(group_steps.WaitGroup(line=1, group="g"))


def test_a_library_that_is_not_installed_is_named_with_what_to_do(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    consumers = Consumers(lambda: "127.0.0.1:1", tmp_path)
    with pytest.raises(TidegaugeError, match="pip install confluent-kafka"):
        consumers.start("a", "g", "story", "confluent-kafka", {})
    with pytest.raises(TidegaugeError, match="no consumer a runs; those that run: none"):
        consumers.kill("a")


class Client:
    """A client of one record a poll, whose commits fail if they must."""

    def __init__(self, problem: Exception | None = None) -> None:
        self.left = ["m1", "m2", "m3"]
        self.closed = False
        self.fatal: consumer_process.Failed | None = None
        self._problem = problem

    def idle(self) -> None:
        """Do nothing."""

    def poll(self, count: int) -> list[str]:
        assert count >= 1
        return [self.left.pop(0)]

    def commit(self, offsets: Mapping[str, int] | None = None) -> dict[str, int]:
        if self._problem is not None:
            raise self._problem
        return {"story-0": 3 - len(self.left)} if offsets is None else dict(offsets)

    def problem(self) -> consumer_process.Failed | None:
        return self.fatal

    def close(self) -> None:
        self.closed = True


def test_a_client_obeys_one_command_after_the_other() -> None:
    client = Client()
    assert consumer_process.obey(client, {"do": "consume", "count": 2, "limit_seconds": 5}) == {"values": ["m1", "m2"]}
    assert consumer_process.obey(client, {"do": "commit"}) == {"committed": {"story-0": 2}}
    assert consumer_process.obey(client, {"do": "commit", "offsets": {"story-1": 7}}) == {"committed": {"story-1": 7}}
    assert consumer_process.obey(client, {"do": "busy"}) == {}
    assert consumer_process.obey(client, {"do": "close"}) == {}
    assert client.closed
    client.fatal = consumer_process.Failed("UNRELEASED_INSTANCE_ID", "no.")
    assert consumer_process.obey(client, {"do": "problem", "limit_seconds": 5}) == {
        "error": "UNRELEASED_INSTANCE_ID",
        "message": "no.",
    }
    failing = Client(consumer_process.Failed("ILLEGAL_GENERATION", "gone"))
    assert consumer_process.obey(failing, {"do": "commit"}) == {"error": "ILLEGAL_GENERATION", "message": "gone"}
