"""The cluster's end of the nodes' launcher (tidegauge_broker.server.launcher): loads once, starts many.

Rules:
- The launcher begins to load as soon as it is entered, so that it has loaded when ZooKeeper serves. Modules of
  controllers come first if there are some, then the rest (``load``) while they elect.
- Without one (other systems than Linux) or if it fails, brokers are started by a command each: slower, and
  the same otherwise. A broker's own log then reports a defect of the installation.
- It lives no longer than the ``with``; the brokers do. `tidegauge up` begins one before it loads the lab (``ahead``).
- A process that starts brokers again and again keeps one (``kept``): each start is then a fork, whichever method asks
  for it. A kept launcher serves while the variables are those that it began with, as if it had begun now.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from tidegauge_lab.local.processes import LabProcess

MODULE = "tidegauge_broker.server.launcher"
BROKER = "tidegauge_broker.server.verb"
CONTROLLER = "tidegauge_broker.server.quorum.verb"
ZOOKEEPER = "tidegauge_broker.server.cluster.zookeeper.cluster"
"""The part of a broker that only a cluster with ZooKeeper loads, on top of ``BROKER``."""
_RESPONSE_LIMIT_SECONDS = 60.0
_ROOM_FOR_COMMAND = " " * 4096
"""The brokers write their command lines over the launcher's: it must be long enough."""
_OF_EACH_TEST = "PYTEST_CURRENT_TEST"
"""Names the test that runs; nothing that a broker loads reads it."""


def environment_of_brokers() -> dict[str, str]:
    """Return this process's variables, without the command line's setting for gRPC.

    A broker with TLS reads what the library says of handshakes, which has to be as talkative as it is by itself.
    """
    return {name: value for name, value in os.environ.items() if name != "GRPC_VERBOSITY"}


class _Process:
    """The launcher's process, and the pipes to it.

    Args:
        directory: part of its command line, by which a guard finds it.

    Raises:
        OSError: it can't be started.
    """

    def __init__(self, directory: Path) -> None:
        self._owner = os.getpid()
        self._one_at_a_time = threading.Lock()
        self._variables = _variables_that_count()
        self._child = subprocess.Popen(
            [sys.executable, "-P", "-m", MODULE, f"{directory}/", _ROOM_FOR_COMMAND],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            env=environment_of_brokers(),
        )

    @property
    def serves(self) -> bool:
        """Whether it is this process's own, lives, and has the variables of this process."""
        return self._owner == os.getpid() and self._child.poll() is None and self._variables == _variables_that_count()

    def load(self, module: str) -> None:
        """Have it load a module ahead of the order; do nothing if it has ended."""
        with self._one_at_a_time:
            self._tell(module)

    def order(self, order: tuple[object, ...]) -> int | None:
        """Give it an order; the new broker's pid, or None if it fails, after which it has ended."""
        try:
            with self._one_at_a_time:
                pid = self._ask(order)
        except BaseException:  # the response to this order would be taken for the next one's
            self.end()
            raise
        if pid is None:
            self.end()
        return pid

    def _ask(self, order: tuple[object, ...]) -> int | None:
        stdout = self._child.stdout
        assert stdout is not None
        if not self._tell(order):
            return None
        responded, _, _ = select.select([stdout], [], [], _RESPONSE_LIMIT_SECONDS)
        line = stdout.readline() if responded else b""
        return int(line) if line else None

    def _tell(self, line: object) -> bool:
        """Write a line; whether it could be written."""
        stdin = self._child.stdin
        assert stdin is not None
        if stdin.closed:
            return False
        try:
            stdin.write(json.dumps(line).encode() + b"\n")
            stdin.flush()
        except OSError:
            return False
        return True

    def end(self) -> None:
        """End it; its nodes go on."""
        self._child.kill()
        self._child.communicate()

    def let_go(self) -> None:
        """Hold the pipes no more, in a process that the owner has forked: the launcher ends with its owner."""
        nothing = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
        for pipe in (self._child.stdin, self._child.stdout):
            if pipe is not None and not pipe.closed:
                os.dup2(nothing, pipe.fileno(), inheritable=False)
        os.close(nothing)


_kept: list[_Process] = []
_ahead: list[_Process] = []


def _variables_that_count() -> dict[str, str]:
    return {name: value for name, value in environment_of_brokers().items() if name != _OF_EACH_TEST}


class Launcher:
    """Starts nodes; an object to use in a ``with``.

    Args:
        directory: the cluster's directory.
        wanted: whether one is worth its loading, if none is kept.
        first: the module that runs the first process.
    """

    def __init__(self, directory: Path, *, wanted: bool, first: str = BROKER) -> None:
        self._directory = directory
        self._first = first
        self._wanted = wanted
        self._own: _Process | None = None

    def __enter__(self) -> Self:
        begun = _taken_over()
        if self._wanted and _serving() is None:
            self._own = begun or _begun(self._directory)
        elif begun is not None:
            begun.end()
        self.load(self._first)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        own, self._own = self._own, None
        if own is not None:
            own.end()  # each order has had its response

    def load(self, module: str) -> None:
        """Have a module loaded that nodes need, while the caller does something else."""
        if (launcher := self._own or _serving()) is not None:
            launcher.load(module)

    def start(self, process: LabProcess, command: list[str], environment: Mapping[str, str] | None = None) -> int:
        """Start a broker by this command, with these variables or one's own; gives its pid. It must be down.

        Raises:
            OSError: the command can't be run.
        """
        launcher = self._own or _serving()
        if launcher is None:
            return process.spawn(command, environment)
        process.make_directories()
        variables = None if environment is None else dict(environment)
        pid = launcher.order((command, str(process.directory), str(process.log_file), variables))
        if pid is None:
            self._own = None
            return process.spawn(command, environment)
        process.note(pid)
        return pid


@contextlib.contextmanager
def kept(directory: Path) -> Iterator[None]:
    """Keep a launcher until the end of the ``with``: every start of a broker by this process is a fork of it.

    It loads beside what the caller does first. If there can be none, brokers start as without it.

    Args:
        directory: for its command line: the one cluster's, or one that contains the clusters'.
    """
    with _loading(directory, BROKER, _kept):
        yield


@contextlib.contextmanager
def ahead(directory: Path, first: str) -> Iterator[None]:
    """Have a launcher load while the caller loads what will order from it; the next ``Launcher`` takes it over.

    Args:
        directory: the cluster's.
        first: the module that runs the first process.
    """
    with _loading(directory, first, _ahead):
        yield


@contextlib.contextmanager
def _loading(directory: Path, first: str, among: list[_Process]) -> Iterator[None]:
    """Begin a launcher unless one is kept, put it among others, and end it after the ``with`` if it is still there."""
    launcher = _begun(directory) if _serving() is None else None
    if launcher is None:
        yield
        return
    among.append(launcher)
    launcher.load(first)
    try:
        yield
    finally:
        if launcher in among:
            among.remove(launcher)
            launcher.end()


def _begun(directory: Path) -> _Process | None:
    """Return a new launcher; None: there can't be one."""
    if sys.platform != "linux":
        return None
    try:
        return _Process(directory)
    except OSError:
        return None


def _taken_over() -> _Process | None:
    """Return the launcher begun ahead, if usable, and pass it to the caller."""
    return _ahead.pop() if _ahead and _ahead[-1].serves else None


def _serving() -> _Process | None:
    """Return the kept launcher, if there is one that can serve."""
    return next((one for one in _kept if one.serves), None)


def _forked() -> None:
    for one in [*_kept, *_ahead]:
        one.let_go()


os.register_at_fork(after_in_child=_forked)
