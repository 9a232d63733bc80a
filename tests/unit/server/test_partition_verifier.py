"""Verifications of transactional appends at their coordinators (KIP-890): one request in flight, the newest waits."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
from tests.wire_responses.batches import TRANSACTIONAL, batch

from tidegauge.errors import ErrorCode
from tidegauge.groups import OFFSETS_TOPIC
from tidegauge.partition import TopicPartition
from tidegauge.transactions import AddPartitionsToTxn, SupportedOperation
from tidegauge_broker.coordinator.effects import VerifyTransaction
from tidegauge_broker.replica.messages import ProducePartition, ProduceRequest, ProduceResult
from tidegauge_broker.replica.verification import ProducerBatch, VerificationGuard
from tidegauge_broker.server.coordinators.partition_verifier import Errors, PartitionVerifier
from tidegauge_broker.server.service.produce_verification import (
    OffsetsVerification,
    ProduceVerification,
    Retries,
    Verified,
)

ABORTABLE, ADDS = SupportedOperation.GENERIC_ERROR_SUPPORTED, SupportedOperation.ADD_PARTITION
A, B = TopicPartition("a", 0), TopicPartition("a", 1)
COORDINATOR = 5
NONE = ErrorCode.NONE


class Coordinator:
    """Takes requests; the test responds."""

    def __init__(self) -> None:
        self.requests: list[tuple[int, Sequence[AddPartitionsToTxn], asyncio.Future[Any]]] = []
        self.broker_id: int | None = COORDINATOR
        self.verifier = PartitionVerifier(lambda _: self.broker_id, self._send)

    async def _send(self, broker_id: int, wanted: Sequence[AddPartitionsToTxn]) -> Any:
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.requests.append((broker_id, wanted, future))
        return await future

    def respond(self, *errors: Errors | None) -> None:
        """Respond to the oldest request; None alone: it has no response."""
        _, _, future = self.requests.pop(0)
        future.set_result(None if errors == (None,) else errors)

    def verify(
        self, transactional_id: str = "tx", epoch: int = 0, *, knows_abortable: bool = True
    ) -> asyncio.Task[Errors]:
        wanted = AddPartitionsToTxn(transactional_id, 7, epoch, (A, B), verify_only=True)
        return asyncio.ensure_future(self.verifier.verify(wanted, SupportedOperation(knows_abortable)))


async def turns() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


async def test_partitions_that_are_in_the_transaction_have_no_error() -> None:
    coordinator = Coordinator()
    found = coordinator.verify()
    await turns()
    assert coordinator.requests[0][0] == COORDINATOR
    coordinator.respond({A: NONE, B: ErrorCode.TRANSACTION_ABORTABLE})
    assert await found == {B: ErrorCode.TRANSACTION_ABORTABLE}


async def test_what_was_asked_is_reported_with_the_partitions_that_failed() -> None:
    """VerificationTimeMs and VerificationFailureRate of AddPartitionsToTxnManager: without a coordinator neither."""
    coordinator = Coordinator()
    ended: list[int] = []
    coordinator.verifier.ended = lambda milliseconds, failures: ended.append(failures) if milliseconds >= 0 else None
    for errors in ({A: NONE, B: NONE}, {A: NONE, B: ErrorCode.INVALID_TXN_STATE}, None):
        found = coordinator.verify()
        await turns()
        coordinator.respond(errors)
        await found
    coordinator.broker_id = None
    await coordinator.verify()
    assert ended == [0, 1, 2]


async def test_errors_are_those_that_the_client_knows() -> None:
    """AddPartitionsToTxnManager: PRODUCER_FENCED and, for older clients, TRANSACTION_ABORTABLE have other names."""
    coordinator = Coordinator()
    found = coordinator.verify(knows_abortable=False)
    await turns()
    coordinator.respond({A: ErrorCode.PRODUCER_FENCED, B: ErrorCode.TRANSACTION_ABORTABLE})
    assert await found == {A: ErrorCode.INVALID_PRODUCER_EPOCH, B: ErrorCode.INVALID_TXN_STATE}


async def test_without_a_coordinator_or_a_response_the_client_tries_again() -> None:
    coordinator = Coordinator()
    coordinator.broker_id = None
    assert await coordinator.verify() == dict.fromkeys((A, B), ErrorCode.COORDINATOR_NOT_AVAILABLE)
    coordinator.broker_id = COORDINATOR
    found = coordinator.verify()
    await turns()
    coordinator.respond(None)
    assert await found == dict.fromkeys((A, B), ErrorCode.NETWORK_EXCEPTION)


async def test_one_request_to_a_broker_is_in_flight_and_the_next_takes_all_that_wait() -> None:
    coordinator = Coordinator()
    first = coordinator.verify("one")
    await turns()
    others = [coordinator.verify("two"), coordinator.verify("three")]
    await turns()
    assert len(coordinator.requests) == 1
    coordinator.respond({})
    assert await first == {}
    await turns()
    [(_, wanted, _)] = coordinator.requests
    assert [one.transactional_id for one in wanted] == ["two", "three"]
    coordinator.respond({}, {A: ErrorCode.CONCURRENT_TRANSACTIONS})
    assert [await other for other in others] == [{}, {A: ErrorCode.CONCURRENT_TRANSACTIONS}]


@pytest.mark.parametrize(
    ("older", "newer", "error_of_older", "error_of_newer"),
    [
        (0, 1, ErrorCode.INVALID_PRODUCER_EPOCH, None),
        (1, 1, ErrorCode.NETWORK_EXCEPTION, None),
        (1, 0, None, ErrorCode.INVALID_PRODUCER_EPOCH),
    ],
)
async def test_one_verification_of_a_transactional_id_waits(
    older: int, newer: int, error_of_older: ErrorCode | None, error_of_newer: ErrorCode | None
) -> None:
    """AddPartitionsToTxnManager.addTxnData: the newer takes the place of the older, unless its epoch is lower."""
    coordinator = Coordinator()
    in_flight = coordinator.verify("other")
    await turns()
    both = [coordinator.verify(epoch=older), coordinator.verify(epoch=newer)]
    await turns()
    coordinator.respond({})
    await in_flight
    await turns()
    coordinator.respond({})
    expected = [{} if e is None else dict.fromkeys((A, B), e) for e in (error_of_older, error_of_newer)]
    assert [await one for one in both] == expected


async def test_a_broker_that_stops_leaves_no_verification_waiting() -> None:
    coordinator = Coordinator()
    found = [coordinator.verify("one"), coordinator.verify("two")]
    await turns()
    await coordinator.verifier.close()
    assert [await one for one in found] == [dict.fromkeys((A, B), ErrorCode.NETWORK_EXCEPTION)] * 2


# A produce request


class World:
    """A leader of partitions, some with an open transaction, and a coordinator with its errors."""

    def __init__(self, *open_at: TopicPartition, errors: Errors | None = None) -> None:
        self.guards = {at: VerificationGuard() for at in (A, B) if at not in open_at}
        self.wanted: list[AddPartitionsToTxn] = []
        self.errors = errors or {}
        self.verification = ProduceVerification(self.begin, self.verify)

    def begin(self, at: TopicPartition, _: ProducerBatch) -> VerificationGuard | ErrorCode | None:
        return self.guards.get(at)

    async def verify(self, wanted: AddPartitionsToTxn, operation: SupportedOperation, /) -> Errors:
        assert operation is ABORTABLE
        self.wanted.append(wanted)
        return self.errors

    def of(self, request: ProduceRequest) -> Any:
        return self.verification.of(request, "tx", ABORTABLE)


def records(producer_id: int = 7, attributes: int = TRANSACTIONAL) -> bytes:
    return batch(producer_id=producer_id, epoch=0, sequence=0, attributes=attributes)


def request(*batches: bytes) -> ProduceRequest:
    return ProduceRequest(-1, 1_000, [ProducePartition(at, one) for at, one in zip((A, B), batches, strict=False)])


async def test_only_partitions_without_an_open_transaction_are_verified() -> None:
    world = World(A)
    verified: Verified = await world.of(request(records(), records()))
    assert world.wanted == [AddPartitionsToTxn("tx", 7, 0, (B,), verify_only=True)]
    assert [item.guard for item in verified.request.partitions] == [None, world.guards[B]]
    assert verified.refused == []


@pytest.mark.parametrize("attributes", [0, TRANSACTIONAL])
def test_nothing_waits_where_nothing_is_to_be_verified(attributes: int) -> None:
    """Plain batches beside a transactional id, or transactions that are open in the log."""
    world = World(A, B)
    asked = request(records(attributes=attributes))
    assert world.of(asked) == Verified(asked, [])


def test_a_request_is_of_one_producer() -> None:
    """ReplicaManager.maybeStartTransactionVerificationForPartitions: InvalidPidMapping for all of it."""
    verified: Verified = World().of(request(records(7), records(8)))
    assert verified.request.partitions == []
    assert {result.error for result in verified.refused} == {ErrorCode.INVALID_PRODUCER_ID_MAPPING}


def test_a_transactional_id_that_no_string_can_hold_is_refused_and_no_coordinator_is_asked() -> None:
    """The request to the coordinator could not be written; others' partitions wait in the same one."""
    world = World(A, B)
    asked = request(records(), records())
    verified: Verified = world.verification.of(asked, "x" * 2**15, ABORTABLE)
    assert verified.request.partitions == []
    assert {result.error for result in verified.refused} == {ErrorCode.INVALID_REQUEST}
    assert world.wanted == []


