"""``reset-offsets`` (kafka-consumer-groups.sh --reset-offsets, KIP-122): set the offsets of a group without members.

Without ``--execute`` it only says what would be set, as Kafka's tool does.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Sequence
from pathlib import Path

import click

from tidegauge.cli import print_json, print_line, reports_errors, say, verb_options
from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.partition import TopicPartition
from tidegauge_client import offset_reset
from tidegauge_client.admin import EARLIEST, LATEST, Admin
from tidegauge_client.admin_groups import OffsetAndMetadata
from tidegauge_client.cli.common import JSON, run, servers
from tidegauge_client.cli.completing import complete_group

_TARGETS = (
    "to_earliest",
    "to_latest",
    "to_current",
    "to_offset",
    "shift_by",
    "to_datetime",
    "by_duration",
    "from_file",
)


@click.command("reset-offsets")
@click.argument("group", shell_complete=complete_group)
@click.option(
    "--topic", "topics", multiple=True, metavar="T[:P,...]", help="A topic, or some partitions; may be repeated."
)
@click.option("--all-topics", is_flag=True, help="All topics that the group has offsets of.")
@click.option("--to-earliest", is_flag=True, help="To the log start offset.")
@click.option("--to-latest", is_flag=True, help="To the high watermark.")
@click.option("--to-current", is_flag=True, help="To the committed offset.")
@click.option("--to-offset", type=int, metavar="N", help="To this offset.")
@click.option("--shift-by", type=int, metavar="N", help="By N records, back if negative.")
@click.option("--to-datetime", metavar="TIME", help="To the first record at or after YYYY-MM-DDTHH:mm:SS.sss (UTC).")
@click.option("--by-duration", metavar="P..", help="To the first record of the last PnDTnHnMnS.")
@click.option("--from-file", type=click.Path(exists=True, dir_okay=False, path_type=Path), help="As --export wrote it.")
@click.option("--dry-run", is_flag=True, help="Only say what would be set (the default).")
@click.option("--execute", is_flag=True, help="Set the offsets.")
@click.option("--export", is_flag=True, help="Print topic,partition,offset lines for --from-file.")
@verb_options
@reports_errors
def reset_offsets(
    group: str,
    topics: Sequence[str],
    all_topics: bool,
    dry_run: bool,
    execute: bool,
    export: bool,
    bootstrap_server: str | None,
    directory: Path,
    output: str,
    **target: object,
) -> None:
    """Set the committed offsets of a consumer group without members."""
    given = [name for name in _TARGETS if target[name] not in (None, False)]
    if len(given) != 1:
        raise click.UsageError(f"Give exactly one of {', '.join('--' + one.replace('_', '-') for one in _TARGETS)}.")
    if dry_run and execute:
        raise click.UsageError("--dry-run and --execute exclude each other.")
    if bool(topics) == all_topics and given != ["from_file"]:
        raise click.UsageError("Give the topics: --topic T[:P,...], or --all-topics.")
    bootstrap = servers(bootstrap_server, directory)

    async def work() -> dict[TopicPartition, int]:
        async with Admin(bootstrap) as admin:
            state = (await admin.describe_group(group)).state
            if state not in {"Empty", "Dead"}:
                raise TidegaugeError(
                    ErrorCode.NON_EMPTY_GROUP,
                    f"Assignments can only be reset if the group '{group}' is inactive, but the current state is "
                    f"{state}.",
                )
            try:
                found = await _new_offsets(admin, group, topics, given[0], target[given[0]])
            except ValueError as problem:
                raise TidegaugeError(ErrorCode.INVALID_REQUEST, str(problem)) from None
            if execute:
                wanted = {at: OffsetAndMetadata(offset) for at, offset in found.items()}
                for at, failure in (await admin.commit_offsets(group, wanted)).items():
                    if failure is not None:
                        raise TidegaugeError(failure.code, f"The offset of {at} was not set: {failure.message}")
            return found

    found = run(work())
    if output == JSON:
        rows = [{"topic": at.topic, "partition": at.partition, "new_offset": one} for at, one in sorted(found.items())]
        print_json({"group": group, "executed": execute, "offsets": rows})
        return
    for line in offset_reset.exported(found) if export else offset_reset.table(group, found):
        print_line(line)
    if not execute and not dry_run and not export:
        say("Nothing was set: --execute sets these offsets")


async def _new_offsets(
    admin: Admin, group: str, topics: Sequence[str], target: str, value: object
) -> dict[TopicPartition, int]:
    """Return the offset to set for each partition.

    Raises:
        ValueError: the target cannot be read, or a partition lacks what it refers to.
    """
    committed = {at: one.offset for at, one in (await admin.committed_offsets(group)).items()}
    if target == "from_file":
        assert isinstance(value, Path)
        wanted = offset_reset.read_file(value.read_text(encoding="utf-8"))
        return await _within_range(admin, wanted)
    partitions = await _partitions(admin, topics, committed)
    if target in {"to_earliest", "to_latest"}:
        found = await admin.list_offsets(dict.fromkeys(partitions, EARLIEST if target == "to_earliest" else LATEST))
        return {at: one.offset for at, one in found.items()}
    if target in {"to_datetime", "by_duration"}:
        moment_ms = (
            offset_reset.parse_datetime(str(value))
            if target == "to_datetime"
            else round(time.time() * 1000) - offset_reset.parse_duration(str(value))
        )
        by_time = await admin.list_offsets(dict.fromkeys(partitions, moment_ms))
        latest = await admin.list_offsets(dict.fromkeys(partitions, LATEST))
        return {at: by_time[at].offset if at in by_time else latest[at].offset for at in partitions}
    if target == "to_current":
        latest = await admin.list_offsets(dict.fromkeys(partitions, LATEST))
        return {at: committed.get(at, latest[at].offset) for at in partitions}
    assert isinstance(value, int)
    if target == "shift_by":
        return await _within_range(admin, offset_reset.shifted(partitions, committed, value))
    return await _within_range(admin, dict.fromkeys(partitions, value))


async def _within_range(admin: Admin, wanted: dict[TopicPartition, int]) -> dict[TopicPartition, int]:
    earliest = await admin.list_offsets(dict.fromkeys(wanted, EARLIEST))
    latest = await admin.list_offsets(dict.fromkeys(wanted, LATEST))
    found, warnings = offset_reset.within_range(
        wanted, {at: one.offset for at, one in earliest.items()}, {at: one.offset for at, one in latest.items()}
    )
    for warning in warnings:
        say(warning)
    return found


async def _partitions(
    admin: Admin, topics: Sequence[str], committed: Collection[TopicPartition]
) -> list[TopicPartition]:
    """Return the named partitions; without topics, the ones with committed offsets.

    Raises:
        ValueError: a partition does not exist.
    """
    if not topics:
        return sorted(committed)
    found: list[TopicPartition] = []
    for name, indexes in map(offset_reset.parse_topic, topics):
        (topic,) = await admin.describe_topics([name])
        if missing := [index for index in indexes if index not in topic.partitions]:
            raise ValueError(f"Topic {name} has no partition {missing[0]}")
        found += (TopicPartition(name, index) for index in (indexes or sorted(topic.partitions)))
    return found
