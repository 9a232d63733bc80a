"""Controller and brokers over Kafka's protocol: what one end sends, the other end's handler gives to its service.

The connection is replaced by the codec: each request is encoded and decoded in the version that its sender asks for.
"""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.server.kafka_service import FakeService, ask

from tidegauge.cluster_metadata import PartitionState
from tidegauge.control import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    ControlHeader,
    Endpoint,
    IsrProposal,
    IsrVerdict,
    LeaderAndIsrPartition,
    LeaderAndIsrRequest,
    PartitionsResponse,
    StopReplicaPartition,
    StopReplicaRequest,
    UpdateMetadataRequest,
)
from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.kafka.apis import APIS
from tidegauge.listeners import Listener
from tidegauge.metadata_update import ReportedPartition
from tidegauge.partition import TopicPartition
from tidegauge.settings import parse_broker_settings
from tidegauge_broker.server.registration.kafka_controller import KafkaController
from tidegauge_broker.server.registration.to_controller import NoResponse
from tidegauge_controller.admin import NewTopic, TopicOutcome
from tidegauge_controller.zookeeper.control_links import KafkaControlLink, Undelivered
from tidegauge_controller.zookeeper.decisions.steps import ControlRequest

AT = TopicPartition("orders", 1)
TOPIC_ID = "zF9BRDkxRxeQQK4qlhtlVQ"
STATE = PartitionState(AT, TOPIC_ID, 3, 0, 4, (0, 1), 5, (0, 1))
HEADER = ControlHeader(0, 3, 9)
LIVE = [Endpoint(0, "b", 2, "r", (Listener("PLAINTEXT", "a", 1), Listener("INTERNAL", "b", 2)))]
TO = Endpoint(0, "b", 2)


class Channel:
    """A channel to a broker with this service."""

    def __init__(self, service: FakeService) -> None:
        self._service = service
        self.is_closed = False

    async def request(
        self, key: int, message: Any, timeout_seconds: float, *, at_most: int | None = None, at_least: int = 0
    ) -> Any:
        del timeout_seconds
        version = APIS[key].last if at_most is None else at_most
        assert version >= at_least
        return await ask(self._service, APIS[key].name, version, message)

    def close(self) -> None:
        self.is_closed = True


class DeadChannel:
    """A channel to a broker that is not there."""

    async def request(self, *_: Any, **__: Any) -> Any:
        raise TidegaugeError(ErrorCode.NETWORK_EXCEPTION, "no connection to b:2")


def link(channel: Any, *listeners: str) -> KafkaControlLink:
    return KafkaControlLink(channel, listeners, 1000)


def controller(channel: Any) -> KafkaController:
    values, _ = parse_broker_settings({"broker.id": "1", "zookeeper.connect": "z:1"})
    return KafkaController(lambda _address, _purpose: channel, values)


def responding(response: Any) -> Any:
    async def respond(*_arguments: Any, **_named: Any) -> Any:
        return response

    return respond


@pytest.mark.parametrize(
    "request_",
    [
        LeaderAndIsrRequest(HEADER, [LeaderAndIsrPartition(STATE, is_new=True)], [Endpoint(0, "b", 2)]),
        StopReplicaRequest(HEADER, [StopReplicaPartition(AT, 4, delete=False)]),
    ],
)
async def test_a_brokers_errors_come_back_to_the_controller(request_: ControlRequest) -> None:
    response = PartitionsResponse(partitions={AT: ErrorCode.KAFKA_STORAGE_ERROR})
    service = FakeService(leader_and_isr=responding(response), stop_replica=responding(response))
    assert await link(Channel(service)).send(request_) == response
    assert service.calls[0][1] == (request_,)


async def test_metadata_arrives_with_all_listeners() -> None:
    request = UpdateMetadataRequest(HEADER, [ReportedPartition(STATE, (1,))], LIVE, startup_complete=True)
    service = FakeService(update_metadata=lambda _: ErrorCode.STALE_BROKER_EPOCH, control_plane_listener="INTERNAL")
    response = await link(Channel(service)).send(request)
    assert response == PartitionsResponse(ErrorCode.STALE_BROKER_EPOCH)
    assert service.calls[0][1] == (request,)


async def test_a_broker_gets_the_addresses_of_the_listeners_that_it_has() -> None:
    """ZkMetadataCache.updateMetadata: else a Kafka broker logs "Listeners are not identical across brokers"."""
    request = UpdateMetadataRequest(HEADER, [], LIVE)
    service = FakeService(update_metadata=lambda _: ErrorCode.NONE, control_plane_listener="PLAINTEXT")
    await link(Channel(service), "PLAINTEXT").send(request)
    (received,) = service.calls[0][1]
    assert [one.listeners for one in received.live_brokers] == [(Listener("PLAINTEXT", "a", 1),)]


async def test_a_request_that_does_not_arrive_is_said_to_be_undelivered() -> None:
    with pytest.raises(Undelivered, match="no connection to b:2"):
        await link(DeadChannel()).send(StopReplicaRequest(HEADER, []))


async def test_a_link_closes_its_connection() -> None:
    channel = Channel(FakeService())
    await link(channel).close()
    assert channel.is_closed


async def test_a_leaders_proposals_and_their_verdicts() -> None:
    request = AlterPartitionRequest(1, 9, [IsrProposal(AT, TOPIC_ID, 4, (0, 1), 5, joiner_epoch=7)])
    response = AlterPartitionResponse(partitions=[IsrVerdict(AT, ErrorCode.NONE, 1, 4, (0, 1), 6)])
    service = FakeService(alter_partition=responding(response), controlled_topic_names=responding({TOPIC_ID: "orders"}))
    assert await controller(Channel(service)).alter_partition(TO, request) == response
    assert ("alter_partition", (request,), {}) in service.calls


async def test_a_broker_that_stops_learns_what_it_still_leads() -> None:
    service = FakeService(controlled_shutdown=responding((ErrorCode.NONE, [AT])))
    assert await controller(Channel(service)).controlled_shutdown(TO, 1, 9) == (ErrorCode.NONE, [AT])
    assert service.calls == [("controlled_shutdown", (1, 9), {})]


async def test_a_block_of_producer_ids() -> None:
    service = FakeService(allocate_producer_ids=responding((ErrorCode.NONE, 2000, 1000)))
    assert await controller(Channel(service)).allocate_producer_ids(TO, 1, 9) == (ErrorCode.NONE, 2000, 1000)


@pytest.mark.parametrize(
    "topic", [NewTopic("made", assignment=[]), NewTopic("__consumer_offsets", 50, 3, [], {"cleanup.policy": "compact"})]
)
async def test_a_topic_is_asked_of_the_controller(topic: NewTopic) -> None:
    """A count that is not given is -1: the controller's default (KIP-464)."""
    outcome = TopicOutcome(topic.name, ErrorCode.INVALID_REPLICATION_FACTOR, "larger than available brokers")
    service = FakeService(create_topics=responding([outcome]))
    error = await controller(Channel(service)).create_topic(TO, topic)
    assert error == (ErrorCode.INVALID_REPLICATION_FACTOR, "larger than available brokers")
    assert list(service.calls[0][1][0]) == [topic]


async def test_a_controller_that_is_not_there_gives_no_response() -> None:
    with pytest.raises(NoResponse, match="no connection to b:2"):
        await controller(DeadChannel()).allocate_producer_ids(TO, 1, 9)
