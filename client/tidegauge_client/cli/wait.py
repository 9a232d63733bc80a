"""``wait``: until a condition holds in the cluster; exit code 0, or 4 with the actual state.

Rules:
    1. A condition must hold in the metadata of every broker that responds, and at least one must: just after a kill,
       the cache of one broker may still show the previous state. A broker that stays behind the others no longer counts
       after ``BEHIND_SECONDS``: it is partitioned from the controller and would show that state for ever.
    2. Metadata shows a dead leader until its session with ZooKeeper ends, and nothing in it says so. So the brokers
       concerned must confirm the state themselves (DescribeReplicas): a leader that it leads in this leader epoch, and
       its report of ISR and high watermark; for ``--in-sync`` each replica that it follows this leader in this epoch.
    3. An Apache Kafka broker can't be asked (docs/mixed-clusters.md). Metadata counts for its partitions, and the
       high watermark is at least what one of its followers reports in this epoch.
    4. ``--event`` and ``--truncated`` read the event logs of the cluster in ``--dir`` (``event_conditions``). An event
       that happened before counts, too.
    5. ``--quorum-leader`` and ``--metadata-offset`` ask the leader of a KRaft quorum (``cli.quorum_wait``). A leader
       counts once a record of its epoch is committed.
    6. If the timeout passes before any broker has responded, the state is unknown, and the exit code is 124.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import click
from click.shell_completion import CompletionItem

from tidegauge.cli import EXIT_CONDITION, EXIT_TIME_LIMIT, fail, print_json, reports_errors, verb_options
from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.event_log import KINDS
from tidegauge.lazy_dataclasses import dataclass
from tidegauge.partition import TopicPartition
from tidegauge.v1 import metadata_pb2
from tidegauge_client.admin import Admin
from tidegauge_client.admin_topics import marked_for_deletion
from tidegauge_client.cli.common import JSON, MomentType, PartitionType, run, servers
from tidegauge_client.cli.process_ends import brokers_in
from tidegauge_client.cli.quorum import controllers
from tidegauge_client.cli.quorum_wait import ANY_LEADER, has_committed, has_leader, wait_for_quorum
from tidegauge_client.event_conditions import TRUNCATION, EventCondition, wait_for_event
from tidegauge_client.metadata import (
    BrokerInfo,
    ClusterInfo,
    PartitionInfo,
    TopicInfo,
    behind,
    newest_of,
    newest_view,
)

POLL_SECONDS = 0.1
BEHIND_SECONDS = 2.0
ALL_TOPICS = ""
EVENT_LOGS = "logs"


@dataclass(frozen=True, slots=True)
class Condition:
    """A condition to wait for.

    Attributes:
        text: as it was given.
        topic: the topic whose metadata is needed; None for all.
        problem: returns the actual state in one broker's view; None if the condition holds.
        partition: the partition whose brokers must confirm it; None for all partitions of the view.
        confirms: returns the actual state by the leader's own report, once it has confirmed that it leads; None:
            nothing.
        of_all_replicas: whether the followers must confirm that they follow.
        by_followers: whether a follower's report confirms it as well, where the leader can't be asked.
        of_members: whether it is about brokers as members of the cluster, and no partition's broker has to confirm it.
    """

    text: str
    topic: str | None
    problem: Callable[[ClusterInfo], str | None]
    partition: TopicPartition | None = None
    confirms: Callable[[PartitionInfo, metadata_pb2.ReplicaDescription], str | None] | None = None
    of_all_replicas: bool = False
    by_followers: bool = False
    of_members: bool = False


def no_topic(name: str) -> str:
    """Return the state of a topic that metadata does not show."""
    return f"topic {name} does not exist"


def _partition(view: ClusterInfo, tp: TopicPartition) -> PartitionInfo | str:
    topic = view.topics.get(tp.topic)
    if topic is None or topic.error is not ErrorCode.NONE:
        return no_topic(tp.topic)
    return topic.partitions.get(tp.partition) or f"there is no partition {tp}"


def leader_condition(tp: TopicPartition, leader: int | None = None, *, other_than: int | None = None) -> Condition:
    """Return the condition of ``--leader T-P[=ID]`` or ``--leader T-P!=ID``."""

    def problem(view: ClusterInfo) -> str | None:
        part = _partition(view, tp)
        if isinstance(part, str):
            return part
        if part.leader_id is None:
            return f"{tp} has no leader"
        if part.leader_id == other_than:
            return f"the leader of {tp} is still {other_than}"
        return None if leader in {None, part.leader_id} else f"the leader of {tp} is {part.leader_id}"

    wanted = "" if leader is None else f"={leader}"
    unwanted = "" if other_than is None else f"!={other_than}"
    return Condition(f"leader {tp}{wanted}{unwanted}", tp.topic, problem, tp)


def isr_condition(tp: TopicPartition, isr: Sequence[int]) -> Condition:
    """Return the condition of ``--isr T-P=ID,ID``, compared as a set."""

    def problem(view: ClusterInfo) -> str | None:
        part = _partition(view, tp)
        if isinstance(part, str):
            return part
        return None if set(part.isr) == set(isr) else f"the ISR of {tp} is {_ids(part.isr)}"

    def confirms(_: PartitionInfo, own: metadata_pb2.ReplicaDescription) -> str | None:
        return None if set(own.isr) == set(isr) else f"the ISR of {tp} is {_ids(own.isr)}, its leader says"

    return Condition(f"isr {tp}={_ids(isr)}", tp.topic, problem, tp, confirms)


def elr_condition(tp: TopicPartition, eligible: Sequence[int]) -> Condition:
    """Return the condition of ``--elr T-P=ID,ID``: exactly this ELR (KIP-966)."""

    def problem(view: ClusterInfo) -> str | None:
        part = _partition(view, tp)
        if isinstance(part, str):
            return part
        if part.elr is None:
            return "the cluster is in ZooKeeper mode, and has no eligible leader replicas"
        if set(part.elr) == set(eligible):
            return None
        return f"{_ids(part.elr) or 'none'} of {tp} are eligible leaders"

    return Condition(f"elr {tp}={_ids(eligible)}", tp.topic, problem, tp, of_members=True)


def fenced_condition(broker: int, *, is_fenced: bool) -> Condition:
    """Return the condition of ``--fenced ID`` or ``--unfenced ID``."""

    def problem(view: ClusterInfo) -> str | None:
        if (broker not in view.live) == is_fenced:
            return None
        return f"broker {broker} is not fenced" if is_fenced else f"broker {broker} is fenced, or no member"

    return Condition(f"{'' if is_fenced else 'un'}fenced {broker}", None, problem, of_members=True)


def in_sync_condition(topic: str | None) -> Condition:
    """Return the condition of ``--in-sync [T]``: leaders, and full ISRs."""

    def one(info: TopicInfo) -> str | None:
        if info.error is not ErrorCode.NONE or not info.partitions:
            return no_topic(info.name)
        for part in info.partitions.values():
            if part.leader_id is None:
                return f"{part.topic_partition} has no leader"
            if set(part.isr) != set(part.replicas):
                return f"the ISR of {part.topic_partition} is {_ids(part.isr)} of {_ids(part.replicas)}"
        return None

    def problem(view: ClusterInfo) -> str | None:
        if topic is not None and topic not in view.topics:
            return no_topic(topic)
        return next((found for info in view.topics.values() if (found := one(info)) is not None), None)

    def confirms(part: PartitionInfo, own: metadata_pb2.ReplicaDescription) -> str | None:
        if set(own.isr) == set(part.replicas):
            return None
        return f"the ISR of {part.topic_partition} is {_ids(own.isr)} of {_ids(part.replicas)}, its leader says"

    name = "" if topic is None else f" {topic}"
    return Condition(f"in-sync{name}", topic, problem, None, confirms, of_all_replicas=True)


def hw_condition(tp: TopicPartition, hw: int) -> Condition:
    """Return the condition of ``--hw T-P=N``: a high watermark of at least N."""

    def confirms(_: PartitionInfo, own: metadata_pb2.ReplicaDescription) -> str | None:
        return None if own.high_watermark >= hw else f"the high watermark of {tp} is {own.high_watermark}"

    return Condition(f"hw {tp}={hw}", tp.topic, leader_condition(tp).problem, tp, confirms, by_followers=True)


Said = Mapping[int, Mapping[TopicPartition, metadata_pb2.ReplicaDescription] | None]
"""The brokers' reports of their replicas, by broker id; None for one that does not respond."""


