"""Clients of the cluster: copiers, which consume, transform and produce in transactions (KIP-98, KIP-447).

A copier is a member of the group, reads its partitions of the input from where the group has committed, writes what it
read to the output, and commits its position, all in one transaction of a transactional id of its own. It has one
request in flight beside its membership's, which go on meanwhile; its offsets it commits as the member that it
was when it read the input, since Kafka's consumer joins a generation in poll alone. Its consumer and its producer have
each found a coordinator of the group for themselves: offsets are fetched where heartbeats are sent, and committed
perhaps at the next coordinator. It gives a request up and sends the same one again; after an error that leaves its
state in doubt it begins again as a new process, which fences the old one. A paused copier does nothing, so that it may
come back as a zombie.

The input is a list that everybody can read. A record of the output says which record of the input it is the image of,
who made it and in which of its transactions.
Source: TransactionalMessageCopier, TransactionManager, ConsumerCoordinator of Kafka.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from tidegauge.errors import ErrorCode
from tidegauge.groups import OffsetFetch, OffsetToCommit, TxnOffsetCommit, TxnOffsetCommitResult
from tidegauge.partition import TopicPartition
from tidegauge.transaction_marker import Outcome
from tidegauge.transactions import AddOffsetsToTxn, AddPartitionsToTxn, EndTxn, InitProducerId
from tidegauge_client.records import NewRecord, encode_batch
from tidegauge_proof.simulator.dice import Dice
from tidegauge_proof.simulator.groups.members import GROUP, TOPIC, Member

OUTPUTS = tuple(TopicPartition("output", partition) for partition in range(2))
INPUT_RECORDS = (24, 16)
"""How many records each partition of the input has; a member may be assigned further ones, which are empty."""
SIMPLE_GROUP = "simple"
"""A group without members, to which offsets are committed in transactions and without."""
SIMPLE = TopicPartition("progress", 0)
E = ErrorCode
CONSUMER = "consumer"
"""The group's coordinator as the copier's consumer knows it; ``group`` is the one that its producer knows."""
RETRIABLE = frozenset(
    {
        E.COORDINATOR_LOAD_IN_PROGRESS,
        E.COORDINATOR_NOT_AVAILABLE,
        E.NOT_COORDINATOR,
        E.CONCURRENT_TRANSACTIONS,
        E.NOT_LEADER_OR_FOLLOWER,
        E.UNKNOWN_TOPIC_OR_PARTITION,
        E.NOT_ENOUGH_REPLICAS,
        E.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        E.REQUEST_TIMED_OUT,
        E.KAFKA_STORAGE_ERROR,
        E.NETWORK_EXCEPTION,
        E.UNSTABLE_OFFSET_COMMIT,
    }
)
_MOVED = frozenset({E.NOT_COORDINATOR, E.COORDINATOR_NOT_AVAILABLE})
"""Errors at which a consumer looks for its coordinator again."""
_MEMBER_IS_LATE = frozenset({E.ILLEGAL_GENERATION, E.UNKNOWN_MEMBER_ID, E.FENCED_INSTANCE_ID})
DEFINITE = _MEMBER_IS_LATE | {
    E.INVALID_PRODUCER_EPOCH,
    E.INVALID_TXN_STATE,
    E.PRODUCER_FENCED,
    E.OUT_OF_ORDER_SEQUENCE_NUMBER,
    E.INVALID_PRODUCER_ID_MAPPING,
    E.TRANSACTION_ABORTABLE,
}
"""Errors that say that this very request had no effect."""


@dataclass(frozen=True, slots=True)
class Produce:
    """A batch for one partition of the output."""

    at: TopicPartition
    batch: bytes
    transactional_id: str


class Value(NamedTuple):
    """A record of the output: the image of a record of the input."""

    partition: int
    position: int
    copier: str
    transaction: int

    def encoded(self) -> bytes:
        """Return the bytes of the record."""
        return f"{self.partition}:{self.position}:{self.copier}:{self.transaction}".encode()

    @classmethod
    def decoded(cls, data: bytes) -> Value:
        """Return what a record says."""
        partition, position, copier, transaction = data.decode().split(":")
        return cls(int(partition), int(position), copier, int(transaction))


@dataclass(slots=True, eq=False)
class Story:
    """One transaction as its producer sees it.

    Attributes:
        written: for each of its records the outcome of every attempt to write it; None: unknown.
        end: the requested end; None: nothing, or the producer has given the transaction to the timeout.
        endings: the outcome of every attempt to end it; None: unknown.
        offsets: the outcome of every attempt to commit its offsets.
    """

    producer: str
    epoch: tuple[int, int]
    written: dict[Value, list[ErrorCode | None]] = field(default_factory=dict[Value, "list[ErrorCode | None]"])
    end: Outcome | None = None
    endings: list[ErrorCode | None] = field(default_factory=list["ErrorCode | None"])
    offsets: list[ErrorCode | None] = field(default_factory=list["ErrorCode | None"])

    @property
    def is_acknowledged(self) -> bool:
        """Whether its end was responded to without an error."""
        return E.NONE in self.endings


class Ask(NamedTuple):
    """The next request of a copier.

    Attributes:
        to: ``transaction`` or ``group``, the coordinators that its producer knows; ``consumer``, the group's that its
            consumer knows; ``leader``.
        request: the message to send.
    """

    to: str
    request: Any


class Restart(Exception):
    """The copier's process ends, and another one begins."""


