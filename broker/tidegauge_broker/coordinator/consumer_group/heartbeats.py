"""A member's heartbeat: it joins, changes its subscription, and moves one step towards its target.

Only the member of the heartbeat changes what it owns; a target that is computed for others waits for their own
heartbeats. A decision changes nothing by itself: its draft is written first.
Source: GroupMetadataManager.consumerGroupHeartbeat.
"""

from __future__ import annotations

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from typing import NamedTuple

from tidegauge.consumer_groups import JOINING_EPOCH, ConsumerGroupHeartbeat, ConsumerGroupHeartbeatResult
from tidegauge_broker.coordinator.consumer_group import refusals
from tidegauge_broker.coordinator.consumer_group.image import Draft
from tidegauge_broker.coordinator.consumer_group.member import (
    ConsumerMember,
    TopicPartitionId,
    as_assignment,
    owned_partitions,
    partitions_of,
)
from tidegauge_broker.coordinator.consumer_group.reconciling import FencedMemberEpochError, Reconciliation
from tidegauge_broker.coordinator.consumer_group.records import (
    current_record,
    epoch_record,
    member_tombstones,
    subscription_record,
    target_record,
)
from tidegauge_broker.coordinator.consumer_group.regexes import update_regex
from tidegauge_broker.coordinator.consumer_group.targets import add_target, may_compute, topic_ids_of
from tidegauge_broker.coordinator.consumer_group.topics import Topics


@dataclass(frozen=True, slots=True)
class Circumstances:
    """The context of a heartbeat beside its group.

    Attributes:
        topics: those that exist.
        assignors: names of the assignors that the broker offers; the first is the default.
        now_ms: the wall-clock time.
        heartbeat_interval_ms: for the response.
        assignment_interval_ms: within which the target is not computed again; 0: no limit.
        max_size: limit of the group's members.
        is_refresh_due: whether topics of the group may have changed since its last refresh.
    """

    topics: Topics
    assignors: Sequence[str]
    now_ms: int
    heartbeat_interval_ms: int
    assignment_interval_ms: int
    max_size: int
    is_refresh_due: bool


class Step(NamedTuple):
    """The step of a member that a request brings about.

    Attributes:
        member: after the request.
        has_bumped: whether the group's epoch rises.
    """

    member: ConsumerMember
    has_bumped: bool


class Beat(NamedTuple):
    """The result of a heartbeat.

    Attributes:
        result: its response, once the draft's records are committed.
        has_bumped: whether the group's epoch rises.
    """

    result: ConsumerGroupHeartbeatResult
    has_bumped: bool


def beat(draft: Draft, request: ConsumerGroupHeartbeat, met: Circumstances) -> Beat:
    """Decide about a heartbeat that is not a leave, and add its records to the draft.

    Raises:
        GroupRefusal: the heartbeat is refused, and the draft must not be written.
        AssignmentError: the assignor has found no assignment.
    """
    members = draft.image.members
    if len(members) >= met.max_size and request.member_id not in members:
        raise refusals.full(draft.image.group_id)
    former = _member(draft, request)
    now, has_bumped = advance(draft, former, _merged(former, request), owned_partitions(request.owned), met)
    lists_partitions = (
        request.member_epoch == JOINING_EPOCH
        or _is_full(request)
        or partitions_of(former.assigned) != partitions_of(now.assigned)
    )
    result = ConsumerGroupHeartbeatResult(
        member_id=now.member_id,
        member_epoch=now.epoch,
        heartbeat_interval_ms=met.heartbeat_interval_ms,
        assignment=as_assignment(now.assigned) if lists_partitions else None,
    )
    return Beat(result, has_bumped)


def advance(
    draft: Draft,
    former: ConsumerMember,
    member: ConsumerMember,
    owned: AbstractSet[TopicPartitionId] | None,
    met: Circumstances,
) -> Step:
    """Take over what a member says of itself, compute the target if it is due, and move the member towards it.

    Args:
        draft: the decision.
        former: the member before.
        member: with what its request says.
        owned: what it says that it owns; None: it has not said.
        met: what the request meets.

    Raises:
        GroupRefusal: the member's regular expression is refused.
        AssignmentError: the assignor has found no assignment.
    """
    group_id = draft.image.group_id
    bump = set(former.topic_names) != set(member.topic_names)
    if former.member_id not in draft.image.members or member != former:
        update = update_regex(draft, former, member)
        draft.add(subscription_record(group_id, member), *update.tombstones)
        bump = bump or update.bumps
    bumped = _bump(draft, met, bump=bump)
    if draft.image.assignment_epoch < draft.image.epoch and may_compute(
        draft.image.assignment_timestamp_ms, met.now_ms, met.assignment_interval_ms
    ):
        add_target(draft, member.member_id, met.topics, met.assignors, met.now_ms)
    has_subscription_changed = bump or former.topic_regex != member.topic_regex
    current = draft.image.members[former.member_id]
    now = _reconciled(draft, current, owned, met.topics, has_subscription_changed=has_subscription_changed)
    if now != current:
        draft.add(current_record(group_id, now))
    assert draft.image.assignment_epoch <= draft.image.epoch, (
        "a target is of the group's epoch (incoherence, at a load)"
    )
    return Step(now, bumped)


