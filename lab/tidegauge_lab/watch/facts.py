"""The page's input: reports of processes, brokers and ZooKeeper at one moment. Plain values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Any

from tidegauge.lazy_dataclasses import dataclass
from tidegauge.partition import TopicPartition
from tidegauge.v1 import lab_pb2, metadata_pb2
from tidegauge_client.metadata import ClusterInfo
from tidegauge_client.share_views import BrokerShares


@dataclass(frozen=True, slots=True)
class BrokerFacts:
    """One broker.

    Attributes:
        address: ``host:port``.
        state: of its process: ``up``, ``paused``, ``down``; ``unknown`` where the process is not ours to look at;
            ``kafka``: an Apache Kafka broker, which is registered and can't be asked.
        pid: while there is a process of ours.
        metadata: its metadata cache; None when it did not respond.
        replicas: what it holds, as it said last; None when it has never responded.
        responded: whether ``replicas`` is what it says now.
        faults: in force inside it, one line each.
        held: followers that are held; the value is the leader that withholds a response, or None.
        groups: the consumer groups that it coordinates, as it said last; None when it has never responded.
        groups_responded: whether that is what it says now.
        shares: its share partitions, and the states of such that it keeps; None when it did not respond, or has no lab.
        session: the ZooKeeper session that owns its registration; None without one.
        session_state: ``connected``, ``suspended`` or ``lost`` by its event log; empty when it never said.
        session_left_ms: of a broker that is down or paused: after how long its session, or its membership in KRaft
            mode, has ended at the latest; None if that is not known.
    """

    id: int
    address: str
    state: str
    pid: int | None = None
    metadata: ClusterInfo | None = None
    replicas: Sequence[metadata_pb2.ReplicaDescription] | None = None
    responded: bool = False
    faults: Sequence[str] = ()
    held: Mapping[TopicPartition, int | None] = field(default_factory=dict)
    session: int | None = None
    session_state: str = ""
    session_left_ms: float | None = None
    groups: Sequence[lab_pb2.ObservedGroup] | None = None
    groups_responded: bool = False
    shares: BrokerShares | None = None


@dataclass(frozen=True, slots=True)
class ZooKeeperFacts:
    """ZooKeeper.

    Attributes:
        state: ``up``, ``paused``, ``down``, or ``unknown``.
        managed: whether the lab started it, and may stop it.
        responds: whether the sessions are what it says now.
    """

    address: str = ""
    state: str = "unknown"
    managed: bool = False
    responds: bool = False


@dataclass(frozen=True, slots=True)
class QuorumFacts:
    """The controllers of a cluster in KRaft mode.

    Attributes:
        leader: the active controller; None while there is none.
        epoch: its epoch.
        controllers: by id, as ``tidegauge status -o json`` shows them.
    """

    leader: int | None
    epoch: int | None
    controllers: Sequence[Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class Facts:
    """A cluster at one moment.

    Attributes:
        name: what the page calls it: its directory or its bootstrap servers.
        brokers: by id, those that should be there.
        zookeeper: ZooKeeper.
        quorum: the controllers; None in ZooKeeper mode.
        switchable: whether this is a cluster of the lab, so that the page may do things to it.
        problem: one sentence when there is nothing to look at (any more); empty otherwise.
    """

    name: str
    brokers: Sequence[BrokerFacts] = ()
    zookeeper: ZooKeeperFacts = ZooKeeperFacts()
    quorum: QuorumFacts | None = None
    switchable: bool = False
    problem: str = ""
