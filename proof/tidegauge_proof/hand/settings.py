"""The settings of a cluster that is driven by hand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import permutations
from math import factorial

from tidegauge_broker.replica.rules import RULES
from tidegauge_proof.own_rules import NAME as OWN_RULE
from tidegauge_proof.own_rules import OwnRules

MOST_REPLICAS = 5
MOST_PARTITIONS = 5
_MOST_PLACED = 54_321
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
        placed: where ``orders-0`` is: the digits are the assigned brokers in order, each plus one (231: brokers 1, 2
            and 0), and ``replicas`` and ``order`` count no more; 0: as these two say. The controller is broker 0.
        second, transactions_at, offsets_at: the same of ``orders-1``, ``__transaction_state-0`` and
            ``__consumer_offsets-0``; 0: there is no ``orders-1``, and the others are where ``orders-0`` is.
        partitions: of ``orders``; all after the second have its assignment.
        min_insync_transactions: ``min.insync.replicas`` of ``__transaction_state``; 0: the same as for ``orders``.
        transactions_v2: coordinators and producers are as with transaction.version=2 (KIP-890, part 2).
        names: what a story calls its clients, groups and records, by their kinds; no schedule's text holds them.
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
    placed: int = 0
    second: int = 0
    partitions: int = 1
    transactions_at: int = 0
    offsets_at: int = 0
    min_insync_transactions: int = 0
    transactions_v2: int = 0
    names: Mapping[str, Mapping[int, str]] = field(default_factory=dict[str, Mapping[int, str]], compare=False)
    own: OwnRules | None = None

    @property
    def brokers(self) -> tuple[int, ...]:
        """All brokers, in order."""
        if self.placed:
            return tuple(sorted({0, *(one for at in self.assignments for one in at)}))
        return tuple(range(self.replicas + self.apart))

    @property
    def assignment(self) -> tuple[int, ...]:
        """The brokers that have a replica, in the order of the assignment."""
        return placed_at(self.placed) if self.placed else orders(self.brokers[self.apart :])[self.order]

    @property
    def data_assignments(self) -> list[tuple[int, ...]]:
        """The assignment of each partition of ``orders``."""
        further = placed_at(self.second) if self.second else self.assignment
        return [self.assignment, *[further] * (self.partitions - 1)]

    @property
    def assignments(self) -> list[tuple[int, ...]]:
        """The assignments of all partitions that this says anything of; its own ones only if it is placed."""
        internal = [placed_at(one) for one in (self.transactions_at, self.offsets_at) if one]
        return [*self.data_assignments, *internal]

    def name(self, kind: str, number: int) -> str:
        """Return the story's name of a client, a group or an id.

        Without a story it is its kind's letter and its number.
        """
        return self.names.get(kind, {}).get(number, f"{kind[0]}{number}")

    @property
    def rule_name(self) -> str:
        """The truncation rule by its name."""
        own = self.own is not None and self.own.truncation is not None
        return OWN_RULE if own else RULE_NAMES[self.rule]

    @property
    def controller(self) -> int:
        """The broker that becomes the controller first."""
        return 0 if self.apart or self.placed else self.assignment[-1]


def orders(brokers: tuple[int, ...]) -> list[tuple[int, ...]]:
    """Return all orders of some brokers."""
    return list(permutations(brokers))


def placed_at(number: int) -> tuple[int, ...]:
    """Return an assignment that is written as a number.

    Its digits, each minus one, are the brokers.
    """
    return tuple(int(digit) - 1 for digit in str(number))


def placing(brokers: Sequence[int]) -> int:
    """Return an assignment as a number (``placed_at``)."""
    return int("".join(str(one + 1) for one in brokers))


class Field:
    """A setting in a schedule's text: its name, its letter and its bounds, and whether the page's form has it."""

    def __init__(self, name: str, letter: str, least: int, most: int, *, is_shown: bool = True) -> None:
        self.name, self.letter, self.least, self.most, self.is_shown = name, letter, least, most, is_shown


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
    Field("placed", "p", 0, _MOST_PLACED, is_shown=False),
    Field("second", "q", 0, _MOST_PLACED, is_shown=False),
    Field("partitions", "n", 1, MOST_PARTITIONS, is_shown=False),
    Field("transactions_at", "t", 0, _MOST_PLACED, is_shown=False),
    Field("offsets_at", "s", 0, _MOST_PLACED, is_shown=False),
    Field("min_insync_transactions", "m", 0, MOST_REPLICAS, is_shown=False),
    Field("transactions_v2", "v", 0, 1, is_shown=False),
)
