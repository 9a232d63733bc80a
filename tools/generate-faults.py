#!/usr/bin/env python3
"""Writes what derives from the declared faults and actions: methods, tables in docs/; --check only compares."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from collections.abc import Callable

from generated_files import ROOT, write_or_compare

from tidegauge.faults.actions import ACTIONS
from tidegauge.faults.model import FaultKind, Parameter
from tidegauge.faults.table import FAULTS
from tidegauge.page_sections import with_section
from tidegauge_lab.scenario.steps import STEPS

WIDTH = 120
TYPES = {
    "integer": "int",
    "number": "float",
    "text": "str",
    "time": "str",
    "flag": "bool",
    "choice": "str",
    "error": "ErrorCode | str",
    "peers": "Plane | str | Sequence[int]",
}
HEAD = '''\
"""The declared faults as methods.

Made by tools/generate-faults.py from proto/tidegauge/faults/table.py; change it there.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

from tidegauge.errors import ErrorCode
from tidegauge.faults.model import Direction, Plane, WantedFault
from tidegauge.faults.table import kind_of
from tidegauge_lab.switches.model import Fault


class FaultCalls(ABC):
    """Every declared fault, for those who can put one in force at a broker."""

    @abstractmethod
    async def set_fault(self, broker: int | str, wanted: WantedFault) -> Fault:
        """Put a fault in force at a broker, by its id or, where roles are known, the word of a role."""
'''


def methods() -> str:
    """Return the module of the methods."""
    text = HEAD + "".join(map(_method, FAULTS.values()))
    ruff = [sys.executable, "-m", "ruff", "format", "--stdin-filename", "fault_calls.py", "-"]
    return subprocess.run(ruff, input=text, text=True, capture_output=True, check=True, cwd=ROOT).stdout


def _method(kind: FaultKind) -> str:
    positional = [one for one in kind.parameters if one.is_positional]
    keywords = [one for one in kind.parameters if not one.is_positional]
    arguments = ", ".join(["self", "broker: int | str", *map(_argument, positional), "*", *map(_argument, keywords)])
    values = ", ".join(f'"{one.name}": {one.keyword}' for one in kind.parameters)
    about = "".join(_about(one) for one in kind.parameters)
    return f'''
    async def {kind.name}({arguments},) -> Fault:
        """{kind.meaning}.

        Args:
            broker: Its id, or the word of a role.
{about}
        Returns:
            The fault as it is in force.

        Raises:
            TidegaugeError: INVALID_REQUEST, there is no such fault; BROKER_NOT_AVAILABLE.
        """
        values = {{{values}}}
        return await self.set_fault(broker, kind_of("{kind.name}").wanted(values))
'''


def _type(parameter: Parameter) -> str:
    return "Direction | str" if parameter.name == "direction" else TYPES[parameter.kind]


def _argument(parameter: Parameter) -> str:
    if parameter.is_required:
        return f"{parameter.keyword}: {_type(parameter)}"
    optional = " | None" if parameter.default is None else ""
    return f"{parameter.keyword}: {_type(parameter)}{optional} = {parameter.default!r}"


def _about(parameter: Parameter) -> str:
    unit = ", in milliseconds" if parameter.unit == "ms" else ""
    text = f"{parameter.keyword}: {parameter.meaning.removesuffix(', ...')}{unit}."
    return textwrap.fill(text, WIDTH, initial_indent=" " * 12, subsequent_indent=" " * 16) + "\n"


def faults_table() -> str:
    """Return the table of docs/faults.md."""
    lines = ["| fault | acts on | parameter | values | default | meaning |", "|---|---|---|---|---|---|"]
    for kind in FAULTS.values():
        name, acts_on = f"`{kind.name}`", ", ".join(kind.acts_on)
        for one in kind.parameters:
            default = "required" if one.is_required else one.shown_default
            meaning = one.meaning.replace("|", "\\|")
            lines.append(f"| {name} | {acts_on} | `{one.name}` | {_values(one)} | {default} | {meaning} |")
            name = acts_on = ""
    return "\n".join(lines)


def actions_table() -> str:
    """Return the table of actions in docs/faults.md."""
    lines = [
        "| action | command line | scenario step | on the page | parameters | meaning |",
        "|---|---|---|---|---|---|",
    ]
    for kind in ACTIONS.values():
        parameters = "; ".join(f"`{one.name}`: {_values(one)}" for one in kind.parameters)
        step = f"`{kind.verb}`" + (" with `release: true`" if kind.name != kind.verb and kind.room == "fetch" else "")
        lines.append(f"| `{kind.name}` | `{kind.words}` | {step} | {kind.button} | {parameters} | {kind.meaning} |")
    return "\n".join(lines)


def _values(parameter: Parameter) -> str:
    unit = f" {parameter.unit}" if parameter.unit else ""
    match parameter.kind:
        case "integer":
            most = f" to {parameter.maximum}{unit}" if parameter.unit else " or more"
            return f"{parameter.minimum}{most}"
        case "number":
            return f"more than {parameter.minimum}, at most {parameter.maximum}"
        case "choice":
            return ", ".join(f"`{one}`" for one in parameter.choices)
        case "peers":
            return "`brokers`, `zookeeper`, `clients`, or broker ids"
        case "error":
            return "an error of Kafka's protocol"
        case "flag":
            return "true or false"
        case "partition":
            return "`TOPIC-PARTITION`"
        case "partitions":
            return "a list of `TOPIC-PARTITION`"
        case "time":
            return "a time as in RFC 3339"
    return "text"


def steps_table() -> str:
    """Return the table of docs/scenarios.md."""
    lines = ["| step | what it does | arguments |", "|---|---|---|"]
    for verb, step in STEPS.items():
        arguments = [
            f"`{name}`{'*' if one.is_required else ''}" + ("" if name == "partition" else f": {one.about}")
            for name, one in sorted(step.arguments().items(), key=lambda found: found[0] == "partition")
        ]
        lines.append(f"| `{verb}` | {step.about} | {'; '.join(arguments)} |")
    return "\n".join(lines)


def _within(name: str, **tables: Callable[[], str]) -> Callable[[], str]:
    """Return what makes a page's text with each table between its two marks."""

    def make() -> str:
        text = (ROOT / name).read_text(encoding="utf-8")
        for table, made in tables.items():
            begin, end = f"<!-- {table}: made by tools/generate-faults.py -->", f"<!-- {table}: end -->"
            text = with_section(text, begin, end, made())
        return text

    return make


FILES: dict[str, Callable[[], str]] = {
    "lab/tidegauge_lab/switches/fault_calls.py": methods,
    "docs/faults.md": _within("docs/faults.md", actions=actions_table, faults=faults_table),
    "docs/scenarios.md": _within("docs/scenarios.md", steps=steps_table),
}


if __name__ == "__main__":
    raise SystemExit(write_or_compare(sys.argv[1:], FILES, "the faults are declared", "make faults"))