def contradiction(
    condition: Condition, part: PartitionInfo, said: Said, kafka_brokers: Collection[int] = ()
) -> str | None:
    """Return the actual state by brokers' reports (rules 2, 3); None if confirmed.

    Args:
        condition: it holds in the brokers' metadata.
        part: the partition in the newest metadata.
        said: the reports of its leader, and of its followers if they matter.
        kafka_brokers: those that can't be asked.
    """
    tp, leader = part.topic_partition, part.leader_id
    if leader is None:
        return f"{tp} has no leader"
    if leader in kafka_brokers:
        wrong = _by_followers(condition, part, said) if condition.by_followers else None
        return wrong or _followers_wrong(condition, part, leader, said, kafka_brokers)
    if said.get(leader) is None:
        return f"broker {leader} leads {tp} by the brokers' metadata, but does not respond"
    own = (said[leader] or {}).get(tp)
    if own is None or own.role != "leader" or own.leader_epoch != part.leader_epoch:
        return f"broker {leader} leads {tp} by the brokers' metadata, but does not lead it in epoch {part.leader_epoch}"
    wrong = None if condition.confirms is None else condition.confirms(part, own)
    return wrong or _followers_wrong(condition, part, leader, said, kafka_brokers)


def _by_followers(condition: Condition, part: PartitionInfo, said: Said) -> str | None:
    """Return the reports of a Kafka broker's followers; None if confirmed (rule 3)."""
    tp = part.topic_partition
    reports = [(broker, (replicas or {}).get(tp)) for broker, replicas in said.items()]
    following = [
        (broker, one)
        for broker, one in reports
        if one is not None and (one.role, one.leader_epoch) == ("follower", part.leader_epoch)
    ]
    leads = f"broker {part.leader_id}, an Apache Kafka broker, leads {tp} and can't be asked over gRPC"
    if not following or condition.confirms is None:
        return f"{leads}, and no Tidegauge broker follows it"
    problems = {broker: condition.confirms(part, one) for broker, one in following}
    if None in problems.values():
        return None
    last, _ = max(following, key=lambda one: one[1].high_watermark)
    return f"{leads}; at its follower {last} {problems[last]}"