@pytest.mark.parametrize(
    ("found", "shown"),
    [
        (ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.NOT_ENOUGH_REPLICAS),
        (ErrorCode.NETWORK_EXCEPTION, ErrorCode.NOT_ENOUGH_REPLICAS),
        (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_ENOUGH_REPLICAS),
        (ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_ENOUGH_REPLICAS),
        (ErrorCode.NOT_COORDINATOR, ErrorCode.NOT_ENOUGH_REPLICAS),
        (ErrorCode.INVALID_TXN_STATE, ErrorCode.INVALID_TXN_STATE),
        (ErrorCode.TRANSACTION_ABORTABLE, ErrorCode.TRANSACTION_ABORTABLE),
        (ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.INVALID_PRODUCER_EPOCH),
        (ErrorCode.INVALID_PRODUCER_ID_MAPPING, ErrorCode.INVALID_PRODUCER_ID_MAPPING),
    ],
)
async def test_a_busy_coordinator_shows_as_too_few_replicas(found: ErrorCode, shown: ErrorCode) -> None:
    """ReplicaManager.handleProduceAppend: that error makes every client try again without asking for metadata."""
    world = World(errors={B: found})
    verified: Verified = await world.of(request(records(), records()))
    assert [item.topic_partition for item in verified.request.partitions] == [A]
    [refused] = verified.refused
    assert (refused.topic_partition, refused.error) == (B, shown)
    assert verified.in_order([B, A], [ProduceResult(A)]) == [refused, ProduceResult(A)]


