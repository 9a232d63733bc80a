"""The main job, shortened: real rows, a killed leader, Spark, the books balanced; and Ctrl-C in the middle of it."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tests.waiting import until

pytestmark = [pytest.mark.integration, pytest.mark.spark, pytest.mark.timeout(1800)]

TIDEGAUGE = str(Path(sys.executable).with_name("tidegauge"))


def test_every_row_is_in_parquet_once_although_a_leader_was_killed(tmp_path):
    """Source = acknowledged = Parquet, new leaders by Kafka's rule; anything else exits non-zero."""
    done = subprocess.run(
        [TIDEGAUGE, "demo", "--rows", "15000", "--seconds", "9", "-o", "json"],
        capture_output=True,
        text=True,
        env=environment(tmp_path),
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {"problems": []}
    story = done.stderr
    for words in (
        "Before the failure",
        "kill -9 broker",
        "Just after",
        "is back and in sync",
        "was without a leader for",
    ):
        assert words in story
    assert [line.split() for line in story.splitlines() if line.startswith("  all ")] == [["all", *["15,000"] * 3]]
    assert list(tmp_path.glob("tidegauge-demo-*")) == [], "the demo's folder is gone when all went well"


def test_ctrl_c_leaves_nothing_running_however_often_it_is_pressed(tmp_path):
    """The first one ends the demo in order and is said so; the next, of an impatient user, do not interrupt its end."""
    story = tmp_path / "story"
    with story.open("wb") as out:
        process = subprocess.Popen([TIDEGAUGE, "demo"], stdout=out, stderr=subprocess.STDOUT, env=environment(tmp_path))
    try:
        until(lambda: "Started the Spark query" in story.read_text(), 150)
        process.send_signal(signal.SIGINT)
        until(lambda: "Interrupted: ending Spark" in story.read_text())
        while process.poll() is None:
            process.send_signal(signal.SIGINT)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(0.1)
        assert process.returncode == 130
    finally:
        process.kill()
        process.wait()
    until(lambda: processes_in(tmp_path) == [])  # Java ends some moments after the signal
    assert "Nothing is left running." in story.read_text()
    assert "Traceback" not in story.read_text()
    assert list(tmp_path.glob("tidegauge-demo-*")) == [], "an interrupted demo did not fail: its directory is deleted"


@pytest.mark.long
def test_a_killed_demo_leaves_nothing_running(tmp_path):
    """kill -9 while brokers, ZooKeeper and the Spark job run: a guard ends them all."""
    story = tmp_path / "story"
    with story.open("wb") as out:
        process = subprocess.Popen([TIDEGAUGE, "demo"], stdout=out, stderr=subprocess.STDOUT, env=environment(tmp_path))
    try:
        until(lambda: "Started the Spark query" in story.read_text(), 150)
        until(lambda: any("--progress-file" in command for command in processes_in(tmp_path)))
    finally:
        process.kill()
        process.wait()
    until(lambda: processes_in(tmp_path) == [])
    [log] = tmp_path.glob("tidegauge-demo-*/cluster/logs/guard.log")
    assert ", known by their command lines" in log.read_text()


def environment(directory: Path) -> dict[str, str]:

    return os.environ | {"TMPDIR": str(directory)}


def processes_in(directory: Path) -> list[str]:
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            command = (entry / "cmdline").read_bytes().decode(errors="replace").replace("\0", " ")
        except OSError:
            continue
        if f"{directory}/" in command:
            found.append(command)
    return found
