"""Reassignment of partitions: the checks, and Kafka's phases from the first znode to the last (KIP-455).

With ORS the original and TRS the target replicas, RS = TRS followed by those only in ORS, AR = TRS - ORS (added) and RR
= ORS - TRS (removed):

| phase | action |
|---|---|
| U1 | write RS, AR and RR to the topic's znode |
| U2 | take them into the context |
| U3 | if this replaces an earlier reassignment: stop and delete the replicas that are no longer needed |
| A1 | TRS is not yet part of the ISR: leader epoch + 1, LeaderAndIsr with RS, AR, RR to all, isNew to AR |
| A2 | AR become NewReplica; now the leader adds them to the ISR, one AlterPartition after the other |
| B1 | TRS is part of the ISR: AR become OnlineReplica |
| B2 | RS = TRS in the context |
| B3 | leader outside TRS, or dead: the reassign election; else leader epoch + 1, LeaderAndIsr with RS = TRS |
| B4 | RR go offline: out of the ISR, leader epoch + 1 for each that was in it |
| B5 | delete RR |
| B6 | write TRS alone to the topic's znode |
| B7 | forget the reassignment, in ``/admin/reassign_partitions`` as well |
| B8 | UpdateMetadata to all; resume a deletion of the topic that waited |

Rules:
    1. The topic's znode is authoritative: a new controller, and a target's broker that restarts, resume from it. Every
       phase may be repeated.
    2. To cancel is to reassign to ORS: TRS is in the ISR or was before, so it ends at once.
    3. Three things are stricter than in Kafka. U1 and B6 change their partition alone, expecting the version read, so
       that partitions which an admin adds meanwhile are kept. B6 waits until the live brokers in RR have responded to
       their deletion: a controller that dies before leaves no replica behind on their disks. And a deletion waits for
       all the topic's reassignments (Kafka: for the first that ends), except those that cannot end: no leader is
       elected for a topic to be deleted, so the reassignment of a partition without a leader is abandoned.

Source: KafkaController.onPartitionReassignment and the methods that it calls.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace

from tidegauge.cluster_metadata import Assignment, Leadership
from tidegauge.control import PartitionsResponse
from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.partition import TopicPartition
from tidegauge.znodes import (
    REASSIGN_PARTITIONS,
    MalformedZnode,
    TopicNode,
    decode_reassignments,
    encode_reassignments,
    topic_path,
)
from tidegauge_controller.rules.election import Strategy
from tidegauge_controller.zookeeper.decisions.batch import RequestBatch
from tidegauge_controller.zookeeper.decisions.context import ControllerContext, PartitionStatus, Replica, ReplicaStatus
from tidegauge_controller.zookeeper.decisions.deletion import process_stop_replica_response, resume_deletions
from tidegauge_controller.zookeeper.decisions.partition_machine import ElectionChoice, change_partitions
from tidegauge_controller.zookeeper.decisions.replica_machine import change_replicas
from tidegauge_controller.zookeeper.decisions.state_store import read_states, write_states
from tidegauge_controller.zookeeper.decisions.steps import (
    DeleteNode,
    Note,
    Outcome,
    Read,
    ReadResult,
    SetNode,
    Steps,
    Write,
    WriteResult,
)

Verdict = tuple[ErrorCode, str]
"""The outcome of a partition's request."""
DONE: Verdict = (ErrorCode.NONE, "")
NONE_RUNS: Verdict = (ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, "No partition reassignment is in progress.")
LEGACY_REQUEST = "ZkPartitionReassignment"
"""Name of the event of a change of ``/admin/reassign_partitions``."""
NO_PARTITION: Verdict = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "The partition does not exist.")


# Requests


def check_target(context: ControllerContext, at: TopicPartition, target: Sequence[int]) -> Verdict | None:
    """Return the first of Kafka's objections to these replicas, or None."""
    refused = ErrorCode.INVALID_REPLICA_ASSIGNMENT
    if not target:
        return refused, "Empty replica list specified in partition reassignment."
    if len(set(target)) != len(target):
        return refused, f"Duplicate replica ids in partition reassignment replica list: {list(target)}"
    if any(replica < 0 for replica in target):
        return refused, f"Invalid broker id in replica list: {list(target)}"
    adding = context.assignment(at).reassigned_to(target).adding
    if not context.live_brokers.issuperset(adding):
        return refused, (
            f"Replica assignment has brokers that are not alive. Replica list: {list(adding)}, "
            f"live broker list: {sorted(context.live_brokers)}"
        )
    return None


