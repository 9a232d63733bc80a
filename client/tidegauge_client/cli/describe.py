"""``describe-topic`` and ``describe-cluster``.

``describe-topic`` prints Kafka's lines exactly: tab separated, partitions ascending, Isr in stored order, ``Leader:
none`` (TopicCommand.PartitionDescription). ``--replicas`` adds what no Kafka tool shows: every replica's LEO, HW and
epochs. JSON always has every key; what cannot be asked is ``"unknown"`` and null there. ``--watch`` prints the same
again whenever it changes; on a terminal it is one screen of 80 columns (``tidegauge_client.live_view``), and the cursor
is moved nowhere else. ``NO_COLOR`` switches colours off.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import sys
import textwrap
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import click

from tidegauge.cli import print_json, print_text, reports_errors, say, verb_options
from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge_client.admin import Admin, TopicConfig
from tidegauge_client.cli.common import JSON, Ending, run, servers
from tidegauge_client.cli.completing import complete_topic
from tidegauge_client.kafka_brokers import note
from tidegauge_client.live_view import screen, view
from tidegauge_client.metadata import BrokerInfo, ClusterInfo, PartitionInfo, TopicInfo, newest_view
from tidegauge_client.topic_description import ReplicaState, TopicDescription, describe

WATCH_INTERVAL_SECONDS = 0.5
DOWN = "down"
KAFKA = "kafka"
COLUMNS = 80
INDENT, INDENT_COLUMNS = "\t\t", 16  # as wide as a terminal shows it
LEAST_COLUMNS = 12
Shown = list[tuple[TopicDescription, list[PartitionInfo]]]
"""Topics with the partitions that pass the filters."""


class Filter(NamedTuple):
    """The partitions to show; all if nothing is set. Several filters are combined by "or", as in Kafka."""

    under_replicated: bool = False
    unavailable: bool = False
    under_min_isr: bool = False
    at_min_isr: bool = False

    def shows(self, part: PartitionInfo, live: Collection[int], min_isr: int) -> bool:
        """Return whether a partition passes (TopicCommand.PartitionDescription)."""
        is_led = part.leader_id is not None and part.leader_id in live
        factor = len(part.replicas) - len(part.adding_replicas)
        return (
            not any(self)
            or (self.under_replicated and factor > len(part.isr))
            or (self.unavailable and not is_led)
            or (self.under_min_isr and (part.leader_id is None or len(part.isr) < min_isr))
            or (self.at_min_isr and len(part.isr) == min_isr)
        )


def topic_lines(topic: TopicInfo, configs: Sequence[TopicConfig]) -> Iterator[str]:
    """Return Kafka's lines for a topic: the header, then one for each partition."""
    partitions = list(topic.partitions.values())
    settings = ",".join(f"{config.name}={config.value}" for config in configs if not config.is_default)
    topic_id = f"TopicId: {topic.topic_id}\t" if topic.topic_id else ""
    yield (
        f"Topic: {topic.name}\t{topic_id}PartitionCount: {len(partitions)}\t"
        f"ReplicationFactor: {replication_factor(topic)}\tConfigs: {settings}"
    )
    for part in partitions:
        yield partition_line(part)


def replication_factor(topic: TopicInfo) -> int:
    """Return the replication factor of the first partition, without added replicas."""
    first = next(iter(topic.partitions.values()), None)
    return 0 if first is None else len(first.replicas) - len(first.adding_replicas)


def partition_line(part: PartitionInfo) -> str:
    """Return Kafka's line for a partition."""
    leader = "none" if part.leader_id is None else str(part.leader_id)
    moving = ""
    if part.adding_replicas or part.removing_replicas:
        moving = f"\tAdding Replicas: {_ids(part.adding_replicas)}\tRemoving Replicas: {_ids(part.removing_replicas)}"
    elr = f"Elr: {_ids_or_none(part.elr)}\tLastKnownElr: {_ids_or_none(part.last_known_elr)}"
    return (
        f"\tTopic: {part.topic}\tPartition: {part.partition}\tLeader: {leader}\tReplicas: {_ids(part.replicas)}\t"
        f"Isr: {_ids(part.isr)}{moving}\t{elr}"
    )


