"""Logs of several processes as one stream (``tidegauge logs``)."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

from tidegauge_lab.timeline.merged_logs import FollowedFile, LogLine, merge, time_of


def stamp(clock: str) -> str:
    return f"[2026-11-20 {clock}] INFO"


def test_times_of_brokers_are_local_and_those_of_zookeeper_utc() -> None:
    assert (
        time_of("[2026-11-20 12:00:00,250] INFO x")
        == datetime(2026, 11, 20, 12, 0, 0, 250_000).astimezone().timestamp()
    )
    assert time_of("2026-11-20T12:00:00.250123456Z main INFO x") == 1795176000.25
    assert time_of("Traceback (most recent call last):") is None
    assert time_of("[2026-13-20 12:00:00,250] no such month") is None


def test_lines_come_in_the_order_of_time() -> None:
    files = {
        "broker-0": [f"{stamp('12:00:01,000')} a", f"{stamp('12:00:03,000')} c"],
        "broker-1": [f"{stamp('12:00:02,000')} b", f"{stamp('12:00:03,000')} d"],
    }
    assert [line.text[-1] for line in merge(files)] == ["a", "b", "c", "d"]


def test_a_traceback_stays_behind_its_line_and_unstamped_beginnings_come_first() -> None:
    files = {
        "broker-0": [f"{stamp('12:00:01,000')} failed", "Traceback", "  ValueError"],
        "broker-1": ["preface", f"{stamp('12:00:01,500')} later"],
    }
    assert [line.text.split()[-1] for line in merge(files)] == ["preface", "failed", "Traceback", "ValueError", "later"]


def test_a_clock_that_was_set_back_does_not_exchange_lines_of_a_file() -> None:
    lines = [f"{stamp('12:00:05,000')} one", f"{stamp('12:00:01,000')} two"]
    assert list(merge({"broker-0": lines})) == [LogLine("broker-0", line) for line in lines]


def test_following_gives_whole_lines_once(tmp_path: Path) -> None:
    path = tmp_path / "broker-0.log"
    followed = FollowedFile(path)
    assert list(followed.new_lines()) == []
    path.write_bytes(b"one\ntw")
    assert list(followed.new_lines()) == ["one"]
    assert followed.last_line() == "tw"
    with path.open("ab") as file:
        file.write(b"o\r\n\xff\n")
    assert list(followed.new_lines()) == ["two", "\ufffd"]
    assert followed.last_line() is None
    assert list(followed.new_lines()) == []


def test_a_file_that_was_truncated_is_read_from_its_start(tmp_path: Path) -> None:
    path = tmp_path / "broker-0.log"
    path.write_bytes(b"a long first line\n")
    followed = FollowedFile(path)
    assert list(followed.new_lines()) == ["a long first line"]
    path.write_bytes(b"new\n")
    assert list(followed.new_lines()) == ["new"]
