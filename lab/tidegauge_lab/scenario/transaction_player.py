"""Plays the steps of a scenario about transactions (``transaction_steps``)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import singledispatchmethod
from typing import Any

from tidegauge.errors import TidegaugeError
from tidegauge.partition import TopicPartition
from tidegauge_client.isolation import IsolationLevel
from tidegauge_lab.scenario import transaction_steps as steps
from tidegauge_lab.scenario.cluster_connections import ClusterConnections
from tidegauge_lab.scenario.consumers import Consumers
from tidegauge_lab.scenario.group_player import SETTLE_SECONDS, Waits
from tidegauge_lab.scenario.outcome import StepFailed
from tidegauge_lab.scenario.producers import Producers
from tidegauge_lab.scenario.senders import Senders, Sent
from tidegauge_lab.scenario.step_base import PartitionStep, Step
from tidegauge_lab.transaction_conditions import TransactionCondition

LIMIT_SECONDS = 50.0
RESPONSE_SECONDS = 60.0


class TransactionPlayer:
    """The transactions of one run.

    Args:
        producers: its transactional producers.
        consumers: its consumers, which may be paused too.
        senders: the histories of sent records.
        connections: ask the coordinators and leaders.
        wait: the run's waits.
        read: reads what a consumer of an isolation level can read of a partition from its leader.
        partition_of: the partition on which a step acts.
    """

    def __init__(
        self,
        producers: Producers,
        consumers: Consumers,
        senders: Senders,
        connections: ClusterConnections,
        wait: Waits,
        read: Callable[[TopicPartition, IsolationLevel], list[str]],
        partition_of: Callable[[PartitionStep], TopicPartition],
    ) -> None:
        self._producers = producers
        self._consumers = consumers
        self._senders = senders
        self._connections = connections
        self._wait = wait
        self._read = read
        self._partition_of = partition_of
        self._in_flight: dict[str, tuple[str, Sequence[Sent]]] = {}

    def close(self) -> None:
        """End all producers."""
        self._producers.close()

    @singledispatchmethod
    def do(self, step: Step) -> None:
        """Do one step.

        Raises:
            StepFailed: it does not do what it says.
        """
        raise AssertionError(f"{step.verb} is in the vocabulary, so it can be done")

    @do.register
    def _start(self, step: steps.StartProducer) -> None:
        self._producers.start(step.producer, step.transactional_id, step.library, step.settings or {})
        self._call(step.producer, "the start", do="init")
        self._check(step.producer, "")

    @do.register
    def _begin(self, step: steps.BeginTransaction) -> None:
        self._call(step.producer, "the begin", do="begin")
        self._check(step.producer, "")

    @do.register
    def _send(self, step: steps.Send) -> None:
        at = self._partition_of(step)
        sent = [self._senders.invoked(at, value) for value in step.values]
        records = [[one.value, one.timestamp_ms] for one in sent]
        what = f"sending {', '.join(step.values)}"
        self._call(step.producer, what, sent, do="send", topic=at.topic, partition=at.partition, records=records)
        if step.answer == "now":
            self._check(step.producer, step.error)

    @do.register
    def _send_offsets(self, step: steps.SendOffsets) -> None:
        offsets = [[at, offset] for at, offset in step.offsets.items()]
        what = f"the offsets of group {step.group}"
        self._call(step.producer, what, do="send_offsets", group=step.group, offsets=offsets)
        if step.answer == "now":
            self._check(step.producer, step.error)

    @do.register
    def _commit(self, step: steps.CommitTransaction) -> None:
        self._end(step, "commit")

    @do.register
    def _abort(self, step: steps.AbortTransaction) -> None:
        self._end(step, "abort")

    def _end(self, step: steps.EndStep, what: str) -> None:
        self._call(step.producer, f"the {what}", do=what)
        if step.answer == "now":
            self._check(step.producer, step.error)

    @do.register
    def _wait_producer(self, step: steps.WaitProducer) -> None:
        if step.producer not in self._in_flight:
            raise StepFailed(f"{step.producer} has nothing whose outcome is awaited")
        self._check(step.producer, step.error)

    @do.register
    def _kill(self, step: steps.KillProducer) -> None:
        self._producers.kill(step.producer)
        self._in_flight.pop(step.producer, None)

    @do.register
    def _pause(self, step: steps.PauseClient) -> None:
        self._client(step.client).pause()

    @do.register
    def _resume(self, step: steps.ResumeClient) -> None:
        self._client(step.client).resume()

    def _client(self, name: str) -> Any:
        return self._consumers[name] if name in self._consumers else self._producers[name]

    @do.register
    def _wait_transaction(self, step: steps.WaitTransaction) -> None:
        self._wait(lambda: self._differing(step, is_exact=False))

    @do.register
    def _expect_transaction(self, step: steps.ExpectTransaction) -> None:
        self._wait(lambda: self._differing(step, is_exact=True), SETTLE_SECONDS)

    def _differing(self, step: steps.WaitTransaction | steps.ExpectTransaction, *, is_exact: bool) -> list[str]:
        condition = TransactionCondition(step.state, step.epoch, step.partitions, is_exact)
        try:
            found = self._connections.look_at_transaction(step.transactional_id, condition)
        except TidegaugeError as problem:
            return [str(problem)]
        return [found] if isinstance(found, str) else []

    @do.register
    def _expect_read(self, step: steps.ExpectRead) -> None:
        at = self._partition_of(step)

        def differing() -> list[str]:
            try:
                found = self._read(at, step.isolation_level)
            except TidegaugeError as problem:
                return [str(problem)]
            if found == list(step.values):
                return []
            wanted = ", ".join(step.values) or "nothing"
            return [f"a consumer with {step.isolation_level} reads {', '.join(found) or 'nothing'}, not {wanted}"]

        self._wait(differing, SETTLE_SECONDS)

    @do.register
    def _expect_producers(self, step: steps.ExpectProducers) -> None:
        self._expect_starts(step, "open", self._connections.open_transactions)

    @do.register
    def _expect_hanging(self, step: steps.ExpectHanging) -> None:
        self._expect_starts(step, "hanging", self._connections.hanging_transactions)

    def _expect_starts(
        self,
        step: steps.ExpectProducers | steps.ExpectHanging,
        what: str,
        look: Callable[[TopicPartition], Sequence[int]],
    ) -> None:
        at = self._partition_of(step)

        def differing() -> list[str]:
            try:
                found = tuple(look(at))
            except TidegaugeError as problem:
                return [str(problem)]
            if found == step.starts:
                return []
            wanted, shown = (", ".join(map(str, one)) or "nowhere" for one in (step.starts, found))
            return [f"the {what} transactions of {at} begin at {shown}, not at {wanted}"]

        self._wait(differing, SETTLE_SECONDS)

    @do.register
    def _abort_hanging(self, step: steps.AbortHanging) -> None:
        try:
            self._connections.abort_hanging(self._partition_of(step), step.start)
        except TidegaugeError as problem:
            raise StepFailed(str(problem)) from None

    def _call(self, producer: str, what: str, sent: Sequence[Sent] = (), **command: Any) -> None:
        """Send a producer a command; ``_check`` takes its response."""
        if producer in self._in_flight:
            earlier, _ = self._in_flight[producer]
            raise StepFailed(f"{producer} is still busy with {earlier}: wait_producer comes first")
        self._producers[producer].send(limit_seconds=LIMIT_SECONDS, **command)
        self._in_flight[producer] = what, sent

    def _check(self, producer: str, wanted: str) -> None:
        """Wait for the response to a producer's command; it must be as wanted."""
        response = self._producers[producer].response(RESPONSE_SECONDS)
        what, sent = self._in_flight.pop(producer)
        if response is None:
            raise StepFailed(f"{producer} did not respond within {RESPONSE_SECONDS:g} s: {what}")
        self._note(sent, response)
        if response.get("error", "") != wanted:
            found = response.get("error", "no error")
            raise StepFailed(
                f"{what} of {producer} ended with {found}, not {wanted or 'no error'}. "
                f"{response.get('message', '')}".strip()
            )

    def _note(self, sent: Sequence[Sent], response: Mapping[str, Any]) -> None:
        for one, outcome in zip(sent, response.get("records", ()), strict=False):
            if "error" in outcome:
                self._senders.failed(one, outcome["error"])
            else:
                self._senders.acknowledged(one, outcome["offset"])
