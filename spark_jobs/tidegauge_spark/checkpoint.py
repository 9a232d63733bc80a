"""What a streaming query's checkpoint says: its id, the end offsets of each batch, which batches are committed.

Contract: reads only, never writes; a file that is not there yet is None. Spark writes ``offsets/N`` before batch N runs
and ``commits/N`` after it, each by rename, so that a file that exists is whole.

Layout: ``metadata`` is ``{"id": ...}``; ``offsets/N`` has a version line, a line of query metadata and one line per
source; ``commits/N`` matters by its name alone. Source: ``OffsetSeqLog``, ``CommitLog``, ``StreamMetadata`` of Spark.
"""

from __future__ import annotations

import json
from pathlib import Path

from tidegauge_spark.offsets import OffsetsJson, offsets_alone


def parse_offset_log(text: str) -> OffsetsJson | None:
    """The end offsets of a batch, from the text of ``offsets/N``; None if it is no text of one Kafka-like source."""
    lines = text.splitlines()
    if len(lines) < 3 or not lines[0].startswith("v"):
        return None
    try:
        offsets = json.loads(lines[-1])
    except ValueError:
        return None
    return offsets_alone(offsets) if isinstance(offsets, dict) else None


class Checkpoint:
    """The checkpoint folder of one streaming query with one source."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def query_id(self) -> str | None:
        """The query's id, which stays over restarts; None before its first start."""
        try:
            return str(json.loads((self.folder / "metadata").read_text(encoding="utf-8"))["id"])
        except FileNotFoundError:
            return None

    def end_offsets(self, batch_id: int) -> OffsetsJson | None:
        """Where a batch ends (exclusive); None if it was never planned."""
        try:
            return parse_offset_log((self.folder / "offsets" / str(batch_id)).read_text(encoding="utf-8"))
        except FileNotFoundError:
            return None

    def is_committed(self, batch_id: int) -> bool:
        """Whether Spark will not run this batch again."""
        return (self.folder / "commits" / str(batch_id)).exists()

    def last_committed(self) -> int | None:
        """The newest batch that Spark will not run again."""
        folder = self.folder / "commits"
        names = [entry.name for entry in folder.iterdir()] if folder.is_dir() else []
        return max((int(name) for name in names if name.isdigit()), default=None)
