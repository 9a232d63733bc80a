"""A share group member's heartbeat: it joins, changes its subscription, and takes over its target assignment at once.

Partitions are taken from a member without asking it: two members may fetch the same one, the leader of the partition
gives each record to one of them (KIP-932). A decision changes nothing by itself: its draft is written first.
Source: GroupMetadataManager (shareGroupHeartbeat, initializedAssignmentPending, shareGroupLeave);
ShareGroupAssignmentBuilder.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

from tidegauge.consumer_groups import JOINING_EPOCH
from tidegauge.errors import ErrorCode
from tidegauge.share_groups import ShareGroupHeartbeat, ShareGroupHeartbeatResult
from tidegauge_broker.coordinator.consumer_group.assignors.java_order import java_set, order_in_copied_set
from tidegauge_broker.coordinator.consumer_group.assignors.subscription import GroupToAssign, Member, Partitions
from tidegauge_broker.coordinator.consumer_group.refusals import GroupRefusal, unknown_member
from tidegauge_broker.coordinator.consumer_group.targets import as_sets, may_compute, with_java_order
from tidegauge_broker.coordinator.consumer_group.topics import Topics
from tidegauge_broker.coordinator.share_group import simple
from tidegauge_broker.coordinator.share_group.image import ShareDraft, ShareGroupImage
from tidegauge_broker.coordinator.share_group.member import ShareMember
from tidegauge_broker.coordinator.share_group.records import (
    current_record,
    epoch_record,
    member_tombstones,
    states_record,
    subscription_record,
    target_epoch_record,
    target_record,
)
from tidegauge_broker.coordinator.share_group.states import TopicStates


@dataclass(frozen=True, slots=True)
class ShareCircumstances:
    """The context of a heartbeat beside its group.

    Attributes:
        topics: those that exist.
        now_ms: the wall-clock time.
        heartbeat_interval_ms: for the response.
        assignment_interval_ms: within which the target is not computed again; 0: no limit.
        max_size: limit of the group's members.
        is_refresh_due: whether topics of the group may have changed since its last refresh.
        retries_initialization: whether partitions that are initializing have been so for too long.
    """

    topics: Topics
    now_ms: int
    heartbeat_interval_ms: int
    assignment_interval_ms: int
    max_size: int
    is_refresh_due: bool
    retries_initialization: bool


class ShareBeat(NamedTuple):
    """The result of a heartbeat.

    Attributes:
        result: its response, once the draft's records are committed.
        has_bumped: whether the group's epoch rises.
        to_initialize: partitions whose states the share coordinator is to begin, by topic id.
    """

    result: ShareGroupHeartbeatResult
    has_bumped: bool
    to_initialize: Mapping[bytes, TopicStates]


def beat(draft: ShareDraft, request: ShareGroupHeartbeat, met: ShareCircumstances) -> ShareBeat:
    """Decide about a heartbeat that is not a leave, and add its records to the draft.

    Raises:
        GroupRefusal: the heartbeat is refused, and the draft must not be written.
    """
    group_id = draft.image.group_id
    former = _member(draft.image, request, met)
    member = _merged(former, request)
    bump = set(member.topic_names) != set(former.topic_names) or _has_new_partitions(draft.image)
    if former.member_id not in draft.image.members or member != former:
        draft.add(subscription_record(group_id, member))
    has_bumped = _bump(draft, met, bump=bump)
    if draft.image.assignment_epoch < draft.image.epoch and may_compute(
        draft.image.assignment_timestamp_ms, met.now_ms, met.assignment_interval_ms
    ):
        _add_target(draft, met)
    now = _reconciled(draft.image, draft.image.members[member.member_id], met.topics, has_changed=has_bumped)
    if now != draft.image.members[member.member_id]:
        draft.add(current_record(group_id, now))
    to_initialize = draft.image.known_states.missing(
        draft.image.subscribed_topics(), met.topics, retries=met.retries_initialization
    )
    if to_initialize:
        draft.add(states_record(group_id, draft.image.known_states.begun(to_initialize)))
    lists_partitions = (
        request.member_epoch == JOINING_EPOCH
        or request.topic_names is not None
        or as_sets(former.assigned) != as_sets(now.assigned)
    )
    assert draft.image.assignment_epoch <= draft.image.epoch, (
        "a target is of the group's epoch (incoherence, at a load)"
    )
    result = ShareGroupHeartbeatResult(
        member_id=now.member_id,
        member_epoch=now.epoch,
        heartbeat_interval_ms=met.heartbeat_interval_ms,
        assignment=now.assigned if lists_partitions else None,
    )
    return ShareBeat(result, has_bumped, to_initialize)


def _member(image: ShareGroupImage, request: ShareGroupHeartbeat, met: ShareCircumstances) -> ShareMember:
    """Return the member that sends a heartbeat, which may be new."""
    member = image.members.get(request.member_id)
    if member is None:
        if len(image.members) >= met.max_size:
            raise GroupRefusal(
                ErrorCode.GROUP_MAX_SIZE_REACHED,
                f"The share group has reached its maximum capacity of {met.max_size} members.",
            )
        if request.member_epoch != JOINING_EPOCH:
            raise unknown_member(image.group_id, request.member_id)
        return ShareMember(request.member_id)
    _check_epoch(member, request.member_epoch)
    return member


def _check_epoch(member: ShareMember, epoch: int) -> None:
    """Check that a heartbeat has its member's epoch, or the one before: the response with the new one may be lost."""
    if epoch in {JOINING_EPOCH, member.epoch}:
        return
    rejoin = "The member must abandon all its partitions and rejoin."
    known = f"than the one known by the group coordinator ({member.epoch})"
    if epoch > member.epoch:
        raise GroupRefusal(
            ErrorCode.FENCED_MEMBER_EPOCH,
            f"The share group member has a greater member epoch ({epoch}) {known}. {rejoin}",
        )
    if epoch != member.previous_epoch:
        raise GroupRefusal(
            ErrorCode.FENCED_MEMBER_EPOCH,
            f"The share group member has a smaller member epoch ({epoch}) {known}, and it does not match the previous "
            f"member epoch ({member.previous_epoch}). {rejoin}",
        )


