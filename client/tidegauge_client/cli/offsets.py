"""``get-offsets`` (kafka-get-offsets.sh; GetOffsetShell): ``topic:partition:offset`` lines, by partition."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from tidegauge.cli import print_json, print_text, reports_errors, say, verb_options
from tidegauge.partition import TopicPartition
from tidegauge_client.admin import EARLIEST, LATEST, MAX_TIMESTAMP, Admin, OffsetAndTimestamp
from tidegauge_client.cli.common import INT64_MAX, JSON, run, servers
from tidegauge_client.cli.completing import complete_topic
from tidegauge_client.kafka_brokers import led_by, on_kafka_brokers

NAMED_TIMES = {"latest": LATEST, "earliest": EARLIEST, "max-timestamp": MAX_TIMESTAMP}
TIMEOUT_MS = 10_000


class TimeType(click.ParamType[int]):
    """The type of -1 or latest, -2 or earliest, -3 or max-timestamp, else ms since 1970."""

    name = "time"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Read the value, or fail as a usage error."""
        if value in NAMED_TIMES:
            return NAMED_TIMES[value]
        try:
            number = int(value)
        except ValueError:
            number = MAX_TIMESTAMP - 1
        if not MAX_TIMESTAMP <= number <= INT64_MAX:
            self.fail(
                f"Malformed time argument {value}. Please use -1 or latest / -2 or earliest / -3 or max-timestamp, or "
                "a specified long format timestamp",
                param,
                ctx,
            )
        return number


@click.command("get-offsets")
@click.argument("topic", shell_complete=complete_topic)
@click.option(
    "--time",
    "timestamp_ms",
    type=TimeType(),
    default=LATEST,
    metavar="-1|-2|-3|MS",
    help="-1 (latest, the default): the high watermark; -2 (earliest): the log start offset; -3: the record with the "
    "largest timestamp; else the first record at or after that time in ms.",
)
@verb_options
@reports_errors
def get_offsets(topic: str, timestamp_ms: int, bootstrap_server: str | None, directory: Path, output: str) -> None:
    """Print the offset of each partition of a topic at a time."""
    bootstrap = servers(bootstrap_server, directory)

    async def work() -> Mapping[TopicPartition, OffsetAndTimestamp]:
        async with Admin(bootstrap) as admin:
            cluster = await admin.metadata([topic])
            (info,) = await admin.topics_in(cluster, [topic])
            elsewhere = on_kafka_brokers(cluster)
            wanted = {}
            for part in info.partitions.values():
                at = part.topic_partition
                if at in elsewhere:
                    say(f"Skip getting offsets for topic-partition {at} due to: {led_by(at, elsewhere[at]).message}")
                elif part.leader_id is None:
                    say(f"Skip getting offsets for topic-partition {at} due to: it has no leader")
                else:
                    wanted[at] = timestamp_ms
            return await admin.list_offsets(wanted, timeout_ms=TIMEOUT_MS) if wanted else {}

    found = sorted(run(work()).items())
    if output == JSON:
        offsets = [{"topic": tp.topic, "partition": tp.partition, "offset": one.offset} for tp, one in found]
        print_json({"offsets": offsets})
        return
    for tp, one in found:
        print_text(f"{tp.topic}:{tp.partition}:{one.offset}")
