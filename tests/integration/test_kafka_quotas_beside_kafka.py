"""The same throttled requests to Apache Kafka 3.9 and to Tidegauge: throttle times, errors and withheld records."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.integration.conftest import MakeCluster, free_base_port
from tests.waiting import until
from tests.wire_responses.probe import Facts, Probe, message

from tidegauge_client.records import NewRecord, encode_batch

pytest.importorskip("confluent_kafka", reason="pip install -e '.[dev]' brings it")

from tests.integration.apache_kafka import KafkaBroker, Unavailable

pytestmark = [pytest.mark.integration, pytest.mark.long, pytest.mark.timeout(600)]
TOPIC = "throttled-0"
LIMIT_SECONDS = 150.0
QUOTAS = {
    "producer-100": {"producer_byte_rate": 100.0},
    "producer-2000": {"producer_byte_rate": 100.0},
    "producer-3000": {"producer_byte_rate": 100.0},
    "consumer--1": {"consumer_byte_rate": 50.0},
    "consumer-0": {"consumer_byte_rate": 50.0},
    "maker": {"controller_mutation_rate": 0.001},
    "older-maker": {"controller_mutation_rate": 0.001},
    "canary": {"producer_byte_rate": 1.0},
}
"""By client id; changes are applied in their order, so the canary's is the last."""
OFTEN = 1_000_000
"""Throttle times that fall while the request is handled are compared in such parts of ms."""


def produce(value: bytes, acks: int = 1) -> Any:
    batch = encode_batch([NewRecord(value=value, timestamp_ms=1_700_000_000_000)])
    data = [{"name": TOPIC, "partition_data": [{"index": 0, "records": batch}]}]
    return message("Produce", transactional_id=None, acks=acks, timeout_ms=30_000, topic_data=data)


def fetch(session_epoch: int = -1) -> Any:
    partitions = [{"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1 << 20}]
    topics = [{"topic": TOPIC, "partitions": partitions}]
    return message("Fetch", max_wait_ms=0, min_bytes=0, max_bytes=1 << 20, session_epoch=session_epoch, topics=topics)


def creation(*counts: int, prefix: str) -> Any:
    topics = [
        {
            "name": f"{prefix}-{number}",
            "num_partitions": count,
            "replication_factor": 1,
            "assignments": [],
            "configs": [],
        }
        for number, count in enumerate(counts)
    ]
    return message("CreateTopics", topics=topics, timeout_ms=60_000)


def facts(address: tuple[str, int]) -> Facts:
    """Return what one broker says to clients above their quotas."""
    probe = Probe([address])
    try:
        probe.case("a topic", 0, 7, creation(1, prefix="throttled"), lambda found: found.topics[0].error_code)
        probe.topic(TOPIC)
        probe.case("a batch that is larger than what may be read", 0, 9, produce(b"x" * 2_000), lambda _: "taken")
        return _throttled(probe)
    finally:
        probe.close()


def _throttled(probe: Probe) -> Facts:
    for client_id, values in QUOTAS.items():
        who = [{"entity_type": "client-id", "entity_name": client_id}]
        ops = [{"key": key, "value": value, "remove": False} for key, value in values.items()]
        request = message("AlterClientQuotas", entries=[{"entity": who, "ops": ops}], validate_only=False)
        probe.case(f"a quota of {client_id}", 0, 1, request, lambda found: found.entries[0].error_code)

    def ask(client_id: str, version: int, request: Any) -> Any:
        peer = probe.new_peer(0, client_id)
        try:
            return peer.ask(version, request)
        finally:
            peer.close()

    until(lambda: ask("canary", 9, produce(b"x")).throttle_time_ms > 0, LIMIT_SECONDS, "the quotas are in force")
    for size in (100, 2_000, 3_000):
        response = ask(f"producer-{size}", 9, produce(b"x" * size))
        [partition] = response.responses[0].partition_responses
        probe.note(f"a produce of {size} bytes", (partition.error_code, response.throttle_time_ms))
    for epoch in (-1, 0):
        response = ask(f"consumer-{epoch}", 12, fetch(epoch))
        found = (response.throttle_time_ms, response.error_code, response.session_id, list(response.responses))
        probe.note(f"a fetch with session epoch {epoch}", found)
    for client_id, version in (("maker", 7), ("older-maker", 5)):
        response = ask(client_id, version, creation(30, 1, prefix=client_id))
        found = [(one.name, one.error_code, one.error_message) for one in response.topics]
        probe.note(f"topics of {client_id}", (sorted(found), response.throttle_time_ms // OFTEN))
    return probe.facts


def test_clients_above_their_quotas_are_throttled_for_the_same_time(
    make_cluster: MakeCluster, zookeeper: str, tmp_path: Path
) -> None:
    """The first use of a quota has the same throttle time to the millisecond: sizes and windows are alike."""
    port = free_base_port()
    try:
        kafka = KafkaBroker(
            0,
            {"offsets.topic.replication.factor": "1"},
            port=port,
            log_dirs=[tmp_path / "kafka-logs"],
            zookeeper=f"{zookeeper}/quotas-of-kafka",
            directory=tmp_path / "kafka",
        )
    except Unavailable as problem:
        pytest.skip(f"Apache Kafka can't be had here: {problem}")
    kafka.start()
    try:
        kafka.wait_started()
        theirs = facts(("127.0.0.1", port))
    finally:
        if kafka.pid is not None:
            kafka.kill()
    host, _, own_port = make_cluster(brokers=1).kafka_bootstrap_servers[0].partition(":")
    ours = facts((host, int(own_port)))
    different = [
        f"{name}: {fact}, Tidegauge {ours.get(name)}" for name, fact in theirs.items() if ours.get(name) != fact
    ]
    assert not different, "\n".join(different)
    assert any("89" in fact for name, fact in ours.items() if name == "topics of maker")
