"""The states of partitions as the controller decided them, and every other event that gives or ends a replica's role.

Contract: the caller has checked that the states come from the present controller (``control_requests`` for the requests
of ZooKeeper mode). Each partition is decided by itself.

States of KRaft's metadata differ in two points (``of_metadata``): one of the leader epoch that the replica has brings
another ISR or assignment and no other role, and one that names no live leader ends the replica's role.
Source: ReplicaManager.becomeLeaderOrFollower, stopReplicas and handleLogDirFailure; ReplicaManager.applyDelta.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from tidegauge.control import NO_LEADER
from tidegauge.errors import ErrorCode
from tidegauge.partition import TopicPartition
from tidegauge.partition_state import PartitionState, ReplicaStop
from tidegauge_broker.replica.effects import DeleteLog, Effect, FailReplica, FetchersChanged, LogLine
from tidegauge_broker.replica.follower import Follower
from tidegauge_broker.replica.hosted import (
    HostedPartitions,
    contain,
    is_impossible,
    targets_previous_incarnation,
)
from tidegauge_broker.replica.leader import Leader
from tidegauge_broker.replica.leaderships import Leaderships
from tidegauge_broker.replica.messages import CoreSettings, TopicRules
from tidegauge_broker.replica.parked import ParkedOperations
from tidegauge_broker.replica.partition import Partition
from tidegauge_broker.replica.ports import LoadedLog, Metadata
from tidegauge_broker.replica.roles import Role, check_transition
from tidegauge_broker.replica.rounds import Rounds

# A member of an enumeration takes long to look up, and a request may name thousands of partitions.
_NONE = ErrorCode.NONE
_LEADER = Role.LEADER
_OFFLINE = Role.OFFLINE


Report = Callable[[PartitionState, ErrorCode, list[Effect]], None]
ReportStop = Callable[[TopicPartition, ErrorCode, list[Effect]], None]


class PartitionStates:
    """Make replicas leaders and followers, stop them, and take them offline.

    Args:
        broker_id: this broker.
        settings: of the core.
        hosted: the replicas; they come and go here.
        parked: what waits for them, and learns of their new roles.
        rounds: the replicas that follow each leader.
        metadata: what the broker knows of the cluster.

    Attributes:
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
        self.rules: dict[str, TopicRules] = {}
        self._broker_id = broker_id
        self._settings = settings
        self._hosted = hosted
        self._parked = parked
        self._rounds = rounds
        self._metadata = metadata
        self._leaderships = Leaderships(settings.coordinator_topics)

    def logs_needed(self, states: Iterable[PartitionState]) -> list[TopicPartition]:
        """Return the partitions whose logs ``take_over`` needs, opened or created."""
        return [
            state.topic_partition
            for state in states
            if state.topic_partition not in self._hosted.by_name and self._broker_id in state.replicas
        ]

    def configure_topic(self, topic: str, rules: TopicRules) -> None:
        """Set a topic's settings; call it before the topic's first state is taken over, and at each change."""
        self.rules[topic] = rules
        for topic_partition, partition in self._hosted.by_name.items():
            if topic_partition.topic == topic:
                partition.rules = rules

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
        """Become leader or follower of partitions.

        Args:
            states: of partitions, with a replica here or not.
            loaded: the logs of those that ``logs_needed`` names, or why there is none.
            now_ms: a clock that never goes back.
            cause: for the event log.
            may_refuse: whether the controller handles INELIGIBLE_REPLICA, by which a state is refused that targets this
                broker's previous incarnation.
            report: called with each state, its outcome, and what takes more effects; not for a defect.
            of_metadata: whether the states are of KRaft's metadata, which repeat a leader epoch.

        Returns:
            The outcome for each partition, to be reported once the effects are executed; and the effects.
        """
        out: list[Effect] = []
        errors: dict[TopicPartition, ErrorCode] = {}
        changed: set[int] = set()
        may_refuse = may_refuse and self._settings.refuses_previous_incarnation
        for state in states:
            at = state.topic_partition
            try:
                partition, errors[at] = self._hosting(state, loaded, may_refuse=may_refuse)
                if partition is not None:
                    apply = self._apply_metadata if of_metadata else self._apply_request
                    errors[at] = apply(partition, state, now_ms, changed, cause, out)
            except Exception as problem:  # noqa: BLE001 - a defect, which concerns this partition alone
                errors[at] = ErrorCode.KAFKA_STORAGE_ERROR
                if at in self._hosted.by_name:
                    contain(self._hosted.by_name[at], problem, out)
                else:
                    out.append(FailReplica(at, problem))
                continue
            report(state, errors[at], out)
        if changed:
            out.append(FetchersChanged(sorted(changed)))
        return errors, out

    def _hosting(
        self, state: PartitionState, loaded: Mapping[TopicPartition, LoadedLog | ErrorCode], *, may_refuse: bool
    ) -> tuple[Partition | None, ErrorCode]:
        """Return a state's replica, new with its first state, or an error."""
        topic_partition = state.topic_partition
        if is_impossible(state):
            return None, ErrorCode.INVALID_REQUEST
        partition = self._hosted.by_name.get(topic_partition)
        if partition is None:
            if self._broker_id not in state.replicas:
                return None, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            log = loaded.get(topic_partition, ErrorCode.KAFKA_STORAGE_ERROR)
            if isinstance(log, ErrorCode):
                return None, log
            if may_refuse and targets_previous_incarnation(state, self._broker_id, log):
                return None, ErrorCode.INELIGIBLE_REPLICA
            rules = self.rules.get(topic_partition.topic, TopicRules())
            partition = Partition(topic_partition, self._broker_id, self._settings, rules, state.topic_id, log)
            self._hosted.by_name[topic_partition] = partition
        if partition.role is _OFFLINE:
            return None, ErrorCode.KAFKA_STORAGE_ERROR
        if partition.topic_id and state.topic_id and partition.topic_id != state.topic_id:
            return None, ErrorCode.INCONSISTENT_TOPIC_ID
        return partition, _NONE

    def _apply_request(
        self,
        partition: Partition,
        state: PartitionState,
        now_ms: int,
        changed: set[int],
        cause: str,
        out: list[Effect],
    ) -> ErrorCode:
        """Take over a state of ZooKeeper mode's controller (ReplicaManager.becomeLeaderOrFollower)."""
        if state.leader_epoch <= partition.leader_epoch:
            return ErrorCode.STALE_CONTROLLER_EPOCH
        if self._broker_id not in state.replicas:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if state.partition_epoch < partition.partition_epoch:
            return _NONE
        if state.leader == self._broker_id:
            self._become_leader(partition, state, now_ms, changed, cause, out)
        elif self._is_live(state.leader):
            self._become_follower(partition, state, changed, cause, out)
        elif partition.emits_diagnostics:
            # There is no leader to follow: the log exists now, so that its high watermark is kept; the state stays.
            partition.say("info", f"Leader {state.leader} is not alive; staying as before", out)
        return _NONE

    def _is_live(self, leader: int) -> bool:
        return leader != NO_LEADER and self._metadata.is_alive(leader)

    def _apply_metadata(
        self,
        partition: Partition,
        state: PartitionState,
        now_ms: int,
        changed: set[int],
        cause: str,
        out: list[Effect],
    ) -> ErrorCode:
        """Take over a state of KRaft's metadata (ReplicaManager.applyDelta, Partition.makeLeader and makeFollower)."""
        if state.leader_epoch < partition.leader_epoch or state.partition_epoch <= partition.partition_epoch:
            return _NONE  # it is known: the response to a proposal may be quicker than the metadata
        if state.leader_epoch == partition.leader_epoch:
            partition.adopt(state)
            role = partition.leader_role
            if role is not None:
                role.take_assignment(state, now_ms, cause, out)
                role.maybe_advance_high_watermark(now_ms, self._metadata.live_brokers(), cause, out)
                self._parked.settle(partition, out)
        elif state.leader == self._broker_id:
            self._become_leader(partition, state, now_ms, changed, cause, out)
        elif self._is_live(state.leader):
            self._become_follower(partition, state, changed, cause, out)
        else:
            self._lose_leader(partition, state, changed, cause, out)
        return _NONE

    def _lose_leader(
        self, partition: Partition, state: PartitionState, changed: set[int], cause: str, out: list[Effect]
    ) -> None:
        """Neither serve nor fetch: the partition has no leader in this epoch."""
        self._stop_following(partition, changed)
        partition.adopt(state)
        if partition.role is not Role.NONE:
            partition.enter(Role.NONE)
        partition.leader_role = None
        partition.note_role(cause, out)
        partition.say("info", f"There is no leader in leader epoch {state.leader_epoch}", out)
        self._role_changed(partition, out)

    def _become_leader(
        self,
        partition: Partition,
        state: PartitionState,
        now_ms: int,
        changed: set[int],
        cause: str,
        out: list[Effect],
    ) -> None:
        self._stop_following(partition, changed)
        was_leader = partition.role is _LEADER
        partition.adopt(state)
        partition.enter(_LEADER)
        role = partition.leader_role or Leader(partition)
        partition.leader_role = role
        assert partition.follower_role is None, "one role at a time"
        role.begin_epoch(state, now_ms, was_leader=was_leader, cause=cause, out=out)
        partition.note_role(cause, out)
        if partition.emits_diagnostics:
            partition.say(
                "info",
                f"Leader starts at leader epoch {state.leader_epoch} from offset {role.epoch_start_offset} with high "
                f"watermark {partition.high_watermark} ISR [{','.join(map(str, state.isr))}]",
                out,
            )
        role.maybe_advance_high_watermark(now_ms, self._metadata.live_brokers(), cause, out)
        if was_leader:
            self._check_leadership(partition, out)
            self._parked.settle(partition, out)
        else:
            self._role_changed(partition, out)

    def _become_follower(
        self, partition: Partition, state: PartitionState, changed: set[int], cause: str, out: list[Effect]
    ) -> None:
        if partition.follower_role is not None and not partition.truncation_rule.restarts_following(
            partition.leader, state.leader
        ):
            self._go_on_following(partition, state, cause, out)
            return
        self._stop_following(partition, changed)
        partition.adopt(state)
        partition.enter(Role.FOLLOWER)
        partition.leader_role = None
        role = partition.follower_role = Follower(partition)
        role.begin(cause, out)
        partition.note_role(cause, out)
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

    def _go_on_following(self, partition: Partition, state: PartitionState, cause: str, out: list[Effect]) -> None:
        """Keep fetching from the same leader in a new epoch, under a rule by which that changes nothing."""
        partition.adopt(state)
        partition.enter(Role.FOLLOWER)
        partition.note_role(cause, out)
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

    def stop(
        self, stops: Sequence[ReplicaStop], *, report: ReportStop
    ) -> tuple[dict[TopicPartition, ErrorCode], list[Effect]]:
        """Stop replicas, and drop those that are to be deleted; return the outcomes and the effects.

        ``report`` is called with each partition, its outcome, and what takes more effects.
        """
        out: list[Effect] = []
        changed: set[int] = set()
        errors = {item.topic_partition: self._stop(item, changed, out) for item in stops}
        for at, outcome in errors.items():
            report(at, outcome, out)
        if changed:
            out.append(FetchersChanged(sorted(changed)))
        return errors, out

    def _stop(self, item: ReplicaStop, changed: set[int], out: list[Effect]) -> ErrorCode:
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
            partition.mark_changed()
            check_transition(partition.role, None)
            del self._hosted.by_name[item.topic_partition]
            out.append(DeleteLog(item.topic_partition))
        self._role_changed(partition, out)
        if item.delete:
            partition.leader_role = None  # each knows the other, which would leave them to the garbage collection
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
        """Notify the coordinators and retry the replica's parked operations; its own effects are in ``out``."""
        self._check_leadership(partition, out)
        self._parked.settle(partition, out, role_changed=True)

    def watch_leadership(self, at: TopicPartition) -> list[Effect]:
        """Report the leadership of a partition from now on, if it is led; see ``Leaderships.watch``."""
        out: list[Effect] = []
        partition = self._hosted.by_name.get(at)
        if partition is not None and partition.role is _LEADER:
            self._leaderships.watch(partition, out)
        return out

    def unwatch_leadership(self, at: TopicPartition) -> None:
        """Report the leadership of a partition no longer; a coordinator's still is."""
        self._leaderships.unwatch(at)

    def _check_leadership(self, partition: Partition, out: list[Effect]) -> None:
        """Notify the coordinators if this broker has gained or lost the leadership."""
        self._leaderships.check(partition, is_hosted=partition.topic_partition in self._hosted.by_name, out=out)
