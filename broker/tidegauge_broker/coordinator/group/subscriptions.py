"""The topics that consumers are subscribed to, from the part of their metadata that every version begins with.

A subscription is: version int16, topics as an array of strings, and fields of later versions. Source: ConsumerProtocol
(``deserializeVersion``, ``deserializeSubscription`` with version 0), as GroupMetadata.computeSubscribedTopics uses it.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable

_COUNT = struct.Struct(">i")
_LENGTH = struct.Struct(">h")
_VERSION_BYTES = 2


def subscribed_topics(subscriptions: Iterable[bytes]) -> frozenset[str] | None:
    """Return all subscriptions' topics; None if one can't be read."""
    topics: set[str] = set()
    for subscription in subscriptions:
        try:
            topics.update(_topics(subscription))
        except (struct.error, UnicodeDecodeError, ValueError):
            return None
    return frozenset(topics)


def _topics(subscription: bytes) -> list[str]:
    (version,) = _LENGTH.unpack_from(subscription)
    if version < 0:
        raise ValueError("a version is negative")
    (count,) = _COUNT.unpack_from(subscription, _VERSION_BYTES)
    at = _VERSION_BYTES + _COUNT.size
    if not 0 <= count <= len(subscription):
        raise ValueError("the number of topics is larger than the subscription")
    topics: list[str] = []
    for _ in range(count):
        (length,) = _LENGTH.unpack_from(subscription, at)
        end = at + _LENGTH.size + length
        if length < 0 or end > len(subscription):
            raise ValueError("a topic ends behind the subscription")
        topics.append(subscription[at + _LENGTH.size : end].decode())
        at = end
    return topics