def _merged(member: ShareMember, request: ShareGroupHeartbeat) -> ShareMember:
    """Return a member with the fields of its heartbeat; absent ones stay."""
    names = member.topic_names if request.topic_names is None else tuple(sorted(set(request.topic_names)))
    return replace(
        member,
        rack_id=member.rack_id if request.rack_id is None else request.rack_id,
        topic_names=member.topic_names if set(names) == set(member.topic_names) else names,
        client_id=request.client_id,
        client_host=request.client_host,
    )


def _has_new_partitions(image: ShareGroupImage) -> bool:
    """Whether the target lacks initialized partitions, or has others, and no new target is awaited."""
    if image.assignment_epoch < image.epoch or not image.members:
        return False
    subscribed = image.subscribed_topics()
    assigned: dict[bytes, set[int]] = {}
    for target in image.targets.values():
        for topic_id, partitions in target:
            assigned.setdefault(topic_id, set()).update(partitions)
    return any(
        topic.name in subscribed and assigned.get(topic_id) != set(topic.partitions)
        for topic_id, topic in image.known_states.initialized.items()
    )


def _bump(draft: ShareDraft, met: ShareCircumstances, *, bump: bool) -> bool:
    """Raise the group's epoch if there is a reason, or the metadata of its topics have changed."""
    if not bump and not met.is_refresh_due:
        return False
    image = draft.image
    metadata_hash = met.topics.hash_of(image.subscribed_topics())
    if not bump and metadata_hash == image.metadata_hash:
        return False
    draft.add(epoch_record(image.group_id, image.epoch + 1, metadata_hash))
    return True


def _add_target(draft: ShareDraft, met: ShareCircumstances) -> None:
    """Compute the target for the group's epoch, and add the records of those that change, and of the epoch."""
    image = draft.image
    members = {
        member_id: Member(
            _topic_ids(image.members[member_id], met.topics), with_java_order(image.targets.get(member_id, ()))
        )
        for member_id in java_set(image.members.in_order())
    }
    counts = {
        topic_id: met.topics.by_id[topic_id].partitions for member in members.values() for topic_id in member.topics
    }
    assigned = simple.assign(GroupToAssign(members, counts, image.is_homogeneous, image.known_states.assignable))
    for member_id in members:
        target: Partitions = assigned.get(member_id, ())
        former = image.targets.get(member_id)
        if former is None or as_sets(former) != as_sets(target):
            draft.add(target_record(image.group_id, member_id, target))
    draft.add(target_epoch_record(image.group_id, draft.image.epoch, met.now_ms))


def _topic_ids(member: ShareMember, topics: Topics) -> tuple[bytes, ...]:
    known = [name for name in member.topic_names if name in topics.by_name]
    return tuple(topics.by_name[name].topic_id for name in order_in_copied_set(known, len(member.topic_names)))


def _reconciled(image: ShareGroupImage, member: ShareMember, topics: Topics, *, has_changed: bool) -> ShareMember:
    """Return a member with its target's partitions of subscribed topics."""
    if member.epoch == image.assignment_epoch and not has_changed:
        return member
    subscribed = set(_topic_ids(member, topics))
    target = image.targets.get(member.member_id, ())
    assigned = tuple(one for one in target if one[0] in subscribed)
    if member.epoch == image.assignment_epoch:
        return member if as_sets(member.assigned) == as_sets(assigned) else replace(member, assigned=assigned)
    return replace(member, epoch=image.assignment_epoch, previous_epoch=member.epoch, assigned=assigned)


def leave(draft: ShareDraft, member_id: str, topics: Topics) -> None:
    """Remove a member, which leaves or was not heard of; others get its partitions from the next target on.

    Raises:
        GroupRefusal: UNKNOWN_MEMBER_ID.
    """
    image = draft.image
    if member_id not in image.members:
        raise unknown_member(image.group_id, member_id)
    metadata_hash = topics.hash_of(image.subscribed_topics([member_id]))
    draft.add(
        *member_tombstones(image.group_id, member_id), epoch_record(image.group_id, image.epoch + 1, metadata_hash)
    )
