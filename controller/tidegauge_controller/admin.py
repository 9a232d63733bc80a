"""Admin requests to the controller, and their outcomes, as plain values."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from tidegauge.errors import ErrorCode

NAMED_TWICE = "Found multiple entries for this topic."
"""Kafka's sentence for a topic that one CreateTopics request names more than once."""
NOT_CONTROLLER = "This is not the correct controller for this cluster."
Mutate = Callable[[int], None]
"""Is called with a number of partitions before they are created; raises TidegaugeError where a quota refuses them."""


def repeated_names(names: Iterable[str]) -> frozenset[str]:
    """Return the names that occur more than once: such requests contradict themselves."""
    return frozenset(name for name, times in Counter(names).items() if times > 1)


def unlimited(count: object) -> None:
    """Allow any mutation: of partitions that are created, or of a topic that is deleted."""


@dataclass(frozen=True, slots=True)
class NewTopic:
    """A topic to create: counts (None: the broker's defaults) or an assignment, not both.

    Attributes:
        name: its name.
        partition_count: number of partitions.
        replication_factor: number of replicas of each.
        assignment: the replicas of each partition, from partition 0; empty: by Kafka's algorithm.
        configs: its settings.
    """

    name: str
    partition_count: int | None = None
    replication_factor: int | None = None
    assignment: Sequence[Sequence[int]] = ()
    configs: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class NewPartitions:
    """Partitions to be added to a topic.

    Attributes:
        name: the topic.
        total_count: the number of partitions that it shall have.
        assignment: the replicas of each added partition; empty: by Kafka's algorithm.
    """

    name: str
    total_count: int
    assignment: Sequence[Sequence[int]] = ()


@dataclass(frozen=True, slots=True)
class TopicOutcome:
    """The outcome for a topic: an error with Kafka's sentence, or none and its id."""

    name: str
    error: ErrorCode = ErrorCode.NONE
    message: str = ""
    topic_id: str = ""
