"""Verbs of the declared faults: ``isolate``, ``inject-error``, ``inject-disk``; their options are the parameters."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from tidegauge.cli import print_json, verb_options
from tidegauge.errors import ErrorCode
from tidegauge.faults.model import PLANES, FaultKind, Parameter
from tidegauge_lab.cli.common import BrokerIdType, lab_verb
from tidegauge_lab.cli.switching import with_switches
from tidegauge_lab.switches import Fault


class ErrorNameType(click.ParamType[str]):
    """The name of an error of Kafka's on the command line."""

    name = "NAME"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Read the name, or fail as a usage error that names the errors that may be meant."""
        known = [code.name for code in ErrorCode if code is not ErrorCode.NONE]
        name = str(value).upper().replace("-", "_")
        if name not in known:
            close = difflib.get_close_matches(name, known, n=3) or [one for one in known if name in one][:3]
            meant = f"; did you mean {' or '.join(close)}?" if close else ", such as NOT_ENOUGH_REPLICAS."
            self.fail(f"'{value}' is no name of an error in Kafka's protocol{meant}", param, ctx)
        return name


class PeersType(click.ParamType["str | list[int]"]):
    """``brokers``, ``zookeeper``, ``clients``, or ids with commas between them."""

    name = "peers"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str | list[int]:
        """Read the peers; a usage error if the text is none of these."""
        if value in PLANES:
            return str(value)
        try:
            ids = [int(text) for text in str(value).split(",")]
        except ValueError:
            ids = [-1]
        if min(ids) < 0:
            self.fail(f"{value!r} is none of {', '.join(PLANES)}, or ids as in 1,2", param, ctx)
        return ids


def fault_verb(kind: FaultKind) -> click.Command:
    """Return the verb that puts a declared fault in force at one broker."""

    @lab_verb
    def run(broker_id: int, output: str, directory: Path, bootstrap_server: str | None, **values: Any) -> None:
        wanted = kind.wanted({_parameter_name(option): value for option, value in values.items()})
        if problem := kind.problem(wanted.values, broker_id, _spelled):
            raise click.UsageError(f"{problem[0].upper()}{problem[1:]}.")
        fault = with_switches(directory, bootstrap_server, lambda switches: switches.set_fault(broker_id, wanted))
        show_fault(fault, output)

    command = verb_options(run)
    for parameter in reversed(kind.parameters):
        command = click.option(_spelled(parameter.name), _option_name(parameter.name), **_option(parameter))(command)
    command = click.argument("broker_id", type=BrokerIdType(), metavar="ID")(command)
    return click.command(kind.name.replace("_", "-"), help=f"{kind.meaning}.")(command)


def _spelled(name: str) -> str:
    return "--" + name.replace("_", "-")


def _option_name(name: str) -> str:
    """Return the keyword of an option, which must be no reserved word."""
    return f"fault_{name}"


def _parameter_name(option: str) -> str:
    return option.removeprefix("fault_")


def _option(parameter: Parameter) -> Mapping[str, Any]:
    if parameter.kind == "flag":
        return {"is_flag": True, "help": f"{parameter.meaning}."}
    is_shown = parameter.kind in {"integer", "choice"} and parameter.default not in (None, "")
    return {
        "type": _type(parameter),
        "required": parameter.is_required,
        "default": parameter.default if is_shown else None,
        "show_default": is_shown,
        "metavar": parameter.placeholder or None,
        "help": f"{parameter.meaning}.",
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
    return click.STRING


def show_fault(fault: Fault, output: str) -> None:
    """Print a fault that is in force now."""
    if output == "json":
        print_json(fault_as_json(fault))
    else:
        click.echo(f"Broker {fault.broker_id}: {fault.text} (fault {fault.fault_id}).")


def fault_as_json(fault: Fault) -> dict[str, Any]:
    """Return a fault that is in force, for the output as JSON."""
    return {
        "broker": fault.broker_id,
        "fault": fault.fault_id,
        "kind": fault.message.WhichOneof("kind"),
        "text": fault.text,
        "met": fault.met,
    }
