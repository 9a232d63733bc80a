"""One record as its producer's history has it, and the words and numbers that such a history uses.

Plain values alone: whoever judges histories (the accountant, the simulator) imports these without a client's transport.
The file format and its rules are in ``history``.
"""

from __future__ import annotations

from typing import NamedTuple

INVOKE = "invoke"
OK = "ok"
FAIL = "fail"
INFO = "info"
NO_TIME = -1
NO_OFFSET = -1
NO_PARTITION = -1


class SentRecord(NamedTuple):
    """One record as it is in its producer's history.

    Attributes:
        producer: its producer.
        number: its place in the order of that producer.
        key: None if there is none.
        value: None if there is none.
        timestamp_ms: the record's timestamp.
        acks: ``all``, ``1`` or ``0``.
        is_idempotent: whether a retry can't write it twice.
        invoked_us: when it was handed over.
        outcome: ``ok``, ``fail`` or ``info``.
        completed_us: when the outcome was known; -1 without one.
        partition: the partition of the acknowledgement, else the destination, else -1.
        offset: the offset of the acknowledgement; -1 without one, or with acks=0.
        error: the error's name; empty without one.
    """

    producer: str
    number: int
    key: bytes | None
    value: bytes | None
    timestamp_ms: int
    acks: str
    is_idempotent: bool
    invoked_us: int
    outcome: str = INFO
    completed_us: int = NO_TIME
    partition: int = NO_PARTITION
    offset: int = NO_OFFSET
    error: str = ""

    @property
    def is_acknowledged(self) -> bool:
        """Return whether a broker has acknowledged the record: with acks=0 none ever does."""
        return self.outcome == OK and self.acks != "0"
