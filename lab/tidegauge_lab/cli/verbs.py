"""Common parts of the lab's verbs that load nothing of it: address options, and errors as sentences."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import click

from tidegauge.channel_options import OF_THE_LAB
from tidegauge.cli import EXIT_TIME_LIMIT, fail, reports_errors
from tidegauge.errors import TidegaugeError
from tidegauge_lab.local.waiting import TimeLimitError
from tidegauge_lab.local.zookeeper_address import split_address


class AddressType(click.ParamType[str]):
    """An address on the command line, as text.

    Args:
        read: reads it, and raises TidegaugeError or ValueError if it is none.
    """

    name = "HOST:PORT"

    def __init__(self, read: Callable[[str], object]) -> None:
        self._read = read

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the text, or fail as a usage error before anything starts."""
        try:
            self._read(str(value))
        except TidegaugeError as problem:
            self.fail(problem.message, param, ctx)
        except ValueError as problem:
            self.fail(str(problem), param, ctx)
        return str(value)


ZOOKEEPER_ADDRESS = AddressType(split_address)
"""Addresses of ZooKeeper servers, as each verb's ``--zookeeper`` takes them."""


def lab_verb(command: Callable[..., Any]) -> Callable[..., Any]:
    """Decorate a verb so that its errors become one sentence, its own time limit exit code 124, its calls the lab's."""

    @functools.wraps(command)
    def limited(*arguments: Any, **options: Any) -> Any:
        of_the_lab = OF_THE_LAB.set(True)
        try:
            return command(*arguments, **options)
        except TimeLimitError as error:
            fail(error.message, str(options.get("output", "text")), code=error.code, exit_code=EXIT_TIME_LIMIT)
        finally:
            OF_THE_LAB.reset(of_the_lab)

    return reports_errors(limited)
