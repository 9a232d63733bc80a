"""Actions of a simulated history: one function for each kind of event, and how often it is tried.

An action draws what it needs (which broker, which message) and does nothing if it has no object. The weights are for
histories in which records flow, epochs pass, and faults overlap. ``disk_actions`` has the events of disks.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from random import Random

from tidegauge_broker.replica.messages import ACKS_ALL
from tidegauge_proof.simulator.action import Action, brokers_up, victim
from tidegauge_proof.simulator.acts import UNDESCRIBED, Act, act
from tidegauge_proof.simulator.dice import Dice
from tidegauge_proof.simulator.disk_actions import (
    cut_power,
    damage_batch,
    fail_directory,
    flush,
    mend,
    raise_defect,
    write_checkpoint,
)
from tidegauge_proof.simulator.sim_partition import SimPartition
from tidegauge_proof.simulator.swarm import MAY_LOSE, MUST_SURVIVE, Swarm
from tidegauge_proof.simulator.world import World

FLUSHING = 0.3
"""The part of the histories that must survive in which every record is flushed before anybody hears of it."""


def produce(world: World, dice: Dice, swarm: Swarm) -> Act | None:
    """Let a client send a batch to a broker that believes it leads."""
    leading = world.leading()
    if not leading:
        return None
    broker_id, partition = dice.choose(leading)
    acks = (ACKS_ALL, ACKS_ALL, 1)[dice.below(3)]
    count = 1 + dice.below(swarm.max_records)
    timeout_ms = (5000, 500)[dice.below(2)]
    partitions = [partition]
    if len(world.partitions) > 1 and dice.happens(0.5):
        partitions = [led for leader, led in leading if leader == broker_id]
    world.produce(broker_id, acks, count, timeout_ms, partitions)
    if not world.tells:
        return UNDESCRIBED
    return act("produce", count=count, acks=acks, broker=broker_id, partitions=_numbers(partitions))


def produce_idempotently(world: World, dice: Dice, swarm: Swarm) -> Act | None:
    """Let the idempotent producer send its batch, perhaps again, to a broker that believes it leads."""
    leading = world.leading()
    if not leading:
        return None
    broker_id, partition = dice.choose(leading)
    again = partition.clients.under_way is not None
    count = 1 + dice.below(swarm.max_records)
    produced = world.produce_idempotently(broker_id, count, (5000, 500)[dice.below(2)], partition)
    if not world.tells:
        return UNDESCRIBED
    return act(
        "produce_idempotently",
        sequence=produced.first_sequence,
        again=again,
        broker=broker_id,
        partitions=_numbers([partition]),
    )


def consume(world: World, dice: Dice, swarm: Swarm) -> Act | None:
    """Let a consumer read from a broker that believes it leads."""
    del swarm
    leading = world.leading()
    if not leading:
        return None
    broker_id = dice.choose(leading)[0]
    offsets = {
        partition.at: dice.below(len(partition.checker.committed) + 1)
        for leader, partition in leading
        if leader == broker_id
    }
    world.consume(broker_id, offsets)
    return act("consume", offsets=[*offsets.values()], broker=broker_id)


def _numbers(partitions: Sequence[SimPartition]) -> list[int]:
    return [partition.at.partition for partition in partitions]


def whole_round(world: World, dice: Dice, swarm: Swarm) -> Act | None:
    """Complete a round: request, response, append."""
    del swarm
    paused = world.paused
    following = [
        b for b, broker in world.brokers.items() if broker.is_running and b not in paused and broker.core.is_following
    ]
    if not following:
        return None
    broker_id = dice.choose(following)
    if not world.whole_round(broker_id):
        return None
    return act("whole_round", broker=broker_id) if world.tells else UNDESCRIBED


def ask(world: World, dice: Dice, swarm: Swarm) -> Act | None:
    """Let a follower send its next requests."""
    del swarm
    up = brokers_up(world)
    if not up:
        return None
    broker_id = dice.choose(up)
    asked = world.ask(broker_id)
    if not asked:
        return None
    world.traffic.requests += asked
    if not world.tells:
        return UNDESCRIBED
    return act("ask", broker=broker_id, leaders=[exchange.chosen.leader for exchange in asked])


def arrive(world: World, dice: Dice, swarm: Swarm) -> Act | None:
    """Deliver a request, or lose it."""
    requests = world.traffic.requests
    if not requests:
        return None
    place = dice.below(len(requests))
    exchange = requests[place]
    follower, leader = exchange.follower.broker_id, exchange.chosen.leader
    if leader in world.paused or world.is_cut(follower, leader):
        return None
    del requests[place]
    if dice.happens(swarm.loss):
        return act("lose_request", broker=follower, leader=leader)
    world.arrive(exchange)
    return act("arrive", broker=follower, leader=leader) if world.tells else UNDESCRIBED


def deliver_response(world: World, dice: Dice, swarm: Swarm) -> Act | None:
    """Deliver a response, perhaps once more later, or lose it."""
    responses = world.traffic.responses
    if not responses:
        return None
    place = dice.below(len(responses))
    exchange = responses[place]
    follower, leader = exchange.follower.broker_id, exchange.chosen.leader
    if follower in world.paused or world.is_cut(follower, leader):
        return None
    if not dice.happens(swarm.loss):
        del responses[place]
    if dice.happens(swarm.loss):
        return act("lose_answer", broker=follower, leader=leader)
    world.deliver_response(exchange)
    return act("answer", broker=follower, leader=leader) if world.tells else UNDESCRIBED


def give_up(world: World, dice: Dice, swarm: Swarm) -> Act | None:
    """Time out a follower's wait for a response, or a leader's for a verdict."""
    del swarm
    up = brokers_up(world)
    asking = [b for b in up if b in world.proposals.asking] if world.proposals.asking else ()
    if asking and dice.happens(0.2):
        world.proposals.ask_again(asking[0])
        return act("give_up_proposal", broker=asking[0])
    waiting = [exchange for b in up for exchange in world.open_rounds[b]]
    if not waiting:
        return None
    exchange = dice.choose(waiting)
    world.give_up(exchange)
    return act("give_up", broker=exchange.follower.broker_id, leader=exchange.chosen.leader)


def deliver(world: World, dice: Dice, swarm: Swarm) -> Act | None:
    """Deliver a controller's next request to a broker."""
    paused, brokers, cut_links = world.paused, world.brokers, world.cut_links
    waiting = [
        (term, broker_id)
        for term in world.controllers.values()
        for broker_id, queue in term.queues.items()
        if queue
        and term.broker_id not in paused
        and broker_id not in paused
        and brokers[broker_id].is_running
        and (term.broker_id, broker_id) not in cut_links
    ]
    if not waiting:
        return None
    term, broker_id = dice.choose(waiting)
    queue = term.queues[broker_id]
    count = 1 if dice.happens(0.5) else len(queue)
    messages = [_name_of(message) for message in islice(queue, count)] if world.tells else ()
    for _ in range(count):
        if not queue:  # a response can end the term, and its queues with it
            break
        world.deliver(term, broker_id, again=dice.happens(swarm.loss))
    if not world.tells:
        return UNDESCRIBED
    return act("deliver", messages=messages, controller_epoch=term.epoch, broker=broker_id)


