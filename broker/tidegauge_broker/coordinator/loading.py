"""Rebuild the groups of a partition from its log, which is read to the LEO.

Contract: the result of a load depends on the records alone. A record that was never committed may count, though a later
leader may lack it (docs/groups.md, docs/transactions.md). A record that cannot be served costs its group, which is
refused with the cause: a value that cannot be decoded, or that makes no sense (``group.coherence``). A key that cannot
be decoded names no group, and is skipped. A rebalance that was in progress is forgotten: the last
generation that was written is Stable again, each member with the protocol that was chosen. A consumer group (KIP-848)
or share group (KIP-932) is the fold of its records, so that nothing of a rebalance is lost; if they are not served,
their keys are skipped.
Source: GroupMetadataManager (doLoadGroupsAndOffsets, readGroupMessageValue), GroupMetadata.loadGroup.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from tidegauge.errors import TidegaugeError
from tidegauge.groups import Protocol
from tidegauge.kafka.coordinator.group_metadata import GroupMetadataValue
from tidegauge.partition import TopicPartition
from tidegauge.record_batch import Buffer
from tidegauge_broker.coordinator.consumer_group.group import ConsumerGroup
from tidegauge_broker.coordinator.consumer_group.loading import ConsumerGroupLoader
from tidegauge_broker.coordinator.group.coherence import incoherence
from tidegauge_broker.coordinator.group.group import Group
from tidegauge_broker.coordinator.group.member import Member
from tidegauge_broker.coordinator.group.states import STABLE
from tidegauge_broker.coordinator.offsets import LoggedOffset
from tidegauge_broker.coordinator.record_codec import LoadedBatch, UnknownKey, read_batches
from tidegauge_broker.coordinator.records import GroupKey, OffsetKey, read_group, read_key, read_offset
from tidegauge_broker.coordinator.share_group.group import ShareGroup
from tidegauge_broker.coordinator.share_group.image import ShareGroupImage
from tidegauge_broker.coordinator.share_group.loading import ShareGroupLoader

_COMMIT_MARKER = b"\x00\x00\x00\x01"
"""Key of the control record that commits a transaction: version 0, type 1 (ControlRecordType)."""


class Refused(NamedTuple):
    """A group that is not served.

    Attributes:
        cause: why, as a clause.
        partitions: those that the group may have offsets of.
        keys: of the records that a consumer or share group has.
    """

    cause: str
    partitions: tuple[TopicPartition, ...] = ()
    keys: tuple[bytes, ...] = ()


class Loaded(NamedTuple):
    """The groups that a partition's records describe, and by id the groups that cannot be served."""

    groups: list[Group]
    refused: Mapping[str, Refused]
    consumer_groups: Sequence[ConsumerGroup] = ()
    share_groups: Sequence[ShareGroup] = ()