def alter_reassignments(
    context: ControllerContext, wanted: Mapping[TopicPartition, Sequence[int] | None]
) -> Steps[dict[TopicPartition, Verdict]]:
    """Begin, replace or cancel (None) reassignments, each partition by itself.

    The response says that a reassignment has begun; of a cancellation, that it is done except for deletions in
    progress.
    """
    context.cause = "ApiPartitionReassignment"
    verdicts: dict[TopicPartition, Verdict] = {}
    accepted: dict[TopicPartition, Assignment] = {}
    for at, target in wanted.items():
        problem = None if target is None else check_target(context, at, target)
        assignment = context.assignment(at)
        if problem is not None:
            verdicts[at] = problem
        elif target is not None:
            accepted[at] = assignment.reassigned_to(target)
        elif assignment.is_reassigning:
            accepted[at] = assignment.reassigned_to(assignment.origin)
        else:
            verdicts[at] = NONE_RUNS
    yield from _remove_from_legacy(lambda at, _: at in accepted)
    return verdicts | (yield from _begin(context, accepted))


def list_reassignments(
    context: ControllerContext, partitions: Collection[TopicPartition] | None = None
) -> dict[TopicPartition, Assignment]:
    """Return the reassignments in progress, of these partitions or (None) of all."""
    asked = context.reassigning if partitions is None else partitions
    shown = {at: _as_it_runs(context, at) for at in sorted(asked)}
    return {at: assignment for at, assignment in shown.items() if assignment.is_reassigning}


def asked_to_list(
    context: ControllerContext, partitions: Collection[TopicPartition] | None
) -> Steps[dict[TopicPartition, Assignment]]:
    """Return the same as an event, ordered with other clients' requests."""
    yield from ()
    return list_reassignments(context, partitions)


def process_legacy_znode(context: ControllerContext) -> Steps[None]:
    """Handle that ``/admin/reassign_partitions`` was created or changed."""
    context.cause = LEGACY_REQUEST
    yield from process_legacy_reassignments(context)


def _as_it_runs(context: ControllerContext, at: TopicPartition) -> Assignment:
    """Return the assignment with replicas until their brokers deleted them (rule 3)."""
    assignment = context.assignment(at)
    leaving = tuple(sorted(context.removals.get(at, ())))
    return Assignment((*assignment.replicas, *leaving), (), leaving) if leaving else assignment


def process_legacy_reassignments(context: ControllerContext) -> Steps[frozenset[TopicPartition]]:
    """Begin the reassignments in ``/admin/reassign_partitions``, as tools before KIP-455 create it.

    The targets are accepted as they are; as in Kafka it is not checked whether their brokers are alive. Reassignments
    that cannot begin are removed from the znode, completed ones by B7; the znode is deleted with its last partition.
    Later changes of the znode are ignored: the controller makes them itself.

    Returns:
        The partitions whose reassignment was begun.
    """
    wanted, created = yield from _read_legacy()
    if wanted is None or created == context.legacy_reassignment_seen:
        return frozenset()
    context.legacy_reassignment_seen = created
    usable = {at: target for at, target in wanted.items() if target and len(set(target)) == len(target)}
    verdicts: dict[TopicPartition, Verdict] = {
        at: (ErrorCode.INVALID_REPLICA_ASSIGNMENT, "") for at in wanted if at not in usable
    }
    accepted = {at: context.assignment(at).reassigned_to(target) for at, target in usable.items()}
    verdicts |= yield from _begin(context, accepted)
    failed = {at for at, (error, _) in verdicts.items() if error is not ErrorCode.NONE}
    if failed or not wanted:
        yield from _remove_from_legacy(lambda at, _: at in failed)
    return frozenset(wanted) - failed


# Continuation without requests


