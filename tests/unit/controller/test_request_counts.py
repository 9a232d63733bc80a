"""The cost of many partitions for a controller in requests: to ZooKeeper by the hundred, to brokers a fixed number.

A state is read once in a term, by its take-over (docs/results/growth.md, "What a controller asks"). Counted at seams
that a broker has: the driver's calls of ZooKeeper, and the requests in the brokers' queues.
"""

from __future__ import annotations

import asyncio
import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest
from memory_zookeeper import MemoryZooKeeper

from tidegauge.control import PartitionsResponse
from tidegauge.errors import ErrorCode
from tidegauge.znodes import delete_topic_path, partition_path
from tidegauge_controller.zookeeper.client import MultiFailed, NoNode
from tidegauge_controller.zookeeper.decisions.broker_events import process_broker_change
from tidegauge_controller.zookeeper.decisions.context import ControllerContext
from tidegauge_controller.zookeeper.decisions.deletion import process_delete_markers, process_stop_replica_response
from tidegauge_controller.zookeeper.decisions.failover import fail_over
from tidegauge_controller.zookeeper.decisions.steps import (
    CheckVersion,
    CreateNode,
    DeleteNode,
    Operation,
    Outcome,
    Steps,
    ZnodeStat,
)
from tidegauge_controller.zookeeper.decisions.topic_events import process_topic_change
from tidegauge_controller.zookeeper.driver import Driver

BROKERS = (1, 2, 3)
IN_A_TRANSACTION = 128
TOPIC = "orders"


class CountedZooKeeper:
    """The driver's ZooKeeper over a tree; what it is asked is counted."""

    def __init__(self, tree: MemoryZooKeeper) -> None:
        self.tree = tree
        self.asked: Counter[str] = Counter()

    async def get(self, path: str) -> tuple[bytes, ZnodeStat]:
        self.asked["state reads" if path.endswith("/state") else "other reads"] += 1
        found = self.tree.read(path)
        if found.stat is None:
            raise NoNode(path)
        return found.data or b"", found.stat

    async def children(self, path: str) -> list[str]:
        self.asked["other reads"] += 1
        return self.tree.children(path) or []

    async def multi(self, operations: Sequence[Operation]) -> list[Any]:
        self.asked["transactions"] += 1
        writes = [one for one in operations if not isinstance(one, CheckVersion)]
        if len(writes) > 1 and any(isinstance(one, DeleteNode) and self.tree.children(one.path) for one in writes):
            raise MultiFailed(1, NoNode())
        results = [self.tree.write(one) for one in writes]
        assert all(result.outcome is Outcome.OK for result in results) or len(writes) == 1
        return [None, *(ZnodeStat(0, 0, result.version, 0) for result in results)]

    def watch_data(self, _path: str, _changed: Callable[[], None]) -> Any:
        self.asked["watches"] += 1
        armed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        armed.set_result(None)
        return SimpleNamespace(armed=armed, cancel=lambda: None)


@dataclass
class Term:
    """A controller's term, driven as in a broker, and what a decision asks of ZooKeeper and of brokers."""

    tree: MemoryZooKeeper
    reported: Counter[int] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        epoch, version = self.tree.next_controller_epoch()
        self.context = ControllerContext(9, epoch, version)
        self.zookeeper = CountedZooKeeper(self.tree)
        anything: Any = self.zookeeper
        self.driver = Driver(
            anything,
            version,
            send=lambda broker_id, _request: self.reported.update([broker_id]),
            add_broker=lambda _endpoint: None,
            move_broker=lambda _endpoint: None,
            remove_broker=lambda _broker_id: None,
            changed=lambda _name, _subject: None,
            note=lambda _kind, _cause, _fields: None,
            random_bytes=lambda count: bytes(range(count)),
            stop_at=lambda _step: None,
        )

    async def asks(self, decide: Callable[[ControllerContext], Steps[None]]) -> dict[str, int]:
        """Count a decision's requests to ZooKeeper by kind, and the most that any one broker gets."""
        self.zookeeper.asked.clear()
        self.reported.clear()
        await self.driver.run("event", decide(self.context))
        return {**self.zookeeper.asked, "requests to a broker": max(self.reported.values())}


