"""The stream of fetches between two brokers: which followers are admitted; a response has its request's number."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from tidegauge.errors import ErrorCode
from tidegauge.partition import TopicPartition
from tidegauge.v1 import fetch_pb2
from tidegauge_broker.replica.messages import FetchRequest, FetchResult
from tidegauge_broker.server.service.broker_service import BrokerService, FetchResponse
from tidegauge_broker.server.service.caller import Caller
from tidegauge_broker.server.service.pending_responses import PendingResponses
from tidegauge_broker.server.wire.grpc.records_response import whole
from tidegauge_broker.server.wire.grpc.replication import ReplicationServicer
from tidegauge_controller import wire

AT = TopicPartition("t", 0)


class Settings:
    def text(self, name: str) -> str:
        assert name == "replica.truncation.rule"
        return "kip-320"


class Service:
    """As far as the stream asks it: every fetch has something to tell the first time."""

    cluster_id = "mine"
    settings = Settings()
    admit_follower = BrokerService.admit_follower

    def __init__(self) -> None:
        self.asked: list[FetchRequest] = []
        self._responses = PendingResponses(lambda: 1 << 20, lambda: 1 << 20, lambda: 0.0)

    async def fetch(self, caller: Caller, request: FetchRequest) -> FetchResponse:
        assert caller.broker_id == 2
        self.asked.append(request)
        results = [(FetchResult(item.topic_partition, high_watermark=3), b"") for item in request.partitions]
        return FetchResponse(results, self._responses.for_follower(caller.connection))


class Context:
    """As far as a servicer asks who calls."""

    def peer(self) -> str:
        return "ipv4:127.0.0.1:9"

    def invocation_metadata(self) -> list[tuple[str, str]]:
        return [("tidegauge-broker-id", "2")]


async def responses(service: Service, *messages: fetch_pb2.ReplicaFetchRequest) -> list[fetch_pb2.ReplicaFetchResponse]:
    async def requests() -> AsyncIterator[fetch_pb2.ReplicaFetchRequest]:
        for message in messages:
            yield message

    as_far_as_asked: Any = service
    context: Any = Context()
    servicer = ReplicationServicer(as_far_as_asked, "PLAINTEXT")
    return [whole(response) async for response in servicer.ReplicaFetch(requests(), context)]


@pytest.mark.parametrize(
    ("cluster_id", "rule", "error", "words"),
    [
        ("another", "kip-320", ErrorCode.INCONSISTENT_CLUSTER_ID, "belongs to cluster mine"),
        ("mine", "high-watermark", ErrorCode.INVALID_REQUEST, "is kip-320, the follower's is high-watermark"),
    ],
)
async def test_a_follower_of_another_cluster_or_rule_is_refused_with_a_sentence(
    cluster_id: str, rule: str, error: ErrorCode, words: str
) -> None:
    """One truncation rule holds for the cluster: two rules would not agree on where logs diverge."""
    service = Service()
    message = fetch_pb2.ReplicaFetchRequest(request_id=9, replica_id=2, cluster_id=cluster_id, truncation_rule=rule)
    (response,) = await responses(service, message)
    assert (wire.from_error(response.error), response.request_id) == (error, 9)
    assert words in response.error_message
    assert service.asked == []


async def test_responses_bear_the_number_of_their_request_and_name_what_is_new() -> None:
    service = Service()
    wanted = fetch_pb2.FetchPartition(topic="t", partition=0, fetch_offset=3, partition_max_bytes=100)
    first = fetch_pb2.ReplicaFetchRequest(
        request_id=5, replica_id=2, cluster_id="mine", truncation_rule="kip-320", partitions=[wanted]
    )
    then = fetch_pb2.ReplicaFetchRequest(request_id=6, replica_id=2)
    reported = await responses(service, first, then)
    assert [(response.request_id, len(response.partitions)) for response in reported] == [(5, 1), (6, 0)]
    assert [[item.topic_partition for item in request.partitions] for request in service.asked] == [[AT], [AT]]
