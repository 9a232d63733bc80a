"""A rolling swap: three Tidegauge brokers become Apache Kafka's one at a time, on the same ids and data, and back.

Java's VerifiableProducer (acks=all, idempotent) writes meanwhile, as long as the swap lasts: nothing is lost, nothing
stands twice.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.clients.programs import KAFKA, tool
from tests.clients.runs import Child
from tests.integration.conftest import MakeCluster
from tests.waiting import until

pytest.importorskip("confluent_kafka", reason="pip install -e '.[dev]' brings it")

from confluent_kafka import TopicPartition as Position
from tests.integration.apache_kafka import Unavailable
from tests.integration.mixed_cluster import MixedCluster
from tests.integration.swap_clients import LIMIT_SECONDS, read_all

pytestmark = [pytest.mark.integration, pytest.mark.long, pytest.mark.timeout(1500)]
TOPIC = "swapped"


@pytest.fixture
def mixed(make_cluster: MakeCluster, next_base_port: Callable[[], int], tmp_path: Path) -> Iterator[MixedCluster]:
    try:
        made = MixedCluster(make_cluster, next_base_port(), tmp_path / "kafka", kafkas=())
    except Unavailable as problem:
        pytest.skip(f"Apache Kafka can't be had here: {problem}")
    made.start(*made.ids)
    yield made
    made.end()


def test_brokers_are_swapped_one_at_a_time_and_back_under_load(mixed: MixedCluster, tmp_path: Path) -> None:
    """Each swap is a controlled shutdown and a start of the other kind; the next one follows when all are in sync."""
    mixed.create_topic(TOPIC, [[0, 1, 2], [1, 2, 0], [2, 0, 1]], **{"min.insync.replicas": "2"})
    (tmp_path / "producer.properties").write_text(
        "enable.idempotence=true\nretries=2147483647\ndelivery.timeout.ms=600000\n"
    )
    command = [*tool(KAFKA, "VerifiableProducer"), "--bootstrap-server", mixed.servers, "--topic", TOPIC]
    command += ["--throughput", "100", "--acks", "-1", "--producer.config", str(tmp_path / "producer.properties")]
    producer = Child(command, {}, tmp_path / "producer.log")

    def acknowledged() -> int:
        return sum('"producer_send_success"' in line for line in producer.lines())

    try:
        for broker_id in (*mixed.ids, *mixed.ids):
            before = acknowledged()
            until(lambda: acknowledged() > before + 100, LIMIT_SECONDS, "records are acknowledged")  # noqa: B023
            mixed.change(broker_id)
            mixed.wait_in_sync(TOPIC)
        before = acknowledged()
        until(lambda: acknowledged() > before + 100, LIMIT_SECONDS, "records are acknowledged")
        printed = producer.stop()
    finally:
        producer.kill()
    events = [json.loads(line) for line in printed]
    sent = {(event["partition"], event["offset"]): event["value"] for event in events if is_sent(event)}
    assert not [event for event in events if event["name"] == "producer_send_error"]
    found = read_all(mixed.servers, [Position(TOPIC, partition, 0) for partition in range(3)], committed=False)
    kept = {
        (partition, offset): (record.value or b"").decode()
        for (_, partition), records in found.items()
        for offset, record in records.items()
    }
    assert kept == sent
    assert len(set(kept.values())) == len(kept), "nothing stands twice"
    print(f"{len(kept)} records through six swaps")


def is_sent(event: dict[str, object]) -> bool:
    """Whether a record was acknowledged."""
    return event["name"] == "producer_send_success"