Steps = Generator[Ask | None, Any, Any]
"""Yields requests and is sent their results, None for one given up; yields None while there is nothing to do."""


class Copier:
    """One copier, over its restarts.

    Attributes:
        transactional_id: of its own, the same for each of its processes.
        in_flight: the call that it waits for.
        brokers: whom its producer takes for the coordinators, by role; -1: it does not know.
        stories: its transactions.
        is_closing: it begins no further transaction.
    """

    def __init__(self, name: str, timeout_ms: int, dice: Dice, instance_id: str | None) -> None:
        self.name = name
        self.transactional_id = f"copy-{name}"
        self.member = Member(name, instance_id, -1)
        self.in_flight: Any = None
        self.brokers = {"transaction": -1, "group": -1}
        self.stories: list[Story] = []
        self.is_paused = False
        self.is_closing = False
        self._dice = dice
        self._timeout_ms = timeout_ms
        self._result: Any = None
        self._steps = self._run()
        self._ask: Ask | None = None
        self._has_begun = False
        self._sequences: dict[TopicPartition, int] = {}

    # Called by the history

    def next_ask(self) -> Ask | None:
        """Return the request to send now; None if there is nothing to do."""
        try:
            self._ask = self._steps.send(self._result) if self._has_begun else next(self._steps)
        except Restart:
            self.restart()
            return None
        self._has_begun, self._result = True, None
        return self._ask

    def take(self, result: Any) -> None:
        """Take the response that the copier waits for; None: it has given the request up."""
        self.in_flight, self._result = None, result

    def give_up(self, *, forgets: bool) -> None:
        """Wait no longer for a response.

        Args:
            forgets: whether the consumer or the producer, whichever has waited, looks for its coordinators again.
        """
        if forgets and self.asks == CONSUMER:
            self.member.broker = -1
        elif forgets:
            self.brokers = dict.fromkeys(self.brokers, -1)
        self.take(None)

    @property
    def asks(self) -> str:
        """Whom the last request was for, by role; empty: there was none."""
        return "" if self._ask is None else self._ask.to

    def coordinator(self, role: str) -> int:
        """Return its consumer's or its producer's presumed coordinator; -1: unknown."""
        return self.member.broker if role == CONSUMER else self.brokers[role]

    def found(self, role: str, broker_id: int) -> None:
        """Take a broker for a coordinator; -1: look for it again."""
        if role == CONSUMER:
            self.member.broker = broker_id
        else:
            self.brokers[role] = broker_id

    def restart(self) -> None:
        """Begin a new process: it knows its transactional id and its instance id."""
        self.member.restart()
        self._steps, self._has_begun, self._result, self.in_flight = self._run(), False, None, None

    # One process

    def _run(self) -> Steps:
        producer = yield from self._initialize(-1, -1)
        while True:
            member = self.member
            if self.is_closing or not member.is_stable:
                if member.is_fenced:
                    raise Restart
                yield None
                continue
            generation = member.generation
            positions = yield from self._positions()
            while positions is not None and self._is_in(generation):
                wanted = self._poll(positions)
                if not wanted or self.is_closing:
                    yield None
                    continue
                outcome, is_in_doubt = yield from self._copy(producer, wanted)
                if is_in_doubt:  # a batch without a response: its sequence number may be taken or not (KIP-360)
                    producer = yield from self._initialize(*producer)
                if outcome is Outcome.ABORT:
                    break
                for partition, position in wanted:
                    positions[partition] = position + 1

    def _is_in(self, generation: int) -> bool:
        """Return whether the member still has the assignment of a generation."""
        return self.member.is_stable and self.member.generation == generation

    def _poll(self, positions: dict[int, int]) -> list[tuple[int, int]]:
        """Return some next records of the input, each as partition and position."""
        ready = [partition for partition, position in positions.items() if position < INPUT_RECORDS[partition]]
        if not ready:
            return []
        partition = self._dice.choose(ready)
        end = min(INPUT_RECORDS[partition], positions[partition] + 1 + self._dice.below(3))
        return [(partition, position) for position in range(positions[partition], end)]

    def _retried(self, to: str, request: Any, error_of: Any, seen: list[ErrorCode | None] | None = None) -> Steps:
        """Send a request until its response has an error that no repetition cures; return the result and the error."""
        while True:
            result = yield Ask(to, request)
            if result is None:
                if seen is not None:
                    seen.append(None)
                continue
            error = error_of(result)
            if seen is not None:
                seen.append(error)
            if error not in RETRIABLE:
                return result, error
            if error in _MOVED if to == CONSUMER else error is not E.CONCURRENT_TRANSACTIONS:
                self.found(to, -1)

    def _initialize(self, producer_id: int, epoch: int) -> Steps:
        request = InitProducerId(self.transactional_id, self._timeout_ms, producer_id, epoch)
        result, error = yield from self._retried("transaction", request, lambda one: one.error)
        if error is not E.NONE:
            raise Restart
        self._sequences = {}
        return result.producer_id, result.producer_epoch

    def _positions(self) -> Steps:
        """Return the member's next positions in its partitions; None: unknown."""
        mine = [partition for partition in self.member.assignment if partition < len(INPUT_RECORDS)]
        partitions = tuple(TopicPartition(TOPIC, partition) for partition in mine)
        if not mine:
            return {}

        def error_of(result: Any) -> ErrorCode:
            errors = [result.error, *(one.error for one in result.offsets.values())]
            return next((error for error in errors if error is not E.NONE), E.NONE)

        request = OffsetFetch(GROUP, partitions, require_stable=True)
        result, error = yield from self._retried(CONSUMER, request, error_of)
        if error is not E.NONE:
            return None
        return {at.partition: max(0, result.offsets[at].offset) for at in partitions}

    def _copy(self, producer: tuple[int, int], wanted: list[tuple[int, int]]) -> Steps:
        """Do one transaction; return how it ended, and whether a batch of it has had no response."""
        story = Story(self.name, producer)
        self.stories.append(story)
        identity = self.member.generation, self.member.member_id, self.member.instance_id
        values = [Value(partition, position, self.name, len(self.stories)) for partition, position in wanted]
        used: tuple[TopicPartition, ...] = tuple(
            dict.fromkeys(OUTPUTS[value.partition % len(OUTPUTS)] for value in values)
        )
        if self._dice.happens(0.3):
            used = tuple(dict.fromkeys([*used, *OUTPUTS]))
        yield from self._add(AddPartitionsToTxn(self.transactional_id, *producer, used))
        is_fine = True
        for value in values:
            at = self._dice.choose(used) if value is values[-1] else next(iter(used))
            is_fine = yield from self._write(story, producer, at, value)
            if not is_fine:
                break
        if is_fine:
            is_fine = yield from self._commit_offsets(story, producer, identity, wanted)
        is_aborted = not is_fine or self._dice.happens(0.3)
        story.end = Outcome.ABORT if is_aborted else Outcome.COMMIT
        request = EndTxn(self.transactional_id, *producer, story.end)
        _, error = yield from self._retried("transaction", request, lambda one: one.error, story.endings)
        if error is not E.NONE:
            raise Restart
        is_in_doubt = any(E.NONE not in attempts for attempts in story.written.values())
        return story.end, is_in_doubt

    def _add(self, request: AddPartitionsToTxn | AddOffsetsToTxn) -> Steps:
        def error_of(result: Any) -> ErrorCode:
            errors = [result.error] if isinstance(request, AddOffsetsToTxn) else list(result.partitions.values())
            return next((error for error in errors if error is not E.NONE), E.NONE)

        _, error = yield from self._retried("transaction", request, error_of)
        if error is not E.NONE:
            raise Restart

    def _write(self, story: Story, producer: tuple[int, int], at: TopicPartition, value: Value) -> Steps:
        """Write a record; return whether the transaction may be committed."""
        sequence = self._sequences.get(at, 0)
        batch = encode_batch(
            [NewRecord(value.encoded(), timestamp_ms=1)],
            producer_id=producer[0],
            producer_epoch=producer[1],
            base_sequence=sequence,
            is_transactional=True,
        )
        request = Produce(at, bytes(batch), self.transactional_id)
        attempts: list[ErrorCode | None] = story.written.setdefault(value, [])
        while True:
            result = yield Ask("leader", request)
            attempts.append(result)
            if result is E.NONE:
                self._sequences[at] = sequence + 1
                return True
            if result is None or result in RETRIABLE:
                if self._dice.happens(0.05):
                    return False  # delivery.timeout.ms
                continue
            if result is E.TRANSACTION_ABORTABLE:
                return False
            raise Restart

    def _commit_offsets(
        self,
        story: Story,
        producer: tuple[int, int],
        identity: tuple[int, str, str | None],
        wanted: list[tuple[int, int]],
    ) -> Steps:
        """Commit the position behind the copied records; return whether the transaction may be committed.

        Args:
            story: the transaction.
            producer: id and epoch.
            identity: generation, member id and group instance id of the member when it read the copied records.
            wanted: the copied records.
        """
        partition, last = wanted[-1]
        generation, member_id, instance_id = identity
        yield from self._add(AddOffsetsToTxn(self.transactional_id, *producer, 0))
        request = TxnOffsetCommit(
            self.transactional_id,
            GROUP,
            *producer,
            (OffsetToCommit(TopicPartition(TOPIC, partition), last + 1),),
            generation,
            member_id,
            instance_id,
        )
        _, error = yield from self._retried("group", request, _offsets_error, story.offsets)
        if error is not E.NONE:
            if error in _MEMBER_IS_LATE:
                return False
            if error is E.TRANSACTION_ABORTABLE:
                return False
            raise Restart
        if self._dice.happens(0.3):
            simple = (OffsetToCommit(SIMPLE, len(self.stories)),)
            request = TxnOffsetCommit(self.transactional_id, SIMPLE_GROUP, *producer, simple)
            _, error = yield from self._retried("group", request, _offsets_error)
            return error is E.NONE
        return True


def _offsets_error(result: TxnOffsetCommitResult) -> ErrorCode:
    return next((error for error in result.partitions.values() if error is not E.NONE), E.NONE)


class Reader:
    """A consumer of committed records of one partition of the output.

    Attributes:
        position: its next offset.
        reads: what it has read: from, to (exclusive), and the records between, each with its offset.
    """

    def __init__(self, at: TopicPartition) -> None:
        self.at = at
        self.position = 0
        self.reads: list[tuple[int, int, list[tuple[int, bytes]]]] = []
