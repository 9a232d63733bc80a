"""The replica state machine: which transitions are legal, and what each does in ZooKeeper and on the brokers.

``TRANSITIONS`` is the one table of legal transitions; an illegal one is skipped. A replica that goes offline is stopped
and leaves the ISR: the state is written only if the ISR holds it (leader -1 if it led, the last member stays, leader
epoch + 1); the other assigned replicas get LeaderAndIsr either way.
Source: kafka.controller.ReplicaStateMachine.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import assert_never

from tidegauge.cluster_metadata import Assignment, Leadership
from tidegauge.partition import TopicPartition
from tidegauge_controller.rules.election import Strategy, remove_from_isr
from tidegauge_controller.zookeeper.decisions.batch import RequestBatch
from tidegauge_controller.zookeeper.decisions.context import ControllerContext, Replica, ReplicaStatus
from tidegauge_controller.zookeeper.decisions.partition_machine import election_note
from tidegauge_controller.zookeeper.decisions.state_store import known_states, read_states, write_states
from tidegauge_controller.zookeeper.decisions.steps import ITEMS_PER_TURN, TURN, Steps

_S = ReplicaStatus

TRANSITIONS: dict[ReplicaStatus, frozenset[ReplicaStatus]] = {
    _S.NEW: frozenset({_S.NON_EXISTENT}),
    _S.ONLINE: frozenset({_S.NEW, _S.ONLINE, _S.OFFLINE, _S.DELETION_INELIGIBLE}),
    _S.OFFLINE: frozenset({_S.NEW, _S.ONLINE, _S.OFFLINE, _S.DELETION_INELIGIBLE}),
    _S.DELETION_STARTED: frozenset({_S.OFFLINE}),
    _S.DELETION_SUCCESSFUL: frozenset({_S.DELETION_STARTED}),
    _S.DELETION_INELIGIBLE: frozenset({_S.OFFLINE, _S.DELETION_STARTED}),
    _S.NON_EXISTENT: frozenset({_S.DELETION_SUCCESSFUL}),
}
"""Target state -> states from which it may be reached."""
# A member of an enumeration takes long to look up, and these are asked for with every replica.
_NEW = _S.NEW
_ONLINE = _S.ONLINE
_OFFLINE = _S.OFFLINE
_NON_EXISTENT = _S.NON_EXISTENT
_DELETION_INELIGIBLE = _S.DELETION_INELIGIBLE


def start_replicas(context: ControllerContext) -> Steps[None]:
    """Send each online replica its state and remove the others from the ISR (step 7 of the fail-over).

    Online ones begin as Online, the others as DeletionIneligible.
    """
    online: list[Replica] = []
    offline: list[Replica] = []
    for number, replica in enumerate(context.replicas(), 1):
        if not number % ITEMS_PER_TURN:
            yield TURN
        if context.is_online(replica.broker_id, replica.topic_partition):
            context.replica_status[replica] = _ONLINE
            online.append(replica)
        else:
            context.replica_status[replica] = _DELETION_INELIGIBLE
            offline.append(replica)
    yield from change_replicas(context, online, _ONLINE)
    yield from change_replicas(context, offline, _OFFLINE)


def change_replicas(
    context: ControllerContext, replicas: Sequence[Replica], target: ReplicaStatus
) -> Steps[dict[Replica, str]]:
    """Bring replicas into a state and send it to the brokers, in one batch.

    Returns:
        For each replica that did not reach it, why.
    """
    if not replicas:
        return {}
    batch = RequestBatch(context)
    failed: dict[Replica, str] = {}
    may_begin = TRANSITIONS[target]
    legal: dict[int, list[TopicPartition]] = {}
    for number, replica in enumerate(replicas, 1):
        if not number % ITEMS_PER_TURN:
            yield TURN
        of_broker = legal.setdefault(replica.broker_id, [])
        current = context.replica_status.setdefault(replica, _NON_EXISTENT)
        if current in may_begin:
            of_broker.append(replica.topic_partition)
        else:
            failed[replica] = f"its state {current.value} does not lead to {target.value}"
    problems: dict[TopicPartition, str]
    for broker_id, partitions in sorted(legal.items()):
        if target is _OFFLINE:
            problems = yield from _become_offline(context, broker_id, partitions, batch)
        else:
            problems = {}
            for first in range(0, len(partitions), ITEMS_PER_TURN):
                problems |= _change(context, broker_id, partitions[first : first + ITEMS_PER_TURN], target, batch)
                if first + ITEMS_PER_TURN < len(partitions):
                    yield TURN
        for at, problem in problems.items():
            failed[Replica(at, broker_id)] = problem
    yield batch.send()
    return failed


def _change(
    context: ControllerContext,
    broker_id: int,
    partitions: Sequence[TopicPartition],
    target: ReplicaStatus,
    batch: RequestBatch,
) -> dict[TopicPartition, str]:
    """Change one broker's replicas into any state but Offline, which takes requests to ZooKeeper."""
    match target:
        case _S.ONLINE:
            _become_online(context, broker_id, partitions, batch)
        case _S.NEW:
            return _become_new(context, broker_id, partitions, batch)
        case _S.DELETION_STARTED:
            for at in partitions:
                context.replica_status[Replica(at, broker_id)] = target
                batch.stop_replica(broker_id, at, delete=True)
        case _S.NON_EXISTENT:
            for at in partitions:
                context.set_assignment(at, context.assignment(at).without(broker_id))
                del context.replica_status[Replica(at, broker_id)]
        case _S.DELETION_SUCCESSFUL | _S.DELETION_INELIGIBLE:
            for at in partitions:
                context.replica_status[Replica(at, broker_id)] = target
        case _S.OFFLINE:
            raise AssertionError(target)
        case _:
            assert_never(target)
    return {}


