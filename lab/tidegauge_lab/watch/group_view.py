"""Consumer groups to the JSON that the page and ``status -o json`` show. Pure.

Rules:
    1. A group is what the leader of its partition of __consumer_offsets says; of several brokers that report it, that
       one counts, then a broker that responds, then the higher generation.
    2. A group of a broker that does not respond is shown as it was seen last, marked ``old``, until another broker
       reports it.
    3. The lag of a partition is its leader's high watermark minus the committed offset, and unknown (null) where
       either is: without a leader that responds, or before the first commit. A group's lag is the sum of those that are
       known; with ``lagIsPart`` it has a committed offset in a partition whose lag is not, and lags by that much at
       least.
    4. Nothing that changes with time alone is shown: the page is sent what changed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tidegauge.consumer_groups import CONSUMER
from tidegauge.groups import OFFSETS_TOPIC
from tidegauge.partition import TopicPartition
from tidegauge.v1 import lab_pb2
from tidegauge_client.group_descriptions import assigned_partitions
from tidegauge_lab.watch.facts import BrokerFacts

Json = dict[str, Any]


def groups_of(brokers: Sequence[BrokerFacts], partitions: Mapping[str, Json]) -> dict[str, Json]:
    """Return the groups by id.

    Args:
        brokers: with the groups that each reports.
        partitions: as the page shows them, with leaders and high watermarks.
    """
    chosen: dict[str, tuple[tuple[bool, bool, int], BrokerFacts, lab_pb2.ObservedGroup]] = {}
    for broker in brokers:
        for group in broker.groups or ():
            held = partitions.get(f"{OFFSETS_TOPIC}-{group.partition}", {})
            rank = (held.get("leader") == broker.id, broker.groups_responded, group.description.generation)
            if group.group_id not in chosen or chosen[group.group_id][0] < rank:
                chosen[group.group_id] = rank, broker, group
    return {name: _group(broker, group, partitions) for name, (_, broker, group) in sorted(chosen.items())}


def _group(broker: BrokerFacts, group: lab_pb2.ObservedGroup, partitions: Mapping[str, Json]) -> Json:
    said = group.description
    is_consumer = said.protocol_type == "consumer"
    readers = {
        at: member.member_id
        for member in said.members
        for at in (assigned_partitions(member.assignment) if is_consumer else ())
    }
    committed = {TopicPartition(one.topic, one.partition): one.offset for one in group.offsets}
    rows = [_row(at, committed.get(at), readers.get(at), partitions) for at in sorted({*readers, *committed})]
    lags = [row["lag"] for row in rows if row["lag"] is not None]
    return {
        "group": group.group_id,
        "state": said.state,
        "generation": said.generation,
        "assignmentEpoch": said.assignment_epoch if said.group_type == CONSUMER else None,
        "protocol": said.protocol_name,
        "coordinator": broker.id,
        "offsetsPartition": group.partition,
        "offsetsTopicPartition": f"{OFFSETS_TOPIC}-{group.partition}",
        "old": not broker.groups_responded,
        "reason": said.reason,
        "members": [_member(member, said, readers) for member in said.members],
        "partitions": rows,
        "lag": sum(lags) if lags else None,
        "lagIsPart": any(row["lag"] is None and row["committed"] is not None for row in rows),
    }


def _member(
    member: lab_pb2.GroupMember, group: lab_pb2.GroupDescription, readers: Mapping[TopicPartition, str]
) -> Json:
    awaited = {"PreparingRebalance": "JoinGroup", "CompletingRebalance": "SyncGroup"}.get(group.state, "")
    return {
        "id": member.member_id,
        "instance": member.group_instance_id or None,
        "client": member.client_id,
        "host": member.client_host,
        "leader": member.member_id == group.leader,
        "parked": member.parked,
        "awaited": "" if member.parked or group.in_initial_delay else awaited,
        "partitions": [str(at) for at, reader in sorted(readers.items()) if reader == member.member_id],
        **(_reconciliation(member.reconciliation) if member.HasField("reconciliation") else {}),
    }


def _reconciliation(how_far: lab_pb2.Reconciliation) -> Json:
    return {
        "epoch": how_far.epoch,
        "state": how_far.state,
        "target": [f"{one.topic}-{one.partition}" for one in how_far.target],
        "revoking": [f"{one.topic}-{one.partition}" for one in how_far.revoking],
        "awaits": [
            {"partition": f"{one.partition.topic}-{one.partition.partition}", "member": one.member_id}
            for one in how_far.awaited
        ],
    }


def _row(at: TopicPartition, committed: int | None, reader: str | None, partitions: Mapping[str, Json]) -> Json:
    known = partitions.get(str(at), {})
    leader = known.get("leader")
    replica = known.get("replicas", {}).get(str(leader), {})
    end = None if replica.get("old", True) else replica.get("hw")
    return {
        "partition": str(at),
        "committed": committed,
        "end": end,
        "lag": None if committed is None or end is None else max(0, end - committed),
        "member": reader,
        "leaderless": bool(known) and leader is None,
    }