def _name_of(message: object) -> str:
    return type(message).__name__.removesuffix("Request")


def deliver_stray(world: World, dice: Dice, swarm: Swarm) -> Act | None:
    """Deliver a late request of a resigned controller, or to an expired registration."""
    strays = world.traffic.strays
    if not strays:
        return None
    broker_id, message = strays.pop(dice.below(len(strays)))
    if dice.happens(max(swarm.loss, 0.3)) or not world.is_up(broker_id):
        return None
    world.hand_over(broker_id, message)
    return act("deliver_stray", message=_name_of(message), broker=broker_id)


def decide(world: World, dice: Dice, swarm: Swarm) -> Act | None:
    """Advance a controller to the end of its decision, or by a few requests to ZooKeeper."""
    del swarm
    busy = [b for b, term in world.controllers.items() if term.is_busy and b not in world.paused]
    if not busy:
        return None
    broker_id = dice.choose(busy)
    if dice.happens(0.2):
        world.decide(broker_id, 1 + dice.below(8))
    else:
        world.decide(broker_id, 1000)
        while not dice.happens(0.5) and broker_id in world.controllers and world.controllers[broker_id].is_busy:
            world.decide(broker_id, 1000)
    if not world.tells:
        return UNDESCRIBED
    states = [partition.state_now for partition in world.partitions]
    return act("decide", broker=broker_id, states=[(one.leader, one.leader_epoch, one.isr) for one in states])


def propose(world: World, dice: Dice, swarm: Swarm) -> Act | None:
    """Deliver a leader's ISR change to the controller, seldom to one that has resigned."""
    if not any(world.proposals.outbox.values()):
        return None
    waiting = [b for b in brokers_up(world) if world.proposals.may_propose(b)]
    if not waiting:
        return None
    broker_id = dice.choose(waiting)
    target = world.elected
    if dice.happens(swarm.loss):
        target = dice.choose(sorted(world.controllers)) if world.controllers else None
    if target not in world.controllers or target in world.paused or world.is_cut(broker_id, target):
        return None
    if not world.proposals.may_ask(broker_id, target):
        return None
    proposal = world.proposals.outbox[broker_id][0]
    world.proposals.propose(broker_id, target)
    return act("propose", broker=broker_id, isr=proposal.new_isr, partition=proposal.topic_partition.partition)


