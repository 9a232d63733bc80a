"""Requests find the active controller, again when it changes (NodeToControllerRequestThread)."""

from __future__ import annotations

import asyncio
import gc
from types import SimpleNamespace
from typing import Any

import pytest

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge_broker.server.cluster.kraft import controller_channel
from tidegauge_broker.server.cluster.kraft.controller_channel import ControllerChannel

HEARTBEAT = 63


class Nodes:
    """The controllers; ``responses`` has what each address responds, in order."""

    def __init__(self, **responses: list[Any]) -> None:
        self.leader: str | None = next(iter(responses), None)
        self.responses = responses
        self.asked: list[str] = []
        self.closed: list[str] = []

    def open(self, address: str, client_id: str) -> Any:
        del client_id

        async def request(key: int, message: object, timeout_seconds: float, *, at_least: int) -> Any:
            del key, message, timeout_seconds, at_least
            self.asked.append(address)
            found = self.responses[address].pop(0)
            if isinstance(found, Exception):
                raise found
            if callable(found):
                found = found()
            if isinstance(found, asyncio.Future):
                found = await found
            return SimpleNamespace(error_code=found)

        return SimpleNamespace(
            address=address, request=request, close=lambda: self.closed.append(address), versions={1: (0, 1)}
        )

    def channel(self) -> ControllerChannel:
        return ControllerChannel("test", "1", lambda: self.leader, self.open, 1.0)


async def test_a_response_comes_from_the_leader() -> None:
    nodes = Nodes(a=[0])
    channel = nodes.channel()
    assert channel.versions() == {}
    assert (await channel.request(HEARTBEAT, None, 5)).error_code == 0
    assert channel.versions() == {1: (0, 1)}


async def test_a_node_that_is_not_the_controller_any_more_makes_it_look_again() -> None:
    """NOT_CONTROLLER, and a connection that fails, send the request to whoever leads then."""
    nodes = Nodes(a=[], b=[0])

    def moved() -> ErrorCode:
        nodes.leader = "b"
        return ErrorCode.NOT_CONTROLLER

    nodes.responses["a"] += [TidegaugeError(ErrorCode.NETWORK_EXCEPTION, "refused"), moved]
    assert (await nodes.channel().request(HEARTBEAT, None, 5)).error_code == 0
    assert nodes.asked == ["a", "a", "b"]
    assert nodes.closed == ["a"]


async def test_another_error_is_the_callers() -> None:
    nodes = Nodes(a=[ErrorCode.STALE_BROKER_EPOCH])
    assert (await nodes.channel().request(HEARTBEAT, None, 5)).error_code == ErrorCode.STALE_BROKER_EPOCH


async def test_a_version_that_is_not_served_is_not_asked_for_again() -> None:
    nodes = Nodes(a=[TidegaugeError(ErrorCode.UNSUPPORTED_VERSION, "no such API")])
    with pytest.raises(TidegaugeError) as refused:
        await nodes.channel().request(HEARTBEAT, None, 5)
    assert refused.value.code is ErrorCode.UNSUPPORTED_VERSION
    assert nodes.asked == ["a"]


async def test_without_a_leader_the_time_ends() -> None:
    nodes = Nodes()
    with pytest.raises(TidegaugeError, match="no controller is known") as refused:
        await nodes.channel().request(HEARTBEAT, None, 0.01)
    assert refused.value.code is ErrorCode.REQUEST_TIMED_OUT


async def test_requests_are_sent_one_at_a_time() -> None:
    nodes = Nodes(a=[0, 0])
    channel = nodes.channel()
    found = await asyncio.gather(*(channel.request(HEARTBEAT, None, 5) for _ in range(2)))
    assert [one.error_code for one in found] == [0, 0]


async def test_a_request_that_waits_for_a_former_controller_goes_to_the_next_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A paused controller keeps the connection open and responds to nothing; an attempt may last for 30 s."""
    monkeypatch.setattr(controller_channel, "LOOK_SECONDS", 0)
    nodes = Nodes(a=[], b=[0])
    waiting: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    nodes.responses["a"].append(waiting)
    request = asyncio.ensure_future(nodes.channel().request(HEARTBEAT, None, 30))
    for _ in range(20):
        await asyncio.sleep(0)
    assert (request.done(), nodes.asked) == (False, ["a"])
    nodes.leader = None
    for _ in range(20):
        await asyncio.sleep(0)
    assert not request.done(), "there is no other one yet"
    nodes.leader = "b"
    assert (await request).error_code == 0
    assert (nodes.asked, nodes.closed, waiting.cancelled()) == (["a", "b"], ["a"], True)


async def test_a_request_that_has_no_response_in_time_closes_its_connection() -> None:
    """NetworkClient.handleTimedOutRequests: else a request behind it on that connection would have none, either."""
    nodes = Nodes(a=[asyncio.get_running_loop().create_future(), 0])
    channel = nodes.channel()
    with pytest.raises(TidegaugeError) as ended:
        await channel.request(HEARTBEAT, None, 0.01)
    assert (ended.value.code, nodes.closed) == (ErrorCode.REQUEST_TIMED_OUT, ["a"])
    assert (await channel.request(HEARTBEAT, None, 5)).error_code == 0
    assert nodes.closed == ["a"], "a connection that responds stays"


async def test_an_error_that_comes_as_its_caller_gives_up_is_no_report_to_the_log() -> None:
    """The wait is cancelled in the turn in which the request fails: its error would never be retrieved."""
    reports: list[dict[str, Any]] = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: reports.append(context))
    response: asyncio.Future[Any] = loop.create_future()
    nodes = Nodes(a=[response])
    caller = loop.create_task(nodes.channel().request(HEARTBEAT, None, 5))
    for _ in range(5):
        await asyncio.sleep(0)
    assert nodes.asked == ["a"]
    response.set_exception(TidegaugeError(ErrorCode.NETWORK_EXCEPTION, "refused by the lab"))
    await asyncio.sleep(0)
    caller.cancel()
    await asyncio.wait({caller})
    assert caller.cancelled()
    del response, nodes, caller
    gc.collect()
    await asyncio.sleep(0)
    assert reports == []
