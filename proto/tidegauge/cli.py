"""Exit codes, common options and error reporting, shared by all verbs of the command line.

Verbs live in several packages and register through the entry-point group ``tidegauge.verbs``; this module is
the part of the contract that must be the same in all of them (docs/command-line.md). It imports nothing heavy, so that
every verb starts fast.

Exit codes: 0 success, 1 failure, 2 usage error, 3 internal error of the tool, 4 an awaited condition does not hold,
124 time limit of the verb reached, 130 Ctrl-C, 143 SIGTERM.
"""

from __future__ import annotations

import errno
import functools
import json
import os
import re
import select
import shlex
import stat
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NoReturn, TextIO, TypeVar

import click

from tidegauge.cluster_directory import (
    DEFAULT_DIRECTORY,
    DIRECTORY_VARIABLE,
    found_directory,
    of_directory,
    of_servers,
)
from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.terminal_text import shown_controls

EXIT_OK = 0
EXIT_FAILED = 1
EXIT_USAGE = 2
EXIT_TOOL_FAILED = 3
EXIT_CONDITION = 4
EXIT_TIME_LIMIT = 124
EXIT_INTERRUPTED = 130
EXIT_TERMINATED = 143

BOOTSTRAP_VARIABLE = "TIDEGAUGE_BOOTSTRAP_SERVER"
COMMAND_CONFIG_VARIABLE = "TIDEGAUGE_COMMAND_CONFIG"
JAAS_VARIABLE = "TIDEGAUGE_SASL_JAAS_CONFIG"
"""Holds ``sasl.jaas.config`` where the file of ``--command-config`` does not: a secret that is in no file."""
_COMMAND_CONFIG = "tidegauge.command-config"
_BEHIND_ASCII_CONTROLS = re.compile("[\x7f-\x9f]")
"""The control characters that JSON does not require to be escaped: DEL and C1."""

AnyCallable = TypeVar("AnyCallable", bound=Callable[..., Any])


class CommonOption(click.Option):
    """An option that every verb has, or nearly every one: ``--help`` shows these together, after the verb's own.

    Args:
        declarations: as ``click.Option`` takes them.
        shown: how the option is written in ``--help``.
        attributes: as ``click.Option`` takes them.
    """

    def __init__(self, declarations: Sequence[str], *, shown: str, **attributes: Any) -> None:
        super().__init__(declarations, **attributes)
        self.shown = shown

    def get_help_record(self, ctx: click.Context) -> tuple[str, str] | None:  # noqa: ARG002 - click's signature
        """Return nothing: the option is not one of the verb's own (see ``common_help``)."""
        return None


class DirectoryType(click.Path):
    """The type of ``--dir``: a path, but never the empty one, which would mean the working directory itself."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Read the path, or fail as a usage error: an empty one is most likely a variable that is not set."""
        if value == "":
            self.fail("the name of the directory is empty; leave --dir out, or name a directory", param, ctx)
        return super().convert(value, param, ctx)


def common_help(command: click.Command) -> str:
    """Return the help section for a verb's common options; empty without any."""
    options = [option for option in command.params if isinstance(option, CommonOption) and not option.hidden]
    if not options:
        return ""
    width = max(len(option.shown) for option in options)
    lines = [f"  {option.shown:<{width}}  {option.help}" for option in options]
    return "\n".join(["\b", "Common options:", *lines])  # \b: click does not wrap the paragraph


def output_option(command: AnyCallable) -> AnyCallable:
    """Add ``-o/--output text|json``, passed as ``output``."""
    return click.option(
        "-o",
        "--output",
        cls=CommonOption,
        shown="-o, --output text|json",
        type=click.Choice(["text", "json"]),
        default="text",
        help="JSON: on stdout, and nothing else there.",
    )(command)


