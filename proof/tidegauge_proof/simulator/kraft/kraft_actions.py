"""Actions on a simulated KRaft cluster: records, kills, power losses, pauses, partitions, controlled shutdowns."""

from __future__ import annotations

from collections.abc import Callable

from tidegauge_controller.raft import events
from tidegauge_controller.raft.states import Leader
from tidegauge_proof.simulator.dice import Dice
from tidegauge_proof.simulator.kraft.kraft_checker import MIN_ISR
from tidegauge_proof.simulator.kraft.kraft_world import KRaftWorld

Action = Callable[[KRaftWorld, Dice], str]
"""Does something and says what; an empty text if there is nothing to do."""
MOST_RECORDS = 400


def pass_time(world: KRaftWorld, dice: Dice) -> str:
    """Let some messages arrive, or a session end."""
    duration = 1 + dice.below((20, 150, 600, 2500)[dice.below(4)])
    world.run(duration)
    return f"{duration} ms pass"


def produce(world: KRaftWorld, dice: Dice) -> str:
    """Let a client write to a broker that believes that it leads."""
    leading = list(world.leading())
    if not leading or sum(one.numbers for one in world.clients.values()) % 1_000_000 > MOST_RECORDS:
        return ""
    broker, at = dice.choose(leading)
    count = 1 + dice.below(3)
    world.produce(broker, at, count)
    return f"{count} records are sent to broker {broker.broker_id} for {at}"


def flush(world: KRaftWorld, dice: Dice) -> str:
    """Let a broker flush its logs."""
    running = [one for one in world.nodes.values() if one.is_up]
    if not running:
        return ""
    broker = dice.choose(running)
    broker.replicas.flush()
    broker.replicas.write_checkpoint()
    return f"broker {broker.broker_id} flushes its logs"


def end_broker(world: KRaftWorld, dice: Dice) -> str:
    """Kill a broker, with its page cache or without."""
    running = [one for one in world.nodes.values() if one.is_running]
    if not running:
        return ""
    broker, loses_power = dice.choose(running), dice.happens(0.5)
    world.kill_broker(broker.broker_id, loses_power=loses_power)
    return f"broker {broker.broker_id} {'loses power' if loses_power else 'is killed'}"


def stop_broker(world: KRaftWorld, dice: Dice) -> str:
    """Ask a broker to shut down in order."""
    running = [one for one in world.nodes.values() if one.is_up]
    if not running:
        return ""
    broker = dice.choose(running)
    world.stop_broker(broker.broker_id)
    return f"broker {broker.broker_id} is asked to shut down"


def start_broker(world: KRaftWorld, dice: Dice) -> str:
    """Start a broker that is dead."""
    dead = [one for one in world.nodes.values() if not one.is_running]
    if not dead:
        return ""
    broker = dice.choose(dead)
    world.start_broker(broker.broker_id)
    return f"broker {broker.broker_id} starts"


def pause_broker(world: KRaftWorld, dice: Dice) -> str:
    """Stop a broker's process, or let it go on."""
    running = [one for one in world.nodes.values() if one.is_running]
    if not running:
        return ""
    broker = dice.choose(running)
    is_paused = not broker.is_paused
    world.pause_broker(broker.broker_id, is_paused=is_paused)
    return f"broker {broker.broker_id} {'is paused' if is_paused else 'goes on'}"


def partition_brokers(world: KRaftWorld, dice: Dice) -> str:
    """Partition a broker from another or from the controllers, one way or both; or heal all links."""
    if world.severed and dice.happens(0.5):
        world.severed.clear()
        world.quorum.faults.partitioned.clear()
        return "all links are healed"
    ids = list(world.nodes)
    one = dice.choose(ids)
    others = [-1, *(other for other in ids if other != one)]
    other, both = dice.choose(others), dice.happens(0.6)
    world.severed.add((one, other))
    if both:
        world.severed.add((other, one))
    if other == -1:
        for controller in world.controller_ids:
            world.quorum.faults.partitioned.add((one, controller))
            if both:
                world.quorum.faults.partitioned.add((controller, one))
    return f"broker {one} is partitioned from {'the controllers' if other < 0 else other}{'' if both else ', one way'}"


