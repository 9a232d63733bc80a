"""A channel that speaks Kafka's protocol to a broker: versions, order, timeouts, and what each failure is called."""

from __future__ import annotations

import asyncio
import ssl
import struct
from typing import Any

import pytest
from tests.memory_peer import MemoryPeer

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.kafka.apis import (
    APIS,
    CONTROLLED_SHUTDOWN,
    END_TXN,
    FETCH,
    HEARTBEAT,
    JOIN_GROUP,
    LEAVE_GROUP,
    METADATA,
    OFFSET_COMMIT,
    SYNC_GROUP,
)
from tidegauge.kafka.frames import codec_of
from tidegauge.kafka.header_tags import NO_TAGS, Tags
from tidegauge.kafka.messages.controlled_shutdown import ControlledShutdownRequest, ControlledShutdownResponse
from tidegauge.kafka.messages.fetch import FetchableTopicResponse, FetchRequest, FetchResponse, PartitionData
from tidegauge.kafka.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from tidegauge.kafka.messages.metadata import MetadataRequest
from tidegauge.kafka_channel import FIRST_BACKOFF_SECONDS, LAST_BACKOFF_SECONDS, Backoff, KafkaChannel
from tidegauge.logical_clock import LogicalClock

NEVER_SECONDS = 60.0
TURNS = 30
"""More than a connection and a request take."""


def echo(request: HeartbeatRequest, version: int) -> HeartbeatResponse:
    """Respond with the generation as the throttle time, so that each response is recognised."""
    del version
    return HeartbeatResponse(throttle_time_ms=request.generation_id)


def silent(request: Any, version: int) -> None:
    """Leave a request without a response."""
    del request, version


def channel_to(peer: MemoryPeer) -> KafkaChannel:
    return KafkaChannel("broker-2:9092", "broker-1-fetcher-0", peer.dial)


async def beat(channel: KafkaChannel, generation: int, **named: Any) -> int:
    request = HeartbeatRequest("g", generation, "m")
    response: HeartbeatResponse = await channel.request(HEARTBEAT, request, NEVER_SECONDS, **named)
    return response.throttle_time_ms


def error_of(caught: pytest.ExceptionInfo[TidegaugeError]) -> tuple[ErrorCode, str]:
    return caught.value.code, caught.value.message


async def test_the_highest_version_that_both_know_is_used() -> None:
    """KIP-35: a client sends the highest version that both sides have."""
    peer = MemoryPeer({HEARTBEAT: echo}, {HEARTBEAT: (1, 2)})
    assert await beat(channel_to(peer), 7) == 7
    (asked,) = peer.requests
    assert (asked.header.version, asked.header.client_id) == (2, "broker-1-fetcher-0")


async def test_the_logical_clock_goes_with_requests_and_is_advanced_by_responses() -> None:
    """An event caused by a response is stamped later than all that its sender had noted (Lamport)."""
    now_us = 1_000_000
    clock = LogicalClock(lambda: now_us)
    clock.receive(now_us + 40)
    peer = MemoryPeer({HEARTBEAT: echo})
    peer.logical_time = now_us + 70
    channel = KafkaChannel("broker-2:9092", "broker-1-fetcher-0", peer.dial, logical_clock=clock)
    await beat(channel, 7)
    (asked,) = peer.requests
    assert asked.header.tags == Tags(now_us + 40)
    assert clock.value == now_us + 70


async def test_a_clients_requests_carry_no_tags() -> None:
    peer = MemoryPeer({HEARTBEAT: echo})
    await beat(channel_to(peer), 7)
    assert peer.requests[0].header.tags == NO_TAGS


async def test_the_caller_may_limit_the_version() -> None:
    """A Fetch by topic names ends at version 12 though both sides know later ones."""
    peer = MemoryPeer({HEARTBEAT: echo})
    await beat(channel_to(peer), 7, at_most=3)
    assert peer.requests[0].header.version == 3


