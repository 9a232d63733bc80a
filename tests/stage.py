"""A cluster for tests in which the controller dies at a named step (``tidegauge_controller.zookeeper.stop_at``)."""

from __future__ import annotations

import asyncio
import itertools
import json
from pathlib import Path

from tests.waiting import until, until_async
from tests.zookeeper_view import ZooKeeperView

from tidegauge.errors import TidegaugeError
from tidegauge_client.admin import Admin
from tidegauge_controller.zookeeper.stop_at import SETTING
from tidegauge_lab.local.cluster import LocalCluster
from tidegauge_lab.local.processes import ProcessState

_numbers = itertools.count()


class Stage:
    """A cluster whose controller dies at a chosen step.

    Attributes:
        strays: names of replicas (``T-P``) that may be left on a broker's disk: it was dead when it lost them.
    """

    def __init__(self, directory: Path, zookeeper: str, base_port: int, brokers: int = 3) -> None:
        self.strays: set[tuple[int, str]] = set()
        self.switch = directory / "stop-at"
        settings = {
            SETTING: str(self.switch),
            "zookeeper.session.timeout.ms": "4000",
            "auto.leader.rebalance.enable": "false",
        }
        self.cluster = LocalCluster.create(
            directory / "cluster", brokers, zookeeper=zookeeper, base_port=base_port, settings=settings
        )
        self.cluster.up()
        self.view = ZooKeeperView(self.cluster.file.zookeeper_address)

    def close(self) -> None:
        self.view.close()
        self.cluster.down()

    def controller(self) -> int:
        """Waits until there is one."""
        return int(until(lambda: [broker for broker in [self.view.controller()[0]] if broker is not None], 150)[0])

    async def begin(self) -> tuple[int, str, Admin]:
        """All brokers up, in sync; the controller, a topic's name, an admin client."""
        await asyncio.to_thread(self.cluster.up)
        topic = f"topic-{next(_numbers)}"
        return self.controller(), topic, Admin(self.cluster.bootstrap_servers)

    def arm(self, step: str, victim: int | None = None) -> None:
        """The next controller that does this step dies right after it, or this broker in its place."""
        process_id = None if victim is None else self.cluster.pid_of(victim)
        self.switch.write_text(step if process_id is None else f"{step}\n{process_id}")

    async def until_down(self, victim: int) -> None:
        """The switch has ended its process."""

        async def dead() -> bool:
            return self.cluster.state_of(victim) is ProcessState.DOWN

        await until_async(dead, limit=150, what=f"broker {victim} should have died; {self.switch} says where")
        assert not self.switch.exists()

    async def until_dead(self, controller: int) -> None:
        """Its process has killed itself; its session is over and another broker is the controller."""
        await self.until_down(controller)
        await asyncio.to_thread(self.cluster.expire_session, controller)

        async def replaced() -> bool:
            return self.view.controller()[0] not in {None, controller}

        await until_async(replaced, limit=150)

    async def all_back(self) -> None:
        """The dead come back, and everything agrees."""
        await asyncio.to_thread(self.cluster.up)

        async def agree() -> bool:
            return not await self.disagreements()

        try:
            await until_async(agree, limit=150)
        except AssertionError:
            raise AssertionError(await self.disagreements()) from None

    async def disagreements(self) -> list[str]:
        """Where ZooKeeper, the brokers' metadata, their replicas and their disks differ."""
        tree = self.view.tree()
        found = [f"marker left: {path}" for path in tree if path.startswith("/admin/delete_topics/")]
        states = {}
        holders: dict[int, set[str]] = {broker.id: set() for broker in self.cluster.file.brokers}
        for topic in [path.rpartition("/")[2] for path in tree if path.count("/") == 3 and "/brokers/topics/" in path]:
            node = json.loads(tree[f"/brokers/topics/{topic}"].data or b"")
            assigned = node["partitions"]
            found += [f"{topic} still reassigns: {node}" for what in ("adding", "removing") if node[f"{what}_replicas"]]
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
            found += [f"broker {broker}'s disk: {name}" for name in on_disk ^ held if (broker, name) not in self.strays]
        return found + await self._reported_otherwise(states)

    async def _reported_otherwise(self, states: dict[str, tuple[int, int, list[int]]]) -> list[str]:
        found = []
        async with Admin(self.cluster.bootstrap_servers) as admin:
            for broker in self.cluster.file.brokers:
                try:
                    topics = (await admin.metadata_of(broker.address, None)).topics.values()
                except TidegaugeError as problem:
                    found.append(f"broker {broker.id}: {problem}")
                    continue
                reported = {
                    f"{topic.name}-{number}": (info.leader_id, info.leader_epoch, sorted(info.replicas))
                    for topic in topics
                    for number, info in topic.partitions.items()
                }
                if reported != states:
                    found.append(f"broker {broker.id} tells {reported}, ZooKeeper {states}")
        return found