async def cluster_of(partitions: int) -> tuple[Term, dict[str, int]]:
    """Three brokers and a topic with three replicas, each broker leading a third; what its creation cost."""
    tree = MemoryZooKeeper()
    for broker_id in BROKERS:
        tree.register_broker(broker_id)
    term = Term(tree)
    await term.asks(fail_over)
    turns = [BROKERS[turn:] + BROKERS[:turn] for turn in range(3)]
    tree.add_topic(TOPIC, {partition: turns[partition % 3] for partition in range(partitions)})
    return term, await term.asks(process_topic_change)


def transactions_for(writes: int) -> int:
    return math.ceil(writes / IN_A_TRANSACTION)


@pytest.mark.parametrize("partitions", [30, 900])
async def test_a_creation_reads_no_state(partitions: int):
    """The list of topics and the topic; then the parent of all partitions, partitions and states, by the hundred."""
    _, asked = await cluster_of(partitions)
    assert asked == {
        "other reads": 2,
        "watches": 1,
        "transactions": 1 + 2 * transactions_for(partitions),
        "requests to a broker": 2,
    }


@pytest.mark.parametrize("partitions", [30, 900])
async def test_a_brokers_death_reads_no_state(partitions: int):
    """A third gets another leader, then two thirds another ISR; each hears of each of the two in two requests."""
    term, _ = await cluster_of(partitions)
    term.tree.unregister_broker(1)
    assert await term.asks(process_broker_change) == {
        "other reads": 3,
        "transactions": transactions_for(partitions // 3) + transactions_for(2 * partitions // 3),
        "requests to a broker": 4,
    }


@pytest.mark.parametrize("partitions", [30, 900])
async def test_a_take_over_reads_each_state_once(partitions: int):
    """With a dead broker: all lose a replica, and a third of them gets a new leader after it."""
    before, _ = await cluster_of(partitions)
    before.tree.unregister_broker(1)
    asked = await Term(before.tree).asks(fail_over)
    assert asked.pop("other reads") + asked.pop("watches") < 30
    assert asked == {
        "state reads": partitions,
        "transactions": transactions_for(partitions) + transactions_for(partitions // 3),
        "requests to a broker": 7,
    }


async def deleted(term: Term) -> Counter[str]:
    """Delete the topic; what its last round costs, when the third broker has deleted its replicas."""
    term.tree.write(CreateNode(delete_topic_path(TOPIC), b""))
    await term.asks(process_delete_markers)
    everywhere = list(term.context.partitions([TOPIC]))
    for broker_id in BROKERS:
        term.zookeeper.asked.clear()
        await term.driver.run(
            "event", process_stop_replica_response(term.context, broker_id, everywhere, PartitionsResponse())
        )
    return term.zookeeper.asked


@pytest.mark.parametrize("partitions", [30, 900])
async def test_the_znodes_of_a_deleted_topic_go_by_the_hundred(partitions: int):
    """States, partitions, and the rest one by one: their parent, the topic, its settings, the marker."""
    term, _ = await cluster_of(partitions)
    assert await deleted(term) == {"transactions": 2 * transactions_for(partitions) + 4, "other reads": 2}
    assert not any(TOPIC in path for path in term.tree.nodes)


async def test_a_deletion_leaves_no_znode_that_it_does_not_know():
    """A child beside a partition's state keeps its transaction from happening; those znodes go one by one."""
    term, _ = await cluster_of(30)
    term.tree.create(f"{partition_path(TOPIC, 7)}/note", b"of an operator")
    await deleted(term)
    assert not any(TOPIC in path for path in term.tree.nodes)


async def test_replicas_that_could_not_be_deleted_keep_all_znodes():
    """The topic waits (``TopicDeletionManager.failReplicaDeletion``)."""
    term, _ = await cluster_of(30)
    term.tree.write(CreateNode(delete_topic_path(TOPIC), b""))
    await term.asks(process_delete_markers)
    before = set(term.tree.nodes)
    everywhere = list(term.context.partitions([TOPIC]))
    failed = PartitionsResponse(partitions=dict.fromkeys(everywhere, ErrorCode.KAFKA_STORAGE_ERROR))
    for broker_id, response in zip(BROKERS, (failed, PartitionsResponse(), PartitionsResponse()), strict=True):
        await term.driver.run("event", process_stop_replica_response(term.context, broker_id, everywhere, response))
    assert set(term.tree.nodes) == before