def _ids_or_none(broker_ids: Sequence[int] | None) -> str:
    return "N/A" if broker_ids is None else _ids(broker_ids)


def _listed(broker_ids: Sequence[int] | None) -> list[int] | None:
    return None if broker_ids is None else list(broker_ids)


def replica_table(states: Sequence[ReplicaState], hw: int | None) -> Iterator[str]:
    """Return the table of replicas under Kafka's line for a partition.

    The last stable offset (LSO) has a column if it differs from the HW: a transaction is open, or just completed.
    """
    has_open_transaction = any(state.lso not in {None, state.hw} for state in states)
    of_transactions = ("LSO",) if has_open_transaction else ()
    rows: list[tuple[str, ...]] = [
        ("BROKER", "ROLE", "ISR", "LOG START", "LEO", "HW", *of_transactions, "LAG", "EPOCHS")
    ]
    leo = next((state.leo for state in states if state.role == "leader"), None)
    for state in states:
        lag = None if leo is None or state.leo is None else leo - state.leo
        epochs = " ".join(f"{epoch}@{start}" for epoch, start in state.epochs)
        rows.append(
            (
                str(state.broker),
                state.shown_role,
                "yes" if state.in_isr else "no",
                *map(_number, (state.log_start, state.leo, state.hw)),
                *([_number(state.lso)] if has_open_transaction else ()),
                _number(lag),
                epochs or "-",
            )
        )
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]) - 1)]
    for *cells, epochs in rows:
        line = "  ".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True)) + "  "
        yield from _wrapped(line, epochs)
    leader = next((state for state in states if state.role == "leader"), None)
    if leader is not None and leader.remote_leos:
        known = ", ".join(f"broker {broker}: {_number(leo)}" for broker, leo in leader.remote_leos.items())
        yield from _wrapped("The leader knows of ", f"{known}; HW {_number(hw)}")


def _wrapped(begin: str, words: str) -> Iterator[str]:
    """Yield a line of a table; its last column's overflow continues on further lines."""
    room = COLUMNS - INDENT_COLUMNS - len(begin)
    if room < LEAST_COLUMNS and len(words) > room:
        yield INDENT + begin.rstrip()
        begin = " " * 4
        room = COLUMNS - INDENT_COLUMNS - len(begin)
    for text in textwrap.wrap(words, max(room, len("EPOCHS")), break_on_hyphens=False):
        yield INDENT + begin + text
        begin = " " * len(begin)


def _ids(ids: Sequence[int]) -> str:
    return ",".join(str(broker) for broker in ids)


def _number(value: int | None) -> str:
    return "-" if value is None else str(value)


def topic_json(topic: TopicDescription, shown: Sequence[PartitionInfo]) -> dict[str, Any]:
    """Return one topic as a JSON object, always with all keys."""
    return {
        "name": topic.info.name,
        "topic_id": topic.info.topic_id,
        "partition_count": len(topic.info.partitions),
        "replication_factor": replication_factor(topic.info),
        "configs": {config.name: config.value for config in topic.configs if not config.is_default},
        "partitions": [
            {
                "partition": part.partition,
                "leader": -1 if part.leader_id is None else part.leader_id,
                "leader_epoch": part.leader_epoch,
                "replicas": list(part.replicas),
                "isr": list(part.isr),
                "osr": [broker for broker in part.replicas if broker not in part.isr],
                "elr": _listed(part.elr),
                "last_known_elr": _listed(part.last_known_elr),
                "hw": topic.high_watermark(part),
                "replicas_state": [
                    {
                        "broker": state.broker,
                        "role": state.role,
                        "leo": state.leo,
                        "hw": state.hw,
                        "lso": state.lso,
                        "log_start": state.log_start,
                        "in_isr": state.in_isr,
                        "remote_leos": {str(broker): leo for broker, leo in state.remote_leos.items()},
                        "epochs": [list(entry) for entry in state.epochs],
                    }
                    for state in topic.replicas[part.partition]
                ],
            }
            for part in shown
        ],
    }


