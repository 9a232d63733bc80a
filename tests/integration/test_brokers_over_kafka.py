"""Brokers that speak Kafka's protocol among themselves: ``inter.broker.listener.name`` names a Kafka listener.

Whole files of tests run once more so: what brokers do among themselves must not depend on the protocol. Failover with
acks=all, kill -9 and return; unclean leaders and truncation by each rule; transactions, their markers and
verifications; the lab's partitions, losses, delays, injected errors, and followers that are held and stepped.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.integration, pytest.mark.long]
HERE = Path(__file__).parent
LIMIT_SECONDS = 900
FILES = (
    "test_broker_failover",
    "test_broker_truncation_rules",
    "test_broker_exactly_once",
    "test_controller_elections",
    "test_kafka_transactions",
    "test_lab_faults",
    "test_lab_holds",
    "test_read_committed",
    "test_reassignment",
)


@pytest.mark.timeout(LIMIT_SECONDS + 60)
@pytest.mark.parametrize("name", FILES)
def test_what_holds_over_grpc_holds_over_kafkas_protocol(name: str) -> None:
    """Run a file's tests in a process of its own, with Kafka's protocol among brokers."""
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:xdist", "-m", "not long", str(HERE / f"{name}.py")],
        env={name: value for name, value in os.environ.items() if name != "PYTEST_XDIST_WORKER"}
        | {"TIDEGAUGE_TEST_AMONG_BROKERS": "KAFKA"},
        cwd=HERE.parents[1],
        capture_output=True,
        text=True,
        timeout=LIMIT_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-8_000:] + done.stderr[-2_000:]
