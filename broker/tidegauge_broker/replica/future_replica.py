"""The next step of a future replica: the copy of a replica in another log directory of its broker, while it is moved.

Contract: pure. ``next_step`` looks at the current log and the future one and says what brings them together. The caller
carries it out on the future log alone; the current log is only read, until ``REPLACE``. So a move that is interrupted
anywhere leaves the current log as it is, and the next look begins from what the future log holds by then.

Rules (ReplicaAlterLogDirsThread, Partition.maybeReplaceCurrentWithFutureReplica):
    1. Records that the current log has lost are truncated: from the offset that it was truncated to meanwhile
       (ReplicaAlterLogDirsManager.markPartitionsForTruncation), and from where the leader epochs of the two part
       (KIP-101, OffsetForLeaderEpoch at the current log).
    2. A future log that ends below the current log start offset begins again there (handleOutOfRangeError).
    3. The log start offset follows the current one.
    4. A future log that ends where the current one ends replaces it, in the same step: no append can come between.
    5. Else the next batches are copied, unless ``replica.alter.log.dirs.io.max.bytes.per.second`` is exceeded.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import NamedTuple

from tidegauge_broker.replica.epoch_cache import EpochCache
from tidegauge_broker.replica.messages import EpochEntry


class LogSpan(NamedTuple):
    """The start and end (exclusive) of a log, and the leader epochs in it."""

    start_offset: int
    end_offset: int
    epochs: Sequence[EpochEntry]


@dataclass(frozen=True, slots=True)
class TruncateTo:
    """Truncate the future log to an offset."""

    offset: int


@dataclass(frozen=True, slots=True)
class StartAt:
    """Empty the future log; its next offset is this one."""

    offset: int


@dataclass(frozen=True, slots=True)
class RaiseStart:
    """Raise the future log's start offset."""

    offset: int


@dataclass(frozen=True, slots=True)
class CopyFrom:
    """Append the current log's next batches, from the one at this offset on."""

    offset: int


class Simple(Enum):
    """Steps without an argument."""

    REPLACE = auto()
    WAIT = auto()


REPLACE, WAIT = Simple.REPLACE, Simple.WAIT
Step = TruncateTo | StartAt | RaiseStart | CopyFrom | Simple


def next_step(current: LogSpan, future: LogSpan, truncated_to: int | None, *, is_throttled: bool) -> Step:
    """Return what to do next.

    Args:
        current: the log that is moved.
        future: its copy.
        truncated_to: the lowest offset that the current log was truncated to since the last ``TruncateTo``, if any.
        is_throttled: whether copying must pause.
    """
    keep = agreed_end(current, future)
    if truncated_to is not None:
        keep = min(keep, truncated_to)
    if keep < future.end_offset:
        return TruncateTo(keep) if keep > current.start_offset else StartAt(current.start_offset)
    if future.end_offset < current.start_offset:
        return StartAt(current.start_offset)
    if future.start_offset < current.start_offset:
        return RaiseStart(current.start_offset)
    if future.end_offset == current.end_offset:
        return REPLACE
    return WAIT if is_throttled else CopyFrom(future.end_offset)


def agreed_end(current: LogSpan, future: LogSpan) -> int:
    """Return the end offset up to which both logs agree, by epochs."""
    known = EpochCache(current.epochs)
    end_offset = min(current.end_offset, future.end_offset)
    for entry in reversed(future.epochs):
        end = known.end_offset_for(entry.epoch, current.end_offset)
        if end.epoch == entry.epoch:
            return min(end_offset, max(end.end_offset, 0))
        end_offset = min(end_offset, entry.start_offset)
    return end_offset
