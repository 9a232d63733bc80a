"""The controller dies after each single thing it does; the next one finishes or undoes it.

In a model of the cluster (``controller_world``) each scenario is repeated with a death after step 1, 2, 3, ... until
one gets through. Then another broker takes over, the dead one comes back, and ZooKeeper, the brokers' memories and
their disks must say the same.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
from controller_world import BROKERS, CONTROLLER, NEW, OLD, OTHER, SUCCESSOR, Died, World

from tidegauge.partition import TopicPartition
from tidegauge.znodes import TopicNode, broker_path, delete_topic_path, topic_path
from tidegauge_controller.zookeeper.decisions.leaders import elect_leaders, process_controlled_shutdown
from tidegauge_controller.zookeeper.decisions.reassignment import alter_reassignments

# The controller's work when it dies


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


def fewer_replicas_at_first(world: World) -> None:
    world.mortal = False
    world.reassign(OLD, {2: (2,)})
    world.mortal = True


def reassign(world: World) -> None:
    """One partition loses the controller's replica, which leads; the other gets two replicas for one."""
    fewer_replicas_at_first(world)
    world.reassign(OLD, {0: (2, 3), 2: (3, 1)})


def replace_and_cancel(world: World) -> None:
    fewer_replicas_at_first(world)
    context = world.term.context
    for target in ((3, 1), (1, 2), None):
        world.term.run(alter_reassignments(context, {TopicPartition(OLD, 2): target}))
    world.catch_up()


SCENARIOS = [
    create,
    delete,
    add_partitions,
    lose_a_broker,
    shut_a_broker_down,
    elect_the_preferred,
    reassign,
    replace_and_cancel,
]
LEFT_ON_DISKS = {
    reassign: [
        (CONTROLLER, TopicPartition(OLD, 0))
    ],  # the controller's own replica: it was dead when another deleted it
    replace_and_cancel: [
        (CONTROLLER, TopicPartition(OLD, 2)),
        (OTHER, TopicPartition(OLD, 2)),
    ],  # U1 forgets the added ones before their brokers delete: as Kafka
}
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
        if died and scenario in {reassign, replace_and_cancel}:
            world.may_keep = set(LEFT_ON_DISKS[scenario])
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
    world.catch_up()


def done(scenario: Callable[[World], None], world: World, *, begun: bool) -> None:
    """Whether it was finished, once its first znode was there: a topic's, its added partition's, the marker."""
    paths = world.zookeeper.nodes
    if scenario is delete:
        assert not [path for path in paths if OLD in path]
    if scenario is create and begun:
        assert world.zookeeper.children(f"{topic_path(NEW)}/partitions") == ["0", "1", "2"]
    if scenario is reassign and begun:
        node = TopicNode.decode(OLD, paths[topic_path(OLD)].data)
        assert not node.adding_replicas
        assert not node.removing_replicas
        assert tuple(node.assignment[0]) == (2, 3)
    if scenario is add_partitions:
        assert world.zookeeper.children(f"{topic_path(OLD)}/partitions") == ["0", "1", "2", "3"]
