"""Committed offsets in the forms of OffsetCommit, TxnOffsetCommit, OffsetFetch and OffsetDelete. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any, NamedTuple

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.kafka.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
)
from tidegauge.partition import TopicPartition, partitions_by_topic

FIRST_WITH_SEVERAL_GROUPS = 8
"""First version of OffsetFetch with groups (KIP-709), the one that is used here."""


class OffsetAndMetadata(NamedTuple):
    """A committed offset: the next one to read."""

    offset: int
    leader_epoch: int = -1
    metadata: str = ""


def topics_to_commit(
    offsets: Mapping[TopicPartition, OffsetAndMetadata], of_topic: Any, of_partition: Any
) -> list[Any]:
    """Return offsets as requests have them that commit them.

    Args:
        offsets: by partition.
        of_topic: class of a topic in the request: OffsetCommit's or TxnOffsetCommit's.
        of_partition: class of a partition in it.
    """
    return [
        of_topic(
            topic,
            partitions=[
                of_partition(
                    index, one.offset, committed_leader_epoch=one.leader_epoch, committed_metadata=one.metadata or None
                )
                for index in indexes
                for one in (offsets[TopicPartition(topic, index)],)
            ],
        )
        for topic, indexes in partitions_by_topic(offsets).items()
    ]


def errors_of(topics: Collection[Any]) -> dict[TopicPartition, ErrorCode]:
    """Return the errors of a response to OffsetCommit, TxnOffsetCommit or OffsetDelete, by partition."""
    return {
        TopicPartition(topic.name, one.partition_index): ErrorCode.of(one.error_code)
        for topic in topics
        for one in topic.partitions
    }


def outcomes_of(topics: Collection[Any]) -> dict[TopicPartition, TidegaugeError | None]:
    """Return for each partition of such a response why it failed, or None."""
    return {at: None if code is ErrorCode.NONE else TidegaugeError(code) for at, code in errors_of(topics).items()}


def to_fetch(
    group_id: str, partitions: Collection[TopicPartition] | None, *, require_stable: bool = False
) -> OffsetFetchRequest:
    """Return the request for a group's committed offsets; partitions None: all."""
    topics = None
    if partitions is not None:
        topics = [
            OffsetFetchRequestTopics(name, partition_indexes=numbers)
            for name, numbers in partitions_by_topic(partitions).items()
        ]
    return OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id, topics=topics)], require_stable=require_stable)


def fetched(
    response: OffsetFetchResponse,
) -> Iterator[tuple[TopicPartition, OffsetAndMetadata | TidegaugeError | None]]:
    """Yield the committed offset of each partition, None if there is none, or why it is not known.

    Raises:
        TidegaugeError: of the whole group.
    """
    [group] = response.groups
    if group.error_code:
        raise TidegaugeError(ErrorCode.of(group.error_code))
    for topic in group.topics:
        for one in topic.partitions:
            at = TopicPartition(topic.name, one.partition_index)
            if one.error_code:
                yield at, TidegaugeError(ErrorCode.of(one.error_code))
            elif one.committed_offset < 0:
                yield at, None
            else:
                yield at, OffsetAndMetadata(one.committed_offset, one.committed_leader_epoch, one.metadata or "")
