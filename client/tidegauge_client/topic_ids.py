"""The id of a topic in each place that keeps it (KIP-516). Plain values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field

from tidegauge.lazy_dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TopicIds:
    """The id of the topic in each place that keeps it.

    Attributes:
        metadata: in the newest metadata, which is the controller's; empty: unknown, or the cluster has no topic ids.
        znode: in ``/brokers/topics/T``; empty: the znode has none; None: it could not be read.
        replicas: of the replicas by broker, as ``partition.metadata`` has it.
    """

    metadata: str = ""
    znode: str | None = None
    replicas: Mapping[int, str] = field(default_factory=dict)

    @property
    def places(self) -> list[tuple[str, str]]:
        """Return the known ids, by the place in words."""
        znode = [] if self.znode is None else [("the topic's znode", self.znode)]
        by_id: dict[str, list[int]] = {}
        for broker, topic_id in sorted(self.replicas.items()):
            if topic_id:
                by_id.setdefault(topic_id, []).append(broker)
        replicas = [
            (f"partition.metadata of broker{'s' if len(of) > 1 else ''} {', '.join(map(str, of))}", topic_id)
            for topic_id, of in by_id.items()
        ]
        return [("the brokers' metadata", self.metadata), *znode, *replicas] if self.metadata else []

    @property
    def differ(self) -> bool:
        """Whether two places name different topics, or the znode has lost the id."""
        return len({topic_id for _, topic_id in self.places}) > 1

    @property
    def listed(self) -> str:
        """Return the id in each place, for people."""
        return ", ".join(f"{topic_id or 'none'} in {place}" for place, topic_id in self.places)
