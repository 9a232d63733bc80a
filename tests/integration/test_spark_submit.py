"""The environment's own spark-submit runs the job with the environment's own Python, activated or not."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.integration, pytest.mark.timeout(1200)]

BIN = Path(sys.executable).parent
ROOT = Path(__file__).parents[2]


def test_spark_submit_works_without_activation(tmp_path):
    """.venv/bin has a spark-submit; PySpark's own takes the first python3 on PATH."""
    outside = os.pathsep.join(part for part in os.environ["PATH"].split(os.pathsep) if Path(part) != BIN)
    environment = {
        key: value for key, value in os.environ.items() if not key.startswith(("PYSPARK_", "SPARK_", "VIRTUAL_ENV"))
    }
    done = subprocess.run(
        [str(BIN / "spark-submit"), str(ROOT / "spark_jobs" / "consume_committed.py"), "--help"],
        capture_output=True,
        text=True,
        env=environment | {"PATH": outside},
        cwd=tmp_path,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "--bootstrap-server" in done.stdout
