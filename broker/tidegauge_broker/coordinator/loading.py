"""Rebuild the groups of a partition from its log, which is read to the LEO.

Contract: what is loaded depends on the records alone. A record that was never committed may count, though a later
leader may lack it (docs/groups.md, docs/transactions.md). A rebalance that was in progress is forgotten: the last
generation that was written is Stable again, each member with the protocol that was chosen.
Source: GroupMetadataManager (doLoadGroupsAndOffsets, readGroupMessageValue), GroupMetadata.loadGroup.
"""

from __future__ import annotations

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.groups import Protocol
from tidegauge.kafka.coordinator.group_metadata import GroupMetadataValue
from tidegauge.record_batch import Buffer
from tidegauge_broker.coordinator.group.group import Group
from tidegauge_broker.coordinator.group.member import Member
from tidegauge_broker.coordinator.group.states import STABLE
from tidegauge_broker.coordinator.offsets import LoggedOffset
from tidegauge_broker.coordinator.record_codec import LoadedBatch, read_batches
from tidegauge_broker.coordinator.records import GroupKey, OffsetKey, read_group, read_key, read_offset

_COMMIT_MARKER = b"\x00\x00\x00\x01"
"""Key of the control record that commits a transaction: version 0, type 1 (ControlRecordType)."""


class Loader:
    """Replays the batches of one partition."""

    def __init__(self, partition: int) -> None:
        self._partition = partition
        self._groups: dict[str, GroupMetadataValue] = {}
        self._offsets: dict[OffsetKey, LoggedOffset] = {}
        self._pending: dict[int, dict[OffsetKey, LoggedOffset]] = {}
        self.unknown_versions: set[int] = set()

    def replay(self, batches: Buffer) -> None:
        """Take the next part of the log.

        Raises:
            TidegaugeError: CORRUPT_MESSAGE, a batch or a record cannot be read.
        """
        for batch in read_batches(batches):
            if batch.header.is_control:
                self._replay_marker(batch)
            else:
                self._replay_records(batch)

    def _replay_marker(self, batch: LoadedBatch) -> None:
        """End a producer's transaction; a marker that compaction has emptied is skipped."""
        if not batch.records:
            return
        pending = self._pending.pop(batch.header.producer_id, {})
        if batch.records[0][0] != _COMMIT_MARKER:
            return
        for key, logged in pending.items():
            current = self._offsets.get(key)
            if current is None or current.batch_offset < logged.batch_offset:
                self._offsets[key] = logged

    def _replay_records(self, batch: LoadedBatch) -> None:
        offsets = self._offsets
        if batch.header.is_transactional:
            offsets = self._pending.setdefault(batch.header.producer_id, {})
        for key_bytes, value in batch.records:
            if key_bytes is None:
                raise TidegaugeError(ErrorCode.CORRUPT_MESSAGE, "a record of __consumer_offsets has no key")
            key = read_key(key_bytes)
            if isinstance(key, OffsetKey):
                if value is None:
                    offsets.pop(key, None)
                else:
                    assert batch.first_offset is not None
                    offsets[key] = LoggedOffset(batch.first_offset, read_offset(value))
            elif isinstance(key, GroupKey):
                # A group's tombstone leaves its offsets alone: they have tombstones of their own.
                if value is None:
                    self._groups.pop(key.group_id, None)
                else:
                    self._groups[key.group_id] = read_group(value)
            else:
                self.unknown_versions.add(key.version)

    def groups(self, now_ms: int) -> list[Group]:
        """Return the groups that the records describe; those that have offsets only are Empty, in generation 0."""
        loaded = {group_id: self._restored(group_id, value) for group_id, value in self._groups.items()}

        def group_of(group_id: str) -> Group:
            if group_id not in loaded:
                loaded[group_id] = Group(group_id, self._partition, now_ms)
            return loaded[group_id]

        for key, logged in self._offsets.items():
            group_of(key.group_id).offsets.materialised[key.topic_partition] = logged
        for producer_id, pending in self._pending.items():
            for key, logged in pending.items():
                transactional = group_of(key.group_id).offsets.pending_transactional
                transactional.setdefault(producer_id, {})[key.topic_partition] = logged
        return list(loaded.values())

    def _restored(self, group_id: str, value: GroupMetadataValue) -> Group:
        since_ms = value.current_state_timestamp
        group = Group(group_id, self._partition, None if since_ms < 0 else since_ms)
        group.generation = value.generation
        for member in value.members:
            group.add(
                Member(
                    member.member_id,
                    member.group_instance_id,
                    member.client_id,
                    member.client_host,
                    member.rebalance_timeout,
                    member.session_timeout,
                    value.protocol_type,
                    (Protocol(value.protocol or "", member.subscription),),
                    member.assignment,
                )
            )
        if value.members:
            group.state = STABLE
        group.restore(value.protocol_type, value.protocol, value.leader)
        return group
