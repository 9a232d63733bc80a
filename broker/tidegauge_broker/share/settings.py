"""The settings of a share partition, from the broker and its group."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import IntEnum

MINIMUM_THROTTLE_COUNT = 2


@dataclass(frozen=True, slots=True)
class ShareSettings:
    """The settings; a group's own (``share.*``) take precedence over the broker's (``group.share.*``).

    Attributes:
        record_lock_duration_ms: how long a member may keep a record without acknowledging it.
        delivery_count_limit: how often a record is delivered before it is archived.
        max_record_locks: maximum number of offsets between start and end; a log batch is never divided for it.
        renews_locks: whether members may renew their locks (share.renew.acknowledge.enable).
        auto_offset_reset: where a group begins that has no start offset: latest, earliest or by_duration:<ISO 8601>.
        reads_committed: whether records of aborted transactions are archived, and open ones not read.
    """

    record_lock_duration_ms: int = 30_000
    delivery_count_limit: int = 5
    max_record_locks: int = 2000
    renews_locks: bool = True
    auto_offset_reset: str = "latest"
    reads_committed: bool = False

    @property
    def throttle_count(self) -> int:
        """Number of deliveries from which on a record is delivered with fewer others, to find the one that fails."""
        return max(MINIMUM_THROTTLE_COUNT, -(-self.delivery_count_limit // 2))


class AcquireMode(IntEnum):
    """The strictness of the maximum number of records of a fetch (KIP-1206)."""

    BATCH_OPTIMIZED = 0
    RECORD_LIMIT = 1


LATEST, EARLIEST = -1, -2
"""Times that stand for the end and the beginning of a log, as in ListOffsets."""
_DURATION = re.compile(r"by_duration:P(?:(\d+)D)?(?:T(?:(\d+)H)?(?:(\d+)M)?(?:(\d+)(?:\.(\d{1,3})\d*)?S)?)?")
_MS_PER_DAY, _MS_PER_HOUR, _MS_PER_MINUTE, _MS_PER_SECOND = 86_400_000, 3_600_000, 60_000, 1_000


def reset_time_ms(auto_offset_reset: str, wall_ms: int) -> int:
    """Return a group's start time: LATEST, EARLIEST, or by_duration's before now.

    Args:
        auto_offset_reset: a valid value of share.auto.offset.reset.
        wall_ms: the wall-clock time.
    """
    found = _DURATION.fullmatch(auto_offset_reset)
    if found is None:
        return EARLIEST if auto_offset_reset == "earliest" else LATEST
    days, hours, minutes, seconds = (int(text or 0) for text in found.groups()[:4])
    fraction_ms = int((found[5] or "").ljust(3, "0"))
    length_ms = days * _MS_PER_DAY + hours * _MS_PER_HOUR + minutes * _MS_PER_MINUTE + seconds * _MS_PER_SECOND
    return wall_ms - length_ms - fraction_ms
