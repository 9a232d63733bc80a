"""A decision over thousands of partitions leaves the event loop to others: the controller shares its broker's.

Counted is what a decision looks at between two of its requests: at each of them the driver may let others go on.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest
from memory_zookeeper import MemoryZooKeeper, Term

from tidegauge.control import PartitionsResponse, StopReplicaRequest
from tidegauge.errors import ErrorCode
from tidegauge.znodes import DELETE_TOPICS, delete_topic_path
from tidegauge_controller.zookeeper.decisions import batch, partition_machine, replica_machine, state_store
from tidegauge_controller.zookeeper.decisions.broker_events import process_broker_change
from tidegauge_controller.zookeeper.decisions.deletion import process_delete_markers, process_stop_replica_response
from tidegauge_controller.zookeeper.decisions.failover import fail_over
from tidegauge_controller.zookeeper.decisions.leaders import process_controlled_shutdown
from tidegauge_controller.zookeeper.decisions.steps import (
    ITEMS_PER_TURN,
    TURN,
    DeleteNode,
    Note,
    Read,
    Steps,
    Turn,
    Write,
)
from tidegauge_controller.zookeeper.decisions.topic_events import process_topic_change
from tidegauge_controller.zookeeper.driver import Driver

COUNT = 5 * ITEMS_PER_TURN + 1
TOPIC = "t"


class Counting(Term):
    """A term that notes the most calls of each costly function between two requests."""

    def __init__(self, zookeeper: MemoryZooKeeper, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__(zookeeper, 9)
        self.most: Counter[str] = Counter()
        self.turns = 0
        self._now: Counter[str] = Counter()
        for module, names in (
            (partition_machine, ("elect_initial", "elect_offline", "elect_for_controlled_shutdown")),
            (state_store, ("decode_state", "state_path")),
            (replica_machine, ("remove_from_isr",)),
            (batch.RequestBatch, ("leader_and_isr", "stop_replica", "_metadata_of")),
        ):
            for name in names:
                monkeypatch.setattr(module, name, self._counted(name, getattr(module, name)))

    def _counted(self, name: str, call: Any) -> Any:
        def counting(*arguments: Any, **others: Any) -> Any:
            self._now[name] += 1
            return call(*arguments, **others)

        return counting

    def respond(self, request: Any) -> Any:
        for name, count in self._now.items():
            self.most[name] = max(self.most[name], count)
        self._now.clear()
        self.turns += isinstance(request, Turn)
        return super().respond(request)


@pytest.fixture
def zookeeper() -> MemoryZooKeeper:
    made = MemoryZooKeeper()
    for broker_id in (1, 2, 3):
        made.register_broker(broker_id)
    return made


def assignment() -> dict[int, Sequence[int]]:
    return {number: tuple((number + place) % 3 + 1 for place in range(3)) for number in range(COUNT)}


def check(term: Counting, *names: str) -> None:
    """The costly work was done with turns; a turn may have the rest of one broker's replicas and begin the next's."""
    assert set(names) <= set(term.most), "the decision did what is counted"
    assert max(term.most.values()) < 2 * ITEMS_PER_TURN
    assert term.turns >= 3 * COUNT // ITEMS_PER_TURN


@pytest.fixture
def term(zookeeper: MemoryZooKeeper, monkeypatch: pytest.MonkeyPatch) -> Counting:
    made = Counting(zookeeper, monkeypatch)
    made.start()
    return made


def created(term: Counting) -> Counting:
    term.zookeeper.add_topic(TOPIC, assignment(), None)
    term.run(process_topic_change(term.context))
    return term


def test_a_topic_of_thousands_of_partitions_is_created_with_turns(term: Counting) -> None:
    created(term)
    assert len(term.context.leadership) == COUNT
    check(term, "elect_initial", "leader_and_isr")


def test_a_controller_takes_over_thousands_of_partitions_with_turns(
    term: Counting, monkeypatch: pytest.MonkeyPatch
) -> None:
    successor = Counting(created(term).zookeeper, monkeypatch)
    successor.run(fail_over(successor.context))
    assert len(successor.context.leadership) == COUNT
    check(successor, "leader_and_isr", "_metadata_of")


def test_the_death_of_a_broker_with_thousands_of_replicas_is_handled_with_turns(term: Counting) -> None:
    created(term).zookeeper.unregister_broker(3)
    term.most.clear()
    term.run(process_broker_change(term.context))
    assert not any(3 in state.isr for state in term.context.leadership.values())
    check(term, "elect_offline", "state_path", "remove_from_isr", "stop_replica", "leader_and_isr")


def test_a_controlled_shutdown_of_thousands_of_replicas_is_handled_with_turns(term: Counting) -> None:
    epoch = created(term).context.live[3].epoch
    term.most.clear()
    _, remaining = term.run(process_controlled_shutdown(term.context, 3, epoch))
    assert remaining == []
    check(term, "elect_for_controlled_shutdown", "remove_from_isr", "stop_replica")


def test_a_topic_of_thousands_of_partitions_is_deleted_with_turns(term: Counting) -> None:
    created(term).zookeeper.ensure(DELETE_TOPICS)
    term.zookeeper.create(delete_topic_path(TOPIC), None)
    term.most.clear()
    term.take_sent()
    term.run(process_delete_markers(term.context))
    requests = [(to, one) for to, one in term.take_sent() if isinstance(one, StopReplicaRequest)]
    for broker_id, request in requests:
        deleted = [one.topic_partition for one in request.partitions if one.delete]
        response = PartitionsResponse(ErrorCode.NONE, dict.fromkeys(deleted, ErrorCode.NONE))
        if deleted:
            term.run(process_stop_replica_response(term.context, broker_id, deleted, response))
    assert TOPIC not in term.context.topics
    check(term, "_metadata_of", "stop_replica")


# The driver


class Slow:
    """A ZooKeeper that notes how many reads and transactions are in flight together."""

    def __init__(self) -> None:
        self.in_flight: Counter[str] = Counter()
        self.most: Counter[str] = Counter()

    async def _take(self, kind: str) -> None:
        self.in_flight[kind] += 1
        self.most[kind] = max(self.most[kind], self.in_flight[kind])
        await asyncio.sleep(0)
        self.in_flight[kind] -= 1

    async def get(self, path: str) -> tuple[bytes, Any]:
        await self._take("get")
        return path.encode(), None

    async def multi(self, operations: Sequence[Any]) -> list[None]:
        await self._take("multi")
        return [None] * len(operations)


def driver(zookeeper: Any) -> Driver:
    def nothing(*_: Any) -> None:
        """Do nothing."""

    return Driver(
        zookeeper,
        0,
        send=nothing,
        add_broker=nothing,
        move_broker=nothing,
        remove_broker=nothing,
        changed=nothing,
        note=nothing,
        random_bytes=bytes,
        stop_at=nothing,
    )


async def test_the_driver_begins_a_large_steps_requests_some_at_a_time() -> None:
    """All at once would be one turn of the loop; the results keep their order."""
    paths = tuple(f"/p/{number}" for number in range(COUNT))

    def steps() -> Steps[Any]:
        results = yield Read(paths)
        written = yield Write(tuple(DeleteNode(path) for path in paths))
        return results, written

    zookeeper = Slow()
    results, written = await driver(zookeeper).run("E", steps())
    assert [one.data.decode() for one in results] == list(paths)
    assert len(written) == COUNT
    assert zookeeper.most["get"] <= 200
    assert zookeeper.most["multi"] <= 8


async def test_the_driver_leaves_the_loop_to_others_between_many_requests_and_at_turns() -> None:
    def steps(request: Any, count: int) -> Steps[None]:
        for _ in range(count):
            yield request

    for request, count, least in ((Note("k", "c"), 1_000, 20), (TURN, 7, 7)):
        task, turns = asyncio.ensure_future(driver(Slow()).run("E", steps(request, count))), 0
        while not task.done():
            turns += 1
            await asyncio.sleep(0)
        assert turns >= least
