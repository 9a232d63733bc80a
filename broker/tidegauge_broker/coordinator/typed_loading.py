"""Rebuilds groups that are the folds of their records; a record that cannot be taken costs its group, and no other."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Generic, TypeVar

from tidegauge.errors import TidegaugeError
from tidegauge_broker.coordinator.drafts import Image
from tidegauge_broker.coordinator.typed_records import RecordKinds

AnyImage = TypeVar("AnyImage", bound=Image)


class TypedGroupLoader(Generic[AnyImage]):
    """Applies the records of one type of groups in a partition.

    Args:
        kinds: the records of these groups.
        new_image: makes the image of a group that has no record, by its id.
        new_record: makes a record of a key and a value.

    Attributes:
        keys: of the records that each group has, in the order in which they were first read.
    """

    def __init__(
        self,
        kinds: RecordKinds,
        new_image: Callable[[str], AnyImage],
        new_record: Callable[[Any, Any], Any],
    ) -> None:
        self._kinds = kinds
        self._new_image = new_image
        self._new_record = new_record
        self._images: dict[str, AnyImage] = {}
        self._unreadable: dict[bytes, tuple[str, str]] = {}
        self.keys: dict[str, dict[bytes, None]] = {}

    def exists(self, image: AnyImage) -> bool:
        """Whether a group has records; after its tombstones it has none."""
        raise NotImplementedError

    def settle(self, image: AnyImage) -> None:
        """Derive again what follows from a group's records, which may have been read in any order."""
        raise NotImplementedError

    def incoherence(self, image: AnyImage) -> str | None:
        """Return why a group's records are incoherent, as a clause, or None."""
        raise NotImplementedError

    def take(self, kind: int, key_bytes: bytes, value: bytes | None) -> bool:
        """Take a record, if its key is of such a group; return whether it is.

        Args:
            kind: the type that the key begins with.
            key_bytes: the key.
            value: None: a tombstone.

        Raises:
            TidegaugeError: CORRUPT_MESSAGE, the key cannot be read.
        """
        if kind not in self._kinds:
            return False
        key = self._kinds.read_key(key_bytes)
        group_id = key.group_id
        keys = self.keys.setdefault(group_id, {})
        self._unreadable.pop(key_bytes, None)
        if value is None:
            keys.pop(key_bytes, None)
        else:
            keys[key_bytes] = None
        if group_id not in self._images:
            self._images[group_id] = self._new_image(group_id)
        try:
            read = None if value is None else self._kinds.read_value(key, value)
            self._images[group_id].replay(self._new_record(key, read))
        except TidegaugeError as problem:
            self._unreadable[key_bytes] = group_id, problem.message
        except Exception as defect:  # noqa: BLE001 - any effect of a stranger's record is limited to its group
            self._unreadable[key_bytes] = group_id, repr(defect)
        return True

    def images(self) -> dict[str, AnyImage]:
        """Return the groups of which records are left, by id."""
        found = {group_id: image for group_id, image in self._images.items() if self.exists(image)}
        for image in found.values():
            self.settle(image)
        return found

    def refused(self) -> Mapping[str, str]:
        """Return the groups that cannot be served, and why, as a clause."""
        causes = {group_id: f"a record of it cannot be read: {why}" for group_id, why in self._unreadable.values()}
        for group_id, image in self._images.items():
            cause = self.incoherence(image) if self.exists(image) else None
            if cause is not None:
                causes.setdefault(group_id, f"its records make no sense: {cause}")
        return causes