def text_lines(
    topic: TopicDescription, shown: Sequence[PartitionInfo], wanted: Filter, replicas: bool
) -> Iterator[str]:
    """Yield Kafka's lines, without the header if partitions are filtered."""
    lines = topic_lines(topic.info, topic.configs)
    header = next(lines)
    if not any(wanted):
        yield header
    for part in shown:
        yield partition_line(part)
        if replicas:
            yield from replica_table(topic.replicas[part.partition], topic.high_watermark(part))


@click.command("describe-topic")
@click.argument("names", nargs=-1, metavar="[NAME]...", shell_complete=complete_topic)
@click.option("--replicas", is_flag=True, help="Every replica's log end offset, high watermark and epochs.")
@click.option(
    "--under-replicated-partitions",
    "under_replicated",
    is_flag=True,
    help="Only partitions with replicas missing from the ISR.",
)
@click.option("--unavailable-partitions", "unavailable", is_flag=True, help="Only partitions without a live leader.")
@click.option(
    "--under-min-isr-partitions", "under_min_isr", is_flag=True, help="Only partitions below min.insync.replicas."
)
@click.option(
    "--at-min-isr-partitions", "at_min_isr", is_flag=True, help="Only partitions exactly at min.insync.replicas."
)
@click.option("--watch", is_flag=True, help="Print again whenever something changes, until Ctrl-C.")
@verb_options
@reports_errors
def describe_topic(
    names: Sequence[str],
    replicas: bool,
    under_replicated: bool,
    unavailable: bool,
    under_min_isr: bool,
    at_min_isr: bool,
    watch: bool,
    bootstrap_server: str | None,
    directory: Path,
    output: str,
) -> None:
    """Describe topics (none named: all), as kafka-topics.sh does."""
    wanted = Filter(under_replicated, unavailable, under_min_isr, at_min_isr)
    bootstrap = servers(bootstrap_server, directory)
    wants_min_isr = under_min_isr or at_min_isr
    reported_problem = [""]
    reported: list[Mapping[int, BrokerInfo]] = [{}]

    async def look(admin: Admin) -> Shown:
        topics, cluster = await describe(admin, names, with_replicas=replicas or output == JSON)
        if replicas and (unseen := replicas_unseen(topics, cluster)) != reported[0]:
            reported[0] = unseen
            if unseen:
                say(note(unseen, "what replicas hold there"))
        problem = next((topic.problem for topic in topics if topic.problem), "")
        if problem and wants_min_isr:
            raise TidegaugeError(ErrorCode.REQUEST_TIMED_OUT, problem)
        if problem != reported_problem[0]:
            reported_problem[0] = problem
            say(f"Configs are left out: {problem}" if problem else "Configs are known again")
        return [
            (
                t,
                [
                    p
                    for p in t.info.partitions.values()
                    if wanted.shows(p, cluster.live, t.min_isr if wants_min_isr else 0)
                ],
            )
            for t in topics
        ]

    def tell(shown: Shown) -> str:
        if output == JSON:
            reported = {"topics": [topic_json(topic, parts) for topic, parts in shown if parts or not any(wanted)]}
            return json.dumps(reported, separators=(",", ":"), ensure_ascii=False)
        return "\n".join(line for topic, parts in shown for line in text_lines(topic, parts, wanted, replicas))

    async def work() -> None:
        ending = Ending(with_reader=watch)
        try:
            await describe_as_wanted()
        except asyncio.CancelledError:
            raise SystemExit(ending.exit_code) from None

    async def describe_as_wanted() -> None:
        async with Admin(bootstrap) as admin:
            if not watch:
                _echo(tell(await look(admin)))
            elif output != JSON and _is_screen():
                await _watch(lambda: look(admin), lambda shown: list(view(shown, replicas=replicas)), _repaint)
            else:
                await _watch(lambda: look(admin), lambda shown: [tell(shown)], lambda lines: _echo("\n".join(lines)))

    run(work())


def replicas_unseen(topics: Sequence[TopicDescription], cluster: ClusterInfo) -> Mapping[int, BrokerInfo]:
    """Return the Kafka brokers that have replicas of the topics."""
    held = {broker for topic in topics for part in topic.info.partitions.values() for broker in part.replicas}
    return {broker: known for broker, known in cluster.kafka_brokers.items() if broker in held}


