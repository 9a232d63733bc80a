"""From start and end offsets to what each Spark task reads; and what counts as lost data.

Contract: pure and deterministic: the same offsets, options and partitions give the same list in the same order, so that
a batch that is run again reads the same records in the same tasks.

- A range is [from_offset, until_offset) of one partition; an empty one is no task.
- A partition that is new in ``end`` begins at the earliest offset; if that is not 0, earlier records were lost.
- A partition that is missing in ``end``, or an end below its start, is lost data.
- A topic that was deleted and created again has another id (KIP-516); what was not read of the old one is lost, and the
  new one is read from its beginning.

Source: ``KafkaOffsetReaderAdmin.getOffsetRangesFromResolvedOffsets``, ``KafkaOffsetRangeCalculator`` of Spark.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.partition import TopicPartition
from tidegauge_spark.offsets import Offsets

GROUP_ABOVE = 8
"""Maximum number of ranges of which each has a task of its own, as with Kafka's source."""
GROUP_OFFSETS = 20_000
"""Maximum number of offsets that share a task; they take less time than the task itself (1 us each, and 50 ms)."""


class OffsetRange(NamedTuple):
    """What one task reads: [from_offset, until_offset) of one partition."""

    topic_partition: TopicPartition
    from_offset: int
    until_offset: int

    @property
    def size(self) -> int:
        """Return the number of offsets that it spans."""
        return self.until_offset - self.from_offset


class Plan(NamedTuple):
    """The tasks of a batch, and a sentence for each loss."""

    ranges: list[OffsetRange]
    losses: list[str]


def recreated_partitions(offsets: Offsets, before: Mapping[str, str], after: Mapping[str, str]) -> set[TopicPartition]:
    """Return the partitions of topics whose id has changed; a topic with an unknown id is left out."""
    others = {topic for topic, topic_id in before.items() if after.get(topic, topic_id) != topic_id}
    return {one for one in offsets if one.topic in others}


def without(offsets: Offsets, left_out: Collection[TopicPartition]) -> dict[TopicPartition, int]:
    """Return the offsets of the other partitions."""
    return {one: offset for one, offset in offsets.items() if one not in left_out}


def losses_by_deletion(recreated: Collection[TopicPartition], read: Offsets) -> list[str]:
    """Return a sentence for each topic that was deleted and created again; ``read`` says how far it was read."""
    topics = sorted({one.topic for one in recreated})
    places = {topic: [one for one in sorted(recreated) if one.topic == topic] for topic in topics}
    return [
        f"Topic {topic} was deleted and created again since it was read up to offset "
        + ", ".join(f"{read[one]} of {one}" for one in places[topic])
        for topic in topics
    ]


def check_start_before_end(start: Offsets, end: Offsets) -> None:
    """Check Spark's rule for a batch query, whatever failOnDataLoss says: no start is behind its end.

    Raises:
        TidegaugeError: INVALID_REQUEST, one is.
    """
    for one in sorted(start):
        if start[one] > end[one]:
            raise TidegaugeError(
                ErrorCode.INVALID_REQUEST,
                f"The resolved start offset {start[one]} is greater than the resolved end offset {end[one]} for topic "
                f"{one.topic} partition {one.partition}: the start is beyond the latest offset or beyond the end "
                "that the options say, or the topic was created again",
            )


def plan_batch(start: Offsets, end: Offsets, earliest_of_new: Mapping[TopicPartition, int]) -> Plan:
    """Return the ranges between two offsets of a query.

    Args:
        start: where the batch begins.
        end: where it ends (exclusive).
        earliest_of_new: the earliest offset of each partition that is in ``end`` but not in ``start``.
    """
    losses = [
        f"Partition {partition} is gone; some data may have been missed" for partition in sorted(start.keys() - end)
    ]
    ranges: list[OffsetRange] = []
    for partition in sorted(end):
        until = end[partition]
        if partition in start:
            begin = start[partition]
            if until < begin:
                losses.append(
                    f"Partition {partition}'s offset was changed from {begin} to {until}; some data may be missed"
                )
        else:
            begin = earliest_of_new[partition]
            if begin != 0:
                losses.append(f"Added partition {partition} starts from {begin} instead of 0; some data may be missed")
        if until > begin:
            ranges.append(OffsetRange(partition, begin, until))
    return Plan(ranges, losses)


def split_ranges(
    ranges: Sequence[OffsetRange], min_partitions: int | None, max_records: int | None = None
) -> list[OffsetRange]:
    """Split large ranges: none above ``max_records`` offsets, then about ``min_partitions`` tasks."""
    pieces: list[OffsetRange] = []
    for one in ranges:
        pieces += _divide(one, 1 if max_records is None else math.ceil(one.size / max_records))
    if min_partitions is None or len(pieces) >= min_partitions:
        return pieces
    total = sum(one.size for one in pieces)
    whole = [one for one in pieces if _share(one.size, total, min_partitions) == 1]
    rest_size = total - sum(one.size for one in whole)
    rest_tasks = max(1, min_partitions - len(whole))
    kept = set(whole)
    return [
        piece for one in pieces for piece in _divide(one, 1 if one in kept else _share(one.size, rest_size, rest_tasks))
    ]


def group_ranges(ranges: Sequence[OffsetRange]) -> list[list[OffsetRange]]:
    """Return what each task reads: if there are many ranges, neighbours that are small together share one.

    A task of a Python source costs some 50 ms, so many partitions with a few records each would take seconds. No order
    changes, and large ranges stay alone.
    """
    if len(ranges) <= GROUP_ABOVE:
        return [[one] for one in ranges]
    groups: list[list[OffsetRange]] = []
    size = 0
    for one in ranges:
        if groups and size + one.size <= GROUP_OFFSETS:
            groups[-1].append(one)
            size += one.size
        else:
            groups.append([one])
            size = one.size
    return groups


def _share(size: int, total: int, tasks: int) -> int:
    return max(1, int(size / total * tasks + 0.5))


def _divide(one: OffsetRange, parts: int) -> list[OffsetRange]:
    """Return pieces of nearly equal size; the later ones take the rest."""
    parts = min(parts, one.size)
    pieces: list[OffsetRange] = []
    begin = one.from_offset
    for index in range(parts):
        size = (one.until_offset - begin) // (parts - index)
        pieces.append(OffsetRange(one.topic_partition, begin, begin + size))
        begin += size
    return pieces