@pytest.mark.parametrize(
    ("served", "at_least", "said"),
    [((-1, -1), 0, "serves no Heartbeat"), ((0, 2), 3, "serves Heartbeat in versions 0 to 2; needed is one from 3")],
)
async def test_no_version_in_common_is_an_error(served: tuple[int, int], at_least: int, said: str) -> None:
    """A peer that lacks an API, or the version that the message needs, gets no request; the connection stays."""
    peer = MemoryPeer({HEARTBEAT: echo}, {HEARTBEAT: served})
    channel = channel_to(peer)
    with pytest.raises(TidegaugeError) as caught:
        await beat(channel, 1, at_least=at_least)
    code, message = error_of(caught)
    assert code is ErrorCode.UNSUPPORTED_VERSION
    assert said in message
    assert (peer.requests, peer.transports[0].is_aborted) == ([], False)


async def test_requests_are_pipelined_and_each_gets_its_own_response() -> None:
    """Responses come in the order of requests; one connection serves all callers, and the first connects."""
    peer = MemoryPeer({HEARTBEAT: echo})
    channel = channel_to(peer)
    assert await asyncio.gather(*(beat(channel, one) for one in range(20))) == list(range(20))
    assert peer.addresses == ["broker-2:9092"]
    assert [asked.header.correlation_id for asked in peer.requests] == list(range(1, 21))


async def test_a_caller_that_gives_up_leaves_the_others_their_responses() -> None:
    """The response of a cancelled request is read and dropped."""
    peer = MemoryPeer({HEARTBEAT: echo})
    channel = channel_to(peer)
    await beat(channel, 0)
    first, second = (asyncio.ensure_future(beat(channel, one)) for one in (1, 2))
    await asyncio.sleep(0)
    first.cancel()
    assert await second == 2
    assert first.cancelled()
    assert len(peer.connections) == 1


@pytest.mark.parametrize("key", [HEARTBEAT, JOIN_GROUP, SYNC_GROUP, OFFSET_COMMIT, LEAVE_GROUP, END_TXN])
async def test_a_request_that_is_given_up_at_any_turn_leaves_the_channel_to_the_next(key: int) -> None:
    """A cancelled request of a member, also while the channel connects, takes no response from a later request."""

    async def given_up_after(turns: int) -> bool:
        codec = codec_of(key, APIS[key].last)
        peer = MemoryPeer({key: lambda _request, _version: codec.response_class(), HEARTBEAT: echo})
        channel = channel_to(peer)
        request = codec.request_class()
        asking = asyncio.ensure_future(channel.request(key, request, NEVER_SECONDS))
        for _ in range(turns):
            await asyncio.sleep(0)
        is_cancelled = asking.cancel()
        await asyncio.wait({asking})
        assert asking.cancelled() is is_cancelled
        assert [await beat(channel, one) for one in (7, 8)] == [7, 8]
        assert len(peer.connections) == 1
        channel.close()
        return is_cancelled

    assert [await given_up_after(turns) for turns in range(1, TURNS)][-1] is False, "it never ends"


async def test_no_response_in_time_closes_the_connection() -> None:
    """NetworkClient.handleTimedOutRequests: a late response must not count as a later request's."""
    peer = MemoryPeer({HEARTBEAT: echo})
    channel = channel_to(peer)
    with pytest.raises(TidegaugeError) as caught:  # the connection is not even made
        await channel.request(HEARTBEAT, HeartbeatRequest("g", 1, "m"), 0)
    assert caught.value.code is ErrorCode.REQUEST_TIMED_OUT
    await beat(channel, 1)
    peer.handlers[HEARTBEAT] = silent
    with pytest.raises(TidegaugeError) as caught:
        await channel.request(HEARTBEAT, HeartbeatRequest("g", 1, "m"), 0)
    assert error_of(caught) == (
        ErrorCode.REQUEST_TIMED_OUT,
        "broker-2:9092 did not respond to Heartbeat within 0 s",
    )
    assert peer.transports[-1].is_aborted
    peer.handlers[HEARTBEAT] = echo
    assert await beat(channel, 3) == 3
    assert len(peer.connections) > 1


