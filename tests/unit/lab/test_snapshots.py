"""Snapshots as directories: complete or not there, replaced as a whole, refused for another cluster (snapshots.py)."""

from __future__ import annotations

import json
import os
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.event_log import read_events
from tidegauge_client.cluster_file import BrokerEntry, ClusterFile
from tidegauge_lab.local import layout, snapshots
from tidegauge_lab.local.topology import topology_of


def cluster_in(directory: Path, text: str) -> ClusterFile:
    brokers = [BrokerEntry(number, "127.0.0.1", 1 + number, "") for number in range(2)]
    for path in ("broker-0/data", "broker-0/data-2", "broker-1/data", "zookeeper/data"):
        (directory / path / "t-0").mkdir(parents=True, exist_ok=True)
        (directory / path / "t-0" / "00.log").write_text(f"{text} {path}")
    return ClusterFile("127.0.0.1:1", zookeeper_managed=True, profile="fast", brokers=brokers)


def test_what_is_put_back_is_what_was_taken(tmp_path: Path):
    """Every log directory and ZooKeeper's; what came since is removed."""
    file = cluster_in(tmp_path, "first")
    snapshots.take(tmp_path, file, "one")
    cluster_in(tmp_path, "second")
    (tmp_path / "broker-1/data/u-0").mkdir()
    snapshots.put_back(tmp_path, file, "one")
    assert (tmp_path / "broker-0/data-2/t-0/00.log").read_text() == "first broker-0/data-2"
    assert (tmp_path / "zookeeper/data/t-0/00.log").read_text() == "first zookeeper/data"
    assert not (tmp_path / "broker-1/data/u-0").exists()
    cluster_in(tmp_path, "third")
    snapshots.take(tmp_path, file, "one")
    snapshots.put_back(tmp_path, file, "one")
    assert (tmp_path / "broker-0/data/t-0/00.log").read_text() == "third broker-0/data", (
        "one of the same name is replaced"
    )
    assert snapshots.names(tmp_path) == ["one"]


