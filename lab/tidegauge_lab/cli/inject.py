"""``tidegauge inject-error``, ``inject-disk``, ``expire-session``, ``sync``: faults inside one broker.

Counts are the same everywhere: the first call (operation) is met, or the Nth with ``--nth``, once or ``--times`` in a
row (0: without end), each with ``--probability``. `tidegauge faults` lists what is in force, ``--clear`` ends it.
"""

from __future__ import annotations

import difflib
from pathlib import Path
from typing import Any

import click

from tidegauge.cli import print_json, verb_options
from tidegauge.errors import ErrorCode
from tidegauge.partition import TopicPartition
from tidegauge_lab.cli.common import BrokerIdType, lab_verb
from tidegauge_lab.cli.faults import PartitionType
from tidegauge_lab.cli.isolate import tell_fault
from tidegauge_lab.cli.switching import with_switches
from tidegauge_lab.switches import DiskEffect, InjectedError


class ErrorNameType(click.ParamType[ErrorCode]):
    """The name of an error of Kafka's on the command line."""

    name = "NAME"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> ErrorCode:
        """Read it, or fail as a usage error that names the errors that may be meant."""
        known = [code.name for code in ErrorCode if code is not ErrorCode.NONE]
        name = str(value).upper().replace("-", "_")
        if name not in known:
            close = difflib.get_close_matches(name, known, n=3) or [one for one in known if name in one][:3]
            meant = f"; did you mean {' or '.join(close)}?" if close else ", such as NOT_ENOUGH_REPLICAS."
            self.fail(f"'{value}' is no name of an error in Kafka's protocol{meant}", param, ctx)
        return ErrorCode[name]


_NTH = click.option("--nth", type=click.IntRange(min=1), default=1, show_default=True, help="Begin with the Nth.")


@click.command("inject-error")
@click.argument("broker_id", type=BrokerIdType(), metavar="ID")
@click.option("--rpc", required=True, metavar="NAME", help="Produce, Fetch, ReplicaFetch, LeaderAndIsr, ...")
@click.option(
    "--error",
    type=ErrorNameType(),
    help="Kafka's error in the response: NOT_ENOUGH_REPLICAS, ...",
)
@click.option("--grpc-status", default="", metavar="NAME", help="Or the call ends with this status: UNAVAILABLE, ...")
@click.option("--after-effect", is_flag=True, help="The call takes effect; only its response is replaced.")
@_NTH
@click.option("--times", type=click.IntRange(min=0), default=1, show_default=True, help="So many; 0: without end.")
@click.option("--probability", type=click.FloatRange(min=0, max=1, min_open=True), default=1.0, metavar="P")
@click.option("--seed", type=int, default=0, show_default=True, help="Seed of these chances.")
@verb_options
@lab_verb
def inject_error(
    broker_id: int,
    rpc: str,
    error: ErrorCode | None,
    grpc_status: str,
    nth: int,
    times: int,
    probability: float,
    seed: int,
    output: str,
    directory: Path,
    bootstrap_server: str | None,
    *,
    after_effect: bool,
) -> None:
    """Make calls of an RPC fail at a broker."""
    if (error is None) == (not grpc_status):
        raise click.UsageError("Say with what the calls fail: --error or --grpc-status, one of both.")
    injected = InjectedError(
        rpc,
        ErrorCode.NONE if error is None else error,
        grpc_status.upper(),
        after_effect,
        nth - 1,
        times,
        probability,
        seed,
    )
    fault = with_switches(directory, bootstrap_server, lambda switches: switches.inject_error(broker_id, injected))
    tell_fault(fault, output)


@click.command("inject-disk")
@click.argument("broker_id", type=BrokerIdType(), metavar="ID")
@click.option("--delay-ms", type=click.IntRange(min=1), metavar="N", help="Each operation takes so much longer.")
@click.option("--errno", "errno_name", default="", metavar="NAME", help="Or fails so: EIO, ENOSPC, ...")
@click.option(
    "--operation",
    type=click.Choice(["append", "sync", "truncate", "replace", "rename", "remove"]),
    default=None,
    help="Only these operations.",
)
@click.option("--path", "path_contains", default="", metavar="TEXT", help="Only files with this text in their path.")
@_NTH
@click.option("--times", type=click.IntRange(min=0), default=0, show_default=True, help="So many; 0: without end.")
@verb_options
@lab_verb
def inject_disk(
    broker_id: int,
    delay_ms: int | None,
    errno_name: str,
    operation: str | None,
    path_contains: str,
    nth: int,
    times: int,
    output: str,
    directory: Path,
    bootstrap_server: str | None,
) -> None:
    """Make a broker's disk slow, or fail."""
    if (delay_ms is None) == (not errno_name):
        raise click.UsageError("Say what the disk does: --delay-ms or --errno, one of both.")
    effect = DiskEffect(delay_ms or 0, errno_name.upper(), operation or "", path_contains, nth - 1, times)
    fault = with_switches(directory, bootstrap_server, lambda switches: switches.set_disk(broker_id, effect))
    tell_fault(fault, output)


@click.command("expire-session")
@click.argument("broker_id", type=BrokerIdType(), metavar="ID")
@verb_options
@lab_verb
def expire_session(broker_id: int, output: str, directory: Path, bootstrap_server: str | None) -> None:
    """End a broker's ZooKeeper session on the server, at once."""
    session_id = with_switches(directory, bootstrap_server, lambda switches: switches.expire_session(broker_id))
    if output == "json":
        print_json({"broker": broker_id, "session": f"0x{session_id:x}"})
    else:
        click.echo(f"Ended the ZooKeeper session 0x{session_id:x} of broker {broker_id}.")


@click.command()
@click.argument("broker_id", type=BrokerIdType(), metavar="ID")
@click.argument("partition", type=PartitionType(), required=False, metavar="[T-P]")
@verb_options
@lab_verb
def sync(
    broker_id: int, partition: TopicPartition | None, output: str, directory: Path, bootstrap_server: str | None
) -> None:
    """Flush a replica's log to the disk, or all of a broker: a power cut can't take it any more."""
    flushed = with_switches(directory, bootstrap_server, lambda switches: switches.sync_log(broker_id, partition))
    if output == "json":
        logs = [{"partition": str(at), "recovery_point": offset} for at, offset in flushed.items()]
        print_json({"broker": broker_id, "logs": logs})
        return
    for at, offset in flushed.items():
        click.echo(f"Broker {broker_id} has flushed {at} up to offset {offset}.")
