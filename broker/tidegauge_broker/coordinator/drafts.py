"""A decision in the making about a group that is the fold of its records.

A decision works on a draft: each record that it adds is replayed at once on a copy of the group's image, so that later
steps of the same decision see it. The copy takes the image's place when the records are committed; until then, and if
they are not, nothing has changed (docs/adr/0027-one-write-of-a-consumer-group.md).
"""

from __future__ import annotations

from typing import Any, Generic, Protocol, TypeVar


class Image(Protocol):
    """The state of a group as its records describe it."""

    def copied(self) -> Any:
        """Return a copy that can be changed by records without changing this image."""
        ...

    def replay(self, record: Any) -> None:
        """Take a record."""
        ...


AnyImage = TypeVar("AnyImage", bound=Image)
AnyRecord = TypeVar("AnyRecord")


class Draft(Generic[AnyImage, AnyRecord]):
    """A decision in the making.

    Attributes:
        before: the group's own image.
        image: with the records so far; the group's own while there are none.
        records: in the order in which they are written.
    """

    def __init__(self, image: AnyImage) -> None:
        self.before = image
        self.image = image
        self.records: list[AnyRecord] = []

    def add(self, *records: AnyRecord) -> None:
        """Add records, and replay them."""
        if records and not self.records:
            self.image = self.image.copied()
        for record in records:
            self.image.replay(record)
            self.records.append(record)