def _become_new(
    context: ControllerContext, broker_id: int, partitions: Sequence[TopicPartition], batch: RequestBatch
) -> dict[TopicPartition, str]:
    failed: dict[TopicPartition, str] = {}
    for at in partitions:
        leadership = context.leadership.get(at)
        if leadership is not None:
            if leadership.leader == broker_id:
                failed[at] = "it leads the partition, so it is not new"
                continue
            batch.leader_and_isr([broker_id], at, is_new=True)
        context.replica_status[Replica(at, broker_id)] = _NEW
    return failed


def _become_online(
    context: ControllerContext, broker_id: int, partitions: Sequence[TopicPartition], batch: RequestBatch
) -> None:
    for at in partitions:
        replica = Replica(at, broker_id)
        if context.replica_status[replica] is _NEW:
            assignment = context.assignment(at)
            if broker_id not in assignment.replicas:
                grown = Assignment((*assignment.replicas, broker_id), assignment.adding, assignment.removing)
                context.set_assignment(at, grown)
        elif at in context.leadership:
            batch.leader_and_isr([broker_id], at, is_new=False)
        context.replica_status[replica] = _ONLINE


def _become_offline(
    context: ControllerContext, broker_id: int, partitions: Sequence[TopicPartition], batch: RequestBatch
) -> Steps[dict[TopicPartition, str]]:
    for number, at in enumerate(partitions, 1):
        if not number % ITEMS_PER_TURN:
            yield TURN
        batch.stop_replica(broker_id, at, delete=False)
    led = [at for at in partitions if at in context.leadership]
    updated, failed = yield from _remove_from_isr(context, broker_id, led)
    for number, at in enumerate(partitions, 1):
        if not number % ITEMS_PER_TURN:
            yield TURN
        if at in updated:
            if not context.is_to_be_deleted(at.topic):
                others = [other for other in context.assignment(at).replicas if other != broker_id]
                batch.leader_and_isr(others, at, is_new=False)
        elif at not in failed:
            batch.update_metadata(context.live_or_shutting_down, [at])
        if at not in failed:
            context.replica_status[Replica(at, broker_id)] = _OFFLINE
    return failed


def _remove_from_isr(
    context: ControllerContext, broker_id: int, partitions: Sequence[TopicPartition]
) -> Steps[tuple[dict[TopicPartition, Leadership], dict[TopicPartition, str]]]:
    """Remove a replica from ISRs until each state is written or failed.

    Returns:
        The state of each partition now, written or unchanged; and what failed.
    """
    updated: dict[TopicPartition, Leadership] = {}
    failed: dict[TopicPartition, str] = {}
    remaining = list(partitions)
    from_memory = True
    while remaining:
        found, unusable = yield from (
            known_states(context, remaining) if from_memory else read_states(context, remaining)
        )
        shrunk: dict[TopicPartition, Leadership] = {}
        for number, (at, state) in enumerate(found.items(), 1):
            if not number % ITEMS_PER_TURN:
                yield TURN
            if broker_id in state.isr:
                shrunk[at] = remove_from_isr(state, broker_id, context.epoch)
            else:
                is_own = state.controller_epoch == context.epoch
                updated[at] = context.leadership[at] = (
                    state if is_own else replace(state, controller_epoch=context.epoch)
                )
        written, raced, unwritten = yield from write_states(context, shrunk)
        remaining = [*raced, *unusable, *unwritten] if from_memory else raced
        if not from_memory:
            failed |= {at: problem for at, problem in unusable.items() if not context.is_to_be_deleted(at.topic)}
            failed |= unwritten
        from_memory = False
        updated |= written
        for at in written:
            yield election_note(context, at, Strategy.REMOVE_FROM_ISR)
    return updated, failed
