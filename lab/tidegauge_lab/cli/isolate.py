"""``tidegauge isolate``, ``heal`` and ``faults``: what of a broker's connections is cut, and what is in force.

``in`` are calls that arrive at the broker, ``out`` those it makes; answers belong to their calls (design, section 7).
A cut is in the broker's process: a restart of it heals it.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from tidegauge.cli import print_json, say, verb_options
from tidegauge.partition import TopicPartition
from tidegauge_lab.cli.common import BrokerIdType, lab_verb
from tidegauge_lab.cli.switching import each, with_switches
from tidegauge_lab.switches import BrokerSwitches, Direction, Fault, NetworkEffect, Plane, Switches


class EndsType(click.ParamType["Plane | tuple[int, ...]"]):
    """``brokers``, ``zookeeper``, ``clients``, or ids with commas between them."""

    name = "ends"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Plane | tuple[int, ...]:
        """Read it; a usage error if it is none of these."""
        if isinstance(value, (Plane, tuple)):
            return value
        if value in {plane.value for plane in Plane}:
            return Plane(value)
        try:
            ids = tuple(int(text) for text in str(value).split(","))
        except ValueError:
            ids = (-1,)
        if min(ids) < 0:
            self.fail(f"{value!r} is none of brokers, zookeeper, clients, or ids as in 1,2", param, ctx)
        return ids


@click.command()
@click.argument("broker_id", type=BrokerIdType(), metavar="ID")
@click.option(
    "--from",
    "ends",
    type=EndsType(),
    required=True,
    metavar="brokers|zookeeper|clients|ID,ID",
    help="The other end: all other brokers, some of them, ZooKeeper, or clients.",
)
@click.option(
    "--direction",
    type=click.Choice([direction.value for direction in Direction]),
    default=Direction.BOTH.value,
    show_default=True,
    help="in: calls that arrive at the broker; out: calls it makes.",
)
@click.option("--delay-ms", type=click.IntRange(min=1), metavar="N", help="Each message waits so long instead.")
@click.option(
    "--drop",
    type=click.FloatRange(min=0, max=1, min_open=True),
    metavar="P",
    help="Each call is lost with this probability instead.",
)
@click.option("--seed", type=int, default=0, show_default=True, help="Seed of these chances.")
@verb_options
@lab_verb
def isolate(
    broker_id: int,
    ends: Plane | tuple[int, ...],
    direction: str,
    delay_ms: int | None,
    drop: float | None,
    seed: int,
    output: str,
    directory: Path,
    bootstrap_server: str | None,
) -> None:
    """Cut a broker from brokers, ZooKeeper or clients, one way or both; `tidegauge heal` ends it."""
    if delay_ms is not None and drop is not None:
        raise click.UsageError("Calls are delayed or dropped, not both: give --delay-ms or --drop.")
    if ends is Plane.CLIENTS and direction == Direction.OUT.value:
        raise click.UsageError("A broker makes no calls to clients: theirs arrive, so --direction is in or both.")
    if isinstance(ends, tuple) and broker_id in ends:
        raise click.UsageError(f"Broker {broker_id} can't be cut from itself.")
    effect = NetworkEffect(delay_ms or 0, drop or 0.0, seed)
    fault = with_switches(
        directory,
        bootstrap_server,
        lambda switches: switches.isolate(broker_id, ends, Direction(direction), effect),
    )
    tell_fault(fault, output)


def tell_fault(fault: Fault, output: str) -> None:
    """One fault that is in force now."""
    if output == "json":
        print_json(fault_as_json(fault))
    else:
        click.echo(f"Broker {fault.broker_id}: {fault.text} (fault {fault.fault_id}).")


@click.command()
@click.argument("ids", nargs=-1, type=BrokerIdType(), metavar="[ID]...")
@verb_options
@lab_verb
def heal(ids: tuple[int, ...], output: str, directory: Path, bootstrap_server: str | None) -> None:
    """End cuts, delays and losses of connections: of these brokers, or of all that answer."""

    async def do(switches: Switches) -> list[Fault]:
        if ids:
            return [fault for broker_id in ids for fault in await switches.heal(broker_id)]
        return [fault for ended in (await each(switches, switches.heal)).values() for fault in ended]

    ended = with_switches(directory, bootstrap_server, do)
    _tell_ended(ended, [], output)


def _tell_ended(ended: Sequence[Fault], released: Sequence[tuple[int, TopicPartition]], output: str) -> None:
    if output == "json":
        print_json(
            {
                "ended": [fault_as_json(fault) for fault in ended],
                "released": [{"broker": broker_id, "partition": str(at)} for broker_id, at in released],
            }
        )
        return
    for fault in ended:
        click.echo(f"Broker {fault.broker_id}: {fault.text}: ended.")
    for broker_id, at in released:
        click.echo(f"Released {at} on broker {broker_id}.")
    if not ended and not released:
        say("Nothing was in force")


@click.command()
@click.option("--clear", is_flag=True, help="End all of them, and release all followers.")
@verb_options
@lab_verb
def faults(output: str, directory: Path, bootstrap_server: str | None, *, clear: bool) -> None:
    """List what is in force inside the brokers: cuts, errors, disks, held followers."""
    if clear:
        _clear(output, directory, bootstrap_server)
        return

    async def look(switches: Switches) -> tuple[list[int], dict[int, BrokerSwitches]]:
        return switches.broker_ids, await each(switches, switches.list_faults)

    asked, found = with_switches(directory, bootstrap_server, look)
    if output == "json":
        print_json({"brokers": [_switches_as_json(broker_id, found.get(broker_id)) for broker_id in asked]})
        return
    lines = [line for broker_id in asked for line in _lines(found.get(broker_id))]
    for line in lines:
        click.echo(line)
    for broker_id in asked:
        if broker_id not in found:
            say(f"Broker {broker_id} does not answer: it is down, paused or out of reach")
    if not lines:
        say("Nothing is in force")


def _lines(switches: BrokerSwitches | None) -> list[str]:
    if switches is None:
        return []
    name = f"Broker {switches.broker_id}"
    lines = [f"{name}: {fault.text} (fault {fault.fault_id}, met {fault.met})" for fault in switches.faults]
    for at, leader in switches.held.items():
        kept = f"; broker {leader} keeps an answer back" if leader is not None else ""
        lines.append(f"{name}: fetches of {at} are held{kept}")
    return lines


def _clear(output: str, directory: Path, bootstrap_server: str | None) -> None:
    async def do(switches: Switches) -> dict[int, tuple[list[Fault], list[TopicPartition]]]:
        return await each(switches, lambda broker_id: switches.clear(broker_id, holds=True))

    ended = with_switches(directory, bootstrap_server, do)
    _tell_ended(
        [fault for cleared, _ in ended.values() for fault in cleared],
        [(broker_id, at) for broker_id, (_, held) in ended.items() for at in held],
        output,
    )


def fault_as_json(fault: Fault) -> dict[str, Any]:
    """One fault."""
    return {
        "broker": fault.broker_id,
        "fault": fault.fault_id,
        "kind": fault.message.WhichOneof("kind"),
        "text": fault.text,
        "met": fault.met,
    }


def _switches_as_json(broker_id: int, switches: BrokerSwitches | None) -> dict[str, Any]:
    if switches is None:
        return {"broker": broker_id, "answers": False, "faults": [], "held": []}
    return {
        "broker": broker_id,
        "answers": True,
        "faults": [fault_as_json(fault) for fault in switches.faults],
        "held": [{"partition": str(at), "answer_kept_by": leader} for at, leader in switches.held.items()],
    }
