"""The core takes in the states of partitions; the control requests of ZooKeeper mode are known to an adapter alone."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tidegauge.control import ControlHeader, LeaderAndIsrPartition, LeaderAndIsrRequest, StopReplicaRequest
from tidegauge.partition import TopicPartition
from tidegauge.partition_state import PartitionState
from tidegauge_broker import replica
from tidegauge_broker.replica.control_requests import ControlRequests
from tidegauge_broker.replica.messages import CoreSettings

CORE = Path(replica.__file__).parent
ADAPTER = "control_requests.py"
AT = TopicPartition("t", 0)
STATE = PartitionState(AT, "id", 7, 1, 3, (1, 2), 4, (1, 2))


class Core:
    """Notes what it takes in."""

    def __init__(self) -> None:
        self.broker_epoch = 5
        self.settings = CoreSettings(emits_diagnostics=False)
        self.taken: list[object] = []

    def logs_needed(self, states):
        return [state.topic_partition for state in states]

    def take_over(self, states, loaded, now_ms, *, cause, may_refuse, report):
        del report
        self.taken.append((list(states), dict(loaded), now_ms, cause, may_refuse))
        return {}, []

    def stop(self, stops, *, report):
        del report
        self.taken.append(list(stops))
        return {}, []


@pytest.mark.parametrize("file", sorted(CORE.rglob("*.py")), ids=lambda file: file.name)
def test_the_core_knows_no_control_request(file: Path) -> None:
    """KRaft has none of them: a change of its metadata becomes the same states."""
    of_requests = ("LeaderAndIsr", "StopReplica", "UpdateMetadata", "ControlHeader", "PartitionsResponse")
    names = [
        alias.name
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
        if alias.name.startswith(of_requests)
    ]
    assert bool(names) is (file.name == ADAPTER), names


def test_a_request_becomes_the_states_of_its_partitions() -> None:
    core = Core()
    request = LeaderAndIsrRequest(ControlHeader(1, 7, 5), [LeaderAndIsrPartition(STATE, is_new=True)], (), False)
    control = ControlRequests(core)  # type: ignore[arg-type] # as far as requests need it
    assert control.logs_needed(request) == [AT]
    control.leader_and_isr(request, {}, 9)
    assert core.taken == [([STATE], {}, 9, "LeaderAndIsr", False)]


@pytest.mark.parametrize(("controller_epoch", "broker_epoch"), [(6, 5), (7, 4)])
def test_a_request_of_an_old_controller_or_for_an_old_registration_is_no_event(
    controller_epoch: int, broker_epoch: int
) -> None:
    """KafkaApis.isBrokerEpochStale, ReplicaManager.becomeLeaderOrFollower."""
    core = Core()
    control = ControlRequests(core)  # type: ignore[arg-type] # as far as requests need it
    control.controller_epoch = 7
    header = ControlHeader(1, controller_epoch, broker_epoch)
    request = LeaderAndIsrRequest(header, [LeaderAndIsrPartition(STATE, is_new=True)], ())
    assert control.logs_needed(request) == []
    control.leader_and_isr(request, {}, 9)
    control.stop_replica(StopReplicaRequest(header, []))
    assert core.taken == []
