"""``tidegauge``: the root command. Verbs come from ``verb_table``, loaded when called.

Rules:
    1. Calling a verb imports that verb's module and no other: a client verb must not pay for Spark or a web page.
    2. Usage errors end with 2 before anything is contacted; with ``-o json`` they too are JSON on stderr.
    3. No traceback reaches a user; TIDEGAUGE_DEBUG=1 shows it.
    4. ``--help`` lists the twenty verbs that a first day needs, by what they are for, and ``--help --all`` lists all;
       the error for a mistyped verb, or for the name of a tool of Kafka's, suggests verbs.
"""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Iterator, Sequence
from itertools import takewhile
from typing import Any

import click

from tidegauge import __version__
from tidegauge.cli import EXIT_FAILED, EXIT_INTERRUPTED, EXIT_OK, EXIT_USAGE, common_help, json_line, say
from tidegauge.errors import TidegaugeError
from tidegauge.machine_code import IN_USE
from tidegauge.near_names import near_names
from tidegauge_client.cli.verb_table import VerbTable

DEBUG_VARIABLE = "TIDEGAUGE_DEBUG"

SECTIONS: dict[str, tuple[str, ...]] = {
    "Learn": ("lab", "scenario", "play"),
    "Run a cluster": ("up", "status", "logs", "down", "snapshot", "restore", "control", "demo"),
    "Topics and records": (
        "create-topic",
        "list-topics",
        "describe-topic",
        "alter-topic",
        "delete-topic",
        "produce",
        "consume",
        "get-offsets",
        "delete-records",
        "verify",
    ),
    "Consumer groups": ("list-groups", "describe-group", "reset-offsets", "delete-group"),
    "Transactions": (
        "list-transactions",
        "describe-transaction",
        "describe-producers",
        "find-hanging",
        "abort-transaction",
    ),
    "Break it": (
        "kill",
        "stop",
        "pause",
        "resume",
        "start",
        "isolate",
        "heal",
        "expire-session",
        "inject-error",
        "hold-requests",
        "release-requests",
        "inject-disk",
        "skew-clock",
        "sync",
        "faults",
    ),
    "Run a quorum": (
        "format",
        "controller",
        "describe-quorum",
        "add-controller",
        "remove-controller",
        "describe-features",
        "upgrade-features",
        "disable-feature",
    ),
    "Look inside": ("watch", "explain", "timeline", "report", "wait", "health", "zk-tree", "metadata-tree", "dump-log"),
    "Administer": (
        "describe-cluster",
        "describe-log-dirs",
        "describe-config",
        "alter-config",
        "elect-leaders",
        "reassign-partitions",
    ),
    "Replication step by step": ("hold-fetch", "step-fetch"),
    "Test the replication core, without a cluster": ("simulate", "explore", "replay", "dev"),
    "One process": ("broker",),
}
FIRST = frozenset(
    {
        *("lab", "scenario", "play", "up", "status", "down"),
        *("create-topic", "describe-topic", "produce", "consume", "verify"),
        *("kill", "pause", "resume", "start", "isolate", "heal", "watch", "explain", "timeline"),
    }
)
"""The verbs that ``--help`` lists without ``--all``."""
_ALL = "tidegauge.all"
OTHERS = "Other verbs"
KAFKA_TOOLS: dict[str, tuple[str, ...]] = {
    "groups": ("list-groups",),
    "consumer-groups": ("list-groups", "describe-group", "reset-offsets", "delete-group"),
    "transactions": ("list-transactions", "describe-transaction", "find-hanging", "abort-transaction"),
    "topics": ("create-topic", "list-topics", "describe-topic", "alter-topic", "delete-topic"),
    "configs": ("describe-config", "alter-config"),
    "console-producer": ("produce",),
    "producer-perf-test": ("produce",),
    "verifiable-producer": ("produce",),
    "console-consumer": ("consume",),
    "consumer-perf-test": ("consume",),
    "verifiable-consumer": ("consume",),
    "replica-verification": ("verify",),
    "storage": ("format",),
    "metadata-quorum": ("describe-quorum", "add-controller", "remove-controller"),
    "features": ("describe-features", "upgrade-features", "disable-feature"),
    "leader-election": ("elect-leaders",),
    "dump-log-segments": ("dump-log",),
    "log-dirs": ("describe-log-dirs",),
    "server-start": ("up", "broker"),
    "server-stop": ("down", "stop"),
    "zookeeper-shell": ("zk-tree",),
    "metadata-shell": ("metadata-tree",),
    "broker-api-versions": ("health",),
    "cluster": ("describe-cluster",),
    "kcat": ("describe-cluster", "describe-topic", "produce", "consume"),
    "describe": ("describe-topic", "describe-cluster", "describe-config"),
    "restart": ("stop", "start"),
    "purge": ("down",),
}
"""Names that people try, without ``kafka-`` and ``.sh``, and the verbs for them."""


