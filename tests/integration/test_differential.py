"""The differential run (``make differential``): the script against the recording of Apache Kafka's side, two of the
scenarios of failures against Apache Kafka itself, and all of KRaft mode. Only known differences.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from tests.integration.quorum_nodes import kafka_classpath

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


def test_controllers_and_brokers_in_kraft_mode_respond_as_kafkas() -> None:
    """A story at the active controllers with their metadata logs, and odd requests of every API to the brokers."""
    kafka_classpath()  # skips without Apache Kafka 4.3.1
    said = run("differential_kraft.py")
    assert re.search(
        r"^1\d{3} requests compared, \d+ responses differ for a reason, 0 without one$", said, re.MULTILINE
    )


def test_coordinators_respond_and_write_as_kafkas() -> None:
    """Random stories of consumer groups, of share groups and of states at a share coordinator, with their records."""
    kafka_classpath()  # skips without Apache Kafka 4.3.1
    said = run("differential_coordinators.py", "--seeds", "2")
    assert re.search(
        r"^\d{3} responses compared, \d+ differ for a reason, 0 stories without one$", said, re.MULTILINE
    ), said
    for topic in ("__share_group_state", "__consumer_offsets"):
        assert re.search(rf"^{topic}: \d+ records of Kafka's in \d+ parts compared, 0 differ$", said, re.MULTILINE), (
            said
        )


def test_tools_of_groups_print_as_on_kafka() -> None:
    """kafka-consumer-groups and kafka-share-groups of 4.3.1, about groups from their first member to their end."""
    kafka_classpath()  # skips without Apache Kafka 4.3.1
    said = run("differential_group_tools.py")
    assert re.search(r"^group tools: 70 outputs compared, 0 differ$", said, re.MULTILINE), said


def test_failures_in_kraft_mode_end_as_on_kafka() -> None:
    """An ISR below its minimum, and the last replica in sync (KIP-966), with three brokers of Kafka 4.3.1."""
    kafka_classpath()  # skips without Apache Kafka 4.3.1
    said = run("differential_failures_kraft.py", "min-insync-replicas", "last-replica-standing")
    assert re.search(r"^failures: 2 scenarios, \d{3} fields compared, 0 differ$", said, re.MULTILINE), said
