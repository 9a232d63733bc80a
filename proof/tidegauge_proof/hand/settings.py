"""The settings of a cluster that is driven by hand."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import permutations
from math import factorial

from tidegauge_broker.replica.rules import RULES
from tidegauge_proof.own_rules import NAME as OWN_RULE
from tidegauge_proof.own_rules import OwnRules

MOST_REPLICAS = 5
RULE_NAMES = tuple(rule.name for rule in RULES)
SESSION_TIMEOUT_MS = 18_000
"""zookeeper.session.timeout.ms by default."""
WITH_SHARE_GROUPS = 2
"""Value of ``Settings.coordinators`` with which a cluster has share groups."""
LAG_TIME_MAX_MS = 30_000
"""replica.lag.time.max.ms by default."""


@dataclass(frozen=True, slots=True)
class Settings:
    """Settings of the cluster and of its one topic.

    Attributes:
        replicas: number of brokers with a replica of ``orders-0``.
        order: number of the assignment's order among all orders of these brokers, in lexicographic order.
        min_insync_replicas: of the topic.
        rule: place of ``replica.truncation.rule`` in ``RULE_NAMES``.
        unclean: ``unclean.leader.election.enable`` of the topic.
        flushes: ``log.flush.interval.messages=1``: every append is on disk before it counts.
        by_hand: messages wait in flight until they are delivered, each by an action of its own.
        coordinators: 1: the cluster has ``__transaction_state`` and ``__consumer_offsets``, each with one partition,
            and the coordinators of transactions and groups; 2: it has ``__share_group_state`` and share groups, too.
        own: rules of the caller, in place of Kafka's; no schedule's text holds them.
        apart: broker 0 is the controller and has no replica; else the last broker of the assignment is the controller.
    """

    replicas: int = 3
    order: int = 0
    min_insync_replicas: int = 1
    rule: int = len(RULE_NAMES) - 1
    unclean: int = 0
    flushes: int = 0
    by_hand: int = 0
    apart: int = 0
    coordinators: int = 0
    own: OwnRules | None = None

    @property
    def brokers(self) -> tuple[int, ...]:
        """All brokers, in order."""
        return tuple(range(self.replicas + self.apart))

    @property
    def assignment(self) -> tuple[int, ...]:
        """The brokers that have a replica, in the order of the assignment."""
        return orders(self.brokers[self.apart :])[self.order]

    @property
    def rule_name(self) -> str:
        """The truncation rule by its name."""
        own = self.own is not None and self.own.truncation is not None
        return OWN_RULE if own else RULE_NAMES[self.rule]

    @property
    def controller(self) -> int:
        """The broker that becomes the controller first."""
        return 0 if self.apart else self.assignment[-1]


def orders(brokers: tuple[int, ...]) -> list[tuple[int, ...]]:
    """Return all orders of some brokers."""
    return list(permutations(brokers))


class Field:
    """A setting in a schedule's text: its name, its letter and its bounds."""

    def __init__(self, name: str, letter: str, least: int, most: int) -> None:
        self.name, self.letter, self.least, self.most = name, letter, least, most


FIELDS = (
    Field("replicas", "b", 1, MOST_REPLICAS),
    Field("order", "o", 0, factorial(MOST_REPLICAS) - 1),
    Field("min_insync_replicas", "i", 1, MOST_REPLICAS),
    Field("rule", "r", 0, len(RULE_NAMES) - 1),
    Field("unclean", "u", 0, 1),
    Field("flushes", "f", 0, 1),
    Field("by_hand", "h", 0, 1),
    Field("apart", "c", 0, 1),
    Field("coordinators", "g", 0, WITH_SHARE_GROUPS),
)
