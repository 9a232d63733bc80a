"""``delete-topic`` (kafka-topics.sh --delete, TopicCommand.deleteTopic).

As Kafka's tool it prints nothing on stdout. It returns when no live broker's metadata shows the topics any more.
Replicas on dead brokers are deleted when these return; until then the topic is marked for deletion, and its name can't
be used again (TopicDeletionManager): stderr says so, and for which brokers the deletion waits. A name is taken
literally, not as a regular expression.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path

import click

from tidegauge.cli import print_json, reports_errors, say, verb_options
from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.near_names import did_you_mean
from tidegauge_client.admin import Admin
from tidegauge_client.admin_topics import marked_for_deletion
from tidegauge_client.cli.common import JSON, run, servers
from tidegauge_client.cli.completing import complete_topic
from tidegauge_client.metadata import TopicInfo

DELETE_TIMEOUT_MS = 30_000


@click.command("delete-topic")
@click.argument("names", nargs=-1, required=True, metavar="NAME...", shell_complete=complete_topic)
@click.option("--if-exists", is_flag=True, help="Ignore a topic that does not exist.")
@verb_options
@reports_errors
def delete_topic(
    names: Sequence[str], if_exists: bool, bootstrap_server: str | None, directory: Path, output: str
) -> None:
    """Delete topics, and wait until no broker knows them."""
    bootstrap = servers(bootstrap_server, directory)

    async def work() -> tuple[list[bool], list[list[int]]]:
        async with Admin(bootstrap) as admin:
            known = (await admin.metadata()).topics
            missing = [name for name in names if name not in known]
            if missing and not if_exists:
                # Kafka checks all of them first, too: nothing is deleted if one does not exist.
                if await admin.is_marked_for_deletion(missing[0]):
                    raise TidegaugeError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, marked_for_deletion(missing[0]))
                hint = did_you_mean(missing[0], known, "; `tidegauge list-topics` shows what does")
                raise TidegaugeError(
                    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Topic '{missing[0]}' does not exist as expected{hint}"
                )
            deleted = [name not in missing and await _delete(admin, name, if_exists=if_exists) for name in names]
            live = (await admin.metadata([])).live
            return deleted, [waits_for(known[name], live) if name in known else [] for name in names]

    deleted, waiting = run(work())
    for name, gone, brokers in zip(names, deleted, waiting, strict=True):
        if gone and brokers:
            say(waiting_sentence(name, brokers))
    if output == JSON:
        rows = zip(names, deleted, waiting, strict=True)
        print_json({"topics": [{"name": name, "deleted": gone, "waits_for": ids} for name, gone, ids in rows]})


def waits_for(topic: TopicInfo, live: Collection[int]) -> list[int]:
    """Return the unregistered brokers with a replica, which can't delete it now."""
    assigned = {broker for part in topic.partitions.values() for broker in part.replicas}
    return sorted(assigned.difference(live))


def waiting_sentence(name: str, brokers: Sequence[int]) -> str:
    """Say for which brokers the deletion waits, and what that means."""
    ids = ", ".join(map(str, brokers))
    them = (
        f"brokers {ids}, which are assigned replicas and are"
        if len(brokers) > 1
        else (f"broker {ids}, which is assigned a replica and is")
    )
    return (
        f"Topic {name} is marked for deletion; that waits for {them} not registered. Until then no topic can be "
        "created under this name."
    )


async def _delete(admin: Admin, name: str, *, if_exists: bool) -> bool:
    """Delete a topic; return False if another client was faster and a missing topic is ignored."""
    try:
        await admin.delete_topic(name, timeout_ms=DELETE_TIMEOUT_MS)
    except TidegaugeError as problem:
        if problem.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION or not if_exists:
            raise
        return False
    await admin.wait_for_topic_gone(name, timeout_ms=DELETE_TIMEOUT_MS)
    return True