def directory_option(command: AnyCallable, *, hidden: bool = False) -> AnyCallable:
    """Add ``--dir``, passed as ``directory``: the directory of a cluster that ``tidegauge up`` made."""
    return click.option(
        "--dir",
        "directory",
        cls=CommonOption,
        shown="--dir DIR",
        hidden=hidden,
        type=DirectoryType(path_type=Path, file_okay=False),
        default=found_directory,
        help=f"Else ${DIRECTORY_VARIABLE}, {DEFAULT_DIRECTORY}.",
    )(command)


def bootstrap_option(command: AnyCallable, *, hidden: bool = False, has_config: bool = False) -> AnyCallable:
    """Add ``-b/--bootstrap-server``, passed as ``bootstrap_server``; the client's resolver reads its variable.

    Adds ``--command-config`` too: its value is not passed to the verb, ``command_config`` returns it.

    Args:
        command: the verb.
        hidden: whether ``--help`` leaves them out.
        has_config: whether it shows ``--command-config`` nevertheless.
    """
    command = click.option(
        "--command-config",
        cls=CommonOption,
        shown="--command-config FILE",
        hidden=hidden and not has_config,
        type=click.Path(path_type=Path, dir_okay=False, exists=True),
        envvar=COMMAND_CONFIG_VARIABLE,
        expose_value=False,
        callback=_keep_command_config,
        help=f"Client settings; else ${COMMAND_CONFIG_VARIABLE}.",
    )(command)
    return click.option(
        "-b",
        "--bootstrap-server",
        cls=CommonOption,
        shown="-b, --bootstrap-server H:P",
        hidden=hidden,
        metavar="HOST:PORT[,HOST:PORT]",
        help=f"Else ${BOOTSTRAP_VARIABLE}, else --dir.",
    )(command)


def _keep_command_config(context: click.Context, _: click.Parameter, value: Path | None) -> None:
    context.meta[_COMMAND_CONFIG] = value


def command_config() -> Path | None:
    """Return the file that the running verb's ``--command-config`` names; None without the option."""
    context = click.get_current_context(silent=True)
    found = None if context is None else context.meta.get(_COMMAND_CONFIG)
    return found if isinstance(found, Path) else None


def verb_options(command: AnyCallable) -> AnyCallable:
    """Add the options that every verb takes: output, directory, bootstrap_server and command config."""
    return output_option(directory_option(bootstrap_option(command)))


def offline_verb_options(command: AnyCallable) -> AnyCallable:
    """Add the common options to a verb that asks no cluster: all are accepted, only ``--output`` has an effect."""
    return output_option(directory_option(bootstrap_option(command, hidden=True), hidden=True))


def controller_verb_options(command: AnyCallable) -> AnyCallable:
    """Add the common options to a verb that asks controllers: ``--bootstrap-server`` is accepted, without an effect."""
    return output_option(directory_option(bootstrap_option(command, hidden=True, has_config=True)))


def about_its_cluster(sentence: str) -> str:
    """Return a sentence, its commands completed by the running verb's cluster.

    That is the verb's --dir or -b. Libraries, which write sentences too, do not know how the command line names it.
    """
    context = click.get_current_context(silent=True)
    given = {} if context is None else context.params
    servers, directory = given.get("bootstrap_server"), given.get("directory")
    if servers:
        secured = "" if (file := command_config()) is None else f" --command-config {shlex.quote(str(file))}"
        return of_servers(sentence, f" -b {shlex.quote(str(servers))}{secured}")
    if isinstance(directory, Path) and not os.environ.get(BOOTSTRAP_VARIABLE):
        return of_directory(sentence, directory)
    return sentence


def print_text(text: str = "", *, nl: bool = True) -> None:
    """Print text on stdout; other control characters in it than tabs and line feeds are written out.

    Names of groups, clients, transactional ids and settings are chosen by clients, and a directory's event logs may be
    a stranger's, so no verb prints text by itself (docs/security.md).

    Args:
        text: some lines.
        nl: whether a line feed follows.
    """
    click.echo("\n".join(map(shown_controls, text.split("\n"))), nl=nl)


def print_line(text: str) -> None:
    """Print one line on stdout; a line feed in it is written out, too, so that it can't pass for another line."""
    click.echo(shown_controls(text))


