"""The cluster's directory: its locks, what ``--purge`` deletes, the fault log, reserved ports."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from tidegauge import event_log
from tidegauge.errors import TidegaugeError
from tidegauge_client.cluster_file import FILE_NAME, ClusterFile, holds_secrets
from tidegauge_lab.local import layout, locks
from tidegauge_lab.local.fault_log import next_sequence, note_fault
from tidegauge_lab.local.plan import first_plan
from tidegauge_lab.local.ports import Reservations
from tidegauge_lab.local.waiting import TimeLimitError
from tidegauge_lab.local.wanted import Wanted


def make_cluster(directory: Path) -> None:
    file = first_plan(directory, Wanted(), free=lambda _: True).file
    layout.make_directories(directory, file)
    (directory / "broker-0" / "data").mkdir()
    file.save(directory)


@pytest.mark.parametrize(
    ("name", "is_secret"),
    [
        ("listener.name.sasl_plaintext.plain.sasl.jaas.config", True),
        ("1:sasl.jaas.config", True),
        ("ssl.keystore.key", True),
        ("ssl.keystore.location", False),
        ("1:broker.rack", False),
    ],
)
def test_a_file_with_passwords_or_keys_is_its_owners_alone(tmp_path: Path, name: str, is_secret: bool) -> None:
    settings = {name: "x"}
    assert holds_secrets(settings) is is_secret
    ClusterFile("h:1", zookeeper_managed=True, profile="fast", brokers=[], settings=settings).save(tmp_path)
    mode = (tmp_path / "cluster.json").stat().st_mode & 0o777
    assert (mode == 0o600) is is_secret


def test_one_holds_alone_and_many_hold_together(tmp_path: Path) -> None:
    lock = tmp_path / ".lock"
    with locks.hold(lock, 0):
        for shared in (False, True):
            with pytest.raises(TimeLimitError, match="another tidegauge command"), locks.hold(lock, 0, shared=shared):
                pass
    together = locks.hold(lock, 0, shared=True), locks.hold(lock, 0, shared=True)
    with together[0], together[1], pytest.raises(TimeLimitError), locks.hold(lock, 0):
        pass
    with locks.hold(lock, 0):
        pass


def test_a_lock_in_a_removed_directory_is_reported(tmp_path: Path) -> None:
    with pytest.raises(TidegaugeError, match="does not exist any more"), locks.hold(tmp_path / "gone" / ".lock", 0):
        pass


def test_purge_deletes_what_up_made_and_the_empty_directory(tmp_path: Path) -> None:
    directory = tmp_path / "cluster"
    make_cluster(directory)
    layout.remove_cluster(directory)
    assert not directory.exists()


def test_purge_leaves_files_of_the_user_and_follows_no_link(tmp_path: Path) -> None:
    directory, precious = tmp_path / "cluster", tmp_path / "precious"
    make_cluster(directory)
    precious.mkdir()
    (precious / "file").touch()
    (directory / "notes.txt").touch()
    (directory / "broker-7").symlink_to(precious)
    layout.remove_cluster(directory)
    assert [path.name for path in directory.iterdir()] == ["notes.txt"]
    assert (precious / "file").exists()


def test_purge_refuses_a_directory_that_up_did_not_make(tmp_path: Path) -> None:
    (tmp_path / "broker-0").mkdir()
    with pytest.raises(AssertionError):
        layout.remove_cluster(tmp_path)
    assert (tmp_path / "broker-0").exists()


def test_a_new_cluster_does_not_mix_with_what_is_there(tmp_path: Path) -> None:
    layout.require_new(tmp_path / "new")
    (tmp_path / "notes.txt").touch()
    layout.require_new(tmp_path)
    with pytest.raises(TidegaugeError, match="is a file"):
        layout.require_new(tmp_path / "notes.txt")
    (tmp_path / "broker-0").mkdir()
    with pytest.raises(TidegaugeError, match=f"holds broker-0 but no {FILE_NAME}"):
        layout.require_new(tmp_path)


def test_faults_are_events_whose_sequence_goes_on_from_command_to_command(tmp_path: Path) -> None:
    note_fault(tmp_path, "kill", "broker-1", 1, "Lab")
    note_fault(tmp_path, "pause", "zookeeper", None, "Lab")
    first, second = event_log.read_directory(tmp_path)
    assert (first["sequence"], first["kind"], first["action"], first["broker"], first["source"]) == (
        1,
        "fault",
        "kill",
        1,
        "lab",
    )
    assert (second["sequence"], second["broker"], second["process"]) == (2, None, "zookeeper")
    assert first["time_ms"] <= second["time_ms"]
    assert first["kind"] in event_log.KINDS


def test_the_fault_log_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_log, "MAX_BYTES", 400)
    for _ in range(4):
        note_fault(tmp_path, "kill", "broker-1", 1, "Lab")
    path = tmp_path / "lab.events.jsonl"
    assert path.stat().st_size <= 400
    assert [event["sequence"] for event in event_log.read_events(path)] == [1, 2, 3, 4]


@pytest.mark.parametrize(
    ("tail", "following"),
    [
        (b"", 1),
        (b'{"sequence":4}\n', 5),
        (b'ce":3}\n{"sequence":4}\n{"sequ', 5),
        (b"broken\n", 1),
    ],
)
def test_an_incomplete_line_does_not_stop_the_sequence(tail: bytes, following: int) -> None:
    assert next_sequence(tail) == following


def test_ports_of_a_directory_stay_reserved_while_any_of_its_processes_runs(tmp_path: Path) -> None:
    """Otherwise another's first ``up`` takes the port of a broker that was killed, and it can't come back."""
    one, two = tmp_path / "one", tmp_path / "two"
    one.mkdir()
    two.mkdir()
    now = [1000.0]
    running = {one}
    reservations = Reservations(tmp_path / "ports.json", lambda: now[0], lambda directory: directory in running)
    reservations.hold(one, [19092, 19093])
    for _ in range(3):
        now[0] += 3600
        assert reservations.owned() == {19092, 19093}
        with reservations.choosing(two) as reserved:
            assert reserved.others == {19092, 19093}
    running.clear()
    now[0] += 30
    with reservations.choosing(two) as reserved:
        assert reserved.others == {19092, 19093}, "it may be between two starts"
    now[0] += 31
    with reservations.choosing(two) as reserved:
        assert reserved.others == frozenset()


def test_the_processes_of_a_directory_are_found_by_their_pid_files(tmp_path: Path) -> None:
    process = layout.broker_process(tmp_path, 0)
    process.directory.mkdir()
    (tmp_path / layout.LOGS).mkdir()
    assert not layout.runs(tmp_path)
    pid = process.spawn([sys.executable, "-c", "import signal; signal.pause()"])
    assert layout.runs(tmp_path)
    assert process.pid == pid
    process.kill()
    assert not layout.runs(tmp_path)


def test_ports_chosen_by_one_directory_are_reserved_until_it_has_started(tmp_path: Path) -> None:
    """Two first ``up`` at the same time must not choose the same ports."""
    one, two = tmp_path / "one", tmp_path / "two"
    one.mkdir()
    two.mkdir()
    now = [1000.0]
    reservations = Reservations(tmp_path / "ports.json", lambda: now[0])
    with reservations.choosing(one) as reserved:
        assert reserved.others == frozenset()
        reserved.chosen.extend([19092, 12181])
    with reservations.choosing(two) as reserved:
        assert reserved.others == {19092, 12181}
        reserved.chosen.append(19093)
    with reservations.choosing(one) as reserved:
        assert reserved.others == {19093}
        reserved.chosen.append(19092)
    reservations.release(one)
    with reservations.choosing(two) as reserved:
        assert reserved.others == frozenset()
        reserved.chosen.append(19093)
    now[0] += 3600
    with reservations.choosing(one) as reserved:
        assert reserved.others == frozenset()


def test_a_reservation_of_a_removed_directory_or_a_damaged_file_counts_for_nothing(tmp_path: Path) -> None:
    path = tmp_path / "ports.json"
    path.write_text(json.dumps({"19092": [str(tmp_path / "gone"), 1000.0]}))
    with Reservations(path, lambda: 1001.0).choosing(tmp_path) as reserved:
        assert reserved.others == frozenset()
    path.write_text('{"19092": [')
    with Reservations(path, lambda: 1001.0).choosing(tmp_path) as reserved:
        assert reserved.others == frozenset()


def test_a_directory_that_the_system_refuses_is_the_users_to_change(tmp_path: Path) -> None:
    """No directory can be made below a file, whoever asks: the sentence has the path, the reason and what to do."""
    (tmp_path / "file").touch()
    file = first_plan(tmp_path, Wanted(), free=lambda _: True).file
    with pytest.raises(TidegaugeError, match=r"can't hold a cluster: .*/file/c/logs: Not a directory; use another"):
        layout.write(tmp_path / "file" / "c", file)
