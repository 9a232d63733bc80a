"""The controller dies after each single thing it does; the next one finishes or undoes it (issue 4, races).

A model of the whole: ZooKeeper as a dictionary, brokers that do what control requests say with Kafka's fencing, queues
between. Every operation in ZooKeeper, every request put into a queue and every delivery is a step; for each scenario
the run is repeated with a death after step 1, 2, 3, ... until one gets through. Then another broker takes over, the
dead one comes back, and ZooKeeper, the brokers' memories and their disks must say the same.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
from memory_zookeeper import MemoryZooKeeper, Term

from tidegauge.control import LeaderAndIsrRequest, PartitionsResponse, StopReplicaRequest, UpdateMetadataRequest
from tidegauge.errors import ErrorCode
from tidegauge.partition import TopicPartition
from tidegauge.znodes import (
    BROKER_TOPICS,
    DELETE_TOPICS,
    TopicNode,
    broker_path,
    delete_topic_path,
    encode_config,
    state_path,
    topic_config_path,
    topic_path,
)
from tidegauge_controller.decisions.broker_events import process_broker_change, process_leader_and_isr_response
from tidegauge_controller.decisions.deletion import process_delete_markers, process_stop_replica_response
from tidegauge_controller.decisions.leaders import elect_leaders, process_controlled_shutdown
from tidegauge_controller.decisions.steps import ControlRequest, Request, Send, Write
from tidegauge_controller.decisions.topic_events import process_topic_change, process_topic_data

CONTROLLER, SUCCESSOR, OTHER = 1, 2, 3
OLD, NEW = "old", "new"
ASSIGNMENT = {0: (1, 2, 3), 1: (3, 2, 1), 2: (2, 3, 1)}
BROKERS = (CONTROLLER, SUCCESSOR, OTHER)


class Died(Exception):
    """The controller's process was killed."""


@dataclass
class Broker:
    """One broker: disk survives a death, memory does not."""

    broker_id: int
    disk: set[TopicPartition] = field(default_factory=set)
    roles: dict[TopicPartition, tuple[int, int]] = field(default_factory=dict)
    metadata: dict[TopicPartition, tuple[int, int]] = field(default_factory=dict)
    controller_epoch: int = 0
    broker_epoch: int = 0

    def restart(self, broker_epoch: int) -> None:
        self.roles, self.metadata = {}, {}
        self.controller_epoch, self.broker_epoch = 0, broker_epoch

    def take(self, request: ControlRequest) -> PartitionsResponse:
        """Do what is asked, by the receivers' checks of kafka-behaviour 8.8."""
        if request.header.broker_epoch < self.broker_epoch:
            return PartitionsResponse(ErrorCode.STALE_BROKER_EPOCH)
        if request.header.controller_epoch < self.controller_epoch:
            return PartitionsResponse(ErrorCode.STALE_CONTROLLER_EPOCH)
        self.controller_epoch = request.header.controller_epoch
        match request:
            case LeaderAndIsrRequest():
                return PartitionsResponse(
                    partitions={e.state.topic_partition: self._lead(e) for e in request.partitions}
                )
            case StopReplicaRequest():
                return PartitionsResponse(partitions={e.topic_partition: self._stop(e) for e in request.partitions})
            case UpdateMetadataRequest():
                for entry in request.partitions:
                    state = entry.state
                    self.metadata[state.topic_partition] = (state.leader, state.leader_epoch)
                    if entry.deleted:
                        del self.metadata[state.topic_partition]
                return PartitionsResponse()

    def _lead(self, entry: Any) -> ErrorCode:
        state = entry.state
        at = state.topic_partition
        if state.leader_epoch <= self.roles.get(at, (-1, -1))[1]:
            return ErrorCode.STALE_CONTROLLER_EPOCH
        if state.leader != -1:
            self.disk.add(at)
        self.roles[at] = (state.leader, state.leader_epoch)
        return ErrorCode.NONE

    def _stop(self, entry: Any) -> ErrorCode:
        at = entry.topic_partition
        known = self.roles.get(at, (-1, -1))[1]
        if entry.leader_epoch is not None and entry.leader_epoch < known:
            return ErrorCode.FENCED_LEADER_EPOCH
        if entry.delete:
            self.roles.pop(at, None)
            self.disk.discard(at)
        return ErrorCode.NONE


