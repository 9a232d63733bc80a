"""``tidegauge inject-error``, ``hold-requests``, ``inject-disk``, ``skew-clock``, ``expire-session``, ``sync``.

Counts are the same everywhere: the first call (operation) is met, or the Nth with ``--nth``, once or ``--times`` in a
row (0: without end), each with ``--probability``. `tidegauge faults` lists active faults, ``--clear`` ends it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from tidegauge.cli import print_json, print_text, say, verb_options
from tidegauge.faults.actions import EXPIRE_SESSION, RELEASE_REQUESTS, SYNC
from tidegauge.faults.table import HOLD_REQUESTS, INJECT_DISK, INJECT_ERROR, SKEW_CLOCK
from tidegauge.partition import TopicPartition
from tidegauge_client.cli.common import INT32_MAX, PartitionType
from tidegauge_client.quorum_file import node_name
from tidegauge_lab.cli.common import TargetType
from tidegauge_lab.cli.declared_options import declared_option
from tidegauge_lab.cli.fault_targets import (
    Target,
    only_target,
    resolved,
    role_options,
    taken_roles,
    taken_target,
    target_options,
)
from tidegauge_lab.cli.fault_verbs import fault_as_json, fault_verb
from tidegauge_lab.cli.switching import means_directory, with_switches
from tidegauge_lab.cli.verbs import lab_verb
from tidegauge_lab.ended_membership import EndedMembership
from tidegauge_lab.local.cluster import LocalCluster
from tidegauge_lab.session_ending import expire_session as end_session
from tidegauge_lab.switches import Fault, Switches

inject_error = fault_verb(INJECT_ERROR)
hold_requests = fault_verb(HOLD_REQUESTS)
inject_disk = fault_verb(INJECT_DISK)
skew_clock = fault_verb(SKEW_CLOCK)


class _TargetOrPartition(click.ParamType["Target | TopicPartition"]):
    """A broker, by id or role, or a partition: ``sync 1 orders-0`` and ``sync --controller orders-0`` are both read."""

    name = "ID"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Read either, or fail as a usage error; a partition's name has no colon, and ends with ``-`` and a number."""
        text = str(value)
        is_partition = ":" not in text and text.rpartition("-")[2].isdigit() and not text.isdigit()
        return (PartitionType() if is_partition else TargetType()).convert(value, param, ctx)


@click.command(RELEASE_REQUESTS.words, help=f"{RELEASE_REQUESTS.meaning}.")
@target_options
@click.option("--after", type=click.IntRange(min=1), metavar="N", help="Wait until N requests are held.")
@click.option(
    "--timeout-ms",
    type=click.IntRange(min=0, max=INT32_MAX),
    metavar="N",
    default=30_000,
    show_default=True,
    help="Limit of the wait, in ms.",
)
@declared_option(RELEASE_REQUESTS.parameter("which"), "which")
@verb_options
@lab_verb
def release_requests(
    after: int | None,
    timeout_ms: int,
    which: str,
    output: str,
    directory: Path,
    bootstrap_server: str | None,
    **options: Any,
) -> None:
    """Release what the broker's faults hold."""
    target = taken_target(options)

    async def do(switches: Switches) -> tuple[int, list[Fault]]:
        broker_id = await resolved(switches, target)
        if after is not None:
            await switches.wait_held(broker_id, after, limit_seconds=timeout_ms / 1000)
        return broker_id, await switches.release_requests(broker_id, which)

    broker_id, ended = with_switches(directory, bootstrap_server, do)
    if output == "json":
        print_json({"broker": broker_id, "released": [fault_as_json(fault) for fault in ended]})
        return
    for fault in ended:
        print_text(f"{node_name(broker_id)}: {fault.text}: released {fault.held}.")
    if not ended:
        say(f"{node_name(broker_id)} holds no requests")


@click.command(EXPIRE_SESSION.words, help=f"{EXPIRE_SESSION.meaning}.")
@target_options
@verb_options
@lab_verb
def expire_session(output: str, directory: Path, bootstrap_server: str | None, **options: Any) -> None:
    """End a broker's membership of its cluster at once, a ZooKeeper session on the server."""
    target = taken_target(options)

    async def do(switches: Switches) -> tuple[int, EndedMembership]:
        broker_id = await resolved(switches, target)
        if not means_directory(bootstrap_server):  # the brokers may be another machine's
            return broker_id, await switches.expire_session(broker_id)
        return broker_id, await end_session(LocalCluster(directory), switches, broker_id)

    broker_id, ended = with_switches(directory, bootstrap_server, do)
    if output == "json":
        print_json({"broker": broker_id, **ended.as_json})
    else:
        print_text(f"{ended.words(f'broker {broker_id}')}.")


@click.command(SYNC.words, help=f"{SYNC.meaning}.")
@click.argument("named", nargs=-1, type=_TargetOrPartition(), metavar="[ID] [T-P]")
@role_options
@verb_options
@lab_verb
def sync(
    named: tuple[Target | TopicPartition, ...],
    output: str,
    directory: Path,
    bootstrap_server: str | None,
    **options: Any,
) -> None:
    """Flush logs, and print how far."""
    partitions = [one for one in named if isinstance(one, TopicPartition)]
    target = only_target([*(one for one in named if not isinstance(one, TopicPartition)), *taken_roles(options)])
    if len(partitions) > 1:
        raise click.UsageError("Name one partition, or none for all logs of the broker.")
    partition = partitions[0] if partitions else None

    async def do(switches: Switches) -> tuple[int, dict[TopicPartition, int]]:
        broker_id = await resolved(switches, target)
        return broker_id, await switches.sync_log(broker_id, partition)

    broker_id, flushed = with_switches(directory, bootstrap_server, do)
    if output == "json":
        logs = [{"partition": str(at), "recovery_point": offset} for at, offset in flushed.items()]
        print_json({"broker": broker_id, "logs": logs})
        return
    for at, offset in flushed.items():
        print_text(f"Broker {broker_id} has flushed {at} up to offset {offset}.")
