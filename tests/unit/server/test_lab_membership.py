"""The event of an ended membership names it by the number that the store has for it, whichever store that is."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from tidegauge.v1 import lab_pb2
from tidegauge_broker.server.lab.servicer import LabServicer


class Membership:
    """Of a broker in KRaft mode: its number is the broker epoch."""

    is_session = False

    def __init__(self) -> None:
        self.has_ended = False

    def identity(self) -> int:
        return 0x2A

    async def end(self) -> None:
        self.has_ended = True


async def test_the_event_of_an_ended_membership_speaks_of_no_session(monkeypatch: pytest.MonkeyPatch) -> None:
    notes: list[dict[str, Any]] = []
    membership = Membership()
    parts: Any = SimpleNamespace(
        service=SimpleNamespace(broker_id=1), note=lambda _kind, _cause, fields: notes.append(fields)
    )
    lab = LabServicer(parts, *[None] * 7)  # type: ignore[arg-type]
    monkeypatch.setattr(lab, "_membership", membership)
    context: Any = None
    response = await lab.ExpireSession(lab_pb2.ExpireSessionRequest(), context)
    assert (response.WhichOneof("ended"), response.broker_epoch) == ("broker_epoch", 0x2A)
    assert membership.has_ended
    assert notes == [{"action": "expire-session", "broker": 1, "process": "broker-1", "membership": "0x2a"}]
