"""Share partitions (KIP-932) at a moment of the past, as their leaders reported them. Pure.

Rules:
    1. A share partition is what the leader of the highest leader epoch has in flight. A former leader that serves it
       still is shown beside, named.
    2. No event has the state on disk at the share coordinator, nor the log's end: the entries lack both.

The entries have the form that ``tidegauge_lab.watch.share_view`` gives the page.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tidegauge.partition import TopicPartition
from tidegauge_lab.timeline.choice import Event

Json = dict[str, Any]
_OVER = frozenset({"failed", "fenced"})


class ShareMoments:
    """The share partitions after some events, by ``GROUP/T-P``."""

    def __init__(self) -> None:
        self._entries: dict[str, Json] = {}

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def get(self, name: str) -> Json | None:
        """Return an entry; None if there is none (any more)."""
        return self._entries.get(name)

    def take(self, event: Event, broker: int) -> set[str]:
        """Take in what a broker reports of a share partition; return the names of the entries that changed.

        Raises:
            KeyError, TypeError, ValueError: the event lacks a field, and nothing has changed.
        """
        at = TopicPartition(event["topic"], event["partition"])
        name = f"{event['group']}/{at}"
        said = _said(event, broker, name, at)
        beside = f"{name} at broker {broker}"
        shown = self._entries.get(name)
        if event["state"] in _OVER:
            own = name if shown is not None and shown["broker"] == broker else beside
            return {own} if self._entries.pop(own, None) is not None else set()
        if shown is None or shown["broker"] == broker:
            self._entries[name] = said
            return {name}
        if said["leaderEpoch"] <= shown["leaderEpoch"]:
            self._entries[beside] = said | {"name": beside, "leads": False}
            return {beside}
        former = f"{name} at broker {shown['broker']}"
        self._entries[former] = shown | {"name": former, "leads": False}
        self._entries[name] = said
        self._entries.pop(beside, None)
        return {name, former, beside}

    def forget(self, broker: int) -> set[str]:
        """Forget what a broker had in memory; return the names of its entries."""
        names = {name for name, one in self._entries.items() if one["broker"] == broker}
        for name in names:
            del self._entries[name]
        return names


def _said(event: Event, broker: int, name: str, at: TopicPartition) -> Json:
    return {
        "name": name,
        "group": str(event["group"]),
        "partition": str(at),
        "broker": broker,
        "leads": True,
        "state": str(event["state"]),
        "leaderEpoch": int(event["leader_epoch"]),
        "start": int(event["start_offset"]),
        "end": int(event["end_offset"]),
        "limit": int(event["delivery_count_limit"]),
        "records": [
            {"first": first, "last": last, "state": state, "count": count, "member": member, "writing": writing}
            for first, last, state, count, member, writing in event["records"]
        ],
        "hasMore": bool(event["has_more"]),
        "unwritten": int(event["unwritten"]),
    }
