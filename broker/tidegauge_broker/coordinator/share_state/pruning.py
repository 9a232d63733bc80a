"""The offset below which the log of a partition of __share_group_state holds nothing that still counts.

Contract: of each share partition its last snapshot counts and what follows; a share partition that was deleted does not
hold the log back.
Source: ShareCoordinatorOffsetsManager.
"""

from __future__ import annotations

from tidegauge.share_groups import SharePartitionKey


class SnapshotOffsets:
    """The offsets of the last snapshots.

    Attributes:
        redundant_before: offsets below it are redundant; None: not known yet.
    """

    def __init__(self) -> None:
        self._offsets: dict[SharePartitionKey, int] = {}
        self.redundant_before: int | None = None

    def note(self, key: SharePartitionKey, offset: int, *, is_deleted: bool) -> None:
        """Take note of a snapshot, or of the tombstone of a share partition."""
        self._offsets[key] = offset
        self.redundant_before = min(self._offsets.values())
        if is_deleted:
            del self._offsets[key]
