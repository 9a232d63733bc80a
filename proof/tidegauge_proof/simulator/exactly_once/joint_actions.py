"""Actions of a history of consume, transform, produce beside the actions on its cluster."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tidegauge.groups import OffsetCommit, OffsetToCommit
from tidegauge_proof.simulator.coordinator_world import Process
from tidegauge_proof.simulator.exactly_once.clients import OUTPUTS, SIMPLE, SIMPLE_GROUP, Copier
from tidegauge_proof.simulator.exactly_once.cluster import OFFSETS, TRANSACTIONS, Call, Caller
from tidegauge_proof.simulator.exactly_once.stage import Stage

Action = Callable[[Stage], str | None]
"""Performs an action, and describes it in words; None if it has no object."""


def copier_acts(stage: Stage) -> str | None:
    """Have one of the copiers send what comes next."""
    return copier_asks(stage, stage.dice.choose(stage.copiers))


def copier_asks(stage: Stage, copier: Copier) -> str | None:
    """Have a copier send what comes next."""
    if copier.is_paused or copier.in_flight is not None:
        return None
    ask = copier.next_ask()
    if ask is None:
        return None
    if ask.to == "leader":
        broker_id = stage.cluster.leader_of(ask.request.at)
        call = copier.in_flight = object()
        stage.cluster.ask_leader(
            broker_id,
            ask.request,
            lambda error: _take(copier, call, error),
            lambda: copier.in_flight is call,
        )
        return f"{copier.name} writes to {ask.request.at} at {broker_id}"
    coordinators = "transaction" if ask.to == "transaction" else "group"
    if copier.coordinator(ask.to) < 0:
        copier.found(ask.to, stage.cluster.leader_of(TRANSACTIONS if ask.to == "transaction" else OFFSETS))
    broker_id = copier.coordinator(ask.to)
    sent = Call(copier, ask.request, lambda result: _take(copier, sent, result), lambda: copier.in_flight is sent)
    copier.in_flight = sent
    stage.cluster.ask_coordinator(coordinators, broker_id, sent)
    return f"{copier.name} sends {type(ask.request).__name__} to {broker_id}"


def _take(copier: Copier, call: object, result: Any) -> None:
    if copier.in_flight is call:
        copier.take(result)


def member_acts(stage: Stage) -> str | None:
    """Have one of the copiers send what brings it closer to an assignment, or a heartbeat."""
    return member_asks(stage, stage.dice.choose(stage.copiers), beats=True)


def member_asks(stage: Stage, copier: Copier, *, beats: bool) -> str | None:
    """Have a copier send its next request towards an assignment, or perhaps a heartbeat."""
    member = copier.member
    if copier.is_paused or (copier.is_closing and not member.is_stable):
        return None
    request = member.next_request() or (member.heartbeat() if beats else None)
    if request is None:
        return None
    kind, message = request
    if member.broker < 0:
        member.broker = stage.cluster.leader_of(OFFSETS)
    call = Call(
        copier, message, lambda result: _take_of_member(copier, kind, call, result), lambda: _waits(copier, call)
    )
    member.in_flight[kind] = call
    stage.cluster.ask_coordinator("group", member.broker, call)
    return f"{copier.name} sends {type(message).__name__} to {member.broker}"


def _waits(copier: Copier, call: object) -> bool:
    return any(one is call for one in copier.member.in_flight.values())


def _take_of_member(copier: Copier, kind: str, call: object, result: Any) -> None:
    if copier.member.in_flight.get(kind) is call:
        del copier.member.in_flight[kind]
        copier.member.responded(kind, result)


def simple_commit(stage: Stage) -> str | None:
    """Commit an offset outside of any transaction, which may meet a transactional one of the same partition."""
    number = stage.dice.below(1000)
    request = OffsetCommit(SIMPLE_GROUP, (OffsetToCommit(SIMPLE, 1000 + number),))
    call = Call(Caller("simple"), request, lambda _: None, lambda: True)
    stage.cluster.ask_coordinator("group", stage.cluster.leader_of(OFFSETS), call)
    return "a simple consumer commits"


def message_arrives(stage: Stage) -> str | None:
    """Deliver a message."""
    return stage.cluster.network.deliver_one()


def late_message_arrives(stage: Stage) -> str | None:
    """Deliver a copy of a request late."""
    return stage.cluster.network.deliver_late()


def copier_gives_up(stage: Stage) -> str | None:
    """Have a copier give a request up, which it will send again."""
    copier = stage.dice.choose(stage.copiers)
    if copier.is_paused:
        return None
    if stage.dice.happens(0.3) and copier.member.in_flight:
        del copier.member.in_flight[stage.dice.choose(sorted(copier.member.in_flight))]
        copier.member.broker = -1
        return f"{copier.name} gives up a request of its membership"
    if copier.in_flight is None:
        return None
    copier.give_up(forgets=stage.dice.happens(0.5))
    return f"{copier.name} gives up"


def copier_turns_away(stage: Stage) -> str | None:
    """Have a copier's producer give up what it has asked of a coordinator that was replaced; its consumer stays."""
    copier = stage.dice.choose(stage.copiers)
    role = copier.asks
    if copier.is_paused or not isinstance(copier.in_flight, Call) or role not in copier.brokers:
        return None
    at = TRANSACTIONS if role == "transaction" else OFFSETS
    if copier.brokers[role] == stage.cluster.partitions[at].state_now.leader:
        return None
    copier.give_up(forgets=True)
    return f"{copier.name}'s producer looks for another coordinator"


