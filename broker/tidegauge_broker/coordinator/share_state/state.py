"""The state of a share partition as its records say: the same live and after a load.

Source: ShareCoordinatorShard (handleShareSnapshot, handleShareUpdate, merge), ShareGroupOffset.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from tidegauge.share_groups import NO_START_OFFSET, StateBatch
from tidegauge_broker.coordinator.share_state.combining import combined
from tidegauge_broker.coordinator.share_state.records import Snapshot, Update
from tidegauge_broker.coordinator.typed_records import MAX_EPOCH

_NO_TIMESTAMP_MS = 0


@dataclass(frozen=True, slots=True)
class ShareState:
    """The state of a share partition.

    Attributes:
        leader_epoch: of the leader that read the state last; 0 after an initialization.
        complete_count: records in terminal states at or after the start offset; -1: not known.
        created_ms: when the last snapshot was made that an update or an initialization asked for.
        written_ms: when the last snapshot was made.
        fencing_leader_epoch: the highest leader epoch that a record had: requests with a lower one are refused.
        fencing_state_epoch: the highest state epoch, likewise.
        updates: number of updates since the last snapshot that the number of updates asked for.
    """

    snapshot_epoch: int
    state_epoch: int
    leader_epoch: int
    start_offset: int
    complete_count: int
    batches: tuple[StateBatch, ...]
    created_ms: int
    written_ms: int
    fencing_leader_epoch: int
    fencing_state_epoch: int
    updates: int = 0


def incoherence(state: ShareState) -> str:
    """Return why a loaded state cannot be served, as a clause, or empty."""
    if not 0 <= state.snapshot_epoch <= MAX_EPOCH:
        return f"its snapshot epoch is {state.snapshot_epoch}"
    return ""


def replayed(former: ShareState | None, change: Snapshot | Update, updates_per_snapshot: int) -> ShareState:
    """Return the state after a record.

    Args:
        former: the state before it; None: there is none.
        change: what the record says.
        updates_per_snapshot: share.coordinator.snapshot.update.records.per.snapshot.
    """
    if isinstance(change, Update):
        return _updated(former, change)
    updates = 0 if former is None or former.updates >= updates_per_snapshot else former.updates
    return ShareState(
        change.snapshot_epoch,
        change.state_epoch,
        change.leader_epoch,
        change.start_offset,
        change.complete_count,
        change.batches,
        change.created_ms,
        change.written_ms,
        change.leader_epoch if former is None else max(former.fencing_leader_epoch, change.leader_epoch),
        change.state_epoch if former is None else max(former.fencing_state_epoch, change.state_epoch),
        updates,
    )


def _updated(former: ShareState | None, update: Update) -> ShareState:
    if former is None:
        return ShareState(
            update.snapshot_epoch,
            0,
            update.leader_epoch,
            update.start_offset,
            update.complete_count,
            update.batches,
            _NO_TIMESTAMP_MS,
            _NO_TIMESTAMP_MS,
            update.leader_epoch,
            0,
            1,
        )
    start_offset = former.start_offset if update.start_offset == NO_START_OFFSET else update.start_offset
    return replace(
        former,
        leader_epoch=former.leader_epoch if update.leader_epoch < 0 else update.leader_epoch,
        start_offset=start_offset,
        complete_count=update.complete_count,
        batches=combined((*former.batches, *update.batches), start_offset),
        fencing_leader_epoch=max(former.fencing_leader_epoch, update.leader_epoch),
        updates=former.updates + 1,
    )
