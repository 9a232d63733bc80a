"""The clients of a scenario: processes with real clients that obey a line at a time, started, paused and killed.

Rules:
    1. A client has one command at a time; one whose response is awaited later keeps the next from being sent.
    2. Every process ends with the run, also one that is paused. Where the run itself is killed, one that is not paused
       ends with its standard input; the run's guard ends the others (``sign_of``).
"""

from __future__ import annotations

import json
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Generic, TypeVar

from tidegauge.errors import ErrorCode, TidegaugeError

_END_SECONDS = 10.0


def sign_of(directory: Path) -> str:
    """Return the sign in command lines of clients that log to a directory."""
    return f"_process {directory}/"


class ClientProcess:
    """One client's process.

    Args:
        module: what it runs, with ``errors`` and ``described`` as its arguments; its name ends with ``_process``.
        described: the client, as the module wants it.
        errors: the file for its error output.
    """

    kind = "client"

    def __init__(self, module: str, described: Mapping[str, Any], errors: Path) -> None:
        self._errors = errors.open("ab")
        self._process = subprocess.Popen(
            [sys.executable, "-W", "ignore", "-m", module, str(errors), json.dumps(described)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
        )
        self._responses: queue.Queue[dict[str, Any] | None] = queue.Queue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._responses.put(json.loads(line))
        self._responses.put(None)

    def send(self, **command: Any) -> None:
        """Send a command.

        Raises:
            TidegaugeError: BROKER_NOT_AVAILABLE, the process has ended.
        """
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(command) + "\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            raise self._ended() from None

    def response(self, limit_seconds: float) -> dict[str, Any] | None:
        """Return the response to the last command; None if it is late.

        Raises:
            TidegaugeError: BROKER_NOT_AVAILABLE, the process has ended.
        """
        try:
            found = self._responses.get(timeout=limit_seconds)
        except queue.Empty:
            return None
        if found is None:
            raise self._ended()
        return found

    def _ended(self) -> TidegaugeError:
        return TidegaugeError(
            ErrorCode.BROKER_NOT_AVAILABLE, f"the {self.kind}'s process has ended; {self._errors.name} says why"
        )

    def pause(self) -> None:
        """Freeze the process (SIGSTOP)."""
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Let the paused process run again (SIGCONT)."""
        self._process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        """End the process by kill -9, and all that it has here."""
        self._process.kill()
        self._process.wait(_END_SECONDS)
        self._reader.join(_END_SECONDS)
        for pipe in (self._process.stdin, self._process.stdout, self._errors):
            if pipe is not None:
                try:
                    pipe.close()
                except BrokenPipeError:  # a command that the process no longer read
                    continue


Running = TypeVar("Running", bound=ClientProcess)


class Clients(Generic[Running]):
    """All clients of one kind in a run, by name."""

    kind = "client"

    def __init__(self) -> None:
        self._running: dict[str, Running] = {}

    def check_new(self, name: str) -> None:
        """Refuse a name that is taken.

        Raises:
            TidegaugeError: INVALID_REQUEST, it runs already.
        """
        if name in self._running:
            raise TidegaugeError(ErrorCode.INVALID_REQUEST, f"there is a {self.kind} {name} already")

    def __contains__(self, name: str) -> bool:
        return name in self._running

    def __getitem__(self, name: str) -> Running:
        """Return a client that runs.

        Raises:
            TidegaugeError: INVALID_REQUEST, there is none of this name.
        """
        if name not in self._running:
            known = ", ".join(self._running) or "none"
            raise TidegaugeError(ErrorCode.INVALID_REQUEST, f"no {self.kind} {name} runs; those that run: {known}")
        return self._running[name]

    def kill(self, name: str) -> None:
        """End a client by kill -9, or give back what one that has ended leaves."""
        self[name].kill()
        del self._running[name]

    def close(self) -> None:
        """End all."""
        for name in list(self._running):
            self.kill(name)