class World:
    """ZooKeeper, brokers, queues, and one controller's term at a time.

    Args:
        lives: how many steps the first controller lives; None: it does not die.
        prompt: the brokers that get each request at once, while the decision still runs; the others when it is over.
    """

    def __init__(self, lives: int | None, prompt: frozenset[int]) -> None:
        self.lives = lives
        self.steps = 0
        self.prompt = prompt
        self.zookeeper = MemoryZooKeeper()
        self.brokers = {broker_id: Broker(broker_id) for broker_id in BROKERS}
        for broker_id in BROKERS:
            self.register(broker_id)
        self.queues: dict[int, deque[ControlRequest]] = {}
        self.answers: deque[tuple[int, ControlRequest, PartitionsResponse]] = deque()
        self.mortal = False
        self.elect(CONTROLLER)
        self.make_topic(OLD)
        self.settle()
        self.mortal = True

    def register(self, broker_id: int) -> None:
        self.brokers[broker_id].restart(self.zookeeper.register_broker(broker_id))

    def make_topic(self, topic: str) -> None:
        """What the admin handler does, on the controller's broker."""
        self.zookeeper.create(topic_config_path(topic), encode_config({}))
        self.step()
        self.zookeeper.create(topic_path(topic), TopicNode(ASSIGNMENT, f"{topic:A<22}"[:22]).encode())
        self.step()

    def step(self) -> None:
        if self.mortal:
            self.steps += 1
            if self.steps == self.lives:
                raise Died

    # The controller

    def elect(self, broker_id: int) -> None:
        self.term = MortalTerm(self, broker_id)
        self.queues = {broker_id: deque() for broker_id in BROKERS}
        self.answers.clear()
        self.term.start()

    def send(self, broker_id: int, request: ControlRequest) -> None:
        self.queues[broker_id].append(request)
        self.step()
        if broker_id in self.prompt:
            self.deliver(broker_id)

    def deliver(self, broker_id: int) -> None:
        request = self.queues[broker_id].popleft()
        if broker_path(broker_id) in self.zookeeper.nodes:
            self.answers.append((broker_id, request, self.brokers[broker_id].take(request)))
            self.step()

    def settle(self) -> None:
        """Deliver, answer and look until nothing moves any more."""
        quiet = False
        while not quiet:
            quiet = True
            self.look()
            for broker_id, queue in self.queues.items():
                while queue:
                    self.deliver(broker_id)
            while self.answers:
                quiet = False
                self.answered(*self.answers.popleft())

    def look(self) -> None:
        """What watches would make the controller look at."""
        context = self.term.context
        self.term.run(process_broker_change(context))
        self.term.run(process_topic_change(context))
        for topic in sorted(context.topics):
            self.term.run(process_topic_data(context, topic))
        self.term.run(process_delete_markers(context))

    def answered(self, broker_id: int, request: ControlRequest, response: PartitionsResponse) -> None:
        context = self.term.context
        if isinstance(request, LeaderAndIsrRequest):
            self.term.run(process_leader_and_isr_response(context, broker_id, response))
        elif isinstance(request, StopReplicaRequest):
            deleted = [entry.topic_partition for entry in request.partitions if entry.delete]
            if deleted:
                self.term.run(process_stop_replica_response(context, broker_id, deleted, response))

    # What must hold

    def leader_epochs(self) -> dict[TopicPartition, int]:
        """Of the partitions that have a state znode."""
        known = [at for at in self.term.context.leadership if state_path(*at) in self.zookeeper.nodes]
        return {at: self.zookeeper.state(at).leader_epoch for at in known}

    def disagreements(self) -> list[str]:
        """Where ZooKeeper, memories and disks differ; a leader must live and be in the ISR."""
        found: list[str] = []
        paths = self.zookeeper.nodes
        found += [f"marker of {topic} left" for topic in self.zookeeper.children(DELETE_TOPICS) or ()]
        assigned: dict[TopicPartition, tuple[int, ...]] = {}
        for topic in self.zookeeper.children(BROKER_TOPICS) or ():
            node = TopicNode.decode(topic, paths[topic_path(topic)].data)
            assigned |= {TopicPartition(topic, p): tuple(r) for p, r in node.assignment.items()}
            if topic_config_path(topic) not in paths:
                found.append(f"{topic} has no config znode")
        known = {}
        for at in assigned:
            state = self.zookeeper.state(at)
            known[at] = (state.leader, state.leader_epoch)
            if state.leader not in state.isr or broker_path(state.leader) not in paths:
                found.append(f"{at}: leader {state.leader}, ISR {state.isr}")
        for broker in self.brokers.values():
            own = {at for at, replicas in assigned.items() if broker.broker_id in replicas}
            if broker.disk != own:
                found.append(f"broker {broker.broker_id} has on disk {sorted(broker.disk)}, not {sorted(own)}")
            if broker.roles != {at: known[at] for at in own}:
                found.append(f"broker {broker.broker_id} follows {broker.roles}, not {known}")
            if broker.metadata != known:
                found.append(f"broker {broker.broker_id} tells clients {broker.metadata}, not {known}")
        return found


