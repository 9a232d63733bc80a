"""One simulated history of transactions: a cluster that fails, producers that restart, a network that loses requests.

The cluster is ``simulation``'s: the real replication core, the controller's real decisions, the same faults. Its
one partition is __transaction_state; on every broker runs the real transaction coordinator. After the faults everything
is delivered, the timeouts pass, and acknowledged effects must be there.

In histories with late requests, what a producer has given up arrives nevertheless, which ends transactions that it was
not meant for: Kafka 3.9 behaves so (docs/transactions.md), and T7 is not asked for there. Transactions v2 are cured of
that (KIP-890, part 2): T7 is asked for theirs in all histories.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from tidegauge.collections_off import collections_off
from tidegauge.errors import ErrorCode
from tidegauge.transaction_marker import Outcome
from tidegauge.transactions import AddPartitionsToTxnResult
from tidegauge_proof.simulator.coordinator_actions import load_goes_on, timers_run
from tidegauge_proof.simulator.coordinator_history import History, acted, staged
from tidegauge_proof.simulator.coordinator_world import Response, Sending
from tidegauge_proof.simulator.dice import Dice
from tidegauge_proof.simulator.simulation import end_faults, rest, right_wall_clocks
from tidegauge_proof.simulator.transactions.data import V2
from tidegauge_proof.simulator.transactions.producers import PARTITIONS, Phase, Producer
from tidegauge_proof.simulator.transactions.raising_producers import RaisingProducer
from tidegauge_proof.simulator.transactions.transaction_checker import TransactionChecker
from tidegauge_proof.simulator.transactions.transaction_world import TransactionWorld
from tidegauge_proof.simulator.world import World

TransactionAction = Callable[[list[Producer], TransactionWorld, Dice], str | None]
"""Performs an action, and describes it in words; None if it has no object."""
_CLUSTER_SHARE = 0.2
_EMPTY_ENDS = 8
"""Of as many transactions of a producer of v2 one is aborted before anything is written."""
_V1_SHARE = 4
"""Of as many producers of a history of v2 one speaks v1."""
_REST_ROUNDS = 40
_REST_MS = 1000


class TransactionHistory(History):
    """The result of a seed.

    Attributes:
        transactions: how many were begun.
        committed: how many were acknowledged as committed.
        markers: how many left a coordinator.
    """

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.transactions = 0
        self.committed = 0
        self.markers = 0


# Actions


def producer_acts(producers: list[Producer], cluster: TransactionWorld, dice: Dice) -> str | None:
    """Have a producer do what comes next: a request, a transaction, a record, the end."""
    producer = dice.choose(producers)
    if producer.phase is Phase.READY and producer.speaks_v2 and dice.below(_EMPTY_ENDS) == 0:
        producer.begin(())
        producer.end(Outcome.ABORT)
    elif producer.phase is Phase.READY:
        chosen = tuple(name for name in PARTITIONS if dice.happens(0.6))
        producer.begin(chosen or PARTITIONS[:1])
    if producer.has_written_all:
        producer.end(Outcome.ABORT if dice.happens(0.3) else Outcome.COMMIT)
    elif producer.phase is Phase.PRODUCING:
        written = producer.next_datum(len(producer.stories))
        assert written is not None
        cluster.produce(producer, *written)
        return f"{producer.name} writes {written[1].value} to {written[0]}"
    request = producer.next_request()
    if request is None:
        return None
    if producer.broker < 0:
        producer.broker = cluster.leader()
    call = producer.in_flight = cluster.call(producer, request)
    cluster.send(call, producer.broker)
    return f"{producer.name} sends {type(request).__name__} {call.number} to {producer.broker}"


def producer_restarts(producers: list[Producer], cluster: TransactionWorld, dice: Dice) -> str | None:
    """Restart a producer's process; its requests may still be in flight."""
    del cluster
    producer = dice.choose(producers)
    producer.restart()
    return f"{producer.name} restarts"


