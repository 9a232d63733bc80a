"""``list-groups``, ``describe-group`` and ``delete-group``: kafka-consumer-groups.sh, by any broker.

Columns and sentences are those of Kafka's tool (ConsumerGroupCommand).
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click

from tidegauge.cli import EXIT_FAILED, EXIT_OK, print_json, print_line, reports_errors, say, verb_options
from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.partition import TopicPartition
from tidegauge_client import group_tables
from tidegauge_client.admin import LATEST, Admin
from tidegauge_client.admin_groups import GroupDescription, ListedGroup
from tidegauge_client.cli.common import JSON, list_limit, run, servers
from tidegauge_client.cli.completing import complete_group
from tidegauge_client.group_tables import OffsetRow

STATES = ("Empty", "PreparingRebalance", "CompletingRebalance", "Assigning", "Reconciling", "Stable", "Dead")
_END_OFFSETS_MS = 2_000


@click.command("list-groups")
@click.option(
    "--state",
    "states",
    is_flag=False,
    flag_value="",
    metavar="STATES",
    help="Show states; with names, separated by commas, only groups in one of them.",
)
@list_limit
@verb_options
@reports_errors
def list_groups(states: str | None, timeout_ms: int, bootstrap_server: str | None, directory: Path, output: str) -> int:
    """List the consumer groups of the cluster; where those of a broker stay missing, list the others and fail."""
    wanted = [one.strip() for one in (states or "").split(",") if one.strip()]
    known = {name.lower(): name for name in STATES}
    if unknown := [one for one in wanted if one.lower() not in known]:
        raise click.UsageError(f"Invalid state list '{states}': {unknown[0]} is none of {', '.join(STATES)}")
    bootstrap = servers(bootstrap_server, directory)

    async def work() -> tuple[list[ListedGroup], str]:
        async with Admin(bootstrap) as admin:
            return await admin.list_groups_there([known[one.lower()] for one in wanted], timeout_ms=timeout_ms)

    groups, lacks = run(work())
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
        for line in [one.group_id for one in groups] if states is None else group_tables.list_table(groups):
            print_line(line)
    return EXIT_FAILED if lacks else EXIT_OK


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
    """Show the state, the members, or the offsets and lag of consumer groups."""
    bootstrap = servers(bootstrap_server, directory)

    async def work() -> list[tuple[GroupDescription, str, list[OffsetRow]]]:
        async with Admin(bootstrap) as admin:
            found = []
            for group_id in groups:
                group = await admin.describe_group(group_id)
                rows = await _offset_rows(admin, group) if shown == "offsets" or output == JSON else []
                brokers = (await admin.metadata([])).brokers
                address = brokers[group.coordinator].address if group.coordinator in brokers else group_tables.MISSING
                found.append((group, address, rows))
            return found

    found = run(work())
    if output == JSON:
        print_json({"groups": [group_tables.group_json(*one) for one in found]})
    else:
        for one in found:
            _print(*one, shown=shown, verbose=verbose)
    return EXIT_FAILED if any(group.state == "Dead" for group, _, _ in found) else 0


async def _offset_rows(admin: Admin, group: GroupDescription) -> list[OffsetRow]:
    """Return a group's partitions; the end offset of one without a leader is unknown."""
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


def _print(group: GroupDescription, address: str, rows: list[OffsetRow], *, shown: str, verbose: bool) -> None:
    sentence = group_tables.state_sentence(group)
    if sentence is not None:
        say(sentence)
    if group.state == "Dead":
        return
    lines = []
    if shown == "state":
        lines = group_tables.state_table(group, address, verbose=verbose)
    elif shown == "members" and group.members:
        lines = group_tables.members_table(group, verbose=verbose)
    elif shown == "offsets" and rows:
        lines = group_tables.offsets_table(group.group_id, rows)
    for line in lines:
        print_line(line.rstrip())


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
