"""A cluster's directory that a stranger has made, as in a repository that was cloned (containment.py, notes.py).

With any content of its files, a verb works or refuses with one sentence, and nothing outside the directory changes.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.examples import examples

from tidegauge.errors import TidegaugeError
from tidegauge.settings import Values
from tidegauge_broker.server.lab.rule_messages import rules_from_start
from tidegauge_broker.server.lab.rules import SetRule
from tidegauge_client.cluster_file import FILE_NAME, BrokerEntry, ClusterFile, load_cluster_file
from tidegauge_client.quorum_file import ControllerEntry, QuorumEntry
from tidegauge_lab.control.reset import load_baseline
from tidegauge_lab.labs.running import lab_in
from tidegauge_lab.local import layout, noted_faults, snapshots
from tidegauge_lab.local.cluster import LocalCluster
from tidegauge_lab.local.processes import LabProcess
from tidegauge_lab.local.topology import zookeeper_sessions as sessions

CLUSTER = ClusterFile(
    zookeeper_address="127.0.0.1:2",
    zookeeper_managed=True,
    profile="fast",
    brokers=[BrokerEntry(0, "127.0.0.1", 3, "broker-0", 4)],
)
CONTROLLER = ControllerEntry(3000, "127.0.0.1", 5, 6, "controller-3000")
KRAFT = replace(
    CLUSTER, zookeeper_address="", zookeeper_managed=False, quorum=QuorumEntry("srd5RLZ7QHScNoRvW0yZ0A", [CONTROLLER])
)
RESTORE = {"snapshot": "one", "copied": ["broker-0/data"], "removed": ["zookeeper/data"], "is_decided": True}


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """Return a cluster's directory with data and a snapshot."""
    found = tmp_path / "clone" / "tidegauge-data"
    for path in (
        "broker-0/data/t-0",
        "broker-0/.data.tmp",
        "zookeeper/data",
        "controller-3000/data",
        "logs",
        "control/tallies",
        "snapshots/one",
    ):
        (found / path).mkdir(parents=True)
    (found / "broker-0/data/t-0/00.log").write_text("records")
    (found / "snapshots/one/snapshot.json").write_text(json.dumps({"brokers": [0]}))
    CLUSTER.save(found)
    return found


@pytest.fixture
def victim(tmp_path: Path) -> Path:
    """Return another directory, in which nothing may change."""
    found = tmp_path / "victim"
    for path in ("data", "tallies"):
        (found / path).mkdir(parents=True)
    for path in ("precious", "data/precious", "tallies/precious", "baseline.json", "broker.pid", "1-0"):
        (found / path).write_text("precious, and longer than the sixteen bytes of two numbers")
    return found


def everything(root: Path) -> dict[str, str | None]:
    """Return what lies in a directory, and what the files hold."""
    return {
        str(path.relative_to(root)): path.read_text(errors="replace") if path.is_file() else None
        for path in sorted(root.rglob("*"))
    }


def rules_from(path: Path) -> list[SetRule]:
    """Return a broker's rules from its start, as it reads them."""
    return rules_from_start(cast("Values", {"lab.rules.file": str(path)}))


VERBS: list[Callable[[Path], object]] = [
    lambda directory: LocalCluster(directory).up(limit_seconds=0.0),
    lambda directory: LocalCluster(directory).start(0),
    lambda directory: LocalCluster(directory).restore("one"),
    lambda directory: LocalCluster(directory).snapshot("two"),
    lambda directory: LocalCluster.create(directory, brokers=2),
]


@pytest.mark.parametrize("verb", VERBS[:4])
@pytest.mark.parametrize("field", ["copied", "removed"])
@pytest.mark.parametrize(
    "name",
    ["../../victim", "ABSOLUTE", "..", ".", "", "broker-0/data/../../../../victim", "broker-0", "snapshots", "logs"],
)
def test_a_restore_note_deletes_data_directories_of_the_cluster_only(
    directory: Path, victim: Path, field: str, name: str, verb: Callable[[Path], object]
) -> None:
    """A note that names another path is refused before anything changes (snapshots.py, rule 6)."""
    named = str(victim) if name == "ABSOLUTE" else name
    (directory / "restore.json").write_text(json.dumps({**RESTORE, field: [named]}))
    before = everything(directory.parents[1])
    with pytest.raises(TidegaugeError, match=r"restore\.json is damaged: .* is no directory with data"):
        verb(directory)
    after = everything(directory.parents[1])
    assert {path: text for path, text in after.items() if not path.endswith(".lock")} == before


