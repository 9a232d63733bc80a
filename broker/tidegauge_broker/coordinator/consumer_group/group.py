"""A consumer group that is served: what its records say, its offsets, and its timers."""

from __future__ import annotations

from tidegauge.consumer_groups import ConsumerGroupState
from tidegauge_broker.coordinator.consumer_group.image import GroupImage
from tidegauge_broker.coordinator.offsets import Offsets
from tidegauge_broker.coordinator.refreshing import Refreshing
from tidegauge_broker.coordinator.timers import Timer


class ConsumerGroup(Refreshing):
    """A group.

    Attributes:
        partition: of __consumer_offsets.
        image: the committed state.
        is_dead: whether it was deleted, converted or unloaded; nothing of it counts any more.
        sessions: by member id, until a member is removed because it was not heard of.
        rebalances: by member id, until a member is removed because it has not given partitions up.
        joins: by member id, until a classic member is removed because it has not rejoined.
        syncs: by member id, until a classic member is removed because it has joined and not sent its SyncGroup.
        is_resolving: whether its regular expressions are being resolved.
        resolution_failed_ms: when that last failed, in wall-clock time.
        state_since_ms: the time of the last change of state.
    """

    def __init__(self, image: GroupImage, partition: int, offsets: Offsets | None = None) -> None:
        super().__init__()
        self.image = image
        self.partition = partition
        self.offsets = Offsets() if offsets is None else offsets
        self.is_dead = False
        self.is_uncertain = False
        self.sessions: dict[str, Timer] = {}
        self.rebalances: dict[str, Timer] = {}
        self.joins: dict[str, Timer] = {}
        self.syncs: dict[str, Timer] = {}
        self.is_resolving = False
        self.resolution_failed_ms: int | None = None
        self.state_since_ms: int | None = None

    @property
    def group_id(self) -> str:
        """Its name."""
        return self.image.group_id

    @property
    def state(self) -> ConsumerGroupState:
        """The committed state."""
        return ConsumerGroupState.DEAD if self.is_dead else self.image.state