class Loader:
    """Replays the batches of one partition.

    Args:
        partition: of __consumer_offsets.
        reads_consumer_groups: whether groups of KIP-848 are served.
        reads_share_groups: whether groups of KIP-932 are served.
    """

    def __init__(
        self, partition: int, *, reads_consumer_groups: bool = False, reads_share_groups: bool = False
    ) -> None:
        self._partition = partition
        self._share_groups = ShareGroupLoader() if reads_share_groups else None
        self._consumer_groups = ConsumerGroupLoader() if reads_consumer_groups else None
        self._groups: dict[str, GroupMetadataValue] = {}
        self._offsets: dict[OffsetKey, LoggedOffset] = {}
        self._pending: dict[int, dict[OffsetKey, LoggedOffset]] = {}
        self._unreadable: dict[OffsetKey | GroupKey, str] = {}
        self.unknown_versions: set[int] = set()
        self.unreadable_keys: list[str] = []

    def replay(self, batches: Buffer) -> None:
        """Take the next part of the log.

        Raises:
            TidegaugeError: CORRUPT_MESSAGE, a batch cannot be read.
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
            try:
                key = read_key(key_bytes or b"")
                is_taken = isinstance(key, UnknownKey) and self._take_of_typed_group(key, key_bytes or b"", value)
            except TidegaugeError as problem:
                self.unreadable_keys.append(problem.message)
                continue
            if isinstance(key, UnknownKey):
                if not is_taken:
                    self.unknown_versions.add(key.version)
                continue
            self._unreadable.pop(key, None)
            try:
                if isinstance(key, GroupKey):
                    self._replay_group(key, value)
                elif value is None:
                    offsets.pop(key, None)
                else:
                    assert batch.first_offset is not None
                    offsets[key] = LoggedOffset(batch.first_offset, read_offset(value))
            except TidegaugeError as problem:
                self._unreadable[key] = problem.message

    def _take_of_typed_group(self, key: UnknownKey, key_bytes: bytes, value: bytes | None) -> bool:
        """Take a record if it is of a consumer or share group, and these are served; return whether it is."""
        loaders = (self._consumer_groups, self._share_groups)
        return any(one is not None and one.take(key.version, key_bytes, value) for one in loaders)

    def _replay_group(self, key: GroupKey, value: bytes | None) -> None:
        """Take a group's record; its tombstone leaves its offsets alone, which have tombstones of their own."""
        if value is None:
            self._groups.pop(key.group_id, None)
        else:
            self._groups[key.group_id] = read_group(value)

    def loaded(self, now_ms: int) -> Loaded:
        """Return the described groups.

        Groups that have offsets only are Empty, in generation 0.
        """
        refused = {key.group_id: f"a record of it cannot be read: {why}" for key, why in self._unreadable.items()}
        for group_id, value in self._groups.items():
            cause = incoherence(value)
            if cause is not None:
                refused.setdefault(group_id, f"its record makes no sense: {cause}")
        consumers = {} if self._consumer_groups is None else self._consumer_groups.images()
        for group_id in consumers.keys() & self._groups.keys():
            refused.setdefault(group_id, "it has records of a classic group and of a consumer group")
        if self._consumer_groups is not None:
            refused |= {one: cause for one, cause in self._consumer_groups.refused().items() if one not in refused}
        shares = self._shares(refused, consumers)
        groups: list[Group] = []
        consumer_groups: list[ConsumerGroup] = []
        partitions: dict[str, dict[TopicPartition, None]] = {group_id: {} for group_id in refused}
        for group in self._described(now_ms, refused):
            if group.group_id in refused:
                partitions[group.group_id] = dict.fromkeys(group.offsets.partitions())
            elif group.group_id in consumers:
                image = consumers.pop(group.group_id)
                consumer_groups.append(ConsumerGroup(image, self._partition, group.offsets))
            else:
                groups.append(group)
        left = [image for group_id, image in consumers.items() if group_id not in refused]
        consumer_groups += [ConsumerGroup(image, self._partition) for image in left]
        share_groups = [
            ShareGroup(image, self._partition, now_ms) for group_id, image in shares.items() if group_id not in refused
        ]
        for key in self._unreadable:
            if isinstance(key, OffsetKey):
                partitions[key.group_id][key.topic_partition] = None
        why = {one: Refused(cause, tuple(partitions[one]), self._keys_of(one)) for one, cause in refused.items()}
        return Loaded(groups, why, consumer_groups, share_groups)

    def _keys_of(self, group_id: str) -> tuple[bytes, ...]:
        """Return the keys of the records that a consumer or share group has."""
        loaders = (self._consumer_groups, self._share_groups)
        return tuple(key for one in loaders if one is not None for key in one.keys.get(group_id, ()))

    def _shares(self, refused: dict[str, str], consumers: Mapping[str, object]) -> dict[str, ShareGroupImage]:
        """Return the share groups; add unservable ones to ``refused``."""
        if self._share_groups is None:
            return {}
        shares = self._share_groups.images()
        for group_id in shares.keys() & (self._groups.keys() | consumers.keys()):
            refused.setdefault(group_id, "it has records of a share group and of another group")
        for group_id, cause in self._share_groups.refused().items():
            refused.setdefault(group_id, cause)
        return shares

    def _described(self, now_ms: int, refused: Mapping[str, str]) -> list[Group]:
        """Return all groups with their offsets; those that are refused have nothing else."""
        described = {
            group_id: self._restored(group_id, value)
            for group_id, value in self._groups.items()
            if group_id not in refused
        }

        def group_of(group_id: str) -> Group:
            if group_id not in described:
                described[group_id] = Group(group_id, self._partition, now_ms)
            return described[group_id]

        for key, logged in self._offsets.items():
            group_of(key.group_id).offsets.materialised[key.topic_partition] = logged
        for producer_id, pending in self._pending.items():
            for key, logged in pending.items():
                transactional = group_of(key.group_id).offsets.pending_transactional
                transactional.setdefault(producer_id, {})[key.topic_partition] = logged
        return list(described.values())

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
