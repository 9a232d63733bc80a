"""A changed min.insync.replicas is an event, once, whichever way it reaches the broker (docs/events.md)."""

from __future__ import annotations

from typing import Any

from hostile_broker import HostileBroker

from tidegauge.settings import parse_broker_settings, topic_values


async def test_a_change_of_min_insync_replicas_is_an_event() -> None:
    broker = await HostileBroker().begin()
    heard: list[tuple[str, dict[str, Any]]] = []
    replicas: Any = broker.replicas
    replicas._events.observer = lambda kind, _cause, fields, _at: heard.append((kind, dict(fields)))
    settings = parse_broker_settings({})[0]
    for least in (1, 1, 2, 2, 1):
        broker.replicas.configure_topic("new", topic_values({"min.insync.replicas": str(least)}, settings))
    assert heard == [
        ("min_insync_replicas", {"resource": "new", "old": 1, "new": 2}),
        ("min_insync_replicas", {"resource": "new", "old": 2, "new": 1}),
    ]
    broker.close()