def producer_gives_up(producers: list[Producer], cluster: TransactionWorld, dice: Dice) -> str | None:
    """Have a producer give a request up; it sends the same one again, perhaps to another broker."""
    del cluster
    producer = dice.choose(producers)
    if producer.in_flight is None:
        return None
    producer.in_flight = None
    if dice.happens(0.5):
        producer.broker = -1
    return f"{producer.name} gives up"


def request_arrives(producers: list[Producer], cluster: TransactionWorld, dice: Dice) -> str | None:
    """Deliver a request, in any order; it may be lost, or delivered once more later."""
    del producers
    if not cluster.requests:
        return None
    index = dice.below(len(cluster.requests))
    sending = cluster.requests[index]
    fate = dice.below(20)
    if fate != 2:
        del cluster.requests[index]
    if 3 <= fate < 10 and cluster.allows_late:
        cluster.late.append(sending)
    name = f"{type(sending.call.request).__name__} {sending.call.number}"
    if fate == 1 or (cluster.is_late(sending.call) and not cluster.allows_late):
        cluster.requests = [one for one in cluster.requests if one is not sending]
        return f"{name} is lost"
    cluster.arrive(sending)
    return f"{name} arrives at {sending.broker_id}"


def late_request_arrives(producers: list[Producer], cluster: TransactionWorld, dice: Dice) -> str | None:
    """Deliver a copy of a request long after the request, when its producer may be further on."""
    del producers
    if cluster.late_markers and dice.happens(0.5):
        cluster.write_markers(cluster.late_markers.pop(dice.below(len(cluster.late_markers))))
        return "late markers arrive"
    if not cluster.late:
        return None
    sending = cluster.late.pop(dice.below(len(cluster.late)))
    cluster.arrive(Sending(sending.call, cluster.leader()))
    return f"{type(sending.call.request).__name__} {sending.call.number} arrives late"


def response_arrives(producers: list[Producer], cluster: TransactionWorld, dice: Dice) -> str | None:
    """Deliver a response, in any order; it may be lost."""
    del producers
    if not cluster.responses:
        return None
    response = cluster.responses.pop(dice.below(len(cluster.responses)))
    name = f"response to {type(response.call.request).__name__} {response.call.number}"
    if dice.below(20) == 1:
        return f"{name} is lost"
    deliver(cluster, response)
    return f"{name} arrives: {response.result}"


def deliver(cluster: TransactionWorld, response: Response) -> None:
    """Hand a response to the caller, if the caller still waits for it."""
    call = response.call
    if call.datum is not None:
        assert isinstance(response.result, AddPartitionsToTxnResult)
        error: ErrorCode = next(iter(response.result.partitions.values()))
        cluster.verified(call, error)
    elif call.producer.in_flight is call:
        call.producer.responded(response.result)


def markers_arrive(producers: list[Producer], cluster: TransactionWorld, dice: Dice) -> str | None:
    """Deliver a request for markers; its connection may break before, after, or instead."""
    del producers
    if not cluster.markers:
        return None
    request = cluster.markers.pop(dice.below(len(cluster.markers)))
    fate = dice.below(20)
    if fate in {1, 2}:
        request.is_lost = True
        cluster.finish_markers(request)
        if fate == 2 and cluster.allows_late:
            (cluster.late_markers if cluster.has_v2 else cluster.markers).append(request)
        return "a request for markers is lost"
    cluster.write_markers(request)
    return "markers are written"


def marker_response_arrives(producers: list[Producer], cluster: TransactionWorld, dice: Dice) -> str | None:
    """Deliver the response to a request for markers, or break its connection."""
    del producers
    if not cluster.marker_responses:
        return None
    response = cluster.marker_responses.pop(dice.below(len(cluster.marker_responses)))
    if dice.below(20) == 1:
        response.errors = None
    cluster.finish_markers(response)
    return "the response to markers arrives" if response.errors is not None else "the response to markers is lost"


