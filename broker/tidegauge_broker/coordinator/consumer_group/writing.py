"""Writes the decisions about consumer groups, and puts them in force; runs the timers of their members.

Contract: see ``group_writes``; the decision's records are replayed on a copy of the group's state, which takes the
state's place when they are committed. Until it is known that they are committed no response rests on them alone: a
decision without records writes the group's epoch again, whose commit is theirs (Kafka's CoordinatorRuntime has a
response without records wait for the last record that was written).
Source: CoordinatorRuntime; GroupMetadataManager (scheduleConsumerGroupSessionTimeout and its kin).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from tidegauge.consumer_groups import ConsumerGroupState
from tidegauge.errors import ErrorCode
from tidegauge_broker.coordinator.consumer_group.classic_protocol import MalformedProtocol
from tidegauge_broker.coordinator.consumer_group.group import ConsumerGroup
from tidegauge_broker.coordinator.consumer_group.image import Draft
from tidegauge_broker.coordinator.consumer_group.leaving import fence
from tidegauge_broker.coordinator.consumer_group.member import ConsumerMember, MemberState
from tidegauge_broker.coordinator.consumer_group.migration import (
    MigrationLimits,
    downgrade_tombstones,
    downgraded,
    may_downgrade,
)
from tidegauge_broker.coordinator.consumer_group.records import ConsumerGroupKey, epoch_record, to_bytes
from tidegauge_broker.coordinator.consumer_group.topics import Topics
from tidegauge_broker.coordinator.gates import Waiting
from tidegauge_broker.coordinator.group.group import CONSUMER_PROTOCOL_TYPE, Group
from tidegauge_broker.coordinator.group.phases import Phases
from tidegauge_broker.coordinator.group.states import STABLE
from tidegauge_broker.coordinator.group.storing import metadata_record
from tidegauge_broker.coordinator.group_writes import Written, append
from tidegauge_broker.coordinator.record_codec import Record
from tidegauge_broker.coordinator.runtime import GroupRuntime
from tidegauge_broker.coordinator.shard import Shard, tombstones_of
from tidegauge_broker.coordinator.timers import Timer

RETRY_MS = 500
"""After a failed write of a timer's decision it is tried again (CoordinatorTimerImpl.schedule)."""


