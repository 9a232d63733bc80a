"""The text of ``meta.properties`` version 1: the node and the cluster that own a log directory, and the directory's id.

Kafka writes the pairs in the order of a hash table, so readers must take any order. Version 0 is ZooKeeper mode's
(``log.checkpoints``).
Source: ``org.apache.kafka.metadata.properties.MetaProperties``; ``java.util.Properties.store``; KIP-631, KIP-858.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import NamedTuple

from tidegauge.errors import TidegaugeError
from tidegauge.kafka.kraft.json_text import uuid_text
from tidegauge.kafka.kraft.uuids import uuid_of
from tidegauge.settings import read_properties

META_PROPERTIES = "meta.properties"
"""The file's name; a directory that has it counts as formatted."""
VERSION = 1
_RESERVED_BELOW = 100
"""Directory ids below this number, read as an integer, have meanings of their own (``DirectoryId.reserved``)."""


class CorruptMetaProperties(Exception):
    """The file can't be understood; the text says why."""


class NodeProperties(NamedTuple):
    """The content of the file; None stands for a pair that the file lacks.

    Attributes:
        node_id: the node that owns the directory.
        cluster_id: the cluster that the node belongs to.
        directory_id: the sixteen bytes of the directory's id.
    """

    node_id: int | None
    cluster_id: str | None
    directory_id: bytes | None


def encode_meta_properties(properties: NodeProperties, now_ms: int) -> bytes:
    """Return the file's bytes; ``now_ms`` is the wall-clock time in its comment."""
    pairs = {
        "node.id": None if properties.node_id is None else str(properties.node_id),
        "directory.id": None if properties.directory_id is None else uuid_text(properties.directory_id),
        "version": str(VERSION),
        "cluster.id": properties.cluster_id,
    }
    return stored_properties({key: value for key, value in pairs.items() if value is not None}, now_ms)


def decode_meta_properties(data: bytes) -> NodeProperties:
    """Return the content of a file of version 1.

    Raises:
        CorruptMetaProperties: it is no properties file, has another version, or one of its values can't be read.
    """
    try:
        found = read_properties(data.decode())
        version = int(found.get("version", "0"))
        node_id = int(found["node.id"]) if "node.id" in found else None
        directory_id = uuid_of(found["directory.id"]) if "directory.id" in found else None
    except (ValueError, TidegaugeError) as problem:
        raise CorruptMetaProperties(str(problem)) from None
    if version != VERSION:
        raise CorruptMetaProperties(f"it has version {version}, expected {VERSION} (KRaft mode)")
    if node_id is not None and node_id < 0:
        raise CorruptMetaProperties(f"node.id is {node_id}, and no node has a negative id")
    if directory_id is not None and int.from_bytes(directory_id) < _RESERVED_BELOW:
        raise CorruptMetaProperties(f"directory.id is {found['directory.id']}, which is reserved")
    return NodeProperties(node_id, found.get("cluster.id"), directory_id)


def stored_properties(pairs: Mapping[str, str], now_ms: int) -> bytes:
    """Return a file as ``java.util.Properties.store`` writes it: comments, then pairs."""
    date = datetime.fromtimestamp(now_ms / 1000, UTC).strftime("%a %b %d %H:%M:%S UTC %Y")
    lines = ["#", f"#{date}", *(f"{key}={_escaped(value)}" for key, value in pairs.items())]
    return ("\n".join(lines) + "\n").encode()


def _escaped(value: str) -> str:
    text = re.sub(r"([\\=:#!])", r"\\\1", value)
    return "".join(char if " " <= char <= "~" else f"\\u{ord(char):04X}" for char in text)
