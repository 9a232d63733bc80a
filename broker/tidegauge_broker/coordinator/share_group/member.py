"""A member of a share group, as its records say. Source: ShareGroupMember of Kafka."""

from __future__ import annotations

from dataclasses import dataclass

from tidegauge_broker.coordinator.consumer_group.assignors.subscription import Partitions


@dataclass(frozen=True, slots=True)
class ShareMember:
    """A member.

    Attributes:
        topic_names: what it is subscribed to, as its record has it.
        epoch: its assignment's.
        previous_epoch: the one before, with which it may repeat a heartbeat whose response was lost.
        assigned: the partitions that it is to fetch.
    """

    member_id: str
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    topic_names: tuple[str, ...] = ()
    epoch: int = 0
    previous_epoch: int = 0
    assigned: Partitions = ()
