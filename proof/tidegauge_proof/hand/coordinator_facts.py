"""Groups and transactions of a cluster that is driven by hand, in the form of the lab's view (docs/watch.md). Pure."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from tidegauge.partition import TopicPartition
from tidegauge.share_groups import NO_START_OFFSET
from tidegauge.transaction_marker import read_marker
from tidegauge_broker.coordinator.record_codec import read_batches
from tidegauge_broker.coordinator.records import GroupKey, OffsetKey, read_group, read_key, read_offset
from tidegauge_broker.coordinator.transaction.records import read_transaction, read_transaction_key
from tidegauge_broker.share.viewing import viewed
from tidegauge_proof.hand.group_names import CONSUMER_GROUP, OFFSETS, SHARE_GROUP, SHARE_STATES, TRANSACTIONS
from tidegauge_proof.simulator.groups.members import TOPIC
from tidegauge_proof.simulator.memory_broker import AT
from tidegauge_proof.simulator.memory_log import START_MS
from tidegauge_proof.simulator.stored_replica import StoredReplica

if TYPE_CHECKING:
    from tidegauge_proof.hand.coordination import Coordination

Json = dict[str, Any]
_AWAITED = {"PreparingRebalance": "JoinGroup", "CompletingRebalance": "SyncGroup"}


def view_of(coordination: Coordination) -> Json:
    """Return what the view of the cluster has of coordinators."""
    return {
        "groups": groups_of(coordination),
        "shares": shares_of(coordination),
        "transactions": transactions_of(coordination),
    }


def names_in_log(stored: StoredReplica, known: dict[int, list[str]]) -> list[list[Any]]:
    """Return the short name and leader epoch of an internal partition's records.

    Args:
        stored: the replica.
        known: the names of each batch by its CRC; batches that are missing are decoded and added.
    """
    log = stored.log
    if any(one.batch_crc not in known for one in log.records):
        data = log.read(0, log.log_end_offset, 1 << 30)
        for batch in read_batches(data):
            marker = read_marker(data, batch.header)
            known[batch.header.crc] = (
                [_name_of(stored.at, key, value) for key, value in batch.records]
                if marker is None
                else [marker.outcome.name]
            )
    return [[known[one.batch_crc][one.place], one.leader_epoch] for one in log.records]


def _name_of(at: TopicPartition, key: bytes | None, value: bytes | None) -> str:
    """Return the short name of a coordinator's record.

    A transaction's state, a committed offset, or a group's generation.
    """
    if key is None or value is None:
        return "null"
    if at == TRANSACTIONS:
        transactional_id = read_transaction_key(key)
        assert isinstance(transactional_id, str), "the coordinators here write one version"
        return re.sub("(?<=[a-z])(?=[A-Z])", " ", read_transaction(transactional_id, value).state.value)
    if at == OFFSETS:
        named = read_key(key)
        if isinstance(named, OffsetKey):
            return f"offset {read_offset(value).offset}"
        if isinstance(named, GroupKey):
            return f"gen. {read_group(value).generation}"
    return "state"


def transactions_of(coordination: Coordination) -> Json:
    """Return the transactional ids by their coordinator; empty without one."""
    process = coordination.coordinator(TRANSACTIONS)
    if process is None:
        return {}
    return {
        one.transactional_id: {
            "id": one.transactional_id,
            "state": one.state.value,
            "producerId": one.producer_id,
            "producerEpoch": one.producer_epoch,
            "coordinator": process.broker.broker_id,
            "since": one.start_time_ms - START_MS if one.start_time_ms >= 0 else None,
            "partitions": [{"partition": str(at)} for at in one.partitions],
            "old": False,
        }
        for one in process.coordinator.transaction_views()
    }


def groups_of(coordination: Coordination) -> Json:
    """Return the groups by their coordinator; empty without one."""
    process = coordination.coordinator(OFFSETS)
    if process is None:
        return {}
    coordinator, broker_id = process.coordinator, process.broker.broker_id
    found = {one.group_id: _group(one, broker_id, coordination.group_topic) for one in coordinator.group_views()}
    if (consumers := coordinator.consumer_group_view(CONSUMER_GROUP)) is not None:
        found[CONSUMER_GROUP] = _consumer_group(consumers, broker_id)
    if coordination.shares is not None and (shared := coordinator.share_group_view(SHARE_GROUP)) is not None:
        found[SHARE_GROUP] = _share_group(shared, broker_id)
    return found


def shares_of(coordination: Coordination) -> Json:
    """Return the share partitions by ``GROUP/T-P``, as each self-declared leader has them."""
    if coordination.shares is None:
        return {}
    leader, found = coordination.leader_of(AT), {}
    process = coordination.coordinator(SHARE_STATES)
    kept = {} if process is None else {one.key: one.state for one in process.coordinator.kept_states()}
    for broker_id, share in coordination.shares.hosted():
        name = f"{SHARE_GROUP}/{AT}" + ("" if broker_id == leader else f" at broker {broker_id}")
        durable = next((one.start_offset for one in kept.values()), NO_START_OFFSET)
        found[name] = _share(name, broker_id, share, durable, coordination, leads=broker_id == leader)
    return found


def _share(name: str, broker_id: int, share: Any, durable: int, coordination: Coordination, *, leads: bool) -> Json:
    view = viewed(share)
    partition = coordination.world.brokers[broker_id].core.partition(AT)
    return {
        "name": name,
        "group": SHARE_GROUP,
        "partition": str(AT),
        "broker": broker_id,
        "leads": leads,
        "state": view.state.value,
        "leaderEpoch": view.leader_epoch,
        "start": view.start_offset,
        "end": view.end_offset,
        "readable": view.end_offset if partition is None else partition.high_watermark,
        "limit": share.settings.delivery_count_limit,
        "records": [
            {
                "first": one.first_offset,
                "last": one.last_offset,
                "state": one.where.value,
                "count": one.delivery_count,
                "member": one.member_id,
                "writing": one.is_being_written,
            }
            for one in view.records
        ],
        "hasMore": False,
        "unwritten": sum(one.is_being_written for one in view.records),
        "durableStart": None if durable == NO_START_OFFSET else durable,
    }


def _group(view: Any, coordinator: int, topic: str) -> Json:
    state = view.state.value
    readers = {index: one.member_id for one in view.members for index in one.assignment}
    committed = {at.partition: one.offset for at, one in view.offsets.items()}
    return {
        "group": view.group_id,
        "state": state,
        "generation": view.generation,
        "assignmentEpoch": None,
        "protocol": view.protocol_name or "",
        "coordinator": coordinator,
        "offsetsPartition": 0,
        "offsetsTopicPartition": "__consumer_offsets-0",
        "old": False,
        "reason": view.reason,
        "members": [_member(one, view, state, readers, topic) for one in view.members],
        "partitions": _rows(readers, committed, topic),
        "lag": None,
        "lagIsPart": False,
    }


def _consumer_group(view: Any, coordinator: int) -> Json:
    """Return a consumer group (KIP-848), with the reconciliation of its members."""
    readers = {at.partition: one.member_id for one in view.members for at in (*one.assigned, *one.revoking)}
    committed = {at.partition: one.offset for at, one in view.offsets.items()}
    members = [
        {
            **_plain_member(one.member_id, one.client_id, [str(at) for at in (*one.assigned, *one.revoking)]),
            "epoch": one.epoch,
            "state": one.state,
            "target": [str(at) for at in one.target],
            "revoking": [str(at) for at in one.revoking],
            "awaits": [{"partition": str(at), "member": holder} for at, holder in one.awaited],
        }
        for one in view.members
    ]
    rows = _rows(readers, committed)
    about = (view.group_id, view.state.value, view.epoch, view.assignment_epoch, view.assignor)
    return _of_epochs(*about, coordinator=coordinator, members=members, partitions=rows)


def _share_group(view: Any, coordinator: int) -> Json:
    """Return a share group (KIP-932): its members fetch the same partitions."""
    members = [
        {
            **_plain_member(
                one.member_id,
                one.client_id,
                [f"{named.topic}-{index}" for named in one.assignment for index in named.partitions],
            ),
            "epoch": one.member_epoch,
            "state": "STABLE",
            "target": [],
            "revoking": [],
            "awaits": [],
        }
        for one in view.members
    ]
    about = (view.group_id, view.state, view.group_epoch, view.assignment_epoch, view.assignor)
    return _of_epochs(*about, coordinator=coordinator, members=members, partitions=[])


def _of_epochs(
    group: str,
    state: str,
    epoch: int,
    assignment_epoch: int,
    assignor: str,
    *,
    coordinator: int,
    members: list[Json],
    partitions: list[Json],
) -> Json:
    return {
        "group": group,
        "state": state,
        "generation": epoch,
        "assignmentEpoch": assignment_epoch,
        "protocol": assignor,
        "coordinator": coordinator,
        "offsetsPartition": 0,
        "offsetsTopicPartition": "__consumer_offsets-0",
        "old": False,
        "reason": "",
        "members": members,
        "partitions": partitions,
        "lag": None,
        "lagIsPart": False,
    }


def _plain_member(member_id: str, client_id: str, partitions: list[str]) -> Json:
    return {
        "id": member_id,
        "instance": None,
        "client": client_id,
        "host": "",
        "leader": False,
        "parked": "",
        "awaited": "",
        "partitions": partitions,
    }


def _rows(readers: dict[int, str], committed: dict[int, int], topic: str = TOPIC) -> list[Json]:
    """Return the partitions of a topic with readers, without lag."""
    return [
        {
            "partition": f"{topic}-{index}",
            "committed": committed.get(index),
            "end": None,
            "lag": None,
            "member": readers.get(index),
            "leaderless": False,
        }
        for index in sorted({*readers, *committed})
    ]


def _member(one: Any, view: Any, state: str, readers: dict[int, str], topic: str) -> Json:
    awaited = "" if one.parked or view.in_initial_delay else _AWAITED.get(state, "")
    return {
        "id": one.member_id,
        "instance": one.group_instance_id,
        "client": one.client_id,
        "host": one.client_host,
        "leader": one.member_id == view.leader,
        "parked": one.parked,
        "awaited": awaited,
        "partitions": [f"{topic}-{index}" for index, reader in sorted(readers.items()) if reader == one.member_id],
    }
