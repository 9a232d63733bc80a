"""``explain T-P``: the reason for the HW, the holders of the HW and for how long, out-of-sync and leaderless parts.

``explain group:G`` is in ``explain_group``, ``explain transaction:ID`` in ``explain_transaction``, ``explain
share:G/T-P`` in ``explain_share``.

The facts come from the metadata, from every replica's broker and its lab, and from the leader's settings; the sentences
from ``tidegauge_client.explanation``. Exit code 0 whenever the partition exists, whatever its state; 1 if not. Text is
in Chinese if the locale is Chinese, unless ``--language`` says otherwise; JSON is in English.
"""

from __future__ import annotations

import asyncio
import textwrap
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypedDict, TypeVar, cast

import click
from click.shell_completion import CompletionItem

from tidegauge.cli import about_its_cluster, print_json, print_line, reports_errors, verb_options
from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.partition import TopicPartition
from tidegauge.security import Security
from tidegauge.v1 import lab_pb2, lab_service_pb2_grpc, metadata_pb2
from tidegauge_client.admin import Admin
from tidegauge_client.channels import Channels, call
from tidegauge_client.cli.common import JSON, PartitionType, language_option, run, servers
from tidegauge_client.cli.explain_group import gather_group, group_headline, group_view
from tidegauge_client.cli.explain_share import gather_share, share_headline, share_view
from tidegauge_client.cli.explain_transaction import gather_transaction, transaction_headline, transaction_view
from tidegauge_client.cli.open_transactions import gather_open_transactions
from tidegauge_client.cli.process_ends import ends_of
from tidegauge_client.cluster import PROBE_TIMEOUT_MS
from tidegauge_client.explanation import explain as sentences_of
from tidegauge_client.explanation_facts import Facts, Led, RefusedRequest, Remote
from tidegauge_client.explanation_modes import KRAFT, ZOOKEEPER
from tidegauge_client.group_explanation import explain_group
from tidegauge_client.languages import CHINESE
from tidegauge_client.metadata import BrokerInfo, ClusterInfo, PartitionInfo, newest_of, newest_view
from tidegauge_client.sentences import Sentence, as_json, as_lines
from tidegauge_client.share_explanation import explain_share
from tidegauge_client.topic_description import MIN_ISR, settings_of
from tidegauge_client.topic_ids import TopicIds
from tidegauge_client.transaction_explanation import explain_transaction

if TYPE_CHECKING:
    from tidegauge.v1.lab_service_pb2_grpc import LabServiceAsyncStub

WIDTH = 80
LAG = "replica.lag.time.max.ms"
UNCLEAN = "unclean.leader.election.enable"
FactsT = TypeVar("FactsT")

_NO_BROKER = frozenset({ErrorCode.BROKER_NOT_AVAILABLE, ErrorCode.NETWORK_EXCEPTION, ErrorCode.REQUEST_TIMED_OUT})
Responses = Mapping[int, Sequence[metadata_pb2.ReplicaDescription] | None]
Reports = Mapping[int, metadata_pb2.DescribeReplicasResponse | None]


async def gather_with_ends(admin: Admin, at: TopicPartition, bootstrap: Sequence[str], directory: Path) -> Facts:
    """Gather what the cluster knows of a partition, and how the processes of its brokers ended that are down.

    Raises:
        TidegaugeError: as ``gather``.
    """
    facts = await gather(admin, at)
    silent = [one for one in facts.replicas if one not in facts.live or one in facts.silent]
    return replace(facts, ends=await ends_of(directory, bootstrap, silent)) if silent else facts


