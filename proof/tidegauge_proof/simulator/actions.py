"""What may happen in a simulated history: one function for each kind of event, and how often it is tried.

An action draws what it needs (which broker, which message) and does nothing where it has no object. The weights are for
histories in which records flow, epochs pass, and faults overlap; ``Swarm`` turns faults up, down and off for each
history, since faults that always come together hide one another.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import islice
from math import gcd
from random import Random

from tidegauge.partition import TopicPartition
from tidegauge_broker.replica.messages import ACKS_ALL
from tidegauge_controller.decisions.leaders import partitions_to_rebalance
from tidegauge_proof.simulator.acts import UNDESCRIBED, Act, act
from tidegauge_proof.simulator.dice import Dice
from tidegauge_proof.simulator.stored_replica import StoredReplica
from tidegauge_proof.simulator.world import SimPartition, World

MUST_SURVIVE, MAY_LOSE = "must-survive", "may-lose"
"""The two modes of histories; see ``swarm_of``."""
FLUSHING = 0.3
"""The part of the histories that must survive in which every record is flushed before anybody hears of it."""

_TORN_BYTES = 160
"""Up to so many bytes may be left of a batch that a power loss took; small batches have less."""

Action = Callable[[World, Dice, "Swarm"], Act | None]
"""Does it, and returns what was done (UNDESCRIBED where ``World.tells`` is off); None where there was nothing to do."""


@dataclass(slots=True)
class Swarm:
    """The settings of one history, drawn from its seed."""

    min_insync_replicas: int
    replicas: tuple[int, ...]
    max_records: int
    loss: float
    weights: tuple[float, ...]
    power: str
    flushes: bool
    directories: int = 1
    """Log directories of each broker."""
    partitions: int = 1


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


def _up(world: World) -> list[int]:
    paused = world.paused
    if not paused:
        return [broker_id for broker_id, broker in world.brokers.items() if broker.is_running]
    return [broker_id for broker_id, broker in world.brokers.items() if broker.is_running and broker_id not in paused]


def _victim(world: World, dice: Dice, among: Sequence[int]) -> int:
    """One of these, the leader as often as all others together: what happens to it has consequences."""
    leader = dice.choose(world.partitions).state_now.leader
    if leader in among and dice.happens(0.5):
        return leader
    return dice.choose(among)


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
    up = _up(world)
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
    up = _up(world)
    asking = [b for b in up if b in world.asking] if world.asking else ()
    if asking and dice.happens(0.2):
        world.ask_again(asking[0])
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
    return act("deliver", messages=messages, controller_epoch=term.context.epoch, broker=broker_id)


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
    if not any(world.outbox.values()):
        return None
    waiting = [b for b in _up(world) if world.outbox[b] and b not in world.asking]
    if not waiting:
        return None
    broker_id = dice.choose(waiting)
    target = world.elected
    if dice.happens(swarm.loss):
        target = dice.choose(sorted(world.controllers)) if world.controllers else None
    if target not in world.controllers or target in world.paused or world.is_cut(broker_id, target):
        return None
    if not world.may_ask(broker_id, target):
        return None
    proposal = world.outbox[broker_id][0]
    world.propose(broker_id, target)
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
    world.tell(verdict)
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


def write_checkpoint(world: World, dice: Dice, swarm: Swarm) -> Act | None:
    """Let a broker write its high watermark."""
    del swarm
    up = _up(world)
    if not up:
        return None
    broker_id = dice.choose(up)
    world.brokers[broker_id].write_checkpoint()
    return act("write_checkpoint", broker=broker_id)


def flush(world: World, dice: Dice, swarm: Swarm) -> Act | None:
    """Flush a broker's log to the disk."""
    del swarm
    up = _up(world)
    if not up:
        return None
    broker_id = dice.choose(up)
    world.brokers[broker_id].flush()
    return act("flush", broker=broker_id)


def kill(world: World, dice: Dice, swarm: Swarm) -> Act | None:
    """Kill a process."""
    del swarm
    running = [b for b, broker in world.brokers.items() if broker.is_running]
    if not running or (len(running) == 1 and not dice.happens(0.3)):
        return None
    broker_id = _victim(world, dice, running)
    world.kill(broker_id)
    return act("kill", broker=broker_id) if world.tells else UNDESCRIBED


def cut_power(world: World, dice: Dice, swarm: Swarm) -> Act | None:
    """End a machine's power supply, which loses records that were never flushed.

    By the swarm's ``power`` these are any ("any"), those that are not committed ("uncommitted"), those of them that the
    broker has not reported as a follower ("unreported"), for what is reported may be committed any moment; or those
    that it has not given away as a leader either ("unseen").
    """
    running = [b for b, broker in world.brokers.items() if broker.is_running]
    if not running or swarm.power == "none":
        return None
    broker_id = _victim(world, dice, running)
    keep: dict[TopicPartition, int] = {}
    ends: list[int] = []
    torn = 0
    for partition in world.partitions:
        replica = partition.brokers[broker_id]
        end = replica.log.log_end_offset
        least = min(end, _least_kept(replica, len(partition.checker.committed), swarm.power))
        kept = keep[partition.at] = replica.log.whole_batches_below(end - dice.below(end - least + 1))
        ends.append(end)
        if kept < end:
            torn = dice.below(_TORN_BYTES)
    world.cut_power(broker_id, keep, torn)
    return act("cut_power", broker=broker_id, keep=[*keep.values()], end=ends, torn=torn)


