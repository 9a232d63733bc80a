"""Contents of GET responses over HTTP: replicas with their last stable offset, and transactional ids."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.partition import TopicPartition
from tidegauge.v1 import metadata_pb2
from tidegauge_client.admin import Admin
from tidegauge_client.admin_transactions import ProducerDescription, TransactionDescription
from tidegauge_client.metadata import from_response
from tidegauge_lab.control.transactions import start_offsets
from tidegauge_lab.control.views import cluster_view, partition_view, transaction_view
from tidegauge_lab.observation import Observation

AT, OTHER, SILENT = TopicPartition("orders", 0), TopicPartition("orders", 1), TopicPartition("orders", 2)
FOUND = TransactionDescription("copier", 2, "Ongoing", 7, 3, 60_000, 1_700, (AT, OTHER, SILENT))


def seen(role: str, stable: int | None) -> Observation:
    state = metadata_pb2.PartitionMetadata(partition=0, leader_id=1, leader_epoch=4, replicas=[1, 2], isr=[1, 2])
    said = metadata_pb2.ReplicaDescription(
        topic="orders", partition=0, role=role, leader_epoch=4, log_end_offset=9, high_watermark=8
    )
    if stable is not None:
        said.last_stable_offset = stable
    topic = metadata_pb2.TopicMetadata(name="orders", partitions=[state])
    return Observation(from_response(metadata_pb2.MetadataResponse(topics=[topic])), replicas=(said,))


def test_each_replica_has_its_own_last_stable_offset_and_the_partition_its_leaders() -> None:
    view = partition_view(AT, {1: seen("leader", 5), 2: seen("follower", 4)})
    assert view is not None
    assert (view["high_watermark"], view["last_stable_offset"]) == (8, 5)
    assert [one["last_stable_offset"] for one in view["replicas"]] == [5, 4]
    unknown = partition_view(AT, {1: seen("follower", 5), 2: seen("follower", None)})
    assert unknown is not None
    assert unknown["last_stable_offset"] is None, "no replica leads"
    assert unknown["replicas"][1]["last_stable_offset"] is None


def test_a_transactional_id_is_what_its_coordinator_has() -> None:
    assert transaction_view(FOUND, {AT: 40, OTHER: None}) == {
        "id": "copier",
        "state": "Ongoing",
        "coordinator": 2,
        "producer_id": 7,
        "producer_epoch": 3,
        "timeout_ms": 60_000,
        "start_time_ms": 1_700,
        "partitions": [
            {"topic": "orders", "partition": 0, "start_offset": 40},
            {"topic": "orders", "partition": 1, "start_offset": None},
            {"topic": "orders", "partition": 2, "start_offset": None},
        ],
    }


async def test_where_a_transaction_begins_is_said_by_the_leaders() -> None:
    async def describe_producers(at: TopicPartition, **_: Any) -> list[ProducerDescription]:
        if at == SILENT:
            raise TidegaugeError(ErrorCode.LEADER_NOT_AVAILABLE, "none")
        mine = 40 if at == AT else None
        return [ProducerDescription(1, 0, 0, 0, 0, 3), ProducerDescription(7, 3, 0, 0, 0, mine)]

    admin = cast("Admin", SimpleNamespace(describe_producers=describe_producers))
    assert await start_offsets(admin, FOUND) == {AT: 40, OTHER: None, SILENT: None}


def test_a_kafka_broker_with_the_id_of_one_that_is_down_does_not_keep_a_cluster_from_being_ready() -> None:
    """A rolling swap on the same ids: two processes are up, Apache Kafka is registered as the third."""
    response = metadata_pb2.MetadataResponse(controller_id=2, controller_epoch=1)
    for one in (0, 1):
        response.brokers.add(broker_id=one, host="127.0.0.1", port=19092 + one)
    alone = metadata_pb2.MetadataResponse()
    alone.CopyFrom(response)
    response.brokers_without_listener.add(broker_id=2, host="127.0.0.1", port=9094)
    states = {0: "up", 1: "up", 2: "down"}
    status: dict[str, Any] = {
        "bootstrap_servers": "", "kafka_bootstrap_servers": "", "zookeeper": {},
        "mode": "zookeeper", "controllers": [], "controller": {"id": 2, "broker": 2, "epoch": 1},
        "brokers": [{"id": one, "state": state} for one, state in states.items()],
        "kafka_brokers": [{"id": 2, "address": "127.0.0.1:9094"}],
    }  # fmt: skip
    views = {one: Observation(from_response(response), ready=True) for one in (0, 1)}
    view = cluster_view(status, views)
    assert (view["ready"], view["lacks"]) == (True, "")
    assert view["kafka_brokers"] == status["kafka_brokers"]
    behind = cluster_view(status, views | {1: Observation(from_response(alone), ready=True)})
    assert behind["lacks"] == "broker 1 does not see broker 2 yet"
    assert cluster_view(status | {"kafka_brokers": []}, views)["lacks"] == "broker 2 is down"
