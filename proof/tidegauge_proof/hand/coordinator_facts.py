"""Groups and transactions of a cluster that is driven by hand, in the form of the lab's view (docs/watch.md). Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tidegauge.share_groups import NO_START_OFFSET
from tidegauge_broker.share.viewing import viewed
from tidegauge_proof.hand.group_names import CONSUMER_GROUP, OFFSETS, SHARE_GROUP, SHARE_STATES, TRANSACTIONS
from tidegauge_proof.simulator.memory_broker import AT
from tidegauge_proof.simulator.memory_log import START_MS

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
    found = {one.group_id: _group(one, broker_id) for one in coordinator.group_views()}
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


def _group(view: Any, coordinator: int) -> Json:
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
        "members": [_member(one, view, state, readers) for one in view.members],
        "partitions": _rows(readers, committed),
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


def _rows(readers: dict[int, str], committed: dict[int, int]) -> list[Json]:
    """Return the partitions of topic ``t`` with readers, without lag."""
    return [
        {
            "partition": f"t-{index}",
            "committed": committed.get(index),
            "end": None,
            "lag": None,
            "member": readers.get(index),
            "leaderless": False,
        }
        for index in sorted({*readers, *committed})
    ]


def _member(one: Any, view: Any, state: str, readers: dict[int, str]) -> Json:
    awaited = "" if one.parked or view.in_initial_delay else _AWAITED.get(state, "")
    return {
        "id": one.member_id,
        "instance": one.group_instance_id,
        "client": one.client_id,
        "host": one.client_host,
        "leader": one.member_id == view.leader,
        "parked": one.parked,
        "awaited": awaited,
        "partitions": [f"t-{index}" for index, reader in sorted(readers.items()) if reader == one.member_id],
    }
