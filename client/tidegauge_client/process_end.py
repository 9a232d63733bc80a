"""How a process of a local cluster ended, by the files in its directory: when, by whom, with which last error.

Rules:
    1. The pid file was written when the process started, so only events and log lines from its time on are about it.
       Without a pid file there is no end to report: the process never ran, or the cluster was taken down on purpose.
    2. The lab notes a kill or a stop before its signal, so the last of them since the start is what ended the process.
    3. A broker that wrote ``stopped`` shut down in order: for a SIGTERM, or by itself after an error.
    4. Any other end left no event. Its last ERROR or CRITICAL line says why; without one it was killed from
       outside (SIGKILL, the kernel's OOM killer), and the time is its last sign of life.
    5. The last error is often a consequence ("all log dirs have failed"), and a full disk takes the last lines of the
       log itself. So a line that names an error of the operating system counts before those that follow it at once.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from tidegauge.event_log import file_name, read_events
from tidegauge.lazy_dataclasses import dataclass
from tidegauge.terminal_text import shown_controls

_TAIL_BYTES = 128 * 1024
_LINE = re.compile(r"\[(?P<time>\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3})\] (?P<level>[A-Z]+) (?P<text>.*)")
_LOGGER = re.compile(r" \([\w.]+\)$")
_LONGEST_ERROR = 300
_SYSTEM_ERROR = "[Errno "
_AT_ONCE_MS = 5_000
Event = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ProcessEnd:
    """The end of a process.

    Attributes:
        how: ``killed`` or ``stopped`` by the lab, ``shut-down`` in order, or ``ended`` in another way.
        time_ms: ms since 1970; 0: unknown.
        signal: that the lab sent; empty: none.
        last_error: the last error in its log; empty: none.
    """

    how: str
    time_ms: int
    signal: str = ""
    last_error: str = ""

    @property
    def sentence(self) -> str:
        """Return the predicate of a sentence about the process's end."""
        at = f" at {datetime.fromtimestamp(self.time_ms / 1000).astimezone():%H:%M:%S}" if self.time_ms else ""
        error = f"; its last error: {self.last_error}" if self.last_error else ""
        match self.how:
            case "killed":
                return f"was killed by the lab ({self.signal}){at}"
            case "stopped":
                return f"was stopped by the lab ({self.signal}){at}{error}"
            case "shut-down":
                return f"shut down{at}{error}" if error else f"shut down in order{at}"
        unexplained = error or "; its log has no error: it was killed from outside, or the machine ended it"
        return f"ended{at}{unexplained}"

    def to_json(self) -> dict[str, Any]:
        """Return the form of ``status -o json``."""
        return {"how": self.how, "time_ms": self.time_ms, "signal": self.signal, "last_error": self.last_error}


@dataclass(frozen=True, slots=True)
class LogTail:
    """The news in a process's log since its start: its last error, and the time of its last line in ms (0: none)."""

    last_error: str = ""
    last_ms: int = 0


def end_of(process: str, started_ms: int, own: Iterable[Event], lab: Iterable[Event], log: LogTail) -> ProcessEnd:
    """Return how a process ended that is dead now. Pure.

    Args:
        process: ``broker-1`` or ``zookeeper``.
        started_ms: when it started.
        own: the events that it wrote.
        lab: the lab's events.
        log: the tail of its log.
    """
    ended_by = [
        event
        for event in lab
        if event.get("kind") == "fault"
        and event.get("process") == process
        and event.get("action") in {"kill", "stop"}
        and int(event.get("time_ms", 0)) >= started_ms
    ]
    last_ms, is_stopped = log.last_ms, False
    for event in own:
        if int(event.get("time_ms", 0)) >= started_ms:
            last_ms = max(last_ms, int(event["time_ms"]))
            is_stopped = event.get("kind") == "broker" and event.get("state") == "stopped"
    if ended_by:
        last = ended_by[-1]
        if last["action"] == "kill":
            return ProcessEnd("killed", int(last["time_ms"]), "SIGKILL")
        return ProcessEnd("stopped", int(last["time_ms"]), "SIGTERM", log.last_error)
    return ProcessEnd("shut-down" if is_stopped else "ended", last_ms, "", log.last_error)


def tail_of(text: str, started_ms: int) -> LogTail:
    """Return what the lines of a log say since a time. Pure."""
    last_error, last_ms, cause_ms = "", 0, 0
    for line in text.splitlines():
        found = _LINE.fullmatch(line)
        if found is None:
            continue
        time_ms = round(datetime.strptime(found["time"], "%Y-%m-%d %H:%M:%S,%f").astimezone().timestamp() * 1000)
        if time_ms < started_ms:
            continue
        last_ms = time_ms
        if found["level"] in {"ERROR", "CRITICAL"}:
            if _SYSTEM_ERROR in found["text"]:
                cause_ms = time_ms
            elif time_ms - cause_ms <= _AT_ONCE_MS:
                continue  # rule 5
            last_error = shown_controls(_LOGGER.sub("", found["text"]))[:_LONGEST_ERROR]
    return LogTail(last_error, last_ms)


def read_end(directory: Path, process: str) -> ProcessEnd | None:
    """Return how a process of the cluster in a directory ended.

    Args:
        directory: the cluster's.
        process: ``broker-1`` or ``zookeeper``; it must be dead.

    Returns:
        Its end; None without a pid file (rule 1).
    """
    logs = directory / "logs"
    try:
        started_ms = int((directory / process / f"{process.partition('-')[0]}.pid").stat().st_mtime * 1000)
    except OSError:
        return None
    own, lab = read_events(logs / file_name(process)), read_events(logs / file_name("lab"))
    return end_of(process, started_ms, own, lab, tail_of(_tail(logs / f"{process}.log"), started_ms))


def _tail(path: Path) -> str:
    """Return the last lines of a log; nothing if it can't be read."""
    try:
        with path.open("rb") as file:
            file.seek(max(0, file.seek(0, 2) - _TAIL_BYTES))
            return file.read().decode("utf-8", errors="replace")
    except OSError:
        return ""
