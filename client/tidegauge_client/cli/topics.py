"""``create-topic`` and ``list-topics`` (kafka-topics.sh; TopicCommand)."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path

import click

from tidegauge.cli import print_json, print_line, print_text, reports_errors, say, verb_options
from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge_client.admin import Admin, NewTopic, check_new_topic
from tidegauge_client.cli.common import INT32_MAX, JSON, run, servers, usage

CREATE_TIMEOUT_MS = 30_000


def parse_assignment(text: str) -> list[list[int]]:
    """Read ``1:0:2,0:2:1``: broker ids of each partition, the preferred leader first.

    Raises:
        ValueError: the text has another form.
    """
    try:
        assignment = [[int(broker) for broker in partition.split(":")] for partition in text.split(",")]
    except ValueError:
        raise ValueError(f"'{text}' is not a replica assignment; write BROKER:BROKER,BROKER:BROKER") from None
    if any(not 0 <= broker <= INT32_MAX for partition in assignment for broker in partition):
        raise ValueError(f"'{text}' is not a replica assignment: broker ids are 0 to {INT32_MAX}")
    return assignment


def parse_configs(texts: Sequence[str]) -> dict[str, str]:
    """Read ``name=value`` of each.

    Raises:
        ValueError: there is no ``=``, or no name.
    """
    configs = {}
    for text in texts:
        name, separator, value = text.partition("=")
        if not separator or not name.strip():
            raise ValueError(f"'{text}' is not a setting; write NAME=VALUE, for example min.insync.replicas=2")
        configs[name.strip()] = value.strip()
    return configs


def warn_of_unknown_brokers(assignment: Sequence[Sequence[int]], registered: Collection[int]) -> None:
    """Warn about assigned brokers that are not registered; Kafka accepts such an assignment, and so does this
    command.
    """
    unknown = sorted({broker for partition in assignment for broker in partition}.difference(registered))
    if unknown:
        ids = ", ".join(map(str, unknown))
        say(
            f"WARNING: the assignment names broker {ids}, not registered at the moment: these replicas are out of "
            "sync, and a deletion of the topic waits for them."
        )


@click.command("create-topic")
@click.argument("name")
@click.option(
    "--partitions",
    type=click.IntRange(max=INT32_MAX),
    metavar="N",
    help="Number of partitions (default: the brokers' num.partitions).",
)
@click.option(
    "--replication-factor",
    type=int,
    metavar="N",
    help="Replicas of each partition (default: the brokers' default.replication.factor).",
)
@click.option("--replica-assignment", metavar="1:0:2,0:2:1", help="Broker ids of each partition, instead of counts.")
@click.option(
    "--config", "configs", multiple=True, metavar="NAME=VALUE", help="A setting of the topic; may be repeated."
)
@click.option("--if-not-exists", is_flag=True, help="Ignore a topic that already exists.")
@verb_options
@reports_errors
def create_topic(
    name: str,
    partitions: int | None,
    replication_factor: int | None,
    replica_assignment: str | None,
    configs: Sequence[str],
    if_not_exists: bool,
    bootstrap_server: str | None,
    directory: Path,
    output: str,
) -> None:
    """Create a topic, and wait until every broker knows it with a leader for each partition."""
    if replica_assignment is not None and (partitions is not None or replication_factor is not None):
        raise click.UsageError("Option --replica-assignment can't be used with --partitions or --replication-factor")
    try:
        assignment = [] if replica_assignment is None else parse_assignment(replica_assignment)
        settings = parse_configs(configs)
    except ValueError as problem:
        raise click.UsageError(str(problem)) from None
    try:
        check_new_topic(NewTopic(name, partitions, replication_factor, assignment, settings))
    except TidegaugeError as problem:
        if problem.code is ErrorCode.INVALID_TOPIC_EXCEPTION:
            raise
        raise usage(problem) from None
    bootstrap = servers(bootstrap_server, directory)
    if ("." in name or "_" in name) and output != JSON:
        say(
            "WARNING: Due to limitations in metric names, topics with a period ('.') or underscore ('_') could "
            "collide. To avoid issues it is best to use either, but not both."
        )

    async def work() -> tuple[str, bool]:
        async with Admin(bootstrap) as admin:
            try:
                topic_id = await admin.create_topic(
                    name,
                    partitions=partitions,
                    replication_factor=replication_factor,
                    assignment=assignment,
                    configs=settings,
                    timeout_ms=CREATE_TIMEOUT_MS,
                )
            except TidegaugeError as problem:
                if problem.code is not ErrorCode.TOPIC_ALREADY_EXISTS or not if_not_exists:
                    raise
                return "", False
            await admin.wait_for_topic(name, timeout_ms=CREATE_TIMEOUT_MS)
            if assignment:
                warn_of_unknown_brokers(assignment, (await admin.metadata([])).live)
            return topic_id, True

    topic_id, is_new = run(work())
    if output == JSON:
        print_json({"name": name, "topic_id": topic_id or None, "created": is_new})
    elif is_new:
        print_text(f"Created topic {name}.")


@click.command("list-topics")
@verb_options
@reports_errors
def list_topics(bootstrap_server: str | None, directory: Path, output: str) -> None:
    """List all topics, by name."""
    bootstrap = servers(bootstrap_server, directory)

    async def work() -> list[str]:
        async with Admin(bootstrap) as admin:
            return await admin.list_topics()

    names = run(work())
    if output == JSON:
        print_json({"topics": names})
        return
    for name in names:
        print_line(name)