class Verbs(click.Group):
    """A group whose commands are entry points."""

    def __init__(self, *words: Any, **named: Any) -> None:
        super().__init__(*words, **named)
        self._table = VerbTable()

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        """Return all verbs, sorted by name."""
        return self._table.names

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002 - click's
        """Import a verb."""
        command = self._table.load(cmd_name)
        if command is None:
            return None
        if not isinstance(command, click.Command):
            raise TypeError(f"{command!r}, the verb {cmd_name}, is no command")
        end_with_common_options(command)
        return command

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Read the options before the verb; the error for a verb's option there says where options belong.

        ``--help`` prints before any other option is read, so ``--all`` is looked for here.
        """
        ctx.meta[_ALL] = "--all" in takewhile(lambda one: one.startswith("-"), args)
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as problem:
            raise click.UsageError(
                f"{problem.format_message()} A verb's options come after it: tidegauge VERB {problem.option_name} ...",
                ctx,
            ) from None

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the called verb; the error for an unknown name suggests others."""
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as problem:
            meant = may_be_meant(args[0], self.list_commands(ctx)) if args else []
            if not meant:
                raise
            *others, last = meant
            names = f"{', '.join(others)} or {last}" if others else last
            raise click.UsageError(f"{problem.message} Did you mean {names}?", ctx) from None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Format the list in ``--help``; a verb whose extra is not installed is shown as such."""
        every = self.list_commands(ctx)
        names = every if ctx.meta.get(_ALL) else [name for name in every if name in FIRST]
        width = max(map(len, names))
        for title, section in in_sections(names):
            rows = [(name.ljust(width), text) for name in section if (text := self.in_short(ctx, name)) is not None]
            if rows:
                with formatter.section(title):
                    formatter.write_dl(rows)
        if len(names) < len(every):
            formatter.write_paragraph()
            formatter.write_text(f"{len(every) - len(names)} verbs more: tidegauge --help --all")

    def in_short(self, ctx: click.Context, name: str) -> str | None:
        """Return what a verb does, in one sentence; None if it is hidden."""
        try:
            command = self.get_command(ctx, name)
        except (ImportError, AttributeError, TypeError) as problem:
            return f"(not available: {problem})"
        return None if command is None or command.hidden else command.get_short_help_str(limit=200)


def end_with_common_options(command: click.Command) -> None:
    """Let ``--help`` of a verb, and of its own verbs, end with the common options."""
    if command.epilog is None:
        command.epilog = common_help(command)
    if isinstance(command, click.Group):
        for below in command.commands.values():
            end_with_common_options(below)


def in_sections(names: Sequence[str]) -> Iterator[tuple[str, list[str]]]:
    """Group the verbs by purpose, each once; a verb that no section names is in the last one."""
    for title, section in SECTIONS.items():
        yield title, [name for name in section if name in names]
    known = {name for section in SECTIONS.values() for name in section}
    yield OTHERS, [name for name in names if name not in known]


def may_be_meant(word: str, names: Sequence[str]) -> list[str]:
    """Return the verbs that an unknown name may stand for."""
    bare = word.lower().removeprefix("kafka-").removesuffix(".sh")
    if bare in {"help", "commands", "verbs"}:
        return ["`tidegauge --help`"]
    if bare in names:
        return [bare]
    found = [name for name in KAFKA_TOOLS.get(bare, ()) if name in names]
    return found or near_names(bare, names, most=3)


@click.group(
    cls=Verbs, context_settings={"help_option_names": ["-h", "--help"]}, subcommand_metavar="VERB [OPTIONS]..."
)
@click.version_option(__version__, "--version", message=f"tidegauge %(version)s{IN_USE.remark.replace('%', '%%')}")
@click.option("--all", "shows_all", is_flag=True, help="With --help: all verbs.")
@click.pass_context
def root(ctx: click.Context, *, shows_all: bool) -> None:
    """Start, break and understand a Kafka-style broker cluster of real processes."""
    if shows_all:
        raise click.UsageError("--all goes with --help: tidegauge --help --all", ctx)


def wants_json(arguments: Sequence[str]) -> bool:
    """Return whether ``-o json`` is among arguments that click could not read."""
    for position, argument in enumerate(arguments):
        if argument in {"--output=json", "-ojson", "-o=json"}:
            return True
        if argument in {"-o", "--output"} and list(arguments[position + 1 : position + 2]) == ["json"]:
            return True
    return False


def run(arguments: Sequence[str]) -> int:
    """Run the command line; return the exit code."""
    try:
        result = root.main(args=list(arguments), prog_name="tidegauge", standalone_mode=False)
    except click.ClickException as problem:
        if wants_json(arguments):
            error = {"code": None, "name": "USAGE", "message": problem.format_message()}
            click.echo(json_line({"error": error}), err=True)
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
        say(f"{type(problem).__name__}: {problem}. This is a fault in Tidegauge; {DEBUG_VARIABLE}=1 shows its origin.")
        return EXIT_FAILED
    return result if isinstance(result, int) else EXIT_OK


def main() -> None:
    """Run the entry point ``tidegauge``."""
    if not __debug__:
        say("tidegauge does not run under python -O: its invariants are assertions.")
        sys.exit(EXIT_FAILED)
    if sys.argv[1:2] != ["broker"]:
        # Our own error message covers a failed connection, which gRPC's library logs too; brokers log the lines.
        os.environ.setdefault("GRPC_VERBOSITY", "ERROR")
    sys.exit(run(sys.argv[1:]))
