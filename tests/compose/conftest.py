"""The clusters of docker-compose.yml and docker-compose.kraft.yml, each under a project of its own.

Only `make compose-test` collects these tests.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.waiting import until

from tidegauge_lab.local.ports import choose_ports

ROOT = Path(__file__).resolve().parents[2]
COMPOSE = os.environ.get("TIDEGAUGE_COMPOSE", "")
collect_ignore_glob = [] if COMPOSE else ["test_*.py"]
ENDS_S = float(os.environ.get("COMPOSE_TEST_ENDS_S", "inf"))
ONE_TEST_S = 45


def pytest_runtest_setup() -> None:
    """Where the time is limited (CI), a test that would not end in it is not begun."""
    if time.time() > ENDS_S - ONE_TEST_S:
        pytest.skip("no time is left for it")


IN_KRAFT = "docker-compose.kraft.yml"


class Project:
    """docker-compose, for one project of a file."""

    def __init__(self, file: str = "docker-compose.yml") -> None:
        self._file = str(ROOT / file)
        self.name = os.environ.get("COMPOSE_PROJECT_NAME", f"tidegauge-test-{os.getpid()}")
        self.name += "-kraft" if file == IN_KRAFT else ""
        ports = choose_ports([29092, 29093, 29094])
        self.bootstrap_servers = [f"127.0.0.1:{port}" for port in ports]
        of_kafka = choose_ports([39092, 39093, 39094], taken=ports)
        self.kafka_bootstrap_servers = [f"127.0.0.1:{port}" for port in of_kafka]
        self._environment = os.environ | {f"BROKER_{id_}_PORT": str(port) for id_, port in enumerate(ports)}
        self._environment |= {f"KAFKA_{id_}_PORT": str(port) for id_, port in enumerate(of_kafka)}

    def compose(self, *words: str, limit_s: float = 900) -> str:
        """Run a command of docker-compose and give its output."""
        command = [*COMPOSE.split(), "-p", self.name, "-f", self._file, *words]
        done = subprocess.run(
            command, env=self._environment, capture_output=True, text=True, timeout=limit_s, check=False
        )
        assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}"
        return done.stdout

    def variable(self, name: str, value: str) -> None:
        """Set a variable that the file uses."""
        self._environment[name] = value

    def pause(self, service: str) -> None:
        """Freeze a container; the kernel's freezer may give up on a busy machine, and is asked again."""

        def is_paused() -> bool:
            with contextlib.suppress(AssertionError):
                self.compose("pause", service)
            return bool(self.inspect(service)["State"]["Paused"])

        until(is_paused, timeout=120, what=f"{service} is paused")

    def docker(self, *words: str) -> str:
        """Run a command of docker."""
        return subprocess.run(["docker", *words], capture_output=True, text=True, timeout=120, check=True).stdout

    def container(self, service: str) -> str:
        """The container of a service."""
        return self.compose("ps", "-q", service).strip()

    def inspect(self, service: str) -> dict[str, Any]:
        """Return docker's view of it."""
        found: dict[str, Any] = json.loads(self.docker("inspect", self.container(service)))[0]
        return found

    def wait_healthy(self, *services: str) -> None:
        """Until the health checks say so."""
        for service in services:
            until(
                lambda service=service: self.inspect(service)["State"]["Health"]["Status"] == "healthy",
                timeout=120,
                what=f"{service} is healthy",
            )

    def tools(self, *words: str) -> str:
        """The command line, in a container of its own."""
        return self.compose("run", "--rm", "-T", "tools", *words)


@pytest.fixture(scope="session")
def project() -> Iterator[Project]:
    """The running cluster; everything of it is removed at the end."""
    made = Project()
    try:
        made.compose("up", "-d")
        made.wait_healthy("zookeeper", "broker-0", "broker-1", "broker-2")
        yield made
    finally:
        print(made.compose("--profile", "spark", "logs", "--no-color", "--tail", "40"))
        made.compose("--profile", "spark", "--profile", "tools", "down", "-v")


@pytest.fixture(scope="session")
def kraft_project() -> Iterator[Project]:
    """The running cluster in KRaft mode; everything of it is removed at the end."""
    made = Project(IN_KRAFT)
    try:
        made.compose("up", "-d")
        made.wait_healthy(*(f"{kind}-{number}" for kind in ("controller", "broker") for number in range(3)))
        yield made
    finally:
        print(made.compose("logs", "--no-color", "--tail", "40"))
        made.compose("--profile", "tools", "down", "-v")
