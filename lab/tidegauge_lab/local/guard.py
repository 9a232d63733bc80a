"""A guard: ends the processes of a cluster whose owner has ended without taking it down.

An owner is whatever a cluster is to end with: a test session, a foreground ``up``, a scenario's run, the demo. One that
dies by SIGKILL, by ``os._exit`` or in a crash runs no code of its own any more, and a worker of pytest-xdist ends so
when its controller is dead. The cluster's processes outlive it (``processes``), as after ``tidegauge up --detach``;
so another process ends them.

Rules:
    1. The guard waits at a pipe that the owner alone can write to. The system closes the pipe with the owner, however
       it ends; a process that the owner forks closes its copy at once. A guard that was released first does nothing.
    2. It runs in a session of its own and ignores SIGINT, SIGTERM and SIGHUP: what ends a test session, or all
       processes of its group, leaves the guard.
    3. It begins before the first process of the cluster, and ends all of them: those with a pid file as
       ``tidegauge down`` does, paused ones too, and those that the owner started and did not note any more, by their
       command lines. So it finds other processes that are to end with the owner: a story's clients, the Spark job.
    4. It holds the cluster's directory meanwhile, from the moment when the owner is dead: an ``up`` that follows at
       once waits, and starts the cluster again.
    5. Data and logs stay, but for a temporary directory's: of an owner that ended so they are all that is left.
       ``logs/guard.log`` records its actions.
    6. Until then it loads the standard library only.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import os
import shutil
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO

MODULE = "tidegauge_lab.local.guard"
LOG_FILE = "guard.log"
LOCK_FILE = ".lock"
"""``locks.CLUSTER_LOCK``, which is not loaded in time (rules 4 and 6)."""
_LOCK_LIMIT_SECONDS = 90.0
_PAUSE_SECONDS = 0.02
_RELEASED = b"released\n"
_END_LIMIT_SECONDS = 10.0
_pipes: set[IO[bytes]] = set()
"""The owner's ends of the pipes, for the processes that it forks (rule 1)."""


class Guard:
    """The owner's side: the guard of one cluster or more, from now until ``release``.

    Args:
        directories: the clusters' directories, absolute; they need not exist yet. Logs go to the first one's.
        signs: of further processes that are to end with the owner, what their command lines contain. A process that
            leads a process group ends with its group.
        temporary: a directory to delete when all have ended; None: data and logs stay.
    """

    def __init__(self, *directories: Path, signs: Sequence[str] = (), temporary: Path | None = None) -> None:
        self._owner = os.getpid()
        options = [f"--owner={self._owner}", *(f"--sign={sign}" for sign in signs)]
        if temporary is not None:
            options.append(f"--temporary={temporary}")
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", MODULE, *map(str, directories), *options],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            bufsize=0,
        )
        assert self._process.stdin is not None
        self._pipe = self._process.stdin
        _pipes.add(self._pipe)

    @property
    def pid(self) -> int:
        """The pid of the guard's process."""
        return self._process.pid

    def release(self) -> None:
        """End the guard, which leaves the cluster alone: its owner has taken it down. Idempotent."""
        if self._owner != os.getpid() or self._pipe.closed:
            return
        with contextlib.suppress(OSError):  # the guard is dead
            self._pipe.write(_RELEASED)
        self._close()

    def take_down(self) -> None:
        """Let the guard end whatever runs of the cluster, and wait until it has. Idempotent."""
        if self._owner == os.getpid() and not self._pipe.closed:
            self._close()

    def _close(self) -> None:
        _pipes.discard(self._pipe)
        self._pipe.close()
        self._process.wait()


@contextlib.contextmanager
def guarding(*directories: Path, signs: Sequence[str] = (), temporary: Path | None = None) -> Iterator[Guard]:
    """Guard clusters during a ``with`` that takes them down at its end, also if it fails; arguments: ``Guard``.

    Ctrl-C may have interrupted that end: then the guard ends the remaining processes, unless the
    ``with`` has released it.
    """
    guard = Guard(*directories, signs=signs, temporary=temporary)
    try:
        yield guard
    except Exception:
        guard.release()
        raise
    except BaseException:
        guard.take_down()
        raise
    guard.release()


def _close_pipes() -> None:
    """Close the pipes in a process that an owner has forked (rule 1)."""
    while _pipes:
        _pipes.pop().close()


os.register_at_fork(after_in_child=_close_pipes)


# The guard's own process


