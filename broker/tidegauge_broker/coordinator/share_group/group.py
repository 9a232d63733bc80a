"""A share group that is served: what its records say, and its timers."""

from __future__ import annotations

from tidegauge.share_groups import ShareGroupState
from tidegauge_broker.coordinator.refreshing import Refreshing
from tidegauge_broker.coordinator.share_group.image import ShareGroupImage
from tidegauge_broker.coordinator.timers import Timer


class ShareGroup(Refreshing):
    """A group.

    Attributes:
        partition: of __consumer_offsets.
        image: the committed state.
        is_dead: whether it was deleted or unloaded; nothing of it counts any more.
        sessions: by member id, until a member is removed because it was not heard of.
        states_since_ms: wall-clock time of the last change of which share partitions are initialized.
    """

    def __init__(self, image: ShareGroupImage, partition: int, states_since_ms: int) -> None:
        super().__init__()
        self.image = image
        self.partition = partition
        self.is_dead = False
        self.sessions: dict[str, Timer] = {}
        self.states_since_ms = states_since_ms

    @property
    def group_id(self) -> str:
        """Its name."""
        return self.image.group_id

    @property
    def state(self) -> ShareGroupState:
        """The committed state."""
        return ShareGroupState.DEAD if self.is_dead else self.image.state
