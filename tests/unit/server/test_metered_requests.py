"""Metrics are middleware of the service: whichever wire or method asks, a request is counted once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from tidegauge.errors import ErrorCode
from tidegauge.partition import TopicPartition
from tidegauge_broker.replica.messages import (
    CONSUMER,
    FetchRequest,
    FetchResult,
    ProducePartition,
    ProduceRequest,
    ProduceResult,
)
from tidegauge_broker.server.metrics.metered_requests import MeteredRequests
from tidegauge_broker.server.metrics.meters import Meters
from tidegauge_broker.server.service.broker_service import BrokerService
from tidegauge_broker.server.service.caller import Caller
from tidegauge_broker.server.service.middleware import wrap

AT = TopicPartition("orders", 0)
BAD = TopicPartition("orders", 1)
A_CLIENT = Caller("a", "PLAINTEXT")
FETCHED = [(FetchResult(AT), b"12345"), (FetchResult(BAD, ErrorCode.OFFSET_OUT_OF_RANGE), b"")]
unused: Any = None


class Replicas:
    """The replica manager, as the service calls it."""

    def __init__(self, *, is_parked: bool) -> None:
        self._is_parked = is_parked

    def preparations(self, request: ProduceRequest) -> list[Any]:
        del request
        return []

    def produce(self, request: ProduceRequest) -> asyncio.Future[list[ProduceResult]]:
        future: asyncio.Future[list[ProduceResult]] = asyncio.get_running_loop().create_future()
        future.set_result(
            [
                ProduceResult(
                    item.topic_partition, ErrorCode.NONE if item.topic_partition == AT else ErrorCode.CORRUPT_MESSAGE
                )
                for item in request.partitions
            ]
        )
        return future

    async def fetch(self, request: FetchRequest, room: Any) -> list[tuple[FetchResult, bytes]]:
        del request, room
        return FETCHED

    def begin_fetch(self, request: FetchRequest, room: Any) -> asyncio.Future[list[tuple[FetchResult, bytes]]]:
        del request, room
        future: asyncio.Future[list[tuple[FetchResult, bytes]]] = asyncio.get_running_loop().create_future()
        if not self._is_parked:
            future.set_result(FETCHED)
        return future


class Settings(dict[str, Any]):
    def integer(self, name: str) -> int:
        del name
        return 1 << 20


def metered(*, is_parked: bool = False) -> tuple[BrokerService, Meters]:
    meters = Meters()
    replicas: Any = Replicas(is_parked=is_parked)
    settings: Any = Settings()
    service = BrokerService(
        cluster_id="c",
        settings=settings,
        replicas=replicas,
        metadata=unused,
        controller=unused,
        producer_ids=unused,
        configs=unused,
        create_topic=unused,
        groups=unused,
        transactions=unused,
        verification=unused,
        middleware=[MeteredRequests(meters)],
    )
    return service, meters


async def test_a_produce_is_counted_once_also_through_a_connections_order() -> None:
    service, meters = metered()
    request = ProduceRequest(1, 1000, [ProducePartition(AT, b"abc"), ProducePartition(BAD, b"de")])
    await service.produce(request)
    done = asyncio.Event()
    await service.open_produces().submit(request, lambda _: done.set())
    await done.wait()
    assert (meters.request("Produce").count, meters.request("Produce").errors) == (2, 2)
    counter = meters.topic("orders")
    assert (counter["totalproducerequests"], counter["failedproducerequests"], counter["bytesin"]) == (4, 2, 10)


async def test_consumers_and_followers_are_counted_apart() -> None:
    service, meters = metered()
    for replica_id in (CONSUMER, 2):
        response = await service.fetch(A_CLIENT, FetchRequest(replica_id, 0, 1, 1 << 20, []))
        response.pending.release()
    assert [meters.request(name).count for name in ("FetchConsumer", "FetchFollower")] == [1, 1]
    counter = meters.topic("orders")
    assert (counter["bytesout"], counter["replicationbytesout"], counter["failedfetchrequests"]) == (5, 5, 1)


@pytest.mark.parametrize("is_parked", [False, True])
async def test_a_follower_whose_fetch_is_begun_is_counted_when_it_has_its_response(*, is_parked: bool) -> None:
    """A parked fetch counts with its response, and not at all if it is cancelled."""
    service, meters = metered(is_parked=is_parked)
    request, pending = FetchRequest(2, 500, 1, 1 << 20, []), service.responses.for_follower("c")
    first, second = (service.begin_follower_fetch(A_CLIENT, request, pending) for _ in range(2))
    counted = [meters.request("FetchFollower").count]
    second.cancel()
    if is_parked:
        first.set_result(FETCHED)
    await asyncio.sleep(0)
    counted.append(meters.request("FetchFollower").count)
    assert counted == ([0, 1] if is_parked else [2, 2])
    assert meters.topic("orders")["replicationbytesout"] == (5 if is_parked else 10)


def test_a_response_of_a_wire_is_counted_by_kafkas_name() -> None:
    meters = Meters()
    measure = MeteredRequests(meters).responded
    measure(A_CLIENT, "ListOffsets", 2.0, set())
    measure(A_CLIENT, "ListOffsets", 3.0, {3})
    found = meters.request("ListOffsets")
    assert (found.count, found.errors, found.sum_ms) == (2, 1, 5.0)


def test_middleware_wraps_public_methods_only_and_leaves_alone_what_it_does_not_want() -> None:
    class Service:
        size = 3

        def ask(self) -> str:
            return "asked " + self._hidden()

        def other(self) -> str:
            return self.ask()

        def _hidden(self) -> str:
            return "hidden"

    class Shouting:
        seen: list[str]

        def around(self, method: str, call: Callable[..., Any]) -> Callable[..., Any]:
            self.seen.append(method)
            return (lambda: call().upper()) if method == "ask" else call

    service, shouting = Service(), Shouting()
    shouting.seen = []
    wrap(service, shouting)
    assert shouting.seen == ["ask", "other"]
    assert service.ask() == service.other() == "ASKED HIDDEN"
    assert list(vars(service)) == ["ask"]