@pytest.mark.parametrize("name", ["...tmp", "....tmp"])
def test_a_copy_named_after_a_parent_directory_gets_no_name(directory: Path, name: str) -> None:
    """``....tmp`` without its first character and its ending is ``..``: the cluster's own directory."""
    (directory / "snapshots" / name).mkdir()
    (directory / "snapshots" / name / "snapshot.json").write_text("{}")
    before = everything(directory)
    snapshots.settle_names(directory)
    assert everything(directory) == before


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize(
    "link",
    ["broker-0", "broker-0/data", "broker-0/server.properties", "broker-0/broker.pid", "logs", "logs/broker-0.log",
     "control", "control/tallies", "zookeeper", "snapshots", ".lock", "restore.json"],
)  # fmt: skip
def test_a_link_out_of_the_directory_is_refused_before_anything_changes(
    directory: Path, victim: Path, link: str, verb: Callable[[Path], object]
) -> None:
    """Git keeps symbolic links: what a verb writes, moves or deletes there would be the target's."""
    path = directory / link
    if path.is_dir():
        path.rename(directory.parent / "moved")
    path.symlink_to(os.path.relpath(victim if "." not in path.name else victim / "precious", path.parent))
    before = everything(directory.parents[1])
    with pytest.raises(
        TidegaugeError, match=rf"{re.escape(link)} is a symbolic link that leads out .* nothing was done"
    ):
        verb(directory)
    assert everything(directory.parents[1]) == before


@pytest.mark.parametrize("verb", [*VERBS[:4], lambda directory: LocalCluster(directory).down()])
def test_a_link_amid_the_data_is_refused_too(directory: Path, victim: Path, verb: Callable[[Path], object]) -> None:
    """A broker appends to the files that its log directory has."""
    (directory / "broker-0/data/t-0/01.log").symlink_to(victim / "precious")
    with pytest.raises(TidegaugeError, match=r"01\.log is a symbolic link"):
        verb(directory)


def test_a_fifo_is_refused_and_not_waited_for(directory: Path) -> None:
    os.mkfifo(directory / "restore.json")
    with pytest.raises(TidegaugeError, match="neither a file nor a directory"):
        LocalCluster(directory).up()
    (directory / FILE_NAME).unlink()
    os.mkfifo(directory / FILE_NAME)
    with pytest.raises(TidegaugeError, match="no regular file"):
        load_cluster_file(directory)


def test_a_temporary_file_that_is_a_link_is_not_followed(directory: Path, victim: Path) -> None:
    (directory / "cluster.tmp").symlink_to(victim / "precious")
    CLUSTER.save(directory)
    assert (victim / "precious").read_text().startswith("precious")
    assert load_cluster_file(directory) == CLUSTER


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "evil.example"])  # noqa: S104 - refused
def test_brokers_listen_on_the_loopback_address_only(directory: Path, host: str) -> None:
    file = asdict(CLUSTER)
    file["brokers"][0]["host"] = host
    (directory / FILE_NAME).write_text(json.dumps(file))
    for verb in VERBS:
        with pytest.raises(TidegaugeError, match=f"would listen at {host}"):
            verb(directory)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "evil.example"])  # noqa: S104 - refused
def test_controllers_listen_on_the_loopback_address_only(directory: Path, host: str) -> None:
    """Their Lab service has no password either."""
    file = asdict(KRAFT)
    file["quorum"]["controllers"][0]["host"] = host
    (directory / FILE_NAME).write_text(json.dumps(file))
    before = everything(directory.parents[1])
    for verb in VERBS:
        with pytest.raises(TidegaugeError, match=f"controller 3000 of .* would listen at {host}"):
            verb(directory)
    assert everything(directory.parents[1]) == before


