"""The effects of a share partition; the shell carries them out in their order, before the next event."""

from __future__ import annotations

from tidegauge.errors import ErrorCode
from tidegauge.lazy_dataclasses import dataclass
from tidegauge.share_groups import StateBatch


@dataclass(frozen=True, slots=True)
class ReadState:
    """Read the partition's state from the share coordinator, and report it with ``state_read``.

    Attributes:
        leader_epoch: of this leader; the read fences the leaders before it.
    """

    leader_epoch: int


@dataclass(frozen=True, slots=True)
class FindStartOffset:
    """Look up the offset at which the group begins, and report it with ``start_offset_found``.

    Attributes:
        auto_offset_reset: latest: the high watermark. earliest: the log start. by_duration:<ISO 8601>: the first record
            that is not older than that.
    """

    auto_offset_reset: str


@dataclass(frozen=True, slots=True)
class WriteState:
    """Write states of records to the share coordinator, and report the outcome with ``state_written``.

    Attributes:
        write_id: unique within the share partition.
        start_offset: before this write: what it moves counts for the next.
        complete_count: records in terminal states at or after the start offset, these included.
    """

    write_id: int
    state_epoch: int
    leader_epoch: int
    start_offset: int
    complete_count: int
    batches: tuple[StateBatch, ...]


@dataclass(frozen=True, slots=True)
class Respond:
    """Respond to an acknowledgement or release that came with this token."""

    token: object
    error: ErrorCode = ErrorCode.NONE
    message: str | None = None


@dataclass(frozen=True, slots=True)
class Opened:
    """The state is loaded, or could not be: fetches that wait for it continue, or fail with the error.

    Attributes:
        error: NONE: records can be acquired.
    """

    error: ErrorCode = ErrorCode.NONE
    message: str | None = None


@dataclass(frozen=True, slots=True)
class RecordsMayBeAvailable:
    """Fetches of the share partition that wait for records look again."""


@dataclass(frozen=True, slots=True)
class Dropped:
    """The share partition is fenced: forget it; the next fetch loads it again, if this broker still leads it."""


Effect = ReadState | FindStartOffset | WriteState | Respond | Opened | RecordsMayBeAvailable | Dropped
