"""Quotas at a Kafka connection: what counts, what a response says, how long nothing more is begun (KIP-124, 219)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from kafka_peer import Client, Listener
from kafka_service import FakeService

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.kafka.apis import (
    API_VERSIONS,
    CREATE_PARTITIONS,
    CREATE_TOPICS,
    DELETE_TOPICS,
    FETCH,
    HEARTBEAT,
    METADATA,
    PRODUCE,
    WRITE_TXN_MARKERS,
)
from tidegauge.kafka.frames import RequestHeader, decode, joined, read_response_header, request_frame
from tidegauge.kafka.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from tidegauge.kafka.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from tidegauge.kafka.messages.create_topics import CreatableTopic, CreateTopicsRequest
from tidegauge.kafka.messages.delete_topics import DeleteTopicsRequest
from tidegauge.kafka.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from tidegauge.kafka.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from tidegauge.kafka.messages.metadata import MetadataRequest, MetadataResponse
from tidegauge.kafka.messages.produce import ProduceRequest, ProduceResponse
from tidegauge.kafka.messages.write_txn_markers import WriteTxnMarkersRequest, WriteTxnMarkersResponse
from tidegauge.partition import TopicPartition
from tidegauge_broker.quotas.client_quota import QuotaManagers
from tidegauge_broker.quotas.limits import QuotaEntity
from tidegauge_broker.quotas.stats import Window
from tidegauge_broker.replica import messages as core
from tidegauge_broker.server.service.caller import Caller
from tidegauge_broker.server.wire.kafka import throttling
from tidegauge_broker.server.wire.kafka.connection import KafkaConnection
from tidegauge_broker.server.wire.kafka.handlers import create_partitions, create_topics, delete_topics, fetch
from tidegauge_broker.server.wire.kafka.handlers.api_versions import handler_for
from tidegauge_broker.server.wire.kafka.request import Context
from tidegauge_broker.server.wire.kafka.responses import SILENT, Pending
from tidegauge_broker.server.wire.kafka.served import SERVED
from tidegauge_broker.server.wire.kafka.sessions import FetchSessionCache
from tidegauge_broker.server.wire.kafka.throttling import RequestQuotas
from tidegauge_controller.admin import TopicOutcome

NOW_MS = 1_700_000_000_000
ANYONE = QuotaEntity(None, "test")
VERSIONS = {PRODUCE: 9, FETCH: 12, HEARTBEAT: 4, METADATA: 9, API_VERSIONS: 3, WRITE_TXN_MARKERS: 1}


class QuotaListener(Listener):
    """A listener with quotas, whose clock stands still; ``spends`` is what each step of a handler takes, in ns."""

    def __init__(self) -> None:
        super().__init__()
        self.managers = QuotaManagers.of(Window(), Window())
        self.sessions = FetchSessionCache(10, iter(range(1, 100)).__next__)
        self.service: Any = None

    def context(self, connection: KafkaConnection, header: RequestHeader) -> Any:
        quotas = RequestQuotas(
            self.managers, "alice", header, lambda: NOW_MS, connection.mute, is_exempt=SERVED[header.key].is_exempt
        )
        caller = Caller("test", "PLAINTEXT")
        return Context(self.service, caller, self.sessions, lambda: NOW_MS, header, quotas=quotas)

    def limit(self, kind: str, limit: float) -> None:
        getattr(self.managers, kind).set(ANYONE, limit)


class Timers:
    """Keeps later calls: none runs before the test says so."""

    def __init__(self) -> None:
        self.waits_ms: list[float] = []
        self._calls: list[Callable[[], object]] = []

    def later(self, seconds: float, call: Callable[..., object], *arguments: Any) -> Any:
        self.waits_ms.append(seconds * 1000)
        self._calls.append(lambda: call(*arguments))
        return SimpleNamespace(cancel=self._calls.clear)

    def pass_by(self) -> None:
        calls, self._calls = self._calls, []
        for call in calls:
            call()


@pytest.fixture
def listener() -> QuotaListener:
    return QuotaListener()


@pytest.fixture
async def timers(monkeypatch: pytest.MonkeyPatch) -> Timers:
    made = Timers()
    monkeypatch.setattr(asyncio.get_running_loop(), "call_later", made.later)
    return made


@pytest.fixture
def spends(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Let every look at the clock come so many ns after the one before."""
    state = {"now": 10**15, "step": 0}

    def clock() -> int:
        state["now"] += state["step"]
        return state["now"]

    monkeypatch.setattr(throttling, "perf_counter_ns", clock)
    return lambda step: state.update(step=step)


