"""A group coordinator that serves share groups, with the share coordinator that it initializes states at."""

from __future__ import annotations

import gzip
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.unit.coordinator.harness import Harness
from tests.unit.coordinator.share_state.harness import ShareHarness

from tidegauge.errors import ErrorCode
from tidegauge.kafka.topic_ids import topic_id_bytes
from tidegauge.share_groups import ShareGroupHeartbeat, ShareGroupHeartbeatResult
from tidegauge_broker.coordinator.consumer_group.topics import TopicDescription
from tidegauge_broker.coordinator.effects import ChangeShareStates, Effect
from tidegauge_broker.coordinator.events import ShareStatesChanged, TopicsChanged
from tidegauge_broker.coordinator.record_codec import read_batches, version_of
from tidegauge_broker.coordinator.settings import ConsumerGroupTimes
from tidegauge_broker.coordinator.share_group.image import ShareGroupImage
from tidegauge_broker.coordinator.share_group.records import KINDS


def story() -> Any:
    """Requests to a broker of Kafka 4.3.1 with its responses, and the records that it wrote of the group ``sg1``."""
    return json.loads(gzip.decompress((Path(__file__).parent / "story_of_kafka.json.gz").read_bytes()))


S1 = topic_id_bytes(story()["topics"]["s1"][0])
"""A topic with one partition."""
T2 = bytes(range(16))
"""A topic with two partitions."""
TOPICS = {"s1": (S1, 1), "t2": (T2, 2)}


class ShareGroupHarness(Harness):
    """One broker's coordinators of one partition each; states are changed at once, unless a test holds them."""

    def __init__(self, *, states: ShareHarness | None = None, **settings: Any) -> None:
        settings = {
            "serves_share_groups": True,
            "serves_consumer_groups": True,
            "share_times": ConsumerGroupTimes(assignment_interval_ms=0),
        } | settings
        self._settings = settings
        self.changes: list[ChangeShareStates] = []
        self.holds_changes = False
        self.states = states or ShareHarness()
        super().__init__(**settings)
        self.topics(**{name: count for name, (_, count) in TOPICS.items()})

    def topics(self, **partitions: int | None) -> None:
        """Create, grow or (None) delete topics, as both coordinators learn of it."""
        described = {
            name: None if count is None else TopicDescription(name, TOPICS[name][0], ((),) * count)
            for name, count in partitions.items()
        }
        for coordinator in (self, self.states):
            coordinator.event(TopicsChanged(described))

    def successor(self) -> ShareGroupHarness:
        return ShareGroupHarness(states=self.states, log=self.log, now_ms=self.now_ms, **self._settings)

    def carry_out_own(self, effect: Effect) -> None:
        if not isinstance(effect, ChangeShareStates):
            super().carry_out_own(effect)
            return
        self.changes.append(effect)
        if not self.holds_changes:
            self.change()

    def change(self, error: ErrorCode | None = None) -> None:
        """Carry out the oldest change of states at the share coordinator, or fail it."""
        effect = self.changes.pop(0)
        errors = {one.key: self.states.ask(one).error if error is None else error for one in effect.requests}
        self.event(ShareStatesChanged(effect.change_id, errors))

    def beat(
        self, member: str = "a", epoch: int = 0, topics: Sequence[str] | None = None, group: str = "g"
    ) -> ShareGroupHeartbeatResult:
        names = ("t2",) if topics is None and epoch == 0 else topics
        return self.ask(ShareGroupHeartbeat(group, member, epoch, None, None if names is None else tuple(names)))

    def image(self, group: str = "g") -> ShareGroupImage:
        return self.coordinator._shards[0].share_groups[group].image

    def written(self) -> list[list[tuple[int, Any, Any]]]:
        """Type, key and value of the records of share groups, in batches."""
        found = []
        for data in self.log:
            for batch in read_batches(data):
                records = []
                for key, value in batch.records:
                    if version_of(key) in KINDS:
                        read = KINDS.read_key(key)
                        said = None if value is None else KINDS.read_value(read, value)
                        records.append((version_of(key), read, said))
                found.append(records)
        return [batch for batch in found if batch]
