"""A consumer group that is served: what its records say, its offsets, and its timers."""

from __future__ import annotations

from tidegauge.consumer_groups import ConsumerGroupState
from tidegauge_broker.coordinator.consumer_group.image import GroupImage
from tidegauge_broker.coordinator.offsets import Offsets
from tidegauge_broker.coordinator.timers import Timer


class ConsumerGroup:
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
        self._refresh_requests = 1
        self._refreshed = 0

    @property
    def group_id(self) -> str:
        """Its name."""
        return self.image.group_id

    @property
    def state(self) -> ConsumerGroupState:
        """The committed state."""
        return ConsumerGroupState.DEAD if self.is_dead else self.image.state

    # Changes of topics

    def request_refresh(self) -> int:
        """Have the next heartbeat look whether the metadata of the group's topics has changed."""
        self._refresh_requests += 1
        return self._refresh_requests

    @property
    def refresh_requests(self) -> int:
        """How many refreshes were requested: what a heartbeat that looks at the topics has seen."""
        return self._refresh_requests

    @property
    def is_refresh_due(self) -> bool:
        """Whether topics may have changed since the last heartbeat that looked."""
        return self._refreshed < self._refresh_requests

    def refreshed(self, requests: int) -> None:
        """Take note that a heartbeat, when this many refreshes were requested, has looked at the topics."""
        self._refreshed = max(self._refreshed, requests)