def frame(key: int, correlation_id: int, message: Any) -> bytes:
    return joined(request_frame(key, VERSIONS[key], correlation_id, "test", message))


def produce(correlation_id: int, size: int = 0, acks: int = 1) -> bytes:
    return frame(PRODUCE, correlation_id, ProduceRequest("x" * size, acks))


def responses(client: Client, key: int) -> list[tuple[int, Any]]:
    found = []
    for correlation_id, data in client.responses():
        _, offset = read_response_header(key, VERSIONS[key], data)
        found.append((correlation_id, decode(key, VERSIONS[key], data, offset, response=True)[0]))
    return found


async def test_a_throttled_client_has_its_response_at_once_and_then_its_connection_is_muted(
    listener: QuotaListener, timers: Timers
) -> None:
    """KIP-219: the broker responds immediately and mutes the channel for the throttle time."""
    listener.handlers[PRODUCE] = lambda *_: ProduceResponse()
    listener.limit("produce", 100)
    client = Client(listener)
    client.send(produce(1, 1_500) + produce(2) + produce(3))
    [(first, message)] = responses(client, PRODUCE)
    assert first == 1
    assert timers.waits_ms == [message.throttle_time_ms]
    assert 5_000 <= message.throttle_time_ms <= 6_000, "1,500 bytes and a little, over ten seconds, at 100 a second"
    assert not client.transport.is_reading
    assert not client.connection.is_idle
    client.send(produce(4))
    assert responses(client, PRODUCE) == []
    timers.pass_by()
    [(second, message)] = responses(client, PRODUCE)
    assert (second, message.throttle_time_ms > 5_000) == (2, True), "each of the others is throttled by itself"
    listener.limit("produce", 1e9)
    timers.pass_by()
    assert [number for number, _ in responses(client, PRODUCE)] == [3, 4]
    assert client.transport.is_reading
    assert client.connection.is_idle


async def test_without_a_violation_nothing_is_muted(listener: QuotaListener, timers: Timers) -> None:
    listener.handlers[PRODUCE] = lambda *_: ProduceResponse()
    listener.limit("produce", 1_000)
    client = Client(listener)
    client.send(produce(1) + produce(2))
    assert [message.throttle_time_ms for _, message in responses(client, PRODUCE)] == [0, 0]
    assert timers.waits_ms == []


async def test_the_whole_request_of_a_produce_counts(listener: QuotaListener, timers: Timers) -> None:
    """RequestChannel.Request.sizeInBytes: the header and the body, without the length before them."""
    del timers
    listener.handlers[PRODUCE] = lambda *_: ProduceResponse()
    listener.limit("produce", 100)
    client = Client(listener)
    size = len(produce(1, 2_000)) - 4
    client.send(produce(1, 2_000))
    [(_, message)] = responses(client, PRODUCE)
    assert message.throttle_time_ms == round((size / 10 - 100) / 100 * 10_000)


async def test_a_produce_is_judged_when_its_acks_is_fulfilled(listener: QuotaListener, timers: Timers) -> None:
    """KafkaApis.handleProduceRequest records in the callback; produces behind it may have begun, and nothing after."""
    first, second = (asyncio.get_running_loop().create_future() for _ in range(2))
    waiting = [first, second]
    listener.handlers[PRODUCE] = lambda *_: Pending(waiting.pop(0), lambda _: ProduceResponse())
    listener.limit("produce", 100)
    client = Client(listener)
    client.send(produce(1, 1_500) + produce(2))
    assert timers.waits_ms == []
    first.set_result(None)
    await asyncio.sleep(0)
    assert [number for number, _ in responses(client, PRODUCE)] == [1]
    assert len(timers.waits_ms) == 1
    client.send(produce(3))
    assert waiting == []
    second.set_result(None)
    await asyncio.sleep(0)
    assert [number for number, _ in responses(client, PRODUCE)] == [2]
    listener.handlers[PRODUCE] = lambda *_: ProduceResponse()
    timers.pass_by()
    assert [number for number, _ in responses(client, PRODUCE)] == [3]


