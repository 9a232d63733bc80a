"""The transactional producers of scenarios (transaction_player.py, producer_process.py) on fakes of both ends."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.partition import TopicPartition
from tidegauge_client.admin_transactions import TransactionDescription
from tidegauge_lab.scenario import producer_process
from tidegauge_lab.scenario import transaction_steps as steps
from tidegauge_lab.scenario.client_processes import ClientProcess, Clients
from tidegauge_lab.scenario.loader import ScenarioError, parse
from tidegauge_lab.scenario.outcome import StepFailed
from tidegauge_lab.scenario.senders import Sent
from tidegauge_lab.scenario.transaction_player import TransactionPlayer
from tidegauge_lab.transaction_conditions import TransactionCondition

AT = TopicPartition("story", 0)


class Producer:
    """Takes commands and has one response to each."""

    def __init__(self, *responses: dict[str, Any] | None) -> None:
        self.sent: list[dict[str, Any]] = []
        self.signals: list[str] = []
        self._responses = list(responses)

    def send(self, **command: Any) -> None:
        self.sent.append(command)

    def response(self, _limit_seconds: float) -> dict[str, Any] | None:
        return self._responses.pop(0)

    def pause(self) -> None:
        self.signals.append("pause")

    def resume(self) -> None:
        self.signals.append("resume")


class Senders:
    """Histories that are only counted."""

    def __init__(self) -> None:
        self.noted: list[tuple[str, object]] = []

    def invoked(self, at: TopicPartition, value: str) -> Sent:
        return Sent(value, 7, at, 0)

    def acknowledged(self, sent: Sent, offset: int) -> None:
        self.noted.append((sent.value, offset))

    def failed(self, sent: Sent, error: str) -> None:
        self.noted.append((sent.value, error))


class ClusterConnections:
    """A coordinator that says one thing of a transactional id."""

    def __init__(self, found: str | TidegaugeError = "") -> None:
        self.found = found
        self.asked: list[TransactionCondition] = []

    def open_transactions(self, at: TopicPartition) -> list[int]:
        assert at == AT
        return [3, 7]

    def hanging_transactions(self, at: TopicPartition) -> list[int]:
        if isinstance(self.found, TidegaugeError):
            raise self.found
        return [] if at == AT else [1]

    def abort_hanging(self, at: TopicPartition, start_offset: int) -> None:
        raise TidegaugeError(ErrorCode.INVALID_REQUEST, f"No open transaction begins at {start_offset} of {at}")

    def look_at_transaction(self, _transactional_id: str, condition: TransactionCondition) -> str:
        self.asked.append(condition)
        if isinstance(self.found, TidegaugeError):
            raise self.found
        return self.found


def once(problems: Callable[[], Sequence[str]], limit_seconds: float | None = None) -> None:
    """A wait that looks once."""
    del limit_seconds
    if found := problems():
        raise StepFailed("; ".join(found))


def player(producer: Producer, *, connections: Any = None, senders: Any = None, read: Any = None) -> TransactionPlayer:
    producers: Any = {"a": producer}
    consumers: Any = {}
    return TransactionPlayer(producers, consumers, senders or Senders(), connections, once, read, lambda _: AT)


def test_what_is_sent_and_what_came_of_it_stands_in_the_history() -> None:
    refused = {"error": "INVALID_PRODUCER_EPOCH", "message": "old."}
    producer = Producer({**refused, "records": [{"offset": 4}, refused]})
    senders = Senders()
    step = steps.Send(line=1, producer="a", values=("m1", "m2"), error="INVALID_PRODUCER_EPOCH")
    player(producer, senders=senders).do(step)
    (command,) = producer.sent
    assert (command["do"], command["topic"], command["partition"]) == ("send", "story", 0)
    assert command["records"] == [["m1", 7], ["m2", 7]]
    assert senders.noted == [("m1", 4), ("m2", "INVALID_PRODUCER_EPOCH")]


def test_a_call_must_end_as_its_step_says() -> None:
    fenced = {"error": "_FENCED", "message": "no."}
    player(Producer(fenced)).do(steps.CommitTransaction(line=1, producer="a", error="_FENCED"))
    with pytest.raises(StepFailed) as failed:
        player(Producer(fenced)).do(steps.AbortTransaction(line=1, producer="a"))
    assert failed.value.message == "the abort of a ended with _FENCED, not no error. no."
    with pytest.raises(StepFailed) as failed:
        player(Producer({})).do(steps.CommitTransaction(line=1, producer="a", error="_FENCED"))
    assert failed.value.message == "the commit of a ended with no error, not _FENCED."
    with pytest.raises(StepFailed) as failed:
        player(Producer(None)).do(steps.BeginTransaction(line=1, producer="a"))
    assert failed.value.message == "a did not respond within 60 s: the begin"


def test_a_call_that_is_awaited_later_keeps_the_next_from_being_sent() -> None:
    producer = Producer({}, {})
    playing = player(producer)
    playing.do(steps.CommitTransaction(line=1, producer="a", answer="later"))
    with pytest.raises(StepFailed) as failed:
        playing.do(steps.BeginTransaction(line=1, producer="a"))
    assert failed.value.message == "a is still busy with the commit: wait_producer comes first"
    playing.do(steps.WaitProducer(line=1, producer="a"))
    playing.do(steps.BeginTransaction(line=1, producer="a"))
    with pytest.raises(StepFailed) as failed:
        playing.do(steps.WaitProducer(line=1, producer="a"))
    assert failed.value.message == "a has nothing whose outcome is awaited"


def test_producers_and_consumers_are_paused_by_name() -> None:
    producer, consumer = Producer(), Producer()
    playing = player(producer)
    playing._consumers = {"b": consumer}  # type: ignore[assignment]
    playing.do(steps.PauseClient(line=1, client="a"))
    playing.do(steps.ResumeClient(line=1, client="b"))
    assert (producer.signals, consumer.signals) == (["pause"], ["resume"])


def test_an_expectation_of_a_transactional_id_is_exact_and_a_wait_is_not() -> None:
    connections = ClusterConnections("transactional id tx is Empty")
    for step in (steps.WaitTransaction, steps.ExpectTransaction):
        with pytest.raises(StepFailed) as failed:
            player(Producer(), connections=connections).do(step(line=1, transactional_id="tx", epoch=2))
        assert failed.value.message == "transactional id tx is Empty"
    assert [one.is_exact for one in connections.asked] == [False, True]
    connections.found = TidegaugeError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "no coordinator")
    with pytest.raises(StepFailed):
        player(Producer(), connections=connections).do(steps.WaitTransaction(line=1, transactional_id="tx"))


def test_a_reader_must_get_exactly_the_values_of_its_step() -> None:
    step = steps.ExpectRead(line=1, isolation_level="read_committed", values=("m1",))
    player(Producer(), read=lambda at, level: ["m1"] if (at, level) == (AT, "read_committed") else []).do(step)
    with pytest.raises(StepFailed) as failed:
        player(Producer(), read=lambda *_: ["m1", "m2"]).do(step)
    assert failed.value.message == "a consumer with read_committed reads m1, m2, not m1"


def test_open_and_hanging_transactions_begin_exactly_where_the_step_says() -> None:
    """KIP-664: a leader says which are open, and its coordinators which of them hang."""
    playing = player(Producer(), connections=ClusterConnections())
    playing.do(steps.ExpectProducers(line=1, starts=(3, 7)))
    playing.do(steps.ExpectHanging(line=1, starts=()))
    with pytest.raises(StepFailed) as failed:
        playing.do(steps.ExpectProducers(line=1, starts=()))
    assert failed.value.message == "the open transactions of story-0 begin at 3, 7, not at nowhere"
    with pytest.raises(StepFailed, match="begin at nowhere, not at 3"):
        playing.do(steps.ExpectHanging(line=1, starts=(3,)))
    silent = ClusterConnections(TidegaugeError(ErrorCode.LEADER_NOT_AVAILABLE, "no leader"))
    with pytest.raises(StepFailed, match="no leader"):
        player(Producer(), connections=silent).do(steps.ExpectHanging(line=1, starts=()))
    with pytest.raises(StepFailed, match="No open transaction begins at 5 of story-0"):
        playing.do(steps.AbortHanging(line=1, start=5))


def test_offsets_go_to_the_producers_transaction() -> None:
    producer = Producer({}, {"error": "_FENCED", "message": "late"})
    playing = player(producer)
    step = steps.SendOffsets(line=1, producer="a", group="g", offsets={"story-0": 4})
    playing.do(step)
    assert producer.sent[0]["do"] == "send_offsets"
    assert (producer.sent[0]["group"], producer.sent[0]["offsets"]) == ("g", [["story-0", 4]])
    with pytest.raises(StepFailed, match="the offsets of group g of a ended with _FENCED"):
        playing.do(step)


def described(**fields: Any) -> TransactionDescription:
    values = {"state": "Ongoing", "producer_id": 0, "producer_epoch": 2, "timeout_ms": 1, "start_time_ms": 1}
    return TransactionDescription("tx", 0, **{**values, "partitions": (AT,), **fields})


@pytest.mark.parametrize(
    ("condition", "problem"),
    [
        (TransactionCondition("Ongoing", 2, [AT]), None),
        (TransactionCondition(epoch=1), None),
        (TransactionCondition("Empty"), "transactional id tx is Ongoing"),
        (TransactionCondition(epoch=3), "transactional id tx is in epoch 2"),
        (TransactionCondition(epoch=1, is_exact=True), "transactional id tx is in epoch 2"),
        (TransactionCondition(partitions=[]), "transactional id tx has story-0 in its transaction"),
    ],
)
def test_what_is_not_so_of_a_transactional_id_is_said(condition: TransactionCondition, problem: str | None) -> None:
    assert condition.problem(described()) == problem


def test_a_state_that_there_is_not_is_refused() -> None:
    with pytest.raises(ValueError, match="'Dead' is no state of a transactional id; there are Empty, Ongoing"):
        TransactionCondition("Dead")
    assert TransactionCondition("Ongoing", 1, [AT]).text == "state Ongoing, epoch 1, partitions story-0"


class Client:
    """A client whose calls fail as often as it is given problems."""

    def __init__(self, *problems: producer_process.Failed) -> None:
        self.calls: list[str] = []
        self._problems = list(problems)

    def _call(self, name: str) -> None:
        self.calls.append(name)
        if self._problems:
            raise self._problems.pop(0)

    def init(self, _limit_seconds: float) -> None:
        self._call("init")

    def begin(self) -> None:
        self._call("begin")

    def commit(self, _limit_seconds: float) -> None:
        self._call("commit")

    def abort(self, _limit_seconds: float) -> None:
        self._call("abort")

    def send_offsets(self, group: str, offsets: Sequence[tuple[str, int, int]], _limit_seconds: float) -> None:
        assert offsets == [("my-topic", 2, 4)]
        self._call(f"offsets of {group}")

    def send(
        self, topic: str, partition: int, records: Sequence[tuple[str, int]], _limit_seconds: float
    ) -> list[dict[str, Any]]:
        assert (topic, partition) == ("story", 1)
        failing = {"error": "INVALID_TXN_STATE", "message": "not in it"}
        return [{"offset": 3} if value == "m1" else failing for value, _ in records]


def test_a_client_repeats_what_it_may_repeat_as_applications_do() -> None:
    client = Client(producer_process.Failed("_TIMED_OUT", "late", may_repeat=True))
    assert producer_process.obey(client, {"do": "commit", "limit_seconds": 5}) == {}
    assert client.calls == ["commit", "commit"]
    fenced = Client(producer_process.Failed("_FENCED", "gone"))
    assert producer_process.obey(fenced, {"do": "abort", "limit_seconds": 5}) == {"error": "_FENCED", "message": "gone"}
    assert fenced.calls == ["abort"]
    assert producer_process.obey(Client(), {"do": "begin"}) == {}
    offering = Client()
    assert producer_process.obey(offering, {"do": "send_offsets", "group": "g", "offsets": [["my-topic-2", 4]]}) == {}
    assert offering.calls == ["offsets of g"]


def test_the_first_record_that_failed_is_the_error_of_a_send() -> None:
    command = {"do": "send", "topic": "story", "partition": 1, "records": [["m1", 1], ["m2", 1]]}
    failing = {"error": "INVALID_TXN_STATE", "message": "not in it"}
    assert producer_process.obey(Client(), command) == {**failing, "records": [{"offset": 3}, failing]}


SOURCE = "import sys\nfor line in sys.stdin:\n    print(line.strip(), flush=True)\n"


def test_a_process_is_paused_resumed_and_killed_while_it_is_paused(tmp_path: Path) -> None:
    (tmp_path / "echoing.py").write_text(SOURCE)
    with pytest.MonkeyPatch.context() as patched:
        patched.chdir(tmp_path)  # ``python -m`` finds it there
        process = ClientProcess("echoing", {}, tmp_path / "errors")
    clients: Clients[ClientProcess] = Clients()
    clients._running["a"] = process
    try:
        process.send(number=1)
        assert process.response(60) == {"number": 1}
        clients["a"].pause()
        state = f"/proc/{process._process.pid}/stat"
        while Path(state).read_text().rsplit(")", 1)[1].split()[0] != "T":
            pass
        process.send(number=2)
        process.resume()
        assert process.response(60) == {"number": 2}
        process.pause()
    finally:
        clients.close()
    assert process._process.returncode == -signal.SIGKILL
    with pytest.raises(TidegaugeError, match="no client a runs; those that run: none"):
        clients["a"].pause()
    assert sys.executable


HEAD = """\
title: A story.
cluster: {brokers: 3}
topics:
  - {name: story, assignment: [0]}
steps:
  - start_producer: {producer: a, transactional_id: tx}
"""


def test_a_value_is_sent_once_and_to_a_partition_that_is_there() -> None:
    text = HEAD + "  - send: {producer: a, values: m1}\n  - send: {producer: a, values: m1, partition: story-7}\n"
    with pytest.raises(ScenarioError) as refused:
        parse(text, "a.yaml")
    assert refused.value.message.splitlines() == [
        "a.yaml:8: 'm1' was produced before; values name records, so each is used once",
        "a.yaml:8: there is no partition story-7 in this scenario",
    ]
