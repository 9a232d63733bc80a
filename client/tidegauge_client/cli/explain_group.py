"""``explain group:G``: why a consumer group rebalances, stands still or lags, and whom it waits for.

The facts come from the metadata, from the group's coordinator, and from the leaders of the partitions that it reads.
Nothing is created: __consumer_offsets comes with the first consumer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any, Protocol

from tidegauge.counted import counted
from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.groups import OFFSETS_TOPIC, partition_of
from tidegauge.partition import TopicPartition
from tidegauge_client.admin import LATEST, Admin
from tidegauge_client.admin_groups import GroupDescription
from tidegauge_client.group_explanation import GroupFacts, GroupSentence, OffsetsPartition
from tidegauge_client.group_tables import OffsetRow, offset_rows
from tidegauge_client.kafka_brokers import on_kafka_brokers
from tidegauge_client.metadata import ClusterInfo, newest_of
from tidegauge_client.topic_description import MIN_ISR, settings_of

TITLES = {
    "coordinator": "Coordinator",
    "offsets-topic": "Offsets topic",
    "group": "Group",
    "member": "Members",
    "lag": "Lag",
}
_ATTEMPT_MS = 2_000


async def gather_group(admin: Admin, group_id: str) -> GroupFacts:
    """Gather what the cluster knows of a group.

    Raises:
        TidegaugeError: no broker responds.
    """
    topics = set(await admin.list_topics())
    if OFFSETS_TOPIC not in topics:
        return GroupFacts(group_id, None, (await admin.metadata([])).live)
    cluster = await admin.metadata([OFFSETS_TOPIC])
    held = await internal_partition(admin, cluster, OFFSETS_TOPIC, group_id)
    live = cluster.live
    try:
        group = await admin.describe_group(group_id, timeout_ms=_ATTEMPT_MS)
    except TidegaugeError as problem:
        return GroupFacts(group_id, held, live, problem=refusal(held, problem))
    try:
        rows, leaderless = await _rows(admin, group, topics)
    except TidegaugeError as problem:
        return GroupFacts(group_id, held, live, group, problem.code)
    return GroupFacts(group_id, held, live, group, rows=rows, leaderless=leaderless)


async def internal_partition(admin: Admin, cluster: ClusterInfo, topic: str, key: str) -> OffsetsPartition | None:
    """Return the partition that holds a group or transactional id, by the newest of all brokers' metadata, or None."""
    count = len(cluster.topics[topic].partitions) if topic in cluster.topics else 0
    if not count:
        return None
    at = TopicPartition(topic, partition_of(key, count))
    views = await admin.metadata_of_each(list(cluster.brokers.values()), [topic])
    found = newest_of(list(views.values()) or [cluster], at)
    if not found:
        return None
    (part,) = found
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


async def _rows(
    admin: Admin, group: GroupDescription, topics: Collection[str]
) -> tuple[list[OffsetRow], frozenset[TopicPartition]]:
    """Return the partitions of a group with their lag, and those without a leader, whose end is unknown."""
    committed = await admin.committed_offsets(group.group_id, timeout_ms=_ATTEMPT_MS)
    partitions = sorted({*committed, *(at for member in group.members for at in member.assignment)})
    known = await admin.metadata(sorted({at.topic for at in partitions if at.topic in topics}))
    unknown = {at for at in partitions if known.leader(at) is None}
    leaderless = frozenset(unknown - on_kafka_brokers(known).keys())

    async def end_of(at: TopicPartition) -> dict[TopicPartition, int]:
        try:
            found = await admin.list_offsets({at: LATEST}, timeout_ms=_ATTEMPT_MS)
        except TidegaugeError:
            return {}
        return {one: place.offset for one, place in found.items()}

    ends: dict[TopicPartition, int] = {}
    for found in await asyncio.gather(*(end_of(at) for at in partitions if at not in unknown)):
        ends |= found
    return offset_rows(group, committed, ends), leaderless


def headline(facts: GroupFacts) -> str:
    """Return the first line: the group in short."""
    held, group = facts.partition, facts.group
    where = "no coordinator" if held is None or held.leader is None else f"coordinator {held.leader}"
    if group is None:
        why = "" if facts.problem is ErrorCode.NONE else f": {facts.problem.name}"
        return f"Group {facts.group_id}: state unknown, {where}{why}"
    if group.state == "Dead":
        return f"Group {facts.group_id}: Dead, not known to its {where}"
    return (
        f"Group {facts.group_id}: {group.state}, generation {group.generation}, "
        f"{counted(len(group.members), 'member')}, {where}"
    )


def group_json(facts: GroupFacts, sentences: Sequence[GroupSentence]) -> dict[str, Any]:
    """Return the explanation for ``-o json``."""
    held, group = facts.partition, facts.group
    return {
        "group": facts.group_id,
        "state": None if group is None else group.state,
        "generation": None if group is None else group.generation,
        "coordinator": -1 if held is None or held.leader is None else held.leader,
        "offsets_partition": None if held is None else held.at.partition,
        "error": None if facts.problem is ErrorCode.NONE else facts.problem.name,
        "sentences": [asdict(sentence) for sentence in sentences],
    }


def group_lines(
    facts: GroupFacts, sentences: Sequence[GroupSentence], wrap: Callable[[str, str], list[str]]
) -> Iterator[str]:
    """Return the explanation as text; ``wrap(text, indent)`` breaks lines."""
    yield headline(facts)
    yield from titled_lines(sentences, TITLES, wrap)


class _Sentence(Protocol):
    """A sentence of any explanation."""

    @property
    def about(self) -> str: ...
    @property
    def text(self) -> str: ...
    @property
    def rule(self) -> str: ...
    @property
    def change(self) -> str: ...


def titled_lines(
    sentences: Sequence[_Sentence], titles: Mapping[str, str], wrap: Callable[[str, str], list[str]]
) -> Iterator[str]:
    """Return sentences as text, each title once before those that follow each other; ``wrap`` breaks lines."""
    title = ""
    for sentence in sentences:
        if titles[sentence.about] != title:
            title = titles[sentence.about]
            yield ""
            yield title
        yield from wrap(sentence.text, "  ")
        yield from wrap(f"Rule: {sentence.rule}.", "    ")
        if sentence.change:
            yield from wrap(f"Changes with: {sentence.change}.", "    ")
