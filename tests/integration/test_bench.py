"""The benchmarks that measure with Kafka's clients run to their end and print a table with every row (smoke tests)."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
pytestmark = [pytest.mark.integration, pytest.mark.long, pytest.mark.timeout(600)]


def printed(name: str, base_port: int, *arguments: str) -> list[str]:
    command = [sys.executable, str(ROOT / "bench" / name), *arguments, "--base-port", str(base_port)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.returncode == 0, done.stdout + done.stderr[-3_000:]
    return done.stdout.splitlines()


def test_the_cost_of_requests_is_measured_beside_a_bare_server(next_base_port: Callable[[], int]) -> None:
    lines = printed("kafka_request_cost.py", next_base_port(), "--rounds", "1", "--requests", "20")
    rows = {line.split()[1]: line.split("|") for line in lines if line.startswith("| ")}
    assert rows.keys() == {"API", "Produce", "Fetch", "Metadata", "ListOffsets", "ApiVersions"}
    del rows["API"]
    for _, _, least, median, bare, above, _ in rows.values():
        bare_median = float(bare.split(",")[1])
        assert bare_median > 0, "no CPU time was counted"
        assert float(least) == float(median), "there is one round"
        assert abs(float(median) - bare_median - float(above)) <= 2, "figures are rounded"


@pytest.mark.skipif(importlib.util.find_spec("confluent_kafka") is None, reason="confluent-kafka is not installed")
def test_kafkas_clients_are_measured_against_our_brokers(next_base_port: Callable[[], int]) -> None:
    """Without Apache Kafka; its perf tools are left out by the program where Maven can't have them."""
    workload = ("--cells", "100 B, 1 partition, acks=all", "--records", "500", "--rounds", "1")
    lines = printed("kafka_clients.py", next_base_port(), "--without-kafka", *workload)
    rows = {line.split("|")[2].strip(): line.split("|")[3].strip() for line in lines if line.startswith("| 100 B")}
    for row in ("librdkafka produces, records/s", "librdkafka consumes, records/s"):
        assert float(rows[row].replace(",", "")) > 0
    assert sum(row.startswith("tidegauge_client") for row in rows) == 2
