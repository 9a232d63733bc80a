"""Requests for the controller, while it moves: rules 1 and 3 of ``AdminBase``."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge_client import admin_base
from tidegauge_client.admin import Admin
from tidegauge_client.channels import LateError
from tidegauge_client.kafka_controller import KafkaController
from tidegauge_client.metadata import BrokerInfo, ClusterInfo

FIRST, SECOND = BrokerInfo(0, "127.0.0.1", 1), BrokerInfo(1, "127.0.0.1", 2)
OLD = ClusterInfo(controller_id=0, controller_epoch=4, brokers={0: FIRST, 1: SECOND})
NEW = ClusterInfo(controller_id=1, controller_epoch=5, brokers={0: FIRST, 1: SECOND})

Attempt = Callable[[str, float], Awaitable[str]]


class World:
    """Brokers' responses to Metadata, one view after the other, the last one for ever; and the asked controllers.

    Attributes:
        asked: addresses of the controllers that got the request.
        named_new: set once a broker has named the successor.
    """

    def __init__(self, *views: ClusterInfo | TidegaugeError) -> None:
        self.views = list(views)
        self.asked: list[str] = []
        self.named_new = asyncio.Event()

    async def metadata(self, *_: object) -> ClusterInfo:
        view = self.views.pop(0) if len(self.views) > 1 else self.views[0]
        if isinstance(view, TidegaugeError):
            raise view
        if view is NEW:
            self.named_new.set()
        return view


async def asked_of(world: World, attempt: Attempt, monkeypatch: pytest.MonkeyPatch, *, timeout_ms: float = 1e6) -> str:
    """Make the attempt at the controller; return its result."""
    monkeypatch.setattr(admin_base, "PROBE_TIMEOUT_MS", 1)
    monkeypatch.setattr(Admin, "metadata", world.metadata)

    async def recorded(address: str, left_ms: float) -> str:
        world.asked.append(address)
        return await attempt(address, left_ms)

    async def at_kafka(_: KafkaController, __: float) -> Any:
        raise AssertionError

    async with Admin("127.0.0.1:1", retry_backoff_ms=1) as admin:
        return await admin.at_controller(recorded, timeout_ms, at_kafka)


async def test_a_request_at_a_paused_controller_goes_to_its_successor(monkeypatch):
    """Rule 3. A view of the same epoch, and a moment in which no broker responds, change nothing."""
    silent = TidegaugeError(ErrorCode.BROKER_NOT_AVAILABLE, "no broker responds")
    world = World(OLD, OLD, silent, NEW)
    given_up: list[str] = []

    async def attempt(address: str, _: float) -> str:
        if address == FIRST.address:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                given_up.append(address)
                raise
        return "created"

    assert await asked_of(world, attempt, monkeypatch) == "created"
    assert world.asked == [FIRST.address, SECOND.address]
    assert given_up == [FIRST.address], "the request in flight is ended, not forgotten"


async def test_a_controller_that_lost_its_term_still_reports_what_it_has_done(monkeypatch):
    """Rule 3: its response counts, or the creation would be reported as TOPIC_ALREADY_EXISTS by its successor."""
    world = World(OLD, NEW)

    async def attempt(_: str, __: float) -> str:
        await world.named_new.wait()
        for _ in range(5):  # the search for a successor has ended by now
            await asyncio.sleep(0)
        return "created"

    assert await asked_of(world, attempt, monkeypatch) == "created"
    assert world.asked == [FIRST.address]


async def test_a_refusal_of_the_controller_is_not_retried(monkeypatch):
    world = World(OLD)

    async def attempt(_: str, __: float) -> str:
        raise TidegaugeError(ErrorCode.TOPIC_ALREADY_EXISTS, "topic 'orders' already exists")

    with pytest.raises(TidegaugeError, match="already exists"):
        await asked_of(world, attempt, monkeypatch)
    assert world.asked == [FIRST.address]


async def test_not_controller_is_retried_until_the_timeout(monkeypatch):
    """Rule 1; with no time left the error is raised."""

    async def attempt(address: str, _: float) -> str:
        if address == FIRST.address:
            raise TidegaugeError(ErrorCode.NOT_CONTROLLER, "broker 0 is not the controller")
        return "created"

    world = World(OLD, OLD, NEW)
    assert await asked_of(world, attempt, monkeypatch) == "created"
    assert world.asked == [FIRST.address, FIRST.address, SECOND.address]
    with pytest.raises(TidegaugeError, match="not the controller"):
        await asked_of(World(OLD), attempt, monkeypatch, timeout_ms=0)


async def test_a_controller_that_does_not_respond_may_wait_for_zookeeper(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its sentence says that the outcome is not known, what the controller may wait for, and where to look."""

    async def attempt(address: str, _: float) -> str:
        raise LateError(address)

    with pytest.raises(TidegaugeError, match=r"127\.0\.0\.1:1 did not respond.*ZooKeeper.*describe-cluster") as caught:
        await asked_of(World(OLD), attempt, monkeypatch)
    assert caught.value.code is ErrorCode.REQUEST_TIMED_OUT


@pytest.mark.parametrize(
    ("refusal", "marked"),
    [
        (TidegaugeError(ErrorCode.INVALID_TOPIC_EXCEPTION, "The topic is queued for deletion."), True),
        (TidegaugeError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "The topic 'orders' does not exist."), False),
        (TidegaugeError(ErrorCode.INVALID_PARTITIONS, "The topic 'orders' has 3 partitions"), False),
        (TidegaugeError(ErrorCode.REQUEST_TIMED_OUT, "no broker responds"), False),
    ],
)
async def test_a_topic_that_no_metadata_shows_may_be_marked_for_deletion(
    refusal: TidegaugeError, marked: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The controller alone knows (KafkaApis.handleCreatePartitionsRequest); what it can't say is not claimed."""
    asked: list[tuple[str, int]] = []

    async def refuse(_: Admin, name: str, count: int, **__: object) -> None:
        asked.append((name, count))
        raise refusal

    monkeypatch.setattr(Admin, "create_partitions", refuse)
    async with Admin("127.0.0.1:1") as admin:
        with pytest.raises(TidegaugeError, match="marked for deletion" if marked else "does not exist") as raised:
            await admin.topics_in(NEW, ["orders"])
    assert raised.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert asked == [("orders", 1)], "no topic can be grown to one partition"