def resume_reassignments(
    context: ControllerContext, begun: Collection[TopicPartition] = (), target_brokers: Collection[int] | None = None
) -> Steps[None]:
    """Resume after a fail-over, or (with ``target_brokers``) when a target's broker has restarted."""
    yield from give_up_where_deleted(context)
    for at in sorted(context.reassigning):
        assignment = context.assignment(at)
        if at in begun or at in context.removals:
            continue
        if target_brokers is None or any(replica in target_brokers for replica in assignment.target):
            yield from _or_note(context, at, _reassign(context, at, assignment))


def give_up_where_deleted(context: ControllerContext) -> Steps[None]:
    """Abandon reassignments that can't end, for which a topic's deletion would wait forever (rule 3)."""
    for at in sorted(context.reassigning):
        known = context.leadership.get(at)
        led = known is not None and context.is_online(known.leader, at)
        if context.is_to_be_deleted(at.topic) and not led:
            context.reassigning.discard(at)
            context.removals.pop(at, None)
            yield from _deletion_goes_on(context, at.topic)


def complete_reassignments(context: ControllerContext) -> Steps[None]:
    """Complete those reassignments whose targets are all in sync, after in-sync replicas have changed."""
    context.cause = "PartitionReassignmentIsrChange"
    for at in sorted(context.reassigning - context.removals.keys()):
        assignment = context.assignment(at)
        known = context.leadership.get(at)
        if known is None or not set(assignment.target) <= set(known.isr):
            continue  # a target that is not in sync in memory saves a read for every change of an ISR
        if (yield from _is_complete(context, at, assignment)):
            yield from _or_note(context, at, _reassign(context, at, assignment))


def process_replicas_removed(
    context: ControllerContext, broker_id: int, partitions: Iterable[TopicPartition]
) -> Steps[None]:
    """Write B6 where a broker that has responded to the deletion of replicas, or died, was the last one to wait for."""
    for at in sorted(set(partitions) & context.removals.keys()):
        context.removals[at].discard(broker_id)
        if not context.removals[at]:
            yield from _or_note(context, at, _finish(context, at))


def process_replicas_deleted(
    context: ControllerContext, broker_id: int, deleted: Sequence[TopicPartition], response: PartitionsResponse
) -> Steps[None]:
    """Handle the outcome of a replica deletion: for a reassignment, which continues either way, or for a topic."""
    context.cause = "StopReplicaResponse"
    yield from process_replicas_removed(context, broker_id, deleted)
    yield from process_stop_replica_response(context, broker_id, deleted, response)


def process_removers_died(context: ControllerContext, broker_ids: Collection[int]) -> Steps[None]:
    """Handle dead brokers: what they have to delete stays on their disks, as in Kafka."""
    yield from give_up_where_deleted(context)
    for broker_id in broker_ids:
        yield from process_replicas_removed(context, broker_id, list(context.removals))


# The phases


def _begin(
    context: ControllerContext, wanted: Mapping[TopicPartition, Assignment]
) -> Steps[dict[TopicPartition, Verdict]]:
    verdicts: dict[TopicPartition, Verdict] = {}
    for at, assignment in wanted.items():
        if context.is_to_be_deleted(at.topic) or not context.assignment(at).replicas:
            verdicts[at] = NO_PARTITION
        else:
            verdicts[at] = yield from _or_note(context, at, _reassign(context, at, assignment))
    return verdicts


def _or_note(context: ControllerContext, at: TopicPartition, steps: Steps[None]) -> Steps[Verdict]:
    """Run one partition's phases; its failure is logged and affects no other partition."""
    try:
        yield from steps
    except TidegaugeError as problem:
        yield _note(context, at, "failed", {"problem": problem.message})
        return problem.code, problem.message
    return DONE


