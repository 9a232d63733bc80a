"""The step of action.yml, run as its host runs it; its virtual environment is ours, so that nothing is downloaded."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tidegauge_lab.local.cluster import LocalCluster

pytestmark = [pytest.mark.integration, pytest.mark.long, pytest.mark.timeout(600)]
ROOT = Path(__file__).parents[2]
PYTHON = """#!/bin/sh
if [ "$1 $2" = "-m venv" ]; then
    mkdir -p "$3/bin"
    printf '#!/bin/sh\\necho "$@" >> %s\\n' "{installed}" > "$3/bin/pip"
    chmod +x "$3/bin/pip"
    ln -s "{tidegauge}" "$3/bin/tidegauge"
else
    exec "{python}" "$@"
fi
"""


@pytest.fixture
def runner(tmp_path: Path) -> Iterator[Path]:
    """RUNNER_TEMP; a cluster that the step has left there is taken down."""
    directory = tmp_path / "runner"
    directory.mkdir()
    yield directory
    if (directory / "tidegauge-data" / "cluster.json").exists():
        LocalCluster(directory / "tidegauge-data").down(purge=True)


@pytest.mark.parametrize(("mode", "packages"), [("zookeeper", "action"), ("kraft", "cluster")])
def test_the_step_starts_a_cluster_and_gives_out_its_addresses(
    mode: str, packages: str, runner: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.delenv("TIDEGAUGE_MODE", raising=False)
    step = next(one for one in action()["runs"]["steps"] if one.get("id") == "up")
    assert {one["value"] for one in action()["outputs"].values()} == {
        "${{ steps.up.outputs.bootstrap-servers }}",
        "${{ steps.up.outputs.control }}",
        "${{ steps.up.outputs.logs }}",
    }
    tools, installed = tmp_path / "tools", tmp_path / "installed"
    tools.mkdir()
    fake = PYTHON.format(
        installed=installed, tidegauge=Path(sys.executable).parent / "tidegauge", python=sys.executable
    )
    (tools / "python").write_text(fake, encoding="utf-8")
    (tools / "python").chmod(0o755)
    output = tmp_path / "output"
    settings = "min.insync.replicas=1\n\nlog.retention.hours=7\n"
    inputs = {"BROKERS": "1", "MODE": mode, "SETTINGS": settings, "CONTROL": "127.0.0.1:0"}
    assert set(step["env"]) == set(inputs)
    environment = {
        **os.environ, **inputs, "PATH": f"{tools}:{os.environ['PATH']}", "RUNNER_TEMP": str(runner),
        "GITHUB_ACTION_PATH": str(ROOT), "GITHUB_OUTPUT": str(output),
    }  # fmt: skip
    done = subprocess.run(
        ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]],
        env=environment, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert installed.read_text(encoding="utf-8").splitlines() == [
        f"install --quiet --require-hashes -r {ROOT}/docker/locked/{packages}.txt",
        f"install --quiet --require-hashes -r {ROOT}/docker/locked/build.txt",
        f"install --quiet --no-deps --no-build-isolation {ROOT}",
    ]
    given = dict(line.split("=", 1) for line in output.read_text(encoding="utf-8").splitlines())
    with urllib.request.urlopen(f"{given['control']}/v1/cluster", timeout=60) as response:  # noqa: S310 - ours
        cluster = json.load(response)
    assert cluster["ready"]
    assert cluster["kafka_bootstrap_servers"] == given["bootstrap-servers"]
    assert LocalCluster(runner / "tidegauge-data").file.mode == mode
    assert Path(given["logs"]) == LocalCluster(runner / "tidegauge-data").logs
    properties = (runner / "tidegauge-data/broker-0/server.properties").read_text(encoding="utf-8")
    assert "log.retention.hours=7" in properties


def action() -> dict:
    return yaml.safe_load((ROOT / "action.yml").read_text(encoding="utf-8"))
