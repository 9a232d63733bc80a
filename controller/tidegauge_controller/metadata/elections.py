"""The partitions that got a leader or lost theirs between two images, and the strategy: for the event log. Pure.

Records say who leads, not why. The strategy is what the images show: an unclean election makes a leader that is
recovering (KIP-966), a controlled shutdown takes from a broker that has asked for it (KIP-631), a preferred election
gives back to the first replica what another live one led, a reassignment changes the replicas (KIP-455).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from tidegauge.partition import TopicPartition, partition_named
from tidegauge_controller.metadata.image import MetadataImage, PartitionRegistration
from tidegauge_controller.metadata.sorted_map import SortedMap, differences
from tidegauge_controller.rules.election import Strategy

_NO_PARTITIONS: SortedMap[int, PartitionRegistration] = SortedMap()


class Elected(NamedTuple):
    """A partition whose leader epoch has changed, or that is new.

    Attributes:
        at: the partition.
        strategy: how its leader was chosen, or why there is none.
        state: the state in force now.
    """

    at: TopicPartition
    strategy: Strategy
    state: PartitionRegistration


def elections(old: MetadataImage, new: MetadataImage) -> Iterator[Elected]:
    """Yield the elections of the step from one image to another, in the order of topic ids and partitions."""
    for _, was, topic in differences(old.topics, new.topics):
        if topic is None:
            continue
        before = _NO_PARTITIONS if was is None else was.partitions
        for partition, previous, current in differences(before, topic.partitions):
            if current is not None and (previous is None or previous.leader_epoch != current.leader_epoch):
                yield Elected(partition_named(topic.name, partition), _strategy(previous, current, new), current)


def _strategy(previous: PartitionRegistration | None, current: PartitionRegistration, image: MetadataImage) -> Strategy:
    if previous is None:
        return Strategy.INITIAL
    if current.recovering and not previous.recovering:
        return Strategy.UNCLEAN
    if current.replicas != previous.replicas:
        return Strategy.REASSIGN
    former = image.brokers.get(previous.leader)
    if former is None or former.fenced:
        return Strategy.OFFLINE
    if former.in_controlled_shutdown:
        return Strategy.CONTROLLED_SHUTDOWN
    return Strategy.PREFERRED if current.has_preferred_leader else Strategy.OFFLINE
