"""``logs/lab.events.jsonl``: what the lab did to the cluster, in the event log's schema (kinds ``fault``, ``restore``).

Beside ``action`` and ``broker`` (null when it was not a broker) a fault has ``process``: ``broker-1`` or ``zookeeper``.
Many short commands write this file: the sequence goes on from the last line, under a lock. It is bounded like a
broker's event log: at ``MAX_BYTES`` it moves to ``.1``.
"""

from __future__ import annotations

import fcntl
import json
import time
from collections.abc import Mapping
from pathlib import Path

from tidegauge import event_log
from tidegauge.files import naming

SOURCE = "lab"
_TAIL_BYTES = 4096


def note_fault(logs: Path, action: str, process: str, broker_id: int | None, cause: str) -> None:
    """Append one fault, stamped with the time of the call."""
    note_event(logs, "fault", cause, {"action": action, "broker": broker_id, "process": process})


def note_event(logs: Path, kind: str, cause: str, fields: Mapping[str, object]) -> None:
    """Append one event, stamped with the time of the call.

    Args:
        logs: the cluster's directory of event logs.
        kind: of ``tidegauge.event_log.KINDS``.
        cause: of the event.
        fields: of the kind.

    Raises:
        OSError: the file can't be written.
    """
    path = logs / event_log.file_name(SOURCE)
    logs.mkdir(parents=True, exist_ok=True)
    time_us = time.time_ns() // 1_000
    with naming(path), path.open("a+b") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        size = file.seek(0, 2)
        file.seek(max(0, size - _TAIL_BYTES))
        event = {
            "time_ms": time_us // 1_000,
            "logical_time": time_us,
            "sequence": next_sequence(file.read()),
            "source": SOURCE,
            "kind": kind,
            "cause": cause,
            **fields,
        }
        line = json.dumps(event, separators=(",", ":")).encode() + b"\n"
        if size + len(line) > event_log.MAX_BYTES:
            path.replace(path.with_name(path.name + ".1"))
            path.write_bytes(line)
        else:
            file.write(line)


def next_sequence(tail: bytes) -> int:
    """One more than the last whole line's sequence; 1 in an empty file, as in a broker."""
    for line in reversed(tail.splitlines()):
        event = event_log.read_line(line)
        if event is not None and "sequence" in event:
            return int(event["sequence"]) + 1
    return 1
