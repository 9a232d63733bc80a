"""Seconds that failover tests of an application cost: pytest, the plugin, and confluent-kafka as the application.

A project of its own is written to a temporary directory and tested as its users would: each test gets the session's
cluster and a topic of its own, produces, kills the leader, waits for the next one, produces again, and in the tests
of consumers reads both records as a member of a group. The next test's set-up restores the cluster. It prints
the seconds of each set-up and each test, and of the whole session (docs/guide/pytest.md has a run of it).

librdkafka looks for a dead leader's successor once a second, and often needs two of these looks, whatever the cluster
does; ``--refresh-ms 100`` lets the application look as often as that (topic.metadata.refresh.interval.ms).
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

BOUND_SECONDS = 600.0
TIMES_FILE = "times.jsonl"

CONFTEST = """
import json
import pathlib


def pytest_runtest_logreport(report):
    with pathlib.Path(__file__).with_name("times.jsonl").open("a") as times:
        json.dump({"test": report.nodeid, "phase": report.when, "passed": report.passed, "s": report.duration}, times)
        times.write("\\n")
"""

TESTS = """
import pytest
from confluent_kafka import Consumer, Producer


def client(cluster):
    refresh = {"topic.metadata.refresh.interval.ms": REFRESH_MS} if REFRESH_MS else {}
    return {"bootstrap.servers": cluster.kafka_bootstrap_servers} | refresh


def acknowledged(producer, topic, value):
    failures = []
    producer.produce(topic, value, on_delivery=lambda error, _: failures.append(error) if error else None)
    assert producer.flush(30) == 0
    assert failures == []


def read(cluster, topic, count):
    consumer = Consumer(client(cluster) | {"group.id": topic, "auto.offset.reset": "earliest"})
    try:
        consumer.subscribe([topic])
        values = []
        while len(values) < count:
            message = consumer.poll(30)
            assert message is not None, values
            if message.error() is None:
                values.append(message.value())
        return values
    finally:
        consumer.close()


@pytest.mark.parametrize("number", range(NUMBER))
def test_failover(tidegauge_cluster, tidegauge_topic, number):
    producer = Producer(client(tidegauge_cluster))
    acknowledged(producer, tidegauge_topic, b"before")
    dead = tidegauge_cluster.kill_leader(tidegauge_topic, expire=EXPIRE)
    tidegauge_cluster.wait_leader(tidegauge_topic, other_than=dead)
    acknowledged(producer, tidegauge_topic, b"after")
    if CONSUMER:
        assert read(tidegauge_cluster, tidegauge_topic, 2) == [b"before", b"after"]
"""


class Phase(NamedTuple):
    """One phase of one test, as pytest reports it."""

    test: str
    phase: str
    passed: bool
    s: float


class Run(NamedTuple):
    """One session of pytest.

    Attributes:
        seconds: from the start of its process to its end.
        phases: of all its tests.
    """

    seconds: float
    phases: list[Phase]

    def of(self, phase: str) -> list[float]:
        """Return the seconds of one phase, in the order of the tests."""
        return [one.s for one in self.phases if one.phase == phase]


def run_session(number: int, *, expire: bool, consumer: bool, refresh_ms: int | None) -> Run:
    """Run the tests in a process of their own.

    Args:
        number: of tests.
        expire: end the dead leader's ZooKeeper session with its process.
        consumer: read the records as a member of a group after the failover.
        refresh_ms: the clients' topic.metadata.refresh.interval.ms; None: librdkafka's own.

    Raises:
        SystemExit: a test failed; what pytest printed is the message.
    """
    with tempfile.TemporaryDirectory(prefix="failover-tests-") as directory:
        project = Path(directory)
        (project / "pytest.ini").write_text("[pytest]\n")
        (project / "conftest.py").write_text(CONFTEST)
        constants = {"NUMBER": number, "EXPIRE": expire, "CONSUMER": consumer, "REFRESH_MS": refresh_ms}
        head = "".join(f"{name} = {value!r}\n" for name, value in constants.items())
        (project / "test_failover.py").write_text(head + TESTS)
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--basetemp", str(project / "temp")]
        environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST")}
        began = time.monotonic()
        done = subprocess.run(
            command, cwd=project, env=environment, capture_output=True, text=True, timeout=BOUND_SECONDS, check=False
        )
        seconds = time.monotonic() - began
        if done.returncode:
            raise SystemExit(done.stdout + done.stderr)
        lines = (project / TIMES_FILE).read_text().splitlines()
    return Run(seconds, [Phase(**json.loads(line)) for line in lines])


def table(run: Run) -> list[str]:
    """Return the lines about a run: start, medians, each test."""
    setups, calls = run.of("setup"), run.of("call")
    lines = [f"whole session {run.seconds:.1f} s, {len(calls)} tests"]
    lines += [f"cluster and first topic {setups[0]:.2f} s, its end {run.of('teardown')[-1]:.2f} s"]
    if len(setups) > 1:
        lines += [f"set-up of a next test, median {statistics.median(setups[1:]):.2f} s"]
    lines += [f"test, median {statistics.median(calls):.2f} s"]
    pairs = zip(setups, calls, strict=True)
    lines += [f"  {number:2}: set-up {setup:5.2f}  test {call:5.2f}" for number, (setup, call) in enumerate(pairs)]
    return lines


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the tests as often as asked, and print what they cost."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tests", type=int, default=10, metavar="N", help="tests in a session (10)")
    parser.add_argument("--rounds", type=int, default=1, metavar="N", help="sessions (1)")
    parser.add_argument("--consumer", action="store_true", help="read the records as a member of a group, too")
    parser.add_argument("--crash", action="store_true", help="leave the session to its timeout, as without expire=True")
    parser.add_argument("--refresh-ms", type=int, metavar="MS", help="the clients' topic.metadata.refresh.interval.ms")
    asked = parser.parse_args(arguments)
    for _ in range(asked.rounds):
        run = run_session(asked.tests, expire=not asked.crash, consumer=asked.consumer, refresh_ms=asked.refresh_ms)
        print("\n".join(table(run)), flush=True)


if __name__ == "__main__":
    main()
