"""A cluster on a Python that offers only what macOS offers: no ``/proc``, none of Linux's own calls (``tests/macos``).

Nodes are started one by one there, and their states and start times come from ``ps``.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

pytestmark = [
    pytest.mark.integration,
    pytest.mark.timeout(600),
    pytest.mark.skipif(shutil.which("ps") is None, reason="`ps` is not installed; macOS has it"),
]
STUB = Path(__file__).parents[1] / "macos"
Verb = Callable[..., str]


@pytest.fixture
def verb(tmp_path: Path) -> Iterator[Verb]:
    """Yield a function that runs a verb there; the cluster ends with the test."""
    environment = os.environ | {"PYTHONPATH": str(STUB)}

    def run(*words: str, given: str = "") -> str:
        command = [sys.executable, "-P", "-c", "from tidegauge_client.cli.main import main; main()", *words]
        done = subprocess.run(
            command,
            input=given,
            capture_output=True,
            text=True,
            check=False,
            env=environment,
            cwd=tmp_path,
            timeout=300,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    yield run
    run("down", "--purge")


def state_of(verb: Verb, broker: int) -> str:
    return str(next(one["state"] for one in json.loads(verb("status", "-o", "json"))["brokers"] if one["id"] == broker))


def test_a_cluster_lives_through_a_killed_leader_without_linux(verb: Verb, next_base_port: Callable[[], int]) -> None:
    ports = [f"--{of}-port={next_base_port()}" for of in ("base", "kafka", "controller")]
    verb("up", "--kraft", "-d", *ports)
    verb("create-topic", "orders", "--partitions", "1", "--replication-factor", "3")
    verb("produce", "orders", "--acks", "all", given="m1\nm2\n")
    killed = json.loads(verb("describe-topic", "orders", "-o", "json"))["topics"][0]["partitions"][0]["leader"]
    verb("kill", str(killed))
    assert state_of(verb, killed) == "down"
    verb("wait", "--leader", f"orders-0!={killed}")
    verb("produce", "orders", "--acks", "all", given="m3\n")
    verb("start", str(killed))
    assert verb("consume", "orders", "--from-beginning", "--max-messages", "3").split()[:3] == ["m1", "m2", "m3"]
    verb("pause", str(killed))
    assert state_of(verb, killed) == "paused"
    verb("resume", str(killed))
    assert state_of(verb, killed) == "up"