def _is_full(request: ConsumerGroupHeartbeat) -> bool:
    """Whether a heartbeat repeats all fields, as after a response that may be lost."""
    return (
        request.rebalance_timeout_ms != -1
        and (request.topic_names is not None or request.topic_regex is not None)
        and request.owned is not None
    )


def _member(draft: Draft, request: ConsumerGroupHeartbeat) -> ConsumerMember:
    """Return a heartbeat's member, which may be new or replace a static one."""
    if request.instance_id is not None:
        return _static_member(draft, request, request.instance_id)
    member = draft.image.members.get(request.member_id)
    if member is None:
        if request.member_epoch != JOINING_EPOCH:
            raise refusals.unknown_member(draft.image.group_id, request.member_id)
        return ConsumerMember(request.member_id)
    check_epoch(member, request)
    return member


def _static_member(draft: Draft, request: ConsumerGroupHeartbeat, instance_id: str) -> ConsumerMember:
    group_id, member_id = draft.image.group_id, request.member_id
    current_id = draft.image.static_members.get(instance_id)
    if request.member_epoch != JOINING_EPOCH:
        if current_id is None:
            raise refusals.unknown_instance(group_id, instance_id)
        if current_id != member_id:
            raise refusals.fenced_instance(member_id, instance_id, current_id)
        member = draft.image.members[current_id]
        check_epoch(member, request)
        return member
    if current_id is None:
        return ConsumerMember(member_id, instance_id)
    current = draft.image.members[current_id]
    if not current.has_left_for_a_while and current.classic is None:
        raise refusals.unreleased_instance(member_id, instance_id, current_id)
    replaced = replace(current, member_id=member_id, epoch=0, previous_epoch=0)
    replace_member(draft, current, replaced)
    return draft.image.members[member_id]


def replace_member(draft: Draft, former: ConsumerMember, now: ConsumerMember) -> None:
    """Let a static member take the place of its former incarnation, with its target and its partitions."""
    group_id = draft.image.group_id
    target = draft.image.targets.get(former.member_id, ())
    draft.add(
        *member_tombstones(group_id, former.member_id),
        subscription_record(group_id, now),
        target_record(group_id, now.member_id, target),
        current_record(group_id, now),
    )


def check_epoch(member: ConsumerMember, request: ConsumerGroupHeartbeat) -> None:
    """Check that a heartbeat has its member's epoch, or is the repeat of one whose response was lost.

    Raises:
        GroupRefusal: FENCED_MEMBER_EPOCH.
    """
    epoch = request.member_epoch
    if epoch in {JOINING_EPOCH, member.epoch}:
        return
    if epoch < member.epoch and epoch == member.previous_epoch:
        owned = owned_partitions(request.owned)
        if owned is not None and owned <= partitions_of(member.assigned):
            return
    raise refusals.wrong_epoch(epoch, member)


def _merged(member: ConsumerMember, request: ConsumerGroupHeartbeat) -> ConsumerMember:
    """Return a member with the fields of its heartbeat; absent ones stay."""
    names = member.topic_names if request.topic_names is None else tuple(sorted(set(request.topic_names)))
    timeout_ms = member.rebalance_timeout_ms if request.rebalance_timeout_ms == -1 else request.rebalance_timeout_ms
    return replace(
        member,
        instance_id=member.instance_id if request.instance_id is None else request.instance_id,
        rack_id=member.rack_id if request.rack_id is None else request.rack_id,
        rebalance_timeout_ms=timeout_ms,
        server_assignor=member.server_assignor if request.server_assignor is None else request.server_assignor,
        topic_names=member.topic_names if set(names) == set(member.topic_names) else names,
        topic_regex=member.topic_regex if request.topic_regex is None else request.topic_regex,
        client_id=request.client_id,
        client_host=request.client_host,
        classic=None,
    )


def _bump(draft: Draft, met: Circumstances, *, bump: bool) -> bool:
    """Raise the group's epoch if subscriptions, or the metadata of their topics, have changed."""
    if not bump and not met.is_refresh_due:
        return False
    image = draft.image
    metadata_hash = met.topics.hash_of(image.subscribed_topics())
    if not bump and metadata_hash == image.metadata_hash:
        return False
    draft.add(epoch_record(image.group_id, image.epoch + 1, metadata_hash))
    return True


def _reconciled(
    draft: Draft,
    member: ConsumerMember,
    owned: AbstractSet[TopicPartitionId] | None,
    topics: Topics,
    *,
    has_subscription_changed: bool,
) -> ConsumerMember:
    image = draft.image
    reconciliation = Reconciliation(
        epoch=image.assignment_epoch,
        target=image.targets.get(member.member_id, ()),
        topic_ids=frozenset(topic_ids_of(image, member, topics)),
        has_subscription_changed=has_subscription_changed,
        owned=owned,
        owners=image.owners,
    )
    try:
        return reconciliation.apply_to(member)
    except FencedMemberEpochError as problem:
        raise refusals.unreadable_state(member) from problem
