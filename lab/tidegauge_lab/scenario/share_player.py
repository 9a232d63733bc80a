"""Plays the steps of a scenario about share groups (``share_steps``)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from functools import singledispatchmethod
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TypeVar

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.partition import TopicPartition
from tidegauge.share_groups import NO_START_OFFSET
from tidegauge_client.operation_history import OperationHistory
from tidegauge_client.sent_record import INFO, OK
from tidegauge_client.share_explanation import ShareFacts
from tidegauge_client.share_member import Delivered, Says, ShareMember
from tidegauge_client.share_views import KeptShare
from tidegauge_lab.accountant.reading.share_history import read_share_histories
from tidegauge_lab.accountant.shares.findings import NOTES
from tidegauge_lab.accountant.shares.judging import judge_shares
from tidegauge_lab.accountant.shares.telling import share_lines
from tidegauge_lab.scenario import share_steps as steps
from tidegauge_lab.scenario.group_player import SETTLE_SECONDS, Waits
from tidegauge_lab.scenario.outcome import StepFailed
from tidegauge_lab.scenario.readers import NO_LEADER
from tidegauge_lab.scenario.share_ranges import difference
from tidegauge_lab.scenario.step_base import PartitionStep, Step

Result = TypeVar("Result")

JOIN_SECONDS = 50.0
RESPONSE_SECONDS = 75.0
"""How long a response may take: the persister of Kafka's brokers repeats a write for 30 s."""
WAIT_MS = 1_000
"""How long one fetch waits at the broker."""
_ALL = 100
_PASSING = frozenset(
    {
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.SHARE_SESSION_NOT_FOUND,
        ErrorCode.INVALID_SHARE_SESSION_EPOCH,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
)
"""Errors after which a consumer fetches again."""


_ADMIN = "admin"
"""The process that alters offsets, in the history."""


class _Acknowledging(NamedTuple):
    """An acknowledgement without an outcome yet, and its number in the history."""

    future: Future[None]
    number: int


class ShareHands(Protocol):
    """Requests to the brokers beside the members' own."""

    def new_member(self, group: str, name: str, at: TopicPartition) -> ShareMember:
        """Return a member that has done nothing yet."""
        ...

    def begun(self, work: Coroutine[Any, Any, Result]) -> Future[Result]:
        """Begin what members do."""
        ...

    def set_group_config(self, group: str, config: dict[str, str]) -> None:
        """Set settings of a group, and wait until they are in force."""
        ...

    def begin_share_group(self, group: str, at: TopicPartition, offset: int) -> ErrorCode:
        """Alter the offset of a share group; gives the error."""
        ...

    def look_at_share(self, group: str, at: TopicPartition) -> ShareFacts:
        """Return the known facts of a share partition."""
        ...


class SharePlayer:
    """The share groups of one run.

    Args:
        connections: make the members, and ask brokers.
        wait: the run's waits.
        partition_of: the partition on which a step acts.
        history: the file in which it is written down what members were given and have said.
        detail: says something that a step has found.
    """

    def __init__(
        self,
        connections: ShareHands,
        wait: Waits,
        partition_of: Callable[[PartitionStep], TopicPartition],
        history: Path,
        detail: Callable[[str], None],
    ) -> None:
        self._connections = connections
        self._wait = wait
        self._partition_of = partition_of
        self._members: dict[str, ShareMember] = {}
        self._offsets: dict[str, dict[str, int]] = {}
        self._in_flight: dict[str, _Acknowledging] = {}
        self._path = history
        self._detail = detail
        self._histories: dict[str, OperationHistory] = {}

    def close(self) -> None:
        """End the connections of all members."""
        for name in list(self._members):
            self._abandon(name)
        for history in self._histories.values():
            history.close()

    @singledispatchmethod
    def do(self, step: Step) -> None:
        """Do one step.

        Raises:
            StepFailed: it does not do what it says.
        """
        raise AssertionError(f"{step.verb} is in the vocabulary, so it can be done")

    @do.register
    def _config(self, step: steps.SetGroupConfig) -> None:
        self._connections.set_group_config(step.group, dict(step.config))

    @do.register
    def _begin(self, step: steps.BeginShareGroup) -> None:
        at = self._partition_of(step)
        history = self._history_of(_ADMIN)
        number = history.invoke("alter-offsets", group=step.group, offsets={str(at): step.offset})
        code = self._connections.begin_share_group(step.group, at, step.offset)
        history.end(number, OK if code is ErrorCode.NONE else INFO)
        if code is not step.error:
            raise StepFailed(f"the alteration of {step.group}'s offset of {at} ended with {code.name}")

    @do.register
    def _start(self, step: steps.StartMember) -> None:
        if step.member in self._members:
            raise StepFailed(f"{step.member} is a member already")
        at = self._partition_of(step)
        member = self._members[step.member] = self._connections.new_member(step.group, step.member, at)
        self._offsets[step.member] = {}
        self._result(step.member, self._connections.begun(_in_time(member.join())))

    @do.register
    def _fetch(self, step: steps.ShareFetch) -> None:
        member = self._member(step.member)
        found: list[Delivered] = []

        def lacking() -> list[str]:
            wanted = len(step.values) - len(found) if step.values else _ALL
            try:
                found.extend(self._fetched(member, wanted))
            except TidegaugeError as problem:
                return self._after_failed_fetch(step, problem)
            if step.error is not ErrorCode.NONE:
                return [f"the fetch of {step.member} ended without {step.error.name}"]
            got = [one.value for one in found]
            if not step.values or len(got) >= len(step.values):
                return []
            return [f"{step.member} has got {', '.join(got) or 'nothing'} so far, not {', '.join(step.values)}"]

        self._wait(lacking)
        self._check_fetched(step, found)

    def _fetched(self, member: ShareMember, wanted: int) -> list[Delivered]:
        """Let a member fetch once, and write down what it was given."""
        history = self._history_of(member.member_id)
        number = history.invoke("acquire", group=member.group_id)
        try:
            found = self._result(member.member_id, self._connections.begun(member.fetch(wanted, WAIT_MS)))
        except TidegaugeError as problem:
            history.end(number, INFO, error=problem.code.name)
            raise
        at = member.at
        records = [[at.topic, at.partition, one.offset, one.value, one.delivery_count] for one in found]
        history.end(number, OK, records=records)
        return found

    def _history_of(self, process: str) -> OperationHistory:
        """Return the history of a process."""
        if process not in self._histories:
            self._histories[process] = OperationHistory(self._path)
            self._histories[process].writer = process
        return self._histories[process]

    def _after_failed_fetch(self, step: steps.ShareFetch, problem: TidegaugeError) -> list[str]:
        """Return the problem after an error; empty if it is the expected one."""
        if problem.code is step.error:
            return []
        if problem.code in _PASSING:
            return [f"the fetch of {step.member} ended with {problem}"]
        raise StepFailed(f"the fetch of {step.member} ended with {problem}")

    def _check_fetched(self, step: steps.ShareFetch, found: Sequence[Delivered]) -> None:
        values = tuple(one.value for one in found)
        if values != step.values:
            raise StepFailed(
                f"{step.member} got {', '.join(values) or 'nothing'}, not {', '.join(step.values) or 'nothing'}"
            )
        self._offsets[step.member].update({one.value: one.offset for one in found})
        others = [one for one in found if step.delivery not in {None, one.delivery_count}]
        if others:
            shown = ", ".join(f"{one.value} {one.delivery_count}" for one in others)
            raise StepFailed(f"the numbers of deliveries are {shown}, not {step.delivery}")

    @do.register
    def _acknowledge(self, step: steps.Acknowledge) -> None:
        member, known = self._member(step.member), self._offsets[step.member]
        unknown = [one for one in step.values if one not in known]
        if unknown:
            raise StepFailed(f"{step.member} has not got {', '.join(unknown)}")
        if step.member in self._in_flight:
            raise StepFailed(f"{step.member} awaits a response: wait_acknowledge comes first")
        says = dict.fromkeys((known[one] for one in step.values), Says[step.type.upper()])
        records = [[member.at.topic, member.at.partition, offset, step.type] for offset in says]
        number = self._history_of(step.member).invoke("acknowledge", group=member.group_id, records=records)
        self._in_flight[step.member] = _Acknowledging(self._connections.begun(member.acknowledge(says)), number)
        if step.answer == "now":
            self._check_acknowledged(step.member, step.error)

    @do.register
    def _wait_acknowledge(self, step: steps.WaitAcknowledge) -> None:
        if step.member not in self._in_flight:
            raise StepFailed(f"{step.member} has no acknowledgement whose response is awaited")
        self._check_acknowledged(step.member, step.error)

    def _check_acknowledged(self, name: str, wanted: ErrorCode) -> None:
        code, message = ErrorCode.NONE, ""
        waiting = self._in_flight.pop(name)
        try:
            self._result(name, waiting.future)
        except TidegaugeError as problem:
            code, message = problem.code, problem.message
        self._history_of(name).end(waiting.number, OK if code is ErrorCode.NONE else INFO)
        if code is not wanted:
            raise StepFailed(
                f"the acknowledgement of {name} ended with {code.name}, not {wanted.name}. {message}".strip()
            )

    @do.register
    def _leave(self, step: steps.LeaveShareGroup) -> None:
        self._result(step.member, self._connections.begun(_in_time(self._member(step.member).leave())))
        self._abandon(step.member)

    @do.register
    def _kill(self, step: steps.KillMember) -> None:
        self._member(step.member)
        self._abandon(step.member)

    def _abandon(self, name: str) -> None:
        """Close a member's connection, and forget the member."""
        member = self._members.pop(name)
        if (waiting := self._in_flight.pop(name, None)) is not None:
            waiting.future.cancel()

        async def abandon() -> None:
            member.abandon()

        self._result(name, self._connections.begun(abandon()))

    def _member(self, name: str) -> ShareMember:
        if name not in self._members:
            raise StepFailed(f"there is no member {name}: start_member comes first")
        return self._members[name]

    def _result(self, name: str, future: Future[Result]) -> Result:
        try:
            return future.result(RESPONSE_SECONDS)
        except (FutureTimeoutError, TimeoutError):
            future.cancel()
            raise StepFailed(f"what {name} asked for was not responded to in time") from None

    # Facts

    @do.register
    def _verify(self, step: steps.VerifyShares) -> None:
        judgement = judge_shares(read_share_histories([self._path]))
        for line in share_lines(judgement):
            self._detail(line)
        found = {kind.value: count for kind, count in judgement.found.counts.items() if kind not in NOTES}
        if found != dict(step.found):
            raise StepFailed(f"the accountant finds {_counts(found)}, not {_counts(step.found)}")

    @do.register
    def _wait_share(self, step: steps.WaitShare) -> None:
        self._wait(lambda: self._differing(step))

    @do.register
    def _expect_share(self, step: steps.ExpectShare) -> None:
        self._wait(lambda: self._differing(step), SETTLE_SECONDS)

    def _differing(self, step: steps.ShareState) -> list[str]:
        try:
            facts = self._connections.look_at_share(step.group, self._partition_of(step))
        except TidegaugeError as problem:
            return [str(problem)]
        return differences(step, facts)


async def _in_time(work: Coroutine[Any, Any, None]) -> None:
    """Await work that repeats requests while a coordinator moves; raise TimeoutError if it takes too long."""
    async with asyncio.timeout(JOIN_SECONDS):
        await work


def _counts(found: Mapping[str, int]) -> str:
    return ", ".join(f"{count} {name}" for name, count in sorted(found.items())) or "nothing"


def differences(step: steps.ShareState, facts: ShareFacts) -> list[str]:
    """Return a share partition's differences from a step's expectation."""
    return [*_in_flight_differences(step, facts), *_durable_differences(step, facts)]


def _in_flight_differences(step: steps.ShareState, facts: ShareFacts) -> list[str]:
    if (step.start, step.end, step.records) == (None, None, None):
        return []
    led = facts.led_by(facts.leader if step.broker is None else step.broker)
    if led is None:
        return [f"{facts.name} is not loaded at broker {facts.leader if step.broker is None else step.broker}"]
    found: list[str] = []
    if step.start not in {None, led.start_offset}:
        found.append(f"the start offset is {led.start_offset}, not {step.start}")
    if step.end not in {None, led.end_offset}:
        found.append(f"the end offset is {led.end_offset}, not {step.end}")
    return found + ([] if step.records is None else difference(step.records, led.records, "in flight are"))


def _durable_differences(step: steps.ShareState, facts: ShareFacts) -> list[str]:
    if (step.durable_start, step.durable, step.durable_leader_epoch) == (None, None, None):
        return []
    kept = facts.kept
    return (
        [f"the share coordinator keeps no state of {facts.name}"] if kept is None else durable_differences(step, kept)
    )


def durable_differences(step: steps.ShareState, kept: KeptShare) -> list[str]:
    """Return the share coordinator's differences from a step's expectation."""
    assert NO_LEADER == NO_START_OFFSET, "a start offset that is not there is read as a leader that is not there"
    found: list[str] = []
    if step.durable_start not in {None, kept.start_offset}:
        found.append(f"the durable start offset is {kept.start_offset}, not {step.durable_start}")
    if step.durable_leader_epoch not in {None, kept.leader_epoch}:
        found.append(f"the durable leader epoch is {kept.leader_epoch}, not {step.durable_leader_epoch}")
    return found + ([] if step.durable is None else difference(step.durable, kept.records, "durable are"))