async def test_the_earliest_deadline_is_watched_whichever_request_came_first() -> None:
    """InFlightRequests.nodesWithTimedOutRequests; what else is in flight loses its connection."""
    peer = MemoryPeer({HEARTBEAT: silent})
    channel = channel_to(peer)
    patient = asyncio.ensure_future(beat(channel, 1))
    await peer.until(lambda: peer.requests)
    with pytest.raises(TidegaugeError) as caught:
        await channel.request(HEARTBEAT, HeartbeatRequest("g", 2, "m"), 0)
    assert caught.value.code is ErrorCode.REQUEST_TIMED_OUT
    with pytest.raises(TidegaugeError, match="did not respond") as caught:
        await patient
    assert caught.value.code is ErrorCode.NETWORK_EXCEPTION


async def test_the_deadline_of_a_caller_that_gave_up_closes_the_connection() -> None:
    """NetworkClient.handleTimedOutRequests asks for no caller: later responses would wait behind one that never comes.

    So a broker whose heartbeat was lost at a partition sent the next ones behind it, and stayed fenced for good.
    """
    peer = MemoryPeer({HEARTBEAT: echo})
    channel = channel_to(peer)
    await beat(channel, 1)
    problems: list[Any] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: problems.append(context))
    peer.handlers[HEARTBEAT] = silent
    given_up = asyncio.ensure_future(channel.request(HEARTBEAT, HeartbeatRequest("g", 2, "m"), 0))
    await asyncio.sleep(0)  # it is sent
    given_up.cancel()
    await peer.until(lambda: len(peer.requests) == 2)
    await peer.until(lambda: peer.transports[0].is_aborted)
    assert problems == []
    peer.handlers[HEARTBEAT] = echo
    assert await beat(channel, 3) == 3, "on a connection of its own"


async def test_a_late_response_to_a_caller_that_gave_up_leaves_the_connection_as_it_is() -> None:
    peer = MemoryPeer({HEARTBEAT: echo})
    channel = channel_to(peer)
    await beat(channel, 1)
    given_up = asyncio.ensure_future(channel.request(HEARTBEAT, HeartbeatRequest("g", 2, "m"), 60))
    await asyncio.sleep(0)
    given_up.cancel()
    assert await beat(channel, 3) == 3
    assert len(peer.connections) == 1


async def test_requests_that_follow_each_other_share_one_timer(monkeypatch: pytest.MonkeyPatch) -> None:
    """A follower sends a Fetch for each record: a timer for each would cost as much as the request's encoding."""
    peer = MemoryPeer({HEARTBEAT: echo})
    channel = channel_to(peer)
    await beat(channel, 0)
    loop = asyncio.get_running_loop()
    timers: list[float] = []
    call_at = loop.call_at

    def counted(when: float, *arguments: Any, **named: Any) -> asyncio.TimerHandle:
        timers.append(when)
        return call_at(when, *arguments, **named)

    monkeypatch.setattr(loop, "call_at", counted)
    for one in range(50):
        await beat(channel, one)
    assert timers == []


async def test_a_connection_that_breaks_fails_what_is_in_flight_and_the_next_request_connects() -> None:
    """InFlightRequests.clearAll: all sent requests have an unknown outcome."""
    peer = MemoryPeer({HEARTBEAT: silent})
    channel = channel_to(peer)
    waiting = [asyncio.ensure_future(beat(channel, one)) for one in (1, 2)]
    await peer.until(lambda: len(peer.requests) == 2)
    peer.connections[0].connection_lost(ConnectionResetError("reset by peer"))
    for one in waiting:
        with pytest.raises(TidegaugeError, match="reset by peer") as caught:
            await one
        assert caught.value.code is ErrorCode.NETWORK_EXCEPTION
    peer.handlers[HEARTBEAT] = echo
    assert await beat(channel, 3) == 3


@pytest.mark.parametrize(
    ("problem", "said"),
    [
        (ConnectionRefusedError(111, "Connection refused"), "Connection refused"),
        (ssl.SSLError(1, "[SSL: WRONG_VERSION_NUMBER] wrong version number"), "the broker speaks plain text"),
    ],
)
async def test_a_peer_that_can_not_be_reached(problem: Exception, said: str) -> None:
    """A failed TLS handshake is explained as it is for gRPC."""
    peer = MemoryPeer({HEARTBEAT: echo})
    peer.refuses = problem
    with pytest.raises(TidegaugeError) as caught:
        await beat(channel_to(peer), 1)
    code, message = error_of(caught)
    assert code is ErrorCode.NETWORK_EXCEPTION
    assert message.startswith("no connection to broker-2:9092: ")
    assert said in message


