"""Java clients of 0.10, which know no record batches: format 1 in Produce v2 and Fetch v2 and v3 (KIP-32, KIP-74).

They come from Maven Central; if it can't be reached, the tests are skipped.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.clients.programs import KAFKA_BEFORE_BATCHES, Unavailable, old_tool
from tests.clients.runs import LIMIT_SECONDS, Run
from tests.waiting import until

from tidegauge_lab.local.cluster import LocalCluster

pytestmark = [pytest.mark.integration, pytest.mark.long, pytest.mark.timeout(600)]
FEW = 60


@pytest.fixture(params=KAFKA_BEFORE_BATCHES)
def version(request: pytest.FixtureRequest, record_property: Callable[[str, object], None]) -> str:
    """The first one asks for no versions; the second one does."""
    try:
        old_tool(request.param, "VerifiableProducer")
    except Unavailable as problem:
        pytest.skip(f"Kafka {request.param} can't be had here: {problem}")
    record_property("client", "Java: Kafka's clients before record batches")
    record_property("version", request.param)
    return str(request.param)


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    return "".join(letter if letter.isalnum() else "-" for letter in request.node.name)


@pytest.fixture
def run(cluster: LocalCluster, topic: str, tmp_path: Path) -> Iterator[Run]:
    made = Run(cluster, topic, tmp_path)
    yield made
    made.close()


def objects(lines: Sequence[str], name: str) -> list[dict[str, Any]]:
    found = [json.loads(line) for line in lines if line.startswith("{")]
    return [one for one in found if one.get("name") == name]


@pytest.mark.kafka_client("verifiable producer, verifiable consumer in a group through a killed and a restarted leader")
def test_clients_of_0_10_produce_and_consume_through_a_killed_leader(
    version: str, cluster: LocalCluster, topic: str, run: Run
) -> None:
    servers = ",".join(cluster.kafka_bootstrap_servers)
    common = ["--topic", topic, "--max-messages"]

    def produce() -> None:
        command = [*old_tool(version, "VerifiableProducer"), "--broker-list", servers, *common, str(FEW)]
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=LIMIT_SECONDS)
        [summary] = objects(done.stdout.splitlines(), "tool_data")
        assert (summary["sent"], summary["acked"]) == (FEW, FEW), done.stdout

    produce()
    command = [*old_tool(version, "VerifiableConsumer"), "--broker-list", servers, "--topic", topic]
    consumer = run.start([*command, "--group-id", topic, "--reset-policy", "earliest", "--verbose"])

    def values() -> dict[int, str]:
        """Return the values read by offset; records may be read again."""
        return {one["offset"]: one["value"] for one in objects(consumer.lines(), "record_data")}

    until(lambda: len(values()) == FEW, what="the first records are read")
    with run.killed_leader():
        pass
    produce()
    until(lambda: len(values()) == 2 * FEW, timeout=LIMIT_SECONDS, what="all records are read")
    numbers = [str(number) for number in range(FEW)]
    assert [value for _, value in sorted(values().items())] == numbers * 2
