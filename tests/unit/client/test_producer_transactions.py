"""A transactional producer of which several tasks make use: what belongs to which transaction (KIP-98)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

import pytest

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.kafka.apis import APIS, END_TXN
from tidegauge.partition import TopicPartition
from tidegauge_client.metadata import ClusterInfo, PartitionInfo, TopicInfo
from tidegauge_client.partition_queue import Identity
from tidegauge_client.producer import Producer
from tidegauge_client.transaction import Phase

AT = TopicPartition("t", 0)


class Coordinator:
    """Takes every request, and notes it.

    Attributes:
        asked: the names of the requests.
        committed: of each EndTxn, whether it asks for a commit.
        problem: what EndTxn fails with; None: it succeeds.
    """

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.committed: list[bool] = []
        self.problem: TidegaugeError | None = None

    async def ask(self, key: int, request: Any, *_: Any, **__: Any) -> Any:
        self.asked.append(APIS[key].name)
        if key == END_TXN:
            self.committed.append(request.committed)
            if self.problem is not None:
                raise self.problem
        return SimpleNamespace(producer_id=7, producer_epoch=1)


@pytest.fixture
async def coordinator() -> Coordinator:
    return Coordinator()


@pytest.fixture
async def producer(coordinator: Coordinator, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Producer]:
    """A producer with an open transaction, whose sender the test plays."""
    made = Producer("b:1", transactional_id="tx")
    made._cluster.info = ClusterInfo(topics={"t": TopicInfo("t", "", {0: PartitionInfo("t", 0, 0, 0, (0,), (0,))})})
    made._loop = asyncio.get_running_loop()
    made._task = driving = asyncio.ensure_future(asyncio.Event().wait())
    assert made._transactions is not None
    monkeypatch.setattr(made._transactions, "_ask", coordinator.ask)
    await made.init_transactions()
    await made.begin_transaction()
    coordinator.asked.clear()
    yield made
    driving.cancel()
    await asyncio.wait({driving})


def acknowledge(producer: Producer) -> None:
    """Send the pending records, and acknowledge them."""
    batch = producer._accumulator.take(AT)
    assert batch.identity == Identity(7, 1)
    producer._sender._acknowledge(batch, 0, None)


async def turns() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


async def test_what_is_sent_while_a_commit_waits_for_acknowledgements_is_refused(
    producer: Producer, coordinator: Coordinator
) -> None:
    """Else the transaction ends without it, and it is written in the next one: an abort of that takes it along."""
    first = await producer.send("t", b"1", partition=0)
    committing = asyncio.ensure_future(producer.commit_transaction())
    await turns()
    with pytest.raises(TidegaugeError) as refused:
        await producer.send("t", b"2", partition=0)
    assert refused.value.code is ErrorCode.INVALID_TXN_STATE
    acknowledge(producer)
    await committing
    assert (await first).offset == 0
    assert coordinator.asked == ["AddPartitionsToTxn", "EndTxn"]
    assert not producer._accumulator.incomplete
    assert producer._memory.try_take(producer._memory.size_bytes), "what was refused occupies nothing"


async def test_a_commit_that_is_given_up_before_the_end_may_be_repeated_or_aborted(
    producer: Producer, coordinator: Coordinator
) -> None:
    """Its outcome is known: the transaction is open."""
    assert producer._transactions is not None
    await producer.send("t", b"1", partition=0)
    committing = asyncio.ensure_future(producer.commit_transaction())
    await turns()
    committing.cancel()
    await asyncio.wait({committing})
    assert producer._transactions.phase is Phase.OPEN
    acknowledge(producer)
    await producer.commit_transaction()
    assert coordinator.asked == ["AddPartitionsToTxn", "EndTxn"]


async def test_a_record_that_fails_while_a_commit_waits_leaves_nothing_but_the_abort(
    producer: Producer, coordinator: Coordinator
) -> None:
    """Rule 3 of ``transaction``."""
    await producer.send("t", b"1", partition=0)
    committing = asyncio.ensure_future(producer.commit_transaction())
    await turns()
    batch = producer._accumulator.take(AT)
    producer._sender._refused(batch, TidegaugeError(ErrorCode.MESSAGE_TOO_LARGE, "too large"), 0)
    with pytest.raises(TidegaugeError) as failed:
        await committing
    assert failed.value.code is ErrorCode.INVALID_TXN_STATE
    assert coordinator.asked == ["AddPartitionsToTxn"]
    await producer.abort_transaction()
    assert coordinator.asked == ["AddPartitionsToTxn", "EndTxn", "InitProducerId"]


async def test_a_failed_record_counts_for_its_transaction_though_its_future_was_cancelled(producer: Producer) -> None:
    """``asyncio.wait_for`` cancels the future whose time is over: a commit must not pass over the lost record."""
    promise = await producer.send("t", b"1", partition=0)
    promise.cancel()
    batch = producer._accumulator.take(AT)
    producer._sender._refused(batch, TidegaugeError(ErrorCode.MESSAGE_TOO_LARGE, "too large"), 0)
    with pytest.raises(TidegaugeError, match="abort_transaction") as refused:
        await producer.commit_transaction()
    assert refused.value.code is ErrorCode.INVALID_TXN_STATE


async def test_two_commits_at_a_time_are_one(producer: Producer, coordinator: Coordinator) -> None:
    """The second waits for the outcome of the first (TransactionManager.handleCachedTransactionRequestResult).

    Else it ends the transaction while records of it are in flight.
    """
    await producer.send("t", b"1", partition=0)
    first = asyncio.ensure_future(producer.commit_transaction())
    await turns()
    second = asyncio.ensure_future(producer.commit_transaction())
    await turns()
    assert coordinator.asked == ["AddPartitionsToTxn"], "a record is not acknowledged"
    acknowledge(producer)
    await asyncio.gather(first, second)
    assert coordinator.asked == ["AddPartitionsToTxn", "EndTxn"]


async def test_a_second_commit_ends_no_later_transaction(producer: Producer, coordinator: Coordinator) -> None:
    """It was about the transaction that was open when it was called."""
    await producer.send("t", b"1", partition=0)

    async def commit_and_go_on() -> None:
        await producer.commit_transaction()
        await producer.begin_transaction()
        await producer.send("t", b"2", partition=0)

    first = asyncio.ensure_future(commit_and_go_on())
    await turns()
    second = asyncio.ensure_future(producer.commit_transaction())
    await turns()
    acknowledge(producer)
    await asyncio.gather(first, second)
    assert coordinator.asked == ["AddPartitionsToTxn", "EndTxn", "AddPartitionsToTxn"]
    assert producer._transactions is not None
    assert producer._transactions.phase is Phase.OPEN


async def test_a_commit_that_is_given_up_lets_the_one_that_waits_for_it_go_on(
    producer: Producer, coordinator: Coordinator
) -> None:
    """The transaction is still to be committed."""
    await producer.send("t", b"1", partition=0)
    first = asyncio.ensure_future(producer.commit_transaction())
    await turns()
    second = asyncio.ensure_future(producer.commit_transaction())
    await turns()
    first.cancel()
    await asyncio.wait({first})
    acknowledge(producer)
    await second
    assert coordinator.asked == ["AddPartitionsToTxn", "EndTxn"]


async def test_two_aborts_at_a_time_are_one(
    producer: Producer, coordinator: Coordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the later response to InitProducerId sets a transaction back that has begun meanwhile."""
    assert producer._transactions is not None
    responds = asyncio.Event()

    async def ask(*given: Any, **_: Any) -> Any:
        response = await coordinator.ask(*given)
        await responds.wait()
        return response

    await producer.send("t", b"1", partition=0)
    monkeypatch.setattr(producer._transactions, "_ask", ask)
    aborts = [asyncio.ensure_future(producer.abort_transaction()) for _ in range(2)]
    await turns()
    responds.set()
    await asyncio.gather(*aborts)
    assert coordinator.asked == ["AddPartitionsToTxn", "EndTxn", "InitProducerId"]
    assert producer._transactions.phase is Phase.READY


