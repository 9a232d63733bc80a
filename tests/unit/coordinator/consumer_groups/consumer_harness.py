"""A coordinator that serves consumer groups, and what tests of it share."""

from collections.abc import Sequence
from typing import Any

from tests.unit.coordinator.consumer_groups.golden import story
from tests.unit.coordinator.harness import Harness

from tidegauge.consumer_groups import (
    Assignment,
    ConsumerGroupHeartbeat,
    ConsumerGroupHeartbeatResult,
    DescribeConsumerGroup,
    DescribeConsumerGroupResult,
)
from tidegauge.errors import ErrorCode
from tidegauge.kafka.topic_ids import topic_id_bytes
from tidegauge_broker.coordinator.consumer_group.records import KINDS, read_key, read_value
from tidegauge_broker.coordinator.consumer_group.topics import TopicDescription
from tidegauge_broker.coordinator.effects import Effect, ResolveRegexes
from tidegauge_broker.coordinator.events import RegexesResolved, TopicsChanged
from tidegauge_broker.coordinator.patterns.automaton import resolve
from tidegauge_broker.coordinator.record_codec import read_batches, version_of
from tidegauge_broker.coordinator.settings import ConsumerGroupTimes

IDS = {name: topic_id_bytes(text) for name, (text, _) in story()["topics"].items()}
T4, T5 = IDS["t4"], IDS["t5"]
"""Topics with 4 and with 2 partitions."""
WITH_INTERVAL = ConsumerGroupTimes(12_000, 3_000, 1_000)
"""Times with Kafka's assignment interval; the other tests have none."""
PARTITIONS = {"t4": 4, "t5": 2}


class ConsumerHarness(Harness):
    """One broker's coordinator of one partition; regular expressions are resolved at once, unless a test holds them."""

    def __init__(self, *, loads_committed: bool = True, **settings: Any) -> None:
        self.loads_committed = loads_committed
        settings = {
            "serves_consumer_groups": True,
            "consumer_times": ConsumerGroupTimes(12_000, 3_000, 0),
        } | settings
        self._settings = settings
        self.resolutions: list[ResolveRegexes] = []
        self.holds_resolutions = False
        super().__init__(**settings)
        self.topics(**PARTITIONS)

    def topics(self, **partitions: int | None) -> None:
        """Create, grow or (None) delete topics."""
        self.event(
            TopicsChanged(
                {
                    name: None
                    if count is None
                    else TopicDescription(name, IDS.get(name, name.encode().ljust(16, b"\0")), ((),) * count)
                    for name, count in partitions.items()
                }
            )
        )

    def successor(self, **settings: Any) -> "ConsumerHarness":
        """Another broker that was elected on the same log."""
        return ConsumerHarness(**(self._settings | {"log": self.log, "now_ms": self.now_ms} | settings))

    def carry_out_own(self, effect: Effect) -> None:
        if not isinstance(effect, ResolveRegexes):
            super().carry_out_own(effect)
            return
        self.resolutions.append(effect)
        if not self.holds_resolutions:
            self.resolve()

    def resolve(self, problem: str = "") -> None:
        """Give the outcome of the oldest resolution."""
        effect = self.resolutions.pop(0)
        found = {} if problem else resolve(effect.regexes, effect.names)
        self.event(RegexesResolved(effect.resolution_id, found, effect.version, problem))

    # Requests

    def beat(self, member: str, epoch: int, group: str = "g", **fields: Any) -> ConsumerGroupHeartbeatResult:
        """Send a heartbeat and return its response."""
        return self.ask(heartbeat(member, epoch, group, **fields))

    def enter(self, member: str, *topics: str, group: str = "g", **fields: Any) -> ConsumerGroupHeartbeatResult:
        """Join and return the response, which has no error."""
        result = self.ask(joining(member, *topics, group=group, **fields))
        assert result.error is ErrorCode.NONE, result
        return result

    def described(self, group: str = "g") -> DescribeConsumerGroupResult:
        return self.ask(DescribeConsumerGroup(group))

    def state(self, group: str = "g") -> str:
        return self.described(group).state

    # The log

    def written(self, since: int = 0) -> list[list[tuple[int, Any, Any]]]:
        """Return the consumer groups' records by batch: type, key and value."""
        found = []
        for batch in self.log[since:]:
            records = [
                (version_of(key), read_key(key), None if value is None else read_value(read_key(key), value))
                for loaded in read_batches(batch)
                for key, value in loaded.records
                if version_of(key) in KINDS
            ]
            if records:
                found.append(records)
        return found

    def kinds(self, since: int = 0) -> list[list[int]]:
        """Return the records' types by batch; tombstones' are negative."""
        return [[kind if value is not None else -kind for kind, _, value in batch] for batch in self.written(since)]


def heartbeat(member: str, epoch: int, group: str = "g", **fields: Any) -> ConsumerGroupHeartbeat:
    fields = {"client_id": "c", "client_host": "/127.0.0.1"} | fields
    return ConsumerGroupHeartbeat(group, member, epoch, **fields)


def joining(member: str, *topics: str, group: str = "g", **fields: Any) -> ConsumerGroupHeartbeat:
    fields = {"topic_names": topics, "rebalance_timeout_ms": 8_000, "owned": ()} | fields
    return heartbeat(member, 0, group, **fields)


def owned(topic: bytes, *partitions: int) -> Assignment:
    return ((topic, partitions),)


def numbers(assignment: Assignment | None) -> dict[bytes, Sequence[int]] | None:
    return None if assignment is None else {topic: sorted(partitions) for topic, partitions in assignment}
