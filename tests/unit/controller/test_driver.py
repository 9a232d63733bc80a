"""The driver of decisions: every write behind the check of the controller epoch, nothing after the term's end."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
from tests.waiting import until_async

from tidegauge.znodes import CONTROLLER_EPOCH
from tidegauge_controller.zookeeper.client import (
    BadVersion,
    MultiFailed,
    NodeExists,
    NoNode,
    SessionExpired,
    ZooKeeperError,
)
from tidegauge_controller.zookeeper.decisions.steps import (
    CheckVersion,
    ControllerMoved,
    CreateNode,
    DeleteNode,
    Note,
    Operation,
    Outcome,
    SetNode,
    Steps,
    Write,
    WriteResult,
    ZnodeStat,
)
from tidegauge_controller.zookeeper.driver import Driver

EPOCH_VERSION = 3
WRITES = (SetNode("/a", b"1", 5), CreateNode("/b", None), DeleteNode("/c"))


class FakeZooKeeper:
    """Returns the given results of transactions, by the path written; everything else succeeds."""

    def __init__(self) -> None:
        self.transactions: list[list[Operation]] = []
        self.fail: dict[str, tuple[int, ZooKeeperError]] = {}
        self.ended = 0
        self.hold = asyncio.Event()
        self.hold.set()

    async def multi(self, operations: Sequence[Operation]) -> list[Any]:
        self.transactions.append(list(operations))
        await self.hold.wait()
        self.ended += 1
        for at, operation in enumerate(operations):
            if operation.path in self.fail:
                is_check, error = self.fail[operation.path]
                if isinstance(error, SessionExpired):
                    raise error
                raise MultiFailed(0 if is_check == 0 else at, error)
        return [ZnodeStat(1, 2, 6, 0) if isinstance(operation, SetNode) else None for operation in operations]


class Stage:
    def __init__(self) -> None:
        self.zookeeper = FakeZooKeeper()
        self.notes: list[str] = []
        self.steps: list[str] = []
        anything: Any = self.zookeeper
        self.driver = Driver(
            anything,
            EPOCH_VERSION,
            send=lambda _broker_id, _request: None,
            add_broker=lambda _endpoint: None,
            move_broker=lambda _endpoint: None,
            remove_broker=lambda _broker_id: None,
            changed=lambda _name, _subject: None,
            note=lambda _kind, cause, _fields: self.notes.append(cause),
            random_bytes=bytes,
            stop_at=self.steps.append,
        )


@pytest.fixture
def stage() -> Stage:
    return Stage()


def write_and_note() -> Steps[list[WriteResult]]:
    results: list[WriteResult] = yield Write(WRITES)
    yield Note("election", "after the write")
    return results


CHECK = CheckVersion(CONTROLLER_EPOCH, EPOCH_VERSION)


async def test_the_writes_of_a_step_are_a_transaction_with_the_check(stage: Stage):
    results = await stage.driver.run("Test", write_and_note())
    assert results == [WriteResult(Outcome.OK, 6), WriteResult(Outcome.OK, 0), WriteResult(Outcome.OK, 0)]
    assert stage.zookeeper.transactions == [[CHECK, *WRITES]]
    assert stage.notes == ["after the write"]
    assert stage.steps == ["Test/set /a", "Test/create /b", "Test/delete /c"]


@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        (BadVersion(), Outcome.BAD_VERSION),
        (NoNode(), Outcome.NO_NODE),
        (NodeExists(), Outcome.NODE_EXISTS),
        (ZooKeeperError(), Outcome.FAILED),
    ],
)
async def test_a_refused_write_is_the_decisions_affair(stage: Stage, error: ZooKeeperError, outcome: Outcome):
    stage.zookeeper.fail["/a"] = (1, error)
    results = await stage.driver.run("Test", write_and_note())
    assert [result.outcome for result in results] == [outcome, Outcome.OK, Outcome.OK]
    together, *alone = stage.zookeeper.transactions
    assert together == [CHECK, *WRITES], "one refused, none done: each is tried by itself"
    assert alone == [[CHECK, write] for write in WRITES]


def write_states(count: int, size_bytes: int) -> Steps[list[WriteResult]]:
    results: list[WriteResult] = yield Write(tuple(SetNode(f"/{at}", b"x" * size_bytes) for at in range(count)))
    return results


@pytest.mark.parametrize(("count", "size_bytes", "lengths"), [(300, 100, [128, 128, 44]), (5, 100_000, [2, 2, 1])])
async def test_a_transaction_fits_into_a_request(stage: Stage, count: int, size_bytes: int, lengths: list[int]):
    results = await stage.driver.run("Test", write_states(count, size_bytes))
    assert results == [WriteResult(Outcome.OK, 6)] * count
    assert [len(transaction) - 1 for transaction in stage.zookeeper.transactions] == lengths
    assert [transaction[0] for transaction in stage.zookeeper.transactions] == [CHECK] * len(lengths)


@pytest.mark.parametrize("failure", [(0, BadVersion()), (0, SessionExpired())])
async def test_a_refused_check_or_an_expired_session_ends_the_decision(
    stage: Stage, failure: tuple[int, ZooKeeperError]
):
    stage.zookeeper.fail["/0"] = failure
    expected = SessionExpired if isinstance(failure[1], SessionExpired) else ControllerMoved
    with pytest.raises(expected):
        await stage.driver.run("Test", write_states(300, 100))
    assert stage.zookeeper.ended == len(stage.zookeeper.transactions) == 3, "none is under way when it resigns"
    assert (stage.notes, stage.steps) == ([], [])


async def test_nothing_happens_after_the_terms_end(stage: Stage):
    under_way = asyncio.ensure_future(stage.driver.run("Test", write_and_note()))

    async def begun() -> bool:
        return bool(stage.zookeeper.transactions)

    stage.zookeeper.hold.clear()
    await until_async(begun)
    stage.driver.close()
    stage.zookeeper.hold.set()
    with pytest.raises(ControllerMoved):
        await under_way
    assert stage.notes == []