class GroupWriter:
    """Writes a consumer group's decisions, one at a time."""

    def __init__(self, runtime: GroupRuntime, topics: Topics, phases: Phases) -> None:
        self._runtime = runtime
        self._topics = topics
        self._phases = phases

    @property
    def migration_limits(self) -> MigrationLimits:
        """Return the settings for migrations between the protocols."""
        settings = self._runtime.settings
        return MigrationLimits(settings.consumer_migration_policy, settings.consumer_max_size, settings.group_max_size)

    # Writing

    def write(
        self, shard: Shard, group: ConsumerGroup, draft: Draft, written: Written, prefix: list[Record] | None = None
    ) -> None:
        """Write a decision's records, and put its state in force when they are committed; without any, at once.

        Args:
            shard: of the group.
            group: which may be new.
            draft: the decision.
            written: called at the end.
            prefix: records that come before the draft's.
        """
        records = [*(prefix or ()), *map(to_bytes, draft.records)]
        if not records and group.is_uncertain:
            records = [to_bytes(epoch_record(group.group_id, group.image.epoch, group.image.metadata_hash))]

        def install() -> None:
            group.is_uncertain = True  # until the outcome says that the records are committed
            self._install(shard, group, draft)

        def settled(error: ErrorCode) -> None:
            if error is ErrorCode.NONE:
                group.is_uncertain = False
            written(error)

        append(self._runtime, shard, group.group_id, records, install, settled)

    def remove(
        self, shard: Shard, group: ConsumerGroup, member_ids: Sequence[str], written: Written, reason: str
    ) -> None:
        """Remove members; if only members with the classic protocol are left, the group becomes a classic one.

        Args:
            shard: of the group.
            group: the group.
            member_ids: those that leave, or are fenced.
            written: called at the end.
            reason: of the rebalance, if the group becomes a classic one.
        """
        if may_downgrade(group.image, member_ids, self.migration_limits):
            try:
                classic = downgraded(group.image, member_ids, shard.partition, self._topics, self._runtime.wall_ms)
            except MalformedProtocol as problem:
                self._runtime.log(
                    f"Cannot downgrade the consumer group {group.group_id}: fail to parse the Consumer Protocol "
                    f"consumer: {problem}.",
                    "warning",
                )
            else:
                self._downgrade(shard, group, classic, written, reason)
                return
        draft = Draft(group.image)
        fence(draft, list(member_ids), self._topics)
        self.write(shard, group, draft, written)

    def _downgrade(self, shard: Shard, group: ConsumerGroup, classic: Group, written: Written, reason: str) -> None:
        classic.state = STABLE
        classic.restore(CONSUMER_PROTOCOL_TYPE, classic.selected_protocol(), None)
        assignments = {member_id: member.assignment for member_id, member in classic.members.items()}

        def install() -> None:
            self._replace_by_classic(shard, group)
            classic.offsets = group.offsets
            shard.groups[group.group_id] = classic
            self._phases.resume(classic)
            self._phases.maybe_prepare_rebalance(classic, reason)

        records = [*map(to_bytes, downgrade_tombstones(group.image)), metadata_record(classic, assignments)]
        append(self._runtime, shard, group.group_id, records, install, written)

    def _replace_by_classic(self, shard: Shard, group: ConsumerGroup) -> None:
        old = group.state
        self.stop(group)
        del shard.consumer_groups[group.group_id]
        self.note_state(group, old, "converted to a classic group")

    def convert_to_classic(self, shard: Shard, group: ConsumerGroup, written: Written) -> None:
        """Replace a consumer group without members by a classic one, which keeps its offsets."""

        def install() -> None:
            self._replace_by_classic(shard, group)
            shard.group_or_new(group.group_id).offsets = group.offsets

        append(self._runtime, shard, group.group_id, [*map(to_bytes, tombstones_of(group.image))], install, written)

    def _install(self, shard: Shard, group: ConsumerGroup, draft: Draft) -> None:
        """Put a decision's state in force, and start and stop the timers that follow from it."""
        group_id = group.group_id
        is_new = shard.consumer_groups.get(group_id) is not group
        former = ConsumerGroupState.EMPTY if is_new else group.state
        changed = {member_id for record in draft.records if (member_id := _member_of(record.key)) is not None}
        group.image = draft.image
        if is_new:
            shard.remove_classic(group_id)
            shard.consumer_groups[group_id] = group
        for member_id in sorted(changed):
            self._follow(shard, group, member_id)
        if is_new or group.state is not former:
            group.state_since_ms = self._runtime.wall_ms
            self.note_state(group, None if is_new else former)

    def _follow(self, shard: Shard, group: ConsumerGroup, member_id: str) -> None:
        """Let the timers of a member whose records have changed follow its state."""
        member = group.image.members.get(member_id)
        timers = self._runtime.timers
        timers.cancel(group.rebalances.pop(member_id, None))
        if member is None:
            for running in (group.sessions, group.joins, group.syncs):
                timers.cancel(running.pop(member_id, None))
            return
        if member_id not in group.sessions:  # also where its join was written and not committed in time
            self._start_session(shard, group, member)
        if member.state is MemberState.UNREVOKED_PARTITIONS:
            self._start_rebalance(shard, group, member_id)

    def note_state(self, group: ConsumerGroup, old: ConsumerGroupState | None, reason: str = "") -> None:
        """Emit a group's state for the event log."""
        self._runtime.note(
            "group",
            group.group_id,
            old=None if old is None else old.value,
            new=group.state.value,
            generation=group.image.epoch,
            members=len(group.image.members),
            reason=reason,
        )

    # Timers

    def restart_session(self, shard: Shard, group: ConsumerGroup, member_id: str) -> None:
        """Start a member's session timer again: it was heard of."""
        member = group.image.members.get(member_id)
        timer = group.sessions.get(member_id)
        if member is None:
            return
        if timer is not None and timer.action is not None:
            self._runtime.timers.postpone(timer, self._session_deadline_ms(group, member))
        else:
            self._start_session(shard, group, member)

    def _session_deadline_ms(self, group: ConsumerGroup, member: ConsumerMember) -> int:
        timeout_ms = self._runtime.times_of(group.group_id).session_timeout_ms
        return self._runtime.now_ms + (timeout_ms if member.classic is None else member.classic.session_timeout_ms)

    def _start_session(self, shard: Shard, group: ConsumerGroup, member: ConsumerMember) -> None:
        member_id, deadline_ms = member.member_id, self._session_deadline_ms(group, member)
        expire = partial(self._expire, shard, group, member_id, "its session expired", None)
        group.sessions[member_id] = self._runtime.start_timer(deadline_ms, "SessionExpiration", expire)

    def _start_rebalance(self, shard: Shard, group: ConsumerGroup, member_id: str) -> None:
        member = group.image.members[member_id]
        reason = f"it has not given up its partitions within {member.rebalance_timeout_ms} ms"
        expire = partial(self._expire, shard, group, member_id, reason, member.epoch)
        deadline_ms = self._runtime.now_ms + max(member.rebalance_timeout_ms, 0)
        group.rebalances[member_id] = self._runtime.start_timer(deadline_ms, "RebalanceTimeout", expire)

    def _expire(self, shard: Shard, group: ConsumerGroup, member_id: str, reason: str, epoch: int | None) -> None:
        """Remove a member whose time has run out, when no write of the group is in flight."""
        act = partial(self._fence, shard, group, member_id, reason, epoch)
        shard.gates.enter(group.group_id, Waiting(act))

    def _fence(self, shard: Shard, group: ConsumerGroup, member_id: str, reason: str, epoch: int | None) -> None:
        member = group.image.members.get(member_id)
        if group.is_dead or member is None or (epoch is None and _is_running(group, member_id)):
            return
        if epoch is not None and (member.epoch != epoch or member.state is not MemberState.UNREVOKED_PARTITIONS):
            return
        self._runtime.log(f"[GroupId {group.group_id}] Member {member_id} fenced from the group because {reason}.")

        def written(error: ErrorCode) -> None:
            if error is not ErrorCode.NONE and not group.is_dead and member_id in group.image.members:
                retry = partial(self._expire, shard, group, member_id, reason, epoch)
                timers = group.sessions if epoch is None else group.rebalances
                self._runtime.timers.cancel(timers.get(member_id))
                timers[member_id] = self._runtime.start_timer(self._runtime.now_ms + RETRY_MS, "Retry", retry)

        self.remove(shard, group, [member_id], written, f"Member {member_id} was fenced because {reason}.")

    # Timers of members with the classic protocol

    def await_join(self, shard: Shard, group: ConsumerGroup, member: ConsumerMember) -> None:
        """Remove a member that must rejoin, unless it does within its rebalance timeout."""
        timer = group.joins.get(member.member_id)
        if timer is None or timer.action is None:
            self._await(shard, group, member, group.joins, "JoinTimeout", "it has not rejoined in time")

    def await_sync(self, shard: Shard, group: ConsumerGroup, member: ConsumerMember) -> None:
        """Remove a member that has joined, unless it sends its SyncGroup within its rebalance timeout."""
        self._runtime.timers.cancel(group.joins.pop(member.member_id, None))
        self._runtime.timers.cancel(group.syncs.pop(member.member_id, None))
        self._await(shard, group, member, group.syncs, "SyncTimeout", "it has not sent its SyncGroup in time")

    def synced(self, group: ConsumerGroup, member_id: str) -> None:
        """Take note that a member has sent its SyncGroup."""
        self._runtime.timers.cancel(group.syncs.pop(member_id, None))

    def _await(
        self,
        shard: Shard,
        group: ConsumerGroup,
        member: ConsumerMember,
        timers: dict[str, Timer],
        cause: str,
        reason: str,
    ) -> None:
        member_id = member.member_id

        def expire() -> None:
            shard.gates.enter(group.group_id, Waiting(fence_it))

        def fence_it() -> None:
            is_served = not group.is_dead and member_id in group.image.members
            if is_served and timers.get(member_id) is timer:
                self._runtime.log(f"[GroupId {group.group_id}] Member {member_id} fenced because {reason}.")
                self.remove(shard, group, [member_id], lambda _: None, f"Member {member_id} was fenced: {reason}.")

        timers[member_id] = timer = self._runtime.start_timer(
            self._runtime.now_ms + max(member.rebalance_timeout_ms, 0), cause, expire
        )

    def resume(self, shard: Shard, group: ConsumerGroup) -> None:
        """Start the timers of a group that was loaded, each in full."""
        for member_id, member in group.image.members.items():
            self._start_session(shard, group, member)
            if member.state is MemberState.UNREVOKED_PARTITIONS:
                self._start_rebalance(shard, group, member_id)

    def stop(self, group: ConsumerGroup) -> None:
        """Stop all timers of a group that is served no longer."""
        group.is_dead = True
        for running in (group.sessions, group.rebalances, group.joins, group.syncs):
            for timer in running.values():
                self._runtime.timers.cancel(timer)


def _member_of(key: ConsumerGroupKey) -> str | None:
    """Return the member of a record; None: it concerns the group."""
    found: str | None = getattr(key, "member_id", None)
    return found


def _is_running(group: ConsumerGroup, member_id: str) -> bool:
    """Return whether a member was heard of since its session expired."""
    timer = group.sessions.get(member_id)
    return timer is not None and timer.action is not None
