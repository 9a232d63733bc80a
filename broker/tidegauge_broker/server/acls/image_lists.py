"""The access control lists of an image, kept in an authorizer; a new image costs what it has changed."""

from __future__ import annotations

import asyncio
from threading import Lock

from tidegauge.cluster_metadata.access_lists import Binding
from tidegauge_broker.security.acls.authorizer import AclAuthorizer, by_pattern
from tidegauge_controller.metadata.sorted_map import SortedMap, differences, own_blocks

_BLOCKS_BESIDE = 16
"""From so many changed blocks on a step is taken in a thread: 10,000 new entries take some 50 ms."""


class ImageLists:
    """Keeps the lists of the newest image in an authorizer; several threads may use it.

    Args:
        authorizer: keeps the lists, which nothing else changes.
    """

    def __init__(self, authorizer: AclAuthorizer) -> None:
        self.authorizer = authorizer
        self._taken: SortedMap[str, Binding] = SortedMap()
        self._lock = Lock()
        self._beside: asyncio.Future[None] | None = None

    def follow(self, lists: SortedMap[str, Binding]) -> None:
        """Put the lists of an image in force."""
        if lists is self._taken:
            return
        with self._lock:
            if self._taken:
                removed: list[Binding] = []
                added: list[Binding] = []
                for _, was, is_now in differences(self._taken, lists):
                    removed += [] if was is None else [was]
                    added += [] if is_now is None else [is_now]
                self.authorizer.change(removed, added)
            else:  # takes half the time
                self.authorizer.replace(by_pattern(lists.values()))
            self._taken = lists

    def follow_beside(self, lists: SortedMap[str, Binding]) -> asyncio.Future[None] | None:
        """Put the lists of an image in force; many changes in a thread, so that the event loop goes on.

        The former lists are in force meanwhile, as long as Kafka's are while ``AclPublisher`` takes in an image. The
        first lists of all come at once: nothing is allowed or refused without them.

        Args:
            lists: of the newest image.

        Returns:
            The end of the thread that puts these lists, or an earlier image's, in force; None: it is done.

        Raises:
            RuntimeError: no event loop runs in this thread; ``follow`` serves there.
        """
        if lists is self._taken:
            return None
        loop = asyncio.get_running_loop()
        if self._beside is not None and not self._beside.done():
            return self._beside
        if self._taken and own_blocks(self._taken, lists) >= _BLOCKS_BESIDE:
            self._beside = loop.run_in_executor(None, self.follow, lists)
            return self._beside
        self.follow(lists)
        return None
