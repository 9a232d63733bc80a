"""Messages on their way between the processes of a simulated cluster, and the listeners for their outcomes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from tidegauge.control import IsrProposal, IsrVerdict
from tidegauge.partition import TopicPartition
from tidegauge_broker.replica.effects import LeadershipChanged
from tidegauge_broker.replica.messages import (
    EpochEndResult,
    EpochRound,
    FetchedPartition,
    FetchRound,
    ProduceResult,
)
from tidegauge_proof.simulator.clients import Produced
from tidegauge_proof.simulator.memory_broker import MemoryBroker


@dataclass(slots=True, eq=False)
class Exchange:
    """One round of a follower, from the request to the response. It is its own token at the leader."""

    follower: MemoryBroker
    incarnation: int
    broker_epoch: int
    chosen: FetchRound | EpochRound
    response: list[FetchedPartition] | list[EpochEndResult] | None = None


@dataclass(slots=True, eq=False)
class Consumed:
    """A consumer's fetch, from an offset in each of some partitions."""

    offsets: Mapping[TopicPartition, int]


@dataclass(slots=True, eq=False)
class Sent:
    """A client's produce request: a batch for each of some partitions."""

    batches: list[Produced]


class Coordinators(Protocol):
    """Listener for leaderships, and for the outcomes of its appends; it must not act before the event is over."""

    def leadership_changed(self, broker: MemoryBroker, change: LeadershipChanged) -> None:
        """Take in that a broker gained or lost a leadership."""
        ...

    def produced(self, broker: MemoryBroker, token: object, results: Sequence[ProduceResult]) -> None:
        """Take in the response to a produce that no client has sent."""
        ...


@dataclass(slots=True)
class Verdict:
    """The response to one request with an ISR proposal, on its way to a broker's process; None: there will be none."""

    broker: MemoryBroker
    request: object
    proposal: IsrProposal
    verdict: IsrVerdict | None


@dataclass(slots=True)
class Traffic:
    """The messages on their way."""

    requests: list[Exchange] = field(default_factory=list)
    responses: list[Exchange] = field(default_factory=list)
    verdicts: list[Verdict] = field(default_factory=list)
    strays: list[tuple[int, Any]] = field(default_factory=list)
    """Control requests of controllers that have resigned, or to brokers that were dead."""
