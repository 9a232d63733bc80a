"""``wait``: until something is true of the cluster; 0, or 4 with what is true instead.

A condition on leaders and ISRs holds when it holds in the metadata of every broker that answers, and at least one
does: just after a kill, one broker's cache may still show yesterday. One that stays behind the others counts no more
after ``BEHIND_SECONDS``: it is cut off from the controller and would show yesterday for ever. A high watermark is the
leader's own.
When the time ends before any broker has answered, nothing is known, and the exit code is 124.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from tidegauge.cli import EXIT_CONDITION, EXIT_TIME_LIMIT, fail, print_json, tells_errors, verb_options
from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.partition import TopicPartition
from tidegauge_client.admin import Admin
from tidegauge_client.cli.common import JSON, run, servers
from tidegauge_client.metadata import BrokerInfo, ClusterInfo, PartitionInfo, TopicInfo

POLL_SECONDS = 0.1
BEHIND_SECONDS = 2.0
ALL_TOPICS = ""


@dataclass(frozen=True, slots=True)
class Condition:
    """What is waited for.

    Attributes:
        text: as it was given.
        topic: whose metadata is needed; None for all.
        problem: what is true instead in one broker's view; None where it holds.
        hw_of: a partition whose leader's HW counts, and the least value.
    """

    text: str
    topic: str | None
    problem: Callable[[ClusterInfo], str | None]
    hw_of: tuple[TopicPartition, int] | None = None


def _partition(view: ClusterInfo, tp: TopicPartition) -> PartitionInfo | str:
    topic = view.topics.get(tp.topic)
    if topic is None or topic.error is not ErrorCode.NONE:
        return f"topic {tp.topic} does not exist"
    return topic.partitions.get(tp.partition) or f"there is no partition {tp}"


def leader_condition(tp: TopicPartition, leader: int | None) -> Condition:
    """``--leader T-P[=ID]``."""

    def problem(view: ClusterInfo) -> str | None:
        part = _partition(view, tp)
        if isinstance(part, str):
            return part
        if part.leader_id is None:
            return f"{tp} has no leader"
        return None if leader in {None, part.leader_id} else f"the leader of {tp} is {part.leader_id}"

    return Condition(f"leader {tp}" + ("" if leader is None else f"={leader}"), tp.topic, problem)


def isr_condition(tp: TopicPartition, isr: Sequence[int]) -> Condition:
    """``--isr T-P=ID,ID``: as a set."""

    def problem(view: ClusterInfo) -> str | None:
        part = _partition(view, tp)
        if isinstance(part, str):
            return part
        return None if set(part.isr) == set(isr) else f"the ISR of {tp} is {_ids(part.isr)}"

    return Condition(f"isr {tp}={_ids(isr)}", tp.topic, problem)


def in_sync_condition(topic: str | None) -> Condition:
    """``--in-sync [T]``: every partition has a leader, and all its replicas are in the ISR."""

    def one(info: TopicInfo) -> str | None:
        if info.error is not ErrorCode.NONE or not info.partitions:
            return f"topic {info.name} does not exist"
        for part in info.partitions.values():
            if part.leader_id is None:
                return f"{part.topic_partition} has no leader"
            if set(part.isr) != set(part.replicas):
                return f"the ISR of {part.topic_partition} is {_ids(part.isr)} of {_ids(part.replicas)}"
        return None

    def problem(view: ClusterInfo) -> str | None:
        if topic is not None and topic not in view.topics:
            return f"topic {topic} does not exist"
        return next((found for info in view.topics.values() if (found := one(info)) is not None), None)

    return Condition("in-sync" + ("" if topic is None else f" {topic}"), topic, problem)


def hw_condition(tp: TopicPartition, hw: int) -> Condition:
    """``--hw T-P=N``: the leader's high watermark is N or more."""
    return Condition(f"hw {tp}={hw}", tp.topic, leader_condition(tp, None).problem, (tp, hw))


def _ids(ids: Sequence[int]) -> str:
    return ",".join(str(broker) for broker in ids)


class ConditionType(click.ParamType[Condition]):
    """One option's value."""

    def __init__(self, name: str, read: Callable[[str], Condition]) -> None:
        self.name = name
        self._read = read

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Condition:
        """Read it, or fail as a usage error."""
        if isinstance(value, Condition):
            return value
        try:
            return self._read(value)
        except ValueError as problem:
            self.fail(str(problem), param, ctx)


def _number(text: str) -> int:
    if not text.isascii() or not text.isdigit():
        raise ValueError(f"'{text}' is no number")
    return int(text)


def read_leader(text: str) -> Condition:
    """``T-P`` or ``T-P=ID``."""
    name, separator, leader = text.partition("=")
    return leader_condition(TopicPartition.parse(name), _number(leader) if separator else None)


def read_isr(text: str) -> Condition:
    """``T-P=ID,ID``."""
    name, _, ids = text.partition("=")
    return isr_condition(TopicPartition.parse(name), [_number(one) for one in ids.split(",")])


def read_hw(text: str) -> Condition:
    """``T-P=N``."""
    name, _, hw = text.partition("=")
    return hw_condition(TopicPartition.parse(name), _number(hw))


def read_in_sync(text: str) -> Condition:
    """``T``, or nothing for all topics."""
    return in_sync_condition(None if text == ALL_TOPICS else text)


