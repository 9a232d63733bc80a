"""What the parts of BrokerCore share: the hosted partitions, who leads them, what waits for them, what can be seen.

Contract: nothing here decides; it finds partitions and wakes operations (Partition.tryCompleteDelayedRequests,
ReplicaManager.addCompletePurgatoryAction).
"""

from __future__ import annotations

from collections.abc import Collection
from operator import attrgetter

from tidegauge.control import NO_LEADER, PartitionState
from tidegauge.errors import ErrorCode
from tidegauge.partition import TopicPartition
from tidegauge_broker.replica.delayed_delete_records import DelayedDeleteRecords
from tidegauge_broker.replica.delayed_fetch import DelayedFetch
from tidegauge_broker.replica.delayed_produce import DelayedProduce
from tidegauge_broker.replica.effects import Effect, FailReplica
from tidegauge_broker.replica.leaderships import Leaderships
from tidegauge_broker.replica.messages import CoreSettings, LeaderHint, ReplicaView, TopicRules
from tidegauge_broker.replica.partition import Partition, Role
from tidegauge_broker.replica.ports import LoadedLog, Logs, Metadata
from tidegauge_broker.replica.quota import ReplicationQuota
from tidegauge_broker.replica.rounds import Rounds
from tidegauge_broker.replica.view import view_of
from tidegauge_broker.waiting.purgatory import Purgatory

_NONE = ErrorCode.NONE  # a member of an enumeration takes long to look up, and a fetch may name thousands of partitions


class HostedPartitions:
    """The replicas of one broker, and the operations that wait for them."""

    def __init__(self, broker_id: int, settings: CoreSettings, logs: Logs, metadata: Metadata) -> None:
        self.broker_id = broker_id
        self.settings = settings
        self.controller_epoch = 0
        self.broker_epoch = -1
        self._logs = logs
        self._metadata = metadata
        self._partitions: dict[TopicPartition, Partition] = {}
        self._rules: dict[str, TopicRules] = {}
        self._rounds = Rounds()
        self._leaderships = Leaderships(settings.coordinator_topics)
        self._produces: Purgatory[DelayedProduce] = Purgatory()
        self._fetches: Purgatory[DelayedFetch] = Purgatory()
        self._deletions: Purgatory[DelayedDeleteRecords] = Purgatory()
        self.leader_quota = ReplicationQuota()
        self.follower_quota = ReplicationQuota()
        """How fast throttled replicas are copied from here, and to here; the shell puts in those with limits."""
        self._time_ms = 0
        self._next_shrink_ms = 0
        self._next_producer_expiry_ms = 0

    # What can be seen

    def describe(self, now_ms: int, topics: Collection[str] | None = None) -> list[ReplicaView]:
        """All local replicas, by topic and partition."""
        return [
            view_of(partition, now_ms)
            for topic_partition, partition in sorted(self._partitions.items())
            if topics is None or topic_partition.topic in topics
        ]

    def high_watermarks(self) -> dict[TopicPartition, int]:
        """For replication-offset-checkpoint: every local replica, offline ones excepted."""
        return {
            topic_partition: partition.high_watermark
            for topic_partition, partition in self._partitions.items()
            if partition.role is not Role.OFFLINE
        }

    def waiting_operations(self) -> dict[str, int]:
        """How many wait in each purgatory."""
        return {
            "Produce": len(self._produces),
            "Fetch": len(self._fetches),
            "DeleteRecords": len(self._deletions),
        }

    def partition(self, topic_partition: TopicPartition) -> Partition | None:
        """Return a local replica's state, read-only; None if the broker does not host it."""
        return self._partitions.get(topic_partition)

    def _leader_of(
        self, topic_partition: TopicPartition, asked_epoch: int | None
    ) -> tuple[Partition | None, ErrorCode]:
        """Return the partition if this broker leads it, else the error that says why not."""
        partition = self._partitions.get(topic_partition)
        if partition is None:
            known = self._metadata.knows(topic_partition)
            return None, ErrorCode.NOT_LEADER_OR_FOLLOWER if known else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        error = partition.refusal_as_leader(asked_epoch)
        return (partition, error) if error is _NONE else (None, error)

    def _hint(self, topic_partition: TopicPartition) -> LeaderHint | None:
        partition = self._partitions.get(topic_partition)
        hint = None if partition is None else partition.leader_hint
        told = self._metadata.leader_hint(topic_partition)
        if hint is None or (told is not None and told.leader_epoch > hint.leader_epoch):
            return told
        return hint

    @staticmethod
    def _contain(partition: Partition, problem: Exception, out: list[Effect]) -> None:
        """Take the replica offline after a defect in a decision about it; decisions about others hold.

        What the partition decided before stays in ``out``: it is what its state went through.
        """
        partition.leader_role = None
        partition.unwritten.clear()
        if partition.role is Role.LEADER:
            partition.role = Role.NONE
        out.append(FailReplica(partition.topic_partition, problem))

    def _settle(
        self,
        partition: Partition,
        out: list[Effect],
        *,
        role_changed: bool = False,
        fetches_tried: set[int] | None = None,
    ) -> None:
        """Wake what waits for this partition (the table of 2.3), once its own effects stand in ``out``.

        A step that settles several partitions, and has changed all of them before, shares ``fetches_tried``.
        """
        key = partition.topic_partition
        if role_changed:
            self._leaderships.check(partition, is_hosted=key in self._partitions, out=out)
        if partition.moved_high_watermark or role_changed:
            self._produces.check(key, out)
        if partition.moved_log_end or role_changed:
            self._fetches.check(key, out, tried=fetches_tried)
        elif partition.moved_high_watermark:
            self._fetches.check(key, out, tried=fetches_tried, only=_waits_for_high_watermark)
        if partition.moved_low_watermark or role_changed:
            self._deletions.check(key, out)
        partition.moved_high_watermark = partition.moved_log_end = partition.moved_low_watermark = False


