"""Producers with a transactional id, as Kafka's client behaves: what comes next, and what a response makes of it.

A producer has one request in flight. It may give the request up and send it again; the old one may still arrive. A
fatal error makes it begin again as a new process, which fences the old one.
Source: TransactionManager of Kafka's clients.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from tidegauge.errors import ErrorCode
from tidegauge.partition import TopicPartition
from tidegauge.transaction_marker import Outcome
from tidegauge.transactions import (
    AddPartitionsToTxn,
    AddPartitionsToTxnResult,
    EndTxn,
    EndTxnResult,
    InitProducerId,
    InitProducerIdResult,
    TransactionRequest,
    TransactionResult,
)
from tidegauge_proof.simulator.transactions.data import Datum

PARTITIONS = tuple(TopicPartition(topic, 0) for topic in ("t", "u", "__consumer_offsets"))
TIMEOUT_MS = 6_000
RETRIABLE = frozenset(
    {
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.CONCURRENT_TRANSACTIONS,
    }
)


class Phase(Enum):
    """The next step of a producer."""

    INITIALIZING = "initializing"
    READY = "ready"
    ADDING = "adding"
    PRODUCING = "producing"
    ENDING = "ending"


@dataclass(slots=True, eq=False)
class Story:
    """One transaction as its producer sees it.

    Attributes:
        speaks_v2: whether its end raises the epoch.
        end: what it asked for; None: it never did.
        is_acknowledged: whether EndTxn was responded to without an error.
    """

    producer: str
    epoch: tuple[int, int]
    partitions: tuple[TopicPartition, ...]
    speaks_v2: bool = False
    values: dict[TopicPartition, str] = field(default_factory=dict[TopicPartition, str])
    end: Outcome | None = None
    is_acknowledged: bool = False


@dataclass(slots=True, eq=False)
class Call:
    """A request, as often as it is sent; ``guard`` and ``datum`` of one that verifies for a partition's leader."""

    number: int
    producer: Producer
    request: TransactionRequest
    guard: object | None = None
    datum: tuple[TopicPartition, Datum] | None = None


class Producer:
    """One producer, over its restarts.

    Attributes:
        speaks_v2: whether each end raises its epoch (KIP-890, part 2).
        in_flight: the call that it waits for.
        broker: whom it takes for the coordinator.
    """

    speaks_v2 = False

    def __init__(self, name: str, transactional_id: str, broker: int) -> None:
        self.name = name
        self.transactional_id = transactional_id
        self.broker = broker
        self.phase = Phase.INITIALIZING
        self.producer_id = self.epoch = -1
        self.story: Story | None = None
        self.stories: list[Story] = []
        self.in_flight: Call | None = None
        self._written: set[TopicPartition] = set()

    def restart(self) -> None:
        """Begin a new process: its InitProducerId expects nothing."""
        self.phase = Phase.INITIALIZING
        self.producer_id = self.epoch = -1
        self.story = self.in_flight = None

    def begin(self, partitions: tuple[TopicPartition, ...]) -> None:
        """Begin a transaction on these partitions."""
        self.story = Story(self.name, (self.producer_id, self.epoch), partitions, self.speaks_v2)
        self.stories.append(self.story)
        self._written = set()
        self.phase = Phase.ADDING

    def next_request(self) -> TransactionRequest | None:
        """Return the producer's next request; None while it waits or writes data."""
        if self.in_flight is not None:
            return None
        if self.phase is Phase.INITIALIZING:
            return InitProducerId(self.transactional_id, TIMEOUT_MS, self.producer_id, self.epoch)
        story = self.story
        if self.phase is Phase.ADDING:
            assert story is not None
            return AddPartitionsToTxn(self.transactional_id, self.producer_id, self.epoch, story.partitions)
        if self.phase is Phase.ENDING:
            assert story is not None
            assert story.end is not None
            return EndTxn(self.transactional_id, self.producer_id, self.epoch, story.end)
        return None

    def next_datum(self, number: int) -> tuple[TopicPartition, Datum] | None:
        """Return a record to write, the same one until it is written."""
        if self.phase is not Phase.PRODUCING:
            return None
        assert self.story is not None
        for partition in self.story.partitions:
            if partition not in self._written:
                value = self.story.values.setdefault(partition, f"{self.name}:{number}")
                return partition, Datum(self.producer_id, self.epoch, value)
        return None

    def end(self, outcome: Outcome) -> None:
        """Decide how the transaction ends."""
        assert self.story is not None
        self.story.end, self.phase = outcome, Phase.ENDING

    def written(self, partition: TopicPartition, datum: Datum, error: ErrorCode) -> None:
        """Take the response to a record."""
        story = self.story
        if self.phase is not Phase.PRODUCING or story is None or story.values.get(partition) != datum.value:
            return
        if error is ErrorCode.NONE:
            self._written.add(partition)
        elif error is ErrorCode.TRANSACTION_ABORTABLE:
            self.end(Outcome.ABORT)
        elif error not in RETRIABLE:
            self.restart()

    @property
    def has_written_all(self) -> bool:
        """Whether the transaction may be committed."""
        return self.phase is Phase.PRODUCING and self.story is not None and self._written == set(self.story.partitions)

    def responded(self, result: TransactionResult) -> None:
        """Take a response that the producer waits for."""
        self.in_flight = None
        if isinstance(result, InitProducerIdResult):
            self._initialized(result)
            return
        assert isinstance(result, (AddPartitionsToTxnResult, EndTxnResult))
        error = result.error if isinstance(result, EndTxnResult) else next(iter(result.partitions.values()))
        if error in RETRIABLE:
            self.broker = self.broker if error is ErrorCode.CONCURRENT_TRANSACTIONS else -1
        elif error is not ErrorCode.NONE:
            self.restart()
        elif self.phase is Phase.ADDING:
            self.phase = Phase.PRODUCING
        else:
            assert self.story is not None
            self.story.is_acknowledged = True
            self.story, self.phase = None, Phase.READY

    def _initialized(self, result: InitProducerIdResult) -> None:
        if result.error is ErrorCode.NONE:
            self.producer_id, self.epoch = result.producer_id, result.producer_epoch
            self.phase = Phase.READY
        elif result.error in RETRIABLE:
            self.broker = self.broker if result.error is ErrorCode.CONCURRENT_TRANSACTIONS else -1
        else:
            self.restart()
