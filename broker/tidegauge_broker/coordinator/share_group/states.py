"""The share partitions of a group with a state at the share coordinator: only these are assigned.

A partition is initializing from the heartbeat that finds it until the share coordinator has responded. A topic is
deleting while its states are being deleted.
Source: ShareGroup.ShareGroupStatePartitionMetadataInfo; GroupMetadataManager (subscribedTopicsChangeMap,
addInitializingTopicsRecords, initializeShareGroupState, uninitializeShareGroupState, maybeCleanupShareGroupState).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from tidegauge_broker.coordinator.consumer_group.topics import Topics


class TopicStates(NamedTuple):
    """Partitions of a topic."""

    name: str
    partitions: frozenset[int]


InitializedTopics = Mapping[bytes, TopicStates]
"""Topics and their partitions, by topic id."""
PartitionsById = Mapping[bytes, frozenset[int]]
"""Partitions by topic id."""


class StatesOfPartitions(NamedTuple):
    """The record of type 15.

    Attributes:
        deleting: names by topic id.
    """

    initializing: InitializedTopics
    initialized: InitializedTopics
    deleting: Mapping[bytes, str]

    @property
    def assignable(self) -> dict[bytes, frozenset[int]]:
        """The partitions that may be assigned, by topic id."""
        return {topic_id: topic.partitions for topic_id, topic in self.initialized.items()}

    def missing(self, names: Iterable[str], topics: Topics, *, retries: bool) -> dict[bytes, TopicStates]:
        """Return the partitions of topics that are to be initialized.

        Args:
            names: the topics that members are subscribed to.
            topics: those that exist.
            retries: whether partitions that have been initializing for long are taken, too.
        """
        found: dict[bytes, TopicStates] = {}
        for name in sorted(names):
            topic = topics.by_name.get(name)
            if topic is None:
                continue
            known = _partitions(self.initialized, topic.topic_id)
            if not retries:
                known |= _partitions(self.initializing, topic.topic_id)
            if len(known) < topic.partitions:
                found[topic.topic_id] = TopicStates(name, frozenset(range(topic.partitions)) - known)
        return found

    def begun(self, topics: InitializedTopics) -> StatesOfPartitions:
        """Return the states after an initialization began, which ends a topic's deletion."""
        initializing = joined(self.initializing, topics)
        deleting = {topic_id: name for topic_id, name in self.deleting.items() if topic_id not in initializing}
        return self._replace(initializing=initializing, deleting=deleting)

    def completed(self, partitions: PartitionsById, topics: Topics) -> StatesOfPartitions:
        """Return the states after partitions were initialized."""
        added = {
            topic_id: TopicStates(_name(topic_id, self.initializing, topics), ones)
            for topic_id, ones in partitions.items()
        }
        return self.failed(partitions)._replace(initialized=joined(self.initialized, added))

    def failed(self, partitions: PartitionsById) -> StatesOfPartitions:
        """Return the states after a failed initialization; a later heartbeat retries."""
        left = {
            topic_id: topic._replace(partitions=topic.partitions - partitions.get(topic_id, frozenset()))
            for topic_id, topic in self.initializing.items()
        }
        return self._replace(initializing={topic_id: topic for topic_id, topic in left.items() if topic.partitions})

    def without_topics(self, topic_ids: Iterable[bytes]) -> StatesOfPartitions:
        """Return the states without topics, which exist no longer."""
        deleted = set(topic_ids)
        return StatesOfPartitions(
            {topic_id: topic for topic_id, topic in self.initializing.items() if topic_id not in deleted},
            {topic_id: topic for topic_id, topic in self.initialized.items() if topic_id not in deleted},
            {topic_id: name for topic_id, name in self.deleting.items() if topic_id not in deleted},
        )

    def deleted(self, names: Mapping[bytes, str]) -> StatesOfPartitions:
        """Return the states after the deletion of topics began."""
        left = {topic_id: topic for topic_id, topic in self.initialized.items() if topic_id not in names}
        return self._replace(initialized=left, deleting={**self.deleting, **names})

    def forgotten(self, topic_ids: Iterable[bytes]) -> StatesOfPartitions:
        """Return the states after topics were deleted."""
        done = set(topic_ids)
        return self._replace(deleting={one: name for one, name in self.deleting.items() if one not in done})

    def names(self, topic_ids: Iterable[bytes]) -> bool:
        """Return whether one of some topics is in the states."""
        return any(
            topic_id in part for topic_id in topic_ids for part in (self.initializing, self.initialized, self.deleting)
        )

    def to_delete(self, topics: Topics) -> dict[bytes, TopicStates]:
        """Return all partitions that may have a state."""
        retried = {
            topic_id: TopicStates(topic.name, frozenset(range(topic.partitions)))
            for topic_id in self.deleting
            if (topic := topics.by_id.get(topic_id)) is not None
        }
        return joined(joined(self.initialized, self.initializing), retried)

    def all_deleting(self, topics: Topics) -> StatesOfPartitions:
        """Return the states of a group whose deletion has begun."""
        return StatesOfPartitions({}, {}, {topic_id: one.name for topic_id, one in self.to_delete(topics).items()})


NO_STATES = StatesOfPartitions({}, {}, {})
"""The states of a group that has no record of any."""


def joined(some: InitializedTopics, others: InitializedTopics) -> dict[bytes, TopicStates]:
    """Return both's partitions; topic names come from the second (combineInitMaps)."""
    found = dict(some)
    for topic_id, topic in others.items():
        former = found.get(topic_id)
        found[topic_id] = TopicStates(
            topic.name, topic.partitions if former is None else former.partitions | topic.partitions
        )
    return found


def _partitions(topics: InitializedTopics, topic_id: bytes) -> frozenset[int]:
    return topics[topic_id].partitions if topic_id in topics else frozenset()


def _name(topic_id: bytes, initializing: InitializedTopics, topics: Topics) -> str:
    if topic_id in topics.by_id:
        return topics.by_id[topic_id].name
    return initializing[topic_id].name if topic_id in initializing else "<UNKNOWN>"
