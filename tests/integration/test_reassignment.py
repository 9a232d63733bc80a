"""Reassignment on real processes: under load, cancelled, throttled, and through the deaths of all who take part.

No acknowledged record is lost (the accountant says so), and at the end ZooKeeper, all brokers
and all disks say the same (KIP-455). ``tests/unit/controller/test_controller_dies.py`` goes
through every step in a model.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from tests.stage import Stage
from tests.waiting import pace, until_async

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.partition import TopicPartition
from tidegauge.znodes import REASSIGN_PARTITIONS, encode_reassignments
from tidegauge_client import reassignment_plan as plan
from tidegauge_client.admin import Admin
from tidegauge_client.cli.describe import describe_topic
from tidegauge_client.cli.reassign_partitions import reassign_partitions
from tidegauge_client.producer import Producer
from tidegauge_controller.zookeeper.stop_at import STEPS
from tidegauge_lab.cli.verify import verify

pytestmark = [pytest.mark.integration, pytest.mark.timeout(1200)]

TIDEGAUGE = str(Path(sys.executable).with_name("tidegauge"))
BROKERS = (0, 1, 2, 3)


class Movers(Stage):
    """Four brokers, load on a topic, and the verb."""

    def __init__(self, directory: Path, zookeeper: str, base_port: int) -> None:
        super().__init__(directory, zookeeper, base_port, brokers=len(BROKERS))
        self.directory = directory

    def run(self, *arguments: object) -> Result:
        """``reassign-partitions``, in this process."""
        where = ("--dir", str(self.cluster.directory))
        return CliRunner().invoke(reassign_partitions, [*map(str, arguments), *where], catch_exceptions=False)

    async def verb(self, *arguments: object) -> str:
        """The same beside the event loop; what it says on stdout."""
        done = await asyncio.to_thread(self.run, *arguments)
        assert done.exit_code == 0, done.output
        return str(done.stdout)

    def file_of(self, topic: str, *replicas: Sequence[int]) -> Path:
        """A reassignment file: the replicas of partitions 0, 1, ..."""
        targets = {TopicPartition(topic, index): tuple(members) for index, members in enumerate(replicas)}
        path = self.directory / f"{topic}.json"
        path.write_text(plan.compact(plan.document_of(targets)))
        return path

    async def describe(self, topic: str) -> str:
        """Return the output of ``describe-topic``."""
        where = [topic, "--dir", str(self.cluster.directory)]
        return str((await asyncio.to_thread(CliRunner().invoke, describe_topic, where)).stdout)

    def assigned(self, topic: str, partition: int = 0) -> tuple[list[int], list[int], list[int]]:
        """RS, AR, RR in ZooKeeper."""
        node = self.view.json(f"/brokers/topics/{topic}")
        key = str(partition)
        return node["partitions"][key], node["adding_replicas"].get(key, []), node["removing_replicas"].get(key, [])

    async def until_assigned(self, topic: str, *replicas: Sequence[int]) -> None:
        """The znode holds these replicas of partitions 0, 1, ... and nothing moves any more."""

        async def so() -> bool:
            return all(self.assigned(topic, p) == (list(wanted), [], []) for p, wanted in enumerate(replicas))

        await until_async(so, limit=120, what=f"{topic} should be on {replicas}")

    @contextlib.asynccontextmanager
    async def load(self, topic: str) -> AsyncIterator[Callable[[], Awaitable[None]]]:
        """Records with acks=all while the body runs; then all were acknowledged, and the accountant finds none lost.

        The body gets what waits until records have been acknowledged again.
        """
        history = self.directory / f"{topic}.history"
        where = ["--dir", str(self.cluster.directory)]
        command = [TIDEGAUGE, "produce", topic, "--acks", "all", "--history", str(history), *where]
        process = await asyncio.create_subprocess_exec(*command, stdin=PIPE, stdout=DEVNULL, stderr=PIPE)
        feeding = asyncio.ensure_future(_feed(process))

        async def flows() -> None:
            await _acknowledged_again(history)

        try:
            await flows()
            yield flows
            await flows()
        finally:
            feeding.cancel()
            await asyncio.wait([feeding])
            assert process.stdin is not None
            process.stdin.close()
            _, talk = await process.communicate()
        assert process.returncode == 0, talk
        done = await asyncio.to_thread(
            CliRunner().invoke, verify, [topic, "--history", str(history), *where], catch_exceptions=False
        )
        assert done.exit_code == 0, done.output


async def _feed(process: asyncio.subprocess.Process) -> None:
    assert process.stdin is not None
    for number in range(1_000_000):
        process.stdin.write(f"{number:>100}\n".encode())
        await process.stdin.drain()
        await pace(0.005)


async def _acknowledged_again(history: Path) -> None:
    def count() -> int:
        return history.read_bytes().count(b'"type":"ok"') if history.exists() else 0

    before = count()

    async def more() -> bool:
        return count() > before + 20

    await until_async(more, limit=150, what="nothing is acknowledged any more")


@pytest.fixture(scope="module")
def stage(
    zookeeper: str, tmp_path_factory: pytest.TempPathFactory, next_base_port: Callable[[], int]
) -> Iterator[Movers]:
    made = Movers(tmp_path_factory.mktemp("reassignment"), f"{zookeeper}/reassignment", next_base_port())
    yield made
    made.close()


async def make_topic(stage: Movers, admin: Admin, topic: str, *replicas: Sequence[int], **configs: str) -> None:
    await admin.create_topic(topic, assignment=[list(members) for members in replicas], configs=configs)
    await admin.wait_for_topic(topic, partitions=len(replicas))


async def fill(stage: Movers, topic: str, megabytes: int = 1) -> None:
    async with Producer(stage.cluster.bootstrap_servers) as producer:
        for _ in range(megabytes * 1000):
            await producer.send(topic, b"x" * 1000, None)
        await producer.flush()


async def test_all_replicas_are_replaced_under_load(stage: Movers):
    """Two partitions move to two other brokers; the verb says what Kafka's says."""
    _, topic, admin = await stage.begin()
    async with admin:
        await make_topic(stage, admin, topic, (0, 1), (1, 0))
        file = stage.file_of(topic, (2, 3), (3, 2))
        async with stage.load(topic):
            said = await stage.verb("--execute", "--reassignment-json-file", file)
            assert said == (
                f"Current partition replica assignment\n\n"
                f'{{"version":1,"partitions":[{{"topic":"{topic}","partition":0,"replicas":[0,1],"log_dirs":["any","any"]'
                f'}},{{"topic":"{topic}","partition":1,"replicas":[1,0],"log_dirs":["any","any"]}}]}}\n\n'
                f"Save this to use as the --reassignment-json-file option during rollback\n"
                f"Successfully started partition reassignments for {topic}-0,{topic}-1\n"
            )
            await stage.until_assigned(topic, (2, 3), (3, 2))
        said = await stage.verb("--verify", "--reassignment-json-file", file)
        assert said == (
            f"Status of partition reassignment:\nReassignment of partition {topic}-0 is completed.\n"
            f"Reassignment of partition {topic}-1 is completed.\n\n"
            f"Clearing broker-level throttles on brokers 0,1,2,3\nClearing topic-level throttles on topic {topic}\n"
        )
        assert await stage.verb("--list") == "No partition reassignments found.\n"
        await stage.all_back()
        assert stage.view.state(topic)["leader"] == 2
        assert stage.view.state(topic, 1)["leader"] == 3