def test_attempts_to_connect_are_put_off_twice_as_long_after_each_failure() -> None:
    """Reconnect back-off as gRPC's channels among brokers have it: 50 ms, doubling, at most half a second."""
    backoff = Backoff()
    assert backoff.wait_seconds(10.0) <= 0
    waited = []
    for _ in range(6):
        backoff.failed(10.0)
        waited.append(round(backoff.wait_seconds(10.0), 3))
    assert waited == [FIRST_BACKOFF_SECONDS, 0.1, 0.2, 0.4, LAST_BACKOFF_SECONDS, LAST_BACKOFF_SECONDS]
    backoff.succeeded()
    assert backoff.wait_seconds(10.0) <= 0
    backoff.failed(10.0)
    assert round(backoff.wait_seconds(10.0), 3) == FIRST_BACKOFF_SECONDS


@pytest.mark.parametrize("chunk_bytes", [1, 3, 1000, 1 << 20])
async def test_frames_arrive_in_pieces_of_any_size(chunk_bytes: int) -> None:
    """Small ones share the receive buffer; one beyond it has its own, and keeps the record batches' bytes."""
    records = bytes(range(256)) * 400
    size = {1: 60, 3: 90_000}.get(chunk_bytes, len(records))

    def fetch(request: FetchRequest, version: int) -> FetchResponse:
        del request, version
        part = PartitionData(0, records=records[:size])
        return FetchResponse(responses=[FetchableTopicResponse(topic_id=b"i" * 16, partitions=[part])])

    peer = MemoryPeer({FETCH: fetch, HEARTBEAT: echo})
    channel = channel_to(peer)
    await beat(channel, 0)
    peer.chunk_bytes = chunk_bytes
    fetched, beaten, again = await asyncio.gather(
        channel.request(FETCH, FetchRequest(), NEVER_SECONDS),
        beat(channel, 5),
        channel.request(FETCH, FetchRequest(), NEVER_SECONDS),
    )
    assert beaten == 5
    for response in (fetched, again):
        assert bytes(response.responses[0].partitions[0].records) == records[:size]


@pytest.mark.parametrize(
    ("frame", "said"),
    [
        (struct.pack(">iib", 5, 99, 0), "correlation id 99"),
        (struct.pack(">i", -5), "a frame of -5 bytes"),
        (struct.pack(">ih", 2, 1), "not a response header"),
    ],
)
async def test_bytes_that_are_no_response_end_the_connection(frame: bytes, said: str) -> None:
    """NetworkClient.parseResponse, correlate: a peer that is out of step can't be trusted with the next response."""
    peer = MemoryPeer({HEARTBEAT: silent})
    channel = channel_to(peer)
    waiting = asyncio.ensure_future(beat(channel, 1))
    await peer.until(lambda: peer.requests)
    peer.deliver(peer.connections[0], frame)
    with pytest.raises(TidegaugeError, match=said) as caught:
        await waiting
    assert caught.value.code is ErrorCode.NETWORK_EXCEPTION
    assert peer.transports[0].is_aborted


async def test_a_response_that_belongs_to_no_request_ends_the_connection() -> None:
    """As above; the next request connects again."""
    peer = MemoryPeer({HEARTBEAT: echo})
    channel = channel_to(peer)
    await beat(channel, 1)
    peer.deliver(peer.connections[0], struct.pack(">ii", 4, 2))
    assert peer.transports[0].is_aborted
    assert await beat(channel, 2) == 2


async def test_disconnecting_fails_what_is_in_flight() -> None:
    """The lab's partitions end the connection through this."""
    peer = MemoryPeer({HEARTBEAT: silent})
    channel = channel_to(peer)
    waiting = asyncio.ensure_future(beat(channel, 1))
    await peer.until(lambda: peer.requests)
    channel.disconnect("refused by the lab")
    with pytest.raises(TidegaugeError, match="refused by the lab"):
        await waiting


