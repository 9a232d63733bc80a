"""Share groups (KIP-932) as a client has them: a coordinator's responses in plain values, and the requests for them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.kafka import apis
from tidegauge.kafka.messages.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsRequestPartition,
    AlterShareGroupOffsetsRequestTopic,
    AlterShareGroupOffsetsResponse,
)
from tidegauge.kafka.messages.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
    DescribeShareGroupOffsetsResponse,
)
from tidegauge.kafka.messages.share_group_describe import (
    Assignment,
    DescribedGroup,
    ShareGroupDescribeRequest,
    ShareGroupDescribeResponse,
)
from tidegauge.partition import TopicPartition, partitions_by_topic
from tidegauge.share_groups import NO_START_OFFSET, SHARE
from tidegauge_client.coordinators import Coordinator
from tidegauge_client.group_descriptions import GroupDescription, MemberDescription, Reconciliation
from tidegauge_client.kafka_wire import KafkaWire, raise_for

_NO_LAG = -1
_NOT_THERE = {ErrorCode.UNSUPPORTED_VERSION, ErrorCode.GROUP_ID_NOT_FOUND}
"""Errors of a coordinator without share groups, and of one without this group."""


class ShareOffset(NamedTuple):
    """The offset of a share partition.

    Attributes:
        start_offset: the first offset that may still be delivered; None: the group's reset decides.
        lag: number of records that are not done; None: it is not known.
    """

    start_offset: int | None
    lag: int | None


async def described_share_group(
    wire: KafkaWire, group_id: str, at: Coordinator, left_ms: float
) -> GroupDescription | None:
    """Return a share group; None if there is none of that name.

    Raises:
        TidegaugeError: as the coordinator responds.
    """
    request = ShareGroupDescribeRequest([group_id])
    try:
        response: ShareGroupDescribeResponse = await wire.ask(at.address, apis.SHARE_GROUP_DESCRIBE, request, left_ms)
        [group] = response.groups
        raise_for(group.error_code, group.error_message)
    except TidegaugeError as problem:
        if problem.code in _NOT_THERE:
            return None
        raise
    return share_group_of(group, at.broker_id)


async def described_share_offsets(
    wire: KafkaWire, group_id: str, at: Coordinator, left_ms: float
) -> dict[TopicPartition, ShareOffset]:
    """Return the offsets of a share group's partitions that are initialized.

    Raises:
        TidegaugeError: as the coordinator responds.
    """
    wanted = DescribeShareGroupOffsetsRequestGroup(group_id, None)
    response: DescribeShareGroupOffsetsResponse = await wire.ask(
        at.address, apis.DESCRIBE_SHARE_GROUP_OFFSETS, DescribeShareGroupOffsetsRequest([wanted]), left_ms
    )
    [group] = response.groups
    raise_for(group.error_code, group.error_message)
    found: dict[TopicPartition, ShareOffset] = {}
    for topic in group.topics:
        for one in topic.partitions:
            raise_for(one.error_code, one.error_message)
            start = None if one.start_offset == NO_START_OFFSET else one.start_offset
            lag = None if start is None or one.lag == _NO_LAG else one.lag
            found[TopicPartition(topic.topic_name, one.partition_index)] = ShareOffset(start, lag)
    return dict(sorted(found.items()))


def to_alter_share_offsets(group_id: str, offsets: Mapping[TopicPartition, int]) -> AlterShareGroupOffsetsRequest:
    """Return the request that begins partitions of a group at these offsets."""
    topics = [
        AlterShareGroupOffsetsRequestTopic(
            topic,
            [AlterShareGroupOffsetsRequestPartition(one, offsets[TopicPartition(topic, one)]) for one in partitions],
        )
        for topic, partitions in partitions_by_topic(offsets).items()
    ]
    return AlterShareGroupOffsetsRequest(group_id, topics)


def altered_share_offsets(
    response: AlterShareGroupOffsetsResponse,
) -> dict[TopicPartition, TidegaugeError | None]:
    """Return for each partition why its offset was not altered, or None."""
    found: dict[TopicPartition, TidegaugeError | None] = {}
    for topic in response.responses:
        for one in topic.partitions:
            code = ErrorCode.of(one.error_code)
            problem = None if code is ErrorCode.NONE else TidegaugeError(code, one.error_message or code.name)
            found[TopicPartition(topic.topic_name, one.partition_index)] = problem
    return found


def share_group_of(group: DescribedGroup, coordinator: int) -> GroupDescription:
    """Return a share group by Kafka's response; members are at their targets."""
    return GroupDescription(
        group.group_id,
        group.group_state,
        SHARE,
        group.assignor_name,
        tuple(
            MemberDescription(
                one.member_id,
                None,
                one.client_id,
                one.client_host,
                _partitions(one.assignment),
                reconciliation=Reconciliation(one.member_epoch, target=_partitions(one.assignment)),
            )
            for one in group.members
        ),
        coordinator,
        group.group_epoch,
        "",
        (),
        group_type=SHARE,
        assignment_epoch=group.assignment_epoch,
    )


def _partitions(assignment: Assignment | None) -> tuple[TopicPartition, ...]:
    held = [] if assignment is None else assignment.topic_partitions
    return tuple(sorted(TopicPartition(topic.topic_name, one) for topic in held for one in topic.partitions))
