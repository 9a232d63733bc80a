"""The idempotent producer's promise, against a twin broker that knows the sequence rules and nothing else.

No acknowledged record is in the log twice, all of them are at their acknowledged offsets, in the order in
which they were sent (KIP-98), while requests arrive late, responses are late, lost and repeated, leaders change and
restart, and the delivery timeout is a multiple of the request timeout, so that both end in the same millisecond.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest
from fakes_client import TP, FakeConnection, FakeLog, World
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import examples

from tidegauge.errors import ErrorCode
from tidegauge.record_batch import MAX_SEQUENCE, read_header
from tidegauge_client.metadata import Leader
from tidegauge_client.records import decode_batches

REQUEST_TIMEOUT_MS = 1_000
WALKS = 100
WALK_LENGTH = 200
REMEMBERED_BATCHES = 5
"""Batches of a producer that a leader remembers (ProducerStateEntry.NUM_BATCHES_TO_RETAIN)."""


@dataclass(frozen=True)
class Appended:
    """A batch in the twin's log."""

    producer: tuple[int, int]
    sequences: tuple[int, int]
    offset: int
    count: int


@dataclass
class TwinLog(FakeLog):
    """A partition that its replicas share: committed batches outlive every leader, others may be lost with it.

    Attributes:
        batches: all that is in the log.
        remembered_from: the first batch that a leader remembers beside the newest one of each producer: a snapshot of
            the producer state has the newest batch alone (ProducerStateManager.takeSnapshot).
        committed: end offset of what every later leader has.
    """

    batches: list[Appended] = field(default_factory=list)
    remembered_from: int = 0
    committed: int = 0

    def append(self, data: bytes) -> tuple[ErrorCode, int]:
        """Check the sequence as ProducerAppendInfo does, and append."""
        header = read_header(data)
        producer, sequences = (header.producer_id, header.producer_epoch), (header.base_sequence, header.last_sequence)
        before = [batch for batch in self.batches if batch.producer[0] == producer[0]]
        if before and before[-1].producer == producer:
            known = [batch for batch in before if batch.offset >= self.remembered_from] or before[-1:]
            for batch in known[-REMEMBERED_BATCHES:]:
                if (batch.producer, batch.sequences) == (producer, sequences):
                    return ErrorCode.NONE, batch.offset
            if sequences[0] != (before[-1].sequences[1] + 1) % (MAX_SEQUENCE + 1):
                return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1
        elif before and before[-1].producer > producer:
            return ErrorCode.INVALID_PRODUCER_EPOCH, -1
        elif before and sequences[0] != 0:
            return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1
        offset = len(self.values)
        self.values.extend(record.value for record in decode_batches(data))
        self.batches.append(Appended(producer, sequences, offset, header.record_count))
        return ErrorCode.NONE, offset

    def commit(self) -> None:
        """Copy everything to every replica."""
        self.committed = len(self.values)

    def fail_over(self, *, keep: int, forgets: bool) -> None:
        """Let another leader go on behind some of the uncommitted batches.

        Args:
            keep: how many of the uncommitted batches the new leader has.
            forgets: whether it begins with a snapshot of the producer state.
        """
        uncommitted = [batch for batch in self.batches if batch.offset >= self.committed]
        del self.batches[len(self.batches) - len(uncommitted) + min(keep, len(uncommitted)) :]
        del self.values[sum(batch.count for batch in self.batches) :]
        if forgets:
            self.remembered_from = len(self.values)