def coordinator_is_isolated(stage: Stage) -> str | None:
    """Partition the group coordinator from ZooKeeper and the other brokers, but not from its clients."""
    world, broker_id = stage.world, stage.cluster.partitions[OFFSETS].state_now.leader
    if broker_id not in world.brokers or broker_id in world.without_session or not world.is_up(broker_id):
        return None
    others = [one for one in world.brokers if one != broker_id]
    world.cut_links |= {(one, broker_id) for one in others} | {(broker_id, one) for one in others}
    world.expire(broker_id)
    return f"broker {broker_id} is isolated"


def copier_restarts(stage: Stage) -> str | None:
    """Kill a copier's process and start another one."""
    copier = stage.dice.choose(stage.copiers)
    copier.restart()
    copier.is_paused = False
    return f"{copier.name} restarts"


def copier_pauses(stage: Stage) -> str | None:
    """Pause a copier, or let it go on: it may be a zombie by then."""
    copier = stage.dice.choose(stage.copiers)
    if not copier.is_paused and stage.dice.happens(0.7):
        return None
    copier.is_paused = not copier.is_paused
    return f"{copier.name} is {'paused' if copier.is_paused else 'resumed'}"


def connection_breaks(stage: Stage) -> str | None:
    """Break the connection of a request from one broker to another."""
    requests = stage.cluster.in_flight
    if not requests:
        return None
    internal = stage.dice.choose(requests)
    internal.finish(None)
    return f"no response to the {internal.words}"


def reads(stage: Stage) -> str | None:
    """Let a consumer of committed records read."""
    reader = stage.dice.choose(stage.readers)
    return stage.cluster.read(reader, stage.cluster.leader_of(reader.at))


def load_goes_on(stage: Stage) -> str | None:
    """Continue a load."""
    found: list[tuple[Any, Process[Any]]] = [
        (one, process) for one in (stage.cluster.transactions, stage.cluster.groups) for process in one.loading()
    ]
    if not found:
        return None
    coordinators, process = stage.dice.choose(found)
    coordinators.go_on_loading(process)
    return f"broker {process.broker.broker_id} reads on"


def timers_run(stage: Stage) -> str | None:
    """Run the timers of the coordinators that are due."""
    return "timers run" if stage.cluster.step_timers() else None


def damage_output(stage: Stage) -> str | None:
    """Damage a batch of the output in the log of a running broker; what coordinators load stays sound."""
    if stage.world.brokers[min(stage.world.brokers)].directories < 2:
        return None
    partition = stage.cluster.partitions[stage.dice.choose(OUTPUTS)]
    broker_id = stage.dice.choose(list(partition.brokers))
    replica = partition.brokers[broker_id]
    if replica.damaged is not None or not replica.log.log_end_offset:
        return None
    offset = replica.damaged = replica.log.whole_batches_below(stage.dice.below(replica.log.log_end_offset))
    return f"offset {offset} of {partition.at} is damaged on broker {broker_id}"


def brokers_catch_up(stage: Stage) -> str | None:
    """Deliver what the controller has decided, and let every follower fetch, where links and processes allow.

    The checker looks after each of these events: one may truncate a log, and the next lower its high watermark.
    """
    world, look = stage.world, stage.cluster.checker.look_at_data
    if world.elected is None or world.elected in world.paused or world.elected not in world.controllers:
        return None
    world.decide_all()
    traffic = world.traffic
    for exchange in [*traffic.requests]:
        leader = exchange.chosen.leader
        if leader not in world.paused and not world.is_cut(exchange.follower.broker_id, leader):
            traffic.requests.remove(exchange)
            world.arrive(exchange, wait_ms=0)
            look()
    for exchange in [*traffic.responses]:
        follower = exchange.follower.broker_id
        if follower not in world.paused and not world.is_cut(follower, exchange.chosen.leader):
            traffic.responses.remove(exchange)
            world.deliver_response(exchange)
            look()
    for broker_id in world.brokers:
        if world.is_up(broker_id) and not world.is_cut(world.elected or 0, broker_id):
            world.deliver_all(broker_id)
            look()
            world.whole_round(broker_id)
            stage.cluster.settle()
    return "brokers catch up"


def time_passes(stage: Stage) -> str | None:
    """Let time pass for all."""
    ms = (50, 200, 500, 1000)[stage.dice.below(4)]
    stage.world.pass_time(ms)
    return f"{ms} ms pass"


ACTIONS_HERE: tuple[tuple[Action, float], ...] = (
    (copier_acts, 70),
    (member_acts, 14),
    (message_arrives, 130),
    (late_message_arrives, 3),
    (reads, 8),
    (brokers_catch_up, 7),
    (time_passes, 1.5),
    (load_goes_on, 14),
    (timers_run, 30),
    (connection_breaks, 0.3),
    (simple_commit, 0.3),
    (copier_gives_up, 0.2),
    (copier_turns_away, 0.6),
    (coordinator_is_isolated, 0.06),
    (copier_restarts, 0.03),
    (copier_pauses, 0.12),
    (damage_output, 0.03),
)
