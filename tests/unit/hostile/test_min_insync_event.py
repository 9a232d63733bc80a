"""A changed min.insync.replicas is an event of its own; the roles' events name the one in force (docs/events.md)."""

from __future__ import annotations

from typing import Any

from hostile_broker import HostileBroker

from tidegauge.settings import parse_broker_settings, topic_values


async def test_a_change_of_min_insync_replicas_under_a_replica_is_an_event() -> None:
    """Once, whichever way it reaches the broker (docs/events.md); of a topic that it has no replica of, never."""
    broker = await HostileBroker().begin()
    heard: list[tuple[str, dict[str, Any]]] = []
    replicas: Any = broker.replicas
    replicas._events.observer = lambda kind, _cause, fields, _at: heard.append((kind, dict(fields)))
    settings = parse_broker_settings({})[0]
    for topic in ("t", "elsewhere"):
        for least in (1, 1, 2, 2, 1):
            broker.replicas.configure_topic(topic, topic_values({"min.insync.replicas": str(least)}, settings))
    assert heard == [
        ("min_insync_replicas", {"resource": "t", "old": 1, "new": 2}),
        ("min_insync_replicas", {"resource": "t", "old": 2, "new": 1}),
    ]
    broker.close()
