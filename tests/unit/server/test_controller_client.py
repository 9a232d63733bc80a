"""Requests of a broker to the controller: ISR proposals until they have a response, and blocks of producer ids.

Sources: AlterPartitionManager (one request in flight, the rest waits for the next; an error of the whole request is
retried without end) and RPCProducerIdManager.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.waiting import until_async

from tidegauge.control import AlterPartitionResponse, Endpoint, IsrProposal, IsrVerdict
from tidegauge.errors import ErrorCode
from tidegauge.logical_clock import LogicalClock
from tidegauge.partition import TopicPartition
from tidegauge.settings import parse_broker_settings
from tidegauge_broker.server.registration import controller_client
from tidegauge_broker.server.registration.controller_client import AlterPartitionManager, ControllerClient, ProducerIds
from tidegauge_broker.server.registration.grpc_controller import GrpcController
from tidegauge_controller import wire

A, B = TopicPartition("t", 0), TopicPartition("t", 1)
NONE = ErrorCode.NONE
SETTINGS = {"broker.id": "1", "zookeeper.connect": "127.0.0.1:1", "log.dirs": "nowhere"}


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(controller_client, "RETRY_SECONDS", 0)


def proposal(at: TopicPartition = A, *isr: int, leader_epoch: int = 0) -> IsrProposal:
    return IsrProposal(at, "id", leader_epoch, isr or (1, 2), 0)


def over_grpc(peers: Any) -> GrpcController:
    return GrpcController(peers, parse_broker_settings(SETTINGS)[0], LogicalClock(lambda: 0))


class Controller:
    """The controller's end of the wire; its responses are set in advance, what it was asked is kept."""

    def __init__(self, *responses: AlterPartitionResponse) -> None:
        self.responses = list(responses)
        self.asked: list[tuple[int, list[TopicPartition]]] = []

    async def AlterPartition(self, message: Any, timeout: float) -> Any:  # noqa: N802, ASYNC109 - a gRPC stub's
        request = wire.from_alter_partition(message)
        self.asked.append((request.broker_epoch, [item.topic_partition for item in request.partitions]))
        return wire.to_alter_partition_response(self.responses.pop(0))


async def test_an_error_of_the_whole_is_retried_with_the_broker_epoch_of_the_moment() -> None:
    """NOT_CONTROLLER: another will be; STALE_BROKER_EPOCH: this broker registers again."""
    verdict = IsrVerdict(A, NONE, 1, 0, (1, 2), 1)
    controller = Controller(
        AlterPartitionResponse(ErrorCode.NOT_CONTROLLER),
        AlterPartitionResponse(ErrorCode.STALE_BROKER_EPOCH),
        AlterPartitionResponse(NONE, [verdict]),
    )
    epochs = iter([7, 7, 8])
    controllers: list[int | None] = [None, None, 3, 3, 3]
    anything: Any = controller
    client = ControllerClient(
        1,
        lambda: next(epochs),
        lambda: controllers.pop(0),
        metadata=_Metadata(),  # type: ignore[arg-type]  # as far as it is asked
        to_controller=over_grpc(_Peers(anything)),
        settings=parse_broker_settings(SETTINGS)[0],
    )
    assert await client.alter_partition([proposal()]) == {A: verdict}
    assert controller.asked == [(7, [A]), (7, [A]), (8, [A])]


