"""Facts to the JSON that the page shows, and what changed between two of them. Pure.

Rules:
    1. Topics and live brokers are those that the newest metadata names (``observation``).
    2. Leader and ISR of a partition are those with the highest leader epoch, then partition epoch, over all metadata
       and what the replicas say of themselves.
    3. A controller or leader is shown as the brokers know it, even when its process is dead: that is what Kafka's
       clients see until its session ends.
    4. A replica whose broker does not respond keeps the values it had last, marked ``old``; without any it is
       ``unknown``.
    5. A change is sent as complete brokers, partitions, groups and share partitions: the page touches nothing else.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tidegauge.partition import INTERNAL_TOPICS, TopicPartition
from tidegauge.v1 import metadata_pb2
from tidegauge_client.metadata import ClusterInfo, PartitionInfo, newest_view
from tidegauge_lab.observation import newest_states
from tidegauge_lab.watch.facts import BrokerFacts, Facts
from tidegauge_lab.watch.group_view import groups_of
from tidegauge_lab.watch.share_view import shares_of

Json = dict[str, Any]
_ENTRIES = ("brokers", "partitions", "groups", "shares", "transactions")
SILENT = frozenset({"down", "paused"})


def view_of(facts: Facts, transactions: Mapping[str, Json] | None = None) -> Json:
    """Return all that the page shows but the events.

    Args:
        facts: the cluster now.
        transactions: by transactional id, as the coordinators' event logs say; None if those can't be read.
    """
    newest = _newest(facts.brokers)
    controller, epoch = _controller(facts, newest)
    partitions = _partitions(facts.brokers, newest)
    waited = {broker.id: broker for broker in _members_to_end(facts, newest)}
    for partition in partitions.values():
        partition["waiting"] = waiting_of(partition, waited)
    return {
        "name": facts.name,
        "problem": facts.problem,
        "waiting": waiting_for_members(list(waited.values()), None if facts.quorum is not None else controller),
        "switchable": facts.switchable,
        "controller": controller,
        "controllerEpoch": epoch,
        "controllers": [] if facts.quorum is None else [dict(one) for one in facts.quorum.controllers],
        "zookeeper": {
            "address": facts.zookeeper.address,
            "state": facts.zookeeper.state,
            "managed": facts.zookeeper.managed,
            "answers": facts.zookeeper.responds,
        },
        "brokers": {
            str(broker.id): _broker(broker, facts, controller, partitions)
            | {"fenced": _is_fenced(broker, facts, newest)}
            for broker in facts.brokers
        },
        "partitions": partitions,
        "groups": groups_of(facts.brokers, partitions),
        "shares": shares_of(facts.brokers, partitions),
        "transactions": dict(transactions or {}),
    }


def _controller(facts: Facts, newest: ClusterInfo | None) -> tuple[int | None, int | None]:
    """Return the active controller and its epoch, by the quorum or by metadata."""
    if facts.quorum is not None:
        return facts.quorum.leader, facts.quorum.epoch
    if newest is None:
        return None, None
    return newest.controller_id, None if newest.controller_epoch < 0 else newest.controller_epoch


def status_view(brokers: Sequence[BrokerFacts]) -> Json:
    """Return the groups and held readers for ``status -o json``.

    ``held_readers`` has the partitions whose leader says that its last stable offset is below its high watermark:
    readers of committed records stand still there until a transaction ends.
    """
    partitions = _partitions(brokers, _newest(brokers))
    held = [one for partition in partitions.values() if (one := _held_readers(partition)) is not None]
    return {"groups": list(groups_of(brokers, partitions).values()), "held_readers": held}


def _held_readers(partition: Json) -> Json | None:
    leader = partition["leader"]
    said = partition["replicas"].get(str(leader), {})
    stable, high_watermark = said.get("lso"), said.get("hw")
    if said.get("role") != "leader" or stable is None or stable >= high_watermark:
        return None
    named = {name: partition[name] for name in ("topic", "partition", "leader")}
    return named | {"last_stable_offset": stable, "high_watermark": high_watermark}


def _newest(brokers: Sequence[BrokerFacts]) -> ClusterInfo | None:
    views = _metadata(brokers)
    return newest_view(views) if views else None


def _metadata(brokers: Sequence[BrokerFacts]) -> dict[int, ClusterInfo]:
    return {broker.id: broker.metadata for broker in brokers if broker.metadata is not None}


def difference(old: Json, new: Json) -> Json:
    """Return the changes for the page (rule 5); a removed entry is null."""
    changed: Json = {key: value for key, value in new.items() if key not in _ENTRIES and old.get(key) != value}
    for key in _ENTRIES:
        before, after = old.get(key, {}), new.get(key, {})
        entries = {name: value for name, value in after.items() if before.get(name) != value}
        entries |= {name: None for name in before if name not in after}
        if entries:
            changed[key] = entries
    return changed


def _broker(broker: BrokerFacts, facts: Facts, controller: int | None, partitions: Mapping[str, Json]) -> Json:
    mine = [partition for partition in partitions.values() if broker.id in partition["assigned"]]
    return {
        "id": broker.id,
        "address": broker.address,
        "state": broker.state,
        "pid": broker.pid,
        "answers": broker.responded,
        "controller": broker.id == controller,
        "leads": sum(1 for partition in mine if partition["leader"] == broker.id),
        "replicas": len(mine),
        "session": None if broker.session is None else f"0x{broker.session:x}",
        "sessionText": session_text(broker, zookeeper_responds=facts.zookeeper.responds),
        "faults": list(broker.faults),
        "held": len(broker.held),
    }


def _is_fenced(broker: BrokerFacts, facts: Facts, newest: ClusterInfo | None) -> bool:
    """Return whether a running broker is fenced: the newest metadata lack it (KIP-631)."""
    return facts.quorum is not None and newest is not None and broker.state != "down" and broker.id not in newest.live


def session_text(broker: BrokerFacts, *, zookeeper_responds: bool) -> str:
    """Its ZooKeeper session in words."""
    if not zookeeper_responds:
        known = broker.session_state and broker.state not in SILENT  # such a process does not hear of its session's end
        return f"session {broker.session_state}" if known else "session not known"
    if broker.session is None:
        return "no session" if broker.state == "down" else "not registered"
    if broker.state in SILENT:
        return f"session 0x{broker.session:x} {_left(broker)}"
    doubt = f", {broker.session_state}" if broker.session_state in {"suspended", "lost"} else ""
    return f"session 0x{broker.session:x}{doubt}"


def waiting_for_members(waited: Sequence[BrokerFacts], controller: int | None = None) -> str:
    """Return what the cluster awaits from silent brokers; empty if nothing.

    A broker's death is known to the controller by the end of its membership, and by nothing else. A leader may be
    replaced before by an election on demand, and a follower leaves the ISR before if it has lagged for long enough.

    Args:
        waited: the silent brokers that are still members.
        controller: the broker that is the controller by a session of its own; None in KRaft mode, where a quorum elects
            its next leader by itself.
    """
    if not waited:
        return ""
    each = "; ".join(
        f"broker {broker.id} is {broker.state}, and its membership of the cluster {_left(broker)}" for broker in waited
    )
    begun = f"{each[0].upper()}{each[1:]}. Until then"
    if any(broker.id == controller for broker in waited):
        return f"{begun} no other broker becomes the controller: no leader is elected, and no ISR changes."
    return f"{begun} the controller counts {'it' if len(waited) == 1 else 'them'} as alive."


def waiting_of(partition: Json, waited: Mapping[int, BrokerFacts]) -> str:
    """Return which memberships a partition waits for; empty for nothing.

    Args:
        partition: as the page has it.
        waited: the silent brokers that are still members, by id.
    """
    if (leader := waited.get(partition["leader"])) is not None:
        return f"the membership of broker {leader.id} {_left(leader)}; until then the controller counts it as alive"
    silent = [waited[broker] for broker in partition["isr"] if broker in waited]
    each = ", ".join(f"the membership of broker {broker.id} {_left(broker)}" for broker in silent)
    them = "it" if len(silent) == 1 else "them"
    return f"{each}; the ISR keeps {them} until then, or until a lag of replica.lag.time.max.ms" if each else ""


def _members_to_end(facts: Facts, newest: ClusterInfo | None) -> list[BrokerFacts]:
    """Return silent brokers that are still members; none if ZooKeeper is silent.

    In KRaft mode the members are the brokers that no controller has fenced: those in the newest metadata.
    """
    silent = [broker for broker in facts.brokers if broker.state in SILENT]
    if facts.quorum is not None:
        return [broker for broker in silent if newest is not None and broker.id in newest.live]
    return [broker for broker in silent if facts.zookeeper.responds and broker.session is not None]


def _left(broker: BrokerFacts) -> str:
    """Return how long its membership lasts, in words."""
    if broker.session_left_ms is None:
        return "has not ended yet"
    seconds = math.ceil(broker.session_left_ms / 1000)
    return f"ends in {seconds} s at the latest" if seconds > 0 else "is about to end"


def _partitions(brokers: Sequence[BrokerFacts], newest: ClusterInfo | None) -> dict[str, Json]:
    said = {
        (TopicPartition(one.topic, one.partition), broker.id): one
        for broker in brokers
        for one in broker.replicas or ()
    }
    states = newest_states(_metadata(brokers))
    by_id = {broker.id: broker for broker in brokers}
    found: dict[str, Json] = {}
    for at in _wanted(newest, said):
        state = states.get(at)
        assigned = list(state.replicas) if state is not None else sorted(i for tp, i in said if tp == at)
        replicas = [said.get((at, broker_id)) for broker_id in assigned]
        leader, leader_epoch, isr = _leadership(state, assigned, replicas, by_id)
        found[str(at)] = {
            "topic": at.topic,
            "partition": at.partition,
            "internal": at.topic in INTERNAL_TOPICS,
            "leader": leader,
            "leaderEpoch": leader_epoch,
            "assigned": assigned,
            "isr": isr,
            "osr": [broker_id for broker_id in assigned if broker_id not in isr],
            "elr": [] if state is None else list(state.elr or ()),
            "lastKnownLeader": [] if state is None else list(state.last_known_elr or ()),
            "low": min((one.log_start_offset for one in replicas if one is not None), default=0),
            "high": max((one.log_end_offset for one in replicas if one is not None), default=0),
            "replicas": {
                str(broker_id): _replica(at, by_id.get(broker_id), one, in_isr=broker_id in isr)
                for broker_id, one in zip(assigned, replicas, strict=True)
            },
        }
    return found


def _wanted(
    newest: ClusterInfo | None,
    said: Mapping[tuple[TopicPartition, int], metadata_pb2.ReplicaDescription],
) -> list[TopicPartition]:
    """Return all partitions; when no broker has metadata, those that were seen last."""
    if newest is None:
        names = {at for at, _ in said}
    else:
        names = {one.topic_partition for topic in newest.topics.values() for one in topic.partitions.values()}
    return sorted(names, key=lambda at: (at.topic, at.partition))


def _leadership(
    state: PartitionInfo | None,
    assigned: Sequence[int],
    replicas: Sequence[metadata_pb2.ReplicaDescription | None],
    brokers: Mapping[int, BrokerFacts],
) -> tuple[int | None, int | None, list[int]]:
    """Leader, its epoch and the ISR (rule 2)."""
    age = (-1, -1)
    leader: int | None = None
    isr: list[int] = []
    if state is not None:
        age, isr, leader = state.age, list(state.isr), state.leader_id
    for broker_id, one in zip(assigned, replicas, strict=True):
        broker = brokers.get(broker_id)
        if one is None or one.role != "leader" or broker is None or not broker.responded:
            continue
        if (own := (one.leader_epoch, one.partition_epoch)) > age:
            age, leader, isr = own, broker_id, list(one.isr)
    return leader, (None if age[0] < 0 else age[0]), isr


def _replica(
    at: TopicPartition, broker: BrokerFacts | None, said: metadata_pb2.ReplicaDescription | None, *, in_isr: bool
) -> Json:
    base: Json = {
        "isr": in_isr,
        "held": broker is not None and at in broker.held,
        "keptBy": None if broker is None else broker.held.get(at),
        "old": broker is None or not broker.responded,
    }
    if said is None:
        return base | {"role": "unknown"}
    if said.role == "offline":
        return base | {"role": "offline"}
    return base | {
        "role": said.role,
        "epoch": said.leader_epoch if said.HasField("leader_epoch") else None,
        "logStart": said.log_start_offset,
        "hw": said.high_watermark,
        "lso": said.last_stable_offset if said.HasField("last_stable_offset") else None,
        "leo": said.log_end_offset,
        "epochs": list(_epochs(said)),
        "bytes": said.size_bytes,
        "knows": {
            str(remote.broker_id): remote.log_end_offset if remote.HasField("log_end_offset") else None
            for remote in sorted(said.remote_replicas, key=lambda remote: remote.broker_id)
            if said.role == "leader"
        },
    }


def _epochs(said: metadata_pb2.ReplicaDescription) -> Iterator[list[int]]:
    """Each epoch of the cache as ``[epoch, first offset, end offset]``, from the log's start; empty ones too."""
    starts = [max(entry.start_offset, said.log_start_offset) for entry in said.epochs]
    ends = [*starts, said.log_end_offset][1:]
    for entry, start, end in zip(said.epochs, starts, ends, strict=True):
        yield [entry.leader_epoch, start, end]
