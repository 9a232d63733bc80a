"""All replicas of one broker as one state machine: events in, effects out.

Contract: call the methods one at a time; execute the effects that a call returns in their order before the next
call (effects.py says why). Time is an argument, in ms of one clock that never goes back. Responses to ``produce``
and ``fetch`` come as effects, at once or later, exactly one for each token. The same class runs in a broker
process, in the simulation and step by step in the lab. Source: Kafka's ReplicaManager.

The core is composed of parts; each is given what it depends on, and none knows this class:

    hosted            the replicas by name, and who leads them
    parked            the operations that wait for them
    partition_states  what the controller decides, and log directories that fail    -> hosted, parked, rounds
    isr_changes       proposals to shrink ISRs, verdicts                            -> hosted, parked
    writes            produce, DeleteRecords                                        -> hosted, parked
    fetches           fetches of consumers and followers                            -> hosted, parked
    following         this broker's own fetches                                     -> hosted, parked, rounds
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from tidegauge.control import IsrProposal, IsrVerdict
from tidegauge.errors import ErrorCode
from tidegauge.partition import TopicPartition
from tidegauge.partition_state import PartitionState, ReplicaStop
from tidegauge.wall_time import WallTime
from tidegauge_broker.replica.effects import Effect
from tidegauge_broker.replica.fetches import Fetches
from tidegauge_broker.replica.following import Following
from tidegauge_broker.replica.hosted import HostedPartitions, contain, message_for
from tidegauge_broker.replica.isr_changes import IsrChanges
from tidegauge_broker.replica.list_offsets import NO_EPOCH, epoch_at, list_offset
from tidegauge_broker.replica.messages import (
    DEBUGGING_CONSUMER,
    CoreSettings,
    EpochEndResult,
    EpochLookup,
    EpochRound,
    FetchedPartition,
    FetchRequest,
    FetchRound,
    OffsetLookup,
    OffsetResult,
    ProduceRequest,
    RecordsToDelete,
    ReplicaView,
    TimeLookup,
    TopicRules,
    Wait,
)
from tidegauge_broker.replica.parked import ParkedOperations
from tidegauge_broker.replica.partition import Partition
from tidegauge_broker.replica.partition_states import PartitionStates, Report, ReportStop
from tidegauge_broker.replica.ports import LoadedLog, Logs, Metadata
from tidegauge_broker.replica.preferred_replica import RackOf
from tidegauge_broker.replica.preparation import Preparation
from tidegauge_broker.replica.producer_state import ProducerEntry, ProducerState
from tidegauge_broker.replica.quota import ReplicationQuota
from tidegauge_broker.replica.rounds import Admits, Rounds
from tidegauge_broker.replica.verification import ProducerBatch, VerificationGuard
from tidegauge_broker.replica.writes import Writes

_PRODUCER_EXPIRY_INTERVAL_MS = 600_000


class BrokerCore:
    """The replicas of one broker. Every method that may change something returns the effects to execute.

    Args:
        broker_id: this broker.
        settings: its settings.
        logs: how much there is to read.
        metadata: what it knows of the cluster.
        rack_of: by which a leader chooses a follower for a consumer (KIP-392); None: ``replica.selector.class`` is off.
        leader_quota: how fast throttled replicas are copied from here; None: without a limit.
        follower_quota: how fast throttled replicas are copied to here; None: without a limit.
        wall: how far the wall clock is ahead of that clock: timestamps of records are in its time.
    """

    def __init__(
        self,
        broker_id: int,
        settings: CoreSettings,
        logs: Logs,
        metadata: Metadata,
        *,
        rack_of: RackOf | None = None,
        leader_quota: ReplicationQuota | None = None,
        follower_quota: ReplicationQuota | None = None,
        wall: WallTime | None = None,
    ) -> None:
        self.broker_id = broker_id
        self.broker_epoch = -1
        """The broker epoch of the newest registration; -1 before the first."""
        self.settings = settings
        self.wall = WallTime() if wall is None else wall
        hosted = self.hosted = HostedPartitions(metadata)
        parked = self.parked = ParkedOperations()
        rounds = Rounds()
        self.partition_states = PartitionStates(broker_id, settings, hosted, parked, rounds, metadata)
        self.isr_changes = IsrChanges(settings, hosted, parked, metadata)
        self.writes = Writes(hosted, parked, metadata, self.wall)
        quota = leader_quota or ReplicationQuota()
        self.fetches = Fetches(broker_id, settings, hosted, parked, logs, metadata, quota, rack_of)
        quota = follower_quota or ReplicationQuota()
        self.following = Following(broker_id, settings, hosted, parked, rounds, quota)
        self._next_producer_expiry_ms = 0

    # Views

    def describe(self, now_ms: int, topics: Collection[str] | None = None) -> list[ReplicaView]:
        """All local replicas, by topic and partition."""
        return list(self.hosted.describe(now_ms, topics))

    def high_watermarks(self) -> dict[TopicPartition, int]:
        """Return every online replica's high watermark, for replication-offset-checkpoint."""
        return self.hosted.high_watermarks()

    def last_stable_offsets(self) -> dict[TopicPartition, int]:
        """Return every online replica's last stable offset, for the cleaner."""
        return self.hosted.last_stable_offsets()

    def waiting_operations(self) -> dict[str, int]:
        """Return the number of operations that wait in each purgatory."""
        return self.parked.counts()

    def partition(self, topic_partition: TopicPartition) -> Partition | None:
        """Return a local replica's state, read-only; None if not hosted here."""
        return self.hosted.by_name.get(topic_partition)

    # Events from the controller

    def set_broker_epoch(self, broker_epoch: int) -> None:
        """Record the broker epoch of a (new) registration."""
        self.broker_epoch = broker_epoch

    def logs_needed(self, states: Iterable[PartitionState]) -> list[TopicPartition]:
        """Return the partitions whose logs ``take_over`` needs, opened or created."""
        return self.partition_states.logs_needed(states)

    def take_over(
        self,
        states: Sequence[PartitionState],
        loaded: Mapping[TopicPartition, LoadedLog | ErrorCode],
        now_ms: int,
        *,
        cause: str,
        may_refuse: bool,
        report: Report,
        of_metadata: bool = False,
    ) -> tuple[dict[TopicPartition, ErrorCode], list[Effect]]:
        """Become leader or follower of partitions; return the outcomes, and the effects to execute before them."""
        return self.partition_states.take_over(
            states, loaded, now_ms, cause=cause, may_refuse=may_refuse, report=report, of_metadata=of_metadata
        )

    def stop(
        self, stops: Sequence[ReplicaStop], *, report: ReportStop
    ) -> tuple[dict[TopicPartition, ErrorCode], list[Effect]]:
        """Stop replicas, and drop those that are to be deleted; return the outcomes, and the effects."""
        return self.partition_states.stop(stops, report=report)

    def configure_topic(self, topic: str, rules: TopicRules) -> None:
        """Set a topic's settings; call it before the topic's first state is taken over, and at each change."""
        self.partition_states.configure_topic(topic, rules)

    def isr_verdict(self, proposal: IsrProposal, verdict: IsrVerdict, now_ms: int) -> list[Effect]:
        """Apply the controller's verdict on a ProposeIsr. ``proposal`` is the very object that the effect carried."""
        return self.isr_changes.verdict_received(proposal, verdict, now_ms)

    # Requests of clients and followers

    def produce(self, request: ProduceRequest, token: object, now_ms: int, *, wake_later: bool = False) -> list[Effect]:
        """Append; RespondToProduce(token) comes now or later.

        With ``wake_later`` the fetches that wait for these records stay parked until ``wake_fetches``, which must
        follow soon: so one response has what several requests have appended. Kafka completes them after each request
        (ReplicaManager.tryCompleteActions, called by KafkaApis.handle).
        """
        return self.writes.produce(request, token, now_ms, wake_later=wake_later)

    @property
    def has_fetches_to_wake(self) -> bool:
        """Whether a produce with ``wake_later`` has appended records, and ``wake_fetches`` has not been called."""
        return bool(self.parked.appended)

    def wake_fetches(self, now_ms: int) -> list[Effect]:
        """Respond to the fetches that wait for records appended with ``wake_later``, if they have enough."""
        out: list[Effect] = []
        self.fetches.time_ms = now_ms
        self.parked.wake_fetches(out)
        return out

    def preparations(self, request: ProduceRequest, now_ms: int) -> list[Preparation]:
        """Return what must be prepared elsewhere before a request is appended (``preparation``)."""
        return self.writes.preparations(request, self.wall.at(now_ms))

    def begin_verification(
        self, topic_partition: TopicPartition, batch: ProducerBatch, now_ms: int
    ) -> VerificationGuard | ErrorCode | None:
        """Begin to verify a transactional batch (KIP-890); None if nothing has to be verified. See ``Writes``."""
        return self.writes.begin_verification(topic_partition, batch, now_ms)

    def delete_records(
        self, wanted: Sequence[RecordsToDelete], timeout_ms: int, token: object, now_ms: int
    ) -> list[Effect]:
        """Raise log start offsets; RespondToDeleteRecords(token) comes when all live replicas have followed."""
        return self.writes.delete_records(wanted, timeout_ms, token, now_ms)

    def fetch(self, request: FetchRequest, token: object, now_ms: int) -> list[Effect]:
        """Read; RespondToFetch(token) comes now or later."""
        return self.fetches.fetch(request, token, now_ms)

    def note_sent(self, topic_partition: TopicPartition, size_bytes: int, now_ms: int) -> None:
        """Count the bytes sent to a follower, where the replica is throttled."""
        self.fetches.note_sent(topic_partition, size_bytes, now_ms)

    def cancel(self, token: object) -> None:
        """Forget the parked operation of a caller whose connection is closed."""
        self.parked.cancel(token)

    def list_offset(self, lookup: OffsetLookup) -> OffsetResult | TimeLookup:
        """Return the offset of a time.

        Only the leader responds, but any replica to the debugging consumer.
        """
        topic_partition = lookup.topic_partition
        leader, error = self.hosted.leader_of(topic_partition, lookup.current_leader_epoch)
        partition = None if leader is None else leader.partition
        if error is ErrorCode.NOT_LEADER_OR_FOLLOWER and lookup.replica_id == DEBUGGING_CONSUMER:
            partition = self.hosted.by_name.get(topic_partition)
        if partition is None:
            return OffsetResult(error, message_for(error, topic_partition))
        return list_offset(partition, lookup)

    def epoch_at(self, topic_partition: TopicPartition, offset: int) -> int:
        """Return the leader epoch of a replica's record; -1 if unknown."""
        partition = self.hosted.by_name.get(topic_partition)
        return NO_EPOCH if partition is None else epoch_at(partition, offset)

    def offset_for_leader_epoch(self, question: EpochLookup) -> EpochEndResult:
        """Return the end of an epoch in this broker's log, if it leads."""
        leader, error = self.hosted.leader_of(question.topic_partition, question.current_leader_epoch)
        if leader is None:
            return EpochEndResult(question.topic_partition, error)
        partition = leader.partition
        end = partition.truncation_rule.end_of_epoch(partition.epochs, question.leader_epoch, partition.log_end_offset)
        return EpochEndResult(question.topic_partition, ErrorCode.NONE, end)

    def led_epoch(self, topic_partition: TopicPartition) -> int | None:
        """Return the epoch in which this broker leads a partition, or None."""
        partition = self.hosted.by_name.get(topic_partition)
        return None if partition is None or partition.leader_role is None else partition.leader_epoch

    def watch_leadership(self, topic_partition: TopicPartition) -> list[Effect]:
        """Have LeadershipChanged report the leadership of a partition that this broker leads, its loss above all."""
        return self.partition_states.watch_leadership(topic_partition)

    def unwatch_leadership(self, topic_partition: TopicPartition) -> None:
        """Take ``watch_leadership`` back."""
        self.partition_states.unwatch_leadership(topic_partition)

    def fetched_ms(self, topic_partition: TopicPartition) -> dict[int, int]:
        """Return the ISR members' last fetch times in ms; 0: not yet."""
        partition = self.hosted.by_name.get(topic_partition)
        leader = None if partition is None else partition.leader_role
        return {} if leader is None else leader.fetched_ms()

    def describe_producers(self, topic_partition: TopicPartition) -> list[ProducerEntry] | ErrorCode:
        """Return the replica's view of idempotent producers, or an error."""
        partition = self.hosted.by_name.get(topic_partition)
        if partition is None:
            return self.hosted.leader_of(topic_partition, None)[1]
        return partition.producer_state.entries()

    # Requests of this broker as a follower

    def leaders_followed(self) -> set[int]:
        """Brokers that lead a partition which this broker follows."""
        return self.following.rounds.leaders()

    @property
    def is_following(self) -> bool:
        """Whether this broker follows any leader."""
        return self.following.rounds.has_leaders

    def next_round(self, leader: int, now_ms: int, admits: Admits | None = None) -> FetchRound | EpochRound | Wait:
        """Return the leader's next round over admitted partitions, now in flight."""
        return self.following.next_round(leader, now_ms, admits)

    def fetch_response_received(
        self, leader: int, request_id: int, partitions: Sequence[FetchedPartition], now_ms: int
    ) -> list[Effect]:
        """Apply the response to a FetchRound. Partitions of the round that it leaves out had nothing new."""
        return self.following.fetch_response_received(leader, request_id, partitions, now_ms)

    def fetch_response_begins(self, leader: int, request_id: int, named: Collection[TopicPartition]) -> None:
        """Take a FetchRound back whose response comes in parts; ``named``: all partitions of the response."""
        self.following.rounds.response_begins(leader, request_id, named)

    def fetch_part_received(
        self, leader: int, request_id: int, partitions: Sequence[FetchedPartition], now_ms: int
    ) -> list[Effect]:
        """Apply a part of a response that has begun; a partition may be in several, with some of its records each."""
        return self.following.part_received(leader, request_id, partitions, now_ms)

    def epoch_ends_received(
        self, leader: int, request_id: int, ends: Sequence[EpochEndResult], now_ms: int
    ) -> list[Effect]:
        """Apply the response to an EpochRound. A partition that it leaves out asks again later."""
        return self.following.epoch_ends_received(leader, request_id, ends, now_ms)

    def round_failed(self, leader: int, request_id: int, now_ms: int) -> list[Effect]:
        """Drop a round that got no response: its partitions pause for replica.fetch.backoff.ms."""
        self.following.rounds.failed(leader, request_id, now_ms)
        return []

    # Timers

    def tick(self, now_ms: int) -> list[Effect]:
        """Expire waiting operations, look for laggards, forget idle producers, as far as it is time."""
        out: list[Effect] = []
        self.fetches.time_ms = now_ms
        self.parked.expire(now_ms, out)
        self.isr_changes.shrink(now_ms, out)
        if now_ms >= self._next_producer_expiry_ms:
            self._next_producer_expiry_ms = now_ms + _PRODUCER_EXPIRY_INTERVAL_MS
            for partition in self.hosted.by_name.values():
                partition.producer_state.expire(self.wall.at(now_ms), self.settings.producer_id_expiration_ms)
                partition.verifications.expire(now_ms, self.settings.producer_id_expiration_ms)
        return out

    def next_deadline_ms(self) -> int:
        """Return when tick has something to do next."""
        due_ms = min(self.isr_changes.next_shrink_ms, self._next_producer_expiry_ms)
        parked_ms = self.parked.next_deadline_ms()
        return due_ms if parked_ms is None else min(due_ms, parked_ms)

    def log_truncated(self, topic_partition: TopicPartition, producer_state: ProducerState) -> None:
        """Take over the producer state that was rebuilt when TruncateLog or TruncateFully was executed."""
        partition = self.hosted.by_name.get(topic_partition)
        if partition is not None:
            partition.log_truncated(producer_state)

    def log_start_advanced(self, topic_partition: TopicPartition, log_start_offset: int) -> list[Effect]:
        """Raise the log start offset after the log manager has deleted old segments."""
        out: list[Effect] = []
        partition = self.hosted.by_name.get(topic_partition)
        if partition is not None:
            try:
                partition.advance_log_start(log_start_offset, "Retention", out, tell_log=False)
            except Exception as problem:  # noqa: BLE001 - a defect, which concerns this partition alone
                contain(partition, problem, out)
        return out

    def log_dir_failed(self, topic_partitions: Collection[TopicPartition]) -> list[Effect]:
        """Take these replicas offline with their log directory; operations parked on them end with the error."""
        return self.partition_states.log_dir_failed(topic_partitions)
