"""The transactions of the own producer: what may be called when, what is repeated, what is fatal (KIP-98, KIP-360)."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.partition import TopicPartition
from tidegauge.v1 import common_pb2, transactions_pb2
from tidegauge_client.transaction import Phase, Transactions

A, B = TopicPartition("a", 0), TopicPartition("a", 1)


class World:
    """A cluster of one broker, which has the errors that the test gives, first to last, and none after them."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, Any]] = []
        self.errors: list[ErrorCode] = []
        self.epoch = 0
        stub = SimpleNamespace(
            InitTransactions=self._method("InitTransactions", self._identity),
            AddPartitions=self._method("AddPartitions", self._added),
            EndTransaction=self._method("EndTransaction", transactions_pb2.EndTransactionResponse),
        )
        cluster: Any = SimpleNamespace(
            addresses=lambda: ["b:1"],
            note_failure=lambda _: None,
            channels=SimpleNamespace(transactions=lambda _: stub),
        )
        self.transactions = Transactions("tx", 60_000, cluster, retry_backoff_ms=1, max_block_ms=5_000)

    def _method(self, name: str, make: Callable[..., Any]) -> Any:
        async def call(request: Any, timeout: float) -> Any:  # noqa: ASYNC109 - as grpc's
            del timeout
            self.asked.append((name, request))
            error: Any = self.errors.pop(0).value if self.errors else 0
            return make(status=common_pb2.Status(error=error))

        return call

    def _identity(self, status: common_pb2.Status) -> Any:
        self.epoch += status.error == 0
        return transactions_pb2.InitTransactionsResponse(status=status, producer_id=7, producer_epoch=self.epoch)

    @staticmethod
    def _added(status: common_pb2.Status) -> Any:
        one = transactions_pb2.TransactionPartition(topic="a", partition=0, status=status)
        return transactions_pb2.AddPartitionsResponse(partitions=[one])

    def names(self) -> list[str]:
        return [name for name, _ in self.asked]


async def begun() -> World:
    world = World()
    await world.transactions.init()
    world.transactions.begin()
    world.asked.clear()
    return world


async def test_a_partition_is_added_once_to_each_transaction() -> None:
    """Rule 2."""
    world = await begun()
    for _ in range(2):
        await world.transactions.add(A)
        await world.transactions.add(A)
        await world.transactions.end(committed=True)
        world.transactions.begin()
    assert world.names() == ["AddPartitions", "EndTransaction"] * 2


async def test_an_empty_transaction_needs_no_request() -> None:
    world = await begun()
    await world.transactions.end(committed=True)
    assert (world.names(), world.transactions.phase) == ([], Phase.READY)


async def test_requests_are_repeated_while_the_transaction_before_is_ended() -> None:
    """Rule 5."""
    world = await begun()
    world.errors = [ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS]
    await world.transactions.add(A)
    assert world.names() == ["AddPartitions"] * 3


async def test_a_failed_record_leaves_nothing_but_the_abort() -> None:
    """Rule 3: then an identity with the next epoch, which names the one before (KIP-360)."""
    world = await begun()
    await world.transactions.add(A)
    world.transactions.failed(TidegaugeError(ErrorCode.REQUEST_TIMED_OUT, "expired"))
    with pytest.raises(TidegaugeError) as refused:
        world.transactions.expect(Phase.OPEN)
    assert refused.value.code is ErrorCode.INVALID_TXN_STATE
    await world.transactions.end(committed=False)
    assert (await world.transactions.init()).producer_epoch == 2
    name, request = world.asked[-1]
    assert (name, request.producer_id, request.producer_epoch) == ("InitTransactions", 7, 1)


async def test_a_fenced_producer_can_do_nothing_any_more() -> None:
    """Rule 4."""
    world = await begun()
    world.errors = [ErrorCode.PRODUCER_FENCED]
    with pytest.raises(TidegaugeError):
        await world.transactions.add(B)
    for phase in Phase:
        with pytest.raises(TidegaugeError) as refused:
            world.transactions.expect(phase)
        assert refused.value.code is ErrorCode.PRODUCER_FENCED


async def test_a_commit_that_is_refused_leaves_the_abort() -> None:
    world = await begun()
    await world.transactions.add(A)
    world.errors = [ErrorCode.INVALID_TXN_STATE]
    with pytest.raises(TidegaugeError):
        await world.transactions.end(committed=True)
    assert world.transactions.phase is Phase.TO_ABORT