async def test_a_produce_without_acks_mutes_without_a_response_and_is_no_use_of_time(
    listener: QuotaListener, timers: Timers, spends: Callable[[int], None]
) -> None:
    """KafkaApis: 'the request quota is not enforced if acks == 0'; the channel may be muted for the bytes."""
    spends(10**9)
    listener.handlers[PRODUCE] = lambda *_: SILENT
    listener.limit("request", 0.001)
    client = Client(listener)
    client.send(produce(1, acks=0))
    assert timers.waits_ms == []
    listener.limit("produce", 100)
    client.send(produce(2, 3_000, acks=0) + produce(3))
    assert len(timers.waits_ms) == 1
    assert responses(client, PRODUCE) == []


async def test_the_time_of_a_request_counts_and_waits_do_not(
    listener: QuotaListener, timers: Timers, spends: Callable[[int], None]
) -> None:
    """KIP-124: the thread time, as a percentage of one second; at most a sample is waited for."""
    gate: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def heartbeat(*_: Any) -> HeartbeatResponse:
        await gate
        return HeartbeatResponse()

    listener.handlers[HEARTBEAT] = heartbeat
    listener.limit("request", 2)
    spends(100_000_000)  # two steps of 0.1 s, and the call: 30 % of a second over ten seconds
    client = Client(listener)
    client.send(frame(HEARTBEAT, 1, HeartbeatRequest("g")))
    for _ in range(3):
        await asyncio.sleep(0)
    gate.set_result(None)
    for _ in range(3):
        await asyncio.sleep(0)
    [(_, message)] = responses(client, HEARTBEAT)
    assert message.throttle_time_ms == 1_000
    assert timers.waits_ms == [1_000]
    [reading] = [one for one in listener.managers.request.readings(NOW_MS) if one.metric == "request-time"]
    assert reading.value == pytest.approx(3)


async def test_the_time_of_a_request_with_its_response_at_once_is_that_since_it_began(
    listener: QuotaListener, timers: Timers, spends: Callable[[int], None]
) -> None:
    listener.handlers[HEARTBEAT] = lambda *_: HeartbeatResponse()
    listener.limit("request", 2)
    spends(100_000_000)  # one step of 0.1 s: 10 % of a second over ten seconds
    client = Client(listener)
    client.send(frame(HEARTBEAT, 1, HeartbeatRequest("g")))
    [(_, message)] = responses(client, HEARTBEAT)
    assert message.throttle_time_ms == 0
    [reading] = [one for one in listener.managers.request.readings(NOW_MS) if one.metric == "request-time"]
    assert reading.value == pytest.approx(1)


async def test_the_longer_of_two_times_counts(
    listener: QuotaListener, timers: Timers, spends: Callable[[int], None]
) -> None:
    """KafkaApis: 'use the max throttle time between the two quotas'."""
    spends(10**9)
    listener.handlers[PRODUCE] = lambda *_: ProduceResponse()
    listener.limit("request", 0.001)
    listener.limit("produce", 100)
    client = Client(listener)
    client.send(produce(1))
    assert timers.waits_ms == [1_000]
    timers.pass_by()
    client.send(produce(2, 5_000))
    [_, (_, message)] = responses(client, PRODUCE)
    assert message.throttle_time_ms == timers.waits_ms[1] > 30_000


async def test_what_brokers_send_each_other_is_exempt(
    listener: QuotaListener, timers: Timers, spends: Callable[[int], None]
) -> None:
    """RequestHandlerHelper.sendResponseExemptThrottle; followers' fetches too."""
    spends(10**9)
    listener.limit("request", 0.001)
    listener.limit("fetch", 1)
    listener.handlers[WRITE_TXN_MARKERS] = lambda *_: WriteTxnMarkersResponse()
    seen: list[Any] = []
    listener.handlers[FETCH] = lambda _, context: seen.append(context) or FetchResponse()
    client = Client(listener)
    client.send(frame(WRITE_TXN_MARKERS, 1, WriteTxnMarkersRequest()))
    client.send(frame(FETCH, 2, FetchRequest(replica_id=1)))
    assert client.correlation_ids() == [1, 2]
    assert timers.waits_ms == []


async def test_api_versions_has_its_throttle_time_though_it_is_encoded_once(
    listener: QuotaListener, timers: Timers, spends: Callable[[int], None]
) -> None:
    spends(10**9)
    listener.limit("request", 0.001)
    listener.handlers[API_VERSIONS] = handler_for([METADATA])
    client = Client(listener)
    client.send(frame(API_VERSIONS, 1, ApiVersionsRequest("c", "1")))
    [(_, message)] = responses(client, API_VERSIONS)
    assert isinstance(message, ApiVersionsResponse)
    assert (message.throttle_time_ms, len(message.api_keys)) == (1_000, 1)
    assert timers.waits_ms == [1_000]


