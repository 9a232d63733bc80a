"""The differential run (``make differential``): the script against the recording of Apache Kafka's side, and two of the
scenarios of failures against Apache Kafka itself. Only known differences.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
pytestmark = [pytest.mark.integration, pytest.mark.long, pytest.mark.timeout(1_800)]


def run(program: str, *words: str) -> str:
    """Run a part of the differential, which must succeed; return what it prints."""
    done = subprocess.run(
        [sys.executable, str(ROOT / "bench" / program), *words],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    )
    assert done.returncode == 0, done.stdout + done.stderr[-3_000:]
    return done.stdout


def test_we_do_and_leave_behind_what_kafka_did() -> None:
    run("differential.py", "--recorded")


def test_failures_end_as_on_kafka() -> None:
    """SIGKILL of followers, and a leader that is partitioned from ZooKeeper."""
    said = run("differential_failures.py", "min-insync-replicas", "zombie-leader")
    if "can't be had here" in said:
        pytest.skip(said.strip())
    assert re.search(r"^failures: 2 scenarios, \d{3} fields compared, 0 differ$", said, re.MULTILINE), said
