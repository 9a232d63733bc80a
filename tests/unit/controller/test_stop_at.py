"""The switch at which a controller dies: its names are names of existing steps, and it dies once."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from memory_zookeeper import MemoryZooKeeper, Term

from tidegauge.control import PartitionsResponse
from tidegauge.partition import TopicPartition
from tidegauge.settings import parse_broker_settings
from tidegauge.znodes import delete_topic_path
from tidegauge_controller.zookeeper.decisions.broker_events import process_broker_change
from tidegauge_controller.zookeeper.decisions.deletion import process_delete_markers, process_stop_replica_response
from tidegauge_controller.zookeeper.decisions.leaders import elect_leaders
from tidegauge_controller.zookeeper.decisions.reassignment import (
    alter_reassignments,
    complete_reassignments,
    process_replicas_deleted,
)
from tidegauge_controller.zookeeper.decisions.steps import Request, Steps
from tidegauge_controller.zookeeper.decisions.topic_events import process_topic_change
from tidegauge_controller.zookeeper.stop_at import (
    SETTING,
    STEPS,
    FileSwitch,
    StepNames,
    never,
    response_step,
    switch_of,
    what_was_done,
)


class NamedTerm(Term):
    """A term that writes down the names of its steps, as the driver does."""

    def __init__(self, zookeeper: MemoryZooKeeper) -> None:
        super().__init__(zookeeper)
        self.steps: list[str] = []
        self.names = StepNames("ControllerFailover")

    def respond(self, request: Request) -> Any:
        response = super().respond(request)
        self.steps += [self.names.of(what) for what in what_was_done(request)]
        return response

    def event(self, name: str, steps: Steps[Any]) -> list[str]:
        """Run a decision; the steps it took."""
        self.names = StepNames(name)
        self.steps = []
        self.run(steps)
        return list(self.steps)


@pytest.fixture
def term() -> NamedTerm:
    zookeeper = MemoryZooKeeper()
    for broker_id in (1, 2, 3):
        zookeeper.register_broker(broker_id)
    made = NamedTerm(zookeeper)
    made.start()
    zookeeper.add_topic("orders", {0: (1, 2), 1: (2, 1)})
    return made


def test_the_steps_of_creation_are_those_of_the_table(term):
    steps = term.event("TopicChange", process_topic_change(term.context))
    assert tuple(steps) == tuple(step for step in STEPS["creation"] if step.startswith("TopicChange/"))


def test_the_steps_of_deletion_are_those_of_the_table(term):
    term.event("TopicChange", process_topic_change(term.context))
    term.zookeeper.create(delete_topic_path("orders"), None)
    steps = term.event("TopicDeletion", process_delete_markers(term.context))
    assert tuple(steps) == tuple(step for step in STEPS["deletion"] if step.startswith("TopicDeletion/"))
    deleted = [TopicPartition("orders", 0), TopicPartition("orders", 1)]
    for broker_id in (1, 2):
        steps = term.event(
            "StopReplicaResponse",
            process_stop_replica_response(term.context, broker_id, deleted, PartitionsResponse()),
        )
    # Each partition's znodes go in turn: the second one's bear a #2.
    firsts = [step for step in steps if not step.endswith("#2")]
    assert sorted(firsts) == sorted(step for step in STEPS["deletion"] if step.startswith("StopReplicaResponse/"))


def test_the_steps_of_elections_are_those_of_the_table(term):
    term.event("TopicChange", process_topic_change(term.context))
    term.zookeeper.unregister_broker(1)
    steps = term.event("BrokerChange", process_broker_change(term.context))
    term.zookeeper.register_broker(1)
    term.run(process_broker_change(term.context))
    state = term.zookeeper.state(TopicPartition("orders", 0))
    term.zookeeper.write_state(TopicPartition("orders", 0), state.__class__(2, state.leader_epoch, (2, 1), 1))
    steps += term.event("ElectLeaders", elect_leaders(term.context, None, unclean=False))
    assert set(STEPS["election"]) - {step for step in STEPS["election"] if step.startswith("Response/")} == set(steps)


def test_the_steps_of_a_reassignment_are_those_of_the_table(term):
    """One of two replicas moves, the leader's; the third broker is new."""
    at = TopicPartition("orders", 0)
    term.zookeeper.register_broker(3)
    term.run(process_broker_change(term.context))
    term.event("TopicChange", process_topic_change(term.context))
    steps = term.event("ApiPartitionReassignment", alter_reassignments(term.context, {at: (2, 3)}))
    state = term.zookeeper.state(at)
    node = state.__class__(1, state.leader_epoch, (1, 2, 3), 1)
    term.context.leadership[at] = node.at_version(term.zookeeper.write_state(at, node))
    steps += term.event("PartitionReassignmentIsrChange", complete_reassignments(term.context))
    deleted = process_replicas_deleted(term.context, 1, [at], PartitionsResponse())
    steps += term.event("StopReplicaResponse", deleted)
    assert tuple(steps) == tuple(step for step in STEPS["reassignment"] if not step.startswith("Response/"))


def test_responses_are_named_by_what_was_asked(term):
    term.event("TopicChange", process_topic_change(term.context))
    term.take_sent()
    term.zookeeper.create(delete_topic_path("orders"), None)
    term.event("TopicDeletion", process_delete_markers(term.context))
    named = [response_step(request) for broker_id, request in term.sent if broker_id == 1]
    assert named == ["Response/UpdateMetadata", "Response/StopReplica", "Response/StopReplica delete"]
    assert set(named) <= set(STEPS["deletion"])


def test_it_dies_once_at_the_step_that_the_file_names(tmp_path: Path):
    deaths: list[int] = []
    file = tmp_path / "stop"
    switch = FileSwitch(file, deaths.append)
    switch("TopicChange/send")
    file.write_text("TopicChange/send\n")
    switch("TopicChange/create state")
    assert deaths == []
    switch("TopicChange/send")
    assert deaths == [os.getpid()]
    assert not file.exists()
    switch("TopicChange/send")
    assert deaths == [os.getpid()]


def test_the_file_may_name_another_process_to_die(tmp_path: Path):
    deaths: list[int] = []
    file = tmp_path / "stop"
    file.write_text("TopicChange/send\n4711\n")
    FileSwitch(file, deaths.append)("TopicChange/send")
    assert deaths == [4711]


@pytest.mark.parametrize(
    ("given", "is_switch"),
    [
        ({}, False),
        ({SETTING: "/x"}, False),
        ({"lab.enable": "true"}, False),
        ({SETTING: "/x", "lab.enable": "true"}, True),
    ],
)
def test_only_the_lab_has_the_switch(given: dict[str, str], is_switch: bool):
    settings, _ = parse_broker_settings(given)
    assert (switch_of(settings) is not never) == is_switch
