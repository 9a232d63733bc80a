"""Periodic tasks of the active controller, each an event of its queue.

Source: ``QuorumController.registerMaybeFenceStaleBroker``, ``registerWriteNoOpRecord``, ``registerElectPreferred``,
``registerElectUnclean``; ``PeriodicTaskControlManager``.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any, NamedTuple

from tidegauge.errors import ErrorCode
from tidegauge.settings import Values
from tidegauge_broker.server.quorum.controller.events import Decide, WriteEvent
from tidegauge_controller.metadata.active import ActiveController
from tidegauge_controller.metadata.decisions.activation import no_op
from tidegauge_controller.metadata.decisions.brokers import fence_one_stale_broker
from tidegauge_controller.metadata.decisions.partitions import balance_leaders, elect_unclean_leaders
from tidegauge_controller.metadata.decisions.view import Decision

LOG = logging.getLogger("tidegauge.controller")
_LOOKS_PER_SESSION = 8
"""Number of looks at sessions during one session timeout (``BrokerHeartbeatManager``)."""


class PeriodicTask(NamedTuple):
    """A task: what it decides, and after how long it does so again. A response of True asks for it again at once.

    Attributes:
        walks: whether it looks at all partitions.
    """

    name: str
    interval_ms: int
    decide: Decide
    walks: bool = True


def periodic_tasks(values: Values) -> list[PeriodicTask]:
    """Return the tasks of an active controller with these settings."""
    session_ms = values.integer("broker.session.timeout.ms")
    tasks = [
        PeriodicTask("maybeFenceStaleBroker", max(1, session_ms // _LOOKS_PER_SESSION), _fence),
        PeriodicTask("electUnclean", values.integer("unclean.leader.election.interval.ms"), _elect_unclean),
    ]
    no_op_ms = values.integer("metadata.max.idle.interval.ms")
    if no_op_ms > 0:
        tasks.append(PeriodicTask("writeNoOpRecord", no_op_ms, lambda *_: no_op(), walks=False))
    if values["auto.leader.rebalance.enable"]:
        seconds = values.integer("leader.imbalance.check.interval.seconds")
        tasks.append(PeriodicTask("electPreferred", seconds * 1000, _balance))
    return tasks


def _fence(active: ActiveController, now_ms: int) -> Decision[Any]:
    return fence_one_stale_broker(active.view, active.heartbeats, now_ms)


def _elect_unclean(active: ActiveController, _: int) -> Decision[Any]:
    return elect_unclean_leaders(active.view)


def _balance(active: ActiveController, _: int) -> Decision[Any]:
    return balance_leaders(active.view)


class Timers:
    """Queues the tasks while the controller is active.

    Args:
        tasks: the tasks.
        write: queues an event.
    """

    def __init__(self, tasks: list[PeriodicTask], write: Callable[[WriteEvent], None]) -> None:
        self._tasks = tasks
        self._write = write
        self._due: dict[str, asyncio.TimerHandle] = {}

    def start(self) -> None:
        """Begin: each task runs for the first time after its interval."""
        for task in self._tasks:
            self._schedule(task, task.interval_ms)

    def stop(self) -> None:
        """Queue nothing more."""
        for handle in self._due.values():
            handle.cancel()
        self._due.clear()

    def _schedule(self, task: PeriodicTask, delay_ms: int) -> None:
        """Queue a task once, after a delay, in place of an earlier schedule."""
        if task.name in self._due:
            self._due[task.name].cancel()
        self._due[task.name] = asyncio.get_running_loop().call_later(delay_ms / 1000, self._queue, task)

    def _queue(self, task: PeriodicTask) -> None:
        def decided(_active: ActiveController, again: object, _last_offset: int) -> None:
            if task.name in self._due:
                self._schedule(task, 0 if again is True else task.interval_ms)

        def failed(error: ErrorCode, message: str) -> None:
            if error is ErrorCode.NOT_CONTROLLER:
                return
            LOG.warning("%s of the controller fails: %s", task.name, message)
            if task.name in self._due:
                self._schedule(task, task.interval_ms)

        count = None if task.walks else 0
        self._write(WriteEvent(task.name, task.decide, failed=failed, appended=decided, partitions=count))