def _followers_wrong(
    condition: Condition, part: PartitionInfo, leader: int, said: Said, kafka_brokers: Collection[int]
) -> str | None:
    """Return which follower does not confirm that it follows, if that matters."""
    tp = part.topic_partition
    for broker in part.replicas if condition.of_all_replicas else ():
        if broker == leader or broker in kafka_brokers:
            continue
        if said.get(broker) is None:
            return f"broker {broker} is in the ISR of {tp}, but does not respond"
        follower = (said[broker] or {}).get(tp)
        if follower is None or (follower.role, follower.leader_epoch) != ("follower", part.leader_epoch):
            return f"broker {broker} is in the ISR of {tp}, but does not follow broker {leader} in this epoch"
    return None


def _ids(ids: Sequence[int]) -> str:
    return ",".join(str(broker) for broker in ids)


_OF_PARTITIONS = {"leader", "isr", "hw", "elr"}
"""Names of conditions that begin with a partition."""


class ConditionType(click.ParamType[Condition]):
    """The type of one option's value."""

    def __init__(self, name: str, read: Callable[[str], Condition]) -> None:
        self.name = name
        self._read = read

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Condition:
        """Read the value, or fail as a usage error."""
        if isinstance(value, Condition):
            return value
        try:
            return self._read(value)
        except ValueError as problem:
            self.fail(str(problem), param, ctx)

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        """Return the partitions that begin so, for Tab in the shell."""
        return PartitionType().shell_complete(ctx, param, incomplete) if self.name in _OF_PARTITIONS else []


def _number(text: str) -> int:
    if not text.isascii() or not text.isdigit():
        raise ValueError(f"'{text}' is not a number")
    return int(text)


def read_leader(text: str) -> Condition:
    """Read ``T-P``, ``T-P=ID`` or ``T-P!=ID``."""
    name, separator, leader = text.partition("!=")
    if separator:
        return leader_condition(TopicPartition.parse(name), other_than=_number(leader))
    name, separator, leader = text.partition("=")
    return leader_condition(TopicPartition.parse(name), _number(leader) if separator else None)


def read_isr(text: str) -> Condition:
    """Read ``T-P=ID,ID``."""
    name, _, ids = text.partition("=")
    return isr_condition(TopicPartition.parse(name), [_number(one) for one in ids.split(",")])


def read_elr(text: str) -> Condition:
    """Read ``T-P=ID,ID``, or ``T-P=`` for no eligible leader."""
    name, _, ids = text.partition("=")
    return elr_condition(TopicPartition.parse(name), [_number(one) for one in ids.split(",") if ids])


def read_hw(text: str) -> Condition:
    """Read ``T-P=N``."""
    name, _, hw = text.partition("=")
    return hw_condition(TopicPartition.parse(name), _number(hw))


def read_in_sync(text: str) -> Condition:
    """Read ``T``, or nothing for all topics."""
    return in_sync_condition(None if text == ALL_TOPICS else text)


