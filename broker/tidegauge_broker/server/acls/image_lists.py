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
            changes = list(differences(self._taken, lists))
            removed = [was for _, was, _ in changes if was is not None]
            self.authorizer.change(removed, [added for _, _, added in changes if added is not None])
            self._taken = lists