async def test_a_connection_that_is_closed_while_it_is_muted_leaves_no_timer(
    listener: QuotaListener, timers: Timers
) -> None:
    listener.handlers[PRODUCE] = lambda *_: ProduceResponse()
    listener.limit("produce", 1)
    client = Client(listener)
    client.send(produce(1, 1_000) + produce(2))
    client.connection.connection_lost(None)
    timers.pass_by()
    assert client.correlation_ids() == [1]


async def test_a_request_that_is_cancelled_is_cancelled_where_it_waits(listener: QuotaListener, timers: Timers) -> None:
    """A connection that ends gives up requests in flight, measured or not, before their first step or later."""
    del timers
    ends: list[str] = []

    async def metadata(*_: Any) -> MetadataResponse:
        try:
            await asyncio.get_running_loop().create_future()
        except asyncio.CancelledError:
            ends.append("cancelled")
            raise
        return MetadataResponse()

    listener.handlers[METADATA] = metadata
    client = Client(listener)
    client.send(frame(METADATA, 1, MetadataRequest()))
    await asyncio.sleep(0)
    client.connection.connection_lost(None)
    for _ in range(3):
        await asyncio.sleep(0)
    assert ends == ["cancelled"]


RECORDS = b"r" * 1_000
HIGH_WATERMARK = 7


class Reads:
    """A service whose partitions all have ``RECORDS``."""

    def __init__(self, listener: QuotaListener) -> None:
        self.asked: list[core.FetchRequest] = []
        self.withheld = self.released = 0
        self.records = RECORDS

        async def read(_: Any, request: core.FetchRequest) -> Any:
            self.asked.append(request)
            results = [
                (core.FetchResult(one.topic_partition, high_watermark=HIGH_WATERMARK), self.records)
                for one in request.partitions
            ]
            return SimpleNamespace(partitions=results, pending=SimpleNamespace(release=release))

        def release() -> None:
            self.released += 1

        def withhold(_: Any) -> None:
            self.withheld += 1

        listener.service = FakeService(fetch=read, withhold=withhold, replica_topic_id=lambda _: "")
        listener.handlers[FETCH] = fetch.handle


def fetch_request(session_id: int = 0, epoch: int = -1, max_bytes: int = 1 << 20) -> FetchRequest:
    topics = [FetchTopic("t", partitions=[FetchPartition(0, partition_max_bytes=1 << 20)])] if epoch <= 0 else []
    return FetchRequest(
        min_bytes=50_000, max_bytes=max_bytes, session_id=session_id, session_epoch=epoch, topics=topics
    )


async def test_a_fetch_above_its_quota_is_empty_and_takes_nothing(listener: QuotaListener, timers: Timers) -> None:
    """KafkaApis: an empty response in place of the records, whose bytes are taken back from the quota."""
    reads = Reads(listener)
    listener.limit("fetch", 50)
    client = Client(listener)
    client.send(frame(FETCH, 1, fetch_request()))
    [(_, message)] = responses(client, FETCH)
    assert list(message.responses) == []
    assert timers.waits_ms == [message.throttle_time_ms]
    assert message.throttle_time_ms > 10_000, "more than a thousand bytes, at 500 in ten seconds"
    assert reads.withheld == 1
    [rate] = [one.value for one in listener.managers.fetch.readings(NOW_MS) if one.metric == "byte-rate"]
    assert rate == 0
    reads.records = b""
    timers.pass_by()
    client.send(frame(FETCH, 2, fetch_request()))
    [(_, message)] = responses(client, FETCH)
    assert message.throttle_time_ms == 0
    assert message.responses[0].partitions[0].high_watermark == HIGH_WATERMARK


async def test_the_size_of_the_whole_response_counts(listener: QuotaListener, timers: Timers) -> None:
    """FetchResponse.sizeOf: with the length and all that is beside the records."""
    Reads(listener)
    listener.limit("fetch", 1e6)
    client = Client(listener)
    client.send(frame(FETCH, 1, fetch_request()))
    [(_, data)] = client.responses()
    _, offset = read_response_header(FETCH, VERSIONS[FETCH], data)
    [rate] = [one.value for one in listener.managers.fetch.readings(NOW_MS) if one.metric == "byte-rate"]
    assert rate * 10 == pytest.approx(len(data) - offset + 4)
    assert timers.waits_ms == []


