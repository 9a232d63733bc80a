"""The cluster's end of the brokers' launcher (tidegauge_broker.server.launcher): loads once, starts many.

Rules:
- The launcher begins to load as soon as it is entered, so that it has loaded when ZooKeeper serves.
- Where there is none (other systems than Linux) or where it fails, brokers are started by a command each: slower, and
  the same otherwise. What is wrong with the installation, a broker's own log tells then.
- It lives no longer than the ``with``; the brokers do.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from tidegauge_lab.local.processes import LabProcess

MODULE = "tidegauge_broker.server.launcher"
_RESPONSE_LIMIT_SECONDS = 60.0
_END_LIMIT_SECONDS = 10.0
_ROOM_FOR_COMMAND = " " * 4096
"""The brokers write their command lines over the launcher's: it must be long enough."""


def environment_of_brokers() -> dict[str, str]:
    """Return this process's variables, but for what the command line has set for its own gRPC.

    A broker with TLS reads what the library says of handshakes, which has to be as talkative as it is by itself.
    """
    return {name: value for name, value in os.environ.items() if name != "GRPC_VERBOSITY"}


class Launcher:
    """Starts brokers; an object to use in a ``with``.

    Args:
        directory: the cluster's directory.
        wanted: False: there is nothing to start.
    """

    def __init__(self, directory: Path, *, wanted: bool) -> None:
        self._directory = directory
        self._wanted = wanted and sys.platform == "linux"
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        if self._wanted:
            with contextlib.suppress(OSError):
                self._process = subprocess.Popen(
                    [sys.executable, "-P", "-m", MODULE, f"{self._directory}/", _ROOM_FOR_COMMAND],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.DEVNULL,
                    start_new_session=True,
                    env=environment_of_brokers(),
                )
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end(at_once=kind is not None)

    def start(self, process: LabProcess, command: list[str], environment: Mapping[str, str] | None = None) -> int:
        """Start a broker by this command, with these variables or one's own; gives its pid. It must be down.

        Raises:
            OSError: the command can't be run.
        """
        if self._process is None:
            return process.spawn(command, environment)
        process.make_directories()
        variables = None if environment is None else dict(environment)
        pid = self._order(self._process, (command, str(process.directory), str(process.log_file), variables))
        if pid is None:
            self._end(at_once=True)
            return process.spawn(command, environment)
        process.note(pid)
        return pid

    @staticmethod
    def _order(launcher: subprocess.Popen[bytes], order: tuple[object, ...]) -> int | None:
        assert launcher.stdin is not None
        assert launcher.stdout is not None
        try:
            launcher.stdin.write(json.dumps(order).encode() + b"\n")
            launcher.stdin.flush()
        except OSError:
            return None
        responded, _, _ = select.select([launcher.stdout], [], [], _RESPONSE_LIMIT_SECONDS)
        line = launcher.stdout.readline() if responded else b""
        return int(line) if line else None

    def _end(self, *, at_once: bool) -> None:
        launcher, self._process = self._process, None
        if launcher is None:
            return
        if at_once:
            launcher.kill()
        try:
            launcher.communicate(timeout=_END_LIMIT_SECONDS)
        except subprocess.TimeoutExpired:
            launcher.kill()
            launcher.communicate()