class Model:
    """A producer with one partition, and everything that may happen to it."""

    def __init__(self, *, multiple: int, max_in_flight: int = 5) -> None:
        self.world = World(
            request_timeout_ms=REQUEST_TIMEOUT_MS,
            delivery_timeout_ms=multiple * REQUEST_TIMEOUT_MS,
            max_in_flight=max_in_flight,
        )
        self.log = self.world.logs[TP] = TwinLog()
        self.world.introduce()
        self.log.commit()
        self.sent = 0

    def happen(self, what: str, number: int) -> None:
        """Let one thing happen; the number decides a choice."""
        world = self.world
        if what == "send":
            count = 1 + number % 3
            for record in range(self.sent, self.sent + count):
                # Short ones share a batch, which can be split; a long one fills its batch.
                world.send(b"%06d" % record + b"." * (60 if number < 7 else 0))
            self.sent += count
        elif what == "step":
            world.step(number % 2)
        elif what == "wait":
            world.step((1 + number % 2) * REQUEST_TIMEOUT_MS / 2)
        elif what == "fail over":
            leader = world.leaders[TP]
            broker = number % 2
            self.log.fail_over(keep=number % 4, forgets=number >= 5)
            world.leaders[TP] = Leader(broker, f"b{broker}", leader.leader_epoch + 1)
        else:
            self._at_a_connection(what, number)

    def _at_a_connection(self, what: str, number: int) -> None:
        """Closed connections have requests and responses, too: late ones."""
        places: dict[str, Callable[[FakeConnection], object]] = {
            "break": lambda connection: connection.is_open,
            "deliver": lambda connection: connection.responses,
            "repeat": lambda connection: connection.responses,
            "lose": lambda connection: connection.responses,
        }
        is_place = places.get(what, lambda connection: connection.requests)
        connections = [connection for connection in self.world.all_connections if is_place(connection)]
        if not connections:
            return
        connection = connections[number % len(connections)]
        if what == "break":
            connection.break_()
        elif what in places:
            self._response(connection, what, number)
        else:
            self._request(connection, what)

    def _response(self, connection: FakeConnection, what: str, number: int) -> None:
        at = number % len(connection.responses)
        if what == "repeat":
            connection.responses.insert(at, connection.responses[at])
        if what == "lose":
            connection.responses.pop(at)
        else:
            connection.deliver(at)

    def _request(self, connection: FakeConnection, what: str) -> None:
        if what == "append":
            connection.take(refuse_after=ErrorCode.REQUEST_TIMED_OUT)
            return
        connection.take(refuse=REFUSALS.get(what))
        if any(result.error == 0 for result in connection.responses[-1].partitions):
            self.log.commit()

    def check(self) -> None:
        """Hold the promise against the log."""
        log = [bytes(value or b"") for value in self.log.values]
        last = -1
        for value, promise in self.world.promises:
            if promise.result is not None:
                assert log.count(value) == 1, (value, log)
                assert log[promise.result.offset] == value
                assert promise.result.offset > last, "in the order in which they were sent"
                last = promise.result.offset

    def end(self) -> None:
        """Let late requests arrive, and everything else succeed."""
        for _ in range(100):
            for connection in self.world.all_connections:
                while connection.requests:
                    self._request(connection, "take")
                while connection.responses:
                    connection.deliver()
            if not self.world.accumulator.incomplete:
                break
            self.world.step(100)
        assert not self.world.accumulator.incomplete
        assert all(promise.done() for _, promise in self.world.promises)
        self.check()


REFUSALS = {
    "refuse": ErrorCode.NOT_ENOUGH_REPLICAS,
    "invalid": ErrorCode.INVALID_RECORD,
    "too large": ErrorCode.MESSAGE_TOO_LARGE,
}
USUAL = ["send", "step", "take", "deliver"]
FAULTS = [*REFUSALS, "append", "lose", "repeat", "break", "wait", "fail over"]


def play(model: Model, happenings: list[tuple[str, int]]) -> None:
    for what, number in happenings:
        model.happen(what, number)
        model.world.step()
        model.check()
    model.end()


@settings(max_examples=examples(150), deadline=None)
@given(st.integers(1, 4), st.lists(st.tuples(st.sampled_from([*USUAL, *FAULTS]), st.integers(0, 9)), max_size=60))
def test_nothing_acknowledged_is_written_twice_lost_or_reordered(
    multiple: int, happenings: list[tuple[str, int]]
) -> None:
    play(Model(multiple=multiple), happenings)


@pytest.mark.parametrize("multiple", [1, 2, 3])
def test_in_long_walks_nothing_acknowledged_is_written_twice_lost_or_reordered(multiple: int) -> None:
    """Longer than what Hypothesis draws; how frequent each fault is differs from walk to walk."""
    for seed in range(WALKS):
        chance = random.Random(seed)
        weights = [4, 4, 6, 6, *(chance.choice([0, 0, 0.3, 1, 3]) for _ in FAULTS)]
        things = chance.choices([*USUAL, *FAULTS], weights, k=WALK_LENGTH)
        play(Model(multiple=multiple), [(thing, chance.randrange(10)) for thing in things])
