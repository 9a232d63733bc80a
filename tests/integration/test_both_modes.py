"""Files of tests that know no mode, once more in KRaft mode: what is between clients and brokers must not depend on it.

A test of what is in ZooKeeper mode alone has the mark ``zookeeper_mode`` with the reason, and is left out there. Each
file runs in a process of its own, with TIDEGAUGE_TEST_MODE (``tests/modes.py``); by hand:
``TIDEGAUGE_TEST_MODE=kraft python -m pytest tests/integration/test_groups.py``. The files are those of
``tools/mode_files.py``.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from tools.mode_files import FILES, LONG, QUICK

pytestmark = pytest.mark.integration
HERE = Path(__file__).parent
LIMIT_SECONDS = 900
LONG_LIMIT_SECONDS = 3600


@pytest.mark.timeout(LIMIT_SECONDS + 60)
@pytest.mark.long
@pytest.mark.parametrize("name", FILES)
def test_what_holds_in_zookeeper_mode_holds_in_kraft_mode(name: str) -> None:
    run_in_kraft_mode([name])


@pytest.mark.timeout(LONG_LIMIT_SECONDS + 60)
@pytest.mark.long
@pytest.mark.parametrize("name", LONG)
def test_what_takes_long_holds_in_kraft_mode_too(name: str) -> None:
    run_in_kraft_mode([name], chosen="long or not long", limit_seconds=LONG_LIMIT_SECONDS)


@pytest.mark.timeout(LIMIT_SECONDS + 60)
def test_clients_holds_transactions_and_the_page_in_kraft_mode() -> None:
    run_in_kraft_mode(list(QUICK))


def run_in_kraft_mode(names: Sequence[str], chosen: str = "not long", limit_seconds: float = LIMIT_SECONDS) -> None:
    """Run the tests of these files in a process of its own.

    Args:
        names: of the files.
        chosen: which tests, by their marks.
        limit_seconds: for all of them.
    """
    files = [str(HERE / f"{name}.py") for name in names]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:xdist", "-m", chosen, *files],
        env={name: value for name, value in os.environ.items() if name != "PYTEST_XDIST_WORKER"}
        | {"TIDEGAUGE_TEST_MODE": "kraft"},
        cwd=HERE.parents[1],
        capture_output=True,
        text=True,
        timeout=limit_seconds,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-8_000:] + done.stderr[-2_000:]
