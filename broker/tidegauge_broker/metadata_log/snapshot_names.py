"""The names of snapshot files (``org.apache.kafka.snapshot.Snapshots``).

A finished snapshot is ``<end offset in 20 digits>-<epoch in 10 digits>.checkpoint``. While it is written ``.part``
follows that, and ``.deleted`` when it is retired.
"""

from __future__ import annotations

import re
from typing import NamedTuple

SNAPSHOT_SUFFIX = ".checkpoint"
UNFINISHED_SUFFIX = ".checkpoint.part"
RETIRED_SUFFIX = ".checkpoint.deleted"
BOOTSTRAP_NAME = "bootstrap.checkpoint"
"""The records with which an empty metadata log begins (BootstrapDirectory)."""

_NAME = re.compile(r"(\d{20})-(\d{10})([^.]*)(\.checkpoint(?:\.part|\.deleted)?)", re.ASCII)


class SnapshotName(NamedTuple):
    """The parts of a snapshot file's name.

    Attributes:
        end_offset: the offset behind the last record that the snapshot contains (exclusive).
        epoch: the leader epoch of that record.
        suffix: one of ``SNAPSHOT_SUFFIX``, ``UNFINISHED_SUFFIX``, ``RETIRED_SUFFIX``.
    """

    end_offset: int
    epoch: int
    suffix: str = SNAPSHOT_SUFFIX


def snapshot_name(end_offset: int, epoch: int, suffix: str = SNAPSHOT_SUFFIX, *, attempt: str = "") -> str:
    """Return a snapshot file's name; ``attempt`` distinguishes writers of unfinished ones."""
    return f"{end_offset:020d}-{epoch:010d}{f'-{attempt}' if attempt else ''}{suffix}"


def parse_snapshot_name(name: str) -> SnapshotName | None:
    """Return the parts of a snapshot's name; None for other names."""
    found = _NAME.fullmatch(name)
    if found is None or (found[3] and found[4] != UNFINISHED_SUFFIX):
        return None
    return SnapshotName(int(found[1]), int(found[2]), found[4])