async def test_a_frozen_controller_is_given_up_when_another_one_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not only after request.timeout.ms: its successor is there when its session has ended."""
    monkeypatch.setattr(controller_client, "LOOK_AGAIN_SECONDS", 0)
    verdict = IsrVerdict(A, NONE, 1, 0, (1, 2), 1)
    successor = Controller(AlterPartitionResponse(NONE, [verdict]))
    now: list[int | None] = [3, None, None, 2]  # it sleeps. Its session ends. Another is elected

    def controller_id() -> int | None:
        return now.pop(0) if len(now) > 1 else now[0]

    class Peers:
        def controller(self, address: str) -> Any:
            return successor if address == "127.0.0.1:2" else Frozen()

    client = ControllerClient(
        1,
        lambda: 7,
        controller_id,
        metadata=_ById(),  # type: ignore[arg-type]  # as far as it is asked
        to_controller=over_grpc(Peers()),
        settings=parse_broker_settings(SETTINGS)[0],
    )
    assert await client.alter_partition([proposal()]) == {A: verdict}


class Frozen:
    """A controller whose process stands still."""

    async def AlterPartition(self, message: Any, timeout: float) -> Any:  # noqa: N802, ASYNC109 - a gRPC stub's
        await asyncio.Event().wait()


class _ById:
    def endpoint(self, broker_id: int) -> Endpoint:
        return Endpoint(broker_id, "127.0.0.1", broker_id, None)


class _Metadata:
    def endpoint(self, _broker_id: int) -> Endpoint:
        return Endpoint(3, "127.0.0.1", 1, None)


class _Peers:
    def __init__(self, controller: Controller) -> None:
        self._controller = controller

    def controller(self, _address: str) -> Controller:
        return self._controller


class Client:
    """A ControllerClient whose responses the test gives."""

    def __init__(self) -> None:
        self.asked: list[list[IsrProposal]] = []
        self.responses: list[asyncio.Future[dict[TopicPartition, IsrVerdict]]] = []
        self.blocks: list[tuple[ErrorCode, int, int]] = []

    async def alter_partition(self, proposals: list[IsrProposal]) -> dict[TopicPartition, IsrVerdict]:
        self.asked.append(proposals)
        self.responses.append(asyncio.get_running_loop().create_future())
        return await self.responses[-1]

    async def allocate_producer_ids(self) -> tuple[ErrorCode, int, int]:
        return self.blocks.pop(0)

    async def is_asked(self, times: int) -> None:
        async def asked() -> bool:
            return len(self.asked) >= times

        await until_async(asked)


async def test_one_request_is_in_flight_and_what_comes_meanwhile_goes_in_the_next() -> None:
    client, reported = Client(), []
    manager = AlterPartitionManager(client, lambda asked, verdict: reported.append((asked, verdict.error)))  # type: ignore[arg-type]  # as far as it is asked
    first, second, third = proposal(A), proposal(B), proposal(A, 1, leader_epoch=1)
    manager.propose(first)
    await client.is_asked(1)
    manager.propose(second)
    manager.propose(third)
    assert client.asked == [[first]]
    client.responses[0].set_result({A: IsrVerdict(A, ErrorCode.FENCED_LEADER_EPOCH)})
    await client.is_asked(2)
    assert reported == [(first, ErrorCode.FENCED_LEADER_EPOCH)], "the verdict bears the very proposal"
    assert client.asked[1] == [second, third]
    client.responses[1].set_result({A: IsrVerdict(A, NONE)})

    async def all_reported() -> bool:
        return len(reported) == 3

    await until_async(all_reported)
    assert reported[1:] == [(second, ErrorCode.UNKNOWN_SERVER_ERROR), (third, NONE)], "one without an answer asks again"
    await manager.close()


async def test_a_defect_leaves_no_proposal_without_a_verdict() -> None:
    """A partition whose proposal has no verdict would never again change its ISR; the core decides again."""
    client, reported = Client(), []
    manager = AlterPartitionManager(client, lambda asked, verdict: reported.append((asked, verdict.error)))  # type: ignore[arg-type]  # as far as it is asked
    first, second = proposal(A), proposal(B)
    manager.propose(first)
    await client.is_asked(1)
    manager.propose(second)
    client.responses[0].set_exception(KeyError("a topic that the response does not name"))
    await client.is_asked(2)
    assert reported == [(first, ErrorCode.UNKNOWN_SERVER_ERROR)]
    client.responses[1].set_result({B: IsrVerdict(B, NONE)})

    async def all_reported() -> bool:
        return len(reported) == 2

    await until_async(all_reported)
    assert reported[1] == (second, NONE)
    await manager.close()


async def test_ids_come_from_blocks_and_the_next_is_asked_for_before_the_last_is_used_up() -> None:
    client = Client()
    client.blocks = [(ErrorCode.NOT_CONTROLLER, 0, 0), (NONE, 1000, 10), (NONE, 5000, 10)]
    ids = ProducerIds(client)  # type: ignore[arg-type]  # as far as it is asked
    assert ids.next() is None

    async def at_hand() -> bool:
        return (found := ids.next()) is not None and bool(given.append(found) or True)

    given: list[int] = []
    await until_async(at_hand)
    given += [found for found in (ids.next() for _ in range(8)) if found is not None]
    assert given == list(range(1000, 1009))
    assert len(client.blocks) == 1
    given.append(ids.next() or 0)  # the last tenth: the next block is on its way

    async def asked() -> bool:
        return client.blocks == []

    await until_async(asked)
    assert given[-1] == 1009
    given.clear()
    await until_async(at_hand)
    assert given == [5000]
    await ids.close()