async def test_the_replication_factor_grows_and_shrinks_under_load(stage: Movers):
    _, topic, admin = await stage.begin()
    at = TopicPartition(topic, 0)
    async with admin:
        await make_topic(stage, admin, topic, (3,))
        async with stage.load(topic) as flows:
            for target in ((3, 1, 2), (1, 2), (2,)):
                assert await admin.alter_partition_reassignments({at: target}) == {at: None}
                await stage.until_assigned(topic, target)
                await flows()
        await stage.all_back()
        state = stage.view.state(topic)
        assert (state["leader"], state["isr"]) == (2, [2])


async def test_a_throttled_reassignment_is_listed_described_and_cancelled(stage: Movers):
    """The throttle holds it back: 3 MB at 20 kB/s. The topic's settings name who is slowed, until all is cleared."""
    _, topic, admin = await stage.begin()
    async with admin:
        await make_topic(stage, admin, topic, (0, 1))
        await fill(stage, topic, 3)
        file = stage.file_of(topic, (2, 1))
        said = await stage.verb("--execute", "--reassignment-json-file", file, "--throttle", 20_000)
        assert f"{plan.RUN_VERIFY}\nThe inter-broker throttle limit was set to 20000 B/s\n" in said
        assert await stage.verb("--list") == (
            f"Current partition reassignments:\n{topic}-0: replicas: 2,1,0. adding: 2. removing: 0.\n"
        )
        described = await stage.describe(topic)
        assert "\tReplicas: 2,1,0\t" in described
        assert "\tAdding Replicas: 2\tRemoving Replicas: 0\t" in described
        assert "follower.replication.throttled.replicas=0:2,leader.replication.throttled.replicas=0:0,0:1" in described
        again = await asyncio.to_thread(stage.run, "--execute", "--reassignment-json-file", file)
        assert again.exit_code == 1
        assert "Cannot execute because there is an existing partition assignment." in again.stderr
        said = await stage.verb("--verify", "--reassignment-json-file", file)
        assert (
            said == f"Status of partition reassignment:\nReassignment of partition {topic}-0 is still in progress.\n\n"
        )
        with pytest.raises(TidegaugeError) as refused:
            await admin.create_partitions(topic, 2)
        assert refused.value.code is ErrorCode.REASSIGNMENT_IN_PROGRESS
        said = await stage.verb("--cancel", "--reassignment-json-file", file)
        assert said.startswith(f"Successfully cancelled partition reassignment for: {topic}-0\nClearing broker-level")
        await stage.until_assigned(topic, (1, 0))  # a replica only in ORS comes behind one in both, as in Kafka
        assert "throttled" not in await stage.describe(topic)
        said = await stage.verb("--cancel", "--reassignment-json-file", file)
        assert said.startswith("None of the specified partition reassignments are active.\n")
        await stage.all_back()


