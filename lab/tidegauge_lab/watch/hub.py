"""Looks at the cluster while there are watchers, and sends each of them what changed since its last update.

Rules:
    1. Without a watcher no broker is asked.
    2. A watcher gets the whole view first, then differences from the view that it has. One that is slow gets one
       difference for several looks, never a queue of them.
    3. A watcher gets the run so far (``history``), then each new step of it once. One that is slower than the history
       is long gets the history again.
    4. Many events at once, as at the first look, are taken in over several looks: none lasts long.
    5. Another cluster is followed from the next look on: each watcher gets the whole view of it, and its history.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncGenerator, Callable
from typing import Any

from tidegauge_lab.watch.facts import Facts
from tidegauge_lab.watch.history import History, Recorded
from tidegauge_lab.watch.sources import Source
from tidegauge_lab.watch.view import Json, difference, view_of

LOOK_EVERY_SECONDS = 0.4
QUIET_SECONDS = 15.0
EVENTS_A_LOOK = 5_000

Message = tuple[str, Any]
"""Name of the server-sent event, and its JSON; the name ``beat`` keeps a quiet connection open."""


class _Run:
    """One cluster's history, and the events that are not in it yet."""

    def __init__(self) -> None:
        self.history = History()
        self.waiting: deque[Json] = deque()

    def take(self, most: int) -> None:
        """Take in the next events, so many at most."""
        for _ in range(min(most, len(self.waiting))):
            self.history.add(self.waiting.popleft())


class Hub:
    """One cluster, any number of watchers."""

    def __init__(self, source: Source) -> None:
        self._home = self._wanted_source = self._source = source
        self._clusters = 0
        self._beside: Callable[[], Json] = dict
        self._view: Json = {}
        self._looks = 0
        self._run = _Run()
        self._runs: dict[Source, _Run] = {}
        self._recorded = self._run.history.recorded()
        self._changed = asyncio.Condition()
        self._watchers = 0
        self._wanted = asyncio.Event()
        self._hurry = asyncio.Event()
        self._closed = False

    async def run(self) -> None:
        """Look again and again, until cancelled; then the source is closed."""
        try:
            while True:
                await self._wanted.wait()
                await self.look()
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(LOOK_EVERY_SECONDS):
                        await self._hurry.wait()
                self._hurry.clear()
        finally:
            await self._source.close()
            if self._source is not self._home:
                await self._home.close()

    def follow(self, source: Source | None) -> None:
        """Show another cluster from the next look on (rule 5); None: the first one again."""
        self._wanted_source = self._home if source is None else source
        self.soon()

    def settle(self, source: Source) -> None:
        """Show a cluster that has taken the first one's place; nothing of the former stays."""
        if self._wanted_source is self._home:
            self._wanted_source = source
        self._home = source
        self.soon()

    def show_beside(self, what: Callable[[], Json]) -> None:
        """Add to each view a part that is not the cluster's, as ``teaching``."""
        self._beside = what

    async def _turn(self) -> None:
        """Turn to the cluster that is to be shown; one that is not shown again is closed."""
        if self._source is self._wanted_source:
            return
        before, self._source = self._source, self._wanted_source
        self._clusters += 1
        self._view = {}
        self._runs[before] = self._run
        if before is not self._home:
            await before.close()
        # A source gives each event once: the run of a cluster that is shown again continues from its last step.
        self._run = self._runs.get(self._source, _Run())
        self._runs = {source: run for source, run in self._runs.items() if source is self._home}

    async def look(self) -> None:
        """One look."""
        await self._turn()
        try:
            self._run.waiting.extend(await self._source.new_events())
            await asyncio.to_thread(self._run.take, EVENTS_A_LOOK)
            view = view_of(await self._source.look(), self._run.history.view["transactions"])
        except Exception as problem:  # noqa: BLE001 - the page goes on and says so; the next look may be better
            known = self._view or view_of(Facts(""))
            view = known | {"problem": f"the cluster could not be looked at: {problem}"}
        view |= {"teaching": self._beside()}
        async with self._changed:
            self._view, self._looks = view, self._looks + 1
            self._recorded = self._run.history.recorded()
            self._changed.notify_all()
        if self._run.waiting:
            self.soon()

    @property
    def name(self) -> str:
        """The name of the cluster; empty before the first look."""
        return str(self._view.get("name", ""))

    @property
    def recorded(self) -> Recorded:
        """The run so far, as of the last look."""
        return self._recorded

    def soon(self) -> None:
        """Something was done: look at once."""
        self._hurry.set()

    async def watch(self) -> AsyncGenerator[Message, None]:
        """Yield what one watcher is to be sent, as it happens; end when the hub is closed."""
        self._watchers += 1
        self._wanted.set()
        reported: Json = {}
        number: int | None = None
        looks, clusters = self._looks, self._clusters
        try:
            while not self._closed:
                if not await self._newer_than(looks):
                    yield "beat", None
                    continue
                if self._closed:
                    return
                if clusters != self._clusters:
                    reported, number, clusters = {}, None, self._clusters
                view, looks = self._view, self._looks
                if not reported:
                    yield "view", view
                elif changed := difference(reported, view):
                    yield "change", changed
                reported = view
                recorded = self._recorded
                if number is None or recorded.lacks(number):
                    yield "history", recorded.as_json()
                elif steps := recorded.after(number):
                    yield "events", steps
                number = recorded.last_number
        finally:
            self._watchers -= 1
            if self._watchers == 0:
                self._wanted.clear()

    async def _newer_than(self, looks: int) -> bool:
        async with self._changed:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(QUIET_SECONDS):
                    await self._changed.wait_for(lambda: self._looks > looks or self._closed)
                return True
        return False

    async def close(self) -> None:
        """Let all watchers go."""
        if self._closed:
            return
        async with self._changed:
            self._closed = True
            self._changed.notify_all()
