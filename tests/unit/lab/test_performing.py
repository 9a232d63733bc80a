"""Each declared action reaches the cluster, and its sentence says whether it changed anything (performing.py)."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from tidegauge.errors import ErrorCode
from tidegauge.faults.actions import ACTIONS
from tidegauge.faults.requests import read_request
from tidegauge.partition import TopicPartition
from tidegauge.v1 import lab_pb2
from tidegauge_lab import performing
from tidegauge_lab.ended_membership import EndedMembership
from tidegauge_lab.local.process_faults import Outcome
from tidegauge_lab.local.processes import ProcessState
from tidegauge_lab.switches import Fault, Step

AT = TopicPartition("orders", 0)
VALUES = {
    "partition": "orders-0",
    "held": ["orders-0"],
    "after_power_cut": True,
    "until": "request",
    "which": "responses",
    "holds": True,
    "expire": True,
}


class FakeCluster:
    """Records the requests to its processes."""

    file = SimpleNamespace(mode="zookeeper")
    has_sessions = True

    def __init__(self, *, changed: bool) -> None:
        self.changed = changed
        self.asked = []

    def state_of(self, target):
        return ProcessState.UP

    def __getattr__(self, name):
        def method(*targets, **values):
            self.asked.append((name, targets, values))
            ended = EndedMembership(0x1F, is_session=self.has_sessions) if values.get("expire") else None
            return [
                Outcome(
                    f"broker-{target}" if isinstance(target, int) else target,
                    target,
                    self.changed,
                    7,
                    ProcessState.UP,
                    ended=ended,
                )
                for target in targets
            ]

        return method


class FakeSwitches:
    """Records the requests to the brokers."""

    def __init__(self, cluster) -> None:
        self.cluster = cluster

    async def __aenter__(self):
        return self

    async def __aexit__(self, *_):
        pass

    def _note(self, name, *arguments):
        self.cluster.asked.append((name, *arguments))
        return [1] if self.cluster.changed else []

    async def hold_fetch(self, at, brokers):
        return self._note("hold_fetch", at, brokers)

    async def release_fetch(self, at, brokers):
        return self._note("release_fetch", at, brokers)

    async def step_fetch(self, at, broker_id, until):
        self._note("step_fetch", at, broker_id, until.value)
        return Step(at, broker_id, ErrorCode.NONE, "", 0, True, "Broker 1 asked broker 0", (), None)

    async def heal(self, broker_id):
        return self._note("heal", broker_id)

    async def release_requests(self, broker_id, which):
        self._note("release_requests", broker_id, which)
        return [Fault(broker_id, 1, "holds Fetch", 2, 2, lab_pb2.LabFault())] if self.cluster.changed else []

    async def clear(self, broker_id, *, holds):
        return [], self._note("clear", broker_id, holds)

    async def expire_session(self, broker_id):
        self._note("expire_session", broker_id)
        return EndedMembership(0x1F, is_session=True)

    async def sync_log(self, broker_id, at):
        self._note("sync_log", broker_id, at)
        return {AT: 5}

    async def set_fault(self, broker_id, wanted):
        self._note("set_fault", broker_id, wanted)
        return Fault(broker_id, 1, "disk slow", 0, 0, lab_pb2.LabFault())


@pytest.fixture
def perform(monkeypatch):
    async def perform_one(name, target=1, *, changed=True, **values):
        cluster = FakeCluster(changed=changed)
        switches = SimpleNamespace(of_cluster=lambda _: FakeSwitches(cluster))
        monkeypatch.setattr(performing, "Switches", switches)
        return await performing.perform(cluster, read_request(name, target, values)), cluster.asked

    return perform_one


@pytest.mark.parametrize("kind", ACTIONS.values(), ids=lambda kind: kind.name)
async def test_each_declared_action_is_done_with_its_values_and_says_so(kind, perform):
    values = {one.name: VALUES[one.name] for one in kind.parameters}
    done, asked = await perform(kind.name, **values)
    assert done.changed
    assert done.text[0].isupper() or done.text.startswith("orders-0")
    [(_, *arguments)] = asked
    given = str(arguments)
    assert "1" in given
    assert all(name in given or str(value) in given or "orders" in given for name, value in values.items())


async def test_a_list_of_partitions_reaches_a_start_as_partitions(perform):
    done, asked = await perform("start", 2, held=["orders-0"], after_power_cut=True)
    assert asked == [("start", (2,), {"held": [AT], "after_power_cut": True})]
    assert done == (True, "Broker 2 started")


async def test_a_session_that_was_ended_with_the_process_is_said(perform):
    done, _ = await perform("kill", changed=False, expire=True)
    assert done == (True, "Broker 1 is down already, and its ZooKeeper session 0x1f has been ended")


async def test_in_kraft_mode_no_session_is_spoken_of(perform, monkeypatch):
    monkeypatch.setattr(FakeCluster, "has_sessions", False)
    done, _ = await perform("kill", expire=True)
    assert done == (True, "Broker 1 killed, and fenced by the active controller (broker epoch 31)")


@pytest.mark.parametrize(
    ("name", "target", "values", "text"),
    [
        ("kill", "zookeeper", {}, "ZooKeeper is down already"),
        ("pause", 1, {}, "Broker 1 is paused already"),
        ("hold_fetch", 1, {"partition": "orders-0"}, "orders-0 on broker 1 is held already"),
        ("release_fetch", 1, {"partition": "orders-0"}, "orders-0 on broker 1 is free already"),
        ("heal", 1, {}, "Broker 1 is free of network faults already"),
        ("release_requests", 1, {}, "Broker 1 is free of held requests already"),
        ("clear_faults", 1, {}, "Broker 1 is free of faults already"),
    ],
)
async def test_an_action_that_finds_its_effect_true_says_that(name, target, values, text, perform):
    assert (await perform(name, target, changed=False, **values))[0] == (False, text)


async def test_a_fault_is_put_in_force_at_its_broker(perform):
    done, asked = await perform("inject_disk", 2, delay_ms=5)
    assert done == (True, "Broker 2: disk slow")
    assert asked[0][:2] == ("set_fault", 2)