async def _watch(
    look: Callable[[], Awaitable[Shown]], lines_of: Callable[[Shown], list[str]], show: Callable[[list[str]], None]
) -> None:
    """Print the description whenever it changes. Brokers that stop responding are reported, and retried."""
    last: list[str] = []
    problem = ""
    is_first = True
    while True:
        try:
            lines = lines_of(await look())
            problem = ""
        except TidegaugeError as error:
            if is_first:
                raise
            if str(error) != problem:
                problem = str(error)
                say(problem)
        else:
            if is_first or lines != last:
                show(lines)
            last, is_first = lines, False
        await asyncio.sleep(WATCH_INTERVAL_SECONDS)


def _repaint(lines: list[str]) -> None:
    size = shutil.get_terminal_size()
    shown = [click.unstyle(line) for line in lines] if os.environ.get("NO_COLOR") else lines
    click.echo(screen(shown, size.lines, size.columns), nl=False, color=True)
    sys.stdout.flush()


def _is_screen() -> bool:
    """Return whether stdout is a terminal on which the cursor may be moved."""
    return sys.stdout.isatty() and os.environ.get("TERM", "dumb") != "dumb"


def _echo(text: str) -> None:
    if text:
        print_text(text)
        sys.stdout.flush()


@click.command("describe-cluster")
@verb_options
@reports_errors
def describe_cluster(bootstrap_server: str | None, directory: Path, output: str) -> None:
    """Show the cluster's id, its active controller, and its brokers with what they lead and hold.

    Every broker is asked, and the newest metadata counts: a broker which the controller can't reach has old ones.
    """
    bootstrap = servers(bootstrap_server, directory)

    async def work() -> tuple[ClusterInfo, set[int]]:
        async with Admin(bootstrap) as admin:
            views = await admin.metadata_of_all()
            info = newest_view(views)
            return info, info.brokers.keys() - views.keys()

    info, silent = run(work())
    rows = broker_rows(info, silent)
    if output == JSON:
        print_json(
            {
                "cluster_id": info.cluster_id,
                "controller": info.controller_id,
                "controller_epoch": info.controller_epoch,
                "brokers": [row._asdict() for row in rows if row.state != DOWN],
                "offline_brokers": [row._asdict() for row in rows if row.state == DOWN],
            }
        )
        return
    controller = "none" if info.controller_id is None else str(info.controller_id)
    print_text(f"Cluster ID: {info.cluster_id}")
    print_text(f"Controller: {controller}\tEpoch: {info.controller_epoch}")
    for row in rows:
        rack = f"\tRack: {row.rack}" if row.rack else ""
        print_text(
            f"Broker: {row.id}\tAddress: {row.address or 'unknown'}\tState: {row.state}\tLeaders: {row.leaders}\t"
            f"Partitions: {row.partitions}{rack}"
        )


class BrokerRow(NamedTuple):
    """One broker of a cluster.

    Attributes:
        address: its address; None if it is not registered.
        state: ``up``; ``silent``: registered, but without a response within a second; ``kafka``: registered, without a
            gRPC listener (Apache Kafka); ``down``: not registered, known only from assignments.
        leaders: partitions that it leads.
        partitions: partitions of which it is assigned a replica.
    """

    id: int
    address: str | None
    rack: str | None
    state: str
    leaders: int
    partitions: int


def broker_rows(info: ClusterInfo, silent: Collection[int]) -> list[BrokerRow]:
    """Return all brokers that are registered or assigned a replica, by id."""
    parts = [part for topic in info.topics.values() for part in topic.partitions.values()]
    held = Counter(broker for part in parts for broker in part.replicas)
    led = Counter(part.leader_id for part in parts)
    rows = []
    for broker in sorted({*info.live, *held}):
        known = info.brokers.get(broker) or info.kafka_brokers.get(broker)
        if broker in info.kafka_brokers:
            state = KAFKA
        else:
            state = DOWN if known is None else "silent" if broker in silent else "up"
        address, rack = (None, None) if known is None else (known.address, known.rack)
        rows.append(BrokerRow(broker, address, rack, state, led[broker], held[broker]))
    return rows
