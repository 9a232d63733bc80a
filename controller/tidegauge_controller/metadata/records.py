"""Records that a controller makes."""

from __future__ import annotations

from typing import Any

from tidegauge.kafka.kraft.record_types import RECORD_TYPES, MetadataRecord

_TYPES = {record.message: record for record in RECORD_TYPES.values()}


def made(message: Any, version: int = 0) -> MetadataRecord:
    """Return a message as a record of one version.

    Raises:
        KeyError: metadata records have no such message.
    """
    return MetadataRecord(_TYPES[type(message).__name__], version, message)
