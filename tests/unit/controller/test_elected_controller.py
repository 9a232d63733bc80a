"""A controller that has just been elected handles no request before it has read its context (KafkaController.elect)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, cast

import pytest

from tidegauge.control import Endpoint
from tidegauge.settings import parse_broker_settings
from tidegauge_controller.zookeeper.client import NoNode, ZnodeStat
from tidegauge_controller.zookeeper.controller import Controller
from tidegauge_controller.zookeeper.decisions.context import ControllerContext
from tidegauge_controller.zookeeper.decisions.steps import Steps
from tidegauge_controller.zookeeper.driver import Driver

TOPIC_ID = "B" * 22


class EmptyZooKeeper:
    """Has no controller, and elects whoever asks."""

    session_id = 7

    def watch_data(self, path: str, callback: Callable[[], None]) -> EmptyZooKeeper:
        callback()
        return self

    def cancel(self) -> None:
        """End no watch."""

    async def get(self, path: str) -> tuple[bytes, ZnodeStat]:
        raise NoNode(path)

    async def create(self, path: str, data: bytes | None) -> str:
        return path

    async def multi(self, operations: list[object]) -> list[Any]:
        return ["", ZnodeStat(0, 1, 1, 0)]


async def test_topics_are_named_once_they_have_been_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """A leader that got UNKNOWN_TOPIC_ID would propose no ISR until it had a new role."""
    may_read, elected = asyncio.Event(), asyncio.Event()

    async def watch_children(*_: object) -> None:
        await may_read.wait()

    def fail_over(context: ControllerContext) -> Steps[None]:
        yield from ()
        context.name_topic("orders", TOPIC_ID)

    monkeypatch.setattr(Driver, "watch_children", watch_children)
    monkeypatch.setattr("tidegauge_controller.zookeeper.controller.fail_over", fail_over)
    settings = parse_broker_settings({"zookeeper.connect": "z", "auto.leader.rebalance.enable": "false"})[0]
    made = Controller(
        endpoint=Endpoint(1, "a", 1),
        control_plane_listener="PLAINTEXT",
        zookeeper=cast("Any", EmptyZooKeeper()),
        settings=settings,
        metadata=cast("Any", None),
        note=lambda *_: elected.set(),
        now_ms=lambda: 0,
        random_bytes=bytes,
        open_link=cast("Any", None),
    )
    assert await made.topic_names([TOPIC_ID]) is None, "it is not the controller"
    await made.start()
    await elected.wait()
    assert made.is_active
    asked = asyncio.ensure_future(made.topic_names([TOPIC_ID, "C" * 22]))
    for _ in range(10):
        await asyncio.sleep(0)
    assert not asked.done()
    may_read.set()
    assert await asked == {TOPIC_ID: "orders"}
    await made.stop()
