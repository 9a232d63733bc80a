"""The verbs of the declared faults: ``isolate``, ``inject-error``, ..."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from tidegauge.cli import print_json, print_text, verb_options
from tidegauge.faults.model import FaultKind
from tidegauge_client.quorum_file import node_name
from tidegauge_lab.cli.declared_options import declared_options, spelled, taken_values
from tidegauge_lab.cli.fault_targets import resolved, taken_target, target_options
from tidegauge_lab.cli.switching import with_switches
from tidegauge_lab.cli.verbs import lab_verb
from tidegauge_lab.switches import Fault, Switches


def fault_verb(kind: FaultKind) -> click.Command:
    """Return the verb that puts a declared fault in force at one broker."""

    @lab_verb
    def run(output: str, directory: Path, bootstrap_server: str | None, **options: Any) -> None:
        target = taken_target(options)
        wanted = kind.wanted(taken_values(kind, options))
        # A broker that is not known yet is asked by the broker itself whether it is isolated from itself.
        if problem := kind.problem(wanted.values, target if isinstance(target, int) else -1, spelled):
            raise click.UsageError(_sentence(problem, kind.name))

        async def do(switches: Switches) -> Fault:
            return await switches.set_fault(await resolved(switches, target), wanted)

        show_fault(with_switches(directory, bootstrap_server, do), output)

    command = target_options(declared_options(kind)(verb_options(run)))
    return click.command(kind.command, help=f"{kind.meaning}.")(command)


def _sentence(problem: str, name: str) -> str:
    """Return a declared fault's problem, worded with the verb instead of its name."""
    if problem.startswith(f"{name} "):
        return f"{name.replace('_', '-')}{problem.removeprefix(name)}."
    return f"{problem[0].upper()}{problem[1:]}."


def show_fault(fault: Fault, output: str) -> None:
    """Print a fault that is in force now."""
    if output == "json":
        print_json(fault_as_json(fault))
    else:
        print_text(f"{node_name(fault.broker_id)}: {fault.text} (fault {fault.fault_id}).")


def fault_as_json(fault: Fault) -> dict[str, Any]:
    """Return a fault that is in force, for the output as JSON."""
    return {
        "broker": fault.broker_id,
        "fault": fault.fault_id,
        "kind": fault.message.WhichOneof("kind"),
        "text": fault.text,
        "met": fault.met,
        "held": fault.held,
    }
