"""docker-compose.kraft.yml without an engine: each service's own command and variables, as a process of this machine.

Every service has a loopback address in the place of its container's, and a directory in the place of its volume. What
an engine does - images, networks, volumes, health checks on time - is tried by `make compose-test` alone.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner
from tests.waiting import until

from tidegauge_client.cli.main import root

pytestmark = [
    pytest.mark.integration,
    pytest.mark.long,
    pytest.mark.timeout(600),
    pytest.mark.skipif(sys.platform != "linux", reason="only Linux has all of 127.0.0.0/8"),
]
ROOT = Path(__file__).parents[2]
FILE: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.kraft.yml").read_text(encoding="utf-8"))
CONTROLLERS = [f"controller-{number}" for number in range(3)]
BROKERS = [f"broker-{number}" for number in range(3)]
LIMIT_SECONDS = 90.0


class Services:
    """The file's services as processes, on addresses of this process's own.

    Args:
        at: where their volumes and logs are.
    """

    def __init__(self, at: Path) -> None:
        self._at = at
        net = f"127.{64 + os.getpid() % 128}.{os.getpid() // 128 % 256}"
        self._addresses = {name: f"{net}.{10 + place}" for place, name in enumerate([*CONTROLLERS, *BROKERS])}
        self._running: dict[str, subprocess.Popen[bytes]] = {}

    def here(self, name: str, text: str) -> str:
        """Return a text of the file for a service on this machine."""
        text = re.sub(r"\$\{(\w+):-([^}]*)\}", r"\2", text)
        for other, address in self._addresses.items():
            text = text.replace(f"{other}:", f"{address}:")
        own = text.replace("0.0.0.0", self._addresses[name]).replace("$$", "$")  # noqa: S104 - replaced
        return own.replace("/var/lib/tidegauge", str(self._at / name))

    def start(self, *names: str) -> None:
        """Start these services as their containers do, and wait for their health checks."""
        for name in names:
            service = FILE["services"][name]
            bare = {key: value for key, value in os.environ.items() if not key.startswith(("KAFKA_", "TIDEGAUGE_"))}
            variables = {key: self.here(name, value) for key, value in service["environment"].items()}
            bin_directory = str(Path(sys.executable).parent)
            (self._at / name).mkdir(exist_ok=True)
            with (self._at / f"{name}.log").open("ab") as log:
                self._running[name] = subprocess.Popen(
                    [*service["entrypoint"], *(self.here(name, word) for word in service["command"])],
                    env=bare | variables | {"PATH": f"{bin_directory}:{bare['PATH']}"},
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                )
        for name in names:
            until(lambda name=name: self.is_healthy(name), LIMIT_SECONDS, f"{name} is healthy: {self.log(name)}")

    def is_healthy(self, name: str) -> bool:
        """Run a service's health check."""
        assert self._running[name].poll() is None, self.log(name)
        kind, verb, *words = FILE["services"][name]["healthcheck"]["test"]
        assert (kind, verb) == ("CMD", "tidegauge")
        return CliRunner().invoke(root, [self._check(name, word) for word in words]).exit_code == 0

    def _check(self, name: str, word: str) -> str:
        return word.replace("127.0.0.1", self._addresses[name])

    def log(self, name: str) -> str:
        """Return a service's output."""
        return (self._at / f"{name}.log").read_text(errors="replace")[-3000:]

    def kill(self, name: str) -> None:
        """End a service as `docker-compose kill` does."""
        process = self._running.pop(name)
        os.killpg(process.pid, signal.SIGKILL)
        process.wait(LIMIT_SECONDS)

    def tool(self, *words: str) -> str:
        """Run the command of the service ``tools``."""
        variables = FILE["services"]["tools"]["environment"]
        server = variables["TIDEGAUGE_BOOTSTRAP_SERVER"]
        for other, address in self._addresses.items():
            server = server.replace(f"{other}:", f"{address}:")
            words = tuple(word.replace(f"{other}:", f"{address}:") for word in words)
        done = CliRunner().invoke(root, list(words), env={"TIDEGAUGE_BOOTSTRAP_SERVER": server})
        assert done.exit_code == 0, done.output
        return done.output

    def end(self) -> None:
        """Kill what runs."""
        for name in list(self._running):
            if self._running[name].poll() is None:
                self.kill(name)


@pytest.fixture
def services(tmp_path: Path) -> Iterator[Services]:
    """None of them runs at first."""
    made = Services(tmp_path)
    try:
        yield made
    finally:
        made.end()


def test_the_services_of_the_file_are_a_cluster_that_outlives_a_controller_and_a_broker(services: Services) -> None:
    services.start(*CONTROLLERS)
    services.start(*BROKERS)
    services.tool("create-topic", "orders", "--partitions", "3", "--replication-factor", "3")
    services.tool("produce", "orders", "--count", "10")
    view = services.tool("describe-quorum", "--bootstrap-controller", "controller-0:9392", "--status")
    leader = re.search(r"LeaderId:\s+(\d+)", view)
    assert leader is not None, view
    services.kill(f"controller-{int(leader[1]) - 3000}")
    services.kill("broker-1")
    services.tool("wait", "--fenced", "1")
    services.tool("produce", "orders", "--count", "10")
    services.start(f"controller-{int(leader[1]) - 3000}", "broker-1")
    services.tool("wait", "--in-sync", "orders")
    services.tool("produce", "orders", "--count", "10")
    assert "already formatted" in services.log("broker-1"), "the second start leaves what the first one has written"


def test_no_image_of_the_file_has_java() -> None:
    """All services are of the target ``broker``, which is not made from the one with Java."""
    assert {one["build"]["target"] for one in FILE["services"].values()} == {"broker"}
    images = re.findall(r"^FROM (\S+) AS (\S+)", (ROOT / "Dockerfile").read_text(encoding="utf-8"), re.MULTILINE)
    assert ("${BASE_IMAGE}", "broker") in images