_waits_for_high_watermark = attrgetter("waits_for_high_watermark")


def state_is_absurd(state: PartitionState) -> bool:
    """Whether the state violates an invariant, so that no controller can have decided it; such a request is rejected.

    An ISR may hold more than the replicas: those that a reassignment removes, from its end to their own (phase B3).
    """
    replicas = set(state.replicas)
    return (
        state.leader_epoch < 0
        or state.partition_epoch < 0
        or len(replicas) != len(state.replicas)
        or not replicas.intersection(state.isr)
        or (state.leader != NO_LEADER and state.leader not in state.isr)
    )


def targets_previous_incarnation(state: PartitionState, broker_id: int, log: LoadedLog) -> bool:
    """Whether the first state sent to a new process targets its previous incarnation, whose records may be lost.

    A controller that sees a restart takes the replica out of the ISR, or gives the last member a new leader epoch.
    Where it has done neither, the restart was overlooked: a state was written by who had not seen it yet, and who reads
    it can't tell. The broker can, after an unclean end. A leader that led on with a shorter log would write other
    records at the same offsets in the same epoch; a member of the ISR could be elected without what is committed.
    (Kafka has no such refusal. ``INELIGIBLE_REPLICA`` makes the controller do what it would have done.)
    """
    if log.former_epoch < 0 or broker_id not in state.isr:
        return False
    return len(state.isr) > 1 or (state.leader == broker_id and state.leader_epoch <= log.former_epoch)


def words_for(error: ErrorCode, topic_partition: TopicPartition) -> str:
    """Return a sentence for an error that no caller with more context has worded."""
    if error is ErrorCode.NOT_LEADER_OR_FOLLOWER:
        return f"This broker does not lead {topic_partition}; only the leader serves it"
    if error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        return f"This broker does not know {topic_partition}"
    if error is ErrorCode.KAFKA_STORAGE_ERROR:
        return f"The log directory of {topic_partition} is offline on this broker"
    return f"{error.name} at {topic_partition}"
