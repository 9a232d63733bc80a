"""The view of a cluster that is driven by hand, in the form of ``tidegauge watch``. Pure.

``view_of`` has the form of the lab's view (docs/watch.md): brokers, partitions and replicas. It adds facts that only
a cluster in memory has: which record is at which offset of which replica, which acknowledged record is lost,
and which message is in flight.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

from tidegauge.control import NO_LEADER
from tidegauge.record_batch import iterate_headers
from tidegauge.transaction_marker import read_marker
from tidegauge_broker.replica.messages import ACKS_ALL
from tidegauge_proof.hand.driven import HandDriven
from tidegauge_proof.hand.messages import IN_FLIGHT, Message
from tidegauge_proof.hand.settings import SESSION_TIMEOUT_MS
from tidegauge_proof.simulator.memory_broker import AT, MemoryBroker
from tidegauge_proof.simulator.memory_log import START_MS, MemoryLog, RecordName
from tidegauge_proof.simulator.sim_partition import FIRST_NUMBER, SimPartition
from tidegauge_proof.simulator.stored_replica import StoredReplica

Json = dict[str, Any]
MOST_MESSAGES = 300
"""Messages that the page is given; older ones are left out of its diagram."""


def view_of(cluster: HandDriven) -> Json:
    """Return the cluster in the form of the lab's view."""
    world = cluster.world
    term = None if world.elected is None else world.controllers.get(world.elected)
    return {
        "name": f"in this browser, by the rule {cluster.settings.rule_name}",
        "problem": "",
        "waiting": _waiting(cluster),
        "switchable": True,
        "stagesInternal": bool(cluster.settings.placed),
        "controller": world.elected,
        "controllerEpoch": None if term is None else term.epoch,
        "zookeeper": {"address": "in memory", "state": "up", "managed": False, "answers": True},
        "brokers": {str(b): _broker(cluster, broker) for b, broker in world.brokers.items()},
        "partitions": {str(one.at): _partition(cluster, one) for one in world.partitions},
        **_coordinated(cluster),
    }


def _coordinated(cluster: HandDriven) -> Json:
    """Return groups, share partitions and transactions; load their module if needed."""
    if cluster.coordination is None:
        return {"groups": {}, "shares": {}, "transactions": {}}
    found: Json = import_module("tidegauge_proof.hand.coordinator_facts").view_of(cluster.coordination)
    return found


def _state(cluster: HandDriven, broker_id: int) -> str:
    if not cluster.world.brokers[broker_id].is_running:
        return "down"
    return "paused" if broker_id in cluster.world.paused else "up"


def _broker(cluster: HandDriven, broker: MemoryBroker) -> Json:
    world, broker_id = cluster.world, broker.broker_id
    links = sorted(other for one, other in world.cut_links if one == broker_id)
    has_session = broker_id not in world.without_session
    return {
        "id": broker_id,
        "address": f"broker epoch {broker.broker_epoch}",
        "state": _state(cluster, broker_id),
        "pid": None,
        "answers": world.is_up(broker_id),
        "controller": broker_id == world.elected,
        "leads": sum(replica.leads for replica in broker.replicas.values()),
        "replicas": sum(broker_id in one.replicas for one in world.partitions),
        "session": f"{world.sessions[broker_id]}" if has_session else None,
        "sessionText": _session_text(cluster, broker_id),
        "faults": [
            *([f"calls to {', '.join(map(str, links))} are partitioned"] if links else []),
            *(["does not reach ZooKeeper"] if broker_id in cluster.parted else []),
        ],
        "held": int(broker_id in cluster.held),
    }


def _session_text(cluster: HandDriven, broker_id: int) -> str:
    if broker_id in cluster.world.without_session:
        return "no session" if _state(cluster, broker_id) == "down" else "session expired"
    left_ms = session_left_ms(cluster, broker_id)
    return f"session {cluster.world.sessions[broker_id]}" + ("" if left_ms is None else f" {_left(left_ms)}")


def _left(left_ms: int) -> str:
    return f"ends in {-(-left_ms // 1000)} s"


def session_left_ms(cluster: HandDriven, broker_id: int) -> int | None:
    """Return the rest of a silent broker's session in ms, if any."""
    since = cluster.silent_since.get(broker_id)
    if since is None or broker_id in cluster.world.without_session:
        return None
    return max(0, since + SESSION_TIMEOUT_MS - cluster.world.now_ms)


