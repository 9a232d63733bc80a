"""What the group coordinator wants done; the shell carries out effects in their order, before the next event.

The order is always: persist, then notify. A response that depends on a record is emitted by the ``Appended`` that says
the record is committed, never with the ``Append`` (Kafka's CoordinatorResult: records, and a response for when they are
committed).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tidegauge.groups import GroupResult


@dataclass(frozen=True, slots=True)
class ReadLog:
    """Read a partition's log from its start to its LEO, not to the HW, and hand it back as ``RecordsRead`` events.

    Chunks may be of any size (Kafka: offsets.load.buffer.size). Stop when the broker leads the partition no longer. End
    with ``LoadCompleted`` in every case.
    """

    partition: int
    leader_epoch: int


@dataclass(frozen=True, slots=True)
class Append:
    """Append one batch to a led partition as an internal client, and report the outcome as ``Appended``.

    Attributes:
        append_id: unique within the process.
        acks: -1: report when the HW has passed the batch. 0: append to the local log and report nothing; a failure is
            logged only, since the next expiration run repeats the tombstones.
        timeout_ms: after which the outcome is REQUEST_TIMED_OUT; the batch stays in the log.
    """

    append_id: int
    partition: int
    batch: bytes
    acks: int
    timeout_ms: int


@dataclass(frozen=True, slots=True)
class Respond:
    """Respond to the request that came with this token; a token whose connection is closed is ignored."""

    token: object
    result: GroupResult


@dataclass(frozen=True, slots=True)
class Note:
    """A change of a group's state for the event log.

    Attributes:
        kind: ``group``: a transition; ``coordinator``: of a partition of __consumer_offsets.
        key: the group id, or the partition.
        cause: the event or timer behind it: JoinGroup, SyncGroup, LeaveGroup, SessionExpiration, Load, ...
        fields: of a group: ``old`` and ``new`` state, ``generation``, ``members``, ``reason`` in Kafka's words; of a
            partition: ``state`` (loading, active, unloaded), ``leader_epoch``, ``groups``.
    """

    kind: str
    key: str
    cause: str
    fields: Mapping[str, object] = field(default_factory=dict[str, object])


@dataclass(frozen=True, slots=True)
class LogLine:
    """A line for the broker's log, in Kafka's words where Kafka has any. ``level``: info, warning, error."""

    level: str
    text: str


Effect = ReadLog | Append | Respond | Note | LogLine
