"""``explain share:G/T-P``: which record of a share partition is where, why, and until when (KIP-932).

The facts come from metadata, and from all brokers' Lab services: the partition's leader has the records in flight,
the share coordinator the durable state. Nothing is created or loaded.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from tidegauge.counted import counted
from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.kafka.topic_ids import topic_id_bytes
from tidegauge.partition import TopicPartition
from tidegauge.share_groups import NO_START_OFFSET, SHARE_STATE_TOPIC, SharePartitionKey
from tidegauge_client.admin import Admin
from tidegauge_client.cli.explain_group import internal_partition
from tidegauge_client.group_explanation import OffsetsPartition
from tidegauge_client.metadata import ClusterInfo, newest_of, newest_view
from tidegauge_client.share_explanation import ShareFacts
from tidegauge_client.share_sentences import size_of
from tidegauge_client.share_views import ACQUIRED, AVAILABLE, KeptShare, LedShare, shares_at


async def gather_share(admin: Admin, group_id: str, at: TopicPartition, bootstrap: Sequence[str]) -> ShareFacts:
    """Gather what the cluster knows of a share partition.

    A former leader that is partitioned from the controllers is fenced, so that others do not know it: brokers are asked
    that any broker knows, and the ones of ``bootstrap``.

    Raises:
        TidegaugeError: UNKNOWN_TOPIC_OR_PARTITION, or no broker responds.
    """
    views = await admin.metadata_of_all([at.topic, SHARE_STATE_TOPIC])
    newest = newest_view(views)
    part = next((one for one in newest_of(views) if one.topic_partition == at), None)
    if part is None:
        await admin.topics_in(newest, [at.topic])
        raise TidegaugeError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Topic {at.topic} has no partition {at.partition}")
    held = await _state_partition(admin, views, group_id, at)
    known = {one.address for view in (*views.values(), newest) for one in view.brokers.values()}
    shares = await shares_at(sorted(known | set(bootstrap)), admin.security, group_id, at)
    return ShareFacts(group_id, at, part.leader_id, part.leader_epoch, held, newest.live, shares)


async def _state_partition(
    admin: Admin, views: Mapping[int, ClusterInfo], group_id: str, at: TopicPartition
) -> OffsetsPartition | None:
    """Return the __share_group_state partition of a share partition, if there is one."""
    topic_id = newest_view(views).identity_of(at.topic).topic_id
    if not topic_id:
        return None
    key = SharePartitionKey(group_id, topic_id_bytes(topic_id), at.partition)
    return await internal_partition(admin, views, SHARE_STATE_TOPIC, str(key))


def share_headline(facts: ShareFacts) -> str:
    """Return the first line: the share partition in short."""
    leader = "no leader" if facts.leader is None else f"leader {facts.leader}, epoch {facts.leader_epoch}"
    led = facts.led
    if led is None or led.state != "active":
        kept = facts.kept
        start = "unknown" if kept is None or kept.start_offset == NO_START_OFFSET else str(kept.start_offset)
        return f"{facts.name}: {leader}, nothing in flight, durable start offset {start}"
    parts = [
        f"{size_of(them)} {state}"
        for state in (ACQUIRED, AVAILABLE)
        if (them := [one for one in led.records if one.state == state])
    ]
    in_flight = counted(led.end_offset - led.start_offset, "offset")
    shown = f" ({', '.join(parts)})" if parts else ""
    window = f"start {led.start_offset}, {in_flight} in flight{shown}"
    return f"{facts.name}: {leader}, {window}, high watermark {led.high_watermark}"


def share_view(facts: ShareFacts) -> dict[str, Any]:
    """Return a share partition as JSON; record offsets are inclusive, the end is not."""
    held = facts.held
    return {
        "group": facts.group_id,
        "topic": facts.at.topic,
        "partition": facts.at.partition,
        "leader": -1 if facts.leader is None else facts.leader,
        "leader_epoch": facts.leader_epoch,
        "coordinator": -1 if held is None or held.leader is None else held.leader,
        "state_partition": None if held is None else held.at.partition,
        "in_flight": _led_json(facts.led),
        "durable": _kept_json(facts.kept),
        "former_leaders": {
            str(broker): _led_json(led)
            for broker in sorted(facts.shares)
            if broker != facts.leader and (led := facts.led_by(broker)) is not None
        },
    }


def _led_json(led: LedShare | None) -> dict[str, Any] | None:
    if led is None:
        return None
    found = asdict(led)
    for name in ("group_id", "at"):
        del found[name]
    return found


def _kept_json(kept: KeptShare | None) -> dict[str, Any] | None:
    if kept is None:
        return None
    return {
        "state_epoch": kept.state_epoch,
        "leader_epoch": kept.leader_epoch,
        "start_offset": None if kept.start_offset == NO_START_OFFSET else kept.start_offset,
        "complete_count": None if kept.complete_count < 0 else kept.complete_count,
        "records": [
            {
                "first_offset": one.first_offset,
                "last_offset": one.last_offset,
                "state": one.state,
                "delivery_count": one.delivery_count,
            }
            for one in kept.records
        ],
        "is_being_written": kept.is_being_written,
    }
