"""One process of a local cluster: started once, found again by any later command, known by more than its number.

Rules:
- A process outlives the command that started it: own session, stdin from the null device, output appended to its
  log file, none of the caller's descriptors.
- The pid file holds three lines: pid, start time, inode of its directory. A pid counts only while the process that has
  it started at that time, so a number that the system gave to another process is never signalled; a copied
  directory does not own the original's processes.
- A zombie counts as dead: it holds no port, lock or connection, and only its parent can make its number vanish. But a
  main thread that is one while others still end is not dead: until the last of them has ended, all is held.
- Paused means that every thread is stopped (``T``): a signal that is merely on its way has no effect yet.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
from collections.abc import Mapping, Sequence
from enum import Enum
from pathlib import Path

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.files import replace_text
from tidegauge.lazy_dataclasses import dataclass
from tidegauge_lab.local.waiting import holds_within

LAST_LINES = 5
_MOST_PID_BYTES = 200
_PID_FILE = re.compile(rb"(?P<pid>[1-9][0-9]{0,9})\n(?P<start>[^\n]+)\n(?P<inode>[0-9]{1,20})\n")
"""Nothing else is a pid: 0 and -1, for example, would mean other processes of the user."""
_SIGNAL_EFFECT_SECONDS = 10.0

# Children of this very process, so that they can be reaped; no other process can do that.
_children: dict[int, subprocess.Popen[bytes]] = {}


class ProcessState(Enum):
    """The state of a process, as ``status`` shows it."""

    UP = "up"
    DOWN = "down"
    PAUSED = "paused"


@dataclass(frozen=True, slots=True)
class ProcessFacts:
    """The system's facts about a pid: when its process started, as the system's own text, and its threads' states."""

    start_time: str
    states: str

    @property
    def gone(self) -> bool:
        """Whether the process has ended: a zombie holds nothing any more, once its last thread is one."""
        return set(self.states) <= {"Z", "X", "x"}

    @property
    def paused(self) -> bool:
        """Whether every thread is stopped."""
        return not self.gone and set(self.states) == {"T"}


def parse_stat(stat: str) -> tuple[str, str]:
    """State and start time in ``/proc/PID/stat``; the name in parentheses may hold spaces and parentheses itself."""
    fields = stat[stat.rindex(")") + 1 :].split()
    return fields[0], fields[19]


def look_up(pid: int) -> ProcessFacts | None:
    """Return the system's facts about a pid; None if it does not exist."""
    if not Path("/proc/self/stat").exists():
        return _look_up_with_ps(pid)
    directory = Path("/proc") / str(pid)
    try:
        main_state, start_time = parse_stat((directory / "stat").read_text(errors="replace"))
    except (OSError, ValueError):
        return None
    states = [main_state]
    with contextlib.suppress(OSError):
        for task in (directory / "task").iterdir():
            with contextlib.suppress(OSError, ValueError):
                states.append(parse_stat((task / "stat").read_text(errors="replace"))[0])
    return ProcessFacts(start_time, "".join(states))


def _look_up_with_ps(pid: int) -> ProcessFacts | None:
    """Do the same if there is no /proc (macOS)."""
    response = subprocess.run(
        ["ps", "-o", "stat=,lstart=", "-p", str(pid)], capture_output=True, text=True, check=False
    ).stdout.split(None, 1)
    return ProcessFacts(response[1].strip(), response[0][:1]) if len(response) == 2 else None


