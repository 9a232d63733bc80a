"""The commits and fetches of offsets that a consumer group accepts, by member epochs.

A commit with the member's own epoch is accepted for any partition, one with an older epoch for partitions that the
member has been assigned at that epoch or before (KIP-1251). One partition that is refused refuses the whole request.
Source: ConsumerGroup (validateOffsetCommit, validateOffsetFetch), OffsetMetadataManager.
"""

from __future__ import annotations

from collections.abc import Iterable

from tidegauge.errors import ErrorCode
from tidegauge.groups import OffsetFetch
from tidegauge.partition import TopicPartition
from tidegauge_broker.coordinator.consumer_group.image import GroupImage
from tidegauge_broker.coordinator.consumer_group.member import ConsumerMember
from tidegauge_broker.coordinator.consumer_group.topics import Topics


def commit_error(
    image: GroupImage,
    topics: Topics,
    member_id: str,
    epoch: int,
    partitions: Iterable[TopicPartition],
    *,
    knows_epochs: bool,
    is_transactional: bool = False,
) -> ErrorCode:
    """Return the error of a commit as a whole, or NONE.

    Args:
        image: the group.
        topics: those that exist.
        member_id: of the request.
        epoch: the member epoch, or the generation of a member with the classic protocol.
        partitions: that offsets are committed of.
        knows_epochs: whether the request's version has member epochs: OffsetCommit v9 and later.
        is_transactional: whether it is a TxnOffsetCommit that names a member.
    """
    if epoch < 0 and not image.members:
        return ErrorCode.NONE
    member = image.members.get(member_id)
    if member is None:
        return ErrorCode.UNKNOWN_MEMBER_ID
    if member.classic is None and not knows_epochs and not is_transactional:
        return ErrorCode.UNSUPPORTED_VERSION
    stale = _stale(member)
    if epoch == member.epoch:
        return ErrorCode.NONE
    if epoch > member.epoch:
        return stale
    return ErrorCode.NONE if all(_may_commit(member, topics, one, epoch) for one in partitions) else stale


def _may_commit(member: ConsumerMember, topics: Topics, at: TopicPartition, epoch: int) -> bool:
    """Whether the member has had a partition since an epoch that is not above the request's."""
    topic = topics.by_name.get(at.topic)
    if topic is None:
        return False
    for epochs in (member.assigned, member.pending_revocation):
        assigned_at = epochs.get(topic.topic_id, {}).get(at.partition)
        if assigned_at is not None:
            return assigned_at <= epoch
    return False


def fetch_error(image: GroupImage, request: OffsetFetch) -> ErrorCode:
    """Return the error of an offset fetch as a whole, or NONE."""
    if request.member_id is None and request.member_epoch < 0:
        return ErrorCode.NONE
    member = image.members.get(request.member_id or "")
    if member is None:
        return ErrorCode.UNKNOWN_MEMBER_ID
    return ErrorCode.NONE if request.member_epoch == member.epoch else _stale(member)


def _stale(member: ConsumerMember) -> ErrorCode:
    return ErrorCode.STALE_MEMBER_EPOCH if member.classic is None else ErrorCode.ILLEGAL_GENERATION
