"""The failover tests in examples/, each run by its language's own tools against a real cluster (docs/steering.md)."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from tidegauge_lab.local import control_server
from tidegauge_lab.local.cluster import LocalCluster

pytestmark = [pytest.mark.integration, pytest.mark.long, pytest.mark.timeout(1800)]
EXAMPLES = Path(__file__).parents[2] / "examples"
FETCH_SECONDS = 400
RUN_SECONDS = 900
PYTEST = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", "."]


@pytest.fixture
def control(make_cluster: Callable[..., LocalCluster]) -> str:
    cluster = make_cluster(zookeeper=None)
    return control_server.start(cluster.directory, "127.0.0.1:0")


def run(command: Sequence[str], directory: Path, limit_seconds: float, control: str = "") -> str:
    """Return what a command wrote; a missing tool skips the test."""
    if shutil.which(command[0]) is None:
        pytest.skip(f"{command[0]} is not installed")
    environment = os.environ | {"TIDEGAUGE_CONTROL": control, "NO_COLOR": "1"}
    done = subprocess.run(
        command, cwd=directory, env=environment, capture_output=True, text=True, timeout=limit_seconds, check=False
    )
    output = done.stdout + done.stderr
    if done.returncode and not control:
        pytest.skip(f"{' '.join(command)} does not work here: {output[-500:]}")
    assert done.returncode == 0, output[-6000:]
    return output


@pytest.mark.parametrize(
    ("language", "fetch", "test"),
    [
        ("python", [], PYTEST),
        ("go", ["go", "mod", "download"], ["go", "test", "-count=1", "./..."]),
        ("typescript", ["npm", "install", "--no-audit", "--no-fund"], ["npm", "test"]),
        ("java", ["mvn", "-q", "-B", "test", "-DskipTests"], ["mvn", "-q", "-B", "test"]),
        ("c", ["make", "failover"], ["make", "test"]),
    ],
    ids=["python", "go", "typescript", "java", "c"],
)
def test_an_example_lives_through_its_failures(
    control: str, tmp_path: Path, language: str, fetch: list[str], test: list[str]
):
    """A copy, as a user would make it; nothing of this repository is on its path."""
    directory = tmp_path / language
    shutil.copytree(
        EXAMPLES / language,
        directory,
        ignore=shutil.ignore_patterns("__pycache__", "node_modules", "target", "failover"),
    )
    if fetch:
        run(fetch, directory, FETCH_SECONDS)
    run(test, directory, RUN_SECONDS, control)
