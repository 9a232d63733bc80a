"""Decisions about existing partitions: AlterPartition, elections, reassignment, directories.

Source: ``ReplicationControlManager.alterPartition``, ``validateAlterPartitionData``, ``electLeaders``,
``maybeBalancePartitionLeaders``, ``maybeElectUncleanLeaders``, ``handleAssignReplicasToDirs``; KIP-497, KIP-841,
KIP-858, KIP-903, KIP-460.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tidegauge.errors import ErrorCode
from tidegauge.kafka.kraft.record_types import MetadataRecord
from tidegauge_controller.metadata.decisions.partition_change import (
    Election,
    Rules,
    Targets,
    build_change,
    changes_without,
    election_for,
)
from tidegauge_controller.metadata.decisions.topic_checks import check_record_count
from tidegauge_controller.metadata.decisions.view import ClusterView, Decision
from tidegauge_controller.metadata.delta import NO_LEADER_CHANGE, RECOVERED, RECOVERING, merged
from tidegauge_controller.metadata.image import PartitionRegistration, RegisteredBroker, TopicImage

ANY_EPOCH = -1
"""A broker epoch that is not compared: AlterPartition before version 3 has none."""


@dataclass(frozen=True, slots=True)
class IsrChange:
    """A leader's proposal for one partition.

    Attributes:
        new_isr: pairs of a broker and its epoch as the leader knows it; -1: any.
        leader_recovery_state: 0 recovered, 1 recovering.
    """

    topic_id: str
    partition: int
    leader_epoch: int
    partition_epoch: int
    new_isr: tuple[tuple[int, int], ...]
    leader_recovery_state: int = RECOVERED


@dataclass(frozen=True, slots=True)
class IsrResult:
    """The outcome for one partition: an error, or the state after the change."""

    topic_id: str
    partition: int
    error: ErrorCode = ErrorCode.NONE
    state: PartitionRegistration | None = None


def alter_partition(
    view: ClusterView, broker_id: int, broker_epoch: int, changes: Sequence[IsrChange]
) -> Decision[list[IsrResult]]:
    """Change ISRs as their leaders propose; each partition has its own outcome.

    A change that completes a reassignment may elect another leader: then the outcome is NEW_LEADER_ELECTED, and the
    change is made.

    Raises:
        TidegaugeError: STALE_BROKER_EPOCH.
    """
    view.check_broker_epoch(broker_id, broker_epoch)
    records: list[MetadataRecord] = []
    results: list[IsrResult] = []
    seen: set[tuple[str, int]] = set()
    for change in changes:
        at = change.topic_id, change.partition
        topic: TopicImage | None = view.image.topics.get(change.topic_id)
        error = _proposal_problem(view, broker_id, change, topic)
        if error is ErrorCode.NONE and at in seen:
            # Both proposals name the partition epoch of before, which the first of them ends.
            error = ErrorCode.INVALID_UPDATE_VERSION
        if error is not ErrorCode.NONE or topic is None:
            results.append(IsrResult(change.topic_id, change.partition, error))
            continue
        seen.add(at)
        results.append(_alter(view, broker_id, change, topic, records))
    return Decision(records, results)


def _alter(
    view: ClusterView, broker_id: int, change: IsrChange, topic: TopicImage, records: list[MetadataRecord]
) -> IsrResult:
    old = topic.partitions[change.partition]
    targets = Targets.of(old)
    targets.isr = tuple([member for member, _ in change.new_isr])
    targets.recovering = change.leader_recovery_state == RECOVERING
    rules = Rules.of(view, topic, election_for(view, topic.name))
    record = build_change(view, change.partition, targets, rules)
    if record is None:
        return IsrResult(change.topic_id, change.partition, state=old)
    records.append(record)
    if record.message.leader not in {broker_id, NO_LEADER_CHANGE}:
        return IsrResult(change.topic_id, change.partition, ErrorCode.NEW_LEADER_ELECTED)
    return IsrResult(change.topic_id, change.partition, state=merged(old, record.message))


def _proposal_problem(view: ClusterView, broker_id: int, change: IsrChange, topic: TopicImage | None) -> ErrorCode:
    """Return why a proposal is refused, or NONE (validateAlterPartitionData)."""
    if topic is None:
        return ErrorCode.UNKNOWN_TOPIC_ID
    old: PartitionRegistration | None = topic.partitions.get(change.partition)
    if old is None:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if change.leader_epoch > old.leader_epoch or change.partition_epoch > old.partition_epoch:
        return ErrorCode.NOT_CONTROLLER
    if change.leader_epoch < old.leader_epoch:
        return ErrorCode.FENCED_LEADER_EPOCH
    if broker_id != old.leader:
        return ErrorCode.INVALID_REQUEST
    if change.partition_epoch < old.partition_epoch:
        return ErrorCode.INVALID_UPDATE_VERSION
    members = [member for member, _ in change.new_isr]
    is_subset = len(set(members)) == len(members) and set(members) <= set(old.replicas)
    if not is_subset or old.leader not in members or change.leader_recovery_state not in {RECOVERED, RECOVERING}:
        return ErrorCode.INVALID_REQUEST
    is_recovering = change.leader_recovery_state == RECOVERING
    if is_recovering and (len(members) > 1 or not old.recovering):
        return ErrorCode.INVALID_REQUEST
    if not all(_is_eligible(view, *member) for member in change.new_isr):
        return ErrorCode.INELIGIBLE_REPLICA
    return ErrorCode.NONE


def _is_eligible(view: ClusterView, broker_id: int, epoch: int) -> bool:
    broker: RegisteredBroker | None = view.image.brokers.get(broker_id)
    return broker is not None and broker.is_active and epoch in {ANY_EPOCH, broker.epoch}


@dataclass(frozen=True, slots=True)
class ElectionResult:
    """The outcome of an election for one partition."""

    topic: str
    partition: int
    error: ErrorCode = ErrorCode.NONE
    message: str = ""


def elect_leaders(
    view: ClusterView, partitions: Sequence[tuple[str, int]] | None, *, unclean: bool
) -> Decision[list[ElectionResult]]:
    """Elect preferred leaders, or unclean ones for partitions without a leader.

    Args:
        view: of the cluster.
        partitions: topic names and indexes; None: all, and those that need no election are left out.
        unclean: which election.
    """
    records: list[MetadataRecord] = []
    if partitions is not None:
        wanted = list(dict.fromkeys(partitions))
        results = [_elect_leader(view, name, partition, unclean, records) for name, partition in wanted]
    else:
        everything = [(topic.name, partition) for topic, partition, _ in view.image.all_partitions()]
        found = [_elect_leader(view, name, partition, unclean, records) for name, partition in everything]
        results = [one for one in found if one.error is not ErrorCode.ELECTION_NOT_NEEDED]
    check_record_count(records)
    return Decision(records, results)


def _elect_leader(
    view: ClusterView,
    name: str,
    partition: int,
    unclean: bool,
    records: list[MetadataRecord],
) -> ElectionResult:
    topic = view.topic_of(name)
    if topic is None:
        return ElectionResult(name, partition, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"No such topic as {name}")
    old: PartitionRegistration | None = topic.partitions.get(partition)
    if old is None:
        return ElectionResult(
            name, partition, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"No such partition as {name}-{partition}"
        )
    if old.has_leader if unclean else old.has_preferred_leader:
        return ElectionResult(
            name, partition, ErrorCode.ELECTION_NOT_NEEDED, "Leader election not needed for topic partition."
        )
    rules = Rules.of(view, topic, Election.UNCLEAN if unclean else Election.PREFERRED)
    record = build_change(view, partition, Targets.of(old), rules)
    if record is not None:
        records.append(record)
        return ElectionResult(name, partition)
    if unclean:
        return ElectionResult(
            name,
            partition,
            ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE,
            "Eligible topic partition leaders are not available.",
        )
    return ElectionResult(
        name, partition, ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE, "The preferred leader was not available."
    )


def balance_leaders(view: ClusterView) -> Decision[bool]:
    """Elect preferred leaders where others lead; the response is whether there may be more to do."""
    records: list[MetadataRecord] = []
    for topic, partition, old in view.image.all_partitions():
        if len(records) >= view.settings.max_elections:
            break
        if not old.has_preferred_leader:
            rules = Rules.of(view, topic, Election.PREFERRED)
            record = build_change(view, partition, Targets.of(old), rules)
            if record is not None:
                records.append(record)
    return Decision(records, len(records) >= view.settings.max_elections)


def elect_unclean_leaders(view: ClusterView) -> Decision[bool]:
    """Elect unclean leaders if there is no leader and the topic's setting allows it; the response as above."""
    records: list[MetadataRecord] = []
    for topic, partition, old in view.image.all_partitions():
        if len(records) >= view.settings.max_elections:
            break
        if not old.has_leader and view.unclean_election_allowed(topic.name):
            _elect_leader(view, topic.name, partition, True, records)
    return Decision(records, len(records) >= view.settings.max_elections)