TRANSACTION_ACTIONS: tuple[tuple[TransactionAction, float], ...] = (
    (producer_acts, 50),
    (request_arrives, 60),
    (response_arrives, 60),
    (late_request_arrives, 5),
    (markers_arrive, 25),
    (marker_response_arrives, 25),
    (load_goes_on, 14),
    (timers_run, 8),
    (producer_gives_up, 3),
    (producer_restarts, 0.5),
)


# Histories


def transaction_history_of(
    seed: int,
    steps: int,
    *,
    allows_late: bool = False,
    judges: bool | None = None,
    tells: bool = False,
    version: int = 0,
) -> TransactionHistory:
    """Run a seed; the same seed gives the same history.

    Args:
        seed: of the dice.
        steps: how many to do before everything is healed.
        allows_late: whether requests arrive that their sender has given up.
        judges: whether T7 is asked for; None: unless requests may be late.
        tells: whether to keep what each step did.
        version: ``transaction.version``; with 2 most producers speak v2, and T7 is asked for theirs in any case.
    """
    asks = not allows_late if judges is None else judges
    with collections_off():
        return _run(seed, steps, allows_late=allows_late, judges=asks, tells=tells, version=version)


def _run(seed: int, steps: int, *, allows_late: bool, judges: bool, tells: bool, version: int) -> TransactionHistory:
    history = TransactionHistory(seed)
    dice = Dice(seed)
    stage = staged(seed)
    world = stage.world
    world.tells = tells
    checker = TransactionChecker(stage.partition)
    cluster = TransactionWorld(world, checker, dice, allows_late=allows_late, judges=judges, version=version)
    first = min(world.brokers)
    producers = [
        (RaisingProducer if version >= V2 and (seed + number) % _V1_SHARE else Producer)(
            f"p{number}", f"id{number // (1 + seed % 2)}", first
        )
        for number in range(2 + seed % 2)
    ]
    acts = acted(stage, dice, producers, cluster, TRANSACTION_ACTIONS, _CLUSTER_SHARE)
    history.play(steps, partial(next, acts), partial(_heal, world, cluster, producers), tells=tells)
    stories = [story for producer in producers for story in producer.stories]
    history.transactions = len(stories)
    history.committed = sum(story.is_acknowledged and story.end is Outcome.COMMIT for story in stories)
    history.markers, history.loads, history.died_with = checker.markers, checker.loads, checker.died_with
    history.inputs = world.inputs + cluster.inputs
    return history


def _heal(world: World, cluster: TransactionWorld, producers: list[Producer]) -> None:
    """End the faults and the producers; every transaction must come to its end by its timeout."""
    end_faults(world)
    right_wall_clocks(world)
    rest(world)
    cluster.is_calm = True
    cluster.run()
    for _ in range(_REST_ROUNDS):
        _deliver_all(cluster)
        if world.now_ms and _is_over(cluster):
            break
        world.pass_time(_REST_MS)
        cluster.run()
        cluster.step_timers()
    _deliver_all(cluster)
    stories = [story for producer in producers for story in producer.stories]
    cluster.checker.at_rest(cluster, stories, judges=cluster.judges)


def _is_over(cluster: TransactionWorld) -> bool:
    """Return whether no transaction is open, and nothing can open one."""
    process = cluster.processes.get(cluster.world.state_now.leader)
    if process is None or process.load is not None or cluster.requests or cluster.markers:
        return False
    views = process.coordinator.transaction_views()
    return all(view.pending_state is None and view.state.value.startswith(("Empty", "Complete")) for view in views)


def _deliver_all(cluster: TransactionWorld) -> None:
    """Deliver everything in flight, once; followers fetch until all is committed."""
    for _ in range(8):
        cluster.replicate()
        requests, cluster.requests = cluster.requests, []
        for sending in requests:
            if cluster.allows_late or not cluster.is_late(sending.call):
                cluster.arrive(sending)
        responses, cluster.responses = cluster.responses, []
        for response in responses:
            deliver(cluster, response)
        markers, cluster.markers = cluster.markers, []
        for request in markers:
            cluster.write_markers(request)
        written, cluster.marker_responses = cluster.marker_responses, []
        for response_of_markers in written:
            cluster.finish_markers(response_of_markers)