@pytest.mark.parametrize("is_given_up", [True, False], ids=["given up", "waited for"])
async def test_a_channel_that_closes_while_it_connects_fails_requests_that_wait(*, is_given_up: bool) -> None:
    """A caller that has given up as well gets its own cancellation: an error would never be retrieved."""

    async def dial(address: str, make: Any) -> Any:
        del address, make
        await asyncio.get_running_loop().create_future()

    channel = KafkaChannel("controller:9093", "1", dial)
    request = asyncio.ensure_future(channel.request(METADATA, MetadataRequest(), NEVER_SECONDS))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    channel.close()
    if is_given_up:
        request.cancel()
    await asyncio.wait({request})
    assert request.cancelled() is is_given_up
    if not is_given_up:
        with pytest.raises(TidegaugeError, match="given up"):
            request.result()


async def test_a_closed_channel_connects_no_more() -> None:
    """A task that outlives its channel gets an error, not a connection."""
    peer = MemoryPeer({HEARTBEAT: echo})
    channel = channel_to(peer)
    await beat(channel, 1)
    channel.close()
    with pytest.raises(TidegaugeError, match="the channel was closed"):
        await beat(channel, 2)
    assert len(peer.connections) == 1


async def test_a_connection_that_ends_before_it_says_its_versions_is_no_connection() -> None:
    """A peer that accepts and closes, as one does that is shutting down."""
    peer = MemoryPeer({METADATA: silent})
    channel = channel_to(peer)
    asked = asyncio.ensure_future(channel.request(METADATA, MetadataRequest(), NEVER_SECONDS))
    await peer.until(lambda: peer.connections)
    peer.connections[0].connection_lost(None)
    with pytest.raises(TidegaugeError, match="no connection to broker-2:9092: the peer closed the connection"):
        await asked


async def test_controlled_shutdown_has_its_header_of_old() -> None:
    """Version 3 is flexible like the rest; version 0 alone has no client id (RequestHeader.parse)."""
    peer = MemoryPeer({CONTROLLED_SHUTDOWN: lambda *_: ControlledShutdownResponse()}, {CONTROLLED_SHUTDOWN: (0, 0)})
    response = await channel_to(peer).request(CONTROLLED_SHUTDOWN, ControlledShutdownRequest(4), NEVER_SECONDS)
    assert response.error_code == 0
    assert (peer.requests[0].message.broker_id, peer.requests[0].header.client_id) == (4, "")


async def test_a_request_without_response_leaves_the_order_of_the_others() -> None:
    """A Produce with acks=0: the next response belongs to the next request."""
    peer = MemoryPeer(
        {HEARTBEAT: lambda request, version: None if request.member_id == "-" else echo(request, version)}
    )
    channel = channel_to(peer)
    connection = await channel.connection()
    version = channel.version_of(HEARTBEAT)
    connection.send_without_response(HEARTBEAT, version, HeartbeatRequest("g", 1, "-"))
    assert await beat(channel, 2) == 2
    assert [asked.message.generation_id for asked in peer.requests] == [1, 2]
    channel.close()
    with pytest.raises(TidegaugeError) as caught:
        connection.send_without_response(HEARTBEAT, version, HeartbeatRequest("g", 3, "-"))
    assert caught.value.code is ErrorCode.NETWORK_EXCEPTION


async def test_who_sends_without_responses_waits_while_the_transport_is_full() -> None:
    connection = await channel_to(MemoryPeer({HEARTBEAT: echo})).connection()
    await connection.drained()
    for resume in (connection.resume_writing, connection.close):
        connection.pause_writing()
        waiting = asyncio.ensure_future(connection.drained())
        await asyncio.sleep(0)
        assert not waiting.done()
        resume()
        await waiting


async def test_an_attempt_to_connect_has_the_time_that_its_owner_gives() -> None:
    """A paused peer takes connections and does not respond."""

    async def dial(*_: Any) -> Any:
        await asyncio.Event().wait()

    channel = KafkaChannel("broker-2:9092", "c", dial, connect_seconds=0.001)
    with pytest.raises(TidegaugeError, match=r"did not accept a connection within 0\.001 s"):
        await beat(channel, 1)
