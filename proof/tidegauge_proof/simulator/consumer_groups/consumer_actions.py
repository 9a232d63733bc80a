"""Actions of a history with a consumer group, beside the actions on the cluster under it."""

from __future__ import annotations

from collections.abc import Callable

from tidegauge.groups import GroupRequest
from tidegauge_proof.simulator.consumer_groups.consumer_world import ConsumerWorld
from tidegauge_proof.simulator.consumer_groups.consumers import Call, Consumer
from tidegauge_proof.simulator.coordinator_actions import load_goes_on, request_arrives, timers_run
from tidegauge_proof.simulator.coordinator_world import Response
from tidegauge_proof.simulator.dice import Dice

ConsumerAction = Callable[["Consumers", ConsumerWorld, Dice], str | None]
"""Performs an action, and describes it in words; None if it has no object."""


class Consumers:
    """The consumers of the group, and the numbers of what they send and commit."""

    def __init__(self, count: int, static: int, broker: int) -> None:
        self.all = [
            Consumer(f"c{number}", f"i{number}" if number < static else None, broker) for number in range(count)
        ]
        self.positions = 0
        self._calls = 0

    def call(self, consumer: Consumer | None, request: GroupRequest) -> Call:
        """Return a call of its own number."""
        self._calls += 1
        return Call(self._calls, consumer, request)


def consumer_beats(consumers: Consumers, cluster: ConsumerWorld, dice: Dice) -> str | None:
    """Have a consumer send its next heartbeat."""
    consumer = dice.choose(consumers.all)
    return _send(consumers, cluster, dice, consumer, "heartbeat", consumer.heartbeat())


def consumer_revokes(consumers: Consumers, cluster: ConsumerWorld, dice: Dice) -> str | None:
    """Have a consumer stop reading what it may read no longer."""
    del cluster
    consumer = dice.choose(consumers.all)
    return f"{consumer.name} revokes, and reads {sorted(consumer.reads)}" if consumer.revoke() else None


def consumer_commits(consumers: Consumers, cluster: ConsumerWorld, dice: Dice) -> str | None:
    """Have a consumer commit a position that was never committed before."""
    consumer = dice.choose(consumers.all)
    request = consumer.commit(consumers.positions + 1)
    if request is not None:
        consumers.positions += 1
    return _send(consumers, cluster, dice, consumer, "commit", request)


def consumer_leaves(consumers: Consumers, cluster: ConsumerWorld, dice: Dice) -> str | None:
    """Have a consumer leave in order; a static one leaves for a while."""
    consumer = dice.choose(consumers.all)
    request = consumer.leave()
    if request is not None:
        cluster.checker.has_dropped(consumer)
    return _send(consumers, cluster, dice, consumer, "leave", request)


def consumer_restarts(consumers: Consumers, cluster: ConsumerWorld, dice: Dice) -> str | None:
    """Restart a consumer's process, which may have ended in order or not; its requests may still be in flight."""
    consumer = dice.choose(consumers.all)
    if not consumer.is_over and dice.below(10):
        return None
    consumer.restart()
    cluster.checker.has_dropped(consumer)
    return f"{consumer.name} restarts as {consumer.member_id}"


def consumer_gives_up(consumers: Consumers, cluster: ConsumerWorld, dice: Dice) -> str | None:
    """Have a consumer give up a request; it may look for the coordinator elsewhere."""
    del cluster
    consumer = dice.choose(consumers.all)
    if not consumer.in_flight:
        return None
    kind = dice.choose(sorted(consumer.in_flight))
    consumer.give_up(kind)
    if dice.happens(0.5):
        consumer.broker = -1
    return f"{consumer.name} gives up its {kind}"


def response_arrives(consumers: Consumers, cluster: ConsumerWorld, dice: Dice) -> str | None:
    """Deliver a response, in any order; it may be lost."""
    del consumers
    if not cluster.responses:
        return None
    response = cluster.responses.pop(dice.below(len(cluster.responses)))
    name = f"response to {type(response.call.request).__name__} {response.call.number}"
    if dice.below(20) == 1:
        return f"{name} is lost"
    deliver(cluster, response)
    return f"{name} arrives: {response.result}"


def deliver(cluster: ConsumerWorld, response: Response) -> None:
    """Hand a response to the consumer that waits for it, if it still does."""
    call: Call = response.call
    consumer = call.consumer
    if consumer is None:
        return
    for kind, waiting in list(consumer.in_flight.items()):
        if waiting is call:
            del consumer.in_flight[kind]
            before = consumer.reads
            consumer.responded(kind, response.result)
            cluster.checker.takes(consumer, consumer.reads - before)
            if not consumer.reads:
                cluster.checker.has_dropped(consumer)


def _send(
    consumers: Consumers,
    cluster: ConsumerWorld,
    dice: Dice,
    consumer: Consumer,
    kind: str,
    request: GroupRequest | None,
) -> str | None:
    if request is None:
        return None
    if consumer.broker < 0:
        consumer.broker = _found(cluster, dice)
    call = consumers.call(consumer, request)
    consumer.in_flight[kind] = call
    cluster.send(call, consumer.broker)
    return f"{consumer.name} sends {type(request).__name__} {call.number} to {consumer.broker}: {request}"


def _found(cluster: ConsumerWorld, dice: Dice) -> int:
    """Return FindCoordinator's response: mostly the leader, sometimes what a broker's old metadata say."""
    leader = cluster.world.state_now.leader
    brokers = list(cluster.world.brokers)
    return leader if leader in brokers and dice.below(6) else dice.choose(brokers)


CONSUMER_ACTIONS: tuple[tuple[ConsumerAction, float], ...] = (
    (consumer_beats, 40),
    (consumer_revokes, 12),
    (consumer_commits, 8),
    (request_arrives, 60),
    (response_arrives, 60),
    (load_goes_on, 12),
    (timers_run, 12),
    (consumer_gives_up, 0.7),
    (consumer_restarts, 2),
    (consumer_leaves, 0.8),
)