async def test_a_throttle_is_raised_while_it_runs(stage: Movers):
    """--additional changes it; who is in the ISR already is never slowed, so acks=all goes on."""
    _, topic, admin = await stage.begin()
    async with admin:
        await make_topic(stage, admin, topic, (0, 1))
        await fill(stage, topic, 3)
        file = stage.file_of(topic, (2, 3))
        async with stage.load(topic) as flows:
            await stage.verb("--execute", "--reassignment-json-file", file, "--throttle", 10_000)
            await flows()
            assert "adding: 2,3" in await stage.verb("--list")
            await stage.verb("--execute", "--reassignment-json-file", file, "--throttle", 100_000_000, "--additional")
            await stage.until_assigned(topic, (2, 3))
        await stage.verb("--verify", "--reassignment-json-file", file)
        assert "throttled" not in await stage.describe(topic)
        await stage.all_back()


@pytest.mark.long
async def test_the_znode_of_older_tools(stage: Movers):
    """``/admin/reassign_partitions`` is obeyed, and goes with its last partition."""
    _, topic, admin = await stage.begin()
    async with admin:
        await make_topic(stage, admin, topic, (0, 1), (1, 2))
        wanted = {TopicPartition(topic, 0): (3, 1), TopicPartition(topic, 1): (2, 1)}
        stage.view.create(REASSIGN_PARTITIONS, encode_reassignments(wanted))
        await stage.until_assigned(topic, (3, 1), (2, 1))

        async def gone() -> bool:
            return not stage.view.exists(REASSIGN_PARTITIONS)

        await until_async(gone)
        await stage.all_back()


@pytest.mark.long
async def test_a_deletion_waits_for_the_reassignment(stage: Movers):
    """TopicDeletionManager: a topic that reassigns is ineligible. One replica is added: docs/fidelity.md says why."""
    _, topic, admin = await stage.begin()
    async with admin:
        await make_topic(stage, admin, topic, (0, 1))
        await fill(stage, topic, 3)
        file = stage.file_of(topic, (2, 1))
        await stage.verb("--execute", "--reassignment-json-file", file, "--throttle", 20_000)
        with pytest.raises(TidegaugeError) as late:
            await admin.delete_topic(topic, timeout_ms=1000)
        assert late.value.code is ErrorCode.REQUEST_TIMED_OUT
        assert stage.view.exists(f"/admin/delete_topics/{topic}")
        for broker_id in BROKERS:
            await admin.alter_broker_settings(broker_id, {}, (plan.LEADER_RATE, plan.FOLLOWER_RATE))
        await admin.wait_for_topic_gone(topic, timeout_ms=90_000)
        await stage.all_back()


# Deaths

ROLES = ("bystander", "source", "target")
"""Roles of the controller's broker for the partition."""


async def controller_dies(stage: Movers, step: str, role: str) -> None:
    """The leader's replica moves to another broker under load, and the controller dies at the step."""
    controller, topic, admin = await stage.begin()
    one, two, three = (broker for broker in BROKERS if broker != controller)
    source, follower, target = {
        "bystander": (one, two, three),
        "source": (controller, one, two),
        "target": (one, two, controller),
    }[role]
    at = TopicPartition(topic, 0)
    async with admin:
        await make_topic(stage, admin, topic, (source, follower))
        async with stage.load(topic):
            stage.arm(step)
            with contextlib.suppress(TidegaugeError):
                await admin.alter_partition_reassignments({at: (target, follower)}, timeout_ms=1000)
            await stage.until_dead(controller)
            if role == "source":
                stage.strays.add((controller, str(at)))  # it was dead when it lost its replica: as in Kafka
            await asyncio.to_thread(stage.cluster.up)
            if not stage.assigned(topic)[1]:
                await admin.alter_partition_reassignments({at: (target, follower)})
            await stage.until_assigned(topic, (target, follower))
        await stage.all_back()
        await admin.delete_topic(topic)