async def test_no_more_is_read_than_the_quota_gives_in_its_window(listener: QuotaListener, timers: Timers) -> None:
    """KafkaApis: 'trying to fetch more bytes would result in a guaranteed throttling'; fetch.min.bytes is not more."""
    del timers
    reads = Reads(listener)
    listener.limit("fetch", 600)
    client = Client(listener)
    client.send(frame(FETCH, 1, fetch_request()))
    client.send(frame(FETCH, 2, fetch_request(max_bytes=10)))
    assert [(one.max_bytes, one.min_bytes) for one in reads.asked] == [(6_000, 6_000), (10, 10)]


async def test_a_session_that_is_throttled_stays_and_one_that_was_to_begin_does_not(
    listener: QuotaListener, timers: Timers
) -> None:
    """IncrementalFetchContext.getThrottledResponse names the session; FullFetchContext's names none."""
    reads = Reads(listener)
    listener.limit("fetch", 50)
    client = Client(listener)
    client.send(frame(FETCH, 1, fetch_request(epoch=0)))
    [(_, message)] = responses(client, FETCH)
    assert (message.session_id, len(listener.sessions)) == (0, 0)
    timers.pass_by()
    listener.limit("fetch", 1e6)
    client.send(frame(FETCH, 2, fetch_request(epoch=0)))
    [(_, message)] = responses(client, FETCH)
    session_id = message.session_id
    assert session_id > 0
    listener.limit("fetch", 50)
    client.send(frame(FETCH, 3, fetch_request(session_id, 1)))
    [(_, message)] = responses(client, FETCH)
    assert (message.session_id, list(message.responses), message.error_code) == (session_id, [], ErrorCode.NONE)
    timers.pass_by()
    listener.limit("fetch", 1e6)
    client.send(frame(FETCH, 4, fetch_request(session_id, 2)))
    [(_, message)] = responses(client, FETCH)
    assert message.responses[0].partitions[0].records == RECORDS, "what was withheld comes now"
    reads.records = b""
    client.send(frame(FETCH, 5, fetch_request(session_id, 3)))
    assert [list(message.responses) for _, message in responses(client, FETCH)] == [[]]


async def test_a_withheld_response_is_no_news_to_its_session(listener: QuotaListener, timers: Timers) -> None:
    """CachedPartition.maybeUpdateResponseData is not asked to update: the next response has the high watermark."""
    reads = Reads(listener)
    reads.records = b""
    listener.limit("fetch", 1e6)
    client = Client(listener)
    client.send(frame(FETCH, 1, fetch_request(epoch=0)))
    [(_, message)] = responses(client, FETCH)
    session = message.session_id
    assert not listener.sessions._sessions[session].would_have_news(
        fetch.Place("t", 0), core.FetchResult(TopicPartition("t", 0), high_watermark=HIGH_WATERMARK), b""
    )
    listener.limit("fetch", 1)
    reads.records = RECORDS
    client.send(frame(FETCH, 2, fetch_request(session, 1)))
    timers.pass_by()
    reads.records = b""
    listener.sessions._sessions[session].sent.clear()
    listener.limit("fetch", 1e6)
    client.send(frame(FETCH, 3, fetch_request(session, 2)))
    [_, (_, message)] = responses(client, FETCH)
    assert message.responses[0].partitions[0].high_watermark == HIGH_WATERMARK


MUTATIONS = [
    (CREATE_TOPICS, "create_topics", create_topics, CreateTopicsRequest([CreatableTopic("t", 30, 1)]), 6),
    (
        CREATE_PARTITIONS,
        "create_partitions",
        create_partitions,
        CreatePartitionsRequest([CreatePartitionsTopic("t")]),
        3,
    ),
    (DELETE_TOPICS, "delete_topics", delete_topics, DeleteTopicsRequest(topic_names=["t"]), 5),
]


