"""The view of a replica."""

from __future__ import annotations

from tidegauge_broker.replica.messages import RemoteReplicaView, ReplicaView
from tidegauge_broker.replica.partition import Partition
from tidegauge_broker.replica.roles import Role


def view_of(partition: Partition, now_ms: int) -> ReplicaView:
    """Return a local replica's state; without a leader it follows none."""
    view = ReplicaView(
        partition.topic_partition,
        "follower" if partition.role is Role.NONE else partition.role.value,
        partition.leader,
        partition.leader_epoch,
        partition.partition_epoch,
        partition.log_start_offset,
        partition.log_end_offset,
        partition.high_watermark,
        partition.epochs.entries,
        last_stable_offset=partition.last_stable_offset,
        topic_id=partition.topic_id,
    )
    role = partition.leader_role
    if role is not None:
        for remote in role.remotes.values():
            remote.settle()
        view.isr = role.isr.isr
        view.maximal_isr = role.isr.maximal_isr
        view.leader_epoch_start_offset = role.epoch_start_offset
        view.remote_replicas = [
            RemoteReplicaView(
                remote.broker_id,
                remote.log_end_offset,
                now_ms - remote.last_caught_up_time_ms if remote.last_caught_up_time_ms > 0 else -1,
                remote.log_start_offset,
            )
            for remote in role.remotes.values()
        ]
    return view
