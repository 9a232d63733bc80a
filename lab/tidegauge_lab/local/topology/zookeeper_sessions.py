"""Ends the ZooKeeper session of a broker that can't be asked, by the credentials that the broker has noted.

A session outlives its process until its timeout (ZooKeeper's SessionTrackerImpl), so the controller elects other
leaders that late. A client with a session's id and password may close it before.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from pathlib import Path
from typing import Any, NamedTuple

from tidegauge.cluster_directory import command_for
from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.faults.actions import Target
from tidegauge_client.cluster_file import ClusterFile
from tidegauge_lab.local import layout
from tidegauge_lab.local.fault_log import note_fault
from tidegauge_lab.local.notes import fields_of, read_note, text_of

_CAUSE = "Lab"
_SESSION = re.compile(r"[0-9a-f]{1,16}")
_PASSWORD = re.compile(r"([0-9a-f]{2}){0,64}")


class Credentials(NamedTuple):
    """A session's id, and the password that ZooKeeper gave with it."""

    session_id: int
    password: bytes


def noted(directory: Path, broker_id: int) -> Credentials:
    """Return the session that a broker has noted last.

    Raises:
        TidegaugeError: BROKER_NOT_AVAILABLE, it has noted none; INVALID_REQUEST, its note is damaged.
    """
    path = layout.session_file(directory, broker_id)
    start = command_for(directory, f"start {broker_id}")
    found = read_note(path, _credentials_of, f"remove it; {start} writes another")
    if found is None:
        raise TidegaugeError(
            ErrorCode.BROKER_NOT_AVAILABLE,
            f"broker {broker_id} has noted no ZooKeeper session in {path}: it has not run yet, or with "
            "lab.enable=false; nothing was done",
        )
    return found


def require_noted(directory: Path, targets: Collection[Target]) -> None:
    """Refuse to end the sessions of targets of which one has none, or none that is known.

    Raises:
        TidegaugeError: nothing was done.
    """
    for target in targets:
        if not isinstance(target, int):
            raise TidegaugeError(
                ErrorCode.INVALID_REQUEST,
                "ZooKeeper keeps the sessions and has none of its own: end brokers' sessions in a command of its own, "
                "while ZooKeeper is up; nothing was done",
            )
        noted(directory, target)


def end(directory: Path, file: ClusterFile, broker_id: int) -> int:
    """End a broker's session on the server; its ephemeral znodes are deleted when this returns.

    Returns:
        The session's id. One that has expired meanwhile is no error.

    Raises:
        TidegaugeError: it is not known, or ZooKeeper does not respond.
    """
    from tidegauge_broker.server.lab.zookeeper.session import end_session  # noqa: PLC0415 - only this fault pays for it

    session_id, password = noted(directory, broker_id)
    note_fault(directory / layout.LOGS, "expire-session", f"broker-{broker_id}", broker_id, _CAUSE)
    end_session(file.zookeeper_address.partition("/")[0], session_id, password)
    return session_id


def _credentials_of(value: Any) -> Credentials:
    session, password = (text_of(one) for one in fields_of(value, "session", "password"))
    if not _SESSION.fullmatch(session) or not _PASSWORD.fullmatch(password):
        raise ValueError("it holds no session and password")
    unsigned = int(session, 16)
    return Credentials(unsigned - 2**64 if unsigned >= 2**63 else unsigned, bytes.fromhex(password))
