"""Options from declared parameters, and the verbs of the declared faults: ``isolate``, ``inject-error``, ..."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, assert_never

import click

from tidegauge.cli import print_json, print_text, verb_options
from tidegauge.errors import ErrorCode
from tidegauge.faults.model import PLANES, Declaration, FaultKind, Parameter
from tidegauge.near_names import did_you_mean
from tidegauge_client.cli.common import INT32_MAX, PartitionType
from tidegauge_client.quorum_file import node_name
from tidegauge_lab.cli.fault_targets import resolved, taken_target, target_options
from tidegauge_lab.cli.switching import with_switches
from tidegauge_lab.cli.verbs import lab_verb
from tidegauge_lab.switches import Fault, Switches


class ErrorNameType(click.ParamType[str]):
    """The name of an error of Kafka's on the command line."""

    name = "NAME"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Read the name, or fail as a usage error that names the errors that may be meant."""
        known = [code.name for code in ErrorCode if code is not ErrorCode.NONE]
        name = str(value).upper().replace("-", "_")
        if name not in known:
            meant = did_you_mean(name, known, ", such as NOT_ENOUGH_REPLICAS.", most=3)
            self.fail(f"'{value}' is no name of an error in Kafka's protocol{meant}", param, ctx)
        return name


class PeersType(click.ParamType["str | list[int]"]):
    """``brokers``, ``zookeeper``, ``clients``, ``controllers``, or ids with commas between them."""

    name = "peers"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str | list[int]:
        """Read the peers; a usage error if the text is none of these."""
        if value in PLANES:
            return str(value)
        try:
            ids = [int(text) for text in str(value).split(",")]
        except ValueError:
            ids = [-1]
        if min(ids) < 0 or max(ids) > INT32_MAX:
            self.fail(f"{value!r} is none of {', '.join(PLANES)}, or ids as in 1,2", param, ctx)
        return ids


def fault_verb(kind: FaultKind) -> click.Command:
    """Return the verb that puts a declared fault in force at one broker."""

    @lab_verb
    def run(output: str, directory: Path, bootstrap_server: str | None, **options: Any) -> None:
        target = taken_target(options)
        wanted = kind.wanted(taken_values(kind, options))
        # A broker that is not known yet is asked by the broker itself whether it is isolated from itself.
        if problem := kind.problem(wanted.values, target if isinstance(target, int) else -1, _spelled):
            raise click.UsageError(_sentence(problem, kind.name))

        async def do(switches: Switches) -> Fault:
            return await switches.set_fault(await resolved(switches, target), wanted)

        show_fault(with_switches(directory, bootstrap_server, do), output)

    command = target_options(declared_options(kind)(verb_options(run)))
    return click.command(kind.command, help=f"{kind.meaning}.")(command)


def declared_options(kind: Declaration) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Return a decorator that adds declared parameters as options; ``taken_values`` reads them."""

    def add(command: Callable[..., Any]) -> Callable[..., Any]:
        for parameter in reversed(kind.parameters):
            command = declared_option(parameter, _option_name(parameter.name))(command)
        return command

    return add


def declared_option(parameter: Parameter, keyword: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Return a decorator that adds a declared parameter's option under this keyword."""
    return click.option(_spelled(parameter.name), keyword, **_option(parameter))


def taken_values(kind: Declaration, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of the declared parameters, by name, from a verb's options."""
    return {one.name: options[_option_name(one.name)] for one in kind.parameters}


def _spelled(name: str) -> str:
    return "--" + name.replace("_", "-")


def _sentence(problem: str, name: str) -> str:
    """Return a declared fault's problem, worded with the verb instead of its name."""
    if problem.startswith(f"{name} "):
        return f"{name.replace('_', '-')}{problem.removeprefix(name)}."
    return f"{problem[0].upper()}{problem[1:]}."


def _option_name(name: str) -> str:
    """Return the keyword of an option, which must be no reserved word."""
    return f"fault_{name}"


def _option(parameter: Parameter) -> Mapping[str, Any]:
    if parameter.kind == "flag":
        return {"is_flag": True, "help": f"{parameter.meaning}."}
    several = parameter.kind == "partitions"
    is_shown = parameter.kind in {"integer", "choice"} and parameter.default not in (None, "")
    return {
        "type": _type(parameter),
        "required": parameter.is_required,
        "multiple": several,
        "default": parameter.default if is_shown else None,
        "show_default": is_shown,
        "metavar": parameter.placeholder or None,
        "help": f"{parameter.meaning}{'; may be repeated' if several else ''}.",
    }


def _type(parameter: Parameter) -> click.ParamType[Any]:
    match parameter.kind:
        case "integer":
            return click.IntRange(min=parameter.minimum, max=parameter.maximum)
        case "number":
            return click.FloatRange(min=parameter.minimum, max=parameter.maximum, min_open=True)
        case "choice":
            return click.Choice(parameter.choices)
        case "error":
            return ErrorNameType()
        case "peers":
            return PeersType()
        case "partition" | "partitions":
            return PartitionType()
        case "text" | "time" | "flag":  # a flag is an option without a value
            return click.STRING
        case _:
            assert_never(parameter.kind)


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
