"""Faults on requests are noted in the cluster's directory, and the brokers say which of them are in force.

Brokers are fakes; a control server that dies is a ``Faults`` that is dropped.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Self

import pytest

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.v1 import lab_pb2
from tidegauge_client.cluster_file import BrokerEntry, ClusterFile
from tidegauge_lab.control import rules, steering
from tidegauge_lab.control.problems import RefusedError
from tidegauge_lab.control.rules import Faults
from tidegauge_lab.local import layout, noted_faults
from tidegauge_lab.local.processes import ProcessState
from tidegauge_lab.switches import RuleInForce

RULE = {"keys": ["Fetch"], "error": "NOT_LEADER_OR_FOLLOWER", "count": -1}
STICKY = {"keys": ["Produce"], "disconnect": True, "sticky": True}


class Brokers:
    """Two brokers: what state they are in, and which rules each has."""

    def __init__(self) -> None:
        self.states = {0: ProcessState.UP, 1: ProcessState.UP}
        self.pids: dict[int, int | None] = {0: 100, 1: 101}
        self.rules: dict[int, list[lab_pb2.RequestRule]] = {0: [], 1: []}

    def of_cluster(self, _: ClusterFile) -> Self:
        return self

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None: ...

    def process(self, _: Path, broker_id: int) -> Any:
        return SimpleNamespace(state=self.states[broker_id], pid=self.pids[broker_id])

    async def set_rules(self, broker_id: int, wanted: Sequence[lab_pb2.RequestRule]) -> None:
        await asyncio.sleep(0)
        if self.states[broker_id] is not ProcessState.UP:
            raise TidegaugeError(ErrorCode.BROKER_NOT_AVAILABLE, f"broker {broker_id} does not respond")
        self.rules[broker_id] = list(wanted)

    async def list_rules(self, broker_id: int) -> list[RuleInForce]:
        return [RuleInForce(one.rule_id, one.rule_json, 1, 0) for one in self.rules[broker_id]]

    def ids(self) -> dict[int, list[str]]:
        return {broker_id: [one.rule_id for one in found] for broker_id, found in self.rules.items()}

    def restart(self, broker_id: int, pid: int, directory: Path) -> None:
        """Another incarnation begins with the sticky rules alone."""
        self.pids[broker_id] = pid
        text = (layout.control_process(directory).directory / layout.RULES_FILE).read_text()
        self.rules[broker_id] = [
            lab_pb2.RequestRule(rule_id=one["id"]) for one in rules.json.loads(text) if one["rule"]["sticky"]
        ]


@pytest.fixture
def brokers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Brokers:
    entries = [BrokerEntry(number, "127.0.0.1", 20_000 + number, f"broker-{number}") for number in (0, 1)]
    ClusterFile("127.0.0.1:1", zookeeper_managed=True, profile="fast", brokers=entries).save(tmp_path)
    made = Brokers()
    monkeypatch.setattr(rules, "Switches", made)
    monkeypatch.setattr(layout, "broker_process", made.process)
    return made


def in_force(fault: dict[str, Any]) -> list[list[int]]:
    return [one["in_force"] for one in fault["rules"]]


async def test_a_fault_is_in_force_where_brokers_say_so(brokers: Brokers, tmp_path: Path):
    faults = Faults(tmp_path)
    assert await faults.add([RULE, STICKY]) == 1
    assert brokers.ids() == {0: ["1.0", "1.1"], 1: ["1.0", "1.1"]}
    [fault] = await faults.all()
    assert (fault["id"], fault["held"], in_force(fault)) == (1, 4, [[0, 1], [0, 1]])
    brokers.restart(1, 201, tmp_path)
    assert in_force(await faults.one(1)) == [[0], [0, 1]]
    await faults.add([RULE])
    assert brokers.ids() == {0: ["1.0", "1.1", "2.0"], 1: ["1.1", "2.0"]}, "a change brings back no rule that has ended"
    brokers.states[0], brokers.pids[0] = ProcessState.DOWN, None
    assert in_force(await faults.one(1)) == [[], [1]]


async def test_a_control_server_that_was_killed_leaves_its_faults_to_the_next(brokers: Brokers, tmp_path: Path):
    await Faults(tmp_path).add([RULE])
    brokers.rules[0] = []  # it died in the middle of a change
    after = Faults(tmp_path)
    await after.begin()
    assert brokers.ids() == {0: ["1.0"], 1: ["1.0"]}
    assert [one["id"] for one in await after.all()] == [1]
    assert await after.add([RULE]) == 2, "an id is given once"
    assert await after.delete() == [1, 2]
    assert brokers.ids() == {0: [], 1: []}
    assert await after.add([RULE]) == 3


async def test_two_control_servers_have_the_same_faults(brokers: Brokers, tmp_path: Path):
    one, other = Faults(tmp_path), Faults(tmp_path)
    ids = await asyncio.gather(*(faults.add([RULE]) for faults in (one, other) * 3))
    assert sorted(ids) == [1, 2, 3, 4, 5, 6]
    assert await other.delete(ids[0]) == [ids[0]]
    with pytest.raises(RefusedError) as refused:
        await one.one(ids[0])
    assert refused.value.status == 404
    assert len(await one.all()) == 5


async def test_a_broker_that_does_not_respond_leaves_everything_as_it_was(brokers: Brokers, tmp_path: Path):
    faults = Faults(tmp_path)
    await faults.add([RULE])
    brokers.states[1] = ProcessState.PAUSED
    for change in (faults.add([RULE]), faults.delete(1)):
        with pytest.raises(RefusedError) as refused:
            await change
        assert refused.value.status == 409
    assert brokers.ids() == {0: ["1.0"], 1: ["1.0"]}
    assert [in_force(one) for one in await faults.all()] == [[[0, 1]]], "a paused broker keeps what it had"


async def test_a_rule_for_a_broker_that_does_not_exist_is_404(brokers: Brokers, tmp_path: Path):
    with pytest.raises(RefusedError) as refused:
        await Faults(tmp_path).add([RULE | {"nodes": [1, 9]}])
    assert (refused.value.status, refused.value.message) == (404, "rules[0]: there is no broker 9")


async def test_when_the_cluster_goes_down_its_faults_end(brokers: Brokers, tmp_path: Path):
    faults = Faults(tmp_path)
    await faults.add([STICKY])
    noted_faults.forget(tmp_path)
    assert await faults.all() == []
    brokers.restart(0, 300, tmp_path)
    assert brokers.ids()[0] == []


async def test_thousands_of_rules_are_read_noted_and_counted_beside_the_event_loop(
    brokers: Brokers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """3,000 rules take a tenth of a second; other requests of the interface are served meanwhile."""
    beside = ((noted_faults, "load"), (noted_faults, "save"), (rules, "_view"), (rules.tally, "create"))
    threads: dict[str, set[threading.Thread]] = {name: set() for _, name in beside}
    for module, name in beside:
        real = getattr(module, name)

        def called(*given: Any, real: Any = real, name: str = name) -> Any:
            threads[name].add(threading.current_thread())
            return real(*given)

        monkeypatch.setattr(module, name, called)
    faults = Faults(tmp_path)
    fault_id = await faults.add([RULE, STICKY])
    assert (await faults.one(fault_id))["hits"] == 0
    assert [one["id"] for one in await faults.all()] == [fault_id]
    assert await faults.delete(fault_id) == [fault_id]
    assert all(found and threading.current_thread() not in found for found in threads.values()), threads


async def test_the_topics_of_many_rules_are_asked_for_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Each rule that named a topic by its id opened a connection, and had all metadata sent."""
    asked: list[tuple[str, ...]] = []

    class Admin:
        def __init__(self, servers: tuple[str, ...]) -> None:
            asked.append(servers)

        async def __aenter__(self) -> Self:
            return self

        async def __aexit__(self, *_: object) -> None: ...

        async def metadata(self) -> Any:
            topics = {name: SimpleNamespace(name=name, topic_id=f"id-{name}") for name in ("a", "b")}
            return SimpleNamespace(topics=topics)

    ClusterFile("127.0.0.1:1", zookeeper_managed=True, profile="fast", brokers=[]).save(tmp_path)
    monkeypatch.setattr(steering, "Admin", Admin)
    steered: Any = SimpleNamespace(directory=tmp_path, _file=SimpleNamespace(bootstrap_servers=()))
    with_topics = steering.Control._with_topics
    assert await with_topics(steered, [RULE, STICKY]) == [RULE, STICKY]
    assert asked == []
    found = await with_topics(steered, [{"topic_id": "id-a"}, {"topic": "c"}, {"topic_id": "id-b", "observe": True}])
    assert found == [{"topic": "a"}, {"topic": "c"}, {"topic": "b", "observe": True}]
    assert len(asked) == 1
    for wrong in ({"topic_id": "id-c"}, {"topic_id": "id-a", "topic": "a"}):
        with pytest.raises(RefusedError):
            await with_topics(steered, [RULE, wrong])


async def test_the_processes_are_looked_at_as_often_for_many_rules_as_for_one(
    brokers: Brokers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """They were looked at for each rule: 3,000 rules took 24 s, and held other requests for 3.5 s."""
    looks: list[int] = []

    def process(directory: Path, broker_id: int) -> Any:
        looks.append(broker_id)
        return brokers.process(directory, broker_id)

    monkeypatch.setattr(rules.layout, "broker_process", process)
    faults = Faults(tmp_path)
    await faults.add([RULE])
    for_one = len(looks)
    await faults.add([RULE] * 20)
    assert len(looks) == 2 * for_one
