"""Plays a story beside the cluster that it plays on, step by step, as the viewer asks for it.

A story has a cluster of its own in a temporary directory (``scenario.stage``), which the page follows from its start
until the story is ended; then it shows what it showed before. The story plays in a thread: its steps wait for brokers.
"""

from __future__ import annotations

import asyncio
import shutil
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge_lab.local.cluster import LocalCluster
from tidegauge_lab.scenario.model import Scenario
from tidegauge_lab.scenario.outcome import Outcome
from tidegauge_lab.scenario.pace import Pace
from tidegauge_lab.scenario.runner import play
from tidegauge_lab.watch.hub import Hub
from tidegauge_lab.watch.progress import Progress
from tidegauge_lab.watch.sources import LabSource

Json = dict[str, Any]
VERBS = ("next", "on", "pause", "end")


class Ended(Exception):
    """Raised to end the story at the present step."""


class StoryPace(Pace):
    """Holds the thread that plays until a step is asked for.

    Args:
        progress: is kept true; it is looked at and changed under a lock.
        staged: called with the cluster's directory once it is up; returns when the page follows it.
        changed: called after each change.
    """

    later_ms = 3_600_000  # the viewer may talk meanwhile

    def __init__(self, progress: Progress, staged: Callable[[Path], None], changed: Callable[[], None]) -> None:
        self._progress = progress
        self._staged = staged
        self._changed = changed
        self._condition = threading.Condition()
        self._is_ended = False

    def ask(self, verb: str) -> None:
        """Do one of ``VERBS``."""
        asked = {"next": self._progress.next, "on": self._progress.play_on, "pause": self._progress.pause}
        with self._condition:
            if verb == "end":
                self._is_ended = True
            else:
                asked[verb]()
            self._condition.notify_all()

    def check(self) -> None:
        """Raise where the story is to end.

        Raises:
            Ended: it is.
        """
        if self._is_ended:
            raise Ended

    def on_stage(self, cluster: LocalCluster) -> None:
        """Show the cluster; its first step can be asked for once the page follows it."""
        self._staged(cluster.directory)
        with self._condition:
            self._progress.on_stage(str(cluster.directory))
        self._changed()

    def before(self, number: int) -> float:
        """Wait until the step is asked for; return the seconds waited."""
        begin = time.monotonic()
        with self._condition:
            self._condition.wait_for(lambda: self._is_ended or self._progress.may_begin(number))
            self.check()
            self._progress.begin(number)
        self._changed()
        return time.monotonic() - begin

    def after(self, outcome: Outcome) -> None:
        """Note what the step has done."""
        with self._condition:
            self._progress.end_step(outcome)
        self._changed()

    def at_end(self, outcome: Outcome) -> None:
        """Leave the cluster there until the story is ended."""
        del outcome
        with self._condition:
            self._progress.end()
            self._changed()
            self._condition.wait_for(lambda: self._is_ended)

    def fail(self, problem: str) -> None:
        """Note that the run has come to its end."""
        with self._condition:
            self._progress.fail(problem)
        self._changed()

    def as_json(self) -> Json:
        """Return what the page shows."""
        with self._condition:
            return self._progress.as_json()

    @property
    def is_at_end(self) -> bool:
        """Whether nothing follows."""
        return self._progress.is_at_end


class Stories:
    """At most one story at a time.

    Args:
        hub: follows the story's cluster.
    """

    def __init__(self, hub: Hub) -> None:
        self._hub = hub
        self._reins: StoryPace | None = None
        self._playing: asyncio.Task[None] | None = None
        self.directory: Path | None = None
        """Of the story's cluster, while there is one."""

    def as_json(self) -> Json | None:
        """Return what the page shows of the story; None without one."""
        return None if self._reins is None else self._reins.as_json()

    async def start(self, story: Scenario) -> None:
        """Begin a story; it waits before its first step.

        Raises:
            TidegaugeError: INVALID_REQUEST, another one is not at its end.
        """
        if self._reins is not None:
            if not self._reins.is_at_end:
                raise TidegaugeError(ErrorCode.INVALID_REQUEST, "a story is being played: end it first")
            await self.end()
        loop = asyncio.get_running_loop()

        def staged(directory: Path) -> None:
            asyncio.run_coroutine_threadsafe(self._follow(directory), loop).result()

        def changed() -> None:
            loop.call_soon_threadsafe(self._hub.soon)

        self._reins = StoryPace(Progress(story), staged, changed)
        self._playing = asyncio.create_task(self._play(story, self._reins))

    def ask(self, verb: str) -> None:
        """Ask for the next step, for all that follow, or for none.

        Raises:
            TidegaugeError: INVALID_REQUEST, there is no story.
        """
        if self._reins is None:
            raise TidegaugeError(ErrorCode.INVALID_REQUEST, "no story is being played: choose one, and play it")
        self._reins.ask(verb)

    async def end(self) -> None:
        """End the story at the present step, and take its cluster down; nothing happens without one."""
        reins, playing = self._reins, self._playing
        if reins is None or playing is None:
            return
        self._show_before()
        reins.ask("end")
        await asyncio.shield(playing)
        if self._reins is reins:
            self._reins = self._playing = None

    async def _play(self, story: Scenario, reins: StoryPace) -> None:
        home: Path | None = None
        try:
            home = Path(await asyncio.to_thread(tempfile.mkdtemp, prefix="tidegauge-scenario-"))
            await asyncio.to_thread(play, story, home, check=reins.check, pace=reins, is_temporary=True)
        except Ended:
            pass
        except TidegaugeError as problem:
            reins.fail(problem.message)
        except Exception as problem:  # noqa: BLE001 - the page goes on, and says what happened
            reins.fail(f"the story could not be played: {problem}")
        finally:
            self._show_before()
            if home is not None:
                await asyncio.to_thread(shutil.rmtree, home, ignore_errors=True)

    async def _follow(self, directory: Path) -> None:
        self.directory = directory
        self._hub.follow(LabSource(directory))

    def _show_before(self) -> None:
        if self.directory is not None:
            self.directory = None
            self._hub.follow(None)
