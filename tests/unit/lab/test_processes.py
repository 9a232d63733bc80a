"""Which process a pid file names, and what counts as dead or paused: kill, pause, pid reuse, zombies."""

from __future__ import annotations

import errno
import os
import signal
from pathlib import Path

import pytest

from tidegauge_lab.local import processes
from tidegauge_lab.local.processes import LabProcess, ProcessFacts, ProcessState, parse_stat


def stat_line(name: str, state: str, start_time: int) -> str:
    fields = [state, *(["0"] * 18), str(start_time), *(["0"] * 30)]
    return f"4711 ({name}) {' '.join(fields)}\n"


def lab_process(directory: Path, *, pid: int, start_time: str) -> LabProcess:
    (directory / "broker.pid").write_text(f"{pid}\n{start_time}\n{directory.stat().st_ino}\n")
    return LabProcess("broker-1", directory, directory / "broker-1.log")


@pytest.mark.parametrize("name", ["python", "a b", "evil) R 1 (", "(sd-pam)"])
def test_state_and_start_time_are_read_past_any_name(name: str) -> None:
    assert parse_stat(stat_line(name, "S", 98765)) == ("S", "98765")


def test_this_process_is_found_with_its_start_time() -> None:
    facts = processes.look_up(os.getpid())
    assert facts is not None
    assert not facts.gone
    assert not facts.paused
    assert facts.start_time


@pytest.mark.parametrize(
    ("states", "gone", "paused"),
    [("Z", True, False), ("ZZ", True, False), ("X", True, False), ("SS", False, False), ("TTT", False, True)],
)
def test_a_zombie_is_dead_and_a_stopped_process_is_paused(states: str, gone: bool, paused: bool) -> None:
    facts = ProcessFacts("1", states)
    assert (facts.gone, facts.paused) == (gone, paused)


def test_a_dying_process_is_dead_with_its_last_thread() -> None:
    """After SIGKILL the main thread may be a zombie while others still hold the port."""
    assert not ProcessFacts("1", "ZR").gone
    assert not ProcessFacts("1", "ZZS").gone


def test_a_process_with_one_running_thread_is_not_paused_yet() -> None:
    """SIGSTOP has its effect when the last thread has stopped."""
    assert not ProcessFacts("1", "TTR").paused


@pytest.mark.parametrize(
    ("states", "state"), [("SS", ProcessState.UP), ("TT", ProcessState.PAUSED), ("Z", ProcessState.DOWN)]
)
def test_state_follows_the_system(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, states: str, state: ProcessState
) -> None:
    monkeypatch.setattr(processes, "look_up", lambda _: ProcessFacts("77", states))
    process = lab_process(tmp_path, pid=4711, start_time="77")
    assert process.state is state
    assert process.pid == (None if state is ProcessState.DOWN else 4711)


def test_a_number_given_to_another_process_is_not_ours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The pid lives, but started at another time: it is another process and must never be signalled."""
    monkeypatch.setattr(processes, "look_up", lambda _: ProcessFacts("78", "S"))
    monkeypatch.setattr(os, "kill", lambda *_: pytest.fail("signalled a stranger"))
    process = lab_process(tmp_path, pid=4711, start_time="77")
    assert process.state is ProcessState.DOWN
    assert process.kill() is False


def test_a_copied_directory_does_not_own_the_originals_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "look_up", lambda _: ProcessFacts("77", "S"))
    original, copy = tmp_path / "original", tmp_path / "copy"
    original.mkdir()
    copy.mkdir()
    owner = lab_process(original, pid=4711, start_time="77")
    (copy / "broker.pid").write_text(owner.pid_file.read_text())
    assert owner.pid == 4711
    assert LabProcess("broker-1", copy, copy / "log").pid is None


@pytest.mark.parametrize("text", ["", "4711\n", "x\ny\nz\n", "4711\n77\n"])
def test_a_damaged_pid_file_is_no_process(tmp_path: Path, text: str) -> None:
    (tmp_path / "broker.pid").write_text(text)
    assert LabProcess("broker-1", tmp_path, tmp_path / "log").state is ProcessState.DOWN


def test_last_words_are_those_of_the_last_start(tmp_path: Path) -> None:
    log = tmp_path / "broker-1.log"
    process = LabProcess("broker-1", tmp_path, log)
    assert process.last_words() == ""
    log.write_text("old failure\n")
    since = process.log_size()
    with log.open("a") as file:
        file.write("one\n\ntwo\n")
    assert process.last_words(since) == "one\ntwo"


def test_the_error_of_a_full_disk_names_the_pid_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A write names no file, and a verb would say that its output can't be written (``tidegauge.cli.refusal``)."""
    monkeypatch.setattr(os, "kill", lambda *_: None)
    process = LabProcess("broker-1", tmp_path, tmp_path / "broker-1.log")

    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(Path, "write_text", full)
    with pytest.raises(OSError, match=os.strerror(errno.ENOSPC)) as full:
        process.note(4711)
    assert full.value.filename == str(process.pid_file)


def test_a_process_that_can_not_be_noted_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A disk that is full: no pid file names it, so neither ``down`` nor ``status`` would ever find it again."""
    killed: list[tuple[int, int]] = []
    monkeypatch.setattr(os, "kill", lambda pid, number: killed.append((pid, number)))
    missing = tmp_path / "missing"
    with pytest.raises(OSError, match="missing"):
        LabProcess("broker-1", missing, tmp_path / "broker-1.log").note(4711)
    assert killed == [(4711, signal.SIGKILL)]
