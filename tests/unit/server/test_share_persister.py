"""The persister of share partitions' states: the coordinators it asks, its retries, and the content of one request."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Any

import pytest
from tests.memory_peer import MemoryPeer

from tidegauge.errors import ErrorCode
from tidegauge.kafka import apis
from tidegauge.kafka.messages import (
    delete_share_group_state,
    initialize_share_group_state,
    read_share_group_state,
    read_share_group_state_summary,
    write_share_group_state,
)
from tidegauge.kafka_channel import KafkaChannel
from tidegauge.share_groups import (
    DeleteShareState,
    InitializeShareState,
    ReadShareState,
    ReadShareSummary,
    SharePartitionKey,
    ShareStateRequest,
    ShareStateResult,
    StateBatch,
    WriteShareState,
)
from tidegauge_broker.server.replication.kafka_peers import KafkaPeers
from tidegauge_broker.server.share.persister import Persister

OWN, OTHER = 3, 4
TOPIC = bytes(range(16))
KEY, SECOND = SharePartitionKey("g", TOPIC, 0), SharePartitionKey("g", TOPIC, 1)
FAILED = ErrorCode.FENCED_LEADER_EPOCH


class Broker:
    """The broker around the persister: who coordinates, and what its own coordinator responds, one after the other."""

    def __init__(self, *coordinators: int | None, own: tuple[ErrorCode, ...] = ()) -> None:
        self.coordinators = list(coordinators)
        self.own = list(own)
        self.asked: list[ShareStateRequest] = []

    def coordinator_of(self, key: SharePartitionKey) -> int | None:
        del key
        return self.coordinators.pop(0) if len(self.coordinators) > 1 else self.coordinators[0]

    def address_of(self, broker_id: int) -> str | None:
        return f"h:{broker_id}"

    def topic_name(self, topic_id: bytes) -> str | None:
        del topic_id
        return "t"

    def ask(self, request: ShareStateRequest) -> Awaitable[ShareStateResult]:
        self.asked.append(request)
        future: asyncio.Future[ShareStateResult] = asyncio.get_running_loop().create_future()
        future.set_result(ShareStateResult(self.own.pop(0), "why"))
        return future


class Slept(list[float]):
    """The back-offs, which take no time."""

    async def __call__(self, seconds: float) -> None:
        self.append(seconds)


def persister(broker: Broker, peer: MemoryPeer | None = None, slept: Slept | None = None) -> Persister:
    at = peer or MemoryPeer({})
    peers = KafkaPeers(OWN, lambda address, client_id: KafkaChannel(address, client_id, at.dial))
    return Persister(OWN, broker, peers, sleep=slept if slept is not None else Slept(), jitter=lambda: 1.0)


def written(error: ErrorCode = ErrorCode.NONE, message: str | None = None) -> Any:
    """A handler of WriteShareGroupState that responds for each partition named."""

    def respond(request: Any, _version: int) -> write_share_group_state.WriteShareGroupStateResponse:
        result = write_share_group_state.PartitionResult
        return write_share_group_state.WriteShareGroupStateResponse(
            [
                write_share_group_state.WriteStateResult(
                    topic.topic_id, [result(one.partition, error, message) for one in topic.partitions]
                )
                for topic in request.topics
            ]
        )

    return respond


async def test_this_broker_asks_itself_without_the_network() -> None:
    broker = Broker(OWN, own=(ErrorCode.NONE,))
    request = ReadShareState(KEY, 5)
    assert (await persister(broker).read_state(request)).error is ErrorCode.NONE
    assert broker.asked == [request]


async def test_the_five_requests_go_over_the_wire_with_all_they_say() -> None:
    """PersisterStateManager.RequestCoalescerHelper; the results have what each response has."""
    initialize, read = initialize_share_group_state, read_share_group_state
    delete, summary = delete_share_group_state, read_share_group_state_summary
    peer = MemoryPeer(
        {
            apis.INITIALIZE_SHARE_GROUP_STATE: lambda *_: initialize.InitializeShareGroupStateResponse(
                [initialize.InitializeStateResult(TOPIC, [initialize.PartitionResult(0)])]
            ),
            apis.READ_SHARE_GROUP_STATE: lambda *_: read.ReadShareGroupStateResponse(
                [
                    read.ReadStateResult(
                        TOPIC, [read.PartitionResult(0, 0, None, 2, 10, [read.StateBatch(10, 12, 2, 1)])]
                    )
                ]
            ),
            apis.WRITE_SHARE_GROUP_STATE: written(),
            apis.DELETE_SHARE_GROUP_STATE: lambda *_: delete.DeleteShareGroupStateResponse(
                [delete.DeleteStateResult(TOPIC, [delete.PartitionResult(0)])]
            ),
            apis.READ_SHARE_GROUP_STATE_SUMMARY: lambda *_: summary.ReadShareGroupStateSummaryResponse(
                [summary.ReadStateSummaryResult(TOPIC, [summary.PartitionResult(0, 0, None, 2, 7, 10, 3)])]
            ),
        }
    )
    asks = persister(Broker(OTHER), peer)
    batch = StateBatch(10, 12, 2, 1)
    assert (await asks.initialize_state(InitializeShareState(KEY, 2, 9))).error is ErrorCode.NONE
    assert await asks.read_state(ReadShareState(KEY, 7)) == ShareStateResult(
        state_epoch=2, start_offset=10, batches=(batch,)
    )
    assert (await asks.write_state(WriteShareState(KEY, 2, 7, 10, 3, (batch,)))).error is ErrorCode.NONE
    assert (await asks.delete_state(DeleteShareState(KEY))).error is ErrorCode.NONE
    assert await asks.read_summary(ReadShareSummary(KEY, 7)) == ShareStateResult(
        state_epoch=2, leader_epoch=7, start_offset=10, complete_count=3
    )
    assert [(one.header.key, one.header.version) for one in peer.requests] == [
        (83, 0),
        (84, 0),
        (85, 1),
        (86, 0),
        (87, 1),
    ]
    parts = [one.message.topics[0].partitions[0] for one in peer.requests]
    assert (parts[0].state_epoch, parts[0].start_offset) == (2, 9)
    assert (parts[1].leader_epoch, parts[4].leader_epoch) == (7, 7)
    write = parts[2]
    assert (write.state_epoch, write.leader_epoch, write.start_offset, write.delivery_complete_count) == (2, 7, 10, 3)
    (stored,) = write.state_batches
    assert (stored.first_offset, stored.last_offset, stored.delivery_state, stored.delivery_count) == batch


@pytest.mark.parametrize(
    "error",
    [
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ],
)
async def test_an_error_that_passes_is_retried_at_the_coordinator_of_then(error: ErrorCode) -> None:
    """PersisterStateManager.handleRequestResponse: the coordinator is looked up again, after 2 and 4 s."""
    broker, slept = Broker(OWN, OTHER, OWN, own=(error, ErrorCode.NONE)), Slept()
    peer = MemoryPeer({apis.WRITE_SHARE_GROUP_STATE: written(error)})
    result = await persister(broker, peer, slept).write_state(WriteShareState(KEY))
    assert result.error is ErrorCode.NONE
    assert (len(broker.asked), len(peer.requests), slept) == (2, 1, [2.0, 4.0])


async def test_after_five_attempts_the_last_error_is_the_result() -> None:
    """MAX_FIND_COORD_ATTEMPTS, which counts for the requests as well."""
    slept = Slept()
    broker = Broker(OWN, own=(ErrorCode.NOT_COORDINATOR,) * 5)
    result = await persister(broker, slept=slept).write_state(WriteShareState(KEY))
    message = "Error in write state RPC. Exhausted max retries to complete write state RPC without success."
    assert result == ShareStateResult(ErrorCode.NOT_COORDINATOR, message)
    assert slept == [2.0, 4.0, 8.0, 16.0]


async def test_without_a_coordinator_it_is_looked_up_five_times() -> None:
    slept = Slept()
    result = await persister(Broker(None), slept=slept).read_summary(ReadShareSummary(KEY))
    message = "Error in find coordinator. Exhausted max retries to find coordinator without success."
    assert result == ShareStateResult(ErrorCode.COORDINATOR_NOT_AVAILABLE, message)
    assert slept == [2.0, 4.0, 8.0, 16.0]


async def test_an_error_that_stays_is_the_result_at_once() -> None:
    """FENCED_LEADER_EPOCH tells a leader that another one has read the state."""
    slept = Slept()
    peer = MemoryPeer({apis.WRITE_SHARE_GROUP_STATE: written(FAILED, "old")})
    result = await persister(Broker(OTHER), peer, slept).write_state(WriteShareState(KEY))
    assert (result, slept) == (ShareStateResult(FAILED, "Error in write state RPC. old"), [])


async def test_a_broker_that_cannot_be_reached_is_asked_again() -> None:
    """checkResponseError: a disconnection is retried."""
    broker, slept = Broker(OTHER, OWN, own=(ErrorCode.NONE,)), Slept()
    peer = MemoryPeer({})
    peer.refuses = OSError("no such host")
    result = await persister(broker, peer, slept).delete_state(DeleteShareState(KEY))
    assert (result.error, slept) == (ErrorCode.NONE, [2.0])


async def test_requests_that_come_while_one_is_in_flight_go_together() -> None:
    """PersisterStateManager.generateRequests; a share partition that waits twice goes in two requests, in order."""
    peer = MemoryPeer({apis.WRITE_SHARE_GROUP_STATE: written()})
    asks = persister(Broker(OTHER), peer)
    requests = [WriteShareState(key, start_offset=start) for key, start in ((KEY, 1), (KEY, 2), (SECOND, 3), (KEY, 4))]
    first = asyncio.ensure_future(asks.write_state(requests[0]))
    await asyncio.sleep(0)
    results = await asyncio.gather(first, *map(asks.write_state, requests[1:]))
    assert [one.error for one in results] == [ErrorCode.NONE] * 4
    named = [
        [(one.partition, one.start_offset) for topic in asked.message.topics for one in topic.partitions]
        for asked in peer.requests
    ]
    assert sum(map(len, named)) == 4
    assert [start for part in named for at, start in part if at == 0] == [1, 2, 4]
    assert [(1, 3)] in [part[1:] for part in named] or [(0, 2), (1, 3)] in named


async def test_a_response_without_the_partition_is_an_error() -> None:
    empty = write_share_group_state.WriteShareGroupStateResponse([])
    peer = MemoryPeer({apis.WRITE_SHARE_GROUP_STATE: lambda *_: empty})
    result = await persister(Broker(OTHER), peer).write_state(WriteShareState(KEY))
    assert result.error is ErrorCode.UNKNOWN_SERVER_ERROR
