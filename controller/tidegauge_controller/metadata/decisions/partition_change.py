"""The change of one partition: reassignment completed, ELR, election, epochs, in Kafka's order.

| step | rule |
|---|---|
| reassignment | completed if the target ISR allows it; the removed replicas leave |
| ELR | [] if the target ISR has min.insync.replicas; else former ISR and ELR, less the target ISR |
| election | the current leader if valid; the first valid replica; the last known leader; uncleanly the first alive |
| leader epoch | rises if the leader changes, or if replicas leave the assignment |
| last known leader | kept from the loss of the leader to the next one |

Source: ``PartitionChangeBuilder``, ``PartitionReassignmentReplicas``, ``ReplicationControlManager.LeaderAcceptor``;
KIP-966.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from tidegauge.control import NO_LEADER
from tidegauge.kafka.kraft.record_types import MetadataRecord
from tidegauge.kafka.metadata_records.partition_change_record import PartitionChangeRecord
from tidegauge.kafka.topic_ids import topic_id_bytes
from tidegauge_controller.metadata.decisions.view import ClusterView
from tidegauge_controller.metadata.delta import NO_LEADER_CHANGE, RECOVERED, RECOVERING
from tidegauge_controller.metadata.image import PartitionRegistration, TopicImage
from tidegauge_controller.metadata.records import made
from tidegauge_controller.metadata.snapshot import uuids
from tidegauge_controller.metadata.versions import PARTITION_CHANGE_VERSION


class Election(enum.Enum):
    """The leaders that an election accepts."""

    ONLINE = "online"
    UNCLEAN = "unclean"
    PREFERRED = "preferred"


@dataclass(slots=True)
class Targets:
    """The state that a partition shall have, at first its present one.

    Attributes:
        old: the present state.
        directories: by replica.
    """

    old: PartitionRegistration
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    removing: tuple[int, ...]
    adding: tuple[int, ...]
    elr: tuple[int, ...]
    recovering: bool
    directories: dict[int, str] = field(default_factory=dict[int, str])

    @classmethod
    def of(cls, old: PartitionRegistration) -> Targets:
        """Return the targets that change nothing."""
        directories = dict(zip(old.replicas, old.directories, strict=True))
        return cls(old, old.replicas, old.isr, old.removing, old.adding, old.elr, old.recovering, directories)


@dataclass(frozen=True, slots=True)
class Rules:
    """The conditions of changes of a topic's partitions.

    Attributes:
        topic: whose partitions are changed.
        min_isr: the topic's min.insync.replicas in force.
        is_alive: whether a broker may lead; without regard to the directory of its replica.
        election: which leaders are accepted.
        unclean_shutdown: a broker that may have lost records; it leaves the ELR.
    """

    topic: TopicImage
    min_isr: int
    is_alive: Callable[[int], bool]
    election: Election = Election.ONLINE
    unclean_shutdown: int | None = None

    @classmethod
    def of(cls, view: ClusterView, topic: TopicImage, election: Election = Election.ONLINE) -> Rules:
        """Return the rules without a broker change: active brokers are alive."""
        return cls(topic, view.min_isr(topic), view.is_active, election)


def election_for(view: ClusterView, topic: str) -> Election:
    """Return the election that failures cause: unclean if the topic's setting allows that."""
    return Election.UNCLEAN if view.unclean_election_allowed(topic) else Election.ONLINE


def build_change(view: ClusterView, partition: int, targets: Targets, rules: Rules) -> MetadataRecord | None:
    """Return the record of a partition's change to its targets, or None."""
    old = targets.old
    record = PartitionChangeRecord(partition, topic_id_bytes(rules.topic.topic_id))
    elr_enabled = view.image.elr_enabled
    _complete_reassignment(targets)
    if elr_enabled:
        targets.elr = _target_elr(old, targets, rules.min_isr, rules.unclean_shutdown)
    _elect(view, old, targets, rules, record)
    if record.leader == NO_LEADER_CHANGE and not set(old.replicas) <= set(targets.replicas):
        record.leader = old.leader
    _record_isr_and_elr(old, targets, record, elr_enabled=elr_enabled)
    if elr_enabled:
        _record_last_known_leader(old, record)
    _record_assignment(view, old, targets, record)
    if targets.recovering != old.recovering:
        record.leader_recovery_state = RECOVERING if targets.recovering else RECOVERED
    unchanged = PartitionChangeRecord(partition, record.topic_id)
    return None if record == unchanged else made(record, PARTITION_CHANGE_VERSION)


def _complete_reassignment(targets: Targets) -> None:
    """Take away the replicas to be removed, if the ISR without them allows it.

    It must not be empty, must contain all added replicas, and all replicas of the target if fewer are added than
    removed (PartitionReassignmentReplicas.maybeCompleteReassignment).
    """
    if not targets.removing and not targets.adding:
        return
    isr = tuple([member for member in targets.isr if member not in targets.removing])
    replicas = tuple([replica for replica in targets.replicas if replica not in targets.removing])
    needed = replicas if len(targets.adding) < len(targets.removing) else targets.adding
    if isr and replicas and set(needed) <= set(isr):
        targets.isr, targets.replicas, targets.removing, targets.adding = isr, replicas, (), ()