class MortalTerm(Term):
    """A term whose every operation is a step of the world; requests go into its queues."""

    def __init__(self, world: World, controller_id: int) -> None:
        super().__init__(world.zookeeper, controller_id)
        self.world = world

    def answer(self, request: Request) -> Any:
        match request:
            case Send():
                for broker_id, message in request.messages:
                    self.world.send(broker_id, message)
                return None
            case Write():
                answers = []
                for operation in request.operations:
                    answers += super().answer(Write((operation,)))
                    self.world.step()
                return answers
        return super().answer(request)


# What the controller is doing when it dies


def create(world: World) -> None:
    world.make_topic(NEW)
    world.settle()


def delete(world: World) -> None:
    world.zookeeper.create(delete_topic_path(OLD), None)
    world.step()
    world.settle()


def add_partitions(world: World) -> None:
    path = topic_path(OLD)
    node = TopicNode.decode(OLD, world.zookeeper.nodes[path].data)
    world.zookeeper.set(path, TopicNode({**node.assignment, 3: (3, 1, 2)}, node.topic_id).encode())
    world.step()
    world.settle()


def lose_a_broker(world: World) -> None:
    world.zookeeper.unregister_broker(OTHER)
    world.settle()


def shut_a_broker_down(world: World) -> None:
    term = world.term
    term.run(process_controlled_shutdown(term.context, OTHER, term.context.live[OTHER].epoch))
    world.zookeeper.unregister_broker(OTHER)
    world.settle()


def elect_the_preferred(world: World) -> None:
    world.mortal = False
    lose_a_broker(world)
    world.register(OTHER)
    world.settle()
    for at in sorted(world.term.context.leadership):  # its leaders take it back into the ISR
        state = world.zookeeper.state(at)
        world.zookeeper.write_state(at, state.__class__(state.leader, state.leader_epoch, (1, 2, 3), 1))
    world.mortal = True
    world.term.run(elect_leaders(world.term.context, None, unclean=False))
    world.settle()


SCENARIOS = [create, delete, add_partitions, lose_a_broker, shut_a_broker_down, elect_the_preferred]
PROMPT = [frozenset[int](), frozenset({OTHER}), frozenset({SUCCESSOR}), frozenset(BROKERS)]


@pytest.mark.parametrize("prompt", PROMPT, ids=lambda prompt: f"prompt-{sorted(prompt)}")
@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.__name__)
def test_the_next_controller_finishes_or_undoes_what_the_last_one_began(
    scenario: Callable[[World], None], prompt: frozenset[int]
) -> None:
    lives, died = 0, True
    while died:
        lives += 1
        world = World(lives, prompt)
        died = False
        try:
            scenario(world)
        except Died:
            died = True
        world.mortal = False
        before = world.leader_epochs()
        take_over(world)
        assert world.disagreements() == [], f"died after step {lives}"
        for at, epoch in before.items():
            assert world.leader_epochs().get(at, epoch) >= epoch
        done(scenario, world, begun=lives > 1)
    assert lives > 5


def take_over(world: World) -> None:
    """The controller's broker is dead, the successor is elected; then all come back, one after the other."""
    world.zookeeper.unregister_broker(CONTROLLER)
    world.elect(SUCCESSOR)
    world.settle()
    for broker_id in BROKERS:
        if broker_path(broker_id) not in world.zookeeper.nodes:
            world.register(broker_id)
            world.settle()


def done(scenario: Callable[[World], None], world: World, *, begun: bool) -> None:
    """Whether it was finished, once its first znode was there: a topic's, its added partition's, the marker."""
    paths = world.zookeeper.nodes
    if scenario is delete:
        assert not [path for path in paths if OLD in path]
    if scenario is create and begun:
        assert world.zookeeper.children(f"{topic_path(NEW)}/partitions") == ["0", "1", "2"]
    if scenario is add_partitions:
        assert world.zookeeper.children(f"{topic_path(OLD)}/partitions") == ["0", "1", "2", "3"]
