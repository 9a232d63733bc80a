"""How a process ended, by the files of its cluster: by the lab, in order, with its last error, or from outside."""

from __future__ import annotations

import json
import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from tidegauge_client.process_end import LogTail, ProcessEnd, end_of, read_end, tail_of

STARTED_MS = 1_000


def lab(action: str, time_ms: int = 2_000, process: str = "broker-1") -> dict[str, Any]:
    return {"kind": "fault", "action": action, "process": process, "time_ms": time_ms}


def state(name: str, time_ms: int = 3_000) -> dict[str, Any]:
    return {"kind": "broker", "state": name, "time_ms": time_ms}


ERROR = LogTail("[Errno 28] No space left on device", 2_500)


@pytest.mark.parametrize(
    ("own", "by_lab", "log", "how", "time_ms", "signal"),
    [
        ([], [lab("kill")], LogTail(), "killed", 2_000, "SIGKILL"),
        ([state("stopped")], [lab("stop")], LogTail(), "stopped", 2_000, "SIGTERM"),
        ([state("stopped")], [], LogTail(), "shut-down", 3_000, ""),
        ([state("stopped")], [], ERROR, "shut-down", 3_000, ""),
        ([state("registered")], [], LogTail("", 4_000), "ended", 4_000, ""),
        ([state("registered")], [], ERROR, "ended", 3_000, ""),
        # A fault of another process, or of the one before, is not its end.
        ([], [lab("kill", process="broker-2")], LogTail("", 2_500), "ended", 2_500, ""),
        ([state("stopped", 900)], [lab("kill", 900)], LogTail("", 2_500), "ended", 2_500, ""),
        ([], [lab("pause"), lab("resume")], LogTail("", 2_500), "ended", 2_500, ""),
        ([], [lab("kill", 1_500), lab("start", 1_600)], LogTail(), "killed", 1_500, "SIGKILL"),
        # A stop that took too long, and then a kill.
        ([], [lab("stop", 1_500), lab("kill", 1_700)], LogTail(), "killed", 1_700, "SIGKILL"),
    ],
)
def test_how_a_process_ended(
    own: list[dict[str, Any]], by_lab: list[dict[str, Any]], log: LogTail, how: str, time_ms: int, signal: str
) -> None:
    end = end_of("broker-1", STARTED_MS, own, by_lab, log)
    assert (end.how, end.time_ms, end.signal) == (how, time_ms, signal)
    assert end.last_error == ("" if how == "killed" else log.last_error)


def test_each_end_is_a_sentence() -> None:
    at = f"{datetime.fromtimestamp(2).astimezone():%H:%M:%S}"
    assert ProcessEnd("killed", 2_000, "SIGKILL").sentence == f"was killed by the lab (SIGKILL) at {at}"
    assert ProcessEnd("stopped", 2_000, "SIGTERM").sentence == f"was stopped by the lab (SIGTERM) at {at}"
    assert ProcessEnd("shut-down", 2_000).sentence == f"shut down in order at {at}"
    assert ProcessEnd("shut-down", 2_000, "", "full").sentence == f"shut down at {at}; its last error: full"
    assert ProcessEnd("ended", 2_000, "", "full").sentence == f"ended at {at}; its last error: full"
    assert ProcessEnd("ended", 0).sentence == (
        "ended; its log has no error: it was killed from outside, or the machine ended it"
    )


def line(second: int, level: str, text: str) -> str:
    return f"[{datetime.fromtimestamp(second, UTC).astimezone():%Y-%m-%d %H:%M:%S},000] {level} {text} (tidegauge.x)"


def test_the_last_error_since_the_start_counts_and_its_cause_before_its_consequences() -> None:
    """A full disk: "all log dirs have failed" follows from it, and may not even have reached the full disk's log."""
    first = line(10, "ERROR", "of the process before")
    full = line(20, "ERROR", "Error while writing in dir D: [Errno 28] No space left on device")
    after = line(21, "ERROR", "Shutdown broker because all log dirs have failed")
    assert tail_of("\n".join([first, line(12, "INFO", "fine")]), 11_000) == LogTail("", 12_000)
    found = tail_of("\n".join([first, full, after, "  a traceback", line(22, "INFO", "bye")]), 11_000)
    assert found == LogTail("Error while writing in dir D: [Errno 28] No space left on device", 22_000)
    later = tail_of("\n".join([full, line(60, "CRITICAL", "Halting broker 1")]), 11_000)
    assert later.last_error == "Halting broker 1", "that is another trouble"


def test_the_files_of_the_cluster_say_it(tmp_path: Path) -> None:
    assert read_end(tmp_path, "broker-1") is None, "without a pid file it was taken down, or never ran"
    (tmp_path / "broker-1").mkdir()
    (tmp_path / "broker-1/broker.pid").write_text("1\n2\n3\n")
    os.utime(tmp_path / "broker-1/broker.pid", (15, 15))
    assert read_end(tmp_path, "broker-1") == ProcessEnd("ended", 0)
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs/broker-1.log").write_text(line(20, "ERROR", "full") + "\nhalf a li")
    assert read_end(tmp_path, "broker-1") == ProcessEnd("ended", 20_000, "", "full")
    (tmp_path / "logs/lab.events.jsonl").write_text(json.dumps(lab("kill", 21_000)) + "\n")
    assert read_end(tmp_path, "broker-1") == ProcessEnd("killed", 21_000, "SIGKILL")


def test_a_long_error_is_cut_short() -> None:
    assert tail_of(line(20, "ERROR", "x" * 1_000), 0).last_error == "x" * 300
