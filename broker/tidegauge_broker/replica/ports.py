"""The read-only view that the core has of the log. All writes are effects."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from tidegauge_broker.replica.messages import EpochEntry, LeaderHint

if TYPE_CHECKING:
    from tidegauge.partition import TopicPartition
    from tidegauge_broker.replica.producer_state import ProducerState


class Logs(Protocol):
    """Read-only view of this broker's logs; the results depend on the logs alone. No method raises."""

    def bytes_between(self, topic_partition: TopicPartition, from_offset: int, end_offset: int) -> int | None:
        """Bytes of the batches from the one that holds ``from_offset`` up to ``end_offset`` (exclusive).

        0 where ``from_offset >= end_offset``. May come from the index, so it may be somewhat too large. None
        where the log can't be read there: a read of that range will say why.
        """
        ...


class Metadata(Protocol):
    """Read-only view of this broker's metadata cache."""

    def knows(self, topic_partition: TopicPartition) -> bool:
        """Whether the partition exists in the cluster, by this broker's metadata cache."""
        ...

    def leader_hint(self, topic_partition: TopicPartition) -> LeaderHint | None:
        """Return its leader, by this broker's metadata cache."""
        ...

    def is_alive(self, broker_id: int) -> bool:
        """Whether the broker is in the list of live brokers."""
        ...

    def live_brokers(self) -> frozenset[int]:
        """Return the ids of the live brokers."""
        ...


@dataclass(slots=True)
class LoadedLog:
    """A replica's log as it was opened: what a partition starts from.

    ``high_watermark`` is the value of replication-offset-checkpoint, clamped to [log start, log end]. ``former_epoch``
    is the newest leader epoch of which the log's files know, where the process before came to no orderly end; else -1.
    """

    log_start_offset: int
    log_end_offset: int
    high_watermark: int
    epochs: list[EpochEntry]
    producer_state: ProducerState
    former_epoch: int = -1
