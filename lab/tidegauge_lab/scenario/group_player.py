"""Plays the steps of a scenario about consumer groups (``group_steps``)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import singledispatchmethod
from typing import Any, Protocol

from tidegauge.errors import TidegaugeError
from tidegauge.partition import TopicPartition
from tidegauge_lab.group_conditions import GroupCondition
from tidegauge_lab.scenario import group_steps as steps
from tidegauge_lab.scenario.cluster_connections import ClusterConnections
from tidegauge_lab.scenario.consumers import Consumers
from tidegauge_lab.scenario.outcome import StepFailed
from tidegauge_lab.scenario.step_base import Step

CONSUME_SECONDS = 45.0
RESPONSE_SECONDS = 60.0
SETTLE_SECONDS = 10.0


class Waits(Protocol):
    """Waits until there are no problems any more, or fails the step."""

    def __call__(self, problems: Callable[[], Sequence[str]], limit_seconds: float | None = None) -> None:
        """Wait."""


class GroupPlayer:
    """The groups of one run.

    Args:
        consumers: its consumers.
        connections: ask the coordinators.
        wait: the run's waits.
        topic: what consumers subscribe to, where their step says nothing else.
    """

    def __init__(self, consumers: Consumers, connections: ClusterConnections, wait: Waits, topic: str) -> None:
        self._topic = topic
        self._consumers = consumers
        self._connections = connections
        self._wait = wait

    def close(self) -> None:
        """End all consumers."""
        self._consumers.close()

    @singledispatchmethod
    def do(self, step: Step) -> None:
        """Do one step.

        Raises:
            StepFailed: it does not do what it says.
        """
        raise AssertionError(f"{step.verb} is in the vocabulary, so it can be done")

    @do.register
    def _start(self, step: steps.StartConsumer) -> None:
        self._consumers.start(step.consumer, step.group, step.topic or self._topic, step.library, step.settings or {})

    @do.register
    def _consume(self, step: steps.Consume) -> None:
        count = len(step.values)
        self._consumers[step.consumer].send(do="consume", count=count, limit_seconds=CONSUME_SECONDS, busy=step.busy)
        found = self._response(step.consumer).get("values", [])
        if found != list(step.values):
            raise StepFailed(f"{step.consumer} got {', '.join(found) or 'nothing'}, not {', '.join(step.values)}")

    @do.register
    def _busy(self, step: steps.Busy) -> None:
        self._consumers[step.consumer].send(do="busy")
        self._response(step.consumer)

    @do.register
    def _poll(self, step: steps.Poll) -> None:
        self._consumers[step.consumer].send(do="poll")
        self._response(step.consumer)

    @do.register
    def _commit(self, step: steps.Commit) -> None:
        offsets = {} if step.offsets is None else {"offsets": dict(step.offsets)}
        self._consumers[step.consumer].send(do="commit", **offsets)
        if step.answer == "now":
            self._check_commit(step.consumer, step.error)

    @do.register
    def _wait_commit(self, step: steps.WaitCommit) -> None:
        self._check_commit(step.consumer, step.error)

    def _check_commit(self, consumer: str, wanted: str) -> None:
        response = self._response(consumer)
        if response.get("error", "") != wanted:
            found = response.get("error", "no error")
            raise StepFailed(
                f"the commit of {consumer} ended with {found}, not {wanted or 'no error'}. "
                f"{response.get('message', '')}".strip()
            )

    @do.register
    def _wait_error(self, step: steps.WaitConsumerError) -> None:
        self._consumers[step.consumer].send(do="problem", limit_seconds=CONSUME_SECONDS)
        found = self._response(step.consumer).get("error", "no fatal error")
        if found != step.error:
            raise StepFailed(f"{step.consumer} has reported {found}, not {step.error}")

    @do.register
    def _close(self, step: steps.CloseConsumer) -> None:
        self._consumers[step.consumer].send(do="close")
        self._response(step.consumer)
        self._consumers.kill(step.consumer)

    @do.register
    def _kill(self, step: steps.KillConsumer) -> None:
        self._consumers.kill(step.consumer)

    @do.register
    def _wait_group(self, step: steps.WaitGroup) -> None:
        self._wait(lambda: self._differing(step, is_exact=False))

    @do.register
    def _expect_group(self, step: steps.ExpectGroup) -> None:
        self._wait(lambda: self._differing(step, is_exact=True), SETTLE_SECONDS)

    def _differing(self, step: steps.WaitGroup | steps.ExpectGroup, *, is_exact: bool) -> list[str]:
        committed = {TopicPartition.parse(at): offset for at, offset in (step.committed or {}).items()}
        condition = GroupCondition(
            step.state,
            step.members,
            step.generation,
            step.lag,
            step.assignment,
            committed or None,
            is_exact,
            step.epochs,
        )
        try:
            found = self._connections.look_at_group(step.group, condition)
        except TidegaugeError as problem:
            return [str(problem)]
        return [found] if isinstance(found, str) else []

    def _response(self, consumer: str) -> dict[str, Any]:
        found = self._consumers[consumer].response(RESPONSE_SECONDS)
        if found is None:
            raise StepFailed(f"{consumer} did not respond within {RESPONSE_SECONDS:g} s")
        return found