def say(text: str) -> None:
    """Print text on stderr, as harmless for a terminal; the commands that it advises mean the verb's cluster."""
    click.echo("\n".join(map(shown_controls, about_its_cluster(text).split("\n"))), err=True)


def json_line(value: object) -> str:
    """Return a JSON document on one line, with control characters escaped, C1 included."""
    text = json.dumps(value, separators=(",", ":"), ensure_ascii=False)
    return _BEHIND_ASCII_CONTROLS.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def print_json(value: object) -> None:
    """Print one JSON document on one line of stdout, flushed so that a pipe receives it at once."""
    sys.stdout.write(json_line(value) + "\n")
    sys.stdout.flush()


def is_pipe(stream: TextIO) -> bool:
    """Whether the stream is a pipe of the system; a test's replacement has no descriptor."""
    try:
        return stat.S_ISFIFO(os.fstat(stream.fileno()).st_mode)
    except (OSError, ValueError):
        return False


def pause(seconds: float) -> None:
    """Wait between two looks of a verb that follows something, until its time is over or its reader has closed stdout.

    A verb notices a closed pipe (``| head -3``) when it writes; one that has nothing to write would wait forever.

    Args:
        seconds: time to wait.

    Raises:
        BrokenPipeError: stdout is a pipe, and its reader has closed it; ``reports_errors`` ends the verb then.
    """
    if not is_pipe(sys.stdout):
        time.sleep(seconds)
        return
    closed = select.poll()
    closed.register(sys.stdout, 0)  # no event but the error that the other end is closed
    if closed.poll(seconds * 1000):
        raise BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE))


def fail(
    message: str, output: str = "text", *, code: ErrorCode | None = None, exit_code: int = EXIT_FAILED
) -> NoReturn:
    """Report an error on stderr in the requested output format, and exit.

    As text it is the sentence itself; as JSON it is ``{"error":{"code","name","message"}}``.
    """
    if output == "json":
        error = {
            "code": None if code is None else int(code),
            "name": "FAILED" if code is None else code.name,
            "message": about_its_cluster(message),
        }
        click.echo(json_line({"error": error}), err=True)
    else:
        say(message)
    raise SystemExit(exit_code)


_REFUSALS = {
    errno.EACCES,
    errno.EDQUOT,
    errno.EIO,
    errno.EISDIR,
    errno.EMFILE,
    errno.ENAMETOOLONG,
    errno.ENFILE,
    errno.ENOSPC,
    errno.ENOTDIR,
    errno.EPERM,
    errno.EROFS,
}
"""Errors by which the system refuses a file: the user's to mend, and no fault of the verb."""


def refusal(error: OSError) -> str:
    """Return the sentence for an error on a file, or on stdout."""
    if error.filename is None:
        return f"the output can't be written: {error.strerror}"
    return f"{error.filename} can't be read or written: {error.strerror}"


def reports_errors(command: Callable[..., Any]) -> Callable[..., Any]:
    """Decorate a verb so that its errors become one sentence: TidegaugeError, a refused file, a broken pipe, Ctrl-C.

    The verb must take ``output``. A closed stdout (``| head``) ends quietly with 0, as Unix tools do.
    """

    @functools.wraps(command)
    def wrapped(*arguments: Any, **options: Any) -> Any:
        try:
            return command(*arguments, **options)
        except TidegaugeError as error:
            output = str(options.get("output", "text"))
            # JSON has fields of their own for the name and the code.
            fail(error.message if output == "json" else str(error), output, code=error.code)
        except BrokenPipeError:
            sys.stdout = Path(os.devnull).open("w")  # noqa: SIM115 - lives until exit, so that the flush at exit works
            raise SystemExit(EXIT_OK) from None
        except KeyboardInterrupt:
            raise SystemExit(EXIT_INTERRUPTED) from None
        except OSError as error:
            if error.errno not in _REFUSALS:
                raise
            fail(refusal(error), str(options.get("output", "text")))

    return wrapped
