"""Explain a share group (KIP-932) as a whole: its members, and what of which partition is not done. Pure.

Which record is where ``share_explanation`` says. Source: ShareGroup and GroupMetadataManager of Kafka 4.3.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from tidegauge.counted import counted
from tidegauge.partition import TopicPartition
from tidegauge_client.group_descriptions import GroupDescription, MemberDescription
from tidegauge_client.group_sentences import lasting, session_left
from tidegauge_client.sentences import Sentence
from tidegauge_client.share_groups import ShareOffset

RULE_EMPTY = (
    "a share group does not expire, and neither do its start offsets: both stay until the group is deleted "
    "(ShareGroup.shouldExpire)"
)
RULE_STABLE = (
    "members of a share group share partitions: one may be assigned to several of them, each gets other records of it, "
    "and none waits for another one to give it up (KIP-932)"
)
RULE_BEHIND = (
    "a member takes up its assignment by its own heartbeat; one that is not heard of for the session timeout is "
    "removed (GroupMetadataManager.scheduleShareGroupSessionTimeout)"
)
RULE_IDLE = (
    "partitions of the topics that a member subscribes to are assigned to it, as far as they exist and the state of "
    "their share partitions is initialized (GroupMetadataManager.shareGroupHeartbeat)"
)
RULE_UNREAD = "records are delivered to members whose assignment has the partition"
RULE_RESET = (
    "share.auto.offset.reset of the group decides where a share partition without start offset begins, and the "
    "first write makes that durable (SharePartition.maybeInitialize)"
)
RULE_LAG = (
    "the lag of a share partition is the high watermark minus the start offset, minus the records between them that "
    "are done (KIP-1226)"
)


def share_group_state(group: GroupDescription) -> Iterator[Sentence]:
    """Explain the state of a share group, and each member that has not reached its target."""
    if not group.members:
        yield Sentence(
            "group",
            f"The share group has no members{lasting(group)}: nothing is delivered, and it begins again where it "
            "stopped.",
            RULE_EMPTY,
            "a share consumer that joins it, or `tidegauge delete-group`",
        )
        return
    yield Sentence(
        "group",
        f"The share group is {group.state}{lasting(group)} in epoch {group.generation} with "
        f"{counted(len(group.members), 'member')}, assigned by {group.protocol_name}.",
        RULE_STABLE,
    )
    for member in group.members:
        yield from _member(group, member)


def _member(group: GroupDescription, member: MemberDescription) -> Iterator[Sentence]:
    name, how_far = f"Member {member.member_id} ({member.client_id})", member.reconciliation
    if how_far is not None and how_far.epoch < group.assignment_epoch:
        yield Sentence(
            "member",
            f"{name} is in epoch {how_far.epoch}, and has not heard of the assignment of epoch "
            f"{group.assignment_epoch}{session_left(member)}.",
            RULE_BEHIND,
            "its next heartbeat",
            member.member_id,
            member.session_left_ms,
        )
    elif not member.assignment:
        yield Sentence(
            "member",
            f"{name} is assigned no partition, so nothing is delivered to it.",
            RULE_IDLE,
            "a subscription to a topic that exists, or the end of the initialization",
            member.member_id,
        )


def share_group_lag(group: GroupDescription, offsets: Mapping[TopicPartition, ShareOffset]) -> Iterator[Sentence]:
    """Explain which records are not done, and of which partitions no member gets any."""
    open_ones = sorted(at for at, one in offsets.items() if one.start_offset is None)
    if open_ones:
        yield Sentence(
            "lag",
            f"{_named(open_ones)} {'has' if len(open_ones) == 1 else 'have'} no start offset yet: nothing that members "
            "said of records there is written.",
            RULE_RESET,
            "the first acknowledgement or release",
        )
    lags = {at: one.lag for at, one in sorted(offsets.items()) if one.lag is not None}
    held = {at for member in group.members for at in member.assignment}
    unread = [at for at, lag in lags.items() if lag and at not in held]
    if unread and group.members:
        yield Sentence(
            "lag",
            f"No member is assigned {_named(unread)}: {', '.join(f'{lags[at]} of {at}' for at in unread)} "
            f"{'is' if sum(lags[at] for at in unread) == 1 else 'are'} delivered to none.",
            RULE_UNREAD,
            "a member that subscribes to the topic",
        )
    if lags:
        total, most = sum(lags.values()), max(lags, key=lambda at: lags[at])
        where = f", the largest in {most} ({lags[most]})" if total and len(lags) > 1 else ""
        yield Sentence(
            "lag",
            f"{counted(total, 'offset')} over {counted(len(lags), 'partition')} {'is' if total == 1 else 'are'} not "
            f"done{where}.",
            RULE_LAG,
            f"acknowledgements: `tidegauge explain share:{group.group_id}/{most}` names each record" if total else "",
        )


def _named(partitions: list[TopicPartition]) -> str:
    return ", ".join(map(str, partitions))
