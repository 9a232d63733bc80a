"""``alter-topic`` (kafka-topics.sh --alter; TopicCommand.alterTopic): more partitions, never fewer.

As Kafka's tool it prints nothing on success, and ``--replica-assignment`` lists *all* partitions of the topic: the
entries of existing ones are skipped. It returns when every live broker knows the new partitions' leaders.
"""

from __future__ import annotations

from pathlib import Path

import click

from tidegauge.cli import print_json, reports_errors, verb_options
from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.near_names import did_you_mean
from tidegauge_client.admin import Admin
from tidegauge_client.admin_topics import check_same_size
from tidegauge_client.cli.common import INT32_MAX, JSON, run, servers, usage
from tidegauge_client.cli.completing import complete_topic
from tidegauge_client.cli.topics import parse_assignment

ALTER_TIMEOUT_MS = 30_000


@click.command("alter-topic")
@click.argument("name", shell_complete=complete_topic)
@click.option(
    "--partitions",
    type=click.IntRange(max=INT32_MAX),
    metavar="N",
    required=True,
    help="The topic's new number of partitions.",
)
@click.option(
    "--replica-assignment",
    metavar="1:0:2,0:2:1",
    help="Broker ids of each partition, including existing ones (which stay as they are).",
)
@click.option("--if-exists", is_flag=True, help="Ignore a topic that does not exist.")
@verb_options
@reports_errors
def alter_topic(
    name: str,
    partitions: int,
    replica_assignment: str | None,
    if_exists: bool,
    bootstrap_server: str | None,
    directory: Path,
    output: str,
) -> None:
    """Add partitions to a topic, and wait until every broker knows their leaders."""
    if partitions < 1:
        raise click.UsageError("The partitions must be greater than 0")
    try:
        whole = None if replica_assignment is None else parse_assignment(replica_assignment)
        check_same_size(whole or ())
    except ValueError as problem:
        raise click.UsageError(str(problem)) from None
    except TidegaugeError as problem:
        raise usage(problem) from None
    bootstrap = servers(bootstrap_server, directory)

    async def work() -> bool:
        async with Admin(bootstrap) as admin:
            topic = (await admin.metadata([name])).topics.get(name)
            if topic is None or topic.error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                if if_exists:
                    return False
                known = await admin.list_topics()
                hint = did_you_mean(name, known, "; `tidegauge list-topics` shows what does")
                raise TidegaugeError(
                    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Topic '{name}' does not exist as expected{hint}"
                )
            count = len(topic.partitions)
            added = [] if whole is None else whole[count:]
            if whole is not None and not added and partitions > count:
                # An empty list would mean "choose for me" to the broker.
                raise TidegaugeError(
                    ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                    f"Increasing the number of partitions by {partitions - count} but 0 assignments provided. "
                    "--replica-assignment lists all partitions, those that exist first",
                )
            await admin.create_partitions(name, partitions, assignment=added, timeout_ms=ALTER_TIMEOUT_MS)
            await admin.wait_for_topic(name, partitions=partitions, timeout_ms=ALTER_TIMEOUT_MS)
            return True

    altered = run(work())
    if output == JSON:
        print_json({"name": name, "partitions": partitions if altered else None, "altered": altered})
