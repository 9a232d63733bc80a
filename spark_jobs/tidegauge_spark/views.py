"""Which topics and partitions there are, where some brokers may have old metadata. Pure.

A broker that the controller can't reach goes on showing what it was sent last: no topic that was created since, fewer
partitions than there are, a topic that was deleted. A broker that no controller has sent metadata since its start knows
nothing, and its view does not count.

Of the others those views count that count for Tidegauge's clients (``tidegauge_client.metadata``, rule 5): of the
highest controller epoch the controller's own alone, or if it does not respond all of them. In these, most decide.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from tidegauge.partition import TopicPartition


class TopicView(NamedTuple):
    """A topic as one broker shows it."""

    topic_id: str
    partitions: frozenset[int]


View = Mapping[str, TopicView]
"""All topics that were asked for, and that one broker knows."""


class Settled(NamedTuple):
    """What the views that count show.

    Attributes:
        topic_ids: of each topic in these views, the id that most of them give.
        partitions: those of these ids that half of these views or more show: with one against one nothing is taken for
            deleted, for that would begin it again, or lose it, where the other broker is right.
        by_controller: whether the controller's own view alone counts.
    """

    topic_ids: dict[str, str]
    partitions: frozenset[TopicPartition]
    by_controller: bool = False

    @property
    def unknown_to(self) -> str:
        """Return who does not know a topic that is not among these, as the begin of a sentence that the topic ends."""
        return "the controller does not know" if self.by_controller else "fewer than half of the brokers know"

    def agreement(self, view: View) -> int:
        """Return with how many of these partitions a view agrees."""
        known = {
            TopicPartition(topic, partition)
            for topic, seen in view.items()
            if seen.topic_id == self.topic_ids.get(topic)
            for partition in seen.partitions
        }
        return len(known & self.partitions)


def settle(views: Sequence[View], *, by_controller: bool = False) -> Settled:
    """Return what most of the views that count show; the first of equals counts.

    Args:
        views: those that count; not empty.
        by_controller: whether that is the controller's own.
    """
    votes = Counter((topic, seen.topic_id) for view in views for topic, seen in view.items())
    topic_ids = {topic: topic_id for (topic, topic_id), _ in reversed(votes.most_common())}
    known = Counter(
        TopicPartition(topic, partition)
        for view in views
        for topic, seen in view.items()
        if seen.topic_id == topic_ids[topic]
        for partition in seen.partitions
    )
    partitions = frozenset(one for one, count in known.items() if count * 2 >= len(views))
    return Settled(topic_ids, partitions, by_controller)
