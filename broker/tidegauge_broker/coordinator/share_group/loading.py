"""Rebuilds share groups from their records; a record that cannot be taken costs its group, and no other.

Source: the replay methods of GroupMetadataManager.
"""

from __future__ import annotations

from tidegauge_broker.coordinator.share_group.image import ShareGroupImage, exists, incoherence, settle
from tidegauge_broker.coordinator.share_group.records import KINDS, ShareGroupRecord
from tidegauge_broker.coordinator.typed_loading import TypedGroupLoader


class ShareGroupLoader(TypedGroupLoader[ShareGroupImage]):
    """Applies the records of share groups in a partition."""

    def __init__(self) -> None:
        super().__init__(KINDS, ShareGroupImage, ShareGroupRecord)

    def exists(self, image: ShareGroupImage) -> bool:
        """Return whether records of a group are left."""
        return exists(image)

    def settle(self, image: ShareGroupImage) -> None:
        """Forget what compaction has left behind."""
        settle(image)

    def incoherence(self, image: ShareGroupImage) -> str | None:
        """Return why a group's records make no sense together; None if they do."""
        return incoherence(image)