@pytest.mark.parametrize(
    ("controller_id", "is_combined", "problem"),
    [(0, False, "a controller and a broker have the id 0"), (3000, True, "there is no broker 3000")],
)
def test_an_id_means_one_process(directory: Path, controller_id: int, is_combined: bool, problem: str) -> None:
    """Such a controller ran on when the cluster was taken down: its directory was taken for a broker's."""
    file = asdict(KRAFT)
    file["quorum"]["controllers"][0]["id"] = controller_id
    file["quorum"]["is_combined"] = is_combined
    (directory / FILE_NAME).write_text(json.dumps(file))
    for verb in VERBS:
        with pytest.raises(TidegaugeError, match=problem):
            verb(directory)


@pytest.mark.parametrize("field", ["copied", "removed"])
@pytest.mark.parametrize("name", ["../../victim", "controller-3000", "controller-3000/data/../../../../victim"])
def test_a_restore_note_of_a_cluster_in_kraft_mode_deletes_data_directories_only(
    directory: Path, victim: Path, field: str, name: str
) -> None:
    KRAFT.save(directory)
    (directory / "restore.json").write_text(json.dumps({**RESTORE, "removed": [], "copied": [], field: [name]}))
    before = everything(directory.parents[1])
    for verb in VERBS[:4]:
        with pytest.raises(TidegaugeError, match=r"restore\.json is damaged: .* is no directory with data"):
            verb(directory)
    after = everything(directory.parents[1])
    assert {path: text for path, text in after.items() if not path.endswith(".lock")} == before


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("link", ["controller-3000", "controller-3000/data", "controller-3000/controller.pid"])
def test_a_link_out_of_a_controller_s_directory_is_refused(
    directory: Path, victim: Path, link: str, verb: Callable[[Path], object]
) -> None:
    KRAFT.save(directory)
    path = directory / link
    if path.is_dir():
        path.rename(directory.parent / "moved")
    path.symlink_to(os.path.relpath(victim if "." not in path.name else victim / "precious", path.parent))
    before = everything(directory.parents[1])
    with pytest.raises(
        TidegaugeError, match=rf"{re.escape(link)} is a symbolic link that leads out .* nothing was done"
    ):
        verb(directory)
    assert everything(directory.parents[1]) == before


def test_settings_that_up_decides_are_refused_from_the_file_too(directory: Path, victim: Path) -> None:
    (directory / FILE_NAME).write_text(json.dumps({**asdict(CLUSTER), "settings": {"log.dirs": str(victim)}}))
    for verb in (VERBS[0], VERBS[1], VERBS[4]):
        with pytest.raises(TidegaugeError, match=r"log\.dirs can't be set"):
            verb(directory)