def test_a_restore_that_fails_leaves_the_data_as_they_were(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Rule 3, at whichever directory the disk is full; and the next restore is whole."""
    file = cluster_in(tmp_path, "first")
    snapshots.take(tmp_path, file, "one")
    cluster_in(tmp_path, "second")
    there = sorted(path.relative_to(tmp_path) for path in tmp_path.glob("*/*"))
    copytree = snapshots.shutil.copytree
    for copied in range(4):
        left = [copied]

        def full(*arguments: Any, left: list[int] = left, **options: Any) -> Any:
            left[0] -= 1
            if left[0] < 0:
                raise OSError(28, "No space left on device")
            return copytree(*arguments, **options)

        with monkeypatch.context() as broken:
            broken.setattr(snapshots.shutil, "copytree", full)
            with pytest.raises(OSError, match="No space"):
                snapshots.put_back(tmp_path, file, "one")
        assert (tmp_path / "broker-0/data/t-0/00.log").read_text() == "second broker-0/data"
        assert sorted(path.relative_to(tmp_path) for path in tmp_path.glob("*/*")) == there, "nothing is left beside"
    snapshots.put_back(tmp_path, file, "one")
    assert (tmp_path / "zookeeper/data/t-0/00.log").read_text() == "first zookeeper/data"
    noted = Path("logs/lab.events.jsonl")
    assert sorted(path.relative_to(tmp_path) for path in tmp_path.glob("*/*")) == sorted([*there, noted])


def test_a_copy_that_was_broken_off_is_no_snapshot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Rule 2: the name comes last, and an older snapshot of it stays until then."""
    file = cluster_in(tmp_path, "first")
    snapshots.take(tmp_path, file, "one")
    cluster_in(tmp_path, "second")

    def full(*_: object, **__: object) -> None:
        raise OSError("no space left on device")

    with monkeypatch.context() as broken:
        broken.setattr(snapshots.shutil, "copytree", full)
        with pytest.raises(OSError, match="no space"):
            snapshots.take(tmp_path, file, "one")
        with pytest.raises(OSError, match="no space"):
            snapshots.take(tmp_path, file, "two")
    assert snapshots.names(tmp_path) == ["one"]
    snapshots.put_back(tmp_path, file, "one")
    assert (tmp_path / "broker-0/data/t-0/00.log").read_text() == "first broker-0/data"


@pytest.mark.parametrize("name", ["", "..", "a/b", "-x", "x" * 101])
def test_a_name_is_no_path(tmp_path: Path, name: str):
    with pytest.raises(TidegaugeError) as refused:
        snapshots.directory_of(tmp_path, name)
    assert refused.value.code is ErrorCode.INVALID_REQUEST


def test_what_does_not_fit_the_cluster_is_refused(tmp_path: Path):
    file = cluster_in(tmp_path, "first")
    with pytest.raises(TidegaugeError, match="no snapshot two: none was taken of this cluster; `tidegauge snapshot"):
        snapshots.require(tmp_path, file, "two")
    snapshots.take(tmp_path, file, "one")
    with pytest.raises(TidegaugeError, match="there is no snapshot two; there is one"):
        snapshots.require(tmp_path, file, "two")
    more = replace(file, brokers=[*file.brokers, BrokerEntry(2, "127.0.0.1", 9, "")])
    with pytest.raises(TidegaugeError, match="is of brokers 0, 1"):
        snapshots.require(tmp_path, more, "one")
    with pytest.raises(TidegaugeError, match="its data can't be copied"):
        topology_of(tmp_path, replace(file, zookeeper_managed=False)).require_own()


def test_a_restore_is_an_event_with_the_time_of_its_snapshot(tmp_path: Path) -> None:
    """Rule 5: what lies before it can be kept apart from what comes after. Without a noted time the file's counts."""
    file = cluster_in(tmp_path, "first")
    before_ms = time.time_ns() // 1_000_000
    snapshots.take(tmp_path, file, "one")
    after_ms = time.time_ns() // 1_000_000
    snapshots.put_back(tmp_path, file, "one")
    about = tmp_path / "snapshots/one/snapshot.json"
    noted = json.loads(about.read_text())
    about.write_text(json.dumps({"brokers": noted["brokers"]}))
    os.utime(about, (5, 5))
    snapshots.put_back(tmp_path, file, "one")
    events = list(read_events(tmp_path / "logs/lab.events.jsonl"))
    assert [(event["kind"], event["source"], event["snapshot"]) for event in events] == [("restore", "lab", "one")] * 2
    assert before_ms <= events[0]["taken_ms"] <= after_ms <= events[0]["time_ms"]
    assert events[1]["taken_ms"] == 5000


def test_a_restore_that_was_interrupted_is_noted_when_it_is_finished(tmp_path: Path) -> None:
    file = cluster_in(tmp_path, "first")
    snapshots.take(tmp_path, file, "one")

    def stop(path: Path, *_: object, **__: object) -> None:
        raise OSError(5, "I/O error", str(path))

    with pytest.MonkeyPatch.context() as broken:
        broken.setattr(snapshots, "_remove", stop)
        with pytest.raises(TidegaugeError):
            snapshots.put_back(tmp_path, file, "one")
    assert list(read_events(tmp_path / "logs/lab.events.jsonl")) == [], "the data are not in place"
    assert "finished" in snapshots.settle(tmp_path)
    assert [event["kind"] for event in read_events(tmp_path / "logs/lab.events.jsonl")] == ["restore"]


def test_what_zookeeper_stored_is_for_the_owner_alone(tmp_path: Path):
    """The keys of SCRAM users are in it; a cluster and snapshots that were made open are closed."""
    file = cluster_in(tmp_path, "first")
    for path in (tmp_path, tmp_path / "zookeeper"):
        path.chmod(0o755)
    layout.make_directories(tmp_path, file)
    snapshots.take(tmp_path, file, "one")
    (tmp_path / "snapshots").chmod(0o755)
    layout.make_directories(tmp_path, file)
    closed = ("zookeeper", "snapshots", "snapshots/one")
    assert [oct((tmp_path / path).stat().st_mode & 0o777) for path in closed] == ["0o700"] * 3
