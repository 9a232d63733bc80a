"""Reassignment of replicas (KIP-455) in KRaft: one record begins it, a later change of the partition completes it.

Source: ``ReplicationControlManager.alterPartitionReassignments``, ``PartitionReassignmentReplicas``,
``PartitionReassignmentRevert``; KIP-860.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.kafka.kraft.record_types import MetadataRecord
from tidegauge_controller.metadata.decisions.partition_change import Rules, Targets, build_change, election_for
from tidegauge_controller.metadata.decisions.topic_checks import (
    bad_assignment,
    check_manual_assignment,
    check_record_count,
)
from tidegauge_controller.metadata.decisions.view import ClusterView, Decision
from tidegauge_controller.metadata.image import MetadataImage, PartitionRegistration, TopicImage


@dataclass(frozen=True, slots=True)
class Reassignment:
    """The replicas that a partition shall have; None cancels a reassignment in progress."""

    topic: str
    partition: int
    replicas: tuple[int, ...] | None


@dataclass(frozen=True, slots=True)
class ReassignmentResult:
    """The outcome for one partition."""

    topic: str
    partition: int
    error: ErrorCode = ErrorCode.NONE
    message: str = ""


def alter_reassignments(
    view: ClusterView, wanted: Sequence[Reassignment], *, may_change_replication_factor: bool = True
) -> Decision[list[ReassignmentResult]]:
    """Begin, replace or cancel reassignments, all records in one batch.

    Args:
        view: of the cluster.
        wanted: in the request's order.
        may_change_replication_factor: AlterPartitionReassignments from version 1 on may forbid it.

    Raises:
        TidegaugeError: POLICY_VIOLATION, that takes too many records.
    """
    records: list[MetadataRecord] = []
    results: list[ReassignmentResult] = []
    for one in wanted:
        try:
            record = _altered(view, one, may_change=may_change_replication_factor)
        except TidegaugeError as problem:
            results.append(ReassignmentResult(one.topic, one.partition, problem.code, problem.message))
            continue
        if record is not None:
            records.append(record)
            check_record_count(records)
        results.append(ReassignmentResult(one.topic, one.partition))
    return Decision(records, results, atomic=True)


def _altered(view: ClusterView, wanted: Reassignment, *, may_change: bool) -> MetadataRecord | None:
    topic = view.topic_of(wanted.topic)
    if topic is None:
        raise TidegaugeError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Unable to find a topic named {wanted.topic}.")
    old: PartitionRegistration | None = topic.partitions.get(wanted.partition)
    if old is None:
        raise TidegaugeError(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Unable to find partition {wanted.topic}:{wanted.partition}."
        )
    if wanted.replicas is None:
        return _cancelled(view, topic, wanted.partition, old)
    return _begun(view, topic, wanted.partition, old, wanted.replicas, may_change=may_change)


def _begun(
    view: ClusterView,
    topic: TopicImage,
    partition: int,
    old: PartitionRegistration,
    replicas: tuple[int, ...],
    *,
    may_change: bool,
) -> MetadataRecord | None:
    """Begin a reassignment: the replicas are the target's, then the leaving ones, in the order of their ids."""
    check_manual_assignment(view, replicas, None)
    before = len(set(old.replicas) - set(old.removing))
    if not may_change and len(replicas) != before:
        raise TidegaugeError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"The replication factor is changed from {before} to {len(replicas)}",
        )
    targets = Targets.of(old)
    leaving = tuple(sorted(set(old.replicas) - set(replicas)))
    joining = tuple(sorted(set(replicas) - set(old.replicas)))
    targets.replicas = (*replicas, *leaving)
    # A reassignment in progress that this one replaces may have left replicas in the other list than they are in now.
    targets.removing = leaving or tuple([one for one in old.removing if one not in replicas])
    targets.adding = joining or tuple([one for one in old.adding if one in replicas])
    return build_change(view, partition, targets, Rules.of(view, topic))


def _cancelled(
    view: ClusterView, topic: TopicImage, partition: int, old: PartitionRegistration
) -> MetadataRecord | None:
    """Return to the replicas of before, in their order."""
    if not old.is_reassigning:
        raise TidegaugeError(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS)
    targets = Targets.of(old)
    targets.replicas = tuple([replica for replica in old.replicas if replica not in old.adding])
    targets.removing = targets.adding = ()
    targets.isr = tuple([member for member in old.isr if member not in old.adding])
    if not targets.replicas:
        raise bad_assignment("Invalid replica assignment: addingReplicas contains all replicas.")
    if not targets.isr:
        if not view.unclean_election_allowed(topic.name):
            raise bad_assignment(
                f"Unable to revert partition assignment for {topic.name}:{partition} because it would require an "
                "unclean leader election."
            )
        targets.isr = targets.replicas[:1]
    return build_change(view, partition, targets, Rules.of(view, topic, election_for(view, topic.name)))


def reassignments(
    image: MetadataImage, partitions: Sequence[tuple[str, int]] | None
) -> list[tuple[str, int, PartitionRegistration]]:
    """Return the reassignments in progress, of some partitions or of all (None)."""
    if partitions is None:
        every = ((topic.name, partition, state) for topic, partition, state in image.all_partitions())
        return [one for one in every if one[2].is_reassigning]
    found: list[tuple[str, int, PartitionRegistration]] = []
    for name, partition in partitions:
        topic = image.topic_named(name)
        state: PartitionRegistration | None = None if topic is None else topic.partitions.get(partition)
        if state is not None and state.is_reassigning:
            found.append((name, partition, state))
    return found
