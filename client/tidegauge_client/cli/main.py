"""``tidegauge``: the root command. Verbs come from the entry-point group ``tidegauge.verbs``, loaded when called.

Rules:
    1. Calling a verb imports that verb's module and no other: a client verb must not pay for Spark or a web page.
    2. Usage errors end with 2 before anything is contacted; with ``-o json`` they too are JSON on stderr.
    3. No traceback reaches a user; TIDEGAUGE_DEBUG=1 shows it.
"""

from __future__ import annotations

import json
import os
import sys
import traceback
from collections.abc import Sequence
from functools import cached_property
from importlib.metadata import EntryPoint, entry_points, version

import click

from tidegauge.cli import EXIT_FAILED, EXIT_INTERRUPTED, EXIT_OK, EXIT_USAGE, say
from tidegauge.errors import TidegaugeError

GROUP = "tidegauge.verbs"
DEBUG_VARIABLE = "TIDEGAUGE_DEBUG"


class Verbs(click.Group):
    """A group whose commands are entry points."""

    @cached_property
    def _entry_points(self) -> dict[str, EntryPoint]:
        return {entry.name: entry for entry in entry_points(group=GROUP)}

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        """All verbs, by name."""
        return sorted(self._entry_points)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002 - click's
        """Import a verb."""
        entry = self._entry_points.get(cmd_name)
        if entry is None:
            return None
        command = entry.load()
        if not isinstance(command, click.Command):
            raise TypeError(f"{entry.value} is no command")
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The list in ``--help``; a verb whose extra is not installed is shown as such, and stops nothing."""
        rows = []
        for name in self.list_commands(ctx):
            try:
                command = self.get_command(ctx, name)
            except (ImportError, AttributeError, TypeError) as problem:
                rows.append((name, f"(not available: {problem})"))
                continue
            if command is not None and not command.hidden:
                rows.append((name, command.get_short_help_str(limit=200)))
        with formatter.section("Verbs"):
            formatter.write_dl(rows)


@click.group(
    cls=Verbs, context_settings={"help_option_names": ["-h", "--help"]}, subcommand_metavar="VERB [OPTIONS]..."
)
@click.version_option(version("tidegauge"), "--version", message="tidegauge %(version)s")
def root() -> None:
    """A Kafka-style broker cluster of real processes, to start, break and understand."""


def wants_json(arguments: Sequence[str]) -> bool:
    """Whether ``-o json`` stands among arguments that click could not read."""
    for position, argument in enumerate(arguments):
        if argument in {"--output=json", "-ojson", "-o=json"}:
            return True
        if argument in {"-o", "--output"} and list(arguments[position + 1 : position + 2]) == ["json"]:
            return True
    return False


def run(arguments: Sequence[str]) -> int:
    """Run the command line; the exit code."""
    try:
        result = root.main(args=list(arguments), prog_name="tidegauge", standalone_mode=False)
    except click.ClickException as problem:
        if wants_json(arguments):
            error = {"code": None, "name": "USAGE", "message": problem.format_message()}
            say(json.dumps({"error": error}, separators=(",", ":"), ensure_ascii=False))
        else:
            problem.show()
        return EXIT_USAGE if isinstance(problem, click.UsageError) else EXIT_FAILED
    except (click.Abort, KeyboardInterrupt):
        return EXIT_INTERRUPTED
    except TidegaugeError as problem:
        say(str(problem))
        return EXIT_FAILED
    except Exception as problem:  # noqa: BLE001 - the last line of defence: a user sees a sentence, no traceback
        if os.environ.get(DEBUG_VARIABLE):
            traceback.print_exc()
        say(
            f"{type(problem).__name__}: {problem}. This is a fault in Tidegauge; {DEBUG_VARIABLE}=1 shows where it "
            "comes from."
        )
        return EXIT_FAILED
    return result if isinstance(result, int) else EXIT_OK


def main() -> None:
    """The entry point ``tidegauge``."""
    if not __debug__:
        say("tidegauge does not run under python -O: its invariants are assertions.")
        sys.exit(EXIT_FAILED)
    if sys.argv[1:2] != ["broker"]:
        # What gRPC's library writes of a failed connection is told in our own sentence; a broker reads those lines.
        os.environ.setdefault("GRPC_VERBOSITY", "ERROR")
    sys.exit(run(sys.argv[1:]))