@pytest.mark.parametrize("pid", ["0", "-1", "1\n", "self", " 1", "\u0661", "9" * 4000])
def test_a_pid_file_names_one_process_or_none(tmp_path: Path, pid: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """``kill(-1)`` is for every process of the user."""
    sent: list[tuple[int, int]] = []
    monkeypatch.setattr(os, "kill", lambda *of_whom: sent.append(of_whom))
    process = LabProcess("broker-0", tmp_path, tmp_path / "log")
    stat = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    process.pid_file.write_text(f"{pid}\n{stat[19]}\n{tmp_path.stat().st_ino}\n")
    assert process.pid is None
    assert not process.send(signal.SIGKILL)
    assert sent == []


def test_rules_count_in_the_directory_of_the_cluster_only(directory: Path, victim: Path) -> None:
    """A broker writes two numbers into the file of a rule; a fault that ends deletes it."""
    rule = {"keys": ["Produce"], "error": "NOT_ENOUGH_REPLICAS"}
    entry = {"id": "1.0", "rule": rule, "tally": str(victim / "1-0"), "pids": {"0": 1}}
    faults, rules = directory / "control/faults.json", directory / "control/rules.json"
    faults.write_text(json.dumps({"last_id": 1, "faults": [{"id": 1, "rules": [entry]}]}))
    with pytest.raises(TidegaugeError, match=r"rule 1\.0 is counted in"):
        noted_faults.load(directory)
    rules.write_text(json.dumps([entry]))
    with pytest.raises(TidegaugeError, match="not below"):
        rules_from(rules)
    entry["tally"] = str(noted_faults.tally_of(directory, "1.0"))
    faults.write_text(json.dumps({"last_id": 1, "faults": [{"id": 1, "rules": [entry]}]}))
    rules.write_text(json.dumps([entry]))
    assert noted_faults.load(directory).faults[1][0].pids == {0: 1}
    assert [one.rule_id for one in rules_from(rules)] == ["1.0"]


def test_down_forgets_faults_whose_note_is_damaged(directory: Path) -> None:
    (directory / "control/faults.json").write_text("[")
    noted_faults.forget(directory)
    assert noted_faults.load(directory).faults == {}


# Fuzz: each file with any JSON, with one of its values replaced, and with any bytes

LEAVES = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=20),
    st.sampled_from(["../../victim", "/", "..", "broker-0/data", "zookeeper/data", "\x00", "::", 2**70, -1]),
)  # fmt: skip
VALUES = st.recursive(LEAVES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner))
FAULTS = {"last_id": 1, "faults": [{"id": 1, "rules": [{"id": "1.0", "rule": {}, "tally": "t", "pids": {"0": 1}}]}]}
FILES: dict[str, tuple[Any, Callable[[Path], object]]] = {
    FILE_NAME: (asdict(CLUSTER), load_cluster_file),
    f"controller-3000/{FILE_NAME}": (asdict(KRAFT), lambda at: load_cluster_file(at / "controller-3000")),
    "controller-3000/controller.pid": ("1\n2\n3\n", lambda at: layout.controller_process(at, 3000).state),
    "restore.json": (RESTORE, snapshots.settle),
    "snapshots/one/snapshot.json": ({"brokers": [0]}, lambda at: snapshots.require(at, CLUSTER, "one")),
    "control/faults.json": (FAULTS, noted_faults.load),
    "control/rules.json": (
        FAULTS["faults"],
        lambda at: rules_from(at / "control/rules.json"),
    ),
    "control/baseline.json": ({"topics": ["t"], "groups": []}, load_baseline),
    "lab.json": ({"lab": "acks-all"}, lab_in),
    "broker-0/session.json": ({"session": "1a", "password": "00ff"}, lambda at: sessions.noted(at, 0)),
    "broker-0/broker.pid": ("1\n2\n3\n", lambda at: layout.broker_process(at, 0).state),
}


def paths_in(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield where values lie in a JSON value."""
    yield path
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, one in inner:
        yield from paths_in(one, (*path, key))


def replaced(value: Any, path: tuple[Any, ...], by: Any) -> Any:
    """Return a JSON value with the one at a path replaced."""
    if not path:
        return by
    copy = dict(value) if isinstance(value, dict) else list(value)
    copy[path[0]] = replaced(value[path[0]], path[1:], by)
    return copy


@st.composite
def contents(draw: st.DrawFn, example: Any) -> bytes:
    """Draw what a stranger may have written."""
    kind = draw(st.sampled_from(["json", "mutated", "bytes", "truncated"]))
    if kind == "bytes":
        return draw(st.binary(max_size=60))
    value = draw(VALUES)
    if kind == "mutated":
        value = replaced(example, draw(st.sampled_from(list(paths_in(example)))), value)
    text = json.dumps(value).encode()
    return text[: draw(st.integers(0, len(text)))] if kind == "truncated" else text


@pytest.mark.parametrize("name", list(FILES))
@settings(max_examples=examples(60), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_any_file_is_read_or_refused_with_a_sentence(directory: Path, victim: Path, name: str, data: st.DataObject):
    """No exception but TidegaugeError, and nothing outside the directory changes."""
    example, read = FILES[name]
    (directory / name).write_bytes(data.draw(contents(example)))
    before = everything(victim)
    with contextlib.suppress(TidegaugeError):
        read(directory)
    assert everything(victim) == before


@pytest.mark.parametrize("name", list(FILES))
def test_a_file_that_is_nested_too_deeply_is_refused(directory: Path, name: str) -> None:
    """Python's reader of JSON raises RecursionError, which is no ValueError."""
    _, read = FILES[name]
    (directory / name).write_bytes(b"[" * 100_000)
    with contextlib.suppress(TidegaugeError):
        read(directory)
