"""The request log is middleware of the service: one line for each request, whichever wire asks."""

from __future__ import annotations

import asyncio
import logging
from types import SimpleNamespace
from typing import Any

import pytest

from tidegauge.errors import ErrorCode
from tidegauge_broker.server.service.broker_service import BrokerService
from tidegauge_broker.server.service.caller import Caller
from tidegauge_broker.server.service.middleware import wrap
from tidegauge_broker.server.service.request_log import _REQUESTS, RequestLog


class Service:
    """Methods of the kinds that the service has."""

    def produce(self, request: Any) -> asyncio.Future[Any]:
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        future.set_result([SimpleNamespace(error=ErrorCode.NONE), SimpleNamespace(error=ErrorCode.CORRUPT_MESSAGE)])
        return future

    async def fetch(self, caller: Caller, request: Any) -> Any:
        part = SimpleNamespace(error=ErrorCode.OFFSET_OUT_OF_RANGE)
        return SimpleNamespace(partitions=[(part, b"")], pending=None)

    def begin_follower_fetch(self, caller: Caller, request: Any, pending: Any) -> asyncio.Future[Any]:
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        future.set_result([(SimpleNamespace(error=ErrorCode.NONE), b"")])
        return future

    async def stop_replica(self, *_: Any) -> Any:
        return SimpleNamespace(error=ErrorCode.NONE, partitions={"t-0": (ErrorCode.ELECTION_NOT_NEEDED, "no need")})

    def knows(self, *_: Any) -> bool:
        return True


async def test_each_kind_of_request_has_one_line(caplog: pytest.LogCaptureFixture) -> None:
    service = Service()
    log = RequestLog()
    wrap(service, log)
    caplog.set_level(logging.INFO, "tidegauge.request")
    caller = Caller("kafka:1", "PLAINTEXT")
    log.responded(caller, "ListOffsets", 1.5, {6, 3})
    log.responded(Caller("kafka:2", "PLAINTEXT", broker_id=2), "WriteTxnMarkers", 1.5, ())
    await service.produce("request")
    await asyncio.sleep(0)
    assert (await service.fetch(caller, "request")).pending is None
    await service.begin_follower_fetch(Caller("kafka:3", "PLAINTEXT", broker_id=2), "request", None)
    await asyncio.sleep(0)
    await service.stop_replica([])
    assert service.knows("t")
    await asyncio.sleep(0)
    lines = [record.getMessage().split(",totalTime:") for record in caplog.records]
    assert [line[0].removeprefix("Completed request:") for line in lines] == [
        "ListOffsets,connection:kafka:1,listener:PLAINTEXT",
        "WriteTxnMarkers,connection:kafka:2,listener:PLAINTEXT,broker:2",
        "Produce",
        "Fetch,connection:kafka:1,listener:PLAINTEXT",
        "Fetch,connection:kafka:3,listener:PLAINTEXT,broker:2",
        "StopReplica",
    ]
    assert [line[1].partition(",errors:")[2] for line in lines] == [
        "NOT_LEADER_OR_FOLLOWER,UNKNOWN_TOPIC_OR_PARTITION",
        "NONE",
        "CORRUPT_MESSAGE",
        "OFFSET_OUT_OF_RANGE",
        "NONE",
        "ELECTION_NOT_NEEDED",
    ]


async def test_a_caller_that_gives_up_has_no_line(caplog: pytest.LogCaptureFixture) -> None:
    class Waiting:
        def produce(self, request: Any) -> asyncio.Future[Any]:
            return asyncio.get_running_loop().create_future()

    service = Waiting()
    wrap(service, RequestLog())
    caplog.set_level(logging.INFO, "tidegauge.request")
    service.produce("request").cancel()
    await asyncio.sleep(0)
    assert caplog.records == []


def test_what_is_logged_are_methods_of_the_service() -> None:
    assert all(callable(getattr(BrokerService, name)) for name in _REQUESTS)
