"""The transactions of the own producer: what may be called when, what is repeated, what is fatal (KIP-98, KIP-360)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.partition import TopicPartition
from tidegauge.v1 import common_pb2, transactions_pb2
from tidegauge_client.admin_groups import OffsetAndMetadata
from tidegauge_client.group.group_consumer import GroupMetadata
from tidegauge_client.transaction import Phase, Transactions

A, B = TopicPartition("a", 0), TopicPartition("a", 1)


class World:
    """A cluster of one broker, which has the errors that the test gives, first to last, and none after them.

    Attributes:
        responds: while it is not set, requests arrive and have no response.
    """

    def __init__(self, max_block_ms: float = 5_000) -> None:
        self.responds = asyncio.Event()
        self.responds.set()
        self.asked: list[tuple[str, Any]] = []
        self.errors: list[ErrorCode] = []
        self.epoch = 0
        stub = SimpleNamespace(
            InitTransactions=self._method("InitTransactions", self._identity),
            AddPartitions=self._method("AddPartitions", self._added),
            AddOffsets=self._method("AddOffsets", transactions_pb2.AddOffsetsResponse),
            CommitOffsetsInTransaction=self._method(
                "CommitOffsetsInTransaction", transactions_pb2.CommitOffsetsInTransactionResponse
            ),
            EndTransaction=self._method("EndTransaction", transactions_pb2.EndTransactionResponse),
        )
        cluster: Any = SimpleNamespace(
            addresses=lambda: ["b:1"],
            note_failure=lambda _: None,
            channels=SimpleNamespace(transactions=lambda _: stub),
        )
        self.transactions = Transactions("tx", 60_000, cluster, retry_backoff_ms=1, max_block_ms=max_block_ms)

    def _method(self, name: str, make: Callable[..., Any]) -> Any:
        async def call(request: Any, timeout: float) -> Any:  # noqa: ASYNC109 - as grpc's
            del timeout
            self.asked.append((name, request))
            await self.responds.wait()
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


async def until_asked(world: World) -> None:
    for _ in range(10):
        await asyncio.sleep(0)
    assert world.asked


async def test_a_partition_whose_send_is_cancelled_is_in_the_transaction_all_the_same() -> None:
    """Rule 6: the coordinator has it, so that a transaction without an end would stay open there until its timeout."""
    world = await begun()
    world.responds.clear()
    adding = asyncio.ensure_future(world.transactions.add(A))
    await until_asked(world)
    adding.cancel()
    await asyncio.wait({adding})
    world.responds.set()
    await world.transactions.end(committed=True)
    assert world.names() == ["AddPartitions", "EndTransaction"]


async def test_offsets_whose_commit_is_cancelled_are_in_the_transaction_all_the_same() -> None:
    """Rule 6."""
    world = await begun()
    world.responds.clear()
    group = GroupMetadata("g", 1, "m", None)
    committing = asyncio.ensure_future(world.transactions.commit_offsets({A: OffsetAndMetadata(1)}, group))
    await until_asked(world)
    committing.cancel()
    await asyncio.wait({committing})
    world.responds.set()
    await world.transactions.end(committed=True)
    assert world.names() == ["AddOffsets", "CommitOffsetsInTransaction", "EndTransaction"]


async def test_the_end_waits_for_what_is_being_added_and_its_record_is_refused() -> None:
    """Rule 6: a record that would be sent after the end would belong to the next transaction."""
    world = await begun()
    world.responds.clear()
    adding = asyncio.ensure_future(world.transactions.add(A))
    await until_asked(world)
    ending = asyncio.ensure_future(world.transactions.end(committed=True))
    for _ in range(10):
        await asyncio.sleep(0)
    assert world.names() == ["AddPartitions"]
    world.responds.set()
    await ending
    assert world.names() == ["AddPartitions", "EndTransaction"]
    with pytest.raises(TidegaugeError) as refused:
        await adding
    assert refused.value.code is ErrorCode.INVALID_TXN_STATE


async def test_a_partition_that_may_have_been_added_leaves_nothing_but_the_abort() -> None:
    """Rule 6: without a response nothing is known; the next epoch ends the transaction, whatever there is of it."""
    world = World(max_block_ms=0)
    await world.transactions.init()
    world.transactions.begin()
    world.errors = [ErrorCode.COORDINATOR_NOT_AVAILABLE]
    with pytest.raises(TidegaugeError) as late:
        await world.transactions.add(A)
    assert late.value.code is ErrorCode.REQUEST_TIMED_OUT
    assert world.transactions.phase is Phase.TO_ABORT


async def test_a_send_that_waits_behind_another_one_does_not_spoil_the_commit() -> None:
    """Rule 6: it is refused because the commit has begun, which is no failure of the transaction."""
    world = await begun()
    world.responds.clear()
    adding = [asyncio.ensure_future(world.transactions.add(at)) for at in (A, B)]
    await until_asked(world)
    ending = asyncio.ensure_future(world.transactions.end(committed=True))
    await asyncio.sleep(0)
    world.responds.set()
    await ending
    assert world.names() == ["AddPartitions", "EndTransaction"]
    outcomes = await asyncio.gather(*adding, return_exceptions=True)
    assert [one.code for one in outcomes if isinstance(one, TidegaugeError)] == [ErrorCode.INVALID_TXN_STATE] * 2
    assert world.transactions.phase is Phase.READY