def _reassign(context: ControllerContext, at: TopicPartition, wanted: Assignment) -> Steps[None]:
    """Run the phases of KafkaController.onPartitionReassignment.

    Raises:
        TidegaugeError: a znode in ZooKeeper is missing or malformed; the reassignment stays as it is.
    """
    if context.is_to_be_deleted(at.topic):
        context.topics_ineligible_for_deletion.add(at.topic)
    yield from _update(context, at, wanted)
    if not (yield from _is_complete(context, at, wanted)):
        if at in context.leadership:  # a partition that never had a leader has no epoch yet
            yield from _bump_leader_epoch(context, at)  # A1
        yield from change_replicas(context, [Replica(at, r) for r in wanted.adding], ReplicaStatus.NEW)  # A2
        return
    yield from change_replicas(context, [Replica(at, r) for r in wanted.adding], ReplicaStatus.ONLINE)  # B1
    context.set_assignment(at, Assignment(wanted.target))  # B2
    yield from _move_leader(context, at)  # B3
    yield from _stop_and_delete(context, at, wanted.removing)  # B4, B5
    waited_for = set(wanted.removing) & context.live_or_shutting_down
    if waited_for:
        context.removals[at] = waited_for
    else:
        yield from _finish(context, at)


def _update(context: ControllerContext, at: TopicPartition, wanted: Assignment) -> Steps[None]:
    """Run phases U1 to U3."""
    before = context.assignment(at)
    context.removals.pop(at, None)
    if before != wanted:
        yield from _write_assignment(at, wanted)
        context.set_assignment(at, wanted)
        yield _note(context, at, _word(before, wanted), {})
    context.reassigning.add(at)
    unneeded = tuple(replica for replica in before.replicas if replica not in wanted.replicas)
    yield from _stop_and_delete(context, at, unneeded)


def _word(before: Assignment, wanted: Assignment) -> str:
    if not before.is_reassigning:
        return "started"
    return "replaced" if wanted.is_reassigning else "cancelled"


def _is_complete(context: ControllerContext, at: TopicPartition, assignment: Assignment) -> Steps[bool]:
    """Return whether ZooKeeper's ISR holds all of the target."""
    if not assignment.is_reassigning:
        return True
    found, _ = yield from read_states(context, [at])
    return at in found and set(assignment.target) <= set(found[at].isr)


def _bump_leader_epoch(context: ControllerContext, at: TopicPartition) -> Steps[None]:
    """Write leader epoch + 1 and send LeaderAndIsr, so that all learn the replicas; leader and ISR stay.

    Raises:
        TidegaugeError: the state znode is missing, malformed, or a newer controller's.
    """
    written: dict[TopicPartition, Leadership] = {}
    while not written:
        found, unusable = yield from read_states(context, [at])
        failed = dict(unusable)
        for state in found.values():
            next_state = replace(state, leader_epoch=state.leader_epoch + 1, controller_epoch=context.epoch)
            written, _, failed = yield from write_states(context, {at: next_state})
        if failed:
            raise TidegaugeError(ErrorCode.UNKNOWN_SERVER_ERROR, f"{at}: {failed[at]}")
    assignment = context.assignment(at)
    batch = RequestBatch(context)
    batch.leader_and_isr(assignment.origin, at, is_new=False)
    batch.leader_and_isr(assignment.adding, at, is_new=True)
    yield batch.send()


def _move_leader(context: ControllerContext, at: TopicPartition) -> Steps[None]:
    """Run phase B3."""
    known = context.leadership.get(at)
    if known is not None and known.leader in context.assignment(at).replicas and context.is_online(known.leader, at):
        yield from _bump_leader_epoch(context, at)
    else:
        yield from change_partitions(context, [at], PartitionStatus.ONLINE, ElectionChoice(Strategy.REASSIGN))


def _stop_and_delete(context: ControllerContext, at: TopicPartition, broker_ids: Sequence[int]) -> Steps[None]:
    """Take replicas offline, out of the ISR, then delete and forget them."""
    replicas = [Replica(at, broker_id) for broker_id in broker_ids]
    for target in (
        ReplicaStatus.OFFLINE,
        ReplicaStatus.DELETION_STARTED,
        ReplicaStatus.DELETION_SUCCESSFUL,
        ReplicaStatus.NON_EXISTENT,
    ):
        yield from change_replicas(context, replicas, target)