def _least_kept(replica: StoredReplica, committed: int, power: str) -> int:
    """Below which offset a power loss of this kind takes nothing."""
    least = replica.flushed
    if power != "any":
        least = max(least, committed)
    if power in {"unseen", "unreported"}:
        least = max(least, replica.reported)
    if power == "unseen":
        least = max(least, replica.given)
    return least


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
    broker_id = _victim(world, dice, absent)
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
    up = _up(world)
    if len(up) < 2:
        return None
    broker_id = _victim(world, dice, up)
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
    one = _victim(world, dice, ids)
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
    """Elect a broker as the controller, where there is none."""
    del swarm
    if world.elected is not None:
        return None
    able = [b for b in _up(world) if b not in world.without_session]
    if not able:
        return None
    broker_id = dice.choose(able)
    world.elect(broker_id)
    return act("elect", broker=broker_id)


def rebalance(world: World, dice: Dice, swarm: Swarm) -> Act | None:
    """Run the automatic preferred election, where it has something to do."""
    del swarm
    able = [b for b, term in world.controllers.items() if partitions_to_rebalance(term.context)]
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
    up = [b for b in _up(world) if b not in world.without_session]
    if len(up) < 2 or world.elected is None or world.elected not in world.controllers:
        return None
    broker_id = dice.choose(up)
    world.leave(broker_id, world.elected)
    return act("leave", broker=broker_id)


def fail_directory(world: World, dice: Dice, swarm: Swarm) -> Act | None:
    """Fail a log directory of a broker, perhaps in the middle of a step; never the last healthy one."""
    del swarm
    able = [b for b in _up(world) if not world.brokers[b].failing and not world.brokers[b].failed_directories]
    if not able:
        return None
    broker_id = _victim(world, dice, able)
    directory, writes_left = dice.below(world.brokers[broker_id].directories), dice.below(4)
    world.fail_directory(broker_id, directory, writes_left)
    return act("fail_directory", broker=broker_id, directory=directory, writes_left=writes_left)


def damage_batch(world: World, dice: Dice, swarm: Swarm) -> Act | None:
    """Damage a batch in the log of a running broker."""
    del swarm
    broker_id = _victim(world, dice, [*world.brokers])
    partition = dice.choose(world.partitions)
    replica = partition.brokers[broker_id]
    if replica.damaged is not None or not replica.log.log_end_offset:
        return None
    offset = replica.damaged = replica.log.whole_batches_below(dice.below(replica.log.log_end_offset))
    world.note("fault", broker_id, action="damage-batch")
    return act("damage_batch", broker=broker_id, partition=partition.at.partition, offset=offset)


def raise_defect(world: World, dice: Dice, swarm: Swarm) -> Act | None:
    """Make one of the next writes to a replica's log raise what no error of the table describes."""
    del swarm
    up = _up(world)
    if not up:
        return None
    broker_id = _victim(world, dice, up)
    partition = dice.choose(world.partitions)
    replica = partition.brokers[broker_id]
    if replica.writes_left is not None or replica.is_offline:
        return None
    replica.writes_left = dice.below(3)
    world.note("fault", broker_id, action="defect")
    return act("raise_defect", broker=broker_id, partition=partition.at.partition, writes_left=replica.writes_left)


def mend(world: World, dice: Dice, swarm: Swarm) -> Act | None:
    """Repair a broker's disks. What is offline comes back when the broker restarts."""
    del swarm
    faulty = [b for b, broker in world.brokers.items() if broker.has_faults]
    if not faulty:
        return None
    broker_id = dice.choose(faulty)
    world.mend(broker_id)
    return act("mend", broker=broker_id)


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
"""What is added where brokers have more than one log directory."""
SEVERAL_DIRECTORIES = 0.4
"""The part of the histories in which they do."""


def swarm_of(seed: int, rule: str, power: str, directories: int | None = None) -> Swarm:
    """Draw the settings of the history with this seed.

    With ``directories`` its brokers have that number of log directories, whatever the seed says; None: one or two. With
    several there are as many partitions, or one more, so that a directory can hold two.

    In a history that must survive, a power loss takes what lies below no replica's high watermark, or, where
    ``log.flush.interval.messages=1``, whatever is not flushed. In one that may lose, any record that is not flushed.
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


class Lots:
    """Chooses a place by its weight: each has as many numbers below ``end`` as its weight has thousandths."""

    __slots__ = ("_places", "_unit", "end")

    def __init__(self, weights: Sequence[float]) -> None:
        thousandths = [round(weight * 1000) for weight in weights]
        self.end = sum(thousandths)
        self._unit = gcd(*thousandths)
        self._places: list[int] = []
        for place, count in enumerate(thousandths):
            self._places += [place] * (count // self._unit)

    def place(self, number: int) -> int:
        """Return the place that a number stands for."""
        return self._places[number // self._unit]