def main() -> None:
    """Wait for the end of the owner, and end what it has left."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    parser = argparse.ArgumentParser(prog=MODULE)
    parser.add_argument("directories", nargs="+", type=Path)
    parser.add_argument("--owner", required=True, type=int)
    parser.add_argument("--sign", action="append", default=[])
    parser.add_argument("--temporary", type=Path)
    given = parser.parse_args()
    if sys.stdin.buffer.read() != _RELEASED:
        end_clusters(given.directories, given.owner, given.sign)
        if given.temporary is not None:
            shutil.rmtree(given.temporary, ignore_errors=True)


def end_clusters(directories: Sequence[Path], owner: int, signs: Sequence[str]) -> None:
    """End the clusters in these directories (rules 3 to 5); nothing is raised, since nothing reads it."""
    with contextlib.ExitStack() as stack:
        held = [stack.enter_context(_alone(directory)) for directory in directories]
        from tidegauge_lab.local import layout  # noqa: PLC0415 - rule 6

        lines = [line for one, is_held in zip(directories, held, strict=True) for line in _down(one, is_held=is_held)]
        ended = end_by_command(directories, signs)
        if ended:
            lines.append(f"ended processes {', '.join(map(str, ended))}, known by their command lines")
        if not lines:
            return
        lines.append(
            f"process {owner}, whose cluster this was, did not take it down: the guard has ended its processes; data "
            "and logs are left"
        )
        with contextlib.suppress(OSError), (directories[0] / layout.LOGS / LOG_FILE).open("a", encoding="utf-8") as log:
            log.write("".join(f"{line}\n" for line in lines))


@contextlib.contextmanager
def _alone(directory: Path) -> Iterator[bool]:
    """Hold a directory as ``locks`` does (rule 4); yield whether it is held (without a lock file: no process)."""
    try:
        descriptor = os.open(directory / LOCK_FILE, os.O_RDWR)
    except OSError:
        yield False
        return
    try:
        yield _locked(descriptor)
    finally:
        os.close(descriptor)


def _locked(descriptor: int) -> bool:
    deadline = time.monotonic() + _LOCK_LIMIT_SECONDS
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            if time.monotonic() > deadline:
                return False
            time.sleep(_PAUSE_SECONDS)
        else:
            return True


def _down(directory: Path, *, is_held: bool) -> list[str]:
    """End the processes with a pid file; return lines for its log."""
    from tidegauge.errors import TidegaugeError  # noqa: PLC0415 - rule 6
    from tidegauge_client.cluster_file import FILE_NAME  # noqa: PLC0415 - rule 6
    from tidegauge_lab.local import layout  # noqa: PLC0415 - rule 6
    from tidegauge_lab.local.cluster import LocalCluster  # noqa: PLC0415 - rule 6

    try:
        if not (directory / FILE_NAME).exists():
            return []
        ran = layout.runs(directory)
        LocalCluster(directory).down(grace_seconds=0, is_held=is_held)
    except TidegaugeError as problem:
        return [f"tidegauge down: {problem.message}"]
    except Exception:  # noqa: BLE001 - whatever it is, processes by their command lines are ended all the same
        return [traceback.format_exc()]
    return [f"took the cluster in {directory} down"] if ran else []


def end_by_command(directories: Sequence[Path], signs: Sequence[str] = ()) -> list[int]:
    """Kill the processes whose command lines belong to these clusters, or have a sign, until there is none.

    Returns:
        Their pids.
    """
    from tidegauge_lab.local.waiting import holds_within  # noqa: PLC0415 - rule 6

    ended: set[int] = set()

    def none_is_left() -> bool:
        commands = command_lines()
        found = {*having(signs, commands), *(pid for one in directories for pid in of_cluster(one, commands))}
        for pid in found:
            _kill(pid)
        ended.update(found)
        return not found

    holds_within(none_is_left, _END_LIMIT_SECONDS)
    return sorted(ended)


def _kill(pid: int) -> None:
    """Kill a process, with its process group if it leads one: a Spark job has begun others."""
    with contextlib.suppress(ProcessLookupError):
        if os.getpgid(pid) == pid:
            os.killpg(pid, signal.SIGKILL)
        else:
            os.kill(pid, signal.SIGKILL)


def having(signs: Sequence[str], commands: Mapping[int, str]) -> list[int]:
    """Return the pids of command lines with a sign, without guards' own."""
    return [
        pid
        for pid, command in commands.items()
        if f" -m {MODULE} " not in command and any(sign in f"{command} " for sign in signs)
    ]


def of_cluster(directory: Path, commands: Mapping[int, str]) -> list[int]:
    """Return the pids of command lines that belong to a cluster's processes."""
    from tidegauge_lab.local import control_server, launcher  # noqa: PLC0415 - rule 6
    from tidegauge_lab.local.topology.process_signs import signs_of_processes  # noqa: PLC0415 - rule 6

    signs = (
        f" -m {launcher.MODULE} {directory}/ ",
        f" -m {launcher.BROKER} --config {directory}/broker-",
        *signs_of_processes(directory),
        f" -m {control_server.MODULE} --dir {directory} ",
    )
    return having(signs, commands)


def command_lines() -> dict[int, str]:
    """Return the command lines of all visible processes, words separated by a space."""
    if not Path("/proc/self/stat").exists():
        printed = subprocess.run(["ps", "-axww", "-o", "pid=,command="], capture_output=True, text=True, check=False)
        pairs = (line.split(None, 1) for line in printed.stdout.splitlines())
        return {int(pair[0]): pair[1] for pair in pairs if len(pair) == 2}
    found = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                words = (entry / "cmdline").read_bytes().rstrip(b"\0").split(b"\0")
                found[int(entry.name)] = b" ".join(words).decode("utf-8", errors="replace")
    return found


if __name__ == "__main__":
    main()
