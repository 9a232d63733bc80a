"""``describe-topic`` and ``describe-cluster``.

``describe-topic`` prints Kafka's lines exactly: tab separated, partitions ascending, Isr in stored order,
``Leader: none`` (kafka-behaviour 11.1). ``--replicas`` adds what no Kafka tool shows: every replica's LEO, HW and
epochs. JSON carries everything always (design, section 6); what cannot be asked is ``"unknown"`` and null there.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import click

from tidegauge.cli import print_json, tells_errors, verb_options
from tidegauge_client.admin import Admin, TopicConfig
from tidegauge_client.cli.common import JSON, run, servers
from tidegauge_client.metadata import ClusterInfo, PartitionInfo, TopicInfo
from tidegauge_client.topic_description import ReplicaState, TopicDescription, describe

WATCH_INTERVAL_SECONDS = 0.5
CLEAR_SCREEN = "\x1b[H\x1b[2J"


class Filter(NamedTuple):
    """Which partitions to show; all when nothing is set. Several together are all shown, as in Kafka."""

    under_replicated: bool = False
    unavailable: bool = False
    under_min_isr: bool = False
    at_min_isr: bool = False

    def shows(self, part: PartitionInfo, live: Mapping[int, Any], min_isr: int) -> bool:
        """Whether a partition passes (TopicCommand.PartitionDescription)."""
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
    """Kafka's lines for a topic: the header, then one for each partition."""
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
    """Of the first partition, less what a reassignment adds."""
    first = next(iter(topic.partitions.values()), None)
    return 0 if first is None else len(first.replicas) - len(first.adding_replicas)


def partition_line(part: PartitionInfo) -> str:
    """Kafka's line for a partition."""
    leader = "none" if part.leader_id is None else str(part.leader_id)
    moving = ""
    if part.adding_replicas or part.removing_replicas:
        moving = f"\tAdding Replicas: {_ids(part.adding_replicas)}\tRemoving Replicas: {_ids(part.removing_replicas)}"
    return (
        f"\tTopic: {part.topic}\tPartition: {part.partition}\tLeader: {leader}\tReplicas: {_ids(part.replicas)}\t"
        f"Isr: {_ids(part.isr)}{moving}\tElr: N/A\tLastKnownElr: N/A"
    )


def replica_table(states: Sequence[ReplicaState], hw: int | None) -> Iterator[str]:
    """What each replica of one partition holds, under Kafka's line for the partition."""
    rows: list[tuple[str, ...]] = [("BROKER", "ROLE", "ISR", "LOG START", "LEO", "HW", "LAG", "EPOCHS")]
    leo = next((state.leo for state in states if state.role == "leader"), None)
    for state in states:
        lag = None if leo is None or state.leo is None else leo - state.leo
        epochs = " ".join(f"{epoch}@{start}" for epoch, start in state.epochs)
        rows.append(
            (
                str(state.broker),
                state.role,
                "yes" if state.in_isr else "no",
                *(_number(value) for value in (state.log_start, state.leo, state.hw, lag)),
                epochs or "-",
            )
        )
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for row in rows:
        yield "\t\t" + "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
    leader = next((state for state in states if state.role == "leader"), None)
    if leader is not None and leader.remote_leos:
        known = ", ".join(f"broker {broker}: {_number(leo)}" for broker, leo in leader.remote_leos.items())
        yield f"\t\tThe leader knows of {known}; HW {_number(hw)}"


def _ids(ids: Sequence[int]) -> str:
    return ",".join(str(broker) for broker in ids)


def _number(value: int | None) -> str:
    return "-" if value is None else str(value)


def topic_json(topic: TopicDescription, shown: Sequence[PartitionInfo]) -> dict[str, Any]:
    """One topic in the fixed shape of the design."""
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
                "hw": topic.high_watermark(part),
                "replicas_state": [
                    {
                        "broker": state.broker,
                        "role": state.role,
                        "leo": state.leo,
                        "hw": state.hw,
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
    """Kafka's lines, without the header where partitions are filtered, with tables where asked."""
    lines = topic_lines(topic.info, topic.configs)
    header = next(lines)
    if not any(wanted):
        yield header
    for part in shown:
        yield partition_line(part)
        if replicas:
            yield from replica_table(topic.replicas[part.partition], topic.high_watermark(part))


@click.command("describe-topic")
@click.argument("names", nargs=-1, metavar="[NAME]...")
@click.option("--replicas", is_flag=True, help="Every replica's log end offset, high watermark and epochs.")
@click.option(
    "--under-replicated-partitions", "under_replicated", is_flag=True, help="Only those missing from the ISR."
)
@click.option("--unavailable-partitions", "unavailable", is_flag=True, help="Only those without a live leader.")
@click.option("--under-min-isr-partitions", "under_min_isr", is_flag=True, help="Only below min.insync.replicas.")
@click.option("--at-min-isr-partitions", "at_min_isr", is_flag=True, help="Only exactly at min.insync.replicas.")
@click.option("--watch", is_flag=True, help="Show it again whenever it changes, until Ctrl-C.")
@verb_options
@tells_errors
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

    async def once(admin: Admin) -> str | dict[str, Any]:
        topics, live = await describe(admin, names, with_replicas=replicas or output == JSON)
        shown = [
            [p for p in t.info.partitions.values() if wanted.shows(p, live, t.min_isr if wants_min_isr else 0)]
            for t in topics
        ]
        if output == JSON:
            pairs = zip(topics, shown, strict=True)
            return {"topics": [topic_json(topic, parts) for topic, parts in pairs if parts or not any(wanted)]}
        return "\n".join(
            line
            for topic, parts in zip(topics, shown, strict=True)
            for line in text_lines(topic, parts, wanted, replicas)
        )

    async def work() -> None:
        async with Admin(bootstrap) as admin:
            last: str | dict[str, Any] | None = None
            while True:
                now = await once(admin)
                if now != last:
                    _show(now, clear=watch and sys.stdout.isatty())
                    last = now
                if not watch:
                    return
                await asyncio.sleep(WATCH_INTERVAL_SECONDS)

    run(work())


def _show(what: str | dict[str, Any], *, clear: bool) -> None:
    if isinstance(what, dict):
        print_json(what)
    elif what or clear:
        click.echo((CLEAR_SCREEN if clear else "") + what)


@click.command("describe-cluster")
@verb_options
@tells_errors
def describe_cluster(bootstrap_server: str | None, directory: Path, output: str) -> None:
    """Show the cluster's id, its active controller and its live brokers."""
    bootstrap = servers(bootstrap_server, directory)

    async def work() -> ClusterInfo:
        async with Admin(bootstrap) as admin:
            return await admin.metadata([])

    info = run(work())
    brokers = sorted(info.brokers.values(), key=lambda broker: broker.id)
    if output == JSON:
        print_json(
            {
                "cluster_id": info.cluster_id,
                "controller": info.controller_id,
                "controller_epoch": info.controller_epoch,
                "brokers": [{"id": b.id, "address": b.address, "rack": b.rack} for b in brokers],
            }
        )
        return
    controller = "none" if info.controller_id is None else str(info.controller_id)
    click.echo(f"Cluster ID: {info.cluster_id}")
    click.echo(f"Controller: {controller}\tEpoch: {info.controller_epoch}")
    for broker in brokers:
        rack = f"\tRack: {broker.rack}" if broker.rack else ""
        click.echo(f"Broker: {broker.id}\tAddress: {broker.address}{rack}")
