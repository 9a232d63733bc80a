"""Requests to coordinators and their responses in words, for the page's diagram. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from tidegauge.consumer_groups import (
    JOINING_EPOCH,
    LEAVING_EPOCH,
    ConsumerGroupHeartbeat,
    ConsumerGroupHeartbeatResult,
)
from tidegauge.errors import ErrorCode
from tidegauge.groups import (
    Heartbeat,
    HeartbeatResult,
    JoinGroup,
    JoinGroupResult,
    LeaveGroup,
    LeaveGroupResult,
    OffsetCommit,
    OffsetCommitResult,
    OffsetFetch,
    OffsetFetchResult,
    SyncGroup,
    SyncGroupResult,
    TxnOffsetCommit,
    TxnOffsetCommitResult,
)
from tidegauge.share_groups import (
    NO_START_OFFSET,
    DeleteShareState,
    InitializeShareState,
    ReadShareState,
    ReadShareSummary,
    ShareGroupHeartbeat,
    ShareGroupHeartbeatResult,
    ShareStateResult,
    StateBatch,
    WriteShareState,
)
from tidegauge.transactions import (
    AddOffsetsToTxn,
    AddOffsetsToTxnResult,
    AddPartitionsToTxn,
    AddPartitionsToTxnResult,
    EndTxn,
    EndTxnResult,
    InitProducerId,
    InitProducerIdResult,
)
from tidegauge_broker.coordinator.effects import WriteMarkers
from tidegauge_broker.share.states import RecordState


def text_of_response(request: Any, result: Any) -> str:
    """Return a result in words; a share coordinator's names its request's API."""
    if not isinstance(result, ShareStateResult):
        return text_of(result)
    name = _STATE_APIS[type(request)]
    if result.error is not ErrorCode.NONE:
        return f"{name} response({result.error.name})"
    if not isinstance(request, ReadShareState):
        return f"{name} response(NONE)"
    start = "no start offset" if result.start_offset == NO_START_OFFSET else f"start offset {result.start_offset}"
    return f"{name} response({start}, {_batches(result.batches)})"


def text_of(message: Any) -> str:
    """Return a request or a result in words: its API and main fields."""
    text = _TEXTS.get(type(message))
    return type(message).__name__ if text is None else text(message)


def _errors(errors: Mapping[Any, ErrorCode]) -> str:
    return ", ".join(sorted({error.name for error in errors.values()})) or "NONE"


def _or_error(api: str, error: ErrorCode, text: str) -> str:
    return f"{api} response({text if error is ErrorCode.NONE else error.name})"


def _add(wanted: AddPartitionsToTxn) -> str:
    named = ", ".join(map(str, wanted.partitions))
    verb = ", verify only" if wanted.verify_only else ""
    return f"AddPartitionsToTxn({wanted.transactional_id}, epoch {wanted.producer_epoch}: {named}{verb})"


def _markers(effect: WriteMarkers) -> str:
    each = [
        f"{one.marker.outcome.name} of producer {one.marker.producer_id}, epoch {one.marker.producer_epoch}"
        for one in effect.markers
    ]
    return f"WriteTxnMarkers({'; '.join(each)})"


def _offsets(one: TxnOffsetCommit) -> str:
    return ", ".join(f"{each.topic_partition} at {each.offset}" for each in one.offsets)


def _fetched(one: OffsetFetchResult) -> str:
    return ", ".join(f"{at} at {each.offset}" for at, each in one.offsets.items()) or "NONE"


def _member(member_id: str) -> str:
    return member_id or "new member"


def _batches(batches: Iterable[StateBatch]) -> str:
    """Return record states in words: ``0 to 2 acknowledged, 3 available``."""
    found = []
    for one in batches:
        offsets = (
            f"{one.first_offset}" if one.first_offset == one.last_offset else f"{one.first_offset} to {one.last_offset}"
        )
        state = RecordState(one.state).name.lower()
        times = f" after {one.delivery_count} deliver{'y' if one.delivery_count == 1 else 'ies'}"
        found.append(f"{offsets} {state}{times if state == 'available' else ''}")
    return ", ".join(found) or "no states of records"


def _beat_of_consumer(one: ConsumerGroupHeartbeat) -> str:
    owned = None if one.owned is None else [f"t-{index}" for _, ones in one.owned for index in ones]
    says = "" if owned is None or one.member_epoch <= 0 else f", owns {', '.join(owned) or 'nothing'}"
    return f"ConsumerGroupHeartbeat({one.group_id}, {one.member_id}, {_epoch(one.member_epoch)}{says})"


def _beaten_consumer(one: ConsumerGroupHeartbeatResult) -> str:
    ones = None if one.assignment is None else [f"t-{index}" for _, found in one.assignment for index in found]
    says = "" if ones is None else f", may own {', '.join(ones) or 'nothing'}"
    return _or_error("ConsumerGroupHeartbeat", one.error, f"member epoch {one.member_epoch}{says}")


def _beaten_share_member(one: ShareGroupHeartbeatResult) -> str:
    says = "" if one.assignment is None else f", {'fetches orders-0' if one.assignment else 'nothing assigned yet'}"
    return _or_error("ShareGroupHeartbeat", one.error, f"member epoch {one.member_epoch}{says}")


def _epoch(epoch: int) -> str:
    return {JOINING_EPOCH: "joins", LEAVING_EPOCH: "leaves"}.get(epoch, f"member epoch {epoch}")


def _written(one: WriteShareState) -> str:
    fenced = f"leader epoch {one.leader_epoch}, start offset {one.start_offset}"
    return f"WriteShareGroupState({one.key.group_id}, {fenced}: {_batches(one.batches)})"


_STATE_APIS = {
    InitializeShareState: "InitializeShareGroupState",
    ReadShareState: "ReadShareGroupState",
    WriteShareState: "WriteShareGroupState",
    DeleteShareState: "DeleteShareGroupState",
    ReadShareSummary: "ReadShareGroupStateSummary",
}
_TEXTS: dict[type, Callable[[Any], str]] = {
    InitProducerId: lambda one: f"InitProducerId({one.transactional_id})",
    InitProducerIdResult: lambda one: _or_error(
        "InitProducerId", one.error, f"producer id {one.producer_id}, epoch {one.producer_epoch}"
    ),
    AddPartitionsToTxn: _add,
    AddPartitionsToTxnResult: lambda one: f"AddPartitionsToTxn response({_errors(one.partitions)})",
    EndTxn: lambda one: f"EndTxn({one.transactional_id}, epoch {one.producer_epoch}: {one.outcome.name})",
    EndTxnResult: lambda one: _or_error("EndTxn", one.error, "NONE"),
    WriteMarkers: _markers,
    JoinGroup: lambda one: f"JoinGroup({one.group_id}, {_member(one.member_id)})",
    JoinGroupResult: lambda one: _or_error(
        "JoinGroup", one.error, f"generation {one.generation}, {one.member_id}, leader {one.leader}"
    ),
    SyncGroup: lambda one: f"SyncGroup({one.group_id}, generation {one.generation}, {one.member_id})",
    SyncGroupResult: lambda one: _or_error("SyncGroup", one.error, f"partitions {list(one.assignment)}"),
    Heartbeat: lambda one: f"Heartbeat({one.group_id}, generation {one.generation}, {one.member_id})",
    HeartbeatResult: lambda one: f"Heartbeat response({one.error.name})",
    OffsetCommit: lambda one: f"OffsetCommit({one.group_id}, {_member(one.member_id)})",
    OffsetCommitResult: lambda one: f"OffsetCommit response({_errors(one.partitions)})",
    ConsumerGroupHeartbeat: _beat_of_consumer,
    ConsumerGroupHeartbeatResult: _beaten_consumer,
    ShareGroupHeartbeat: lambda one: (
        f"ShareGroupHeartbeat({one.group_id}, {one.member_id}, {_epoch(one.member_epoch)})"
    ),
    ShareGroupHeartbeatResult: _beaten_share_member,
    InitializeShareState: lambda one: f"InitializeShareGroupState({one.key.group_id}, state epoch {one.state_epoch})",
    ReadShareState: lambda one: f"ReadShareGroupState({one.key.group_id}, leader epoch {one.leader_epoch})",
    WriteShareState: _written,
    AddOffsetsToTxn: lambda one: f"AddOffsetsToTxn({one.transactional_id}, epoch {one.producer_epoch})",
    AddOffsetsToTxnResult: lambda one: f"AddOffsetsToTxn response({one.error.name})",
    TxnOffsetCommit: lambda one: f"TxnOffsetCommit({one.transactional_id}, group {one.group_id}: {_offsets(one)})",
    TxnOffsetCommitResult: lambda one: f"TxnOffsetCommit response({_errors(one.partitions)})",
    OffsetFetch: lambda one: f"OffsetFetch({one.group_id})",
    OffsetFetchResult: lambda one: _or_error("OffsetFetch", one.error, _fetched(one)),
    LeaveGroup: lambda one: f"LeaveGroup({one.group_id})",
    LeaveGroupResult: lambda one: f"LeaveGroup response({one.error.name})",
}
