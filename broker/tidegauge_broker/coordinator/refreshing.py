"""Whether the topics of a group may have changed since a heartbeat of it last looked at their metadata.

Source: ModernGroup (requestMetadataRefresh, hasMetadataExpired, setMetadataRefreshDeadline).
"""

from __future__ import annotations


class Refreshing:
    """The part of a group that counts requests to look at its topics; one is made when the group is loaded or made."""

    def __init__(self) -> None:
        self._refresh_requests = 1
        self._refreshed = 0

    def request_refresh(self) -> int:
        """Have the next heartbeat look whether the metadata of the group's topics has changed."""
        self._refresh_requests += 1
        return self._refresh_requests

    @property
    def refresh_requests(self) -> int:
        """The number of requested refreshes, which a heartbeat that looks at the topics has seen."""
        return self._refresh_requests

    @property
    def is_refresh_due(self) -> bool:
        """Whether topics may have changed since the last heartbeat that looked."""
        return self._refreshed < self._refresh_requests

    def refreshed(self, requests: int) -> None:
        """Take note that a heartbeat, when this many refreshes were requested, has looked at the topics."""
        self._refreshed = max(self._refreshed, requests)
