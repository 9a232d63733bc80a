"""Parameter types of verbs that name brokers, roles, a mode, labs or scenarios."""

from __future__ import annotations

from typing import Any

import click
from click.shell_completion import CompletionItem

from tidegauge.faults.actions import ZOOKEEPER
from tidegauge_client.cli.common import INT32_MAX
from tidegauge_client.cluster_file import KRAFT_MODE
from tidegauge_lab.local.roles import COORDINATED_FORMS, ROLE_WORDS, Coordinated, Role, read_coordinated, read_role
from tidegauge_lab.local.wanted import mode_by_variable


class BrokerIdType(click.ParamType[int]):
    """A broker's id on the command line."""

    name = "ID"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Read it, or fail as a usage error."""
        text = str(value)
        is_id = text.isascii() and text.isdigit() and len(text) <= len(str(INT32_MAX)) and int(text) <= INT32_MAX
        if not is_id:
            self.fail(f"'{text}' is no broker ID: IDs are 0, 1, 2, ...; `tidegauge status` lists them", param, ctx)
        return int(text)


class TargetType(click.ParamType["int | str | Role"]):
    """A broker on the command line: by id, or by the word of a role, as steps and paths have it."""

    name = "ID"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int | str | Role:
        """Read it, or fail as a usage error; ``zookeeper`` is a target where the verb takes it."""
        if isinstance(value, Role):
            return value
        text = str(value)
        if text == ZOOKEEPER and any(one.name == ZOOKEEPER for one in ([] if ctx is None else ctx.command.params)):
            return ZOOKEEPER
        try:
            role = read_role(text)
        except ValueError as problem:
            self.fail(str(problem), param, ctx)
        if role is None and not text.isdigit():
            self.fail(f"'{text}' names no broker: an ID, {ROLE_WORDS} is expected", param, ctx)
        return BrokerIdType().convert(value, param, ctx) if role is None else role


kraft_option = click.option(
    "--kraft", is_flag=True, help="On a cluster in KRaft mode, with controllers instead of ZooKeeper; needs no Java."
)


def is_kraft(*, asked: bool) -> bool:
    """Return whether ``--kraft`` or TIDEGAUGE_MODE ask for KRaft mode.

    Raises:
        TidegaugeError: INVALID_REQUEST, the variable names no mode.
    """
    return asked or mode_by_variable() == KRAFT_MODE


class CoordinatedType(click.ParamType[Coordinated]):
    """``group:G``, ``transaction:ID``, ``share:G`` or ``share:G/T-P`` on the command line."""

    name = COORDINATED_FORMS

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Coordinated:
        """Read the value, or fail as a usage error."""
        if isinstance(value, Coordinated):
            return value
        try:
            return read_coordinated(str(value))
        except ValueError as problem:
            self.fail(str(problem), param, ctx)


def complete_lab(_: click.Context, __: click.Parameter, begin: str) -> list[str]:
    """Return the names of labs that begin so, for Tab in the shell."""
    from tidegauge_lab.labs.catalogue import LABS  # noqa: PLC0415 - only Tab pays for it

    return [one.name for one in LABS if one.name.startswith(begin)]


def complete_scenario(_: click.Context, __: click.Parameter, begin: str) -> list[CompletionItem]:
    """Return scenario names, or else files, with this prefix, for completion."""
    from tidegauge_lab.scenario.loader import shipped_names  # noqa: PLC0415 - only Tab pays for it

    found = [CompletionItem(name) for name in shipped_names() if name.startswith(begin)]
    return found or [CompletionItem(begin, type="file")]
