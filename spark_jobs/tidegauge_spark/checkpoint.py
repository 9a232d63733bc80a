"""A streaming query's checkpoint: its id, the end offsets of each batch, which batches are committed.

Contract: reads only, never writes; a missing file gives None. Spark writes ``offsets/N`` before batch N runs and
``commits/N`` after it, each by rename, so that an existing file is complete.

Layout: ``metadata`` is ``{"id": ...}``; ``offsets/N`` has a version line, a line of query metadata and one line per
source; ``commits/N`` matters by its name alone. Source: ``OffsetSeqLog``, ``CommitLog``, ``StreamMetadata`` of Spark.
"""

from __future__ import annotations

import json
from pathlib import Path

from tidegauge_spark.offsets import OffsetsJson, offsets_alone


def parse_offset_log(text: str) -> OffsetsJson | None:
    """Return the end offsets of a batch, from the text of ``offsets/N``; None unless it has one Kafka-like source."""
    lines = text.splitlines()
    if len(lines) < 3 or not lines[0].startswith("v"):
        return None
    try:
        offsets = json.loads(lines[-1])
    except ValueError:
        return None
    return offsets_alone(offsets) if isinstance(offsets, dict) else None


class Checkpoint:
    """The checkpoint directory of one streaming query with one source."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def query_id(self) -> str | None:
        """Return the query's id, which stays over restarts; None before its first start."""
        try:
            return str(json.loads((self.directory / "metadata").read_text(encoding="utf-8"))["id"])
        except FileNotFoundError:
            return None

    def end_offsets(self, batch_id: int) -> OffsetsJson | None:
        """Return where a batch ends (exclusive); None if it was never planned."""
        try:
            return parse_offset_log((self.directory / "offsets" / str(batch_id)).read_text(encoding="utf-8"))
        except FileNotFoundError:
            return None

    def is_committed(self, batch_id: int) -> bool:
        """Return whether Spark will not run this batch again."""
        return (self.directory / "commits" / str(batch_id)).exists()

    def last_committed(self) -> int | None:
        """Return the newest batch that Spark will not run again."""
        directory = self.directory / "commits"
        names = [entry.name for entry in directory.iterdir()] if directory.is_dir() else []
        return max((int(name) for name in names if name.isdigit()), default=None)
