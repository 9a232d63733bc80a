"""The share partitions of a leader, and the states of a share coordinator, as the Lab service shows them (KIP-932)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from tidegauge.partition import TopicPartition
from tidegauge.share_groups import SharePartitionKey
from tidegauge.v1 import lab_pb2
from tidegauge.with_turns import with_turns
from tidegauge_broker.coordinator.share_state.coordinator import KeptState
from tidegauge_broker.replica.partition import Partition
from tidegauge_broker.server.seams import Parts
from tidegauge_broker.server.share.hosted import HostedSharePartition
from tidegauge_broker.share.states import RecordState
from tidegauge_broker.share.viewing import RecordsView, Whereabouts, viewed

View = TypeVar("View")
_STATES: dict[int, str] = {one: Whereabouts[one.name].value for one in RecordState}


async def observed_shares(parts: Parts, request: lab_pb2.ObserveSharesRequest) -> lab_pb2.ObserveSharesResponse:
    """Return the requested shares, each in its own event loop turn."""
    service = parts.service
    shares = service.groups.shares
    group_ids = set(request.group_ids)
    wanted = TopicPartition(request.partition.topic, request.partition.partition)

    def is_wanted(key: SharePartitionKey) -> bool:
        if group_ids and key.group_id not in group_ids:
            return False
        at = TopicPartition(shares.topic_name(key.topic_id) or "", key.partition)
        return not request.HasField("partition") or at == wanted

    response = lab_pb2.ObserveSharesResponse(broker_id=service.broker_id)
    hosted = [] if service.share is None else [one for one in service.share.partitions if is_wanted(one.key)]
    async for one in with_turns(sorted(hosted, key=lambda it: (it.key.group_id, it.at)), 1):
        local = parts.replicas.core.partition(one.at)
        response.shares.append(to_observed_share(one, local, parts.now_ms(), request.max_ranges))
    coordinator = shares.runner.coordinator
    async with shares.runner.at_rest:
        kept = [one for one in coordinator.kept_states() if is_wanted(one.key)]
        response.out_of_service.update(
            {str(key): cause for key, cause in coordinator.refusals().items() if is_wanted(key)}
        )
    async for state in with_turns(sorted(kept, key=lambda it: it.key), 1):
        name = shares.topic_name(state.key.topic_id) or ""
        response.states.append(to_observed_state(state, name, request.max_ranges))
    return response


def to_observed_share(
    hosted: HostedSharePartition, local: Partition | None, now_ms: int, max_ranges: int
) -> lab_pb2.ObservedShare:
    """Return a share partition.

    Args:
        hosted: the share partition.
        local: the replica of its partition; None: there is none any more.
        now_ms: the present time.
        max_ranges: maximum number of ranges of records shown; 0: all.
    """
    view, settings = viewed(hosted.core), hosted.core.settings
    shown = _cut(view.records, max_ranges)
    found = lab_pb2.ObservedShare(
        group_id=hosted.key.group_id,
        partition=lab_pb2.LabPartition(topic=hosted.at.topic, partition=hosted.at.partition),
        topic_id=hosted.key.topic_id,
        state=view.state.value,
        leader_epoch=view.leader_epoch,
        state_epoch=view.state_epoch,
        start_offset=view.start_offset,
        end_offset=view.end_offset,
        complete_count=view.complete_count,
        records=[_to_records(one, now_ms) for one in shown],
        has_more_records=len(shown) < len(view.records),
        unwritten_count=len(hosted.unwritten),
        waiting_fetches=len(hosted.waiting),
        record_lock_duration_ms=settings.record_lock_duration_ms,
        delivery_count_limit=settings.delivery_count_limit,
        max_record_locks=settings.max_record_locks,
        reads_committed=settings.reads_committed,
        auto_offset_reset=settings.auto_offset_reset,
    )
    if local is not None:
        found.log_start_offset = local.log_start_offset
        found.high_watermark = local.high_watermark
        found.last_stable_offset = local.last_stable_offset
    return found


def _to_records(view: RecordsView, now_ms: int) -> lab_pb2.ObservedShareRecords:
    found = lab_pb2.ObservedShareRecords(
        first_offset=view.first_offset,
        last_offset=view.last_offset,
        state=view.where.value,
        delivery_count=view.delivery_count,
        member_id=view.member_id or "",
        is_being_written=view.is_being_written,
        is_archived_by_log=view.is_archived_by_log,
    )
    if view.deadline_ms is not None:
        found.lock_left_ms = view.deadline_ms - now_ms
    return found


def to_observed_state(kept: KeptState, topic: str, max_ranges: int) -> lab_pb2.ObservedShareState:
    """Return a share partition's state under its topic's name; see ``to_observed_share``."""
    state = kept.state
    shown = _cut(state.batches, max_ranges)
    return lab_pb2.ObservedShareState(
        group_id=kept.key.group_id,
        topic_id=kept.key.topic_id,
        topic=topic,
        partition=kept.key.partition,
        state_partition=kept.state_partition,
        state_epoch=state.state_epoch,
        leader_epoch=state.leader_epoch,
        start_offset=state.start_offset,
        complete_count=state.complete_count,
        records=[
            lab_pb2.ObservedShareRecords(
                first_offset=one.first_offset,
                last_offset=one.last_offset,
                state=_STATES.get(one.state, f"state {one.state}"),
                delivery_count=one.delivery_count,
            )
            for one in shown
        ],
        has_more_records=len(shown) < len(state.batches),
        is_being_written=kept.is_being_written,
    )


def _cut(views: Sequence[View], max_ranges: int) -> Sequence[View]:
    return views[:max_ranges] if max_ranges > 0 else views