class Looker:
    """Checks a condition, as often as it is asked; it remembers which brokers are behind."""

    def __init__(self, admin: Admin, condition: Condition) -> None:
        self._admin = admin
        self._condition = condition
        self._behind_since: dict[int, float] = {}

    async def look(self) -> str | None:
        """Return the actual state, or None if the condition holds now.

        Raises:
            TidegaugeError: no broker responds.
        """
        condition, admin = self._condition, self._admin
        topics = None if condition.topic is None else [condition.topic]
        counting = self._counting(await admin.metadata_of_all(topics))
        for view in counting.values():
            problem = condition.problem(view)
            if problem is not None:
                return problem
        if condition.of_members:
            return None
        newest = newest_view(counting)
        brokers = list(newest.brokers.values())
        return await self._contradiction(newest_of(counting, condition.partition), brokers, newest.kafka_brokers)

    def _counting(self, views: Mapping[int, ClusterInfo]) -> Mapping[int, ClusterInfo]:
        """Return the views without those that have been behind for long (rule 1)."""
        now = time.monotonic()
        self._behind_since = {broker: self._behind_since.get(broker, now) for broker in behind(views)}
        late = {broker for broker, since in self._behind_since.items() if now - since >= BEHIND_SECONDS}
        return {broker: view for broker, view in views.items() if broker not in late} or views

    async def _contradiction(
        self, parts: Sequence[PartitionInfo], brokers: Sequence[BrokerInfo], kafka_brokers: Collection[int]
    ) -> str | None:
        """Ask the brokers that the condition is about (rule 2)."""
        condition = self._condition
        meant = {
            broker
            for part in parts
            for broker in (
                [part.leader_id, *part.replicas]
                if condition.of_all_replicas or part.leader_id in kafka_brokers
                else [part.leader_id]
            )
        }
        topics = sorted({part.topic for part in parts})
        responses = await self._admin.describe_replicas_of([one for one in brokers if one.id in meant], topics)
        said = {
            broker: None
            if replicas is None
            else {TopicPartition(replica.topic, replica.partition): replica for replica in replicas}
            for broker, replicas in responses.items()
        }
        problems = (contradiction(condition, part, said, kafka_brokers) for part in parts)
        return next((problem for problem in problems if problem is not None), None)


async def _with_deletion(admin: Admin, condition: Condition, problem: str | None) -> str | None:
    """Return the actual state, and whether an absent topic is being deleted."""
    topic = condition.topic
    if topic is None or problem != no_topic(topic) or not await admin.is_marked_for_deletion(topic):
        return problem
    sentence = marked_for_deletion(topic)
    return sentence[0].lower() + sentence[1:]


def not_held(condition: Condition, timeout_ms: int, problem: str, unreachable: TidegaugeError | None) -> str:
    """Return the state that contradicts a condition, by the last look that succeeded."""
    seen = problem if unreachable is None else f"when it was last seen, {problem}; since then {unreachable.message}"
    return f"{condition.text} does not hold after {timeout_ms} ms: {seen}"


def event_logs(directory: Path, bootstrap: Sequence[str]) -> Path:
    """Return where the event logs of the cluster are.

    Raises:
        TidegaugeError: INVALID_REQUEST, the cluster is not the one in the directory.
    """
    if not brokers_in(directory, bootstrap):
        raise TidegaugeError(
            ErrorCode.INVALID_REQUEST,
            "the brokers' event logs are not at hand: they are files of the cluster that `tidegauge up` made; name its "
            "directory with --dir",
        )
    return directory / EVENT_LOGS


def _wait_for_event(logs: Path, condition: EventCondition, timeout_ms: int, output: str) -> None:
    """Wait for an event, or fail with the current state."""
    found, problem = run(wait_for_event(logs, condition, timeout_ms / 1000))
    if found is None:
        sentence = f"{condition.text} does not hold after {timeout_ms} ms: {problem}"
        fail(sentence, output, code=ErrorCode.REQUEST_TIMED_OUT, exit_code=EXIT_CONDITION)
    if output == JSON:
        print_json({"condition": condition.text, "holds": True, "event": found})


