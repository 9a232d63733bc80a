"""Runs the pure group coordinator; the rules of ``runner``.

Offsets that are committed in a transaction are verified before they are appended, as transactional batches of clients
are (KIP-890), and take effect when the transaction's marker has been written (``transaction_completed``).
Source: GroupCoordinator, GroupMetadataManager.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Awaitable, Callable, Mapping, Sequence

from tidegauge.consumer_groups import CONSUMER, ConsumerGroupHeartbeat
from tidegauge.errors import ErrorCode
from tidegauge.groups import OFFSETS_TOPIC, GroupRequest, GroupResult, JoinGroup
from tidegauge.kafka.topic_ids import topic_id_text
from tidegauge.partition import TopicPartition
from tidegauge.settings import Values, group_values
from tidegauge.share_groups import SHARE, InitializeShareState, SharePartitionKey
from tidegauge.transaction_marker import Outcome
from tidegauge.wall_time import WallTime
from tidegauge_broker.coordinator.consumer_group.topics import TopicDescription
from tidegauge_broker.coordinator.coordinator import GroupCoordinator
from tidegauge_broker.coordinator.effects import ChangeShareStates, Effect, ResolveRegexes, VerifyTransaction
from tidegauge_broker.coordinator.events import (
    GroupDefaultsChanged,
    GroupSettingsChanged,
    PartitionsDeleted,
    RegexesResolved,
    RequestArrived,
    ShareStatesChanged,
    TopicsChanged,
    TransactionCompleted,
    TransactionVerified,
)
from tidegauge_broker.coordinator.patterns.automaton import MatchingTooLongError, PatternError, resolve
from tidegauge_broker.coordinator.settings import ConsumerGroupTimes, GroupSettings
from tidegauge_broker.replica.verification import VerificationGuard
from tidegauge_broker.server.coordinators.runner import AnyEvent, CoordinatorRunner
from tidegauge_broker.server.event_log_writer import EventLogWriter
from tidegauge_broker.server.replication.replica_manager import ReplicaManager
from tidegauge_broker.server.share.persister_port import StatePersister

LOG = logging.getLogger("tidegauge.coordinators")
_MS_PER_MINUTE = 60_000

Verify = Callable[[VerifyTransaction], Awaitable[tuple[ErrorCode, VerificationGuard | None]]]
"""Asks a transaction coordinator whether a partition of __consumer_offsets is in a transaction."""


def group_settings(settings: Values, *, has_features: bool = False) -> GroupSettings:
    """Return a broker's settings as the coordinator needs them.

    Args:
        settings: the broker's.
        has_features: whether the cluster has features (KRaft mode): group.version and share.version say then, too,
            whether groups of the consumer and the share protocol are served, which the listeners heed.
    """
    of_groups = group_values({}, settings)
    protocols = settings["tidegauge.zookeeper.group.protocols"]
    if has_features:
        protocols = (*settings["group.coordinator.rebalance.protocols"], SHARE)
    return GroupSettings(
        partitions=settings.integer("offsets.topic.num.partitions"),
        group_min_session_timeout_ms=settings.integer("group.min.session.timeout.ms"),
        group_max_session_timeout_ms=settings.integer("group.max.session.timeout.ms"),
        group_initial_rebalance_delay_ms=settings.integer("group.initial.rebalance.delay.ms"),
        group_max_size=settings.integer("group.max.size"),
        offset_metadata_max_bytes=settings.integer("offset.metadata.max.bytes"),
        offsets_retention_ms=settings.integer("offsets.retention.minutes") * _MS_PER_MINUTE,
        offsets_retention_check_interval_ms=settings.integer("offsets.retention.check.interval.ms"),
        offsets_commit_timeout_ms=settings.integer("offsets.commit.timeout.ms"),
        offsets_commit_required_acks=settings.integer("offsets.commit.required.acks"),
        offsets_topic_compression_codec=settings.integer("offsets.topic.compression.codec"),
        serves_consumer_groups=CONSUMER in protocols,
        consumer_times=consumer_times(of_groups),
        consumer_max_size=settings.integer("group.consumer.max.size"),
        consumer_assignors=tuple(map(_assignor, settings["group.consumer.assignors"])),
        consumer_regex_refresh_interval_ms=settings.integer("group.consumer.regex.refresh.interval.ms"),
        consumer_migration_policy=settings.text("group.consumer.migration.policy").lower(),
        serves_share_groups=SHARE in protocols,
        share_times=share_times(of_groups),
        share_initialize_retry_interval_ms=settings.integer("group.share.initialize.retry.interval.ms"),
        share_max_size=settings.integer("group.share.max.size"),
        is_kafka_4=has_features,
    )


def consumer_times(values: Values) -> ConsumerGroupTimes:
    """Return the times of a consumer group with these settings in force."""
    return ConsumerGroupTimes(
        values.integer("consumer.session.timeout.ms"),
        values.integer("consumer.heartbeat.interval.ms"),
        values.integer("consumer.assignment.interval.ms"),
    )


def share_times(values: Values) -> ConsumerGroupTimes:
    """Return the times of a share group with these settings in force."""
    return ConsumerGroupTimes(
        values.integer("share.session.timeout.ms"),
        values.integer("share.heartbeat.interval.ms"),
        values.integer("share.assignment.interval.ms"),
    )


def _assignor(name: str) -> str:
    """Return clients' name of an assignor: ``uniform`` for Kafka's UniformAssignor."""
    return name.rpartition(".")[2].removesuffix("Assignor").lower()


class GroupRunner(CoordinatorRunner[GroupCoordinator]):
    """Runs the group coordinator.

    Args:
        settings: this broker's.
        replicas: append to and read __consumer_offsets.
        events: the event log.
        now_ms: a clock that never goes back.
        halt: called with a defect in what all share; must end the process at once.
        wall: how far the wall clock is ahead of that clock.
        has_features: whether the cluster is in KRaft mode.

    Attributes:
        verify: asks the transaction coordinator; set before the first request.
        persister: asks share coordinators; set before the first request of a share group.
    """

    verify: Verify
    persister: StatePersister

    def __init__(
        self,
        settings: Values,
        replicas: ReplicaManager,
        events: EventLogWriter,
        now_ms: Callable[[], int],
        halt: Callable[[Exception], None],
        wall: WallTime | None = None,
        *,
        has_features: bool = False,
    ) -> None:
        own = group_settings(settings, has_features=has_features)
        coordinator = GroupCoordinator(own, now_ms(), wall)
        chunk_bytes = settings.integer("offsets.load.buffer.size")
        super().__init__(coordinator, own, OFFSETS_TOPIC, chunk_bytes, replicas, events, now_ms, halt)
        self._wall = WallTime() if wall is None else wall
        self._group_settings = own
        self._defaults = GroupDefaultsChanged(own.consumer_times, own.share_times)
        self._executors[VerifyTransaction] = self._verify
        self._executors[ResolveRegexes] = self._resolve
        self._executors[ChangeShareStates] = self._change_share_states

    @property
    def time_ms(self) -> int:
        """Return the time now, by the clock of the coordinator's deadlines, in ms."""
        return self._now_ms()

    @property
    def wall_ms(self) -> int:
        """Return the wall-clock time in ms, for group states and commits."""
        return self._wall.at(self._now_ms())

    def request(self, request: GroupRequest) -> asyncio.Future[GroupResult]:
        """Hand a request to the coordinator; the future is done with its response. Cancel it to forget the response."""
        if isinstance(request, JoinGroup):
            member_uuid = str(uuid.uuid4())
        else:
            is_nameless = isinstance(request, ConsumerGroupHeartbeat) and not request.member_id
            member_uuid = topic_id_text(uuid.uuid4().bytes) if is_nameless else ""
        return self._asked(lambda token: RequestArrived(token, request, member_uuid))

    @property
    def serves_consumer_groups(self) -> bool:
        """Whether groups of the consumer protocol (KIP-848) are served."""
        return self._group_settings.serves_consumer_groups

    @property
    def serves_share_groups(self) -> bool:
        """Whether groups of the share protocol (KIP-932) are served."""
        return self._group_settings.serves_share_groups

    def topics_sent(self, topics: Mapping[str, TopicDescription | None]) -> None:
        """Take up topics as the controller has sent them; None: deleted. Those that are as before change nothing."""
        if topics:
            self._put(TopicsChanged(topics))

    def settings_changed(self, group_id: str, values: Values | None) -> None:
        """Take up a group's settings; None: it has none of its own any more."""
        if values is None:
            self._put(GroupSettingsChanged(group_id, None))
        else:
            self._put(GroupSettingsChanged(group_id, consumer_times(values), share_times(values)))

    def defaults_changed(self, settings: Values) -> None:
        """Take up the broker's settings that count for groups without their own; the same ones change nothing.

        Source: ``GroupCoordinatorConfig.RECONFIGURABLE_CONFIGS``.
        """
        of_groups = group_values({}, settings)
        wanted = GroupDefaultsChanged(consumer_times(of_groups), share_times(of_groups))
        if wanted != self._defaults:
            self._defaults = wanted
            self._put(wanted)

    def partitions_deleted(self, partitions: Sequence[TopicPartition], topic_ids: Mapping[str, bytes]) -> None:
        """Take up that partitions of other topics were deleted: their offsets are removed.

        Args:
            partitions: that were deleted.
            topic_ids: of their topics, by name.
        """
        deleted = [at for at in partitions if at.topic != OFFSETS_TOPIC]
        if deleted:
            self._put(PartitionsDeleted(deleted, topic_ids))

    def transaction_completed(
        self, producer_id: int, marker_offsets: Mapping[int, int], outcome: Outcome
    ) -> asyncio.Future[GroupResult]:
        """Take up that a transaction's marker is committed in partitions of __consumer_offsets.

        The future is done when its offsets count, or are dropped.

        Args:
            producer_id: of the marker.
            marker_offsets: where the marker is, by partition.
            outcome: what it says.
        """
        return self._asked(lambda token: TransactionCompleted(token, producer_id, marker_offsets, outcome))

    def _verify(self, effect: VerifyTransaction) -> None:
        self._in_background(self._verified(effect), f"verify-{effect.transactional_id}")

    async def _verified(self, effect: VerifyTransaction) -> None:
        """Verify, and report exactly one outcome."""
        error: ErrorCode = ErrorCode.UNKNOWN_SERVER_ERROR
        guard: VerificationGuard | None = None
        try:
            error, guard = await self.verify(effect)
        except Exception:
            LOG.exception("Verifying %s failed, which is a defect", effect.transactional_id)
        self._put(TransactionVerified(effect.verification_id, error, guard))

    def _resolve(self, effect: ResolveRegexes) -> None:
        self._in_background(self._resolved(effect), f"resolve-{effect.resolution_id}")

    async def _resolved(self, effect: ResolveRegexes) -> None:
        """Find the topics beside the event loop, leave out what may not be described, and report one outcome."""
        found: Mapping[str, frozenset[str]] = {}
        problem = ""
        try:
            found = await asyncio.to_thread(resolve, effect.regexes, effect.names)
            if effect.permits is not None:
                permitted = effect.permits(frozenset[str]().union(*found.values()))
                found = {regex: topics & permitted for regex, topics in found.items()}
        except MatchingTooLongError:
            problem = "matching them against all topics takes too long"
        except PatternError as refusal:
            problem = str(refusal)
        except Exception as defect:
            LOG.exception("Resolving regular expressions failed, which is a defect")
            problem = repr(defect)
        self._put(RegexesResolved(effect.resolution_id, found, effect.version, problem))

    def _change_share_states(self, effect: ChangeShareStates) -> None:
        self._in_background(self._share_states_changed(effect), f"share-states-{effect.change_id}")

    async def _share_states_changed(self, effect: ChangeShareStates) -> None:
        """Ask the share coordinators, and report one outcome."""
        errors: Mapping[SharePartitionKey, ErrorCode] = {}
        try:
            results = await asyncio.gather(
                *(
                    self.persister.initialize_state(one)
                    if isinstance(one, InitializeShareState)
                    else self.persister.delete_state(one)
                    for one in effect.requests
                )
            )
            errors = {one.key: result.error for one, result in zip(effect.requests, results, strict=True)}
        except Exception:
            LOG.exception("Changing states of share partitions failed, which is a defect")
        self._put(ShareStatesChanged(effect.change_id, errors))

    def _outcome_of_failed(self, effect: Effect) -> AnyEvent | None:
        if isinstance(effect, VerifyTransaction):
            return TransactionVerified(effect.verification_id, ErrorCode.UNKNOWN_SERVER_ERROR)
        if isinstance(effect, ChangeShareStates):
            return ShareStatesChanged(effect.change_id, {})
        if isinstance(effect, ResolveRegexes):
            return RegexesResolved(effect.resolution_id, {}, effect.version, "the resolution failed")
        return super()._outcome_of_failed(effect)
