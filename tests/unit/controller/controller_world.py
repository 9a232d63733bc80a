"""A model of a complete cluster for tests of the controller: ZooKeeper, brokers with disks, queues, one term at a time.

Brokers do what control requests say, with ReplicaManager's checks. Every operation in ZooKeeper, every
request put into a queue and every delivery is a step, after any of which the controller can be made to die.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Any

from memory_zookeeper import MemoryZooKeeper, Term

from tidegauge.control import (
    AlterPartitionRequest,
    IsrProposal,
    IsrVerdict,
    LeaderAndIsrRequest,
    PartitionsResponse,
    StopReplicaRequest,
    UpdateMetadataRequest,
)
from tidegauge.errors import ErrorCode
from tidegauge.partition import TopicPartition
from tidegauge.znodes import (
    BROKER_TOPICS,
    DELETE_TOPICS,
    TopicNode,
    broker_path,
    encode_config,
    state_path,
    topic_config_path,
    topic_path,
)
from tidegauge_controller.zookeeper.decisions.alter_partition import process_alter_partition
from tidegauge_controller.zookeeper.decisions.broker_events import (
    process_broker_change,
)
from tidegauge_controller.zookeeper.decisions.deletion import process_delete_markers
from tidegauge_controller.zookeeper.decisions.reassignment import (
    alter_reassignments,
    complete_reassignments,
    process_legacy_reassignments,
)
from tidegauge_controller.zookeeper.decisions.responses import process_response
from tidegauge_controller.zookeeper.decisions.steps import ControlRequest, RemoveBroker, Request, Send, Write
from tidegauge_controller.zookeeper.decisions.topic_events import process_topic_change, process_topic_data

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
    partition_epochs: dict[TopicPartition, int] = field(default_factory=dict)
    metadata: dict[TopicPartition, tuple[int, int]] = field(default_factory=dict)
    controller_epoch: int = 0
    broker_epoch: int = 0

    def restart(self, broker_epoch: int) -> None:
        self.roles, self.metadata = {}, {}
        self.controller_epoch, self.broker_epoch = 0, broker_epoch

    def take(self, request: ControlRequest) -> PartitionsResponse:
        """Handle a request, with the checks of ReplicaManager.becomeLeaderOrFollower and stopReplicas."""
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
        if self.broker_id not in state.replicas:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if state.leader != -1:
            self.disk.add(at)
        self.roles[at] = (state.leader, state.leader_epoch)
        self.partition_epochs[at] = state.partition_epoch
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

    def proposal(self, at: TopicPartition, topic_id: str, isr: tuple[int, ...]) -> AlterPartitionRequest:
        """Return its request to the controller as the partition's leader."""
        epochs = self.roles[at][1], self.partition_epochs[at]
        return AlterPartitionRequest(
            self.broker_id, self.broker_epoch, [IsrProposal(at, topic_id, epochs[0], isr, epochs[1])]
        )

    def hear(self, verdict: IsrVerdict) -> None:
        """The controller's response."""
        at = verdict.topic_partition
        if verdict.error is ErrorCode.NONE and self.roles[at][1] == verdict.leader_epoch:
            self.partition_epochs[at] = verdict.partition_epoch


