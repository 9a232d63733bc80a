"""The lectures' table: which attribute changed in which phase, from what to what, and a note. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from tidegauge.event_log import broker_of
from tidegauge_lab.timeline.words import whole_sentence

Row = dict[str, str]
_OLD_AND_NEW = {"high_watermark": "HW", "log_end_offset": "LEO", "last_stable_offset": "LSO"}


def rows_of(events: Iterable[Mapping[str, Any]], number: int) -> list[Row]:
    """Return the rows of the events of one action.

    Args:
        events: in their order.
        number: of the action.
    """
    return [row | {"step": str(number)} for event in events if (row := _row(event)) is not None]


def _row(event: Mapping[str, Any]) -> Row | None:
    kind, broker = str(event.get("kind")), broker_of(event)
    phase = str(event.get("cause") or event.get("action") or event.get("state") or "")
    note = whole_sentence(event)
    if kind in _OLD_AND_NEW:
        return _made(f"{_OLD_AND_NEW[kind]} of broker {broker}", phase, event.get("old"), event.get("new"), note)
    match kind:
        case "truncation":
            old, new = event.get("old", event.get("from")), event.get("new", event.get("to"))
            return _made(f"log of broker {broker}", phase, old, new, note)
        case "epoch":
            entry = f"{event.get('leader_epoch', event.get('epoch'))}@{event.get('start_offset')}"
            return _made(f"epochs of broker {broker}", phase, "", entry, note)
        case "role":
            return _made(
                f"role of broker {broker}", phase, "", f"{event.get('role')}, epoch {event.get('leader_epoch')}", note
            )
        case "isr":
            return _made(
                "ISR at the leader", phase, _ids(event.get("old")), _ids(event.get("new", event.get("isr"))), note
            )
        case "election":
            new = f"leader {event.get('leader')}, epoch {event.get('leader_epoch')}"
            return _made("leader in ZooKeeper", phase, "", new, note)
        case "controller" | "session" | "broker" | "fault":
            return _made(f"{kind} {broker if broker is not None else event.get('broker', '')}", phase, "", "", note)
    return None


def _ids(value: object) -> str:
    return ",".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value if value is not None else "")


def _made(attribute: str, phase: str, old: object, new: object, note: str) -> Row:
    return {
        "attribute": attribute,
        "phase": phase,
        "old": "" if old is None else str(old),
        "new": "" if new is None else str(new),
        "note": note,
    }
