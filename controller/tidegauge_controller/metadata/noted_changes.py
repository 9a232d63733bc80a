"""Brokers fenced or unfenced, and changed eligible leader replicas, between two images: for the event log. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from tidegauge.partition import TopicPartition, partition_named
from tidegauge_controller.metadata.image import MetadataImage, PartitionRegistration
from tidegauge_controller.metadata.sorted_map import SortedMap, differences

_NO_PARTITIONS: SortedMap[int, PartitionRegistration] = SortedMap()


class EligibleLeaders(NamedTuple):
    """A partition whose eligible leader replicas have changed (KIP-966).

    Attributes:
        at: the partition.
        old: the brokers that could lead it without a loss, beside the in-sync ones.
        new: those that can now.
        last_known: the last leader, while there is none.
    """

    at: TopicPartition
    old: tuple[int, ...]
    new: tuple[int, ...]
    last_known: tuple[int, ...]


def fencings(old: MetadataImage, new: MetadataImage) -> Iterator[tuple[int, bool]]:
    """Yield the brokers that the step from one image to another has fenced (True) or unfenced (False), by id.

    A broker's first registration is fenced, and no change.
    """
    for broker_id, was, broker in differences(old.brokers, new.brokers):
        if broker is not None and broker.fenced != (was is None or was.fenced):
            yield broker_id, broker.fenced


def changes_of_eligible_leaders(old: MetadataImage, new: MetadataImage) -> Iterator[EligibleLeaders]:
    """Yield the changes of eligible leader replicas, in the order of topic ids and partitions."""
    for _, was, topic in differences(old.topics, new.topics):
        if topic is None:
            continue
        before = _NO_PARTITIONS if was is None else was.partitions
        for partition, previous, current in differences(before, topic.partitions):
            if current is None:
                continue
            known = () if previous is None else previous.elr
            last_known = () if previous is None else previous.last_known_elr
            if (known, last_known) != (current.elr, current.last_known_elr):
                at = partition_named(topic.name, partition)
                yield EligibleLeaders(at, known, current.elr, current.last_known_elr)