def end_controller(world: KRaftWorld, dice: Dice) -> str:
    """Kill a controller, with its page cache or without; the active one as often as all others together."""
    running = list(world.controllers)
    if not running:
        return ""
    leaders = [one for one in running if world.controllers[one].active is not None]
    node_id = leaders[-1] if leaders and dice.happens(0.5) else dice.choose(running)
    loses_power = dice.happens(0.6)
    world.kill_controller(node_id, loses_power=loses_power)
    return f"controller {node_id} {'loses power' if loses_power else 'is killed'}"


def start_controller(world: KRaftWorld, dice: Dice) -> str:
    """Start a controller that is dead."""
    dead = [one for one in world.controller_ids if one not in world.controllers]
    if not dead:
        return ""
    node_id = dice.choose(dead)
    world.start_controller(node_id)
    return f"controller {node_id} starts"


def lose_all_power(world: KRaftWorld, dice: Dice) -> str:
    """End every process with its page cache; the controllers come back at once."""
    del dice
    for broker in world.nodes.values():
        if broker.is_running:
            world.kill_broker(broker.broker_id, loses_power=True)
    for node_id in list(world.controllers):
        world.kill_controller(node_id, loses_power=True)
    for node_id in world.controller_ids:
        world.start_controller(node_id)
    return "all nodes lose power, and the controllers start again"


def partition_controller(world: KRaftWorld, dice: Dice) -> str:
    """Partition a controller from the others; brokers still reach it."""
    ids = world.controller_ids
    if len(ids) < 2:
        return ""
    one = dice.choose(ids)
    for other in ids:
        if other != one:
            world.quorum.faults.partitioned |= {(one, other), (other, one)}
    return f"controller {one} is partitioned from the others"


def resign(world: KRaftWorld, dice: Dice) -> str:
    """Let a leader of the quorum resign."""
    leaders = [one for one in world.quorum.leaders() if one in world.controllers]
    if not leaders:
        return ""
    node_id = dice.choose(leaders)
    raft = world.quorum.nodes[node_id].raft
    assert raft is not None
    assert isinstance(raft.state, Leader)
    world.quorum.give(node_id, events.Resign(raft.state.epoch))
    return f"controller {node_id} resigns"


def snapshot(world: KRaftWorld, dice: Dice) -> str:
    """Let a node make a snapshot, and delete the records below it or keep them."""
    node_id, cleans = dice.choose(list(world.quorum.nodes)), dice.happens(0.7)
    if not world.snapshot(node_id, cleans=cleans):
        return ""
    return f"node {node_id} makes a snapshot{', and deletes what is below' if cleans else ''}"


def reassign(world: KRaftWorld, dice: Dice) -> str:
    """Ask for other replicas of a partition, or cancel that."""
    at = dice.choose(world.partitions)
    if world.active() is None:
        return ""
    if dice.happens(0.2):
        world.reassign(at, None)
        return f"the reassignment of {at} is cancelled"
    ids = list(world.nodes)
    first = dice.below(len(ids))
    replicas = tuple([*ids[first:], *ids[:first]][: MIN_ISR + dice.below(len(ids) - MIN_ISR + 1)])
    world.reassign(at, replicas)
    return f"{at} shall have replicas {replicas}"


def allocate_producer_ids(world: KRaftWorld, dice: Dice) -> str:
    """Let a broker ask for a block of producer ids."""
    running = [one for one in world.nodes.values() if one.is_up]
    if not running:
        return ""
    broker = dice.choose(running)
    world.allocate_producer_ids(broker)
    return f"broker {broker.broker_id} asks for producer ids"


ACTIONS: tuple[tuple[Action, float], ...] = (
    (pass_time, 40),
    (produce, 30),
    (flush, 2),
    (end_broker, 5),
    (stop_broker, 1.5),
    (start_broker, 7),
    (pause_broker, 3),
    (partition_brokers, 3),
    (end_controller, 1.5),
    (start_controller, 3),
    (partition_controller, 0.7),
    (resign, 0.7),
    (lose_all_power, 0.3),
    (snapshot, 3),
    (reassign, 3),
    (allocate_producer_ids, 1.5),
)
"""Each action with its weight."""