def _finish(context: ControllerContext, at: TopicPartition) -> Steps[None]:
    """Run phases B6 to B8."""
    assignment = context.assignment(at)
    context.removals.pop(at, None)
    yield from _write_assignment(at, assignment)
    yield from _remove_from_legacy(lambda other, target: other == at and target == assignment.replicas)
    context.reassigning.discard(at)
    yield _note(context, at, "completed", {})
    batch = RequestBatch(context)
    batch.update_metadata(context.live_or_shutting_down, [at])
    yield batch.send()
    yield from _deletion_goes_on(context, at.topic)


def _deletion_goes_on(context: ControllerContext, topic: str) -> Steps[None]:
    """Resume the topic's deletion, if it waits and no other partition of it is being reassigned."""
    if all(other.topic != topic for other in context.reassigning):
        yield from resume_deletions(context, [topic])


def _write_assignment(at: TopicPartition, assignment: Assignment) -> Steps[None]:
    """Write this partition's entry in the topic's znode; all other entries stay.

    Raises:
        TidegaugeError: there is no such znode, or it is malformed.
    """
    path = topic_path(at.topic)
    while True:
        results: list[ReadResult] = yield Read((path,))
        result = results[0]
        if result.outcome is not Outcome.OK or result.stat is None:
            raise TidegaugeError(ErrorCode.UNKNOWN_SERVER_ERROR, f"{path} is missing")
        try:
            node = TopicNode.decode(at.topic, result.data)
        except MalformedZnode as problem:
            raise TidegaugeError(ErrorCode.UNKNOWN_SERVER_ERROR, str(problem)) from None
        changed = _with_assignment(node, at.partition, assignment)
        if changed == node:
            return
        written: list[WriteResult] = yield Write((SetNode(path, changed.encode(), result.stat.version),))
        if written[0].outcome is Outcome.OK:
            return
        if written[0].outcome is not Outcome.BAD_VERSION:
            raise TidegaugeError(ErrorCode.UNKNOWN_SERVER_ERROR, f"{path}: {written[0].outcome.value}")


def _with_assignment(node: TopicNode, partition: int, assignment: Assignment) -> TopicNode:
    def with_entry(entries: Mapping[int, Sequence[int]], replicas: tuple[int, ...]) -> dict[int, Sequence[int]]:
        others = {index: members for index, members in entries.items() if index != partition}
        return dict(sorted({**others, partition: replicas}.items())) if replicas else others

    return TopicNode(
        with_entry(node.assignment, assignment.replicas),
        node.topic_id,
        with_entry(node.adding_replicas, assignment.adding),
        with_entry(node.removing_replicas, assignment.removing),
    )


# The znode of older tools


def _read_legacy() -> Steps[tuple[dict[TopicPartition, tuple[int, ...]] | None, int]]:
    """Return the content of ``/admin/reassign_partitions``, and the transaction that created it.

    None if it does not exist; empty if it is malformed.
    """
    results: list[ReadResult] = yield Read((REASSIGN_PARTITIONS,))
    result = results[0]
    if result.outcome is not Outcome.OK or result.stat is None:
        return None, 0
    try:
        return decode_reassignments(result.data), result.stat.czxid
    except MalformedZnode:
        return {}, result.stat.czxid


def _remove_from_legacy(is_over: Callable[[TopicPartition, tuple[int, ...]], bool]) -> Steps[None]:
    """Remove partitions from the znode; delete it with the last one."""
    listed, _ = yield from _read_legacy()
    if listed is None:
        return
    left = {at: target for at, target in listed.items() if not is_over(at, target)}
    if not left:
        yield Write((DeleteNode(REASSIGN_PARTITIONS),))
    elif left != listed:
        yield Write((SetNode(REASSIGN_PARTITIONS, encode_reassignments(left)),))


def _note(context: ControllerContext, at: TopicPartition, state: str, more: Mapping[str, str]) -> Note:
    """Return the event log's line on a reassignment: started, replaced, cancelled, completed, failed."""
    assignment = context.assignment(at)
    return Note(
        "reassignment",
        context.cause,
        {
            "topic": at.topic,
            "partition": at.partition,
            "state": state,
            "replicas": list(assignment.replicas),
            "adding": list(assignment.adding),
            "removing": list(assignment.removing),
            **more,
        },
    )
