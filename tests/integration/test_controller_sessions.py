"""Sessions expire, brokers bounce, ZooKeeper is unavailable: which broker is fenced, which is elected.

A test that kills has a cluster of its own.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator

import pytest
from tests.waiting import until, until_async
from tests.zookeeper_view import Znode, ZooKeeperView

from tidegauge import event_log
from tidegauge_client.admin import Admin
from tidegauge_client.producer import Producer
from tidegauge_lab.local.cluster import LocalCluster

pytestmark = [pytest.mark.integration, pytest.mark.timeout(1200)]

Look = Callable[[LocalCluster], ZooKeeperView]


@pytest.fixture
def look() -> Iterator[Look]:
    made: list[ZooKeeperView] = []

    def open_view(cluster: LocalCluster) -> ZooKeeperView:
        made.append(ZooKeeperView(cluster.file.zookeeper_address))
        return made[-1]

    yield open_view
    for view in made:
        view.close()


def states(view: ZooKeeperView) -> dict[str, Znode]:
    """All partition states."""
    return {path: znode for path, znode in view.tree("/brokers/topics").items() if path.endswith("/state")}


def controller_events(cluster: LocalCluster, broker: int) -> list[tuple[str, int]]:
    """Return a broker's acts as a controller, oldest first; its elections as ``decided``."""
    events = event_log.read_events(cluster.logs / event_log.file_name(f"broker-{broker}"))
    return [
        (event.get("state", "decided"), event.get("controller_epoch", -1))
        for event in events
        if event["kind"] in {"controller", "election"}
    ]


async def test_a_controller_that_slept_past_its_session_changes_nothing(make_cluster, look: Look):
    """Its successor has a higher epoch; awake it resigns, registers again and gets the current state. So does a plain
    broker whose session ended; its return costs no election of a controller.
    """
    cluster: LocalCluster = make_cluster()
    view = look(cluster)
    stale, epoch = view.controller()
    assert stale is not None
    plain, successor = (broker for broker in (0, 1, 2) if broker != stale)
    broker_epochs = {broker: view.broker_epoch(broker) for broker in (stale, plain)}
    async with Admin(cluster.bootstrap_servers) as admin:
        await admin.create_topic("orders", assignment=[[stale, plain, successor], [plain, successor, stale]])
        await asyncio.to_thread(cluster.pause, stale, plain)
        await asyncio.to_thread(until, lambda: view.controller() == (successor, epoch + 1), 150)
        await asyncio.to_thread(
            until, lambda: [view.state("orders", p)["isr"] for p in (0, 1)] == [[successor], [successor]], 60
        )
        # Both it should have reacted to, had it been the controller still.
        await admin.create_topic("meanwhile", partitions=1, replication_factor=1)
        before = states(view)
        deeds = controller_events(cluster, stale)
        await asyncio.to_thread(cluster.resume, stale, plain)

        async def in_sync_again() -> bool:
            return all(set(view.state("orders", p)["isr"]) == {0, 1, 2} for p in (0, 1))

        await until_async(in_sync_again, limit=150)
        await admin.wait_for_topic("meanwhile")
    assert view.controller() == (successor, epoch + 1), "no election more"
    for broker, old in broker_epochs.items():
        new = view.broker_epoch(broker)
        assert new is not None
        assert old is not None
        assert new > old, "a new registration, a new broker epoch"
    await asyncio.to_thread(until, lambda: controller_events(cluster, stale) == [*deeds, ("resigned", epoch)])
    after = states(view)
    assert after.keys() == before.keys()
    for partition in (0, 1):
        state = view.state("orders", partition)
        old_state = before[f"/brokers/topics/orders/partitions/{partition}/state"]
        assert (state["leader"], state["controller_epoch"]) == (successor, epoch + 1)
        # Written twice since, by the new leader's proposals for its two returning followers, or once for both.
        assert state["partition_epoch"] - old_state.version in {1, 2}
    meanwhile = "/brokers/topics/meanwhile/partitions/0/state"
    assert after[meanwhile] == before[meanwhile]


async def test_a_controller_whose_znode_was_taken_away_is_fenced_while_its_session_lives(
    cluster: LocalCluster, look: Look
):
    """It sleeps while another is elected; awake, with all its watches, it decides nothing and resigns.

    A client that asked it to create a topic asks its successor (AdminBase, rule 3); awake, it gets that request too.
    """
    view = look(cluster)
    stale, epoch = view.controller()
    assert stale is not None
    async with Admin(cluster.bootstrap_servers) as admin:
        others = [broker for broker in (0, 1, 2) if broker != stale]
        await admin.create_topic("taken", assignment=[others])
        deeds = controller_events(cluster, stale)
        await asyncio.to_thread(cluster.pause, stale)
        creation = asyncio.ensure_future(admin.create_topic("taken-meanwhile", assignment=[others], timeout_ms=150_000))
        await admin.metadata([])  # while the creation asks for it, too, and finds the old controller
        view.delete("/controller")
        await asyncio.to_thread(until, lambda: view.controller()[0] in others, 150)
        await creation
        await asyncio.to_thread(cluster.resume, stale)
        await admin.wait_for_topic("taken-meanwhile")
        await asyncio.to_thread(until, lambda: controller_events(cluster, stale) != deeds, 150)
        assert controller_events(cluster, stale) == [*deeds, ("resigned", epoch)]
        assert view.controller()[1] == epoch + 1
        assert view.state("taken-meanwhile")["controller_epoch"] == epoch + 1
        assert view.state("taken-meanwhile")["partition_epoch"] == 0
        await admin.delete_topic("taken")
        await admin.delete_topic("taken-meanwhile")


