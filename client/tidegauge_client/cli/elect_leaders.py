"""``elect-leaders`` (kafka-leader-election.sh; LeaderElectionCommand): preferred or unclean elections on demand.

Kafka's sentences: elected partitions and those that needed no election on stdout, failures on stderr. Any failure: exit
1. With ``--all-topic-partitions`` partitions that need no election are not named, as in Kafka. It returns when every
live broker knows the result.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from tidegauge.cli import fail, print_json, print_text, reports_errors, say, verb_options
from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.partition import TopicPartition
from tidegauge_client.admin import Admin
from tidegauge_client.cli.common import INDEX, JSON, run, servers
from tidegauge_client.metadata import newest_of

ELECTION_TIMEOUT_MS = 30_000
Outcomes = dict[TopicPartition, TidegaugeError | None]


@click.command("elect-leaders")
@click.option("--election-type", type=click.Choice(["preferred", "unclean"], case_sensitive=False), required=True)
@click.option("--topic", metavar="T", help="Topic of the partition to elect a leader for.")
@click.option("--partition", type=INDEX, metavar="P", help="The partition to elect a leader for.")
@click.option("--all-topic-partitions", is_flag=True, help="All partitions of all topics that need it.")
@verb_options
@reports_errors
def elect_leaders(
    election_type: str,
    topic: str | None,
    partition: int | None,
    all_topic_partitions: bool,
    bootstrap_server: str | None,
    directory: Path,
    output: str,
) -> None:
    """Return leadership to preferred replicas, or give it to any live one if no in-sync replica is alive."""
    partitions = _partitions(topic, partition, all_topic_partitions=all_topic_partitions)
    bootstrap = servers(bootstrap_server, directory)

    async def work() -> Outcomes:
        async with Admin(bootstrap) as admin:
            outcomes = await admin.elect_leaders(
                partitions, unclean=election_type == "unclean", timeout_ms=ELECTION_TIMEOUT_MS
            )
            await _until_known(admin, [at for at, problem in outcomes.items() if problem is None])
            return outcomes

    outcomes = run(work())
    failed = {at: problem for at, problem in outcomes.items() if _is_failure(problem)}
    if output == JSON:
        print_json({"election_type": election_type, "partitions": [_entry(*item) for item in outcomes.items()]})
    else:
        _tell(outcomes, election_type.upper())
    if failed:
        code = next(problem.code for problem in failed.values() if problem is not None)
        fail(f"{len(failed)} replica(s) could not be elected", output, code=code)


def _partitions(
    topic: str | None, partition: int | None, *, all_topic_partitions: bool
) -> Sequence[TopicPartition] | None:
    """Return the partitions; None: all. Raise a usage error for wrong options."""
    if all_topic_partitions:
        if topic is not None or partition is not None:
            raise click.UsageError("Option --all-topic-partitions can't be used with --topic or --partition")
        return None
    if topic is None and partition is None:
        raise click.UsageError("One and only one of the following options is required: --topic, --all-topic-partitions")
    if partition is None:
        raise click.UsageError("Missing required option(s): partition; --topic names its topic")
    if topic is None:
        raise click.UsageError("Option partition is only allowed if topic is used")
    return [TopicPartition(topic, partition)]


async def _until_known(admin: Admin, elected: Sequence[TopicPartition]) -> None:
    """Wait until every live broker has the epoch that the best-informed one shows now."""
    if not elected:
        return
    topics = {at.topic for at in elected}
    newest = newest_of(await admin.metadata_of_all(topics))
    epochs = {part.topic_partition: part.leader_epoch for part in newest if part.topic_partition in elected}
    await admin.wait_for_epochs(epochs, timeout_ms=ELECTION_TIMEOUT_MS)


def _is_failure(problem: TidegaugeError | None) -> bool:
    return problem is not None and problem.code is not ErrorCode.ELECTION_NOT_NEEDED


def _tell(outcomes: Outcomes, kind: str) -> None:
    elected = [str(at) for at, problem in outcomes.items() if problem is None]
    valid = [str(at) for at, problem in outcomes.items() if problem is not None and not _is_failure(problem)]
    if elected:
        print_text(f"Successfully completed leader election ({kind}) for partitions {', '.join(elected)}")
    if valid:
        print_text(f"Valid replica already elected for partitions {', '.join(valid)}")
    for at, problem in outcomes.items():
        if problem is not None and _is_failure(problem):
            say(f"Error completing leader election ({kind}) for partition: {at}: {problem}")


def _entry(at: TopicPartition, problem: TidegaugeError | None) -> dict[str, Any]:
    entry: dict[str, Any] = {"topic": at.topic, "partition": at.partition, "elected": problem is None, "error": None}
    if problem is not None:
        entry["error"] = {"code": int(problem.code), "name": problem.code.name, "message": problem.message}
    return entry
