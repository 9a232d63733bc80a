"""In any order of events, states stay sound and all agree in the end.

Random walks through a model of the whole cluster: brokers die, bounce, shut down and return, topics come, grow and go,
leaders propose in-sync replicas, replicas are reassigned, requests arrive late or not at all, controllers change, and a
controller that was replaced goes on as if it were not. Every write of a state is held against the one before it.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable

import pytest
from controller_world import BROKERS, OLD, MortalTerm, World

from tidegauge.control import NO_LEADER, PartitionsResponse
from tidegauge.partition import TopicPartition
from tidegauge.znodes import (
    BROKER_TOPICS,
    PartitionStateNode,
    TopicNode,
    broker_path,
    delete_topic_path,
    encode_config,
    state_path,
    topic_config_path,
    topic_path,
)
from tidegauge_controller.zookeeper.decisions.alter_partition import process_alter_partition
from tidegauge_controller.zookeeper.decisions.broker_events import process_broker_change
from tidegauge_controller.zookeeper.decisions.deletion import process_delete_markers
from tidegauge_controller.zookeeper.decisions.leaders import (
    elect_leaders,
    process_controlled_shutdown,
    rebalance_leaders,
)
from tidegauge_controller.zookeeper.decisions.reassignment import alter_reassignments, complete_reassignments
from tidegauge_controller.zookeeper.decisions.steps import ControllerMoved, ControlRequest, Steps
from tidegauge_controller.zookeeper.decisions.topic_events import process_topic_change, process_topic_data

STEPS = 60


class Walk(World):
    """A world in which anything may happen next."""

    def __init__(self, seed: int) -> None:
        super().__init__(None, frozenset())
        self.random = random.Random(seed)
        self.restless = random.Random(seed + 1_000_000)
        self.stale: list[MortalTerm] = []
        self.done: list[str] = []
        self._set = self.zookeeper.set
        self.zookeeper.set = self.checked_set  # type: ignore[method-assign]  # to look at every write

    # Rules for every write of a state

    def checked_set(self, path: str, data: bytes | None) -> int:
        if path.endswith("/state"):
            old = PartitionStateNode.decode(path, self.zookeeper.nodes[path].data)
            new = PartitionStateNode.decode(path, data)
            assert set(new.isr), f"{path}: an empty ISR"
            assert len(set(new.isr)) == len(new.isr), f"{path}: {new}"
            assert new.leader in {NO_LEADER, *new.isr}, f"{path}: {new}"
            assert new.controller_epoch >= old.controller_epoch, f"{path}: {old} -> {new}"
            if new.leader_epoch == old.leader_epoch:
                assert new.leader == old.leader != NO_LEADER, f"{path}: an ISR change keeps the leader: {old} -> {new}"
            else:
                assert new.leader_epoch == old.leader_epoch + 1, f"{path}: {old} -> {new}"
                assert set(new.isr) <= set(old.isr), f"{path}: an election lets nobody in: {old} -> {new}"
                assert new.leader in {NO_LEADER, *old.isr}, f"{path}: unclean: {old} -> {new}"
        return self._set(path, data)

    def loses_responses(self) -> bool:
        return hasattr(self, "restless") and self.restless.random() < 0.05

    # Requests on their way

    def send(self, broker_id: int, request: ControlRequest, sender: MortalTerm) -> None:
        if sender is self.term:
            super().send(broker_id, request, sender)
        elif self.random.random() < 0.5 and self.is_up(broker_id):  # a stale controller's may arrive or not
            self.brokers[broker_id].take(request)

    def deliver_some(self) -> None:
        for broker_id, queue in self.queues.items():
            for _ in range(self.random.randint(0, len(queue))):
                self.deliver(broker_id)

    def respond_to_some(self) -> None:
        waiting: deque[tuple[int, ControlRequest, PartitionsResponse]] = self.responses
        for _ in range(self.random.randint(0, len(waiting))):
            self.responded(*waiting.popleft())

    # Brokers

    def is_up(self, broker_id: int) -> bool:
        return broker_path(broker_id) in self.zookeeper.nodes

    def up(self) -> list[int]:
        return [broker_id for broker_id in BROKERS if self.is_up(broker_id)]

    def die(self) -> None:
        if len(self.up()) > 1:
            self.gone(self.random.choice(self.up()))

    def gone(self, broker_id: int) -> None:
        self.zookeeper.unregister_broker(broker_id)
        self.done[-1] += f" {broker_id}"
        if broker_id == self.term.context.controller_id:
            self.elect(self.random.choice(self.up()))

    def shut_down(self) -> None:
        if len(self.up()) > 1:
            broker_id = self.random.choice(self.up())
            context = self.term.context
            if broker_id in context.live:
                epoch = context.live[broker_id].epoch
                self.term.run(process_controlled_shutdown(context, broker_id, epoch))
            self.gone(broker_id)

    def start(self) -> None:
        for broker_id in BROKERS:
            if not self.is_up(broker_id):
                self.register(broker_id)
                return

    def bounce(self) -> None:
        broker_id = self.random.choice(self.up())
        if broker_id != self.term.context.controller_id:
            self.register(broker_id)

    # Topics

    def topics(self) -> list[str]:
        return self.zookeeper.children(BROKER_TOPICS) or []

    def replicas(self) -> tuple[int, ...]:
        return tuple(self.random.sample(BROKERS, self.random.randint(1, 3)))

    def create(self) -> None:
        name = f"topic-{self.random.randint(0, 3)}"
        if topic_path(name) in self.zookeeper.nodes or delete_topic_path(name) in self.zookeeper.nodes:
            return
        if topic_config_path(name) not in self.zookeeper.nodes:
            self.zookeeper.create(topic_config_path(name), encode_config({}))
        assignment = {index: self.replicas() for index in range(self.random.randint(1, 3))}
        topic_id = f"{name}{self.zookeeper.zxid:A>15}"[:22]
        self.zookeeper.create(topic_path(name), TopicNode(assignment, topic_id).encode())

    def grow(self) -> None:
        name = self.random.choice(self.topics() or [OLD])
        if topic_path(name) in self.zookeeper.nodes:
            node = TopicNode.decode(name, self.zookeeper.nodes[topic_path(name)].data)
            grown = {**node.assignment, len(node.assignment): self.replicas()}
            changed = TopicNode(grown, node.topic_id, node.adding_replicas, node.removing_replicas)
            self.zookeeper.set(topic_path(name), changed.encode())

    def reassign(self) -> None:
        """Reassign or cancel; which of the old replicas learn that they are removed is not known here."""
        context = self.term.context
        partitions = list(context.partitions())
        if partitions:
            at = self.random.choice(partitions)
            target = self.random.choice([self.replicas(), self.replicas(), None])
            self.may_keep |= {(broker_id, at) for broker_id in BROKERS}
            self.term.run(alter_reassignments(context, {at: target}))

    def see_reassignments(self) -> None:
        self.term.run(complete_reassignments(self.term.context))

    def delete(self) -> None:
        name = self.random.choice(self.topics() or [OLD])
        if topic_path(name) in self.zookeeper.nodes and delete_topic_path(name) not in self.zookeeper.nodes:
            self.zookeeper.create(delete_topic_path(name), None)

    # Leaders and controllers

    def propose(self) -> None:
        """A broker that considers itself the leader adds or removes any ISR member."""
        led = [
            (broker, at)
            for broker in self.brokers.values()
            if self.is_up(broker.broker_id)
            for at, (leader, _) in broker.roles.items()
            if leader == broker.broker_id
        ]
        if led:
            broker, at = self.random.choice(led)
            others = [other for other in self.term.context.assignment(at).replicas if other != broker.broker_id]
            isr = (broker.broker_id, *self.random.sample(others, self.random.randint(0, len(others))))
            topic_id = self.term.context.topic_ids.get(at.topic, "")
            response = self.term.run(process_alter_partition(self.term.context, broker.proposal(at, topic_id, isr)))
            for verdict in response.partitions:
                broker.hear(verdict)

    def replace_the_controller(self) -> None:
        """Another controller is elected, while the old one is alive and does not know of it."""
        self.stale.append(self.term)
        self.elect(self.random.choice(self.up()))

    def act_stale(self) -> None:
        if self.stale:
            term = self.random.choice(self.stale)
            decide: Steps[object] = self.random.choice(
                [process_broker_change, process_topic_change, process_delete_markers, rebalance_leaders]
            )(term.context)
            before = {path: node.version for path, node in self.zookeeper.nodes.items()}
            try:
                term.run(decide)
            except ControllerMoved:
                self.stale.remove(term)
            assert {path: node.version for path, node in self.zookeeper.nodes.items()} == before

    def elect_preferred(self) -> None:
        self.term.run(elect_leaders(self.term.context, None, unclean=False))

    def rebalance(self) -> None:
        self.term.run(rebalance_leaders(self.term.context))

    # The controller's view of changes, in an order of its own

    def see_brokers(self) -> None:
        self.term.run(process_broker_change(self.term.context))

    def see_topics(self) -> None:
        self.term.run(process_topic_change(self.term.context))
        for topic in sorted(self.term.context.topics):
            self.term.run(process_topic_data(self.term.context, topic))

    def see_markers(self) -> None:
        self.term.run(process_delete_markers(self.term.context))

    def go(self) -> None:
        often: list[Callable[[], None]] = [self.deliver_some, self.respond_to_some, self.see_brokers, self.propose]
        seldom: list[Callable[[], None]] = [
            self.see_topics,
            self.see_markers,
            self.die,
            self.start,
            self.start,
            self.bounce,
            self.shut_down,
            self.create,
            self.grow,
            self.reassign,
            self.see_reassignments,
            self.delete,
            self.replace_the_controller,
            self.act_stale,
            self.elect_preferred,
            self.rebalance,
        ]
        for _ in range(STEPS):
            action = self.random.choice([*often, *often, *seldom])
            self.done.append(action.__name__)
            action()

    def end(self) -> None:
        """All brokers are back, nothing more happens."""
        for broker_id in BROKERS:
            if not self.is_up(broker_id):
                self.register(broker_id)
                self.settle()
        self.catch_up()
        assert not self.term.context.reassigning


@pytest.mark.parametrize("seed", range(150))
def test_all_agree_after_a_random_walk(seed: int) -> None:
    walk = Walk(seed)
    walk.go()
    walk.end()
    assert walk.disagreements() == [], f"seed {seed}: {walk.done}"
    for topic in walk.topics():
        for partition in TopicNode.decode(topic, walk.zookeeper.nodes[topic_path(topic)].data).assignment:
            assert state_path(*TopicPartition(topic, partition)) in walk.zookeeper.nodes
