"""Words and rules about members and controllers that depend on the cluster's mode. Pure.

In ZooKeeper mode a broker is alive while its session lasts, and one of the brokers is the controller. In KRaft mode it
is alive while its heartbeats arrive at the active controller, which leads a quorum; metadata of brokers name any
broker in its place (KIP-631), so that nothing is said of it here.
"""

from __future__ import annotations

from typing import NamedTuple


class MembershipWords(NamedTuple):
    """The words for members in one mode.

    Attributes:
        is_member: said of a live broker.
        is_none: said of a broker that is not alive.
        membership: what a live broker has, and a dead one loses.
        store: where settings are, and elections are written.
        rule_alive: how long a broker counts as alive.
        rule_death: what its death changes.
        rule_settings: where settings are kept.
        news: what tells a replica of a new leader, epoch or ISR.
        rule_leads: from when on a broker leads.
        why_not_yet: why an elected broker does not lead yet.
        names_controller: whether metadata name the controller.
    """

    is_member: str
    is_none: str
    membership: str
    store: str
    rule_alive: str
    rule_death: str
    rule_settings: str
    news: str
    rule_leads: str
    why_not_yet: str
    names_controller: bool


ZOOKEEPER = MembershipWords(
    is_member="registered in ZooKeeper",
    is_none="not registered in ZooKeeper",
    membership="session",
    store="ZooKeeper",
    rule_alive="a broker counts as alive until its session with ZooKeeper ends (zookeeper.session.timeout.ms)",
    rule_death="the controller removes a dead broker from every ISR, but never the last member "
    "(ReplicaStateMachine, OfflineReplica)",
    rule_settings="topic settings are kept in /config/topics, and brokers read them there (ZkConfigRepository)",
    news="LeaderAndIsr",
    rule_leads="a broker leads once it has applied the controller's LeaderAndIsr request",
    why_not_yet="the controller's request has not reached it",
    names_controller=True,
)
KRAFT = MembershipWords(
    is_member="not fenced",
    is_none="fenced, or not registered",
    membership="session with the controller",
    store="the quorum of controllers",
    rule_alive="a broker counts as alive until its heartbeats to the active controller have been missing for "
    "broker.session.timeout.ms; then it is fenced (KIP-631, BrokerHeartbeatManager)",
    rule_death="the controller removes a fenced broker from every ISR; with eligible leader replicas the last member, "
    "too, which stays eligible (KIP-966, ReplicationControlManager)",
    rule_settings="topic settings are records of the metadata log, and brokers read them there (KIP-500)",
    news="record of the partition in the metadata log",
    rule_leads="a broker leads once it has applied the record of its election in the metadata log (KIP-500, "
    "BrokerMetadataPublisher)",
    why_not_yet="it has not applied the metadata log so far",
    names_controller=False,
)