@click.command("wait")
@click.option(
    "--leader",
    type=ConditionType("leader", read_leader),
    metavar="T-P[=ID|!=ID]",
    help="The partition has a leader, this leader, or another one.",
)
@click.option(
    "--isr",
    type=ConditionType("isr", read_isr),
    metavar="T-P=ID,ID",
    help="The partition's ISR has exactly these members, in any order.",
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
    "--elr",
    type=ConditionType("elr", read_elr),
    metavar="T-P=ID,ID",
    help="Exactly these are the partition's eligible leaders (KRaft mode).",
)
@click.option("--fenced", type=click.IntRange(min=0), metavar="ID", help="The broker is fenced, or not there.")
@click.option("--unfenced", type=click.IntRange(min=0), metavar="ID", help="The broker is a live member.")
@click.option(
    "--truncated", type=PartitionType(), metavar="T-P", help="A replica of the partition has truncated its log."
)
@click.option(
    "--quorum-leader",
    type=click.IntRange(min=ANY_LEADER),
    is_flag=False,
    flag_value=ANY_LEADER,
    metavar="[ID]",
    help="The quorum of controllers has a leader, or this one.",
)
@click.option(
    "--metadata-offset",
    type=click.IntRange(min=0),
    metavar="N",
    help="The high watermark of the quorum's metadata log is N or more.",
)
@click.option(
    "--bootstrap-controller",
    metavar="HOST:PORT[,HOST:PORT]",
    help="With these two: the controllers to ask.  [default: the controllers of the cluster in --dir]",
)
@click.option("--event", type=click.Choice(sorted(KINDS)), metavar="KIND", help="An event of this kind has happened.")
@click.option("--partition", type=PartitionType(), metavar="T-P", help="With --event: of this partition.")
@click.option("--broker", type=click.IntRange(min=0), metavar="ID", help="With --event or --truncated: of this broker.")
@click.option("--since", type=MomentType(), help="With these: from then on: 30s (ago), 12:30:15.  [default: ever]")
@click.option(
    "--timeout-ms", type=click.IntRange(min=0), metavar="N", default=30_000, show_default=True, help="Limit, in ms."
)
@verb_options
@reports_errors
def wait(
    leader: Condition | None,
    isr: Condition | None,
    in_sync: Condition | None,
    hw: Condition | None,
    elr: Condition | None,
    fenced: int | None,
    unfenced: int | None,
    truncated: TopicPartition | None,
    quorum_leader: int | None,
    metadata_offset: int | None,
    bootstrap_controller: str | None,
    event: str | None,
    partition: TopicPartition | None,
    broker: int | None,
    since: int | None,
    timeout_ms: int,
    bootstrap_server: str | None,
    directory: Path,
    output: str,
) -> None:
    """Wait until a condition holds: 0, or 4 with the current state."""
    given = [condition for condition in (leader, isr, in_sync, hw, elr) if condition is not None]
    given += [] if fenced is None else [fenced_condition(fenced, is_fenced=True)]
    given += [] if unfenced is None else [fenced_condition(unfenced, is_fenced=False)]
    of_events = [one for one in (truncated, event) if one is not None]
    of_quorum = [] if quorum_leader is None else [has_leader(quorum_leader)]
    of_quorum += [] if metadata_offset is None else [has_committed(metadata_offset)]
    if len(given) + len(of_events) + len(of_quorum) != 1:
        conditions = (
            "--leader, --isr, --in-sync, --hw, --elr, --fenced, --unfenced, --truncated, --quorum-leader, "
            "--metadata-offset, --event"
        )
        raise click.UsageError(f"Give exactly one of {conditions}")
    if bootstrap_controller is not None and not of_quorum:
        raise click.UsageError("--bootstrap-controller goes with --quorum-leader or --metadata-offset")
    if (broker, since) != (None, None) and not of_events:
        raise click.UsageError("--broker and --since say which event: they go with --truncated or --event")
    if partition is not None and event is None:
        raise click.UsageError("--partition says which event: it goes with --event")
    if of_quorum:
        wait_for_quorum(controllers(bootstrap_controller, directory), of_quorum[0], timeout_ms, output)
        return
    bootstrap = servers(bootstrap_server, directory)
    if of_events:
        kind = TRUNCATION if event is None else event
        wanted = EventCondition(kind, truncated or partition, broker, since, truncates=truncated is not None)
        _wait_for_event(event_logs(directory, bootstrap), wanted, timeout_ms, output)
        return
    condition = given[0]

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
                    if unreachable is None:
                        problem = await _with_deletion(admin, condition, problem)
                    return problem, unreachable
                await asyncio.sleep(min(POLL_SECONDS, max(0.0, deadline - time.monotonic())))

    problem, unreachable = run(work())
    if unreachable is not None and problem is None:
        fail(str(unreachable), output, code=unreachable.code, exit_code=EXIT_TIME_LIMIT)
    if problem is not None:
        sentence = not_held(condition, timeout_ms, problem, unreachable)
        fail(sentence, output, code=ErrorCode.REQUEST_TIMED_OUT, exit_code=EXIT_CONDITION)
    if output == JSON:
        print_json({"condition": condition.text, "holds": True})
