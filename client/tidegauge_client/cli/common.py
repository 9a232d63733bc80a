"""Helpers of the client's commands: bootstrap servers, and running a coroutine to its end."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import Coroutine
from datetime import datetime
from pathlib import Path
from typing import Any, TypeVar

import click
from click.shell_completion import CompletionItem

from tidegauge.cli import EXIT_INTERRUPTED, EXIT_OK, EXIT_TERMINATED, command_config, is_pipe
from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.moments import parse_moment
from tidegauge.partition import TopicPartition
from tidegauge_client.bootstrap import BootstrapServers, resolve_bootstrap
from tidegauge_client.languages import LANGUAGES, locale_language
from tidegauge_client.wires import WIRES

Result = TypeVar("Result")

TEXT = "text"
JSON = "json"
INT32_MAX = 2**31 - 1
INT64_MAX = 2**63 - 1
"""Largest numbers that Kafka's protocol can carry; a larger one is refused as a wrong use, before anything is sent."""
INDEX = click.IntRange(0, INT32_MAX)
"""Type of a partition's index, or of a broker's id."""
LONG = click.IntRange(0, INT64_MAX)
"""Type of an offset, of a producer's id, or of a duration in milliseconds."""
LIST_LIMIT_MS = 10_000
"""Limit of a list of what all coordinators have: a session of the profile ``fast`` ends in 4 s, then another elects."""
list_limit = click.option(
    "--timeout-ms",
    type=click.IntRange(1, INT32_MAX),
    metavar="N",
    default=LIST_LIMIT_MS,
    show_default=True,
    help="Limit of the wait for the parts that a silent broker coordinates, or a partition without a leader holds.",
)


language_option = click.option(
    "--language",
    type=click.Choice(LANGUAGES),
    default=lambda: locale_language(os.environ),
    help="Language of the text.  [default: the locale's]",
)


def servers(bootstrap_server: str | None, directory: Path) -> BootstrapServers:
    """Return the bootstrap servers for a command, with their security settings (``--command-config``).

    A malformed address is a usage error, an unknown cluster a failure.

    Raises:
        click.UsageError: ``-b`` or its variable is malformed.
        TidegaugeError: no cluster is known.
    """
    try:
        return resolve_bootstrap(bootstrap_server, directory, os.environ, command_config())
    except TidegaugeError as problem:
        if problem.code is ErrorCode.INVALID_REQUEST:
            raise click.UsageError(problem.message) from None
        raise


def run(coroutine: Coroutine[Any, Any, Result]) -> Result:
    """Run a command's work on an event loop of its own; Ctrl-C cancels it, so that it cleans up first."""
    return asyncio.run(coroutine)


wire_option = click.option(
    "--wire",
    type=click.Choice(WIRES),
    default="kafka",
    show_default=True,
    help="Over what records go: Kafka's protocol where the leader can be reached so, or gRPC.",
)
"""Of the verbs that write or read records."""


class Ending:
    """Lets SIGTERM cancel the running task, as Ctrl-C does, so that a command ends what it has begun.

    A second SIGTERM ends the process at once.

    Args:
        with_reader: end too, with 0, once the reader of stdout has closed it (``| head -1``). Without this a command
            that has nothing more to write would wait for ever.

    Attributes:
        exit_code: the exit code of a command that was cancelled.
    """

    def __init__(self, *, with_reader: bool = False) -> None:
        self.exit_code = EXIT_INTERRUPTED
        self._loop = asyncio.get_running_loop()
        self._task = asyncio.current_task()
        if with_reader and is_pipe(sys.stdout):
            # The writing end of a pipe is never readable; the loop reports it when the other end is closed.
            self._loop.add_reader(sys.stdout.fileno(), self._end_with_reader)
        with contextlib.suppress(NotImplementedError, RuntimeError, ValueError):  # not in the main thread
            self._loop.add_signal_handler(signal.SIGTERM, self._terminate)

    def _end_with_reader(self) -> None:
        self.exit_code = EXIT_OK
        self._loop.remove_reader(sys.stdout.fileno())
        if self._task is not None:
            self._task.cancel()

    def _terminate(self) -> None:
        self.exit_code = EXIT_TERMINATED
        self._loop.remove_signal_handler(signal.SIGTERM)
        if self._task is not None:
            self._task.cancel()


def usage(error: TidegaugeError) -> click.UsageError:
    """Turn an error that is found before anything is contacted into a usage error."""
    return click.UsageError(error.message)


class PartitionType(click.ParamType[TopicPartition]):
    """The type of ``TOPIC-PARTITION``."""

    name = "topic-partition"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> TopicPartition:
        """Read the value, or fail as a usage error."""
        if isinstance(value, TopicPartition):
            return value
        try:
            return TopicPartition.parse(value)
        except ValueError as problem:
            self.fail(str(problem), param, ctx)

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        """Return the partitions that begin so, for Tab in the shell."""
        from tidegauge_client.cli.completing import complete_partition  # noqa: PLC0415 - only Tab pays for it

        return [CompletionItem(name) for name in complete_partition(ctx, param, incomplete)]


class MomentType(click.ParamType[int]):
    """A moment on the command line."""

    name = "TIME"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Read it; a usage error if that fails."""
        if isinstance(value, int):
            return value
        try:
            return parse_moment(str(value), datetime.now().astimezone())
        except ValueError as problem:
            self.fail(str(problem), param, ctx)
