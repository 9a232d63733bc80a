"""Owners of formatted directories, read from the disk, and new ids for directories and clusters.

The verbs of the command line load this alone, without the logs and the metadata log.
"""

from __future__ import annotations

import secrets
from pathlib import Path

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.kafka.kraft.json_text import uuid_text
from tidegauge_broker.metadata_log.meta_properties import (
    META_PROPERTIES,
    CorruptMetaProperties,
    NodeProperties,
    decode_meta_properties,
)

_RESERVED_IDS = 100


def read_node_properties(directory: Path) -> NodeProperties:
    """Return the content of a formatted directory's ``meta.properties``.

    Raises:
        TidegaugeError: INVALID_CONFIG, the directory is not formatted, or the file can't be used.
    """
    path = directory / META_PROPERTIES
    try:
        found = decode_meta_properties(path.read_bytes())
    except FileNotFoundError:
        text = f"No `meta.properties` found in {directory} (have you run `tidegauge format` to format the directory?)"
        raise TidegaugeError(ErrorCode.INVALID_CONFIG, text) from None
    except CorruptMetaProperties as problem:
        text = f"{path} can't be used: {problem}; name the directory that was formatted for this node in log.dirs"
        raise TidegaugeError(ErrorCode.INVALID_CONFIG, text) from None
    if None in found:
        raise TidegaugeError(
            ErrorCode.INVALID_CONFIG,
            f"{path} lacks node.id, cluster.id or directory.id; format the directory again with `tidegauge format`",
        )
    return found


def random_uuid() -> bytes:
    """Return a random UUID, not reserved, without a leading hyphen (Uuid.randomUuid)."""
    while True:
        found = bytearray(secrets.token_bytes(16))
        found[6], found[8] = found[6] & 0x0F | 0x40, found[8] & 0x3F | 0x80
        if int.from_bytes(found) >= _RESERVED_IDS and not uuid_text(bytes(found)).startswith("-"):
            return bytes(found)
