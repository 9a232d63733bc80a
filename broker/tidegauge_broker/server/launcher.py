"""Starts nodes that have nothing to load any more: imports what a node needs once, then forks for each order.

Orders come as lines of JSON on stdin; the response to each is a line on stdout, the new node's pid. At the end of
stdin the launcher ends, and its nodes continue. Three brokers of a local cluster start with a third of the work that
way, and it is done while ZooKeeper starts, or while controllers elect (docs/adr/0007-brokers-are-forked.md).

A line that is a string names a module to import ahead of an order; it has no response. So a quorum runs before what
only brokers need is imported, and brokers of a KRaft cluster never load a client of ZooKeeper.

Rules:
- It forks while it has one thread: nothing here may begin a channel, a pool or an event loop.
- A node shares nothing with the launcher or with another node: own session, directory, log file; stdin from the
  null device.
- A node that has ended is no zombie of a launcher that lives on.
- A node shows the command line by which it would have been started alone, so that it is found among the processes of
  a cluster. Linux has room for it where the launcher's own command line lies, no more.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import json
import os
import signal
import sys
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import NamedTuple, cast

import click

VERBS = {"tidegauge_broker.server.verb": "broker", "tidegauge_broker.server.quorum.verb": "controller"}
"""The modules that run a node, and the verb in each."""
LABS = {
    "tidegauge_broker.server.verb": "tidegauge_broker.server.lab.lab",
    "tidegauge_broker.server.quorum.verb": "tidegauge_broker.server.lab.controller_lab",
}
"""The lab's part of each module that runs a node: every node that the lab starts loads it."""
_COMMAND_BEGINS, _COMMAND_ENDS = 45, 46
"""Places of arg_start and arg_end in /proc/PID/stat, counted from the state on."""


class Order(NamedTuple):
    """One node to start: a broker, or a controller of a quorum.

    Attributes:
        command: the command line that would start it alone; from ``--config`` on it is the node's own.
        directory: its working directory.
        log_file: takes its stdout and stderr.
        environment: its variables; None: the launcher's.
    """

    command: list[str]
    directory: str
    log_file: str
    environment: dict[str, str] | None

    @property
    def arguments(self) -> list[str]:
        """The arguments of the verb."""
        return self.command[self.command.index("--config") :]

    @property
    def module(self) -> str:
        """The module of ``VERBS`` that runs the node."""
        return self.command[self.command.index("-m") + 1]


def main() -> None:
    """Fork a node for each order, until there are no more."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the system reaps what nothing waits for
    while line := sys.stdin.readline():
        content = json.loads(line)
        if isinstance(content, str):
            _load(content)
            continue
        order = Order(*content)
        verb = _verb_of(order.module)
        sys.stderr.flush()
        pid = os.fork()
        if pid == 0:
            _separate(order)
            verb.main(order.arguments, prog_name=verb.name)
        os.write(sys.stdout.fileno(), f"{pid}\n".encode())


def _verb_of(module: str) -> click.Command:
    """Return a module's verb, which is imported now if it has not been.

    Raises:
        KeyError: the module is none of ``VERBS``.
    """
    name = VERBS[module]
    _load(module)
    return cast("click.Command", getattr(sys.modules[module], name))


def _load(module: str) -> None:
    """Import a module once; one that runs a node with the lab's part of it, and what each node makes first."""
    if module in sys.modules:
        return
    import_module(module)
    if module in LABS:
        import_module(LABS[module])
        import_module("tidegauge_broker.server.warm_up").warm_up()
    gc.freeze()  # loaded modules are never garbage; collections that skip them leave the shared pages shared


def _separate(order: Order) -> None:
    """Separate the new node's process from the launcher's."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    os.setsid()
    os.chdir(order.directory)
    if order.environment is not None:
        os.environ.clear()
        os.environ.update(order.environment)
    log = os.open(order.log_file, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
    nothing = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
    for new, old in ((nothing, 0), (log, 1), (log, 2)):
        os.dup2(new, old)
    os.close(log)
    os.close(nothing)
    with contextlib.suppress(OSError, ValueError, IndexError):
        _show(order.command)


def _show(command: Sequence[str]) -> None:
    """Write this command line over the launcher's."""
    stat = Path("/proc/self/stat").read_text(encoding="utf-8", errors="replace")
    fields = stat[stat.rindex(")") + 1 :].split()
    begin, end = int(fields[_COMMAND_BEGINS]), int(fields[_COMMAND_ENDS])
    text = b"".join(os.fsencode(word) + b"\0" for word in command)
    if 0 < len(text) <= end - begin:
        ctypes.memset(begin, 0, end - begin)
        ctypes.memmove(begin, text, len(text))


if __name__ == "__main__":
    main()
