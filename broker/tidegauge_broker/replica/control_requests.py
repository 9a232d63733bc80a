"""The control requests of the controller, and every other event that ends a replica's role.

Contract: a request is fenced by broker epoch and controller epoch; each of its partitions is decided by itself.
Source: ReplicaManager.becomeLeaderOrFollower, stopReplicas and handleLogDirFailure.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from tidegauge.control import (
    NO_LEADER,
    ControlHeader,
    LeaderAndIsrPartition,
    LeaderAndIsrRequest,
    PartitionsResponse,
    PartitionState,
    StopReplicaPartition,
    StopReplicaRequest,
)
from tidegauge.errors import ErrorCode
from tidegauge.partition import TopicPartition
from tidegauge_broker.replica.effects import DeleteLog, Effect, FailReplica, FetchersChanged, LogLine, Note
from tidegauge_broker.replica.follower import Follower
from tidegauge_broker.replica.hosted import (
    HostedPartitions,
    contain,
    state_is_absurd,
    targets_previous_incarnation,
)
from tidegauge_broker.replica.leader import Leader
from tidegauge_broker.replica.leaderships import Leaderships
from tidegauge_broker.replica.messages import CoreSettings, TopicRules
from tidegauge_broker.replica.parked import ParkedOperations
from tidegauge_broker.replica.partition import Partition, Role
from tidegauge_broker.replica.ports import LoadedLog, Metadata
from tidegauge_broker.replica.refusals import LEADER_AND_ISR, STOP_REPLICA, Refusal, whole_request
from tidegauge_broker.replica.rounds import Rounds

# A member of an enumeration takes long to look up, and a request may name thousands of partitions.
_NONE = ErrorCode.NONE
_LEADER = Role.LEADER
_OFFLINE = Role.OFFLINE


class ControlRequests:
    """Make replicas leaders and followers, stop them, and take them offline.

    Args:
        broker_id: this broker.
        settings: of the core.
        hosted: the replicas; they come and go here.
        parked: what waits for them, and learns of their new roles.
        rounds: which of them follow whom.
        metadata: what the broker knows of the cluster.

    Attributes:
        controller_epoch: the newest that a request carried.
        broker_epoch: of the newest registration in ZooKeeper.
        rules: each topic's settings.
    """

    def __init__(
        self,
        broker_id: int,
        settings: CoreSettings,
        hosted: HostedPartitions,
        parked: ParkedOperations,
        rounds: Rounds,
        metadata: Metadata,
    ) -> None:
        self.controller_epoch = 0
        self.broker_epoch = -1
        self.rules: dict[str, TopicRules] = {}
        self._broker_id = broker_id
        self._settings = settings
        self._hosted = hosted
        self._parked = parked
        self._rounds = rounds
        self._metadata = metadata
        self._leaderships = Leaderships(settings.coordinator_topics)

    def check_controller_epoch(self, header: ControlHeader) -> ErrorCode:
        """Fence a control request, and adopt a newer controller epoch. UpdateMetadata is fenced here too."""
        if header.broker_epoch != -1 and header.broker_epoch < self.broker_epoch:
            return ErrorCode.STALE_BROKER_EPOCH
        if header.controller_epoch < self.controller_epoch:
            return ErrorCode.STALE_CONTROLLER_EPOCH
        self.controller_epoch = header.controller_epoch
        return _NONE

    def fence(self, request: str, header: ControlHeader) -> tuple[ErrorCode, list[Effect]]:
        """Fence a control request by its name; return the error, and what reports it."""
        error = self.check_controller_epoch(header)
        if error is _NONE or not self._settings.emits_diagnostics:
            return error, []
        is_controller = error is ErrorCode.STALE_CONTROLLER_EPOCH
        known = (
            f"controller epoch {self.controller_epoch} is known"
            if is_controller
            else f"this broker is registered with broker epoch {self.broker_epoch}"
        )
        return error, whole_request(request, header, error, known)

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
            if item.state.topic_partition not in self._hosted.by_name and self._broker_id in item.state.replicas
        ]

    def configure_topic(self, topic: str, rules: TopicRules) -> None:
        """Set a topic's settings; call it before the topic's first leader_and_isr and at each change."""
        self.rules[topic] = rules
        for topic_partition, partition in self._hosted.by_name.items():
            if topic_partition.topic == topic:
                partition.rules = rules

    def leader_and_isr(
        self,
        request: LeaderAndIsrRequest,
        loaded: Mapping[TopicPartition, LoadedLog | ErrorCode],
        now_ms: int,
    ) -> tuple[PartitionsResponse, list[Effect]]:
        """Become leader or follower of partitions. Execute the effects, then respond."""
        error, out = self.fence(LEADER_AND_ISR, request.header)
        if error is not _NONE:
            return PartitionsResponse(error), out
        errors: dict[TopicPartition, ErrorCode] = {}
        changed: set[int] = set()
        may_refuse = self._settings.refuses_previous_incarnation and request.understands_ineligible
        for item in request.partitions:
            at = item.state.topic_partition
            try:
                errors[at] = self._apply(item, loaded, now_ms, changed, out, may_refuse=may_refuse)
            except Exception as problem:  # noqa: BLE001 - a defect, which concerns this partition alone
                errors[at] = ErrorCode.KAFKA_STORAGE_ERROR
                if at in self._hosted.by_name:
                    contain(self._hosted.by_name[at], problem, out)
                else:
                    out.append(FailReplica(at, problem))
                continue
            self._report(request.header, item.state, errors[at], now_ms, out)
        if changed:
            out.append(FetchersChanged(sorted(changed)))
        return PartitionsResponse(_NONE, errors), out

    def _apply(
        self,
        item: LeaderAndIsrPartition,
        loaded: Mapping[TopicPartition, LoadedLog | ErrorCode],
        now_ms: int,
        changed: set[int],
        out: list[Effect],
        *,
        may_refuse: bool,
    ) -> ErrorCode:
        state = item.state
        topic_partition = state.topic_partition
        if state_is_absurd(state):
            return ErrorCode.INVALID_REQUEST
        partition = self._hosted.by_name.get(topic_partition)
        if partition is None:
            if self._broker_id not in state.replicas:
                return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            log = loaded.get(topic_partition, ErrorCode.KAFKA_STORAGE_ERROR)
            if isinstance(log, ErrorCode):
                return log
            if may_refuse and targets_previous_incarnation(state, self._broker_id, log):
                return ErrorCode.INELIGIBLE_REPLICA
            rules = self.rules.get(topic_partition.topic, TopicRules())
            partition = Partition(topic_partition, self._broker_id, self._settings, rules, state.topic_id, log)
            self._hosted.by_name[topic_partition] = partition
        if partition.role is _OFFLINE:
            return ErrorCode.KAFKA_STORAGE_ERROR
        if partition.topic_id and state.topic_id and partition.topic_id != state.topic_id:
            return ErrorCode.INCONSISTENT_TOPIC_ID
        if state.leader_epoch <= partition.leader_epoch:
            return ErrorCode.STALE_CONTROLLER_EPOCH
        if self._broker_id not in state.replicas:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if state.partition_epoch < partition.partition_epoch:
            return _NONE
        if state.leader == self._broker_id:
            self._become_leader(partition, item, now_ms, changed, out)
        elif state.leader != NO_LEADER and self._metadata.is_alive(state.leader):
            self._become_follower(partition, item, changed, out)
        elif partition.emits_diagnostics:
            # There is no leader to follow: the log exists now, so that its high watermark is kept; the state stays.
            partition.say("info", f"Leader {state.leader} is not alive; staying as before", out)
        return _NONE

    def _report(
        self, header: ControlHeader, state: PartitionState, error: ErrorCode, now_ms: int, out: list[Effect]
    ) -> None:
        """Report the refusal of a partition's state, or that the refusals of before have ended."""
        if not self._settings.emits_diagnostics:
            return
        at, refusals = state.topic_partition, self._hosted.refusals
        if error is _NONE:
            refusals.accepted(at, LEADER_AND_ISR)
            return
        partition = self._hosted.by_name.get(at)
        if partition is not None and partition.leader_epoch == state.leader_epoch:
            return  # a repetition (refusals.py, rule 3)
        own = "" if partition is None else partition.topic_id
        if error is ErrorCode.INCONSISTENT_TOPIC_ID and own:
            level = "error"
            text = (
                f"[Broker id={self._broker_id}] Topic ID in memory: {own} does not match the topic ID for partition "
                f"{at} received: {state.topic_id}."
            )
        else:
            level = "warning"
            text = (
                f"[Broker id={self._broker_id}] Refused LeaderAndIsr from controller {header.controller_id} epoch "
                f"{header.controller_epoch} for partition {at}, leader epoch {state.leader_epoch}: {error.name}"
            )
        refusal = Refusal(at, LEADER_AND_ISR, error, state.leader_epoch, state.topic_id, own)
        refusals.refused(refusal, now_ms, level, text, out)

    def _become_leader(
        self, partition: Partition, item: LeaderAndIsrPartition, now_ms: int, changed: set[int], out: list[Effect]
    ) -> None:
        state = item.state
        self._stop_following(partition, changed)
        was_leader = partition.role is _LEADER
        partition.adopt(state)
        partition.role = _LEADER
        role = partition.leader_role or Leader(partition)
        partition.leader_role = role
        role.begin_epoch(state, now_ms, was_leader=was_leader, cause="LeaderAndIsr", out=out)
        partition.note_role("LeaderAndIsr", out)
        if partition.emits_diagnostics:
            partition.say(
                "info",
                f"Leader starts at leader epoch {state.leader_epoch} from offset {role.epoch_start_offset} with high "
                f"watermark {partition.high_watermark} ISR [{','.join(map(str, state.isr))}]",
                out,
            )
        role.maybe_advance_high_watermark(now_ms, self._metadata.live_brokers(), "LeaderAndIsr", out)
        if was_leader:
            self._check_leadership(partition, out)
            self._parked.settle(partition, out)
        else:
            self._role_changed(partition, out)

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
        partition.note_role("LeaderAndIsr", out)
        if partition.emits_diagnostics:
            partition.say(
                "info",
                f"Follower starts at leader epoch {state.leader_epoch} from offset {partition.log_end_offset} with "
                f"high watermark {partition.high_watermark}. Current leader is {state.leader}",
                out,
            )
        self._rounds.begin(partition, state.leader)
        changed.add(state.leader)
        self._role_changed(partition, out)

    def _go_on_following(self, partition: Partition, item: LeaderAndIsrPartition, out: list[Effect]) -> None:
        """Keep fetching from the same leader in a new epoch, under a rule by which that changes nothing."""
        partition.adopt(item.state)
        partition.note_role("LeaderAndIsr", out)
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

    def stop_replica(self, request: StopReplicaRequest) -> tuple[PartitionsResponse, list[Effect]]:
        """Stop replicas, and drop those that are to be deleted."""
        error, out = self.fence(STOP_REPLICA, request.header)
        if error is not _NONE:
            return PartitionsResponse(error), out
        changed: set[int] = set()
        errors = {item.topic_partition: self._stop(item, changed, out) for item in request.partitions}
        for at, refused in errors.items():
            if refused is not _NONE and self._settings.emits_diagnostics:
                out.append(Note("refusal", at, STOP_REPLICA, {"request": STOP_REPLICA, "error": refused.name}))
                text = f"[Broker id={self._broker_id}] Refused StopReplica for partition {at}: {refused.name}"
                out.append(LogLine("warning", text, at))
        if changed:
            out.append(FetchersChanged(sorted(changed)))
        return PartitionsResponse(_NONE, errors), out

    def _stop(self, item: StopReplicaPartition, changed: set[int], out: list[Effect]) -> ErrorCode:
        if item.delete:
            self._hosted.refusals.deleted(item.topic_partition)
        partition = self._hosted.by_name.get(item.topic_partition)
        if partition is None:
            if item.delete:
                out.append(DeleteLog(item.topic_partition))
            return _NONE
        if partition.role is _OFFLINE:
            return ErrorCode.KAFKA_STORAGE_ERROR
        if item.leader_epoch is not None and item.leader_epoch < partition.leader_epoch:
            return ErrorCode.FENCED_LEADER_EPOCH
        self._stop_following(partition, changed)
        if item.delete:
            partition.give_news()
            del self._hosted.by_name[item.topic_partition]
            out.append(DeleteLog(item.topic_partition))
        self._role_changed(partition, out)
        return _NONE

    def log_dir_failed(self, topic_partitions: Collection[TopicPartition]) -> list[Effect]:
        """Take these replicas offline with their log directory; operations parked on them end with the error."""
        out: list[Effect] = []
        changed: set[int] = set()
        for topic_partition in topic_partitions:
            partition = self._hosted.by_name.get(topic_partition)
            if partition is not None:
                self._stop_following(partition, changed)
                partition.go_offline("LogDirFailure", out)
                self._role_changed(partition, out)
        if changed:
            out.append(FetchersChanged(sorted(changed)))
        if topic_partitions:
            names = ",".join(sorted(map(str, topic_partitions)))
            out.append(
                LogLine(
                    "error", f"Broker {self._broker_id} stopped replicas {names}: their log directory or log failed"
                )
            )
        return out

    def _role_changed(self, partition: Partition, out: list[Effect]) -> None:
        """Notify the coordinators and try again what waits for the replica, whose own effects stand in ``out``."""
        self._check_leadership(partition, out)
        self._parked.settle(partition, out, role_changed=True)

    def _check_leadership(self, partition: Partition, out: list[Effect]) -> None:
        """Notify the coordinators if this broker has gained or lost the leadership."""
        self._leaderships.check(partition, is_hosted=partition.topic_partition in self._hosted.by_name, out=out)
