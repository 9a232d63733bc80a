"""A node in KRaft mode refuses a directory that is not its own: one sentence with the way out, nothing changed.

It is refused before anything is bound or dialled.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from tidegauge_broker.server.quorum.format_verb import format_storage
from tidegauge_broker.server.quorum.verb import controller
from tidegauge_broker.server.verb import broker

CLUSTER, OTHER_CLUSTER = "pQKNjKG6SIW1R46E3fVjJA", "aaaaaaaaSIW1R46E3fVjJA"
VOTER = "3000@127.0.0.1:9393:ERERERERQRGRERERERERAA"
ROLES = {
    "controller": {"process.roles": "controller", "node.id": "3000", "listeners": "CONTROLLER://127.0.0.1:9393"},
    "broker": {"process.roles": "broker", "node.id": "0", "listeners": "PLAINTEXT://127.0.0.1:9092"},
}


class Nodes:
    """A controller and a broker by their files, with directories that a test may exchange."""

    def __init__(self, at: Path) -> None:
        self._at = at

    def directory(self, name: str) -> Path:
        return self._at / name

    def config(self, role: str, *directories: str, **changes: str) -> Path:
        """Write the properties of a node of this role; return the file."""
        texts = ROLES[role] | {
            "controller.listener.names": "CONTROLLER",
            "controller.quorum.bootstrap.servers": "127.0.0.1:9393",
            "log.dirs": ",".join(str(self.directory(one)) for one in directories),
        }
        texts |= {name.replace("_", "."): text for name, text in changes.items()}
        path = self._at / f"{role}.properties"
        path.write_text("".join(f"{name}={text}\n" for name, text in texts.items()))
        return path

    def format(self, role: str, directory: str, cluster: str = CLUSTER, **changes: str) -> None:
        """Format a directory for a node of this role."""
        voters = ["--initial-controllers", VOTER] if role == "controller" else []
        arguments = ["-t", cluster, "-c", str(self.config(role, directory, **changes)), *voters]
        done = CliRunner().invoke(format_storage, arguments)
        assert done.exit_code == 0, done.output

    def run(self, role: str, *directories: str) -> Result:
        """Start a node, which must not come far."""
        verb = {"controller": controller, "broker": broker}[role]
        return CliRunner().invoke(verb, ["--config", str(self.config(role, *directories))])

    def content(self) -> dict[Path, tuple[bytes, int]]:
        """Every file below the directories, with its time."""
        files = (path for path in self._at.rglob("*") if path.is_file() and path.parent != self._at)
        return {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in files if path.name != ".lock"}


@pytest.fixture
def nodes(tmp_path: Path) -> Nodes:
    return Nodes(tmp_path)


def test_a_controllers_directory_is_refused_by_a_broker_and_a_brokers_by_a_controller(nodes: Nodes) -> None:
    nodes.format("controller", "of-controller")
    nodes.format("broker", "of-broker")
    before = nodes.content()
    for role, directory, sentence in (
        ("broker", "of-controller", "Stored node id 3000 doesn't match previous node id 0"),
        ("controller", "of-broker", "Stored node id 0 doesn't match previous node id 3000"),
    ):
        done = nodes.run(role, directory)
        assert done.exit_code == 1
        assert sentence in done.output
        assert "If you moved your data, make sure your configured node id matches" in done.output
        assert "Traceback" not in done.output
    assert nodes.content() == before


def test_a_directory_of_another_cluster_beside_its_own_is_refused(nodes: Nodes) -> None:
    nodes.format("broker", "own")
    nodes.format("broker", "foreign", OTHER_CLUSTER)
    before = nodes.content()
    done = nodes.run("broker", "own", "foreign")
    assert done.exit_code == 1
    assert f"Expected {CLUSTER}, but read {OTHER_CLUSTER}" in done.output
    assert (
        "name a directory of this cluster in log.dirs, or move the other one's data away and format it" in done.output
    )
    assert nodes.content() == before


@pytest.mark.parametrize("role", ["broker", "controller"])
def test_a_directory_that_was_never_formatted_is_refused_with_the_verb_that_formats_it(role: str, nodes: Nodes) -> None:
    done = nodes.run(role, "empty")
    assert done.exit_code == 1
    assert "No `meta.properties` found in" in done.output
    assert "format" in done.output
    assert nodes.content() == {}


@pytest.mark.parametrize(
    ("feature", "sentence"),
    [
        ("nothing.version=1", "Unsupported feature"),
        ("metadata.version=99", "Valid feature levels are from"),
        ("group.version=9", "group.version"),
    ],
)
def test_an_unknown_feature_or_level_formats_nothing(feature: str, sentence: str, nodes: Nodes) -> None:
    config = nodes.config("controller", "new")
    arguments = ["-t", CLUSTER, "-c", str(config), "--initial-controllers", VOTER, "--feature", feature]
    done = CliRunner().invoke(format_storage, arguments)
    assert done.exit_code != 0
    assert sentence in done.output
    assert "Traceback" not in done.output
    assert nodes.content() == {}