@dataclass(frozen=True, slots=True)
class DirectoryResult:
    """The outcome of the assignment of one replica to a directory."""

    directory: str
    topic_id: str
    partition: int
    error: ErrorCode = ErrorCode.NONE


def assign_replicas_to_directories(
    view: ClusterView, broker_id: int, broker_epoch: int, wanted: Mapping[str, Sequence[tuple[str, int]]]
) -> Decision[list[DirectoryResult]]:
    """Take in where a broker has its replicas; one in a directory that is not online leaves its ISR.

    Args:
        view: of the cluster.
        broker_id: the sender.
        broker_epoch: the sender's.
        wanted: topic ids and partitions, by directory.

    Raises:
        TidegaugeError: STALE_BROKER_EPOCH.
    """
    broker = view.check_broker_epoch(broker_id, broker_epoch)
    records: list[MetadataRecord] = []
    results: list[DirectoryResult] = []
    failed: dict[tuple[str, int], PartitionRegistration] = {}
    for directory, partitions in wanted.items():
        for topic_id, partition in partitions:
            error = _assignment_problem(view, broker_id, topic_id, partition)
            results.append(DirectoryResult(directory, topic_id, partition, error))
            if error is not ErrorCode.NONE:
                continue
            topic = view.image.topics[topic_id]
            old = topic.partitions[partition]
            targets = Targets.of(old)
            targets.directories[broker_id] = directory
            record = build_change(view, partition, targets, Rules.of(view, topic))
            if record is not None:
                records.append(record)
            if not broker.has_online_directory(directory):
                failed[topic_id, partition] = old
    records += changes_without(view, failed, removed=broker_id)
    return Decision(records, results)


def _assignment_problem(view: ClusterView, broker_id: int, topic_id: str, partition: int) -> ErrorCode:
    topic: TopicImage | None = view.image.topics.get(topic_id)
    if topic is None:
        return ErrorCode.UNKNOWN_TOPIC_ID
    old: PartitionRegistration | None = topic.partitions.get(partition)
    if old is None:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return ErrorCode.NONE if broker_id in old.replicas else ErrorCode.NOT_LEADER_OR_FOLLOWER
