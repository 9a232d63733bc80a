"""A ZooKeeper of one's own from PySpark's jars, and addresses of foreign ones."""

from __future__ import annotations

import importlib.util
from importlib.machinery import ModuleSpec
from pathlib import Path

import pytest

import tidegauge.java
from tidegauge.errors import TidegaugeError
from tidegauge.settings import read_properties
from tidegauge_lab.local.topology import zookeeper_server as zookeeper


def pretend_pyspark(monkeypatch: pytest.MonkeyPatch, directory: Path | None) -> None:
    spec = None
    if directory is not None:
        spec = ModuleSpec("pyspark", None, is_package=True)
        spec.submodule_search_locations = [str(directory)]
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: spec if name == "pyspark" else None)


def pretend_java(monkeypatch: pytest.MonkeyPatch, directory: Path) -> str:
    java = directory / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.touch(0o755)
    (directory / "release").write_text('JAVA_VERSION="17.0.15"\n')
    monkeypatch.setenv("JAVA_HOME", str(directory))
    return str(java)


def test_without_pyspark_one_sentence_says_what_to_do(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for directory in (None, tmp_path):  # not installed; installed without jars
        pretend_pyspark(monkeypatch, directory)
        with pytest.raises(TidegaugeError, match=r"-m pip install .*pyspark.* or give --zookeeper"):
            zookeeper.jars_directory()


def test_without_java_one_sentence_says_what_to_do(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(tidegauge.java, "packaged_home", lambda: None)
    with pytest.raises(TidegaugeError, match=r"Java 17 or newer, and there is none .* or give --zookeeper"):
        zookeeper.java_command()


def test_java_home_wins_and_only_the_needed_jars_are_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    java = pretend_java(monkeypatch, tmp_path / "jdk")
    jars = tmp_path / "pyspark" / "jars"
    jars.mkdir(parents=True)
    needed = ["zookeeper-3.9.5.jar", "zookeeper-jute-3.9.5.jar", "netty-handler-4.2.jar", "slf4j-api-2.0.jar"]
    for name in [*needed, "spark-core_2.13-4.2.jar"]:
        (jars / name).touch()
    pretend_pyspark(monkeypatch, tmp_path / "pyspark")
    command = zookeeper.server_command(tmp_path / "zoo.cfg")
    assert command[0] == java
    assert {"-Xmx64m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"} <= set(command)
    class_path = command[command.index("-cp") + 1].split(":")
    assert sorted(Path(jar).name for jar in class_path) == sorted(needed)
    assert command[-2:] == ["org.apache.zookeeper.server.quorum.QuorumPeerMain", str(tmp_path / "zoo.cfg")]


def test_the_configuration_allows_the_fast_profiles_sessions() -> None:
    values = read_properties(zookeeper.server_config(Path("/cluster/zookeeper/data"), 12181))
    assert values["tickTime"] == "500"
    assert (values["minSessionTimeout"], values["maxSessionTimeout"]) == ("1000", "60000")
    assert (values["clientPort"], values["clientPortAddress"]) == ("12181", "127.0.0.1")
    assert values["admin.enableServer"] == "false"
    assert values["dataDir"] == "/cluster/zookeeper/data"


@pytest.mark.parametrize(
    ("address", "servers"),
    [
        ("127.0.0.1:12181", [("127.0.0.1", 12181)]),
        ("one:2181,two:2182/chroot/deep", [("one", 2181), ("two", 2182)]),
        ("one", [("one", 2181)]),
        ("[::1]:2181", [("::1", 2181)]),
    ],
)
def test_addresses_are_read_as_zookeeper_does(address: str, servers: list[tuple[str, int]]) -> None:
    assert zookeeper.split_address(address) == servers


@pytest.mark.parametrize(
    "address", ["", "one:", "one:two", ":2181", "one:1,,two:2", "/chroot", "one:0", "one:65536", "one:\u0661"]
)
def test_what_is_no_address_is_refused(address: str) -> None:
    with pytest.raises(TidegaugeError, match="is no ZooKeeper address"):
        zookeeper.split_address(address)


def test_the_image_takes_the_jars_that_the_lab_starts() -> None:
    """docker/take_jars.py runs where nothing of Tidegauge is installed, so it has the list a second time."""
    path = Path(__file__).parents[3] / "docker" / "take_jars.py"
    spec = importlib.util.spec_from_file_location("take_jars", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert module.PATTERNS == zookeeper.JAR_PATTERNS