async def gather(admin: Admin, at: TopicPartition) -> Facts:
    """Gather what the cluster knows of a partition.

    The newest of all brokers' metadata counts: a broker that is partitioned from the controller may show a leader of an
    earlier epoch, which, partitioned as well, would report that it leads; and brokers as live that are dead, or the
    reverse.

    Raises:
        TidegaugeError: UNKNOWN_TOPIC_OR_PARTITION, or no broker responds.
    """
    views = await admin.metadata_of_all([at.topic])
    cluster = newest_view(views)
    parts = {part.partition: part for part in newest_of(views)}
    if not parts:
        await admin.topics_in(cluster, [at.topic])  # raises, unless only an old view shows the topic
        raise await admin.unknown_topic(at.topic)
    part = parts.get(at.partition)
    if part is None:
        raise TidegaugeError(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            f"Topic {at.topic} has no partition {at.partition}; it has {len(parts)}, counted from 0",
        )
    having = [broker for broker in cluster.brokers.values() if broker.id in part.replicas]
    asked = [broker for broker in cluster.brokers.values() if broker in having or broker.id == cluster.controller_id]
    reports, in_force = await asyncio.gather(
        admin.replica_reports_of(asked, [at.topic], with_znodes=True), faults_in(having, admin.security)
    )
    responses = {broker: None if report is None else list(report.replicas) for broker, report in reports.items()}
    settings, problem = await settings_of(admin, at.topic)
    configs = {config.name: config.value for config in settings}
    lag_ms = None
    if part.leader_id is not None and responses.get(part.leader_id) is not None:
        lag_ms = await lag_ms_of(admin, part.leader_id)
    facts = facts_of(cluster, part, responses, configs, lag_ms)
    transactions = None if facts.led is None else await gather_open_transactions(admin, at)
    facts = replace(facts, refusals=refusals_of(at, reports), topic_ids=topic_ids_of(at, cluster, reports))
    return replace(facts, settings_problem=problem, transactions=transactions, **lab_facts(at, in_force))


def refusals_of(at: TopicPartition, reports: Reports) -> tuple[RefusedRequest, ...]:
    """Return the requests about a partition that were refused last, by broker."""
    return tuple(
        RefusedRequest(
            broker,
            one.request,
            ErrorCode.of(one.reason).name,
            one.leader_epoch,
            one.ago_ms,
            one.topic_id,
            one.own_topic_id,
        )
        for broker, report in sorted(reports.items())
        for one in (() if report is None else report.refusals)
        if (one.topic, one.partition) == at
    )


def topic_ids_of(at: TopicPartition, cluster: ClusterInfo, reports: Reports) -> TopicIds:
    """Return the topic's ids: in the metadata, in its znode, and in replicas' files."""
    responses = [report for report in reports.values() if report is not None]
    znodes = (report.znode_topic_ids.get(at.topic) for report in responses)
    replicas = {
        report.broker_id: topic_id
        for report in responses
        for topic_id in (
            *(one.own_topic_id for one in report.refusals if (one.topic, one.partition) == at),
            *(one.topic_id for one in report.replicas if (one.topic, one.partition) == at),
        )
    }
    znode = next((one for one in znodes if one is not None), None)
    return TopicIds(cluster.identity_of(at.topic).topic_id, znode, replicas)


async def lag_ms_of(admin: Admin, broker_id: int) -> int | None:
    """Return a broker's replica.lag.time.max.ms; None if it does not report it."""
    try:
        entries = await admin.describe_broker_settings(broker_id)
    except TidegaugeError:
        return None
    return next((int(entry.value) for entry in entries if entry.name == LAG and entry.value), None)


async def faults_in(brokers: Sequence[BrokerInfo], security: Security) -> dict[int, lab_pb2.ListFaultsResponse]:
    """Return the lab's faults in responding brokers with a lab, by id.

    No fault affects the lab's own calls: a broker that is partitioned from clients still reports.
    """
    channels = Channels(security)

    async def one(broker: BrokerInfo) -> lab_pb2.ListFaultsResponse | None:
        # The generated stub serves both kinds of channel; only its type stub distinguishes two classes.
        lab = cast("LabServiceAsyncStub", lab_service_pb2_grpc.LabServiceStub(channels.channel(broker.address)))
        request = lab_pb2.ListFaultsRequest()
        try:
            return await call(lab.ListFaults, request, timeout_ms=PROBE_TIMEOUT_MS, address=broker.address)
        except TidegaugeError:
            return None

    try:
        responses = await asyncio.gather(*map(one, brokers))
    finally:
        await channels.close()
    return {broker.id: response for broker, response in zip(brokers, responses, strict=True) if response is not None}


class LabFacts(TypedDict):
    """The faults and holds of the lab."""

    held: frozenset[int]
    faulty: Mapping[int, int]


def lab_facts(at: TopicPartition, in_force: Mapping[int, lab_pb2.ListFaultsResponse]) -> LabFacts:
    """Return the held brokers, and the number of faults in each broker."""
    place = (at.topic, at.partition)
    held = {
        broker
        for broker, response in in_force.items()
        if any((one.partition.topic, one.partition.partition) == place for one in response.held)
    }
    return LabFacts(
        held=frozenset(held),
        faulty={broker: len(response.faults) for broker, response in sorted(in_force.items()) if response.faults},
    )