async def test_the_controller_dies_while_the_leader_moves(stage: Movers):
    await controller_dies(stage, "PartitionReassignmentIsrChange/set state", "bystander")


async def unthrottled(admin: Admin, broker_id: int) -> bool:
    """Whether a broker's throttle could be taken away; the broker that is asked may not know yet that it is back."""
    try:
        await admin.alter_broker_settings(broker_id, {}, (plan.LEADER_RATE, plan.FOLLOWER_RATE))
    except TidegaugeError as problem:
        if problem.code is not ErrorCode.BROKER_NOT_AVAILABLE:
            raise
        return False
    return True


@pytest.mark.parametrize("victim", ["source", "target"])
async def test_a_source_or_target_dies_on_the_way(stage: Movers, victim: str):
    """Held back by a throttle, so that it dies in the middle; the other source leads on, the target goes on later."""
    controller, topic, admin = await stage.begin()
    one, two, three = (broker for broker in BROKERS if broker != controller)
    async with admin:
        await make_topic(stage, admin, topic, (one, two))
        await fill(stage, topic, 3)
        file = stage.file_of(topic, (three, two))
        async with stage.load(topic):
            await stage.verb("--execute", "--reassignment-json-file", file, "--throttle", 50_000)
            dead = one if victim == "source" else three
            await asyncio.to_thread(stage.cluster.kill, dead, expire=True)
            for broker_id in BROKERS:
                if broker_id != dead:
                    await admin.alter_broker_settings(broker_id, {}, (plan.LEADER_RATE, plan.FOLLOWER_RATE))
            if victim == "source":
                await stage.until_assigned(topic, (three, two))
                stage.strays.add((dead, f"{topic}-0"))
            await asyncio.to_thread(stage.cluster.up)
            await until_async(partial(unthrottled, admin, dead), what=f"whoever is asked knows that {dead} is back")
            await stage.until_assigned(topic, (three, two))
        await stage.verb("--verify", "--reassignment-json-file", file)
        await stage.all_back()


@pytest.mark.long
@pytest.mark.parametrize("role", ROLES)
@pytest.mark.parametrize("step", STEPS["reassignment"])
async def test_the_controller_dies_at_every_step(stage: Movers, step: str, role: str):
    await controller_dies(stage, step, role)


@pytest.mark.long
@pytest.mark.parametrize("victim", ["source", "target"])
@pytest.mark.parametrize("step", STEPS["reassignment"])
async def test_a_source_or_target_dies_at_every_step(stage: Movers, step: str, victim: str):
    """The controller lives: it takes the death in, and goes on with who is left or comes back."""
    controller, topic, admin = await stage.begin()
    source, follower, target = (broker for broker in BROKERS if broker != controller)
    dead = source if victim == "source" else target
    at = TopicPartition(topic, 0)
    async with admin:
        await make_topic(stage, admin, topic, (source, follower))
        async with stage.load(topic):
            stage.arm(step, dead)
            with contextlib.suppress(TidegaugeError):
                await admin.alter_partition_reassignments({at: (target, follower)}, timeout_ms=1000)
            await stage.until_down(dead)
            if victim == "source":
                stage.strays.add((dead, str(at)))
            await asyncio.to_thread(stage.cluster.up)
            await stage.until_assigned(topic, (target, follower))
        await stage.all_back()
        await admin.delete_topic(topic)


def test_what_is_wrong_is_reported_in_kafkas_words(stage: Movers):
    """Unknown brokers and topics; Kafka's codes."""

    def refusal(*replicas: int, topic: str) -> dict[str, Any]:
        file = stage.file_of(topic, replicas)
        done = stage.run("--execute", "--reassignment-json-file", file, "-o", "json")
        assert done.exit_code == 1
        error: dict[str, Any] = json.loads(done.stderr)["error"]
        return error

    stage.cluster.up()
    assert refusal(7, topic="nothing")["message"] == "Unknown broker id 7"
    assert refusal(1, topic="nothing")["name"] == "UNKNOWN_TOPIC_OR_PARTITION"
