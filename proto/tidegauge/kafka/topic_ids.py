"""A topic id in its two forms: sixteen bytes on the wire, and text in ZooKeeper and everywhere else."""

from __future__ import annotations

import base64
import binascii
import functools

from tidegauge.kafka.fields import NIL_UUID


@functools.lru_cache(10_000)
def topic_id_bytes(topic_id: str) -> bytes:
    """Return a topic id's sixteen bytes; ``NIL_UUID`` if it is empty or malformed."""
    try:
        found = base64.urlsafe_b64decode(topic_id + "==")
    except (ValueError, binascii.Error):
        return NIL_UUID
    return found if len(found) == 16 else NIL_UUID


@functools.lru_cache(10_000)
def topic_id_text(topic_id: bytes) -> str:
    """Return a topic id as ``Uuid.toString`` writes it: base64 for URLs, without padding."""
    return base64.urlsafe_b64encode(topic_id).decode().rstrip("=")


def known_topic_id(topic_id: bytes) -> str:
    """Return a topic id as text; empty for ``NIL_UUID``, which is no id."""
    return "" if topic_id == NIL_UUID else topic_id_text(topic_id)