async def test_an_abort_does_not_wait_for_a_commit_that_has_failed(
    producer: Producer, coordinator: Coordinator
) -> None:
    """A commit whose first record has failed still waits for others, as long as their delivery timeout."""
    await producer.send("t", b"1", partition=0)
    committing = asyncio.ensure_future(producer.commit_transaction())
    await turns()
    assert producer._transactions is not None
    producer._transactions.failed(TidegaugeError(ErrorCode.REQUEST_TIMED_OUT, "expired"))
    await producer.abort_transaction()
    with pytest.raises(TidegaugeError):
        await committing
    assert coordinator.asked == ["AddPartitionsToTxn", "EndTxn", "InitProducerId"]


# A producer that stops (rule 8 of ``transaction``: Sender.run, once it is to close)


async def test_a_producer_that_stops_aborts_its_open_transaction(producer: Producer, coordinator: Coordinator) -> None:
    """Else readers of committed records would stand still before it until its timeout. Records are sent before that."""
    promise = await producer.send("t", b"1", partition=0)
    stopping = asyncio.ensure_future(producer.stop())
    await turns()
    assert coordinator.asked == ["AddPartitionsToTxn"], "the record is not acknowledged"
    acknowledge(producer)
    await stopping
    assert (await promise).offset == 0
    assert (coordinator.asked, coordinator.committed) == (["AddPartitionsToTxn", "EndTxn"], [False])
    await producer.stop()
    assert len(coordinator.committed) == 1, "it ends once"


