"""The rules in force at a broker, their effect on a request, and the journal of the requests that arrived meanwhile.

Rules:
    1. Rules are asked in their order. One that observes counts and lets the others be asked; of the others the first
       that affects the request decides.
    2. The whole list is set at once. A rule whose id stays keeps what it holds; one that is
       no longer there releases it.
    3. Rules apply to requests of clients, over Kafka's protocol and over gRPC, as far as the rule can act there
       (``Rule.acts_on``). Requests among brokers, and the lab's own, are neither counted nor affected.
    4. The journal has the requests that arrive while a rule is in force, or that a fault affects, with the effect
       on each of the fault and of the deciding rule.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from tidegauge.faults.apis import GRPC
from tidegauge.faults.rules import Rule
from tidegauge_broker.server.lab.barrier import Barrier
from tidegauge_broker.server.lab.tally import Tally
from tidegauge_broker.server.service.gate import GatedRequest

JOURNAL_ENTRIES = 5_000


@dataclass(frozen=True, slots=True)
class SetRule:
    """A rule to put in force.

    Attributes:
        rule_id: set by the rule's creator.
        tally: file of its numbers; None: of this broker alone.
        text: the rule as JSON.
    """

    rule_id: str
    rule: Rule
    tally: Path | None = None
    text: str = ""


class RuleState(NamedTuple):
    """A rule in force, with what it holds now and how many requests it has affected or observed."""

    rule_id: str
    text: str
    held: int
    hits: int


@dataclass(slots=True)
class _InForce:
    rule_id: str
    rule: Rule
    tally: Tally
    text: str
    barrier: Barrier = field(default_factory=Barrier)


@dataclass(frozen=True, slots=True)
class Taken:
    """The effect of rules on one request.

    Attributes:
        rule: the rule that affects it.
        barrier: where its response waits, if the rule holds; or the request, if it freezes the connection.
    """

    rule: Rule
    barrier: Barrier | None = None


@dataclass(slots=True)
class Arrived:
    """An entry of the journal.

    Attributes:
        number: rises by one; begins at 1.
        time_ms: since 1970.
        rules: ids of the rules that meant it and counted it as affected.
        done: what faults and the deciding rule do to it; empty: nothing.
    """

    number: int
    time_ms: int
    request: GatedRequest
    rules: list[str] = field(default_factory=list)
    done: str = ""

    def add(self, words: str) -> None:
        """Add something that is done to it."""
        self.done = f"{self.done}, {words}" if self.done else words


class RuleTable:
    """The rules in force at a broker, and their journal.

    Args:
        broker_id: this broker.
    """

    def __init__(self, broker_id: int) -> None:
        self._broker_id = broker_id
        self._in_force: list[_InForce] = []
        self._journal: deque[Arrived] = deque()
        self._entries: dict[int, Arrived] = {}
        self._last = 0

    @property
    def is_empty(self) -> bool:
        """Whether no rule is in force."""
        return not self._in_force

    def set(self, wanted: Iterable[SetRule]) -> None:
        """Put these rules in force, and no others. Rule 2."""
        before = {entry.rule_id: entry for entry in self._in_force}
        self._in_force = [
            before.pop(one.rule_id)
            if one.rule_id in before
            else _InForce(one.rule_id, one.rule, Tally(one.tally), one.text)
            for one in wanted
        ]
        for entry in before.values():
            entry.barrier.release()

    def close(self) -> None:
        """End what holds keep: the broker stops."""
        for entry in self._in_force:
            entry.barrier.refuse()

    def held(self) -> dict[str, int]:
        """Return how many responses each rule holds now, by its id."""
        return {entry.rule_id: entry.barrier.held for entry in self._in_force}

    def states(self) -> list[RuleState]:
        """Return the rules in force, in their order."""
        return [RuleState(entry.rule_id, entry.text, entry.barrier.held, entry.tally.hits) for entry in self._in_force]

    def after(self, number: int) -> Sequence[Arrived]:
        """Return the entries of the journal after a number."""
        return [entry for entry in self._journal if entry.number > number]

    def take(self, request: GatedRequest, now_ms: int) -> Taken | None:
        """Count one request; return the effect on it, or None. Rules 1 and 3."""
        if self.is_empty or not _is_a_clients(request):
            return None
        arrived = self._arrived(request, now_ms)
        for entry in self._in_force:
            rule = entry.rule
            if not request.is_of_kafka and GRPC not in rule.acts_on:
                continue
            if not _means(rule, request, self._broker_id) or not entry.tally.take(rule.is_affected):
                continue
            arrived.rules.append(entry.rule_id)
            if not rule.observe:
                arrived.add(described(rule))
                return Taken(rule, entry.barrier if rule.hold or rule.freeze else None)
        return None

    def note_fault(self, request: GatedRequest, now_ms: int, words: str, fault_ids: Sequence[int]) -> None:
        """Note what faults do to a request. Rule 4."""
        if _is_a_clients(request):
            numbers = ", ".join(map(str, fault_ids))
            self._arrived(request, now_ms).add(f"{words} (fault {numbers})")

    def _arrived(self, request: GatedRequest, now_ms: int) -> Arrived:
        """Return the request's entry in the journal; make it if necessary."""
        # The journal keeps its requests alive, so no two of them have one id.
        known = self._entries.get(id(request))
        if known is not None:
            return known
        if len(self._journal) == JOURNAL_ENTRIES:
            del self._entries[id(self._journal.popleft().request)]
        self._last += 1
        arrived = self._entries[id(request)] = Arrived(self._last, now_ms, request)
        self._journal.append(arrived)
        return arrived


def _is_a_clients(request: GatedRequest) -> bool:
    """Whether the request comes neither from a broker nor from the lab. Rule 3."""
    return request.caller.broker_id is None and not request.is_of_lab


def described(rule: Rule) -> str:
    """Return what a rule does to a request, in a few words."""
    parts = []
    if rule.delay_ms:
        parts.append(f"delayed by {rule.delay_ms} ms")
    if rule.bytes_per_second:
        parts.append(f"sent at {rule.bytes_per_second} bytes a second")
    if rule.freeze:
        parts.append("connection frozen")
    if rule.hold:
        parts.append("response held")
    if rule.throttle_time_ms:
        parts.append(f"throttle_time_ms {rule.throttle_time_ms}")
    if rule.disconnect:
        parts.append("connection closed")
    if rule.error is not None:
        parts.append(f"error {rule.error}{_where(rule)}")
    return ", ".join(parts) + (" after its effect" if rule.after_effect else "")


def _where(rule: Rule) -> str:
    if not rule.topic or rule.top_level:
        return ""
    numbers = ", ".join(map(str, sorted(rule.partitions)))
    return f" of {rule.topic}" + (f"-{numbers}" if numbers else "")


def _means(rule: Rule, request: GatedRequest, broker_id: int) -> bool:
    """Return whether a rule means a request; rule 2 of ``tidegauge.faults.rules``."""
    if (rule.keys and request.api not in rule.keys) or (rule.nodes and broker_id not in rule.nodes):
        return False
    if (rule.client_id and rule.client_id != request.client_id) or (rule.group and rule.group != request.group):
        return False
    if rule.txn_id and rule.txn_id not in {request.transactional_id, request.group}:
        return False
    if rule.resource and rule.resource not in request.resources:
        return False
    if not rule.topic:
        return True
    return any(
        at.topic == rule.topic and (not rule.partitions or at.partition == -1 or at.partition in rule.partitions)
        for at in request.partitions
    )
