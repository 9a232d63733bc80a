"""``list-groups``, ``describe-group`` and ``delete-group``: kafka-consumer-groups.sh, by any broker.

Columns and sentences follow Kafka's tool (ConsumerGroupCommand), for share groups kafka-share-groups.sh's.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from tidegauge.cli import EXIT_FAILED, EXIT_OK, print_json, print_line, reports_errors, say, verb_options
from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.partition import TopicPartition
from tidegauge_client import group_tables, share_group_tables
from tidegauge_client.admin import LATEST, Admin
from tidegauge_client.admin_groups import GroupDescription, ListedGroup
from tidegauge_client.cli.common import JSON, list_limit, run, servers
from tidegauge_client.cli.completing import complete_group
from tidegauge_client.group_tables import OffsetRow
from tidegauge_client.share_groups import ShareOffset

STATES = ("Empty", "PreparingRebalance", "CompletingRebalance", "Assigning", "Reconciling", "Stable", "Dead")
TYPES = ("classic", "consumer", "share")
_END_OFFSETS_MS = 2_000
Offsets = list[OffsetRow] | dict[TopicPartition, ShareOffset]
"""Of a share group by partition."""


@click.command("list-groups")
@click.option(
    "--state",
    "states",
    is_flag=False,
    flag_value="",
    metavar="STATES",
    help="Show states; with names, separated by commas, only groups in one of them.",
)
@click.option(
    "--type",
    "types",
    is_flag=False,
    flag_value="",
    metavar="TYPES",
    help="Show types; with names, separated by commas, only groups of one of them: classic, consumer, share.",
)
@list_limit
@verb_options
@reports_errors
def list_groups(
    states: str | None,
    types: str | None,
    timeout_ms: int,
    bootstrap_server: str | None,
    directory: Path,
    output: str,
) -> int:
    """List the groups of the cluster; if a broker's groups stay missing, list the others and fail."""
    wanted = _chosen(states, STATES, "state")
    of_types = {one.lower() for one in _chosen(types, TYPES, "type")}
    bootstrap = servers(bootstrap_server, directory)

    async def work() -> tuple[list[ListedGroup], str]:
        async with Admin(bootstrap) as admin:
            return await admin.list_groups_there(wanted, timeout_ms=timeout_ms)

    listed, lacks = run(work())
    groups = [one for one in listed if not of_types or one.group_type.lower() in of_types]
    if lacks:
        say(lacks)
    if output == JSON:
        print_json(
            {
                "groups": [
                    {
                        "group": one.group_id,
                        "state": one.state,
                        "protocol_type": one.protocol_type,
                        "type": one.group_type,
                        "coordinator": one.coordinator,
                    }
                    for one in groups
                ]
            }
        )
    else:
        shows = {"types": types is not None, "states": states is not None}
        lines = group_tables.list_table(groups, **shows) if any(shows.values()) else [one.group_id for one in groups]
        for line in lines:
            print_line(line)
    return EXIT_FAILED if lacks else EXIT_OK


def _chosen(text: str | None, known: Sequence[str], what: str) -> list[str]:
    """Return the names of an option's list, as Kafka writes them.

    Raises:
        click.UsageError: one of them is unknown.
    """
    wanted = [one.strip() for one in (text or "").split(",") if one.strip()]
    names = {name.lower(): name for name in known}
    if unknown := [one for one in wanted if one.lower() not in names]:
        raise click.UsageError(f"Invalid {what} list '{text}': {unknown[0]} is none of {', '.join(known)}")
    return [names[one.lower()] for one in wanted]


@click.command("describe-group")
@click.argument("groups", nargs=-1, required=True, metavar="GROUP...", shell_complete=complete_group)
@click.option("--offsets", "shown", flag_value="offsets", default="offsets", help="Offsets and lag (the default).")
@click.option("--members", "shown", flag_value="members", help="Members.")
@click.option("--state", "shown", flag_value="state", help="Coordinator, strategy, state and number of members.")
@click.option(
    "--verbose",
    is_flag=True,
    help="With --members: the partitions of each. Of consumer groups also the epochs, with --state, too.",
)
@verb_options
@reports_errors
def describe_group(
    groups: Sequence[str], shown: str, verbose: bool, bootstrap_server: str | None, directory: Path, output: str
) -> int:
    """Show the state, the members, or the offsets and lag of groups of any type."""
    bootstrap = servers(bootstrap_server, directory)

    async def work() -> list[tuple[GroupDescription, str, Offsets]]:
        async with Admin(bootstrap) as admin:
            found = []
            for group_id in groups:
                group = await admin.describe_group(group_id)
                rows = await _offsets(admin, group) if shown == "offsets" or output == JSON else []
                brokers = (await admin.metadata([])).brokers
                address = brokers[group.coordinator].address if group.coordinator in brokers else group_tables.MISSING
                found.append((group, address, rows))
            return found

    found = run(work())
    if output == JSON:
        print_json({"groups": [_json(*one) for one in found]})
    else:
        for one in found:
            _print(*one, shown=shown, verbose=verbose)
    return EXIT_FAILED if any(group.state == "Dead" for group, _, _ in found) else 0


