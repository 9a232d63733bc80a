"""``explain group:G``: why a consumer or share group rebalances, stands still or lags, and whom it waits for.

The facts come from the metadata, from the group's coordinator, and from the leaders of the partitions that it reads.
Nothing is created: __consumer_offsets comes with the first consumer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

from tidegauge.counted import counted
from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.groups import OFFSETS_TOPIC, partition_of
from tidegauge.partition import TopicPartition
from tidegauge_client.admin import EARLIEST, LATEST, Admin
from tidegauge_client.admin_groups import GroupDescription
from tidegauge_client.group_explanation import GroupFacts, OffsetsPartition
from tidegauge_client.group_tables import offset_rows
from tidegauge_client.metadata import ClusterInfo, newest_of, newest_view
from tidegauge_client.share_groups import ShareOffset
from tidegauge_client.topic_description import MIN_ISR, settings_of

_ATTEMPT_MS = 2_000
_OUT_OF_SERVICE = "out of service"


async def gather_group(admin: Admin, group_id: str) -> GroupFacts:
    """Gather what the cluster knows of a group.

    Raises:
        TidegaugeError: no broker responds.
    """
    views = await admin.metadata_of_all([OFFSETS_TOPIC])
    live = newest_view(views).live
    held = await internal_partition(admin, views, OFFSETS_TOPIC, group_id)
    if held is None:
        return GroupFacts(group_id, None, live)
    try:
        group = await admin.describe_group(group_id, timeout_ms=_ATTEMPT_MS)
    except TidegaugeError as problem:
        code = refusal(held, problem)
        is_refused = code is ErrorCode.UNKNOWN_SERVER_ERROR and _OUT_OF_SERVICE in problem.message
        return GroupFacts(group_id, held, live, problem=code, refusal=problem.message if is_refused else "")
    known = GroupFacts(group_id, held, live, group)
    try:
        return await _with_lag(admin, known, group)
    except TidegaugeError as problem:
        return replace(known, problem=problem.code)


async def internal_partition(
    admin: Admin, views: Mapping[int, ClusterInfo], topic: str, key: str
) -> OffsetsPartition | None:
    """Return the partition of a group or transactional id, by newest metadata, if any.

    Args:
        admin: the client.
        views: what brokers say of the topic, by the broker that says it.
        topic: __consumer_offsets or __transaction_state.
        key: the id.
    """
    parts = {part.topic_partition: part for part in newest_of(views) if part.topic == topic}
    if not parts:
        return None
    at = TopicPartition(topic, partition_of(key, len(parts)))
    part = parts[at]
    settings, _ = await settings_of(admin, topic)
    configs = {config.name: config.value for config in settings}
    return OffsetsPartition(
        at, part.leader_id, part.leader_epoch, tuple(part.replicas), tuple(part.isr), int(configs.get(MIN_ISR) or 1)
    )


def refusal(held: OffsetsPartition | None, problem: TidegaugeError) -> ErrorCode:
    """Return why a coordinator says nothing; without a leader every client gets COORDINATOR_NOT_AVAILABLE.

    The attempts may have ended by their timeout, which says less (KafkaApis.getCoordinator).
    """
    is_leaderless = held is not None and held.leader is None
    return ErrorCode.COORDINATOR_NOT_AVAILABLE if is_leaderless else problem.code


async def _with_lag(admin: Admin, facts: GroupFacts, group: GroupDescription) -> GroupFacts:
    """Return the facts with a group's partitions: lags, leaderless and missing ones."""
    if group.is_share_group:
        return await _with_share_lag(admin, facts, group)
    committed = await admin.committed_offsets(group.group_id, timeout_ms=_ATTEMPT_MS)
    partitions = sorted({*committed, *(at for member in group.members for at in member.assignment)})
    views = await admin.metadata_of_all(sorted({at.topic for at in partitions}))
    newest = newest_view(views)
    leaders = {part.topic_partition: part.leader_id for part in newest_of(views)}

    async def offset_at(at: TopicPartition, place: int) -> dict[TopicPartition, int]:
        try:
            found = await admin.list_offsets({at: place}, timeout_ms=_ATTEMPT_MS)
        except TidegaugeError:
            return {}
        return {one: found_at.offset for one, found_at in found.items()}

    async def offsets_at(places: Collection[TopicPartition], place: int) -> dict[TopicPartition, int]:
        found = await asyncio.gather(*(offset_at(at, place) for at in places))
        return {at: offset for one in found for at, offset in one.items()}

    led = [at for at in partitions if leaders.get(at) in newest.brokers]
    starts = await offsets_at([at for at in led if at in committed], EARLIEST)
    ends = await offsets_at(led, LATEST)
    return replace(_with_places(facts, views, partitions), rows=offset_rows(group, committed, ends), starts=starts)


async def _with_share_lag(admin: Admin, facts: GroupFacts, group: GroupDescription) -> GroupFacts:
    """Return the facts with a group's share partitions, with offsets if known."""
    offsets: dict[TopicPartition, ShareOffset] = {}
    problem = ErrorCode.NONE
    try:
        offsets = await admin.share_offsets(group.group_id, timeout_ms=_ATTEMPT_MS)
    except TidegaugeError as refused:
        problem = refused.code
    partitions = sorted({*offsets, *(at for member in group.members for at in member.assignment)})
    views = await admin.metadata_of_all(sorted({at.topic for at in partitions}))
    return replace(_with_places(facts, views, partitions), share_offsets=offsets, problem=problem)


def _with_places(
    facts: GroupFacts, views: Mapping[int, ClusterInfo], partitions: Collection[TopicPartition]
) -> GroupFacts:
    """Return the facts with leaderless and nonexistent partitions."""
    newest = newest_view(views)
    leaders = {part.topic_partition: part.leader_id for part in newest_of(views)}
    return replace(
        facts,
        leaderless=frozenset(at for at in partitions if at in leaders and leaders[at] not in newest.live),
        deleted=frozenset(at for at in partitions if at not in leaders and _is_unknown(newest, at)),
    )


def _is_unknown(view: ClusterInfo, at: TopicPartition) -> bool:
    """Return whether a view denies that a partition exists."""
    topic = view.topics.get(at.topic)
    return (
        topic is None
        or topic.error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        or (topic.error is ErrorCode.NONE and at.partition not in topic.partitions)
    )


def group_headline(facts: GroupFacts) -> str:
    """Return the first line: the group in short."""
    held, group = facts.partition, facts.group
    where = "no coordinator" if held is None or held.leader is None else f"coordinator {held.leader}"
    if group is None:
        why = "" if facts.problem is ErrorCode.NONE else f": {facts.problem.name}"
        return f"Group {facts.group_id}: state unknown, {where}{why}"
    if group.state == "Dead":
        return f"Group {facts.group_id}: Dead, not known to its {where}"
    number = f"{'epoch' if group.is_consumer_group or group.is_share_group else 'generation'} {group.generation}"
    return f"Group {facts.group_id}: {group.state}, {number}, {counted(len(group.members), 'member')}, {where}"


def group_view(facts: GroupFacts) -> dict[str, Any]:
    """Return the facts about a group, for JSON."""
    held, group = facts.partition, facts.group
    return {
        "group": facts.group_id,
        "state": None if group is None else group.state,
        "generation": None if group is None else group.generation,
        "coordinator": -1 if held is None or held.leader is None else held.leader,
        "offsets_partition": None if held is None else held.at.partition,
        "error": None if facts.problem is ErrorCode.NONE else facts.problem.name,
    }
