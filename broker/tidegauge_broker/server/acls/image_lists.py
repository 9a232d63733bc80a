"""The access control lists of an image, kept in an authorizer; a new image costs what it has changed."""

from __future__ import annotations

from threading import Lock

from tidegauge.cluster_metadata.access_lists import Binding
from tidegauge_broker.security.acls.authorizer import AclAuthorizer
from tidegauge_controller.metadata.sorted_map import SortedMap, differences


class ImageLists:
    """Keeps the lists of the newest image in an authorizer; several threads may use it.

    Args:
        authorizer: keeps the lists, which nothing else changes.
    """

    def __init__(self, authorizer: AclAuthorizer) -> None:
        self.authorizer = authorizer
        self._taken: SortedMap[str, Binding] = SortedMap()
        self._lock = Lock()

    def follow(self, lists: SortedMap[str, Binding]) -> None:
        """Put the lists of an image in force."""
        if lists is self._taken:
            return
        with self._lock:
            removed: list[Binding] = []
            added: list[Binding] = []
            for _, was, is_now in differences(self._taken, lists):
                removed += [] if was is None else [was]
                added += [] if is_now is None else [is_now]
            self.authorizer.change(removed, added)
            self._taken = lists
