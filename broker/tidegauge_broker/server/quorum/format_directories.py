"""Formats the directories of a node in KRaft mode on the disk: checks all of them first, then writes each one.

``meta.properties``, by which a directory counts as formatted, is written last.
Source: ``org.apache.kafka.metadata.storage.Formatter``.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.kafka.kraft.json_text import uuid_text
from tidegauge_broker.log.files import DISK
from tidegauge_broker.metadata_log.formatting import Formatting, check_owner
from tidegauge_broker.metadata_log.meta_properties import META_PROPERTIES, CorruptMetaProperties, decode_meta_properties
from tidegauge_broker.server.quorum.node_properties import random_uuid

_SNAPSHOT_MODE = 0o400
"""Snapshots are read-only once they are complete (FileRawSnapshotWriter.freeze)."""


class FormattedDirectory(NamedTuple):
    """A directory that was formatted: its path, what it is in Kafka's words, and its new id as text."""

    directory: str
    kind: str
    directory_id: str


def format_directories(
    asked: Formatting, directories: Sequence[str], levels: Mapping[str, int], *, ignore_formatted: bool
) -> list[FormattedDirectory]:
    """Check everything, then format the directories that are not formatted yet; return these.

    Args:
        asked: how.
        directories: the node's.
        levels: of the features, as ``asked.levels`` returned them.
        ignore_formatted: whether directories that are formatted already are left as they are.

    Raises:
        TidegaugeError: INVALID_CONFIG, a directory is formatted already, or another node or cluster owns it; nothing
            was changed.
        OSError: the disk refused.
    """
    missing = [one for one in directories if not _is_formatted(one, asked)]
    formatted = [one for one in directories if one not in missing]
    if formatted and not ignore_formatted:
        raise TidegaugeError(
            ErrorCode.INVALID_CONFIG,
            f"Log directory {formatted[0]} is already formatted. Use --ignore-formatted to ignore this directory and "
            "format the others.",
        )
    written = []
    for one in missing:
        directory_id = asked.directory_id_of(one) or random_uuid()
        _write(Path(one), asked.files_of(one, directory_id, levels, time.time_ns() // 1_000_000))
        written.append(FormattedDirectory(one, asked.kind_of(one), uuid_text(directory_id)))
    return written


def require_own(asked: Formatting, directories: Sequence[str]) -> None:
    """Refuse directories of a node that another node or cluster owns; those that are not formatted are no one's yet.

    Raises:
        TidegaugeError: INVALID_CONFIG, INCONSISTENT_CLUSTER_ID.
    """
    for one in directories:
        _is_formatted(one, asked)


def _is_formatted(directory: str, asked: Formatting) -> bool:
    """Whether a directory has its meta.properties; refuse another node's or cluster's directory."""
    path = Path(directory) / META_PROPERTIES
    try:
        properties = decode_meta_properties(path.read_bytes())
    except FileNotFoundError:
        return False
    except CorruptMetaProperties as problem:
        text = f"{path} can't be used: {problem}; name another directory in log.dirs, or remove the directory's content"
        raise TidegaugeError(ErrorCode.INVALID_CONFIG, text) from None
    check_owner(properties, str(path), asked.cluster_id, asked.node_id)
    return True


def _write(directory: Path, files: Mapping[str, bytes]) -> None:
    for name, data in files.items():
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        DISK.replace(path, data)
        if path.parent != directory:
            os.chmod(path, _SNAPSHOT_MODE)  # noqa: PTH101 - as the other calls of this function by the path
            DISK.sync_directory(directory)