def test_what_is_no_batch_is_left_to_the_append() -> None:
    asked = request(b"no batch")
    assert World().of(asked) == Verified(asked, [])


async def test_offsets_are_verified_as_a_batch_without_a_sequence() -> None:
    """GroupMetadataManager: ReplicaManager.maybeStartTransactionVerificationForPartition with NO_SEQUENCE."""
    begun: list[tuple[TopicPartition, ProducerBatch]] = []
    guard = VerificationGuard()
    world = World(errors={TopicPartition(OFFSETS_TOPIC, 3): ErrorCode.INVALID_PRODUCER_EPOCH})

    def begin(at: TopicPartition, batch: ProducerBatch) -> VerificationGuard | None:
        begun.append((at, batch))
        return guard if len(begun) == 1 else None

    offsets = OffsetsVerification(begin, world.verify)
    effect = VerifyTransaction(1, 3, "tx", 7, 2, ABORTABLE)
    assert await offsets.verify(effect) == (ErrorCode.INVALID_PRODUCER_EPOCH, guard)
    assert begun == [(TopicPartition(OFFSETS_TOPIC, 3), ProducerBatch(7, 2, -1))]
    assert await offsets.verify(effect) == (NONE, None)
    assert len(world.wanted) == 1


# Transactions v2


class Adding:
    """A leader that adds partitions to transactions, a coordinator that is busy for some requests, and a clock."""

    def __init__(self, *responses: ErrorCode, begun: VerificationGuard | ErrorCode | None = None) -> None:
        self.responses = list(responses)
        self.begun: list[ProducerBatch] = []
        self.wanted: list[AddPartitionsToTxn] = []
        self.guard = begun or VerificationGuard()
        self.now_ms = 0
        retries = Retries(lambda: 20, lambda: 100, lambda: self.now_ms, self.sleep)
        self.verification = ProduceVerification(self.begin, self.verify, retries)

    async def sleep(self, seconds: float) -> None:
        self.now_ms += round(seconds * 1000)

    def begin(self, _at: TopicPartition, batch: ProducerBatch) -> VerificationGuard | ErrorCode | None:
        self.begun.append(batch)
        return self.guard

    async def verify(self, wanted: AddPartitionsToTxn, operation: SupportedOperation, /) -> Errors:
        assert operation is ADDS
        self.wanted.append(wanted)
        error = self.responses.pop(0) if len(self.responses) > 1 else self.responses[0]
        return {} if error is NONE else dict.fromkeys(wanted.partitions, error)

    async def produce(self) -> Verified:
        found = self.verification.of(request(records()), "tx", ADDS)
        return found if isinstance(found, Verified) else await found


