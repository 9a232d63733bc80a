"""The differential run (``make differential``) against the recording of Apache Kafka's side: only known differences."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
pytestmark = [pytest.mark.integration, pytest.mark.long, pytest.mark.timeout(1_800)]


def test_we_do_and_leave_behind_what_kafka_did() -> None:
    done = subprocess.run(
        [sys.executable, str(ROOT / "bench" / "differential.py"), "--recorded"],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    )
    assert done.returncode == 0, done.stdout + done.stderr[-3_000:]
