"""The facts about a partition: the input of ``explanation``. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field

from tidegauge.in_sync import effective_min_isr
from tidegauge.lazy_dataclasses import dataclass
from tidegauge.partition import TopicPartition
from tidegauge_client.explanation_modes import ZOOKEEPER, MembershipWords
from tidegauge_client.open_transaction_explanation import PartitionTransactions
from tidegauge_client.topic_ids import TopicIds


@dataclass(frozen=True, slots=True)
class Remote:
    """The leader's knowledge of a follower; None if it has none."""

    leo: int | None = None
    caught_up_ago_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Led:
    """The leader's report; ``lso`` is None if it does not report its last stable offset."""

    leo: int
    hw: int
    isr: tuple[int, ...]
    maximal_isr: tuple[int, ...]
    remotes: Mapping[int, Remote]
    epoch_start: int | None = None
    lso: int | None = None


@dataclass(frozen=True, slots=True)
class RefusedRequest:
    """The last request between the controller and a broker that was refused.

    Attributes:
        broker: the replica's broker. It refused LeaderAndIsr; the controller refused its AlterPartition.
        request: LeaderAndIsr or AlterPartition.
        error: the name of the error.
        leader_epoch: of the request.
        ago_ms: time since then.
        topic_id: of the request; empty: none.
        own_topic_id: of the replica; empty: it was not compared.
    """

    broker: int
    request: str
    error: str
    leader_epoch: int
    ago_ms: int
    topic_id: str = ""
    own_topic_id: str = ""


@dataclass(frozen=True, slots=True)
class Facts:
    """The known facts about a partition.

    Attributes:
        replicas: the assignment, in order.
        isr: the ISR in the metadata.
        leader: the leader in the metadata; None: there is none, or it is not alive.
        live: registered brokers.
        kafka: those that are Apache Kafka's, without a gRPC listener, and can't be asked.
        silent: live brokers, the controller among them, that did not respond within a second.
        offline: assigned replicas on dead brokers or in failed log directories.
        led: the leader's report; None if there is no leader, or it did not respond.
        own_hws: the followers' own HW, if they reported it.
        controller: the active controller.
        min_isr: min.insync.replicas.
        lag_ms: the leader's replica.lag.time.max.ms; None if it was not reported.
        unclean: unclean.leader.election.enable.
        held: brokers whose follower of the partition the lab holds.
        faulty: number of faults that the lab has in force in a broker.
        adding, removing: replicas that a reassignment adds and removes.
        settings_problem: why the topic's settings are not known; the defaults are assumed then.
        transactions: that are open there; None: the leader was not asked.
        refusals: requests between the controller and the replicas' brokers that were refused last.
        topic_ids: the topic's id wherever it is kept.
        ends: how the processes of brokers that are down have ended, in a sentence each; empty if no directory of the
            cluster is at hand.
        words: the words for members in the cluster's mode.
        elr: the eligible leader replicas, which are not in the ISR; empty in ZooKeeper mode.
        last_known_elr: the broker that led last, if the partition has no leader; empty in ZooKeeper mode.
    """

    at: TopicPartition
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    leader: int | None
    leader_epoch: int
    live: frozenset[int]
    silent: frozenset[int] = frozenset()
    offline: frozenset[int] = frozenset()
    led: Led | None = None
    own_hws: Mapping[int, int] = field(default_factory=dict)
    controller: int | None = 0
    min_isr: int = 1
    lag_ms: int | None = None
    unclean: bool = False
    held: frozenset[int] = frozenset()
    faulty: Mapping[int, int] = field(default_factory=dict)
    settings_problem: str = ""
    adding: tuple[int, ...] = ()
    removing: tuple[int, ...] = ()
    transactions: PartitionTransactions | None = None
    kafka: frozenset[int] = frozenset()
    refusals: tuple[RefusedRequest, ...] = ()
    topic_ids: TopicIds = field(default_factory=TopicIds)
    ends: Mapping[int, str] = field(default_factory=dict)
    words: MembershipWords = ZOOKEEPER
    elr: tuple[int, ...] = ()
    last_known_elr: tuple[int, ...] = ()

    def refusal(self, broker: int | None, request: str) -> RefusedRequest | None:
        """Return the last refusal of a request of or at a broker."""
        return next((one for one in self.refusals if (one.broker, one.request) == (broker, request)), None)

    @property
    def effective_min_isr(self) -> int:
        """Return min.insync.replicas, at most the replication factor."""
        return effective_min_isr(self.min_isr, len(self.replicas))

    @property
    def obstacle(self) -> str:
        """Return the known obstacle to changes of leaders and ISRs, if any."""
        if self.settings_problem:
            return f"{self.words.store}, which does not respond"
        is_silent = self.words.names_controller and self.controller in {None, *self.silent}
        return "the controller, which does not respond" if is_silent else ""
