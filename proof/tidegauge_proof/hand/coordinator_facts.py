"""Groups and transactions of a cluster that is driven by hand, in the form of the lab's view (docs/watch.md). Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tidegauge_proof.simulator.memory_log import START_MS

if TYPE_CHECKING:
    from tidegauge_proof.hand.coordination import Coordination

Json = dict[str, Any]
_AWAITED = {"PreparingRebalance": "JoinGroup", "CompletingRebalance": "SyncGroup"}


def transactions_of(coordination: Coordination) -> Json:
    """Return the transactional ids, as their coordinator has them; empty while no broker coordinates them."""
    process = _coordinator(coordination.transactions)
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
    """Return the groups, as their coordinator has them; empty while no broker coordinates them."""
    process = _coordinator(coordination.groups)
    if process is None:
        return {}
    return {one.group_id: _group(one, process.broker.broker_id) for one in process.coordinator.group_views()}


def _coordinator(one: Any) -> Any:
    leader = one.partition.state_now.leader
    process = one.processes.get(leader)
    return process if process is not None and process.load is None and one.world.is_up(leader) else None


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
        "partitions": [
            {
                "partition": f"t-{index}",
                "committed": committed.get(index),
                "end": None,
                "lag": None,
                "member": readers.get(index),
                "leaderless": False,
            }
            for index in sorted({*readers, *committed})
        ],
        "lag": None,
        "lagIsPart": False,
    }


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
