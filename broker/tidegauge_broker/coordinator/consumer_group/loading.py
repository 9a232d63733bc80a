"""Rebuilds consumer groups from their records; a record that cannot be taken costs its group, and no other.

Source: the replay methods of GroupMetadataManager; KAFKA-19862: compaction may leave tombstones of what is not there.
"""

from __future__ import annotations

from collections.abc import Mapping

from tidegauge.errors import TidegaugeError
from tidegauge_broker.coordinator.consumer_group.coherence import exists, incoherence, settle
from tidegauge_broker.coordinator.consumer_group.image import GroupImage
from tidegauge_broker.coordinator.consumer_group.records import KINDS, ConsumerGroupRecord, read_key, read_value


class ConsumerGroupLoader:
    """Takes the records of consumer groups among those of a partition.

    Attributes:
        keys: of the records that each group has, in the order in which they were first read.
    """

    def __init__(self) -> None:
        self._images: dict[str, GroupImage] = {}
        self._unreadable: dict[bytes, tuple[str, str]] = {}
        self.keys: dict[str, dict[bytes, None]] = {}

    def take(self, kind: int, key_bytes: bytes, value: bytes | None) -> bool:
        """Take a record, if its key is of a consumer group; return whether it is.

        Args:
            kind: the type that the key begins with.
            key_bytes: the key.
            value: None: a tombstone.

        Raises:
            TidegaugeError: CORRUPT_MESSAGE, the key cannot be read.
        """
        if kind not in KINDS:
            return False
        key = read_key(key_bytes)
        group_id = key.group_id
        keys = self.keys.setdefault(group_id, {})
        self._unreadable.pop(key_bytes, None)
        if value is None:
            keys.pop(key_bytes, None)
        else:
            keys[key_bytes] = None
        image = self._images.setdefault(group_id, GroupImage(group_id))
        try:
            image.replay(ConsumerGroupRecord(key, None if value is None else read_value(key, value)))
        except TidegaugeError as problem:
            self._unreadable[key_bytes] = group_id, problem.message
        except Exception as defect:  # noqa: BLE001 - whatever a stranger's record does, it does to its group alone
            self._unreadable[key_bytes] = group_id, repr(defect)
        return True

    def images(self) -> dict[str, GroupImage]:
        """Return the groups of which records are left, by id."""
        found = {group_id: image for group_id, image in self._images.items() if exists(image)}
        for image in found.values():
            settle(image)
        return found

    def refused(self) -> Mapping[str, str]:
        """Return the groups that cannot be served, and why, as a clause."""
        causes = {group_id: f"a record of it cannot be read: {why}" for group_id, why in self._unreadable.values()}
        for group_id, image in self._images.items():
            cause = incoherence(image) if exists(image) else None
            if cause is not None:
                causes.setdefault(group_id, f"its records make no sense: {cause}")
        return causes