def _waiting(cluster: HandDriven) -> str:
    waited = [(b, left) for b in cluster.world.brokers if (left := session_left_ms(cluster, b)) is not None]
    if not waited:
        return ""
    each = "; ".join(f"broker {b} is {_state(cluster, b)}, and its session {_left(left)}" for b, left in waited)
    them = "it" if len(waited) == 1 else "them"
    return f"{each[0].upper()}{each[1:]}. Until then the controller counts {them} as alive."


def _partition(cluster: HandDriven, at: SimPartition) -> Json:
    world, state = cluster.world, at.state_now
    leader, epoch, isr = state.leader, state.leader_epoch, list(state.isr)
    for broker_id in at.replicas:
        partition = at.brokers[broker_id].partition
        if partition is None or partition.leader_role is None or not world.is_up(broker_id):
            continue
        if partition.leader_epoch >= epoch:
            leader, epoch, isr = broker_id, partition.leader_epoch, list(partition.leader_role.isr.isr)
    return {
        "topic": at.at.topic,
        "partition": at.at.partition,
        "internal": at.at.topic != AT.topic,
        "leader": None if leader == NO_LEADER else leader,
        "leaderEpoch": epoch,
        "assigned": list(at.replicas),
        "isr": isr,
        "osr": [b for b in at.replicas if b not in isr],
        "low": 0,
        "high": max(at.brokers[b].log.log_end_offset for b in at.replicas),
        "replicas": {str(b): _replica(cluster, at.brokers[b], in_isr=b in isr) for b in at.replicas},
        "waiting": "",
    }


def _replica(cluster: HandDriven, stored: StoredReplica, *, in_isr: bool) -> Json:
    broker_id, is_running = stored.broker_id, stored.broker.is_running
    partition, log = stored.partition, stored.log
    starts = [(entry.epoch, entry.start_offset) for entry in log.epochs]
    ends = [*(start for _, start in starts), log.log_end_offset][1:]
    role = "unknown" if partition is None else partition.role.name.lower()
    lead = None if partition is None or not is_running else partition.leader_role
    has_transactions = cluster.coordination is not None and lead is not None and partition is not None
    values: Json = {}
    if stored.at.topic == AT.topic:
        values = {"records": [[value_of(cluster, log, name), name.leader_epoch] for name in log.records]}
    elif cluster.settings.placed:
        names_in_log = import_module("tidegauge_proof.hand.coordinator_facts").names_in_log
        values = {"records": names_in_log(stored, cluster.names_of_batches)}
    return {
        "isr": in_isr,
        "held": broker_id in cluster.held,
        "keptBy": None,
        "old": not cluster.world.is_up(broker_id),
        "role": role if is_running else "unknown",
        "epoch": None if partition is None else partition.leader_epoch,
        "logStart": 0,
        "hw": stored.checkpoint if partition is None or not is_running else partition.high_watermark,
        "lso": partition.last_stable_offset if has_transactions and partition is not None else None,
        "leo": log.log_end_offset,
        "epochs": [[epoch, start, end] for (epoch, start), end in zip(starts, ends, strict=True)],
        "bytes": None,
        "flushed": stored.flushed,
        **values,
        "knows": {}
        if lead is None
        else {
            str(other): remote.log_end_offset if remote.log_end_offset >= 0 else None
            for other, remote in sorted(lead.remotes.items())
        },
    }


def value_of(cluster: HandDriven, log: MemoryLog, name: RecordName) -> str:
    """Return a record's name on the page: ``m3``; a marker's: ``COMMIT`` or ``ABORT``."""
    first = cluster.number_of(name.batch_crc)
    if first is not None:
        return cluster.label(first + name.place)
    data = log.read(0, log.log_end_offset, 1 << 30)
    header = next(one for one in iterate_headers(data) if one.crc == name.batch_crc)
    marker = read_marker(data, header)
    return "?" if marker is None else marker.outcome.name


