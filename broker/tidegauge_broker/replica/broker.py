"""All replicas of one broker as one state machine: events in, effects out.

Contract: call the methods one at a time; execute the effects that a call returns in their order before the next
call (effects.py says why). Time is an argument, in ms of one clock that never goes back. Responses to ``produce``
and ``fetch`` come as effects, at once or later, exactly one for each token. The same class runs in a broker
process, in the simulation and step by step in the lab. Source: Kafka's ReplicaManager.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from tidegauge.control import (
    NO_LEADER,
    ControlHeader,
    IsrProposal,
    IsrVerdict,
    LeaderAndIsrPartition,
    LeaderAndIsrRequest,
    PartitionsResponse,
    StopReplicaPartition,
    StopReplicaRequest,
)
from tidegauge.errors import ErrorCode
from tidegauge.partition import INTERNAL_TOPICS, TopicPartition
from tidegauge.record_batch import Buffer
from tidegauge_broker.replica.delayed_delete_records import DelayedDeleteRecords
from tidegauge_broker.replica.delayed_produce import DelayedProduce
from tidegauge_broker.replica.effects import (
    DeleteLog,
    Effect,
    FailReplica,
    FetchersChanged,
    LogLine,
    RespondToProduce,
)
from tidegauge_broker.replica.follower import Follower
from tidegauge_broker.replica.hosted import state_is_absurd, targets_previous_incarnation, words_for
from tidegauge_broker.replica.leader import Leader
from tidegauge_broker.replica.list_offsets import list_offset
from tidegauge_broker.replica.messages import (
    ACKS_ALL,
    DeleteRecordsResult,
    EpochEndResult,
    EpochLookup,
    EpochRound,
    FetchedPartition,
    FetchRound,
    OffsetResult,
    ProduceRequest,
    ProduceResult,
    RecordsToDelete,
    TimeLookup,
    TopicRules,
    Wait,
)
from tidegauge_broker.replica.partition import Partition, Role
from tidegauge_broker.replica.ports import LoadedLog
from tidegauge_broker.replica.producer_state import ProducerEntry, ProducerState
from tidegauge_broker.replica.quota import is_throttled
from tidegauge_broker.replica.rounds import Admits
from tidegauge_broker.replica.serving import ServedPartitions

_PRODUCER_EXPIRY_INTERVAL_MS = 600_000


class BrokerCore(ServedPartitions):
    """The replicas of one broker. Every method that may change something returns the effects to execute."""

    # What the controller says

    def set_broker_epoch(self, broker_epoch: int) -> None:
        """Record the broker epoch of a (new) registration in ZooKeeper."""
        self.broker_epoch = broker_epoch

    def check_controller_epoch(self, header: ControlHeader) -> ErrorCode:
        """Fence a control request, and adopt a newer controller epoch. UpdateMetadata is fenced here too."""
        if header.broker_epoch != -1 and header.broker_epoch < self.broker_epoch:
            return ErrorCode.STALE_BROKER_EPOCH
        if header.controller_epoch < self.controller_epoch:
            return ErrorCode.STALE_CONTROLLER_EPOCH
        self.controller_epoch = header.controller_epoch
        return ErrorCode.NONE

    def logs_needed(self, request: LeaderAndIsrRequest) -> list[TopicPartition]:
        """Return the partitions whose log must be opened or created before leader_and_isr may be called."""
        if (
            request.header.controller_epoch < self.controller_epoch
            or -1 < request.header.broker_epoch < self.broker_epoch
        ):
            return []
        return [
            item.state.topic_partition
            for item in request.partitions
            if item.state.topic_partition not in self._partitions and self.broker_id in item.state.replicas
        ]

    def leader_and_isr(
        self,
        request: LeaderAndIsrRequest,
        loaded: Mapping[TopicPartition, LoadedLog | ErrorCode],
        now_ms: int,
    ) -> tuple[PartitionsResponse, list[Effect]]:
        """Become leader or follower of partitions. Execute the effects, then answer."""
        error = self.check_controller_epoch(request.header)
        if error is not ErrorCode.NONE:
            return PartitionsResponse(error), []
        out: list[Effect] = []
        errors: dict[TopicPartition, ErrorCode] = {}
        changed: set[int] = set()
        for item in request.partitions:
            at = item.state.topic_partition
            try:
                errors[at] = self._apply(item, loaded, now_ms, changed, out)
            except Exception as problem:  # noqa: BLE001 - a defect, which concerns this partition alone
                errors[at] = ErrorCode.KAFKA_STORAGE_ERROR
                if at in self._partitions:
                    self._contain(self._partitions[at], problem, out)
                else:
                    out.append(FailReplica(at, problem))
        if changed:
            out.append(FetchersChanged(sorted(changed)))
        return PartitionsResponse(ErrorCode.NONE, errors), out

    def _apply(
        self,
        item: LeaderAndIsrPartition,
        loaded: Mapping[TopicPartition, LoadedLog | ErrorCode],
        now_ms: int,
        changed: set[int],
        out: list[Effect],
    ) -> ErrorCode:
        state = item.state
        topic_partition = state.topic_partition
        if state_is_absurd(state):
            return ErrorCode.INVALID_REQUEST
        partition = self._partitions.get(topic_partition)
        if partition is None:
            if self.broker_id not in state.replicas:
                return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            log = loaded.get(topic_partition, ErrorCode.KAFKA_STORAGE_ERROR)
            if isinstance(log, ErrorCode):
                return log
            if self.settings.refuses_previous_incarnation and targets_previous_incarnation(state, self.broker_id, log):
                return ErrorCode.INELIGIBLE_REPLICA
            rules = self._rules.get(topic_partition.topic, TopicRules())
            partition = Partition(topic_partition, self.broker_id, self.settings, rules, state.topic_id, log)
            self._partitions[topic_partition] = partition
        if partition.role is Role.OFFLINE:
            return ErrorCode.KAFKA_STORAGE_ERROR
        if partition.topic_id and state.topic_id and partition.topic_id != state.topic_id:
            return ErrorCode.INCONSISTENT_TOPIC_ID
        if state.leader_epoch <= partition.leader_epoch:
            return ErrorCode.STALE_CONTROLLER_EPOCH
        if self.broker_id not in state.replicas:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if state.partition_epoch < partition.partition_epoch:
            return ErrorCode.NONE
        if state.leader == self.broker_id:
            self._become_leader(partition, item, now_ms, changed, out)
        elif state.leader != NO_LEADER and self._metadata.is_alive(state.leader):
            self._become_follower(partition, item, changed, out)
        else:
            # There is no leader to follow: the log exists now, so that its high watermark is kept; the state stays.
            partition.say("info", f"Leader {state.leader} is not alive; staying as before", out)
        return ErrorCode.NONE

    def _become_leader(
        self, partition: Partition, item: LeaderAndIsrPartition, now_ms: int, changed: set[int], out: list[Effect]
    ) -> None:
        state = item.state
        self._stop_following(partition, changed)
        was_leader = partition.role is Role.LEADER
        partition.adopt(state)
        partition.role = Role.LEADER
        role = partition.leader_role or Leader(partition)
        partition.leader_role = role
        role.begin_epoch(state, now_ms, was_leader=was_leader, cause="LeaderAndIsr", out=out)
        partition.note("role", "LeaderAndIsr", out, role="leader", leader=state.leader, leader_epoch=state.leader_epoch)
        partition.say(
            "info",
            f"Leader starts at leader epoch {state.leader_epoch} from offset {role.epoch_start_offset} with high "
            f"watermark {partition.high_watermark} ISR [{','.join(map(str, state.isr))}]",
            out,
        )
        role.maybe_advance_high_watermark(now_ms, self._metadata.live_brokers(), "LeaderAndIsr", out)
        self._settle(partition, out, role_changed=not was_leader)

    def _become_follower(
        self, partition: Partition, item: LeaderAndIsrPartition, changed: set[int], out: list[Effect]
    ) -> None:
        state = item.state
        if partition.follower_role is not None and not partition.truncation_rule.restarts_following(
            partition.leader, state.leader
        ):
            self._go_on_following(partition, item, out)
            return
        self._stop_following(partition, changed)
        partition.adopt(state)
        partition.role = Role.FOLLOWER
        partition.leader_role = None
        role = partition.follower_role = Follower(partition)
        role.begin("LeaderAndIsr", out)
        partition.note(
            "role", "LeaderAndIsr", out, role="follower", leader=state.leader, leader_epoch=state.leader_epoch
        )
        partition.say(
            "info",
            f"Follower starts at leader epoch {state.leader_epoch} from offset {partition.log_end_offset} with high "
            f"watermark {partition.high_watermark}. Current leader is {state.leader}",
            out,
        )
        self._rounds.begin(partition, state.leader)
        changed.add(state.leader)
        self._settle(partition, out, role_changed=True)

    def _go_on_following(self, partition: Partition, item: LeaderAndIsrPartition, out: list[Effect]) -> None:
        """Keep fetching from the same leader in a new epoch, under a rule by which that changes nothing."""
        partition.adopt(item.state)
        partition.note(
            "role", "LeaderAndIsr", out, role="follower", leader=partition.leader, leader_epoch=partition.leader_epoch
        )
        partition.say(
            "info",
            f"Follower goes on at leader epoch {partition.leader_epoch}: leader {partition.leader} is the same",
            out,
        )

    def _stop_following(self, partition: Partition, changed: set[int]) -> None:
        if partition.follower_role is None:
            return
        leader = partition.follower_role.leader
        if self._rounds.end(partition, leader):
            changed.add(leader)
        partition.follower_role = None

    def stop_replica(self, request: StopReplicaRequest, now_ms: int) -> tuple[PartitionsResponse, list[Effect]]:
        """Stop replicas, and drop those that are to be deleted."""
        del now_ms  # the signature is that of all control requests
        error = self.check_controller_epoch(request.header)
        if error is not ErrorCode.NONE:
            return PartitionsResponse(error), []
        out: list[Effect] = []
        changed: set[int] = set()
        errors = {item.topic_partition: self._stop(item, changed, out) for item in request.partitions}
        if changed:
            out.append(FetchersChanged(sorted(changed)))
        return PartitionsResponse(ErrorCode.NONE, errors), out

    def _stop(self, item: StopReplicaPartition, changed: set[int], out: list[Effect]) -> ErrorCode:
        partition = self._partitions.get(item.topic_partition)
        if partition is None:
            if item.delete:
                out.append(DeleteLog(item.topic_partition))
            return ErrorCode.NONE
        if partition.role is Role.OFFLINE:
            return ErrorCode.KAFKA_STORAGE_ERROR
        if item.leader_epoch is not None and item.leader_epoch < partition.leader_epoch:
            return ErrorCode.FENCED_LEADER_EPOCH
        self._stop_following(partition, changed)
        if item.delete:
            del self._partitions[item.topic_partition]
            out.append(DeleteLog(item.topic_partition))
        self._settle(partition, out, role_changed=True)
        return ErrorCode.NONE

    def configure_topic(self, topic: str, rules: TopicRules) -> None:
        """Set a topic's settings; call it before the topic's first leader_and_isr and at each change."""
        self._rules[topic] = rules
        for topic_partition, partition in self._partitions.items():
            if topic_partition.topic == topic:
                partition.rules = rules

    def isr_verdict(self, proposal: IsrProposal, verdict: IsrVerdict, now_ms: int) -> list[Effect]:
        """Apply the controller's verdict on a ProposeIsr. ``proposal`` is the very object that the effect carried."""
        out: list[Effect] = []
        partition = self._partitions.get(proposal.topic_partition)
        if partition is not None and partition.leader_role is not None:
            role = partition.leader_role
            try:
                if not role.isr_verdict(proposal, verdict, out):
                    return out
                role.maybe_advance_high_watermark(now_ms, self._metadata.live_brokers(), "AlterPartition", out)
            except Exception as problem:  # noqa: BLE001 - a defect, which concerns this partition alone
                self._contain(partition, problem, out)
                return out
            self._settle(partition, out)
        return out

    # Requests of clients and followers

    def produce(self, request: ProduceRequest, token: object, now_ms: int) -> list[Effect]:
        """Append; RespondToProduce(token) comes now or later."""
        out: list[Effect] = []
        results: list[ProduceResult] = []
        required: dict[int, int] = {}
        touched: list[Partition] = []
        seen: set[TopicPartition] = set()
        for index, item in enumerate(request.partitions):
            topic_partition = item.topic_partition
            if request.acks not in {ACKS_ALL, 0, 1}:
                result = ProduceResult(
                    topic_partition,
                    ErrorCode.INVALID_REQUIRED_ACKS,
                    f"acks is {request.acks}; it must be -1 (all), 0 or 1",
                )
            elif topic_partition.topic in INTERNAL_TOPICS:
                result = ProduceResult(
                    topic_partition,
                    ErrorCode.INVALID_TOPIC_EXCEPTION,
                    f"Cannot append to internal topic {topic_partition.topic}",
                )
            elif topic_partition in seen:
                result = ProduceResult(
                    topic_partition, ErrorCode.INVALID_REQUEST, f"{topic_partition} stands twice in one request"
                )
            else:
                result, required_offset = self._append(
                    topic_partition, item.records, request.acks, now_ms, touched, out
                )
                if required_offset >= 0:
                    required[index] = required_offset
            seen.add(topic_partition)
            results.append(result)
        alive = self._metadata.live_brokers()
        for partition in touched:
            try:
                assert partition.leader_role is not None
                partition.leader_role.maybe_advance_high_watermark(now_ms, alive, "Produce", out)
            except Exception as problem:  # noqa: BLE001 - a defect, which concerns this partition alone
                self._contain(partition, problem, out)
        tried: set[int] = set()
        for partition in touched:
            self._settle(partition, out, fetches_tried=tried)
        for partition in touched:
            partition.unwritten.clear()
        if request.acks == ACKS_ALL and required:
            operation = DelayedProduce(token, now_ms + request.timeout_ms, results, required, self._commit_outcome)
            self._produces.try_or_watch(operation, out)
        else:
            out.append(RespondToProduce(token, results))
        return out

    def _append(
        self,
        topic_partition: TopicPartition,
        records: Buffer,
        acks: int,
        now_ms: int,
        touched: list[Partition],
        out: list[Effect],
    ) -> tuple[ProduceResult, int]:
        partition, error = self._leader_of(topic_partition, None)
        if partition is None or partition.leader_role is None:
            return (
                ProduceResult(
                    topic_partition, error, words_for(error, topic_partition), leader_hint=self._hint(topic_partition)
                ),
                -1,
            )
        try:
            result, required_offset = partition.leader_role.append(records, acks, now_ms, out)
        except Exception as problem:  # noqa: BLE001 - a defect, which concerns this partition alone
            self._contain(partition, problem, out)
            error = ErrorCode.UNKNOWN_SERVER_ERROR
            return ProduceResult(topic_partition, error, words_for(error, topic_partition)), -1
        if required_offset >= 0:
            touched.append(partition)
        return result, required_offset

    def _commit_outcome(self, topic_partition: TopicPartition, offset: int) -> tuple[ErrorCode, str] | None:
        partition, error = self._leader_of(topic_partition, None)
        if partition is None or partition.leader_role is None:
            return error, words_for(error, topic_partition)
        return partition.leader_role.commit_outcome(offset)

    def cancel(self, token: object) -> None:
        """Forget the parked operation of a caller whose connection is closed."""
        if not self._fetches.cancel(token) and not self._produces.cancel(token):
            self._deletions.cancel(token)

    def delete_records(
        self, wanted: Sequence[RecordsToDelete], timeout_ms: int, token: object, now_ms: int
    ) -> list[Effect]:
        """Raise log start offsets; RespondToDeleteRecords(token) comes when all live replicas have followed."""
        out: list[Effect] = []
        results: list[DeleteRecordsResult] = []
        required: dict[int, int] = {}
        for index, item in enumerate(wanted):
            partition, error = self._leader_of(item.topic_partition, None)
            if partition is None or partition.leader_role is None:
                words = words_for(error, item.topic_partition)
                results.append(DeleteRecordsResult(item.topic_partition, error, words))
                continue
            try:
                result, offset = partition.leader_role.delete_records(item.before_offset, out)
            except Exception as problem:  # noqa: BLE001 - a defect, which concerns this partition alone
                self._contain(partition, problem, out)
                error = ErrorCode.UNKNOWN_SERVER_ERROR
                results.append(DeleteRecordsResult(item.topic_partition, error, words_for(error, item.topic_partition)))
                continue
            results.append(result)
            if offset >= 0:
                required[index] = offset
                self._settle(partition, out)
        operation = DelayedDeleteRecords(token, now_ms + timeout_ms, results, required, self._low_watermark)
        self._deletions.try_or_watch(operation, out)
        return out

    def _low_watermark(self, topic_partition: TopicPartition) -> int | tuple[ErrorCode, str]:
        partition, error = self._leader_of(topic_partition, None)
        if partition is None or partition.leader_role is None:
            return error, words_for(error, topic_partition)
        return partition.leader_role.low_watermark(self._metadata.live_brokers())

    def list_offset(
        self, topic_partition: TopicPartition, current_leader_epoch: int | None, timestamp_ms: int
    ) -> OffsetResult | TimeLookup:
        """Return offsets by time for consumers; only the leader responds."""
        partition, error = self._leader_of(topic_partition, current_leader_epoch)
        if partition is None or partition.leader_role is None:
            return OffsetResult(error, words_for(error, topic_partition))
        return list_offset(partition, timestamp_ms)

    def offset_for_leader_epoch(self, question: EpochLookup) -> EpochEndResult:
        """Where an epoch ends in this broker's log, if it leads."""
        partition, error = self._leader_of(question.topic_partition, question.current_leader_epoch)
        if partition is None:
            return EpochEndResult(question.topic_partition, error)
        end = partition.truncation_rule.end_of_epoch(partition.epochs, question.leader_epoch, partition.log_end_offset)
        return EpochEndResult(question.topic_partition, ErrorCode.NONE, end)

    # Requests of this broker as a follower

    def leaders_followed(self) -> set[int]:
        """Brokers that lead a partition which this broker follows."""
        return self._rounds.leaders()

    def next_round(self, leader: int, now_ms: int, admits: Admits | None = None) -> FetchRound | EpochRound | Wait:
        """Return the next round for this leader, over the admitted partitions, and mark it as in flight."""
        held = self._held_by_quota(leader) if self.follower_quota.is_exceeded(now_ms) else None
        if not held:
            return self._rounds.next(leader, now_ms, admits)
        chosen = self._rounds.next(leader, now_ms, lambda at: at not in held and (admits is None or admits(at)))
        if not isinstance(chosen, Wait):
            return chosen
        again_ms = now_ms + self.settings.replica_fetch_backoff_ms
        return Wait(again_ms if chosen.until_ms is None else min(again_ms, chosen.until_ms))

    def _held_by_quota(self, leader: int) -> set[TopicPartition]:
        """Throttled partitions that lack records; they wait while the follower's quota is exceeded."""
        return {
            at
            for at, partition in self._rounds.followed(leader).items()
            if is_throttled(partition.rules.follower_throttled_replicas, at.partition, self.broker_id)
            and partition.follower_role is not None
            and partition.follower_role.lag != 0
        }

    def fetch_response_received(
        self, leader: int, request_id: int, partitions: Sequence[FetchedPartition], now_ms: int
    ) -> list[Effect]:
        """Apply the response to a FetchRound. Partitions of the round that it leaves out had nothing new."""
        out: list[Effect] = []
        for answer in partitions:
            at, hosted = answer.topic_partition, self._partitions.get(answer.topic_partition)
            throttled = () if hosted is None else hosted.rules.follower_throttled_replicas
            if answer.records and is_throttled(throttled, at.partition, self.broker_id):
                self.follower_quota.record(len(answer.records), now_ms)
        for partition in self._rounds.fetch_response_received(leader, request_id, partitions, now_ms, out):
            self._settle(partition, out)
            partition.unwritten.clear()
        return out

    def epoch_ends_received(
        self, leader: int, request_id: int, answers: Sequence[EpochEndResult], now_ms: int
    ) -> list[Effect]:
        """Apply the response to an EpochRound. A partition that it leaves out asks again later."""
        out: list[Effect] = []
        for partition in self._rounds.epoch_ends_received(leader, request_id, answers, now_ms, out):
            self._settle(partition, out)
        return out

    def round_failed(self, leader: int, request_id: int, now_ms: int) -> list[Effect]:
        """Drop a round that got no response: its partitions pause for replica.fetch.backoff.ms."""
        self._rounds.failed(leader, request_id, now_ms)
        return []

    # What happens by itself

    def tick(self, now_ms: int) -> list[Effect]:
        """Expire waiting operations, look for laggards, forget idle producers, as far as it is time."""
        out: list[Effect] = []
        self._time_ms = now_ms
        self._produces.expire(now_ms, out)
        self._fetches.expire(now_ms, out)
        self._deletions.expire(now_ms, out)
        if now_ms >= self._next_shrink_ms:
            self._next_shrink_ms = now_ms + max(1, self.settings.replica_lag_time_max_ms // 2)
            for partition in self._partitions.values():
                if partition.leader_role is not None:
                    try:
                        partition.leader_role.maybe_shrink(now_ms, out)
                    except Exception as problem:  # noqa: BLE001 - a defect, which concerns this partition alone
                        self._contain(partition, problem, out)
        if now_ms >= self._next_producer_expiry_ms:
            self._next_producer_expiry_ms = now_ms + _PRODUCER_EXPIRY_INTERVAL_MS
            for partition in self._partitions.values():
                partition.producer_state.expire(now_ms, self.settings.producer_id_expiration_ms)
        return out

    def next_deadline_ms(self) -> int:
        """When tick has something to do next."""
        purgatories = (self._produces, self._fetches, self._deletions)
        waiting = (purgatory.next_deadline_ms() for purgatory in purgatories)
        return min(self._next_shrink_ms, self._next_producer_expiry_ms, *(at for at in waiting if at is not None))

    def describe_producers(self, topic_partition: TopicPartition) -> list[ProducerEntry] | ErrorCode:
        """Return what this leader knows of a partition's idempotent producers, or why it does not lead it."""
        partition, error = self._leader_of(topic_partition, None)
        return error if partition is None else partition.producer_state.entries()

    def log_truncated(self, topic_partition: TopicPartition, producer_state: ProducerState) -> None:
        """Take over the producer state that was rebuilt when TruncateLog or TruncateFully was executed."""
        partition = self._partitions.get(topic_partition)
        if partition is not None:
            partition.log_truncated(producer_state)

    def log_start_advanced(self, topic_partition: TopicPartition, log_start_offset: int) -> list[Effect]:
        """Raise the log start offset after the log manager has deleted old segments."""
        out: list[Effect] = []
        partition = self._partitions.get(topic_partition)
        if partition is not None:
            try:
                partition.advance_log_start(log_start_offset, "Retention", out, tell_log=False)
            except Exception as problem:  # noqa: BLE001 - a defect, which concerns this partition alone
                self._contain(partition, problem, out)
        return out

    def log_dir_failed(self, topic_partitions: Collection[TopicPartition], now_ms: int) -> list[Effect]:
        """Take these replicas offline with their log directory; operations parked on them end with the error."""
        del now_ms  # kept for symmetry with the other events
        out: list[Effect] = []
        changed: set[int] = set()
        for topic_partition in topic_partitions:
            partition = self._partitions.get(topic_partition)
            if partition is not None:
                self._stop_following(partition, changed)
                partition.go_offline("LogDirFailure", out)
                self._settle(partition, out, role_changed=True)
        if changed:
            out.append(FetchersChanged(sorted(changed)))
        if topic_partitions:
            names = ",".join(sorted(map(str, topic_partitions)))
            out.append(
                LogLine("error", f"Broker {self.broker_id} stopped replicas {names}: their log directory or log failed")
            )
        return out
