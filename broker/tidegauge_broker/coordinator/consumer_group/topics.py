"""The topics of the cluster as the group coordinator knows them, and the hash of their metadata.

Source: CoordinatorMetadataImage; Utils.computeTopicHash and computeGroupHash of Kafka's group coordinator.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from tidegauge_broker.coordinator.consumer_group.xxh3 import xxh3_64

_MAGIC = b"\0"
_LONG, _INT = struct.Struct("<Q"), struct.Struct("<i")
_SIGN, _RANGE = 2**63, 2**64


def _text(text: str) -> bytes:
    """Return a string in hash4j's putString form: UTF-16 units, then their number."""
    units = text.encode("utf-16-le", "surrogatepass")
    return units + _INT.pack(len(units) // 2)


@dataclass(frozen=True, slots=True)
class TopicDescription:
    """A topic.

    Attributes:
        racks: of each partition, the racks of its replicas' brokers that have one.
    """

    name: str
    topic_id: bytes
    racks: tuple[tuple[str, ...], ...]

    @property
    def partitions(self) -> int:
        """Number of partitions."""
        return len(self.racks)


def _hash(topic: TopicDescription) -> int:
    """Return the hash of a topic's id, name, partitions and racks."""
    most, least = topic.topic_id[:8][::-1], topic.topic_id[8:][::-1]
    parts = [_MAGIC, most, least, _text(topic.name), _INT.pack(topic.partitions)]
    for partition, racks in enumerate(topic.racks):
        parts.append(_INT.pack(partition))
        for rack in sorted(racks):
            parts += [_INT.pack(len(rack)), _text(rack)]
    return xxh3_64(b"".join(parts))


@dataclass(slots=True)
class Topics:
    """The topics that exist.

    Attributes:
        version: rises with each change.
        created_at: the version at which a topic was last created.
    """

    by_name: dict[str, TopicDescription] = field(default_factory=dict[str, TopicDescription])
    by_id: dict[bytes, TopicDescription] = field(default_factory=dict[bytes, TopicDescription])
    version: int = 0
    created_at: int = 0
    _hashes: dict[str, int] = field(default_factory=dict[str, int])

    def change(self, topics: Mapping[str, TopicDescription | None]) -> set[str]:
        """Take over topics that were created, altered or (None) deleted; return those that differ from before."""
        changed = {name for name, topic in topics.items() if topic != self.by_name.get(name)}
        self.version += bool(changed)
        for name in changed:
            topic = topics[name]
            former = self.by_name.pop(name, None)
            self._hashes.pop(name, None)
            if former is not None:
                self.by_id.pop(former.topic_id, None)
            if topic is not None:
                self.by_name[name] = topic
                self.by_id[topic.topic_id] = topic
                if former is None or former.topic_id != topic.topic_id:
                    self.created_at = self.version
        return changed

    def hash_of(self, names: Iterable[str]) -> int:
        """Return the metadata hash of topics; 0 if none exists."""
        known = [self._hash_of(self.by_name[name]) for name in sorted(names) if name in self.by_name]
        if not known:
            return 0
        value = xxh3_64(b"".join(map(_LONG.pack, known)))
        return value - _RANGE if value >= _SIGN else value

    def _hash_of(self, topic: TopicDescription) -> int:
        found = self._hashes.get(topic.name)
        if found is None:
            found = self._hashes[topic.name] = _hash(topic)
        return found
