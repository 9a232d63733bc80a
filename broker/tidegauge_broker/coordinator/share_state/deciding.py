"""The decisions of the share coordinator: a request and the state of its share partition become a result and a record.

Source: ShareCoordinatorShard (initializeState, readStateAndMaybeUpdateLeaderEpoch, writeState, deleteState,
readStateSummary and their checks); KIP-932, "Share coordinator".
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from tidegauge.errors import ErrorCode
from tidegauge.share_groups import (
    NO_COUNT,
    NO_EPOCH,
    NO_START_OFFSET,
    DeleteShareState,
    InitializeShareState,
    ReadShareState,
    ReadShareSummary,
    ShareStateRequest,
    ShareStateResult,
    StateBatch,
    WriteShareState,
)
from tidegauge_broker.coordinator.consumer_group.topics import Topics
from tidegauge_broker.coordinator.share_state.combining import combined
from tidegauge_broker.coordinator.share_state.records import Change, Snapshot, Update
from tidegauge_broker.coordinator.share_state.state import ShareState

_FENCED_LEADER = "The leader epoch in the request is older than the epoch on the broker."
_FENCED_STATE = "The share coordinator rejected the request because the share-group state epoch did not match."
_UNKNOWN = "This server does not host this topic-partition."


class Decision(NamedTuple):
    """The result of a request.

    Attributes:
        result: once the change is committed.
        has_change: whether a record is written.
        change: the record; None with ``has_change``: a tombstone.
    """

    result: ShareStateResult
    has_change: bool = False
    change: Change = None


class Given(NamedTuple):
    """The input of a decision beside the request.

    Attributes:
        state: of the share partition; None: it is not initialized.
        topics: those that exist.
        now_ms: the wall-clock time.
        updates_per_snapshot: after as many updates the state is written as a whole.
    """

    state: ShareState | None
    topics: Topics
    now_ms: int
    updates_per_snapshot: int


def decide(request: ShareStateRequest, given: Given) -> Decision:
    """Decide about a request."""
    if request.key.partition < 0:
        return _refused(ErrorCode.INVALID_REQUEST, "The partition id cannot be a negative number.")
    return _DECISIONS[type(request)](request, given)


def _refused(error: ErrorCode, message: str) -> Decision:
    return Decision(ShareStateResult(error, message))


def _exists(request: ShareStateRequest, given: Given) -> bool:
    topic = given.topics.by_id.get(request.key.topic_id)
    return topic is not None and request.key.partition < topic.partitions


def _initialize(request: InitializeShareState, given: Given) -> Decision:
    state = given.state
    if state is not None and _is_older(request.state_epoch, state.fencing_state_epoch):
        return _refused(ErrorCode.FENCED_STATE_EPOCH, _FENCED_STATE)
    if not _exists(request, given):
        return _refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, _UNKNOWN)
    snapshot = Snapshot(
        snapshot_epoch=0 if state is None else state.snapshot_epoch + 1,
        state_epoch=request.state_epoch,
        leader_epoch=0,
        start_offset=request.start_offset,
        complete_count=NO_COUNT if request.start_offset == NO_START_OFFSET else 0,
        batches=(),
        created_ms=given.now_ms,
        written_ms=given.now_ms,
    )
    return Decision(ShareStateResult(), has_change=True, change=snapshot)


def _read(request: ReadShareState, given: Given) -> Decision:
    state = given.state
    if state is None:
        message = "Read operation on uninitialized share partition not allowed."
        return _refused(ErrorCode.INVALID_REQUEST, message)
    if _is_older(request.leader_epoch, state.fencing_leader_epoch):
        return _refused(ErrorCode.FENCED_LEADER_EPOCH, _FENCED_LEADER)
    if not _exists(request, given):
        return _refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, _UNKNOWN)
    result = ShareStateResult(state_epoch=state.state_epoch, start_offset=state.start_offset, batches=state.batches)
    if request.leader_epoch in {NO_EPOCH, state.fencing_leader_epoch}:
        return Decision(result)
    change = _change(given, state, request.leader_epoch, state.start_offset, state.complete_count, ())
    return Decision(result, has_change=True, change=change)


def _write(request: WriteShareState, given: Given) -> Decision:
    state = given.state
    if state is None:
        message = "Write operation on uninitialized share partition not allowed."
        return _refused(ErrorCode.INVALID_REQUEST, message)
    if _is_older(request.leader_epoch, state.fencing_leader_epoch):
        return _refused(ErrorCode.FENCED_LEADER_EPOCH, _FENCED_LEADER)
    if _is_older(request.state_epoch, state.fencing_state_epoch):
        return _refused(ErrorCode.FENCED_STATE_EPOCH, _FENCED_STATE)
    if not _exists(request, given):
        return _refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, _UNKNOWN)
    change = _change(given, state, state.leader_epoch, request.start_offset, request.complete_count, request.batches)
    return Decision(ShareStateResult(), has_change=True, change=change)


def _change(
    given: Given,
    state: ShareState,
    leader_epoch: int,
    start_offset: int,
    complete_count: int,
    batches: tuple[StateBatch, ...],
) -> Snapshot | Update:
    """Return an update, or a snapshot after enough updates."""
    if state.updates < given.updates_per_snapshot:
        return Update(state.snapshot_epoch, leader_epoch, start_offset, complete_count, combined(batches, start_offset))
    start_offset = state.start_offset if start_offset == NO_START_OFFSET else start_offset
    return Snapshot(
        state.snapshot_epoch + 1,
        state.state_epoch,
        leader_epoch,
        start_offset,
        complete_count,
        combined((*state.batches, *batches), start_offset),
        given.now_ms,
        given.now_ms,
    )


def _delete(request: DeleteShareState, given: Given) -> Decision:
    if not _exists(request, given):
        return _refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, _UNKNOWN)
    return Decision(ShareStateResult(), has_change=given.state is not None)


def _summarize(request: ReadShareSummary, given: Given) -> Decision:
    if not _exists(request, given):
        return _refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, _UNKNOWN)
    state = given.state
    if state is None:
        return Decision(ShareStateResult(start_offset=NO_START_OFFSET))
    return Decision(
        ShareStateResult(
            state_epoch=state.state_epoch,
            leader_epoch=state.leader_epoch,
            start_offset=state.start_offset,
            complete_count=state.complete_count,
        )
    )


def snapshot_of_cold(state: ShareState, now_ms: int) -> Snapshot:
    """Return a snapshot of a state without a recent one.

    It lets the log before it be deleted.
    """
    return Snapshot(
        state.snapshot_epoch + 1,
        state.state_epoch,
        state.leader_epoch,
        state.start_offset,
        state.complete_count,
        state.batches,
        state.created_ms,
        now_ms,
    )


def _is_older(epoch: int, fencing_epoch: int) -> bool:
    return epoch != NO_EPOCH and epoch < fencing_epoch


_DECISIONS: dict[type, Callable[[Any, Given], Decision]] = {
    InitializeShareState: _initialize,
    ReadShareState: _read,
    WriteShareState: _write,
    DeleteShareState: _delete,
    ReadShareSummary: _summarize,
}