def logs_of(cluster: HandDriven) -> Json:
    """Return each replica's records: value, leader epoch, committed, on disk."""
    world = cluster.world
    found: Json = {}
    for broker_id in world.replicas:
        broker = world.brokers[broker_id]
        partition = broker.partition
        committed = broker.replica.checkpoint if partition is None else partition.high_watermark
        found[str(broker_id)] = [
            {
                "value": value_of(cluster, broker.log, name),
                "epoch": name.leader_epoch,
                "committed": offset < committed,
                "flushed": offset < broker.replica.flushed,
            }
            for offset, name in enumerate(broker.log.records)
        ]
    return found


def books_of(cluster: HandDriven) -> list[Json]:
    """Return each sent record: the client's outcome, its holders, whether it is lost.

    A record is lost if it was acknowledged (acks=1 or all) and no living or dead replica has it, and ``missing`` if
    the leader lacks it while another replica still has it.
    """
    holders: dict[int, list[int]] = {}
    for partition in cluster.data:
        for broker_id in partition.replicas:
            for number in _numbers(partition, broker_id):
                if broker_id not in holders.setdefault(number, []):
                    holders[number].append(broker_id)
    leaders = {one.at.partition: _leader_of(one) for one in cluster.data}
    found = []
    for produced in cluster.produced:
        for place in range(produced.record_count):
            number = produced.first_number + place
            held_by, leader = holders.get(number, []), leaders[number // FIRST_NUMBER]
            acknowledged = produced.outcome == "ok" and produced.acks != 0
            found.append(
                {
                    "value": cluster.label(number),
                    "number": number,
                    "acks": "all" if produced.acks == ACKS_ALL else str(produced.acks),
                    "idempotent": produced.first_sequence >= 0,
                    "outcome": produced.outcome,
                    "error": produced.error,
                    "offset": produced.base_offset + place if produced.base_offset >= 0 else None,
                    "holders": held_by,
                    "lost": acknowledged and not held_by,
                    "missing": acknowledged and bool(held_by) and leader is not None and leader not in held_by,
                }
            )
    return found


def verdict_of(cluster: HandDriven) -> Json:
    """Return the defects in words: the broken invariant, and lost acknowledged records."""
    books = books_of(cluster)
    lost = [one for one in books if one["lost"]]
    said = [
        f"LOST: {one['value']} was acknowledged (acks={one['acks']}) at offset {one['offset']}, and no replica has it"
        for one in lost
    ]
    if missing := read_and_lost(cluster):
        said.append(f"A consumer has read {', '.join(missing)}, and no replica has it any more")
    return {"broken": cluster.broken, "lost": said, "ended": cluster.has_ended}


def read_and_lost(cluster: HandDriven) -> list[str]:
    """Return the values that a consumer has read and that no replica holds."""
    read = {number for one in cluster.reads for number in one.numbers}
    held = {number for one in cluster.data for broker_id in one.replicas for number in _numbers(one, broker_id)}
    return [cluster.label(number) for number in sorted(read - held)]


def _leader_of(partition: SimPartition) -> int | None:
    """Return the leader of a partition, if it knows that it leads."""
    leader = partition.state_now.leader
    return leader if leader != NO_LEADER and partition.brokers[leader].leads else None


def _numbers(partition: SimPartition, broker_id: int) -> list[int]:
    """Return the numbers of clients' records in a replica, in log order."""
    number_of = partition.clients.number_of
    names = partition.brokers[broker_id].log.records
    return [number_of[name.batch_crc] + name.place for name in names if name.batch_crc in number_of]


def messages_of(cluster: HandDriven) -> list[Json]:
    """Return the newest messages: those in flight are handles, the others are drawn."""
    for message in cluster.post.in_flight():
        message.note = cluster.obstacle(message)
    return [_message(one) | {"text": cluster.labelled(one.text)} for one in cluster.post.kept[-MOST_MESSAGES:]]


def _message(message: Message) -> Json:
    return {
        "number": message.number,
        "kind": message.kind,
        "from": message.source,
        "to": message.target,
        "text": message.text,
        "sent": message.sent,
        "ended": message.ended,
        "fate": message.fate,
        "note": message.note,
        "held": message.is_held and message.fate == IN_FLIGHT,
        "repeats": message.kind != "fetch",
    }


def virtual_ms(cluster: HandDriven) -> int:
    """Return the virtual time since the start, in ms."""
    return cluster.world.now_ms - START_MS