@pytest.mark.parametrize(("key", "method", "module", "request_", "first_strict"), MUTATIONS)
@pytest.mark.parametrize("is_old", [False, True])
async def test_mutations_above_the_quota_are_refused_and_older_clients_are_throttled_alone(
    listener: QuotaListener,
    timers: Timers,
    monkeypatch: pytest.MonkeyPatch,
    key: int,
    method: str,
    module: Any,
    request_: Any,
    first_strict: int,
    *,
    is_old: bool,
) -> None:
    """KIP-599: CreateTopics 6, CreatePartitions 3 and DeleteTopics 5 are the first with THROTTLING_QUOTA_EXCEEDED."""

    async def mutate(_: Any, __: int, mutate: Callable[[int], None], **___: Any) -> list[TopicOutcome]:
        try:
            mutate(30)
        except TidegaugeError as refusal:
            return [TopicOutcome("t", refusal.code, refusal.message)]
        return [TopicOutcome("t", ErrorCode.REQUEST_TIMED_OUT, "written")]

    monkeypatch.setitem(VERSIONS, key, first_strict - is_old)
    settings = SimpleNamespace(flag=lambda _: True)
    listener.service = FakeService(
        **{method: mutate}, is_controller=True, settings=settings, topic_id=lambda _: None, topic_name=lambda _: None
    )
    listener.handlers[key] = module.handle
    listener.limit("mutation", 2)  # 22 at once
    client = Client(listener)
    for number in (1, 2):
        client.send(frame(key, number, request_))
        for _ in range(3):
            await asyncio.sleep(0)
        timers.pass_by()
    (_, first), (_, second) = responses(client, key)
    found = [*_errors(first), *_errors(second)]
    written = ErrorCode.REQUEST_TIMED_OUT
    if is_old:
        assert found == [written, written]
        assert (first.throttle_time_ms, second.throttle_time_ms) == (4_000, 19_000)
        assert timers.waits_ms == [4_000, 19_000]
    else:
        assert found == [written, ErrorCode.THROTTLING_QUOTA_EXCEEDED]
        assert _messages(second) <= {None}, "ApiError.fromThrowable leaves out the error's own sentence"
        assert (first.throttle_time_ms, second.throttle_time_ms) == (0, 4_000)
        assert timers.waits_ms == [4_000]


def _messages(message: Any) -> set[str | None]:
    items = getattr(message, "topics", None) or getattr(message, "results", None) or message.responses
    return {item.error_message for item in items}


def _errors(message: Any) -> list[int]:
    items = getattr(message, "topics", None) or getattr(message, "results", None) or message.responses
    return [item.error_code for item in items]


async def test_a_request_that_fails_has_used_its_time_and_its_client_is_throttled(
    listener: QuotaListener, timers: Timers, spends: Callable[[int], None]
) -> None:
    """RequestHandlerHelper.sendErrorResponseMaybeThrottle: a client can't spare itself a quota by what fails."""

    def fails(*_: Any) -> Any:
        raise ZeroDivisionError

    listener.handlers[HEARTBEAT] = fails
    listener.limit("request", 1)
    spends(1_000_000_000)
    client = Client(listener)
    client.send(frame(HEARTBEAT, 1, HeartbeatRequest("g")))
    [(_, message)] = responses(client, HEARTBEAT)
    assert message.error_code == ErrorCode.UNKNOWN_SERVER_ERROR
    assert message.throttle_time_ms > 0
    assert timers.waits_ms == [message.throttle_time_ms]
    timers.pass_by()
    assert client.connection.is_idle


async def test_a_produce_that_fails_uses_no_bytes(listener: QuotaListener, timers: Timers) -> None:
    def fails(*_: Any) -> Any:
        raise ZeroDivisionError

    listener.handlers[PRODUCE] = fails
    listener.limit("produce", 1)
    client = Client(listener)
    client.send(produce(1, 30_000))
    assert [number for number, _ in responses(client, PRODUCE)] == [1]
    assert timers.waits_ms == []


async def test_the_records_of_a_fetch_that_fails_behind_its_read_count_no_longer(
    listener: QuotaListener, timers: Timers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A response's share of the memory for responses is given back, whichever step fails."""
    reads = Reads(listener)
    for step in ("_size_bytes", "response_of"):
        with monkeypatch.context() as broken:
            broken.setattr(fetch, step, lambda *_: 1 // 0)
            client = Client(listener)
            client.send(frame(FETCH, 1, fetch_request()))
            [(_, message)] = responses(client, FETCH)
        assert message.error_code == ErrorCode.UNKNOWN_SERVER_ERROR
        assert reads.released == 1, step
        reads.released = 0
