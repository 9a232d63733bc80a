"""Which topics there are, as brokers say it: those that have no metadata yet say nothing of them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.partition import TopicPartition
from tidegauge.v1 import metadata_pb2
from tidegauge_spark.broker_channels import BrokerChannels
from tidegauge_spark.cluster_metadata import ClusterMetadata, PartitionLeader
from tidegauge_spark.options import ConnectionOptions, Subscription
from tidegauge_spark.transport import ClusterClient

ORDERS = Subscription(topics=("orders",))
NAMED_TOPIC = metadata_pb2.TopicMetadata(name="orders", topic_id="id")
NAMED_TOPIC.partitions.add(partition=0, leader_id=1, leader_epoch=3)
UNKNOWN_TOPIC = metadata_pb2.TopicMetadata(name="orders", error=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


def client_of(monkeypatch: pytest.MonkeyPatch, *views: tuple[float, metadata_pb2.MetadataResponse]) -> ClusterClient:
    """A client of one broker that responds with the last view that has begun, by a clock that sleeping moves."""
    clock = [0.0]

    def sleep(seconds: float) -> None:
        clock[0] += seconds

    def respond(_request: Any, timeout: float) -> metadata_pb2.MetadataResponse:
        assert timeout > 0
        return [view for since, view in views if since <= clock[0]][-1]

    client = ClusterClient(ConnectionOptions(("127.0.0.1:1",)), lambda: clock[0], sleep)
    monkeypatch.setattr(BrokerChannels, "stub", lambda _self, _address: SimpleNamespace(Metadata=respond))
    return client


def view(topic: metadata_pb2.TopicMetadata, *, has_metadata: bool = True) -> metadata_pb2.MetadataResponse:
    response = metadata_pb2.MetadataResponse(topics=[topic])
    if has_metadata:
        response.brokers.add(broker_id=1, host="127.0.0.1", port=1)
    return response


def test_a_query_waits_for_brokers_that_no_controller_has_sent_metadata_since_their_start(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """All brokers were killed: those that are back know no topic, longer than a topic may be unknown."""
    client = client_of(monkeypatch, (0, view(UNKNOWN_TOPIC, has_metadata=False)), (30, view(NAMED_TOPIC)))
    assert list(client.partitions(ORDERS)) == [TopicPartition("orders", 0)]


def test_a_topic_that_brokers_with_metadata_do_not_know_is_reported_after_some_seconds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    client = client_of(monkeypatch, (0, view(UNKNOWN_TOPIC)))
    with pytest.raises(TidegaugeError) as raised:
        client.partitions(ORDERS)
    assert raised.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_brokers_that_never_get_metadata_are_said_not_to_respond(monkeypatch: pytest.MonkeyPatch) -> None:
    client = client_of(monkeypatch, (0, view(UNKNOWN_TOPIC, has_metadata=False)))
    with pytest.raises(TidegaugeError, match="none has metadata yet") as raised:
        client.partitions(ORDERS)
    assert raised.value.code is ErrorCode.REQUEST_TIMED_OUT


AT = TopicPartition("orders", 0)


def test_a_leader_of_an_older_epoch_does_not_replace_a_newer_one() -> None:
    """A partitioned former leader still names itself (KIP-320)."""
    known = ClusterMetadata()
    known.accept(AT, PartitionLeader(2, 4, "id"))
    known.accept(AT, PartitionLeader(1, 3, "id"))
    assert known.leader(AT) == PartitionLeader(2, 4, "id")
    known.accept(AT, PartitionLeader(0, 5, "id"))
    assert known.leader(AT) == PartitionLeader(0, 5, "id")


def test_a_new_topic_id_ends_all_that_was_known_of_the_topic() -> None:
    """A topic that is created again begins with epoch 0, and may have fewer partitions; other topics stay known."""
    known, other = ClusterMetadata(), TopicPartition("payments", 0)
    known.accept(AT, PartitionLeader(2, 4, "first"))
    known.accept(TopicPartition("orders", 1), PartitionLeader(2, 4, "first"))
    known.accept(other, PartitionLeader(2, 4, "another"))
    known.accept(AT, PartitionLeader(1, 0, "second"))
    assert known.leaders == {AT: PartitionLeader(1, 0, "second"), other: PartitionLeader(2, 4, "another")}


def test_partitions_are_grouped_by_leader_and_unknown_ones_have_none() -> None:
    known, others = ClusterMetadata(), [TopicPartition("orders", number) for number in (1, 2)]
    known.accept(AT, PartitionLeader(2, 4, "id"))
    known.accept(others[0], PartitionLeader(None, 4, "id"))
    assert known.by_leader([*others, AT]) == {2: [AT], None: others}
