"""Options of the command line from declared parameters of faults and actions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, assert_never

import click

from tidegauge.errors import ErrorCode
from tidegauge.faults.model import PLANES, Declaration, Parameter
from tidegauge.near_names import did_you_mean
from tidegauge_client.cli.common import INT32_MAX, PartitionType


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


def declared_options(kind: Declaration) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Return a decorator that adds declared parameters as options; ``taken_values`` reads them."""

    def add(command: Callable[..., Any]) -> Callable[..., Any]:
        for parameter in reversed(kind.parameters):
            command = declared_option(parameter, _option_name(parameter.name))(command)
        return command

    return add


def declared_option(parameter: Parameter, keyword: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Return a decorator that adds a declared parameter's option under this keyword."""
    return click.option(spelled(parameter.name), keyword, **_option(parameter))


def taken_values(kind: Declaration, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of the declared parameters, by name, from a verb's options."""
    return {one.name: options[_option_name(one.name)] for one in kind.parameters}


def spelled(name: str) -> str:
    """Return the option of a declared parameter's name."""
    return "--" + name.replace("_", "-")


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
