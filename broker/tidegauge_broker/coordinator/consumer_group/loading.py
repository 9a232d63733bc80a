"""Rebuilds consumer groups from their records; a record that cannot be taken costs its group, and no other.

Source: the replay methods of GroupMetadataManager; KAFKA-19862: compaction may leave tombstones without a record.
"""

from __future__ import annotations

from tidegauge_broker.coordinator.consumer_group.coherence import exists, incoherence, settle
from tidegauge_broker.coordinator.consumer_group.image import GroupImage
from tidegauge_broker.coordinator.consumer_group.records import CODEC, ConsumerGroupRecord
from tidegauge_broker.coordinator.typed_loading import TypedGroupLoader


class ConsumerGroupLoader(TypedGroupLoader[GroupImage]):
    """Applies the records of consumer groups in a partition."""

    def __init__(self) -> None:
        super().__init__(CODEC, GroupImage, ConsumerGroupRecord)

    def exists(self, image: GroupImage) -> bool:
        """Return whether records of a group are left."""
        return exists(image)

    def settle(self, image: GroupImage) -> None:
        """Derive again what follows from the members, and forget what compaction has left behind."""
        settle(image)

    def incoherence(self, image: GroupImage) -> str | None:
        """Return why a group's records make no sense together; None if they do."""
        return incoherence(image)
