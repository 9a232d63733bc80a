"""The state of the cluster as JSON: from brokers' reports to the interface's responses. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tidegauge.partition import TopicPartition
from tidegauge.v1 import metadata_pb2
from tidegauge_client.admin_groups import GroupDescription
from tidegauge_client.admin_transactions import TransactionDescription
from tidegauge_client.group_tables import OffsetRow, reconciliation_json
from tidegauge_lab.local import readiness
from tidegauge_lab.observation import Observation, metadata_in, newest_states


def cluster_view(status: Mapping[str, Any], views: Mapping[int, Observation]) -> dict[str, Any]:
    """Return ``/v1/cluster``.

    Args:
        status: as ``tidegauge status -o json`` shows it.
        views: what each broker that is up says of itself.
    """
    lacking = _lacking(status, views)
    controller = status["controller"]
    return {
        "ready": not lacking,
        "lacks": lacking,
        "bootstrap_servers": status["bootstrap_servers"],
        "kafka_bootstrap_servers": status["kafka_bootstrap_servers"],
        "mode": status["mode"],
        "controller": {"id": controller["id"], "epoch": controller["epoch"]},
        "zookeeper": status["zookeeper"],
        "controllers": [_without_directory(one) for one in status["controllers"]],
        "kafka_brokers": status["kafka_brokers"],
        "brokers": [_without_directory(one) for one in status["brokers"]],
    }


def _without_directory(node: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in node.items() if key != "dir"}


def _lacking(status: Mapping[str, Any], views: Mapping[int, Observation]) -> str:
    kafkas = {one["id"] for one in status["kafka_brokers"]}
    for controller in status["controllers"]:
        if controller["state"] != "up":
            return f"controller {controller['id']} is {controller['state']}"
    if status["controllers"] and status["controller"]["id"] is None:
        return "the quorum of controllers has no leader"
    for broker in status["brokers"]:
        if broker["state"] != "up" and broker["id"] not in kafkas:
            return f"broker {broker['id']} is {broker['state']}"
    ours = [broker["id"] for broker in status["brokers"] if broker["state"] == "up"]
    return readiness.lacks(views, ours, names_controller=not status["controllers"]) or next(
        (f"broker {one} does not see broker {two} yet" for one in ours for two in kafkas - views[one].broker_ids), ""
    )


def partition_view(at: TopicPartition, views: Mapping[int, Observation]) -> dict[str, Any] | None:
    """Return a partition as responding brokers see it; None if unknown."""
    state = newest_states(metadata_in(views)).get(at)
    if state is None:
        return None
    leader = state.leader_id
    said = {broker_id: view.replica(at) for broker_id, view in views.items()}
    own = said.get(-1 if leader is None else leader)
    return {
        "topic": at.topic,
        "partition": at.partition,
        "leader": leader,
        "leader_confirms": own is not None and (own.role, own.leader_epoch) == ("leader", state.leader_epoch),
        "leader_epoch": state.leader_epoch,
        "partition_epoch": state.partition_epoch,
        "isr": list(state.isr),
        "offline": list(state.offline_replicas),
        "high_watermark": own.high_watermark if own is not None and own.role == "leader" else None,
        "last_stable_offset": None if own is None or own.role != "leader" else _last_stable_offset(own),
        "replicas": [_replica(broker_id, said.get(broker_id), broker_id in state.isr) for broker_id in state.replicas],
    }


def _replica(broker_id: int, said: metadata_pb2.ReplicaDescription | None, in_isr: bool) -> dict[str, Any]:
    """Return a replica by its broker's report; without one, role unknown and no offsets."""
    if said is None or said.role == "offline":
        role = "unknown" if said is None else said.role
        return {"id": broker_id, "role": role, "in_isr": in_isr}
    return {
        "id": broker_id,
        "role": said.role,
        "in_isr": in_isr,
        "leader_epoch": said.leader_epoch if said.HasField("leader_epoch") else None,
        "log_start_offset": said.log_start_offset,
        "log_end_offset": said.log_end_offset,
        "high_watermark": said.high_watermark,
        "last_stable_offset": _last_stable_offset(said),
        "epochs": [{"epoch": one.leader_epoch, "start_offset": one.start_offset} for one in said.epochs],
    }


def _last_stable_offset(said: metadata_pb2.ReplicaDescription) -> int | None:
    """Return the last stable offset; None if the broker is too old."""
    return said.last_stable_offset if said.HasField("last_stable_offset") else None


def transaction_view(found: TransactionDescription, open_at: Mapping[TopicPartition, int | None]) -> dict[str, Any]:
    """Return ``/v1/transactions/{id}``.

    Args:
        found: what the coordinator has.
        open_at: the first offset of the producer's open transaction, by partition; None: there is none, or the
            partition's leader does not respond.
    """
    return {
        "id": found.transactional_id,
        "state": found.state,
        "coordinator": found.coordinator,
        "producer_id": found.producer_id,
        "producer_epoch": found.producer_epoch,
        "timeout_ms": found.timeout_ms,
        "start_time_ms": found.start_time_ms if found.start_time_ms >= 0 else None,
        "partitions": [
            {"topic": at.topic, "partition": at.partition, "start_offset": open_at.get(at)} for at in found.partitions
        ],
    }


def group_view(group: GroupDescription, rows: Sequence[OffsetRow]) -> dict[str, Any]:
    """Return ``/v1/groups/{group}``."""
    return {
        "id": group.group_id,
        "state": group.state,
        "coordinator": group.coordinator,
        "type": group.group_type,
        "generation": group.generation,
        "assignment_epoch": group.assignment_epoch if group.is_consumer_group else None,
        "protocol_type": group.protocol_type,
        "protocol": group.protocol_name,
        "reason": group.reason,
        "members": [
            {
                "id": member.member_id,
                "instance_id": member.group_instance_id,
                "client_id": member.client_id,
                "host": member.host,
                "assignment": [str(at) for at in member.assignment],
                "parked": member.member_id in group.parked_members,
                **reconciliation_json(member),
            }
            for member in group.members
        ],
        "offsets": {
            str(row.topic_partition): {"committed": row.current_offset, "end": row.end_offset, "lag": row.lag}
            for row in rows
            if row.topic_partition is not None
        },
    }