def facts_of(
    cluster: ClusterInfo,
    part: PartitionInfo,
    responses: Responses,
    configs: Mapping[str, str | None],
    lag_ms: int | None,
) -> Facts:
    """Combine the responses of the brokers."""
    said = {
        broker: one
        for broker, replicas in responses.items()
        for one in replicas or ()
        if (one.topic, one.partition) == part.topic_partition
    }
    leader = None if part.leader_id is None else said.get(part.leader_id)
    directories = {broker for broker, one in said.items() if one.role == "offline"}
    return Facts(
        at=part.topic_partition,
        replicas=part.replicas,
        isr=part.isr,
        leader=part.leader_id,
        leader_epoch=part.leader_epoch,
        live=cluster.live,
        kafka=frozenset(cluster.kafka_brokers),
        silent=frozenset(broker for broker, replicas in responses.items() if replicas is None),
        offline=frozenset(part.offline_replicas) | directories,
        led=_led(leader) if leader is not None and _leads(leader, part) else None,
        own_hws={broker: one.high_watermark for broker, one in said.items() if one.role == "follower"},
        controller=cluster.controller_id,
        min_isr=int(configs.get(MIN_ISR) or 1),
        lag_ms=lag_ms,
        unclean=configs.get(UNCLEAN) == "true",
        adding=part.adding_replicas,
        removing=part.removing_replicas,
        words=ZOOKEEPER if part.elr is None else KRAFT,
        elr=part.elr or (),
        last_known_elr=part.last_known_elr or (),
    )


def _leads(said: metadata_pb2.ReplicaDescription, part: PartitionInfo) -> bool:
    return said.role == "leader" and said.leader_epoch == part.leader_epoch


def _led(said: metadata_pb2.ReplicaDescription) -> Led:
    return Led(
        leo=said.log_end_offset,
        hw=said.high_watermark,
        isr=tuple(said.isr),
        maximal_isr=tuple(said.maximal_isr),
        remotes={
            remote.broker_id: Remote(
                remote.log_end_offset if remote.HasField("log_end_offset") else None,
                remote.caught_up_ago_ms if remote.HasField("caught_up_ago_ms") else None,
            )
            for remote in said.remote_replicas
        },
        epoch_start=said.leader_epoch_start_offset if said.HasField("leader_epoch_start_offset") else None,
        lso=said.last_stable_offset if said.HasField("last_stable_offset") else None,
    )


def partition_view(facts: Facts) -> dict[str, Any]:
    """Return the facts about a partition, for JSON."""
    led = facts.led
    return {
        "topic": facts.at.topic,
        "partition": facts.at.partition,
        "leader": -1 if facts.leader is None else facts.leader,
        "leader_epoch": facts.leader_epoch,
        "replicas": list(facts.replicas),
        "isr": list(facts.isr if led is None else led.isr),
        "hw": None if led is None else led.hw,
        "lso": None if led is None else led.lso,
        "leo": None if led is None else led.leo,
    }


def spoken_lines(headline: str, sentences: Sequence[Sentence], language: str) -> Iterator[str]:
    """Yield an explanation as text; Chinese has no spaces to break lines at."""
    if language != CHINESE:
        return as_lines(headline, sentences, wrapped)
    from tidegauge_client.explaining_in_chinese import explanations_in_chinese  # noqa: PLC0415 - it reads YAML

    speak = explanations_in_chinese().translated
    return as_lines(headline, sentences, lambda text, indent: [f"{indent}{text}"], speak)


def wrapped(text: str, indent: str) -> list[str]:
    """Return a text broken into lines of a terminal."""
    return textwrap.wrap(
        text, WIDTH, initial_indent=indent, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    )


def headline(facts: Facts) -> str:
    """Return the first line: the partition in short."""
    leader = "none" if facts.leader is None else str(facts.leader)
    led = facts.led
    stable = "" if led is None or led.lso in {None, led.hw} else f"LSO {led.lso}, "
    ends = "HW and LEO unknown" if led is None else f"{stable}HW {led.hw}, LEO {led.leo}"
    isr = _ids(facts.isr if led is None else led.isr) or "(empty)"
    return f"{facts.at}: leader {leader}, epoch {facts.leader_epoch}, ISR {isr} of {_ids(facts.replicas)}, {ends}"


