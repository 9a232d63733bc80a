"""What is known of a partition, and a statement about it: the input and the output of ``explanation``. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from tidegauge.in_sync import effective_min_isr
from tidegauge.partition import TopicPartition
from tidegauge_client.open_transaction_explanation import PartitionTransactions

About = Literal[
    "leader",
    "high-watermark",
    "isr",
    "follower",
    "producers",
    "consumers",
    "transactions",
    "health",
    "lab",
    "reassignment",
]


@dataclass(frozen=True, slots=True)
class Remote:
    """What the leader knows of a follower; None where it knows nothing."""

    leo: int | None = None
    caught_up_ago_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Led:
    """What the leader reports; ``lso`` is None where it does not report its last stable offset."""

    leo: int
    hw: int
    isr: tuple[int, ...]
    maximal_isr: tuple[int, ...]
    remotes: Mapping[int, Remote]
    epoch_start: int | None = None
    lso: int | None = None


@dataclass(frozen=True, slots=True)
class Facts:
    """What is known of a partition.

    Attributes:
        replicas: the assignment, in order.
        isr: the ISR in the metadata.
        leader: the leader in the metadata; None: there is none, or it is not alive.
        live: registered brokers.
        kafka: those that are Apache Kafka's, without a gRPC listener, and can't be asked.
        silent: live brokers, the controller among them, that did not respond within a second.
        offline: assigned replicas on dead brokers or in failed log directories.
        led: the leader's report; None if there is no leader, or it did not respond.
        own_hws: the followers' own HW, where they reported it.
        controller: the active controller.
        min_isr: min.insync.replicas.
        lag_ms: the leader's replica.lag.time.max.ms; None if it was not reported.
        unclean: unclean.leader.election.enable.
        held: brokers whose follower of the partition the lab holds.
        faulty: number of faults that the lab has in force in a broker.
        adding, removing: replicas that a reassignment adds and removes.
        settings_problem: why the topic's settings are not known; the defaults are assumed then.
        transactions: that are open there; None: the leader was not asked.
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

    @property
    def effective_min_isr(self) -> int:
        """Return min.insync.replicas, at most the replication factor."""
        return effective_min_isr(self.min_isr, len(self.replicas))

    @property
    def obstacle(self) -> str:
        """Return what keeps leaders and ISRs as they are for now; empty where nothing is known to."""
        if self.settings_problem:
            return "ZooKeeper, which does not respond"
        return "the controller, which does not respond" if self.controller in {None, *self.silent} else ""


@dataclass(frozen=True, slots=True)
class Sentence:
    """One statement about the partition.

    Attributes:
        about: what it explains.
        text: the state, and its cause.
        rule: Kafka's rule.
        change: what would change it; empty where nothing needs to.
        broker: the broker concerned.
        wait_ms: upper bound in ms after which it changes by itself; None: it does not, or that is not known.
    """

    about: About
    text: str
    rule: str
    change: str = ""
    broker: int | None = None
    wait_ms: int | None = None