class World:
    """ZooKeeper, brokers, queues, and one controller's term at a time.

    Args:
        lives: how many steps the first controller lives; None: it does not die.
        prompt: the brokers that get each request at once, while the decision still runs; the others when it is over.

    Attributes:
        may_keep: replicas that may be left at a broker that lost them and was not notified.
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
        self.responses: deque[tuple[int, ControlRequest, PartitionsResponse]] = deque()
        self.may_keep: set[tuple[int, TopicPartition]] = set()
        self.mortal = False
        self.elect(CONTROLLER)
        self.make_topic(OLD)
        self.settle()
        self.mortal = True

    def register(self, broker_id: int) -> None:
        self.brokers[broker_id].restart(self.zookeeper.register_broker(broker_id))

    def make_topic(self, topic: str) -> None:
        """Make the changes of the admin handler, on the controller's broker."""
        self.zookeeper.create(topic_config_path(topic), encode_config({}))
        self.step()
        self.zookeeper.create(topic_path(topic), TopicNode(ASSIGNMENT, f"{topic:A<22}"[:22]).encode())
        self.step()

    def step(self) -> None:
        if self.mortal:
            self.steps += 1
            if self.steps == self.lives:
                raise Died

    def loses_responses(self) -> bool:
        """Whether ZooKeeper's response to a write gets lost now."""
        return False

    # The controller

    def elect(self, broker_id: int) -> None:
        self.term = MortalTerm(self, broker_id)
        self.queues = {broker_id: deque() for broker_id in BROKERS}
        self.responses.clear()
        self.term.start()

    def send(self, broker_id: int, request: ControlRequest, _sender: MortalTerm) -> None:
        self.queues[broker_id].append(request)
        self.step()
        if broker_id in self.prompt:
            self.deliver(broker_id)

    def deliver(self, broker_id: int) -> None:
        request = self.queues[broker_id].popleft()
        if broker_path(broker_id) in self.zookeeper.nodes:
            self.responses.append((broker_id, request, self.brokers[broker_id].take(request)))
            self.step()

    def settle(self) -> None:
        """Deliver, respond and look until nothing moves any more."""
        quiet = False
        while not quiet:
            quiet = True
            self.look()
            for broker_id, queue in self.queues.items():
                while queue:
                    self.deliver(broker_id)
            while self.responses:
                quiet = False
                self.responded(*self.responses.popleft())

    def look(self) -> None:
        """Look at all that watches would make the controller look at."""
        context = self.term.context
        self.term.run(process_broker_change(context))
        self.term.run(process_topic_change(context))
        for topic in sorted(context.topics):
            self.term.run(process_topic_data(context, topic))
        self.term.run(process_delete_markers(context))
        self.term.run(process_legacy_reassignments(context))
        self.term.run(complete_reassignments(context))

    def responded(self, broker_id: int, request: ControlRequest, response: PartitionsResponse) -> None:
        context = self.term.context
        self.term.run(process_response(context, broker_id, request, response))

    def reassign(self, topic: str, targets: dict[int, tuple[int, ...] | None]) -> None:
        """The admin's request; then leaders add the new replicas to the ISR, as long as that takes."""
        wanted = {TopicPartition(topic, partition): target for partition, target in targets.items()}
        self.term.run(alter_reassignments(self.term.context, wanted))
        self.catch_up()

    def catch_up(self) -> None:
        """Targets get in sync, and the reassignments end."""
        self.settle()
        for at in sorted(self.term.context.reassigning):
            leader = self.brokers.get(self.zookeeper.state(at).leader)
            replicas = self.term.context.assignment(at).replicas
            if leader is not None and at in self.term.context.reassigning:
                isr = tuple(r for r in replicas if broker_path(r) in self.zookeeper.nodes)
                proposal = leader.proposal(at, self.term.context.topic_ids[at.topic], isr)
                for verdict in self.term.run(process_alter_partition(self.term.context, proposal)).partitions:
                    leader.hear(verdict)
                self.settle()

    # Invariants

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
            left = {at for broker_id, at in self.may_keep if broker_id == broker.broker_id}
            if broker.disk - left != own - left:
                found.append(f"broker {broker.broker_id} has on disk {sorted(broker.disk)}, not {sorted(own)}")
            if {at: role for at, role in broker.roles.items() if at in own or at not in left} != {
                at: known[at] for at in own
            }:
                found.append(f"broker {broker.broker_id} follows {broker.roles}, not {known}")
            if broker.metadata != known:
                found.append(f"broker {broker.broker_id} tells clients {broker.metadata}, not {known}")
        return found


class MortalTerm(Term):
    """A term whose every operation is a step of the world; requests go into its queues."""

    def __init__(self, world: World, controller_id: int) -> None:
        super().__init__(world.zookeeper, controller_id)
        self.world = world

    def respond(self, request: Request) -> Any:
        match request:
            case Send():
                for broker_id, message in request.messages:
                    self.world.send(broker_id, message, self)
                return None
            case Write():
                responses = []
                for operation in request.operations:
                    response = super().respond(Write((operation,)))
                    if self.world.loses_responses():  # with the connection: the write is sent once more
                        response = super().respond(Write((operation,)))
                    responses += response
                    self.world.step()
                return responses
            case RemoveBroker(broker_id=broker_id) if self is self.world.term:
                self.world.queues[broker_id].clear()
        return super().respond(request)
