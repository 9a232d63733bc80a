"""The transactions of the own producer: permitted calls, repeated requests, fatal errors (KIP-98, KIP-360)."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.kafka import apis
from tidegauge.kafka.apis import APIS, message_class
from tidegauge.kafka.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopicResult,
)
from tidegauge.kafka.messages.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse
from tidegauge.kafka.messages.init_producer_id import InitProducerIdResponse
from tidegauge.partition import TopicPartition
from tidegauge_client.group.group_consumer import GroupMetadata
from tidegauge_client.kafka_offsets import OffsetAndMetadata
from tidegauge_client.metadata import BrokerInfo, ClusterInfo
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
        self.found: list[str] = []
        cluster: Any = SimpleNamespace(
            info=ClusterInfo(brokers={0: BrokerInfo(0, "b", 1)}),
            in_turn=list,
            note_failure=lambda _: None,
            kafka=self,
        )
        self.transactions = Transactions("tx", 60_000, cluster, retry_backoff_ms=1, max_block_ms=max_block_ms)

    def reachable(self, info: ClusterInfo) -> dict[int, str]:
        return {one: self.address(info, one) for one in info.brokers}

    def address(self, info: ClusterInfo, broker_id: int) -> str:
        assert broker_id in info.brokers
        return "b:9"

    async def ask(self, address: str, key: int, request: Any, timeout_ms: float, **_: Any) -> Any:
        assert address == "b:9"
        assert timeout_ms > 0
        if isinstance(request, FindCoordinatorRequest):
            self.found += request.coordinator_keys
            return FindCoordinatorResponse(coordinators=[Coordinator(request.coordinator_keys[0], 0, "b", 9)])
        self.asked.append((APIS[key].name, request))
        await self.responds.wait()
        error = self.errors.pop(0).value if self.errors else 0
        if key == apis.INIT_PRODUCER_ID:
            self.epoch += error == 0
            return InitProducerIdResponse(0, error, 7, self.epoch)
        if key == apis.ADD_PARTITIONS_TO_TXN:
            one = AddPartitionsToTxnTopicResult("a", [AddPartitionsToTxnPartitionResult(0, error)])
            return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=[one])
        response = message_class(key, response=True)()
        if hasattr(response, "error_code"):
            response.error_code = error
        return response

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
    assert world.names() == ["AddPartitionsToTxn", "EndTxn"] * 2


async def test_an_empty_transaction_needs_no_request() -> None:
    world = await begun()
    await world.transactions.end(committed=True)
    assert (world.names(), world.transactions.phase) == ([], Phase.READY)


async def test_requests_are_repeated_while_the_transaction_before_is_ended() -> None:
    """Rule 5."""
    world = await begun()
    world.errors = [ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS]
    await world.transactions.add(A)
    assert world.names() == ["AddPartitionsToTxn"] * 3


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
    assert (name, request.producer_id, request.producer_epoch) == ("InitProducerId", 7, 1)


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
    assert world.names() == ["AddPartitionsToTxn", "EndTxn"]


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
    assert world.names() == ["AddOffsetsToTxn", "TxnOffsetCommit", "EndTxn"]


async def test_the_end_waits_for_what_is_being_added_and_its_record_is_refused() -> None:
    """Rule 6: a record that would be sent after the end would belong to the next transaction."""
    world = await begun()
    world.responds.clear()
    adding = asyncio.ensure_future(world.transactions.add(A))
    await until_asked(world)
    ending = asyncio.ensure_future(world.transactions.end(committed=True))
    for _ in range(10):
        await asyncio.sleep(0)
    assert world.names() == ["AddPartitionsToTxn"]
    world.responds.set()
    await ending
    assert world.names() == ["AddPartitionsToTxn", "EndTxn"]
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
    assert world.names() == ["AddPartitionsToTxn", "EndTxn"]
    outcomes = await asyncio.gather(*adding, return_exceptions=True)
    assert [one.code for one in outcomes if isinstance(one, TidegaugeError)] == [ErrorCode.INVALID_TXN_STATE] * 2
    assert world.transactions.phase is Phase.READY
