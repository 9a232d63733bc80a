"""The records of __share_group_state: a snapshot of a share partition's state, and updates of it, as Kafka 4.3's.

Source: ShareCoordinatorRecordHelpers, ShareCoordinatorRecordSerde; the definitions of ShareSnapshot and ShareUpdate.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from tidegauge.kafka.coordinator.share_snapshot import ShareSnapshotKey, ShareSnapshotValue
from tidegauge.kafka.coordinator.share_snapshot import StateBatch as SnapshotBatch
from tidegauge.kafka.coordinator.share_update import ShareUpdateKey, ShareUpdateValue
from tidegauge.kafka.coordinator.share_update import StateBatch as UpdateBatch
from tidegauge.share_groups import SharePartitionKey, StateBatch
from tidegauge_broker.coordinator.record_codec import Record
from tidegauge_broker.coordinator.typed_records import RecordKinds

KINDS = RecordKinds({0: (ShareSnapshotKey, ShareSnapshotValue), 1: (ShareUpdateKey, ShareUpdateValue)})


class Snapshot(NamedTuple):
    """The whole state of a share partition; times are wall-clock times in ms."""

    snapshot_epoch: int
    state_epoch: int
    leader_epoch: int
    start_offset: int
    complete_count: int
    batches: tuple[StateBatch, ...]
    created_ms: int
    written_ms: int


class Update(NamedTuple):
    """A change of the state since its last snapshot.

    Attributes:
        start_offset: -1: unchanged.
    """

    snapshot_epoch: int
    leader_epoch: int
    start_offset: int
    complete_count: int
    batches: tuple[StateBatch, ...]


Change = Snapshot | Update | None
"""The value of a share partition's record; None: it was deleted."""


def to_bytes(key: SharePartitionKey, change: Change) -> Record:
    """Return a record's bytes; a tombstone has the key of a snapshot."""
    if isinstance(change, Update):
        value = ShareUpdateValue(
            change.snapshot_epoch,
            change.leader_epoch,
            change.start_offset,
            change.complete_count,
            [UpdateBatch(*one) for one in change.batches],
        )
        return KINDS.to_bytes(ShareUpdateKey(*key), value)
    if change is None:
        return KINDS.to_bytes(ShareSnapshotKey(*key), None)
    snapshot = ShareSnapshotValue(
        snapshot_epoch=change.snapshot_epoch,
        state_epoch=change.state_epoch,
        leader_epoch=change.leader_epoch,
        start_offset=change.start_offset,
        delivery_complete_count=change.complete_count,
        create_timestamp=change.created_ms,
        write_timestamp=change.written_ms,
        state_batches=[SnapshotBatch(*one) for one in change.batches],
    )
    return KINDS.to_bytes(ShareSnapshotKey(*key), snapshot)


def read_key(key: bytes) -> tuple[SharePartitionKey, Any]:
    """Return a record's share partition, and its key as Kafka has it.

    Raises:
        TidegaugeError: CORRUPT_MESSAGE, the bytes are no such key.
    """
    found = KINDS.read_key(key)
    return SharePartitionKey(found.group_id, bytes(found.topic_id), found.partition), found


def read_change(key: Any, value: bytes) -> Snapshot | Update:
    """Return what a record says.

    Args:
        key: as ``read_key`` gives it.
        value: the record's.

    Raises:
        TidegaugeError: CORRUPT_MESSAGE, the bytes are no such value.
    """
    read = KINDS.read_value(key, value)
    batches = tuple(
        StateBatch(one.first_offset, one.last_offset, one.delivery_state, one.delivery_count)
        for one in read.state_batches
    )
    if isinstance(read, ShareUpdateValue):
        return Update(read.snapshot_epoch, read.leader_epoch, read.start_offset, read.delivery_complete_count, batches)
    return Snapshot(
        read.snapshot_epoch,
        read.state_epoch,
        read.leader_epoch,
        read.start_offset,
        read.delivery_complete_count,
        batches,
        read.create_timestamp,
        read.write_timestamp,
    )