async def test_a_controller_epoch_that_moved_on_ends_the_term_at_the_next_write(cluster: LocalCluster, look: Look):
    """Each write checks the version of /controller_epoch; the next election goes on from the value there."""
    view = look(cluster)
    _, epoch = view.controller()
    view.set("/controller_epoch", b"%d" % (epoch + 40))
    async with Admin(cluster.bootstrap_servers) as admin:
        await admin.create_topic("after-the-epoch-moved", partitions=1, replication_factor=3)
        await admin.wait_for_topic("after-the-epoch-moved")  # the next controller's broker hears of it a moment later
        assert view.controller()[1] == epoch + 41
        assert view.state("after-the-epoch-moved")["controller_epoch"] == epoch + 41
        await admin.delete_topic("after-the-epoch-moved")


async def test_a_bounce_quicker_than_the_watch_is_a_failure_and_a_start(make_cluster, look: Look):
    """The controller never sees the broker missing, only another czxid: epochs as for a death and a return."""
    # No controlled shutdown, so that a broker can go and come while the controller sleeps; and the controller's session
    # outlives its sleep also on a loaded machine.
    # Nor does a leader take a sleeping follower out of the ISR meanwhile.
    settings = {
        "controlled.shutdown.enable": "false",
        "zookeeper.session.timeout.ms": "40000",
        "replica.lag.time.max.ms": "120000",
    }
    cluster: LocalCluster = make_cluster(settings=settings)
    view = look(cluster)
    led, alone = "led", "alone"
    async with Admin(cluster.bootstrap_servers) as admin:
        controller, epoch = view.controller()
        assert controller is not None
        victim, other = (broker for broker in (0, 1, 2) if broker != controller)
        await admin.create_topic(led, assignment=[[victim, other, controller]])
        await admin.create_topic(alone, assignment=[[victim]])
        await asyncio.to_thread(bounce_behind_the_controllers_back, cluster, view, victim, controller)
        assert view.controller() == (controller, epoch)

        async def back() -> bool:
            return view.state(led)["isr"] == [other, controller, victim]

        await until_async(back, limit=150)
    state = view.state(led)
    assert (state["leader"], state["leader_epoch"]) == (other, 1), "a death, then a return that costs nothing"
    state = view.state(alone)
    assert (state["leader"], state["isr"], state["leader_epoch"]) == (victim, [victim], 2), "no leader, then again"


def bounce_behind_the_controllers_back(
    cluster: LocalCluster, view: ZooKeeperView, victim: int, controller: int
) -> None:
    """Stop and start a broker while the controller stands still; returns when it is ready."""
    before = view.broker_epoch(victim)
    cluster.pause(controller)
    try:
        cluster.stop(victim)
        assert view.broker_epoch(victim) is None
        starter = _Starter(cluster, victim)
        until(lambda: view.broker_epoch(victim) not in {None, before}, timeout=150)
    finally:
        cluster.resume(controller)
    starter.join()


class _Starter:
    """Starts a broker in a thread of its own: `start` waits for the controller, which sleeps."""

    def __init__(self, cluster: LocalCluster, broker: int) -> None:
        self._thread = threading.Thread(target=cluster.start, args=(broker,), daemon=True)
        self._thread.start()

    def join(self) -> None:
        """Until the broker is ready."""
        self._thread.join(timeout=150)
        assert not self._thread.is_alive()


@pytest.mark.long
async def test_a_minute_without_zookeeper_is_not_noticed_by_clients(make_cluster, look: Look):
    """Brokers serve on. Afterwards the same sessions, controller and leaders exist; a death is then noticed as ever."""
    cluster: LocalCluster = make_cluster(zookeeper=None)
    async with Admin(cluster.bootstrap_servers) as admin, Producer(cluster.bootstrap_servers) as producer:
        await admin.create_topic("orders", partitions=3, replication_factor=3)
        view = look(cluster)
        before, controller = states(view), view.controller()
        registrations = {broker: view.broker_epoch(broker) for broker in (0, 1, 2)}
        view.close()
        await asyncio.to_thread(cluster.kill, "zookeeper")
        end = time.monotonic() + 60
        sent = 0
        while time.monotonic() < end:
            await (await producer.send("orders", b"%d" % sent))
            sent += 1
        assert sent > 100
        await asyncio.to_thread(cluster.start, "zookeeper")
        view = look(cluster)
        await admin.create_topic("after", partitions=3, replication_factor=3)
        assert {path: znode for path, znode in states(view).items() if "/orders/" in path} == before
        assert view.controller() == controller
        assert {broker: view.broker_epoch(broker) for broker in (0, 1, 2)} == registrations
        victim = next(broker for broker in (0, 1, 2) if broker != controller[0])
        await asyncio.to_thread(cluster.kill, victim)

        async def noticed() -> bool:
            return all(victim not in view.state("orders", partition)["isr"] for partition in range(3))

        await until_async(noticed, limit=150)
        await (await producer.send("orders", b"last"))
