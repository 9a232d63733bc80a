"""One term of a controller: from its election to its resignation."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from tidegauge_controller.zookeeper.channels import Channels
from tidegauge_controller.zookeeper.decisions.context import ControllerContext
from tidegauge_controller.zookeeper.driver import Driver


class Term:
    """State that exists only while this broker is the active controller."""

    def __init__(self, context: ControllerContext, driver: Driver, channels: Channels) -> None:
        self.context = context
        self.driver = driver
        self.channels = channels
        self.rebalance_timer: asyncio.TimerHandle | None = None
        self.startups_notified: dict[int, int] = {}
        self.waiting: dict[object, Callable[[], None]] = {}