@dataclass(frozen=True, slots=True)
class LabProcess:
    """A process by the files that belong to it.

    Attributes:
        name: ``broker-1`` or ``zookeeper``.
        directory: its working directory, and its pid file's.
        log_file: takes its stdout and stderr.
    """

    name: str
    directory: Path
    log_file: Path

    @property
    def pid_file(self) -> Path:
        """``broker.pid`` or ``zookeeper.pid``."""
        return self.directory / f"{self.name.partition('-')[0]}.pid"

    @property
    def pid(self) -> int | None:
        """Its pid while it runs or is paused."""
        return None if (found := self._find()) is None else found[0]

    @property
    def state(self) -> ProcessState:
        """Up, down or paused."""
        found = self._find()
        if found is None:
            return ProcessState.DOWN
        return ProcessState.PAUSED if found[1].paused else ProcessState.UP

    def spawn(self, command: Sequence[str], environment: Mapping[str, str] | None = None, *, umask: int = -1) -> int:
        """Start it and note its pid; it must be down.

        Args:
            command: the program and its arguments.
            environment: its variables; None: this process's.
            umask: its file mode creation mask; -1: this process's.

        Raises:
            OSError: the command can't be run, or not be noted (``note``).
        """
        assert self.pid is None, f"{self.name} runs already"
        self.make_directories()
        with self.log_file.open("ab") as log:
            child = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.directory,
                env=environment,
                start_new_session=True,
                umask=umask,
            )
        _children[child.pid] = child
        self.note(child.pid)
        return child.pid

    def make_directories(self) -> None:
        """Make the directories of its files that are missing."""
        self.directory.mkdir(parents=True, exist_ok=True)
        self.log_file.parent.mkdir(parents=True, exist_ok=True)

    def note(self, pid: int) -> None:
        """Remember that this process, which has just been started, is the one.

        Raises:
            OSError: its pid file can't be written; the process was killed, since nothing would find it again.
        """
        facts = look_up(pid)
        start_time = "" if facts is None else facts.start_time
        try:
            replace_text(self.pid_file, f"{pid}\n{start_time}\n{self.directory.stat().st_ino}\n")
        except OSError:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
            raise

    def send(self, number: signal.Signals) -> bool:
        """Send a signal; False when the process is dead."""
        pid = self.pid
        if pid is None:
            return False
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            return False
        return True

    def kill(self) -> bool:
        """Send SIGKILL and wait until it is dead. Return False when it was dead before."""
        sent = self.send(signal.SIGKILL)
        if sent and not self.wait_gone(_SIGNAL_EFFECT_SECONDS):
            raise TimeoutError(f"{self.name} (process {self.pid}) is still there after SIGKILL")
        return sent

    def wait_gone(self, limit_seconds: float) -> bool:
        """Whether it ended within the limit."""
        return holds_within(lambda: self.pid is None, limit_seconds)

    def wait_state(self, state: ProcessState, limit_seconds: float = _SIGNAL_EFFECT_SECONDS) -> bool:
        """Whether it came into the state within the limit."""
        return holds_within(lambda: self.state is state, limit_seconds)

    def forget(self) -> None:
        """Remove the pid file: the cluster was taken down on purpose."""
        self.pid_file.unlink(missing_ok=True)

    def log_size(self) -> int:
        """Bytes in the log: the place from which a later ``last_words`` reads."""
        try:
            return self.log_file.stat().st_size
        except FileNotFoundError:
            return 0

    def last_words(self, since_bytes: int = 0) -> str:
        """Return the last lines of its log after a position, to explain its end."""
        try:
            with self.log_file.open("rb") as log:
                log.seek(since_bytes)
                text = log.read().decode("utf-8", errors="replace")
        except FileNotFoundError:
            return ""
        return "\n".join([line for line in text.splitlines() if line.strip()][-LAST_LINES:])

    def _find(self) -> tuple[int, ProcessFacts] | None:
        """Return the recorded process, if it is alive and still the same one."""
        try:
            with self.pid_file.open("rb") as file:
                noted = _PID_FILE.fullmatch(file.read(_MOST_PID_BYTES))
            if noted is None or int(noted["inode"]) != self.directory.stat().st_ino:
                return None
        except OSError:
            return None
        pid, start_time = int(noted["pid"]), noted["start"].decode("utf-8", errors="replace")
        child = _children.get(pid)
        if child is not None and child.poll() is not None:
            del _children[pid]
        facts = look_up(pid)
        if facts is None or facts.gone or facts.start_time != start_time:
            return None
        return pid, facts


def living_children() -> list[int]:
    """Pids of processes that this very process started and that have not ended; for leak checks."""
    for pid, child in list(_children.items()):
        if child.poll() is not None:
            del _children[pid]
    return sorted(_children)


def ended(process: LabProcess, log_place: int) -> TidegaugeError:
    """Return the error of a process that ended during a wait."""
    words = process.last_words(log_place).splitlines()
    why = words[-1].strip() if words else "it wrote nothing"
    return TidegaugeError(
        ErrorCode.BROKER_NOT_AVAILABLE, f"{process.name} ended while it started: {why} (its log: {process.log_file})"
    )
