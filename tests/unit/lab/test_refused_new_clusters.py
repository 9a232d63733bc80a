"""An ``up`` that is refused for what the machine lacks leaves no half-made cluster, and reserves no ports."""

from __future__ import annotations

from pathlib import Path

import pytest

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge_lab.local import ports
from tidegauge_lab.local.cluster import LocalCluster
from tidegauge_lab.local.topology import zookeeper_server as server


def no_java() -> str:
    raise TidegaugeError(ErrorCode.INVALID_REQUEST, "ZooKeeper and Spark need Java 17 or newer, and there is none")


@pytest.fixture
def reservations(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file of reservations; not the one where real runs meet."""
    file = tmp_path / "ports.json"
    made = ports.Reservations(file, lambda: 1000.0, lambda _directory: False)
    monkeypatch.setattr(ports, "Reservations", lambda: made)
    return file


@pytest.mark.parametrize("lacks", ["Java", "PySpark", "named jars"])
@pytest.mark.parametrize("exists", [False, True])
def test_a_refused_new_cluster_leaves_nothing(
    lacks: str, exists: bool, reservations: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else its directory would hold ports and settings that the next ``up`` may not change."""
    monkeypatch.delenv("TIDEGAUGE_ZOOKEEPER_JARS", raising=False)
    monkeypatch.setattr(server, "java_program", no_java if lacks == "Java" else lambda: "java")
    if lacks == "PySpark":
        monkeypatch.setattr(server.importlib.util, "find_spec", lambda _name: None)
    if lacks == "named jars":
        monkeypatch.setenv("TIDEGAUGE_ZOOKEEPER_JARS", str(tmp_path))
    new = tmp_path / "new"
    if exists:
        new.mkdir()
    words = {"Java": "need Java 17", "PySpark": "its jars are missing", "named jars": r"has no zookeeper-\*\.jar"}
    with pytest.raises(TidegaugeError, match=words[lacks]) as refused:
        LocalCluster.create(new, 1)
    assert "--zookeeper HOST:PORT" in refused.value.message, "what to do without"
    assert new.exists() == exists
    assert not exists or list(new.iterdir()) == []
    assert reservations.read_text() in {"", "{}"}


def test_named_jars_are_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "zookeeper-3.9.3.jar").touch()
    monkeypatch.setenv("TIDEGAUGE_ZOOKEEPER_JARS", str(tmp_path))
    monkeypatch.setattr(server, "java_program", lambda: "java")
    assert server.installed() == ("java", tmp_path)