async def test_the_leader_has_the_partition_added_for_a_producer_of_v2() -> None:
    """AddPartitionsToTxnManager.addOrVerifyTransaction: verifyOnly is the opposite of supportsEpochBump."""
    world = Adding(NONE)
    verified = await world.produce()
    assert world.wanted == [AddPartitionsToTxn("tx", 7, 0, (A,), verify_only=False, is_implicit=True)]
    assert all(batch.raises_epoch for batch in world.begun)
    assert [item.guard for item in verified.request.partitions] == [world.guard]


async def test_a_transaction_that_is_being_completed_is_waited_for() -> None:
    """ReplicaManager.maybeRetryOnConcurrentTransactions: every 20 ms."""
    busy = ErrorCode.CONCURRENT_TRANSACTIONS
    world = Adding(busy, busy, NONE)
    verified = await world.produce()
    assert (len(world.wanted), world.now_ms) == (3, 40)
    assert verified.refused == []


async def test_what_is_busy_for_too_long_is_said_to_a_producer_that_knows_it() -> None:
    """ReplicaManager.handleProduceAppend: of v2 the error does not become NOT_ENOUGH_REPLICAS, and has no message."""
    world = Adding(ErrorCode.CONCURRENT_TRANSACTIONS)
    verified = await world.produce()
    assert (len(world.wanted), world.now_ms) == (6, 100)
    assert verified.refused == [ProduceResult(A, ErrorCode.CONCURRENT_TRANSACTIONS)]
    assert verified.request.partitions == []


async def test_another_error_is_tried_again_by_the_producer() -> None:
    world = Adding(ErrorCode.NOT_COORDINATOR)
    verified = await world.produce()
    assert len(world.wanted) == 1
    assert [result.error for result in verified.refused] == [ErrorCode.NOT_ENOUGH_REPLICAS]


async def test_a_stale_epoch_asks_no_coordinator() -> None:
    world = Adding(NONE, begun=ErrorCode.INVALID_PRODUCER_EPOCH)
    verified = await world.produce()
    assert world.wanted == []
    assert verified.refused == [ProduceResult(A, ErrorCode.INVALID_PRODUCER_EPOCH)]


async def test_the_partition_of_offsets_is_added_too() -> None:
    """CoordinatorPartitionWriter.maybeStartTransactionVerification: by TxnOffsetCommit v5, without another try."""
    world = Adding(ErrorCode.CONCURRENT_TRANSACTIONS)
    offsets = OffsetsVerification(world.begin, world.verify)
    error, _ = await offsets.verify(VerifyTransaction(1, 3, "tx", 7, 2, ADDS))
    assert error is ErrorCode.CONCURRENT_TRANSACTIONS
    at = TopicPartition(OFFSETS_TOPIC, 3)
    assert world.wanted == [AddPartitionsToTxn("tx", 7, 2, (at,), verify_only=False, is_implicit=True)]
    assert world.begun == [ProducerBatch(7, 2, -1, raises_epoch=True)]
