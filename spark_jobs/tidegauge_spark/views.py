"""What most brokers know of topics, where one of them may have old metadata. Pure.

A broker that the controller can't reach goes on showing what it was sent last: no topic that was created since, fewer
partitions than there are, a topic that was deleted. A broker that no controller has sent metadata since its start knows
nothing, and its view does not count.
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
    """What most brokers know.

    Attributes:
        topic_ids: of each topic that any broker knows, the id that most of them give.
        partitions: those of these ids that half of the brokers or more know: with one against one nothing is taken for
            deleted, for that would begin it again, or lose it, where the other broker is right.
    """

    topic_ids: dict[str, str]
    partitions: frozenset[TopicPartition]

    def agreement(self, view: View) -> int:
        """Return with how many of these partitions a view agrees."""
        known = {
            TopicPartition(topic, partition)
            for topic, seen in view.items()
            if seen.topic_id == self.topic_ids[topic]
            for partition in seen.partitions
        }
        return len(known & self.partitions)


def settle(views: Sequence[View]) -> Settled:
    """Return what most brokers know, from the views of those that responded; the first of equals counts."""
    votes = Counter((topic, seen.topic_id) for view in views for topic, seen in view.items())
    topic_ids = {topic: topic_id for (topic, topic_id), _ in reversed(votes.most_common())}
    known = Counter(
        TopicPartition(topic, partition)
        for view in views
        for topic, seen in view.items()
        if seen.topic_id == topic_ids[topic]
        for partition in seen.partitions
    )
    return Settled(topic_ids, frozenset(one for one, count in known.items() if count * 2 >= len(views)))