def tell(world: World, dice: Dice, swarm: Swarm) -> Act | None:
    """Deliver the controller's verdict, or lose it."""
    verdicts = world.traffic.verdicts
    if not verdicts:
        return None
    place = dice.below(len(verdicts))
    verdict = verdicts[place]
    if verdict.broker.broker_id in world.paused:
        return None
    del verdicts[place]
    if dice.happens(swarm.loss):
        verdict.verdict = None
    world.proposals.tell(verdict, world.now_ms)
    if not world.tells:
        return UNDESCRIBED
    error = "none" if verdict.verdict is None else verdict.verdict.error.name
    return act("tell", error=error, broker=verdict.broker.broker_id)


def pass_time(world: World, dice: Dice, swarm: Swarm) -> Act | None:
    """Time goes on."""
    del swarm
    ms = (10, 100, 500, 1000, 2500)[dice.below(5)]
    world.pass_time(ms)
    return act("pass_time", ms=ms) if world.tells else UNDESCRIBED


def kill(world: World, dice: Dice, swarm: Swarm) -> Act | None:
    """Kill a process."""
    del swarm
    running = [b for b, broker in world.brokers.items() if broker.is_running]
    if not running or (len(running) == 1 and not dice.happens(0.3)):
        return None
    broker_id = victim(world, dice, running)
    world.kill(broker_id)
    return act("kill", broker=broker_id) if world.tells else UNDESCRIBED


def expire(world: World, dice: Dice, swarm: Swarm) -> Act | None:
    """Expire a session: of a dead broker, of one that is paused or partitioned, seldom of another."""
    del swarm
    absent = [
        b
        for b in world.brokers
        if b not in world.without_session and (not world.is_up(b) or any(b in link for link in world.cut_links))
    ]
    if not absent and dice.happens(0.3):
        absent = [b for b in world.brokers if b not in world.without_session]
    if not absent:
        return None
    broker_id = victim(world, dice, absent)
    world.expire(broker_id)
    return act("expire", broker=broker_id) if world.tells else UNDESCRIBED


def start(world: World, dice: Dice, swarm: Swarm) -> Act | None:
    """Start a dead broker, or register one again whose session has expired."""
    del swarm
    absent = [
        b
        for b, broker in world.brokers.items()
        if not broker.is_running or (b in world.without_session and world.is_up(b))
    ]
    if not absent:
        return None
    broker_id = dice.choose(absent)
    if world.brokers[broker_id].is_running:
        world.register_again(broker_id)
        return act("register", broker=broker_id)
    world.start(broker_id)
    return act("start", broker=broker_id) if world.tells else UNDESCRIBED


def pause(world: World, dice: Dice, swarm: Swarm) -> Act | None:
    """Pause a process."""
    del swarm
    up = brokers_up(world)
    if len(up) < 2:
        return None
    broker_id = victim(world, dice, up)
    world.paused.add(broker_id)
    world.note("fault", broker_id, action="pause")
    return act("pause", broker=broker_id)


def resume(world: World, dice: Dice, swarm: Swarm) -> Act | None:
    """Resume a paused process."""
    del swarm
    if not world.paused:
        return None
    broker_id = dice.choose(sorted(world.paused))
    world.paused.discard(broker_id)
    world.note("fault", broker_id, action="resume")
    world.pass_time(0)
    return act("resume", broker=broker_id)


def cut_links(world: World, dice: Dice, swarm: Swarm) -> Act | None:
    """Partition links: one way, both ways, or all into or out of a broker. Responses take their call's way."""
    del swarm
    ids = sorted(world.brokers)
    one = victim(world, dice, ids)
    others = [b for b in ids if b != one]
    kind = dice.below(4)
    if kind == 0:
        world.cut_links.add((one, dice.choose(others)))
    elif kind == 1:
        other = dice.choose(others)
        world.cut_links |= {(one, other), (other, one)}
    else:
        world.cut_links |= {(other, one) if kind == 2 else (one, other) for other in others}
    return act("cut_links", links=sorted(world.cut_links)) if world.tells else UNDESCRIBED


def heal_links(world: World, dice: Dice, swarm: Swarm) -> Act | None:
    """All links work again."""
    del dice, swarm
    if not world.cut_links:
        return None
    world.cut_links.clear()
    return act("heal_links")