def _ids(brokers: Sequence[int]) -> str:
    return ",".join(map(str, brokers))


class _Named(NamedTuple):
    """A group, a transactional id, or a share partition with its partition."""

    kind: str
    key: str
    partition: TopicPartition | None = None


_EXAMPLES = {"group": "group:billing", "transaction": "transaction:copier", "share": "share:queue/orders-0"}


class _Explained(click.ParamType["TopicPartition | _Named"]):
    """The type of ``T-P``, ``group:G``, ``transaction:ID`` or ``share:G/T-P``."""

    name = "topic-partition, group, transactional id or share partition"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> TopicPartition | _Named:
        """Read the value, or fail as a usage error."""
        kind, separator, key = str(value).partition(":")
        if kind not in _EXAMPLES or not separator:
            return PartitionType().convert(value, param, ctx)
        if not key:
            self.fail(f"{kind}: needs an id, for example {_EXAMPLES[kind]}", param, ctx)
        if kind != "share":
            return _Named(kind, key)
        group_id, _, partition = key.rpartition("/")
        if not group_id:
            self.fail(f"share: needs a group and a partition, for example {_EXAMPLES[kind]}", param, ctx)
        return _Named(kind, group_id, PartitionType().convert(partition, param, ctx))

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        """Return the partitions or groups that begin so, for Tab in the shell."""
        kind, separator, key = incomplete.partition(":")
        if kind == "group" and separator:
            from tidegauge_client.cli.completing import complete_group  # noqa: PLC0415 - only Tab pays for it

            return [CompletionItem(f"group:{name}") for name in complete_group(ctx, param, key)]
        return PartitionType().shell_complete(ctx, param, incomplete)


@click.command()
@click.argument("about", type=_Explained(), metavar="T-P|group:G|transaction:ID|share:G/T-P")
@language_option
@verb_options
@reports_errors
def explain(
    about: TopicPartition | _Named, language: str, bootstrap_server: str | None, directory: Path, output: str
) -> None:
    """Say why a partition, a group, a transactional id or a share partition is as it is, each with Kafka's rule."""
    bootstrap = servers(bootstrap_server, directory)
    show = partial(_show, bootstrap, directory, output, language)
    if isinstance(about, TopicPartition):
        found_there = partial(gather_with_ends, at=about, bootstrap=bootstrap, directory=directory)
        show(_Explanation(found_there, sentences_of, headline, partition_view, "broker"))
    elif about.kind == "group":
        found = partial(gather_group, group_id=about.key)
        show(_Explanation(found, explain_group, group_headline, group_view, "member"))
    elif about.partition is not None:
        shared = partial(gather_share, group_id=about.key, at=about.partition, bootstrap=bootstrap)
        show(_Explanation(shared, explain_share, share_headline, share_view, "member"))
    else:
        open_ = partial(gather_transaction, transactional_id=about.key)
        show(_Explanation(open_, explain_transaction, transaction_headline, transaction_view, "partition"))


class _Explanation(NamedTuple, Generic[FactsT]):
    """How one kind of thing is explained.

    Attributes:
        gathered: asks the cluster for the facts.
        explained: the sentences that follow from them.
        headline: the first line.
        view: the facts for JSON.
        subject: the key of a sentence's subject in JSON.
    """

    gathered: Callable[[Admin], Awaitable[FactsT]]
    explained: Callable[[FactsT], Sequence[Sentence]]
    headline: Callable[[FactsT], str]
    view: Callable[[FactsT], dict[str, Any]]
    subject: str


def _show(bootstrap: Sequence[str], directory: Path, output: str, language: str, one: _Explanation[FactsT]) -> None:
    """Gather facts, explain them, and print the sentences; if no broker responds, say how their processes ended."""

    async def work() -> FactsT:
        try:
            async with Admin(bootstrap) as admin:
                return await one.gathered(admin)
        except TidegaugeError as problem:
            ends: Mapping[int, str] = await ends_of(directory, bootstrap) if problem.code in _NO_BROKER else {}
            if not ends:
                raise
            raise TidegaugeError(problem.code, ". ".join([problem.message, *ends.values()])) from None

    facts = run(work())
    sentences = [replace(said, change=about_its_cluster(said.change)) for said in one.explained(facts)]
    if output == JSON:
        print_json(as_json(one.view(facts), sentences, one.subject))
        return
    for line in spoken_lines(one.headline(facts), sentences, language):
        print_line(line)
