"""Event logs for the reports on replication: a story, and random ones."""

from __future__ import annotations

import random
from typing import Any


def killed_leader() -> list[dict[str, Any]]:
    """Return a story: 0 dies at 1000, 1 leads alone from 1400.

    Broker 2 is back at 1900; no broker leads from 2500 to 3000.
    """
    at = {"topic": "t", "partition": 0}
    sequence = iter(range(100))

    def event(time_ms: int, source: str, kind: str, **fields: Any) -> dict[str, Any]:
        return {"time_ms": time_ms, "sequence": next(sequence), "source": source, "kind": kind, **fields}

    return [
        event(0, "broker-2", "election", **at, strategy="initial", leader=0, leader_epoch=0, isr=[0, 1, 2]),
        event(1, "broker-0", "role", **at, role="leader", leader=0, leader_epoch=0),
        event(100, "broker-0", "log_end_offset", **at, old=0, new=10),
        event(100, "broker-0", "high_watermark", **at, old=0, new=0),
        event(200, "broker-0", "high_watermark", **at, old=0, new=10),
        event(1000, "lab", "fault", action="kill", broker=0),
        event(1400, "broker-2", "election", **at, strategy="offline", leader=1, leader_epoch=1, isr=[1]),
        event(1401, "broker-1", "role", **at, role="leader", leader=1, leader_epoch=1),
        event(1500, "broker-2", "truncation", **at, old=12, new=10),
        event(1900, "broker-1", "isr", **at, old=[1], new=[1, 2], state="committed", partition_epoch=2),
        event(1901, "broker-1", "isr", **at, old=[1, 2], new=[1], state="pending-shrink", partition_epoch=2),
        event(2500, "broker-2", "election", **at, strategy="offline", leader=-1, leader_epoch=2, isr=[1, 2]),
        event(3000, "broker-2", "election", **at, strategy="offline", leader=2, leader_epoch=3, isr=[1, 2]),
        event(4000, "lab", "fault", action="start", broker=0),
    ]


def random_events(seed: int) -> list[dict[str, Any]]:
    """Return events that no cluster would write in this order."""
    chance = random.Random(seed)
    events: list[dict[str, Any]] = []
    for sequence in range(chance.randrange(20, 150)):
        kind = chance.choice(
            ["election", "role", "isr", "log_end_offset", "high_watermark", "fault", "truncation", "session"]
        )
        own = chance.randrange(3)
        event: dict[str, Any] = {
            "time_ms": chance.randrange(3_000),
            "sequence": sequence,
            "source": f"broker-{own}",
            "kind": kind,
            "topic": chance.choice(["t", "u"]),
            "partition": chance.randrange(2),
        }
        isr = chance.sample([0, 1, 2], chance.randrange(1, 4))
        if kind == "election":
            leader = chance.choice([-1, 0, 1, 2])
            strategy = chance.choice(["initial", "offline", "preferred"])
            event |= {"leader": leader, "leader_epoch": chance.randrange(6), "isr": isr, "strategy": strategy}
        elif kind == "role":
            epoch = chance.randrange(6)
            event |= {
                "leader": chance.randrange(3),
                "leader_epoch": epoch,
                "role": chance.choice(["leader", "follower"]),
            }
        elif kind == "isr":
            event |= {"old": [0], "new": isr, "state": chance.choice(["committed", "pending-shrink"])}
        elif kind == "fault":
            event = {one: event[one] for one in ("time_ms", "sequence", "kind")} | {"source": "lab"}
            event |= {"action": chance.choice(["kill", "pause", "resume", "start", "isolate"]), "broker": own}
        elif kind != "session":
            event |= {"old": chance.randrange(50), "new": chance.randrange(50)}
        events.append(event)
    return events
