"""What a share partition takes from the settings of the broker and of its group."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

MINIMUM_THROTTLE_COUNT = 2


@dataclass(frozen=True, slots=True)
class ShareSettings:
    """The settings; a group's own (``share.*``) stand before the broker's (``group.share.*``).

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
    """How strictly a fetch takes its maximum number of records (KIP-1206)."""

    BATCH_OPTIMIZED = 0
    RECORD_LIMIT = 1
