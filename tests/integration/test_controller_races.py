"""The controller dies at a named step of topic creation, deletion and election, on real processes (issue 4, races).

Afterwards the next controller finishes or undoes, the dead broker comes back, and ZooKeeper, every broker and every
disk say the same. ``tests/unit/controller/test_controller_dies.py`` goes through all steps in a model; here a few of
each kind run with every ``make test``, and all of them, ten times, with ``make test-long``.
"""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import Awaitable, Iterator
from pathlib import Path

import pytest
from tests.waiting import until, until_async
from tests.zookeeper_view import ZooKeeperView

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.partition import TopicPartition
from tidegauge_client.admin import Admin
from tidegauge_controller.stop_at import SETTING, STEPS
from tidegauge_lab.cluster import LocalCluster
from tidegauge_lab.processes import ProcessState

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]

_numbers = itertools.count()
QUICK = {
    "creation": ("TopicChange/create state",),
    "deletion": ("Answer/StopReplica delete",),
    "election": ("BrokerChange/set state",),
}
"""Those of ``make test``."""


class Stage:
    """A cluster whose controller can be told where to die."""

    def __init__(self, folder: Path, zookeeper: str) -> None:
        self.switch = folder / "stop-at"
        settings = {
            SETTING: str(self.switch),
            "zookeeper.session.timeout.ms": "2000",
            "auto.leader.rebalance.enable": "false",
        }
        self.cluster = LocalCluster.create(folder / "cluster", zookeeper=f"{zookeeper}/races", settings=settings)
        self.cluster.up()
        self.view = ZooKeeperView(self.cluster.file.zookeeper_address)

    def close(self) -> None:
        self.view.close()
        self.cluster.down()

    def controller(self) -> int:
        """Waits until there is one."""
        return int(until(lambda: [broker for broker in [self.view.controller()[0]] if broker is not None], 60)[0])

    async def begin(self) -> tuple[int, str, Admin]:
        """All brokers up, in sync; the controller, a topic's name, an admin client."""
        await asyncio.to_thread(self.cluster.up)
        topic = f"topic-{next(_numbers)}"
        return self.controller(), topic, Admin(self.cluster.bootstrap_servers)

    def arm(self, step: str) -> None:
        """The next controller that does this step dies right after it."""
        self.switch.write_text(step)

    async def until_dead(self, controller: int) -> None:
        """Its process has killed itself; its session is over and another broker is the controller."""

        async def dead() -> bool:
            return self.cluster.state_of(controller) is ProcessState.DOWN

        await until_async(dead, limit=60, what=f"broker {controller} should have died; {self.switch} says where")
        assert not self.switch.exists()

        async def replaced() -> bool:
            return self.view.controller()[0] not in {None, controller}

        await until_async(replaced, limit=60)

    async def all_back(self) -> None:
        """The dead come back, and everything agrees."""
        await asyncio.to_thread(self.cluster.up)

        async def agree() -> bool:
            return not await self.disagreements()

        try:
            await until_async(agree, limit=60)
        except AssertionError:
            raise AssertionError(await self.disagreements()) from None

    async def disagreements(self) -> list[str]:
        """Where ZooKeeper, the brokers' metadata, their replicas and their disks differ."""
        tree = self.view.tree()
        found = [f"marker left: {path}" for path in tree if path.startswith("/admin/delete_topics/")]
        states = {}
        holders: dict[int, set[str]] = {broker.id: set() for broker in self.cluster.file.brokers}
        for topic in [path.rpartition("/")[2] for path in tree if path.count("/") == 3 and "/brokers/topics/" in path]:
            assigned = json.loads(tree[f"/brokers/topics/{topic}"].data or b"")["partitions"]
            for partition, replicas in assigned.items():
                for replica in replicas:
                    holders[replica].add(f"{topic}-{partition}")
                znode = tree.get(f"/brokers/topics/{topic}/partitions/{partition}/state")
                if znode is None:
                    found.append(f"{topic}-{partition} has no state")
                    continue
                state = json.loads(znode.data or b"")
                states[f"{topic}-{partition}"] = (state["leader"], state["leader_epoch"], sorted(replicas))
                if state["leader"] == -1 or sorted(state["isr"]) != sorted(replicas):
                    found.append(f"{topic}-{partition}: {state}")
        for broker, held in holders.items():
            data = self.cluster.directory / f"broker-{broker}" / "data"
            on_disk = {path.name for path in data.iterdir() if path.is_dir() and not path.name.endswith("-delete")}
            found += [f"broker {broker}'s disk: {name}" for name in on_disk ^ held]
        return found + await self._told_otherwise(states)

    async def _told_otherwise(self, states: dict[str, tuple[int, int, list[int]]]) -> list[str]:
        found = []
        async with Admin(self.cluster.bootstrap_servers) as admin:
            for broker in self.cluster.file.brokers:
                try:
                    topics = (await admin.metadata_of(broker.address, None)).topics.values()
                except TidegaugeError as problem:
                    found.append(f"broker {broker.id}: {problem}")
                    continue
                told = {
                    f"{topic.name}-{number}": (info.leader_id, info.leader_epoch, sorted(info.replicas))
                    for topic in topics
                    for number, info in topic.partitions.items()
                }
                if told != states:
                    found.append(f"broker {broker.id} tells {told}, ZooKeeper {states}")
        return found


