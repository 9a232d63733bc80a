"""Tasks of the page beside showing a cluster: labs in its directory, and stories on clusters of their own.

Both are asked by JSON: ``{"do": "start", "lab": "acks-all"}``, ``{"do": "check"}``, ``{"do": "stop"}``;
``{"do": "start", "story": "loss-high-watermark"}``, ``{"do": "next"}``, ``on``, ``pause``, ``end``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge_lab.labs.catalogue import lab_named
from tidegauge_lab.labs.checking import check
from tidegauge_lab.labs.running import begin, end, lab_in, where
from tidegauge_lab.local.cluster import LocalCluster
from tidegauge_lab.scenario.loader import load, shipped_names
from tidegauge_lab.scenario.model import Scenario
from tidegauge_lab.watch.hub import Hub
from tidegauge_lab.watch.sources import LabSource
from tidegauge_lab.watch.stories import VERBS, Stories

Json = dict[str, Any]


class Teaching:
    """Labs and stories of one page.

    Args:
        hub: shows the clusters.
        directory: where labs have their cluster.
        given: a story of the user's own, beside those that are shipped.
    """

    def __init__(self, hub: Hub, directory: Path, given: Scenario | None = None) -> None:
        self._hub = hub
        self._directory = directory
        self._given = given
        self._stories = Stories(hub)
        self._one_at_a_time = asyncio.Lock()
        hub.show_beside(self.as_json)

    @property
    def directory(self) -> Path:
        """Where the cluster is that the page shows."""
        return self._stories.directory or self._directory

    def as_json(self) -> Json:
        """Return what the page knows of both, with every look."""
        return {"lab": self._lab(), "story": self._stories.as_json(), "directory": str(self._directory)}

    def _lab(self) -> Json | None:
        try:
            lab = lab_in(self._directory)
            return None if lab is None else {"name": lab.name, "hints": where(LocalCluster(self._directory))}
        except TidegaugeError:  # its directory is being made, or deleted
            return None

    async def do_lab(self, value: object) -> Json:
        """Start, check or stop a lab; return a sentence, and a check's findings.

        Raises:
            TidegaugeError: it can't be done, and why.
        """
        asked = _read(value, ("start", "check", "stop"))
        lab = lab_named(str(asked["lab"])) if "lab" in asked else None
        async with self._one_at_a_time:
            if asked["do"] == "check":
                checked = await asyncio.to_thread(check, self._directory, lab)
                return {"message": checked.verdict, **checked.as_json()}
            if self._stories.directory is not None:
                raise TidegaugeError(ErrorCode.INVALID_REQUEST, "the page shows a story's cluster: end the story first")
            if asked["do"] == "stop":
                ended = await asyncio.to_thread(end, self._directory)
                self._hub.settle(LabSource(self._directory))
                return {"message": "There is no lab" if ended is None else f"Lab {ended.name} is over"}
            if lab is None:
                raise TidegaugeError(ErrorCode.INVALID_REQUEST, "which lab is to be started?")
            await asyncio.to_thread(begin, lab, self._directory)
            self._hub.settle(LabSource(self._directory))
            return {"message": f"The cluster of lab {lab.name} is up"}

    async def do_story(self, value: object) -> Json:
        """Start or end a story, or ask for its steps; return what to say.

        Raises:
            TidegaugeError: it can't be done, and why.
        """
        asked = _read(value, ("start", *VERBS))
        if asked["do"] == "start":
            async with self._one_at_a_time:
                await self.play(await asyncio.to_thread(self._story, str(asked.get("story"))))
            return {"message": "The story's cluster is being started"}
        if asked["do"] == "end":
            await self._stories.end()
            return {"message": "The story is over; its cluster is deleted"}
        self._stories.ask(asked["do"])
        return {"message": ""}

    async def play(self, story: Scenario) -> None:
        """Begin a story; it waits before its first step.

        Raises:
            TidegaugeError: INVALID_REQUEST, another one is not at its end.
        """
        await self._stories.start(story)

    def _story(self, name: str) -> Scenario:
        """Return a shipped story, or the given one: the page names no files."""
        if self._given is not None and name == self._given.name:
            return self._given
        if name not in shipped_names():
            raise TidegaugeError(ErrorCode.INVALID_REQUEST, f"there is no story {name!r}")
        return load(name)

    async def close(self) -> None:
        """End a story; a lab's cluster stays, as after `tidegauge lab start`."""
        await self._stories.end()


def _read(value: object, verbs: tuple[str, ...]) -> Mapping[str, Any]:
    if not isinstance(value, Mapping) or value.get("do") not in verbs:
        raise TidegaugeError(ErrorCode.INVALID_REQUEST, f"do is one of {', '.join(verbs)}")
    return value
