"""A fetcher ends when it is cancelled, after any wake-up."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from tidegauge.settings import parse_broker_settings
from tidegauge_broker.replica.messages import Wait
from tidegauge_broker.server.replication.fetchers import Fetchers

LEADER = 1


class Core:
    """Follows one leader, until the test says otherwise."""

    broker_id = 2

    def __init__(self) -> None:
        self.followed = {LEADER}

    def leaders_followed(self) -> set[int]:
        return self.followed


class Manager:
    """Has nothing to ask: each partition waits for the end of its back-off."""

    def __init__(self) -> None:
        self.core = Core()

    def next_round(self, leader: int, admits: object) -> Wait:
        del leader, admits
        return Wait(3_600_000)


class Link:
    def drop(self) -> None:
        """Nothing is open."""


class Links:
    def open(self, leader: int) -> Any:
        del leader
        return Link()


def fetchers() -> Fetchers:
    settings, _ = parse_broker_settings({})
    manager: Any = Manager()
    links: Any = Links()
    return Fetchers(manager, links, settings, lambda: 0)


async def turns(count: int) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


async def ended(fetchers: Fetchers, leaders: Sequence[int], turns_between: int) -> bool:
    """Wake the fetcher, and cancel it some turns of the event loop later; return whether its task has ended."""
    fetchers.changed(leaders)
    await turns(3)
    (task,) = [one for one in asyncio.all_tasks() if one.get_name() == f"fetcher-of-{LEADER}"]
    fetchers.changed(leaders)
    await turns(turns_between)
    closing = asyncio.get_running_loop().create_task(fetchers.close())
    await turns(10)
    is_ended = task.done() and closing.done()
    for one in (task, closing):
        one.cancel()
    await asyncio.wait({task, closing})
    return is_ended


async def test_a_fetcher_that_has_just_been_woken_ends_all_the_same() -> None:
    """A LeaderAndIsr that wakes it may come just before the end: a stop waited for it for ever."""
    for turns_between in range(4):
        assert await ended(fetchers(), [LEADER], turns_between), turns_between