@pytest.fixture(scope="module")
def stage(zookeeper: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    made = Stage(tmp_path_factory.mktemp("races"), zookeeper)
    yield made
    made.close()


EXPECTED = {
    ErrorCode.TOPIC_ALREADY_EXISTS,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.NETWORK_EXCEPTION,
    ErrorCode.NOT_CONTROLLER,
}
"""What an admin may be told when the controller dies over a request, or a repetition meets the first one's success."""


async def try_it(work: Awaitable[object]) -> None:
    """Ask; the answer may have got lost."""
    try:
        await work
    except TidegaugeError as problem:
        if problem.code not in EXPECTED:
            raise


async def dies_creating(stage: Stage, step: str) -> None:
    controller, topic, admin = await stage.begin()
    others = [broker for broker in (0, 1, 2) if broker != controller]
    async with admin:
        stage.arm(step)
        creation = asyncio.ensure_future(
            try_it(admin.create_topic(topic, assignment=[[controller, *others], [*others, controller]]))
        )
        await stage.until_dead(controller)
        await creation
        await stage.all_back()
        await try_it(admin.create_topic(topic, assignment=[[controller, *others], [*others, controller]]))
        await admin.wait_for_topic(topic, partitions=2)
        assert await stage.disagreements() == []
        await admin.delete_topic(topic)


async def dies_deleting(stage: Stage, step: str) -> None:
    controller, topic, admin = await stage.begin()
    async with admin:
        await admin.create_topic(topic, assignment=[[0, 1], [1, 2], [2, 0]])
        await admin.wait_for_topic(topic, partitions=3)
        stage.arm(step)
        deletion = asyncio.ensure_future(try_it(admin.delete_topic(topic)))
        await stage.until_dead(controller)
        await deletion
        await stage.all_back()
        await admin.wait_for_topic_gone(topic)
        assert not [path for path in stage.view.tree() if topic in path]


async def dies_electing(stage: Stage, step: str) -> None:
    controller, topic, admin = await stage.begin()
    victim, other = (broker for broker in (0, 1, 2) if broker != controller)
    async with admin:
        await admin.create_topic(topic, assignment=[[victim, other, controller], [other, controller, victim]])
        await admin.wait_for_topic(topic, partitions=2)
        if step.startswith("ElectLeaders/"):
            await asyncio.to_thread(stage.cluster.stop, victim)
            await asyncio.to_thread(stage.cluster.start, victim)

            async def in_sync() -> bool:
                return all(set(stage.view.state(topic, partition)["isr"]) == {0, 1, 2} for partition in (0, 1))

            await until_async(in_sync, limit=60)
            stage.arm(step)
            election = asyncio.ensure_future(try_it(admin.elect_leaders([TopicPartition(topic, 0)])))
            await stage.until_dead(controller)
            await election
        else:
            stage.arm(step)
            await asyncio.to_thread(stage.cluster.kill, victim)
            await stage.until_dead(controller)
            assert stage.view.state(topic, 0)["leader"] != victim
        await stage.all_back()
        await admin.delete_topic(topic)


COURSES = {"creation": dies_creating, "deletion": dies_deleting, "election": dies_electing}


def cases(table: dict[str, tuple[str, ...]]) -> list[tuple[str, str]]:
    return [(what, step) for what, steps in table.items() for step in steps]


@pytest.mark.parametrize(("what", "step"), cases(QUICK))
async def test_another_controller_finishes_or_undoes(stage: Stage, what: str, step: str):
    await COURSES[what](stage, step)


@pytest.mark.long
@pytest.mark.parametrize("turn", range(10))
@pytest.mark.parametrize(("what", "step"), cases(STEPS))
async def test_at_every_step_ten_times(stage: Stage, what: str, step: str, turn: int):
    assert turn < 10
    await COURSES[what](stage, step)
