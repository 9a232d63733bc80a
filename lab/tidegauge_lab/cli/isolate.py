"""``tidegauge isolate``, ``heal`` and ``faults``: faults of a broker's connections, and all faults in force.

A fault is in the broker's process: a restart of the broker ends it.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from tidegauge.cli import print_json, print_line, print_text, say, verb_options
from tidegauge.faults.actions import CLEAR_FAULTS, HEAL
from tidegauge.faults.table import BY_MESSAGE, ISOLATE
from tidegauge.partition import TopicPartition
from tidegauge_client.quorum_file import node_name, node_words
from tidegauge_lab.cli.common import TargetType
from tidegauge_lab.cli.fault_targets import Target, resolved_all, role_options, taken_roles
from tidegauge_lab.cli.fault_verbs import fault_as_json, fault_verb
from tidegauge_lab.cli.switching import each, kafka_brokers_of, means_directory, with_switches
from tidegauge_lab.cli.verbs import lab_verb
from tidegauge_lab.local import noted_faults
from tidegauge_lab.switches import BrokerSwitches, Fault, RuleInForce, Switches

InForce = dict[int, tuple[BrokerSwitches, list[RuleInForce]]]
"""The faults in force, by broker."""

isolate = fault_verb(ISOLATE)


@click.command(HEAL.words, help=f"{HEAL.meaning}; without an ID, of all that respond.")
@click.argument("targets", nargs=-1, type=TargetType(), metavar="[ID]...")
@role_options
@verb_options
@lab_verb
def heal(
    targets: tuple[Target, ...], output: str, directory: Path, bootstrap_server: str | None, **options: Any
) -> None:
    """Heal these brokers, or all that respond."""
    named = [*targets, *taken_roles(options)]

    async def do(switches: Switches) -> list[Fault]:
        if named:
            ids = await resolved_all(switches, named)
            return [fault for broker_id in ids for fault in await switches.heal(broker_id)]
        return [fault for ended in (await each(switches, switches.heal)).values() for fault in ended]

    ended = with_switches(directory, bootstrap_server, do)
    _tell_ended(ended, [], output, nothing="No network partition, delay or loss was in force")


def _tell_ended(
    ended: Sequence[Fault],
    released: Sequence[tuple[int, TopicPartition]],
    output: str,
    rules: Sequence[tuple[int, RuleInForce]] = (),
    *,
    nothing: str = "Nothing was in force",
) -> None:
    if output == "json":
        print_json(
            {
                "rules": [{"broker": broker_id, **_rule_as_json(rule)} for broker_id, rule in rules],
                "ended": [fault_as_json(fault) for fault in ended],
                "released": [{"broker": broker_id, "partition": str(at)} for broker_id, at in released],
            }
        )
        return
    for fault in ended:
        print_text(f"{node_name(fault.broker_id)}: {fault.text}: ended.")
    for broker_id, at in released:
        print_text(f"Released {at} on {node_words(broker_id)}.")
    for broker_id, rule in rules:
        print_text(f"Broker {broker_id}: rule {rule.rule_id}: {rule.text}: ended.")
    if not ended and not released and not rules:
        say(nothing)


@click.command()
@click.option("--clear", is_flag=True, help=f"{CLEAR_FAULTS.meaning}; release its held followers too.")
@verb_options
@lab_verb
def faults(output: str, directory: Path, bootstrap_server: str | None, *, clear: bool) -> None:
    """List the faults in force inside the brokers: network partitions, errors, disks, held followers, rules."""
    if clear:
        _clear(output, directory, bootstrap_server)
        return

    async def look(switches: Switches) -> tuple[list[int], InForce, dict[int, str]]:
        found = await each(switches, lambda broker_id: _look(switches, broker_id))
        kafkas = {} if len(found) == len(switches.broker_ids) else await kafka_brokers_of(switches)
        return switches.broker_ids, found, kafkas

    asked, found, kafkas = with_switches(directory, bootstrap_server, look)
    if output == "json":
        print_json({"brokers": [_switches_as_json(broker_id, found.get(broker_id)) for broker_id in asked]})
        return
    lines = [line for broker_id in asked if broker_id in found for line in _lines(*found[broker_id])]
    for line in lines:
        print_line(line)
    for broker_id in asked:
        if broker_id in kafkas:
            say(f"Broker {broker_id} at {kafkas[broker_id]} is an Apache Kafka broker: the lab is not inside it")
        elif broker_id not in found:
            say(f"{node_name(broker_id)} does not respond: it is down, paused or out of reach")
    if not lines:
        say("Nothing is in force")


async def _look(switches: Switches, broker_id: int) -> tuple[BrokerSwitches, list[RuleInForce]]:
    return await switches.list_faults(broker_id), await switches.list_rules(broker_id)


def _lines(switches: BrokerSwitches, rules: Sequence[RuleInForce]) -> list[str]:
    name = node_name(switches.broker_id)
    lines = [f"{name}: {fault.text} (fault {fault.fault_id}{_met(fault)}{_held(fault)})" for fault in switches.faults]
    for at, leader in switches.held.items():
        kept = f"; broker {leader} withholds a response" if leader is not None else ""
        lines.append(f"{name}: fetches of {at} are held{kept}")
    lines += [f"{name}: rule {rule.rule_id}: {rule.text} (hits {rule.hits}, holds {rule.held} here)" for rule in rules]
    return lines


def _rule_as_json(rule: RuleInForce) -> dict[str, Any]:
    return {"id": rule.rule_id, "rule": json.loads(rule.text or "{}"), "hits": rule.hits, "held": rule.held}


def _met(fault: Fault) -> str:
    kind = BY_MESSAGE.get(fault.message.WhichOneof("kind") or "")
    return f", met {fault.met}" if kind is None or kind.counts else ""


def _held(fault: Fault) -> str:
    return f", holds {fault.held}" if fault.message.WhichOneof("kind") == "hold" else ""


def _clear(output: str, directory: Path, bootstrap_server: str | None) -> None:
    async def clear(switches: Switches, broker_id: int) -> tuple[list[Fault], list[TopicPartition], list[RuleInForce]]:
        rules = await switches.list_rules(broker_id)
        await switches.set_rules(broker_id, [])
        return *await switches.clear(broker_id, holds=True), rules

    async def do(switches: Switches) -> dict[int, tuple[list[Fault], list[TopicPartition], list[RuleInForce]]]:
        return await each(switches, lambda broker_id: clear(switches, broker_id))

    ended = with_switches(directory, bootstrap_server, do)
    if means_directory(bootstrap_server):
        noted_faults.forget(directory)
    _tell_ended(
        [fault for cleared, _, _ in ended.values() for fault in cleared],
        [(broker_id, at) for broker_id, (_, held, _) in ended.items() for at in held],
        output,
        [(broker_id, rule) for broker_id, (_, _, rules) in ended.items() for rule in rules],
    )


def _switches_as_json(broker_id: int, found: tuple[BrokerSwitches, list[RuleInForce]] | None) -> dict[str, Any]:
    if found is None:
        return {"broker": broker_id, "responds": False, "faults": [], "held": [], "rules": []}
    switches, rules = found
    return {
        "broker": broker_id,
        "responds": True,
        "faults": [fault_as_json(fault) for fault in switches.faults],
        "held": [{"partition": str(at), "response_withheld_by": leader} for at, leader in switches.held.items()],
        "rules": [_rule_as_json(rule) for rule in rules],
    }
