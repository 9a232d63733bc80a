"""``delete-topic`` (kafka-topics.sh --delete; kafka-behaviour 8.16, 11.1).

As Kafka's tool it prints nothing when all went well. It returns when no live broker's metadata shows the topics any
more; replicas on dead brokers are deleted when these return. A name is a name here, no regular expression.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click

from tidegauge.cli import print_json, tells_errors, verb_options
from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge_client.admin import Admin
from tidegauge_client.cli.common import JSON, run, servers

DELETE_TIMEOUT_MS = 30_000


@click.command("delete-topic")
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
@click.option("--if-exists", is_flag=True, help="A missing topic is no error.")
@verb_options
@tells_errors
def delete_topic(
    names: Sequence[str], if_exists: bool, bootstrap_server: str | None, directory: Path, output: str
) -> None:
    """Delete topics, and wait until no broker knows them."""
    bootstrap = servers(bootstrap_server, directory)

    async def work() -> list[bool]:
        async with Admin(bootstrap) as admin:
            known = (await admin.metadata()).topics
            missing = [name for name in names if name not in known]
            if missing and not if_exists:
                # Kafka looks at all of them first, too: nothing is deleted when one is not there.
                raise TidegaugeError(
                    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                    f"Topic '{missing[0]}' does not exist as expected; `tidegauge list-topics` shows what does",
                )
            return [name not in missing and await _delete(admin, name, if_exists=if_exists) for name in names]

    deleted = run(work())
    if output == JSON:
        print_json({"topics": [{"name": name, "deleted": gone} for name, gone in zip(names, deleted, strict=True)]})


async def _delete(admin: Admin, name: str, *, if_exists: bool) -> bool:
    """Delete one; False when somebody else was quicker and that is no error."""
    try:
        await admin.delete_topic(name, timeout_ms=DELETE_TIMEOUT_MS)
    except TidegaugeError as problem:
        if problem.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION or not if_exists:
            raise
        return False
    await admin.wait_for_topic_gone(name, timeout_ms=DELETE_TIMEOUT_MS)
    return True