def elect(world: World, dice: Dice, swarm: Swarm) -> Act | None:
    """Elect a broker as the controller, if there is none."""
    del swarm
    if world.elected is not None:
        return None
    able = [b for b in brokers_up(world) if b not in world.without_session]
    if not able:
        return None
    broker_id = dice.choose(able)
    world.elect(broker_id)
    return act("elect", broker=broker_id)


def rebalance(world: World, dice: Dice, swarm: Swarm) -> Act | None:
    """Run the automatic preferred election, if it has something to do."""
    del swarm
    able = [b for b, term in world.controllers.items() if term.has_to_rebalance()]
    if not able:
        return None
    broker_id = dice.choose(able)
    world.rebalance(broker_id)
    return act("rebalance", broker=broker_id)


def leave(world: World, dice: Dice, swarm: Swarm) -> Act | None:
    """Shut a broker down in order: it asks the controller first, and ends when its leaders have moved."""
    del swarm
    ready = [b for b in sorted(world.leaving) if world.is_up(b)]
    if ready:
        broker_id = dice.choose(ready)
        world.stop(broker_id)
        return act("stop", broker=broker_id)
    up = [b for b in brokers_up(world) if b not in world.without_session]
    if len(up) < 2 or world.elected is None or world.elected not in world.controllers:
        return None
    broker_id = dice.choose(up)
    world.leave(broker_id, world.elected)
    return act("leave", broker=broker_id)


ACTIONS: tuple[tuple[Action, float, bool], ...] = (
    (whole_round, 24, False),
    (produce, 16, False),
    (produce_idempotently, 4, False),
    (consume, 2, False),
    (ask, 14, False),
    (arrive, 14, False),
    (deliver_response, 16, False),
    (give_up, 4, False),
    (deliver, 26, False),
    (deliver_stray, 1, False),
    (decide, 30, False),
    (propose, 8, False),
    (tell, 8, False),
    (pass_time, 4, False),
    (write_checkpoint, 1, False),
    (flush, 1, False),
    (start, 8, False),
    (resume, 2, False),
    (elect, 8, False),
    (heal_links, 1, False),
    (kill, 2.5, True),
    (cut_power, 0.5, True),
    (expire, 3, True),
    (pause, 0.5, True),
    (cut_links, 3, True),
    (rebalance, 8, True),
    (leave, 0.3, True),
)
"""Each with its weight, and whether it is a fault that a history may have more, less or nothing of."""
DISK_ACTIONS: tuple[tuple[Action, float, bool], ...] = (
    (fail_directory, 0.7, True),
    (damage_batch, 0.7, True),
    (raise_defect, 0.4, True),
    (mend, 1, False),
)
"""Actions that are added if brokers have more than one log directory."""
SEVERAL_DIRECTORIES = 0.4
"""The part of the histories in which they do."""


def swarm_of(seed: int, rule: str, power: str, directories: int | None = None) -> Swarm:
    """Draw the settings of the history with this seed.

    With ``directories`` its brokers have that number of log directories, whatever the seed says; None: one or two. With
    several there are as many partitions, or one more, so that a directory can hold two.

    In a history that must survive, a power loss takes what lies below no replica's high watermark, or, where
    ``log.flush.interval.messages=1``, all that is unflushed. In one that may lose, any record that is not flushed.
    """
    random = Random(f"swarm {seed}")
    replicas = list(range(1, random.choice((3, 3, 3, 2, 4)) + 1))
    random.shuffle(replicas)
    weights = [weight * (random.choice((0, 0.5, 1, 3)) if is_fault else 1) for _, weight, is_fault in ACTIONS]
    for slow in (deliver, whole_round, decide):
        place = [action for action, _, _ in ACTIONS].index(slow)
        weights[place] *= random.choice((0.3, 1, 1))
    if directories is None:
        disks = Random(f"directories {seed}")
        directories = 2 if disks.random() < SEVERAL_DIRECTORIES else 1
    partitions = 1
    if directories > 1:
        disks = Random(f"disk faults {seed}")
        partitions = directories + disks.choice((0, 0, 1))
        weights += [weight * (disks.choice((0, 0.5, 1, 3)) if is_fault else 1) for _, weight, is_fault in DISK_ACTIONS]
    flushes = power == MUST_SURVIVE and random.random() < FLUSHING
    kept = "any" if flushes or power == MAY_LOSE else "unreported" if power == MUST_SURVIVE else power
    return Swarm(
        min_insync_replicas=random.choice((1, 1, 2)),
        replicas=tuple(replicas),
        max_records=random.choice((1, 1, 3)) if rule == "kip-320" else 1,
        loss=random.choice((0.0, 0.03, 0.1)),
        weights=tuple(weights),
        power=kept,
        flushes=flushes,
        directories=directories,
        partitions=partitions,
    )