@pytest.mark.parametrize(("kind", "ends"), [(ValueError, [False]), (asyncio.CancelledError, [])])
async def test_an_exception_that_leaves_the_producers_block_aborts_and_a_cancellation_waits_for_nothing(
    producer: Producer, coordinator: Coordinator, kind: type[BaseException], ends: list[bool]
) -> None:
    await producer.send("t", b"1", partition=0)
    acknowledge(producer)
    await producer.__aexit__(kind, kind(), None)
    assert coordinator.committed == ends


async def test_a_stop_without_time_leaves_the_transaction_to_its_timeout(
    producer: Producer, coordinator: Coordinator
) -> None:
    """``KafkaProducer.close(Duration.ZERO)``: Sender.forceClose."""
    await producer.send("t", b"1", partition=0)
    acknowledge(producer)
    await producer.stop(timeout_ms=0)
    assert coordinator.asked == ["AddPartitionsToTxn"]


async def test_a_stop_whose_time_is_over_before_all_is_acknowledged_leaves_too(
    producer: Producer, coordinator: Coordinator
) -> None:
    promise = await producer.send("t", b"1", partition=0)
    await producer.stop(timeout_ms=1)
    with pytest.raises(TidegaugeError, match="stopped before"):
        await promise
    assert coordinator.asked == ["AddPartitionsToTxn"]


async def test_a_producer_that_stops_completes_a_commit_whose_outcome_is_unknown(
    producer: Producer, coordinator: Coordinator
) -> None:
    """It may be committed: an abort would be refused, or would take back what the application has decided."""
    await producer.send("t", b"1", partition=0)
    acknowledge(producer)
    coordinator.problem = TidegaugeError(ErrorCode.REQUEST_TIMED_OUT, "no response")
    with pytest.raises(TidegaugeError, match="no response"):
        await producer.commit_transaction()
    coordinator.problem = None
    await producer.stop()
    assert coordinator.committed == [True, True]


async def test_a_producer_that_stops_waits_for_a_commit_in_progress(
    producer: Producer, coordinator: Coordinator
) -> None:
    """Rule 7."""
    await producer.send("t", b"1", partition=0)
    committing = asyncio.ensure_future(producer.commit_transaction())
    await turns()
    stopping = asyncio.ensure_future(producer.stop())
    await turns()
    acknowledge(producer)
    await asyncio.gather(committing, stopping)
    assert coordinator.committed == [True]


async def test_a_producer_that_stops_aborts_what_has_failed(producer: Producer, coordinator: Coordinator) -> None:
    """Rule 3: records in flight may still arrive, and the next epoch refuses them."""
    await producer.send("t", b"1", partition=0)
    batch = producer._accumulator.take(AT)
    producer._sender._refused(batch, TidegaugeError(ErrorCode.MESSAGE_TOO_LARGE, "too large"), 0)
    await producer.stop()
    assert coordinator.asked == ["AddPartitionsToTxn", "EndTxn", "InitProducerId"]
    assert coordinator.committed == [False]


@pytest.mark.parametrize("code", [ErrorCode.REQUEST_TIMED_OUT, ErrorCode.INVALID_TXN_STATE, ErrorCode.PRODUCER_FENCED])
async def test_a_producer_whose_abort_fails_is_stopped_all_the_same(
    producer: Producer, coordinator: Coordinator, code: ErrorCode
) -> None:
    """The application has not asked for the abort; an exception of its own must not be hidden by this one."""
    await producer.send("t", b"1", partition=0)
    acknowledge(producer)
    coordinator.problem = TidegaugeError(code, "it can't be aborted")
    await producer.stop()
    assert coordinator.committed == [False]
    with pytest.raises(TidegaugeError, match="not running"):
        await producer.send("t", b"2", partition=0)


async def test_a_fenced_producer_that_stops_asks_for_nothing(producer: Producer, coordinator: Coordinator) -> None:
    """Rule 4: the transaction that is open is another producer's."""
    assert producer._transactions is not None
    await producer.send("t", b"1", partition=0)
    acknowledge(producer)
    producer._transactions.failed(TidegaugeError(ErrorCode.PRODUCER_FENCED, "fenced"))
    await producer.stop()
    assert coordinator.committed == []