async def _offsets(admin: Admin, group: GroupDescription) -> Offsets:
    """Return the facts about a group's partitions; a share group's start offsets."""
    if group.is_share_group:
        return await admin.share_offsets(group.group_id)
    return await _offset_rows(admin, group)


def _json(group: GroupDescription, address: str, offsets: Offsets) -> dict[str, Any]:
    if isinstance(offsets, dict):
        return share_group_tables.share_group_json(group, address, offsets)
    return group_tables.group_json(group, address, offsets)


async def _offset_rows(admin: Admin, group: GroupDescription) -> list[OffsetRow]:
    """Return a group's partitions; without a leader, the end is unknown."""
    committed = await admin.committed_offsets(group.group_id)
    partitions = {*committed, *(at for member in group.members for at in member.assignment)}
    ends: dict[TopicPartition, int] = {}
    for at in partitions:
        try:
            found = await admin.list_offsets({at: LATEST}, timeout_ms=_END_OFFSETS_MS)
        except TidegaugeError as problem:
            say(f"The end offset of {at} is unknown: {problem.message}")
        else:
            ends.update((one, place.offset) for one, place in found.items())
    return group_tables.offset_rows(group, committed, ends)


def _print(group: GroupDescription, address: str, offsets: Offsets, *, shown: str, verbose: bool) -> None:
    of_share = group.is_share_group
    sentence = share_group_tables.share_state_sentence(group) if of_share else group_tables.state_sentence(group)
    if sentence is not None:
        say(sentence)
    if group.state == "Dead":
        return
    if of_share:
        found = offsets if isinstance(offsets, dict) else {}
        lines = _share_lines(group, address, found, shown=shown, verbose=verbose)
    else:
        rows = [] if isinstance(offsets, dict) else offsets
        lines = _lines(group, address, rows, shown=shown, verbose=verbose)
    for line in lines:
        print_line(line.rstrip())


def _share_lines(
    group: GroupDescription, address: str, offsets: dict[TopicPartition, ShareOffset], *, shown: str, verbose: bool
) -> list[str]:
    if shown == "state":
        return share_group_tables.share_state_table(group, address, verbose=verbose)
    if shown == "members":
        return share_group_tables.share_members_table(group, verbose=verbose) if group.members else []
    return share_group_tables.share_offsets_table(group.group_id, offsets) if offsets else []


def _lines(group: GroupDescription, address: str, rows: list[OffsetRow], *, shown: str, verbose: bool) -> list[str]:
    lines = []
    if shown == "state":
        lines = group_tables.state_table(group, address, verbose=verbose)
    elif shown == "members" and group.members:
        lines = group_tables.members_table(group, verbose=verbose)
    elif shown == "offsets" and rows:
        lines = group_tables.offsets_table(group.group_id, rows)
    return lines


@click.command("delete-group")
@click.argument("groups", nargs=-1, required=True, metavar="GROUP...", shell_complete=complete_group)
@verb_options
@reports_errors
def delete_group(groups: Sequence[str], bootstrap_server: str | None, directory: Path, output: str) -> int:
    """Delete consumer groups without members, and their offsets."""
    bootstrap = servers(bootstrap_server, directory)

    async def work() -> dict[str, TidegaugeError | None]:
        outcomes: dict[str, TidegaugeError | None] = {}
        async with Admin(bootstrap) as admin:
            for group_id in groups:
                try:
                    await admin.delete_group(group_id)
                except TidegaugeError as problem:
                    outcomes[group_id] = problem
                else:
                    outcomes[group_id] = None
        return outcomes

    outcomes = run(work())
    failed = {group_id: problem for group_id, problem in outcomes.items() if problem is not None}
    if output == JSON:
        print_json(
            {"groups": [{"group": one, "error": None if p is None else p.code.name} for one, p in outcomes.items()]}
        )
    else:
        for line in deletion_lines(list(outcomes), failed):
            print_line(line)
    return EXIT_FAILED if failed else 0


def deletion_lines(groups: Sequence[str], failed: dict[str, TidegaugeError]) -> list[str]:
    """Return Kafka's sentences about deleted groups."""
    if not failed:
        return [f"Deletion of requested consumer groups ({_quoted(groups)}) was successful."]
    lines = ["Deletion of some consumer groups failed:"]
    lines += [f"* Group '{one}' could not be deleted due to: {_reason(problem)}" for one, problem in failed.items()]
    if done := [one for one in groups if one not in failed]:
        lines.append(f"These consumer groups were deleted successfully: {_quoted(done)}")
    return lines


def _reason(problem: TidegaugeError) -> str:
    if problem.code is ErrorCode.NON_EMPTY_GROUP:
        return f"{problem.code.name}: The group is not empty; end its consumers first."
    return f"{problem.code.name}: {problem.message}"


def _quoted(groups: Sequence[str]) -> str:
    return ", ".join(f"'{one}'" for one in groups)
