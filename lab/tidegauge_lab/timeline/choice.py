"""Which events of a timeline are wanted. Pure.

Rules:
    1. Several values of one filter widen it, several filters narrow it.
    2. Events of no partition that may be causes (a broker's start and end, its session, the controller, faults, a
       restore) pass the filters for topics and partitions; ``kinds`` leaves them out. A transaction passes with its
       partitions, a setting with its topic. A group's rebalances are no cause of what happens to a partition, and pass
       only if ``kinds`` names them: a story of one topic would be buried under all groups' rebalances.
    3. The high watermark of the metadata log of KRaft mode moves with each NoOpRecord, twice a second: it passes only
       if its topic is named.
    4. An event is a broker's when the broker wrote it, or when the lab did it to that broker.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tidegauge.event_log import broker_of
from tidegauge.lazy_dataclasses import dataclass
from tidegauge.partition import METADATA_TOPIC

Event = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Choice:
    """Filters; an empty one lets everything pass.

    Attributes:
        topics: names.
        partitions: ``(topic, partition)``; topic None: this partition of any topic.
        brokers: ids.
        kinds: of ``tidegauge.event_log.KINDS``.
        since_ms: first moment wanted, ms since 1970.
        until_ms: last moment wanted.
    """

    topics: frozenset[str] = frozenset()
    partitions: frozenset[tuple[str | None, int]] = frozenset()
    brokers: frozenset[int] = frozenset()
    kinds: frozenset[str] = frozenset()
    since_ms: int | None = None
    until_ms: int | None = None

    def wants(self, event: Event) -> bool:
        """Whether an event passes."""
        time_ms = event.get("time_ms", 0)
        return (
            (not self.kinds or event.get("kind") in self.kinds)
            and (not self.brokers or broker_of(event) in self.brokers)
            and self._wants_partition(event)
            and (self.since_ms is None or time_ms >= self.since_ms)
            and (self.until_ms is None or time_ms <= self.until_ms)
        )

    def _wants_partition(self, event: Event) -> bool:
        topic, partition = event.get("topic"), event.get("partition")
        if topic is None:
            return not (self.topics or self.partitions) or self._wants_of_no_partition(event)
        if topic == METADATA_TOPIC and event.get("kind") == "high_watermark" and not self._names(topic):
            return False
        in_topics = not self.topics or topic in self.topics
        in_partitions = not self.partitions or not self.partitions.isdisjoint({(topic, partition), (None, partition)})
        return in_topics and in_partitions

    def _wants_of_no_partition(self, event: Event) -> bool:
        """Whether an event of no partition passes the filters for topics and partitions (rule 2)."""
        match event.get("kind"):
            case "group":
                return "group" in self.kinds
            case "transaction":
                places = (str(name).rpartition("-") for name in event.get("partitions", ()))
                return "transaction" in self.kinds or any(
                    self._wants_partition({"topic": topic, "partition": int(number)})
                    for topic, _, number in places
                    if number.isdecimal()
                )
            case "min_insync_replicas":
                return self._wants_topic(str(event.get("resource")))
        return True

    def _names(self, topic: str) -> bool:
        return topic in self.topics or any(name == topic for name, _ in self.partitions)

    def _wants_topic(self, topic: str) -> bool:
        of_partitions = {name for name, _ in self.partitions}
        in_partitions = not of_partitions or topic in of_partitions or None in of_partitions
        return (not self.topics or topic in self.topics) and in_partitions
