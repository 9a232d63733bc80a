"""Requests to coordinators and their responses in words, for the page's diagram. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

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
    SyncGroup,
    SyncGroupResult,
)
from tidegauge.transactions import (
    AddPartitionsToTxn,
    AddPartitionsToTxnResult,
    EndTxn,
    EndTxnResult,
    InitProducerId,
    InitProducerIdResult,
)
from tidegauge_broker.coordinator.effects import WriteMarkers


def text_of(message: Any) -> str:
    """Return a request, or a result, in words: its API and what matters in it."""
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


def _member(member_id: str) -> str:
    return member_id or "new member"


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
    LeaveGroup: lambda one: f"LeaveGroup({one.group_id})",
    LeaveGroupResult: lambda one: f"LeaveGroup response({one.error.name})",
}
