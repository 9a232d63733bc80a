"""``describe-log-dirs`` (kafka-log-dirs.sh --describe, LogDirsCommand): the replicas in each broker's log directories.

JSON is the document that Kafka's tool prints, with a broker that does not respond listed by its error; text is a table.
A replica that is offline, because its directory failed, is listed under ``(offline)``; its size is unknown, in JSON -1,
and so is its ``offsetLag`` (DescribeLogDirsResponse.INVALID_OFFSET_LAG).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from tidegauge.cli import print_json, print_line, reports_errors, say, verb_options
from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.v1 import metadata_pb2
from tidegauge_client.admin import Admin
from tidegauge_client.cli.common import JSON, run, servers
from tidegauge_client.kafka_brokers import note, own_words

OFFLINE = "(offline)"
UNKNOWN = "unknown"
Replicas = Mapping[int, Sequence[metadata_pb2.ReplicaDescription] | None]


@click.command("describe-log-dirs")
@click.option("--broker", "brokers", type=int, multiple=True, metavar="ID", help="Only this broker; may be repeated.")
@click.option("--topic", "topics", multiple=True, metavar="T", help="Only this topic; may be repeated.")
@verb_options
@reports_errors
def describe_log_dirs(
    brokers: Sequence[int], topics: Sequence[str], bootstrap_server: str | None, directory: Path, output: str
) -> None:
    """Show which replicas lie in which log directory of each broker, and how large they are."""
    bootstrap = servers(bootstrap_server, directory)

    async def work() -> Replicas:
        async with Admin(bootstrap) as admin:
            info = await admin.metadata([])
            known = info.brokers
            for broker in sorted(set(brokers) & info.kafka_brokers.keys()):
                raise own_words(info.kafka_brokers[broker], "kafka-log-dirs.sh --describe")
            if info.kafka_brokers and not brokers:
                say(note(info.kafka_brokers, "what lies in log directories there"))
            unknown = sorted(set(brokers).difference(known))
            if unknown:
                raise TidegaugeError(
                    ErrorCode.BROKER_NOT_AVAILABLE,
                    f"broker {', '.join(map(str, unknown))} is not registered; live brokers are "
                    f"{', '.join(map(str, sorted(known)))}",
                )
            chosen = [known[broker] for broker in sorted(set(brokers) or known)]
            if topics:
                await admin.describe_topics(topics)  # an unknown one is an error, not an empty table
            return await admin.describe_replicas_of(chosen, topics)

    found = run(work())
    if output == JSON:
        print_json(as_json(found))
        return
    for broker, replicas in found.items():
        if replicas is None:
            say(f"Broker {broker} does not respond")
    for line in table(found):
        print_line(line)


def by_directory(
    replicas: Sequence[metadata_pb2.ReplicaDescription],
) -> dict[str, list[metadata_pb2.ReplicaDescription]]:
    """Return a broker's replicas by log directory, in the order of their names."""
    found: dict[str, list[metadata_pb2.ReplicaDescription]] = {}
    for one in sorted(replicas, key=lambda one: (one.log_dir, one.topic, one.partition)):
        found.setdefault(one.log_dir or OFFLINE, []).append(one)
    return found


def table(found: Replicas) -> list[str]:
    """Return a line for each directory and its replicas, sizes in bytes."""
    lines = []
    for broker, replicas in found.items():
        for log_dir, held in by_directory(replicas or ()).items():
            offline = log_dir == OFFLINE
            total = UNKNOWN if offline else sum(one.size_bytes for one in held)
            lines.append(f"Broker: {broker}\tLogDir: {log_dir}\tReplicas: {len(held)}\tSize: {total}")
            for one in held:
                size = UNKNOWN if offline else one.size_bytes
                lines.append(f"\tTopic: {one.topic}\tPartition: {one.partition}\tSize: {size}")
    return lines


def as_json(found: Replicas) -> dict[str, Any]:
    """Return Kafka's document; ``offsetLag`` is the current log's, max(HW - LEO, 0)."""
    return {"version": 1, "brokers": [_broker_json(broker, replicas) for broker, replicas in found.items()]}


def _broker_json(broker: int, replicas: Sequence[metadata_pb2.ReplicaDescription] | None) -> dict[str, Any]:
    if replicas is None:
        return {"broker": broker, "logDirs": [], "error": ErrorCode.REQUEST_TIMED_OUT.name}
    return {
        "broker": broker,
        "logDirs": [
            {
                "partitions": [
                    {
                        "partition": f"{one.topic}-{one.partition}",
                        "size": -1 if log_dir == OFFLINE else one.size_bytes,
                        "offsetLag": -1 if log_dir == OFFLINE else max(one.high_watermark - one.log_end_offset, 0),
                        "isFuture": False,
                    }
                    for one in held
                ],
                "error": ErrorCode.KAFKA_STORAGE_ERROR.name if log_dir == OFFLINE else None,
                "logDir": log_dir,
            }
            for log_dir, held in by_directory(replicas).items()
        ],
    }
