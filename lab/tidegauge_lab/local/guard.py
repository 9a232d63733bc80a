"""A guard: ends the processes of a cluster whose owner, such as a test session, has ended without taking it down.

An owner that dies by SIGKILL, by ``os._exit`` or in a crash runs no code of its own any more, and a worker of
pytest-xdist ends so when its controller is dead. The cluster's processes outlive it (``processes``), as those of
``tidegauge up --detach`` have to; so another process ends them.

Rules:
    1. The guard waits at a pipe that the owner alone can write to. The system closes the pipe with the owner, however
       it ends; a process that the owner forks closes its copy at once. A guard that was released first does nothing.
    2. It runs in a session of its own and ignores SIGINT, SIGTERM and SIGHUP: what ends a test session, or all
       processes of its group, leaves the guard.
    3. It begins before the first process of the cluster, and ends all of them: those with a pid file as
       ``tidegauge down`` does, paused ones too, and those that the owner started and did not note any more, by their
       command lines.
    4. Data and logs stay: of a session that ended so they are all that is left. ``logs/guard.log`` says what was done.
    5. Until then it loads the standard library only.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import traceback
from collections.abc import Mapping
from pathlib import Path
from typing import IO

MODULE = "tidegauge_lab.local.guard"
LOG_FILE = "guard.log"
_RELEASED = b"released\n"
_END_LIMIT_SECONDS = 10.0
_pipes: set[IO[bytes]] = set()
"""The owner's ends of the pipes, for the processes that it forks (rule 1)."""


class Guard:
    """The owner's side: the guard of one cluster, from now until ``release``.

    Args:
        directory: the cluster's directory, absolute; it need not exist yet.
    """

    def __init__(self, directory: Path) -> None:
        self._owner = os.getpid()
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", MODULE, str(directory), str(self._owner)],
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


def _close_pipes() -> None:
    """Close the pipes in a process that an owner has forked (rule 1)."""
    while _pipes:
        _pipes.pop().close()


os.register_at_fork(after_in_child=_close_pipes)


# The guard's own process


def main() -> None:
    """Wait for the end of the owner, and end what it has left; arguments are the directory and the owner's pid."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    directory, owner = Path(sys.argv[1]), int(sys.argv[2])
    if sys.stdin.buffer.read() != _RELEASED:
        end_cluster(directory, owner)


def end_cluster(directory: Path, owner: int) -> None:
    """End the cluster in this directory (rules 3 and 4); nothing is raised, since nothing reads it."""
    from tidegauge.errors import TidegaugeError  # noqa: PLC0415 - rule 5
    from tidegauge_client.cluster_file import FILE_NAME  # noqa: PLC0415 - rule 5
    from tidegauge_lab.local import layout  # noqa: PLC0415 - rule 5
    from tidegauge_lab.local.cluster import LocalCluster  # noqa: PLC0415 - rule 5

    lines = []
    try:
        if (directory / FILE_NAME).exists():
            LocalCluster(directory).down(grace_seconds=0)
    except TidegaugeError as problem:
        lines.append(f"tidegauge down: {problem.message}")
    except Exception:  # noqa: BLE001 - whatever it is, processes by their command lines are ended all the same
        lines.append(traceback.format_exc())
    ended = end_by_command(directory)
    if ended:
        lines.append(
            f"ended by their command lines, since they have no pid file: processes {', '.join(map(str, ended))}"
        )
    lines.append(
        f"process {owner}, whose cluster this was, ended without taking it down: the guard has ended its "
        "processes; data and logs are left"
    )
    with contextlib.suppress(OSError), (directory / layout.LOGS / LOG_FILE).open("a", encoding="utf-8") as log:
        log.write("".join(f"{line}\n" for line in lines))


def end_by_command(directory: Path) -> list[int]:
    """Kill the processes whose command lines are those of this cluster's, until there is none; return their pids."""
    from tidegauge_lab.local.waiting import holds_within  # noqa: PLC0415 - rule 5

    ended: set[int] = set()

    def none_is_left() -> bool:
        found = of_cluster(directory, command_lines())
        for pid in found:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        ended.update(found)
        return not found

    holds_within(none_is_left, _END_LIMIT_SECONDS)
    return sorted(ended)


def of_cluster(directory: Path, commands: Mapping[int, str]) -> list[int]:
    """Return the pids of these command lines that are ZooKeeper, a broker, the launcher or the control server here."""
    from tidegauge_lab.local import control_server, launcher, startup, zookeeper  # noqa: PLC0415 - rule 5

    signs = (
        f" -m {launcher.MODULE} {directory}/ ",
        f" -m {startup.BROKER_MODULE} --config {directory}/broker-",
        f" {zookeeper.MAIN_CLASS} {directory}/",
        f" -m {control_server.MODULE} --dir {directory} ",
    )
    return [pid for pid, command in commands.items() if any(sign in f"{command} " for sign in signs)]


def command_lines() -> dict[int, str]:
    """Return the command lines of all processes of this machine that may be seen, words separated by a space."""
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
