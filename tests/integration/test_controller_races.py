"""The controller dies at a named step of topic creation, deletion and election, on real processes.

Afterwards the next controller finishes or undoes, the dead broker comes back, and ZooKeeper, every broker and every
disk say the same. ``tests/unit/controller/test_controller_dies.py`` goes through all steps in a model; here a few of
each kind run with every ``make test``, and all of them, ten times, with ``make test-long``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator

import pytest
from tests.stage import Stage
from tests.waiting import until_async

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.partition import TopicPartition
from tidegauge_controller.zookeeper.stop_at import STEPS

pytestmark = [pytest.mark.integration, pytest.mark.timeout(1200)]

QUICK = {
    "creation": ("TopicChange/create state",),
    "deletion": ("Response/StopReplica delete",),
    "election": ("BrokerChange/set state",),
}
"""The races of ``make test``."""


@pytest.fixture(scope="module")
def stage(
    zookeeper: str, tmp_path_factory: pytest.TempPathFactory, next_base_port: Callable[[], int]
) -> Iterator[Stage]:
    made = Stage(tmp_path_factory.mktemp("races"), f"{zookeeper}/races", next_base_port())
    yield made
    made.close()


EXPECTED = {
    ErrorCode.TOPIC_ALREADY_EXISTS,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.NETWORK_EXCEPTION,
    ErrorCode.NOT_CONTROLLER,
}
"""Errors that an admin may get when the controller dies over a request, or after the success of an earlier attempt."""


async def try_it(work: Awaitable[object]) -> None:
    """Send a request; the response may be lost."""
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

            await until_async(in_sync, limit=150)
            stage.arm(step)
            election = asyncio.ensure_future(try_it(admin.elect_leaders([TopicPartition(topic, 0)])))
            await stage.until_dead(controller)
            await election
        else:
            stage.arm(step)
            await asyncio.to_thread(stage.cluster.kill, victim, expire=True)
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
@pytest.mark.parametrize(("what", "step"), cases({what: STEPS[what] for what in COURSES}))
async def test_at_every_step_ten_times(stage: Stage, what: str, step: str, turn: int):
    assert turn < 10
    await COURSES[what](stage, step)