def behind(views: Mapping[int, ClusterInfo]) -> set[int]:
    """Brokers whose view of some partition is older than another's, by leader epoch and partition epoch."""
    newest: dict[tuple[str, str, int], tuple[int, int]] = {}
    for view in views.values():
        for topic in view.topics.values():
            for part in topic.partitions.values():
                place = (topic.name, topic.topic_id, part.partition)
                newest[place] = max(newest.get(place, (-1, -1)), (part.leader_epoch, part.partition_epoch))
    return {
        broker
        for broker, view in views.items()
        for topic in view.topics.values()
        for part in topic.partitions.values()
        if (part.leader_epoch, part.partition_epoch) < newest[topic.name, topic.topic_id, part.partition]
    }


class Looker:
    """Looks whether a condition holds, as often as it is asked; it remembers who is behind."""

    def __init__(self, admin: Admin, condition: Condition) -> None:
        self._admin = admin
        self._condition = condition
        self._behind_since: dict[int, float] = {}

    async def look(self) -> str | None:
        """What is true instead, or None where the condition holds now.

        Raises:
            TidegaugeError: no broker answers.
        """
        condition, admin = self._condition, self._admin
        topics = None if condition.topic is None else [condition.topic]
        first = await admin.metadata(topics)
        brokers = list(first.brokers.values())
        answers = await asyncio.gather(
            *(admin.metadata_of(broker.address, topics) for broker in brokers), return_exceptions=True
        )
        views = {
            broker.id: answer
            for broker, answer in zip(brokers, answers, strict=True)
            if isinstance(answer, ClusterInfo)
        }
        for view in self._counting(views) or [first]:
            problem = condition.problem(view)
            if problem is not None:
                return problem
        return await self._look_at_high_watermark(brokers)

    def _counting(self, views: Mapping[int, ClusterInfo]) -> list[ClusterInfo]:
        """The views without those that have been behind for long."""
        now = time.monotonic()
        self._behind_since = {broker: self._behind_since.get(broker, now) for broker in behind(views)}
        return [view for broker, view in views.items() if now - self._behind_since.get(broker, now) < BEHIND_SECONDS]

    async def _look_at_high_watermark(self, brokers: Sequence[BrokerInfo]) -> str | None:
        if self._condition.hw_of is None:
            return None
        tp, wanted = self._condition.hw_of
        replicas = await self._admin.describe_replicas_of(brokers, [tp.topic])
        for held in replicas.values():
            for replica in held or ():
                if (replica.topic, replica.partition, replica.role) == (*tp, "leader"):
                    hw = replica.high_watermark
                    return None if hw >= wanted else f"the high watermark of {tp} is {hw}"
        return f"no broker says that it leads {tp}"


@click.command("wait")
@click.option("--leader", type=ConditionType("leader", read_leader), metavar="T-P[=ID]", help="It has (this) leader.")
@click.option(
    "--isr", type=ConditionType("isr", read_isr), metavar="T-P=ID,ID", help="These are its ISR, in any order."
)
@click.option(
    "--in-sync",
    type=ConditionType("in-sync", read_in_sync),
    is_flag=False,
    flag_value=ALL_TOPICS,
    metavar="[T]",
    help="All replicas (of the topic) are in the ISR.",
)
@click.option("--hw", type=ConditionType("hw", read_hw), metavar="T-P=N", help="The high watermark is N or more.")
@click.option(
    "--timeout-ms", type=click.IntRange(min=0), metavar="N", default=30_000, show_default=True, help="For so long."
)
@verb_options
@tells_errors
def wait(
    leader: Condition | None,
    isr: Condition | None,
    in_sync: Condition | None,
    hw: Condition | None,
    timeout_ms: int,
    bootstrap_server: str | None,
    directory: Path,
    output: str,
) -> None:
    """Wait until a condition holds: 0, or 4 with what is true instead."""
    given = [condition for condition in (leader, isr, in_sync, hw) if condition is not None]
    if len(given) != 1:
        raise click.UsageError("Give exactly one of --leader, --isr, --in-sync, --hw")
    condition = given[0]
    bootstrap = servers(bootstrap_server, directory)

    async def work() -> tuple[str | None, TidegaugeError | None]:
        deadline = time.monotonic() + timeout_ms / 1000
        problem: str | None = None
        unreachable: TidegaugeError | None = None
        async with Admin(bootstrap) as admin:
            looker = Looker(admin, condition)
            while True:
                try:
                    problem, unreachable = await looker.look(), None
                except TidegaugeError as error:
                    unreachable = error
                else:
                    if problem is None:
                        return None, None
                if time.monotonic() >= deadline:
                    return problem, unreachable
                await asyncio.sleep(min(POLL_SECONDS, max(0.0, deadline - time.monotonic())))

    problem, unreachable = run(work())
    if unreachable is not None and problem is None:
        fail(str(unreachable), output, code=unreachable.code, exit_code=EXIT_TIME_LIMIT)
    if problem is not None:
        sentence = f"{condition.text} does not hold after {timeout_ms} ms: {problem}"
        fail(sentence, output, code=ErrorCode.REQUEST_TIMED_OUT, exit_code=EXIT_CONDITION)
    if output == JSON:
        print_json({"condition": condition.text, "holds": True})