def _target_elr(
    old: PartitionRegistration, targets: Targets, min_isr: int, unclean_shutdown: int | None
) -> tuple[int, ...]:
    """Return the eligible leader replicas: they have all committed records.

    The high watermark has not moved since they left the ISR.

    Kafka keeps a replica among them that leaves the assignment; here it leaves the ELR, too.
    """
    if len(targets.isr) >= min_isr:
        return ()
    candidates = set(targets.elr) | set(old.isr)
    return tuple(sorted((candidates - set(targets.isr) - {unclean_shutdown}) & set(targets.replicas)))


def _elect(
    view: ClusterView, old: PartitionRegistration, targets: Targets, rules: Rules, record: PartitionChangeRecord
) -> None:
    """Elect a leader, and set what follows from it (PartitionChangeBuilder.tryElection)."""
    leader, is_unclean = elected(view, old, targets, rules)
    if leader == old.leader:
        return
    record.leader = leader
    if is_unclean:
        record.isr = (leader,)
        if not old.recovering:
            record.leader_recovery_state = RECOVERING
    elif leader in targets.elr:
        targets.isr = (leader,)
        targets.elr = tuple([member for member in targets.elr if member != leader])


def elected(view: ClusterView, old: PartitionRegistration, targets: Targets, rules: Rules) -> tuple[int, bool]:
    """Return the leader (-1: none), and whether its election is unclean.

    The last known leader is elected without regard to unclean.leader.election.enable, if ISR and ELR are empty.
    """

    def is_acceptable(replica: int) -> bool:
        is_replica = replica in old.replicas
        return is_replica and rules.is_alive(replica) and view.has_online_directory(replica, old.directory(replica))

    def is_valid(replica: int) -> bool:
        members = targets.isr or targets.elr
        return replica in members and is_acceptable(replica)

    preferred = targets.replicas[:1] if rules.election is Election.PREFERRED else ()
    for replica in (*preferred, old.leader, *targets.replicas):
        if is_valid(replica):
            return replica, False
    if view.image.elr_enabled and not targets.isr and not targets.elr and len(old.last_known_elr) == 1:
        (last_known,) = old.last_known_elr
        if last_known in targets.replicas and is_acceptable(last_known):
            return last_known, True
    if rules.election is Election.UNCLEAN:
        for replica in targets.replicas:
            if is_acceptable(replica):
                return replica, True
    return NO_LEADER, False


def _record_isr_and_elr(
    old: PartitionRegistration, targets: Targets, record: PartitionChangeRecord, *, elr_enabled: bool
) -> None:
    """Set ISR and ELR. Without eligible leader replicas the last member of the ISR stays in it."""
    if record.isr is not None or not elr_enabled:
        targets.elr = ()
    if targets.elr != old.elr:
        record.eligible_leader_replicas = targets.elr
    if record.isr is None and (targets.isr or elr_enabled) and targets.isr != old.isr:
        record.isr = targets.isr


def _record_last_known_leader(old: PartitionRegistration, record: PartitionChangeRecord) -> None:
    if record.leader == NO_LEADER and old.has_leader and not old.last_known_elr:
        record.last_known_elr = (old.leader,)
    elif record.leader >= 0 and old.last_known_elr:
        record.last_known_elr = ()


def _record_assignment(
    view: ClusterView, old: PartitionRegistration, targets: Targets, record: PartitionChangeRecord
) -> None:
    known = targets.directories
    directories = tuple(
        [known[one] if one in known else view.directory_for_new_replicas(one) for one in targets.replicas]
    )
    if directories != old.directories:
        record.directories = uuids(directories)
    if targets.replicas != old.replicas:
        record.replicas = targets.replicas
    if targets.removing != old.removing:
        record.removing_replicas = targets.removing
    if targets.adding != old.adding:
        record.adding_replicas = targets.adding


def changes_without(
    view: ClusterView,
    partitions: Mapping[tuple[str, int], PartitionRegistration],
    *,
    removed: int | None = None,
    added: int | None = None,
    unclean_shutdown: int | None = None,
) -> list[MetadataRecord]:
    """Return the changes at a broker's failure or return (generateLeaderAndIsrUpdates).

    Args:
        view: of the cluster.
        partitions: by topic id and index.
        removed: leaves the ISR, and can't lead.
        added: can lead, though it is fenced still.
        unclean_shutdown: leaves ISR and ELR, and can't lead.
    """

    def is_alive(broker_id: int) -> bool:
        if broker_id in {removed, unclean_shutdown}:
            return False
        return broker_id == added or view.is_active(broker_id)

    leaving = {removed, unclean_shutdown}
    by_topic: dict[str, Rules] = {}
    records: list[MetadataRecord] = []
    for (topic_id, partition), old in partitions.items():
        rules = by_topic.get(topic_id)
        if rules is None:
            topic = view.image.topics[topic_id]
            election = election_for(view, topic.name)
            rules = by_topic[topic_id] = Rules(topic, view.min_isr(topic), is_alive, election, unclean_shutdown)
        targets = Targets.of(old)
        targets.isr = tuple([member for member in old.isr if member not in leaving])
        record = build_change(view, partition, targets, rules)
        if record is not None:
            records.append(record)
    return records


def partitions_where(
    view: ClusterView, is_wanted: Callable[[PartitionRegistration], bool]
) -> dict[tuple[str, int], PartitionRegistration]:
    """Return the partitions that a condition holds of, by topic id and index."""
    return {(topic.topic_id, partition): old for topic, partition, old in view.image.all_partitions() if is_wanted(old)}
