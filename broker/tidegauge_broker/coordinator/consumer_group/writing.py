"""Writes the decisions about consumer groups, and puts them in force; runs the timers of their members.

Contract: a group has one write in flight at a time. Its records are replayed on a copy of the group's state, which
takes the state's place when they are committed; if they are not, nothing has changed. Records that are in the log, but
were not committed in time, count: they usually commit later, and the next load reads them.
Source: CoordinatorRuntime; GroupMetadataManager (scheduleConsumerGroupSessionTimeout and its kin).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from tidegauge.consumer_groups import ConsumerGroupState
from tidegauge.errors import ErrorCode
from tidegauge_broker.coordinator.consumer_group.group import ConsumerGroup
from tidegauge_broker.coordinator.consumer_group.image import Draft
from tidegauge_broker.coordinator.consumer_group.leaving import fence
from tidegauge_broker.coordinator.consumer_group.member import MemberState
from tidegauge_broker.coordinator.consumer_group.records import ConsumerGroupKey, to_bytes
from tidegauge_broker.coordinator.consumer_group.topics import Topics
from tidegauge_broker.coordinator.gates import Waiting
from tidegauge_broker.coordinator.led_partitions import ShardState
from tidegauge_broker.coordinator.record_codec import Record, batch_of
from tidegauge_broker.coordinator.records import OFFSETS_BASE_SEQUENCE
from tidegauge_broker.coordinator.runtime import GroupRuntime
from tidegauge_broker.coordinator.shard import Shard, tombstones_of

RETRY_MS = 500
"""After a failed write of a timer's decision it is tried again (CoordinatorTimerImpl.schedule)."""
_IN_THE_LOG = frozenset({ErrorCode.NONE, ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND})
"""Outcomes of an append after which the records are in the log; without a commit in time they usually commit later."""
_CLIENT_ERRORS = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
    ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.RECORD_LIST_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.NETWORK_EXCEPTION: ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
}
"""What a client gets for the error of an append (CoordinatorOperationExceptionHelper)."""
Written = Callable[[ErrorCode], None]
"""Called with NONE when a decision's records are committed and its state is in force; else with a client's error."""


class GroupWriter:
    """See the module."""

    def __init__(self, runtime: GroupRuntime, topics: Topics) -> None:
        self._runtime = runtime
        self._topics = topics

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
            prefix: records that come before those of the draft.
        """
        records = [*(prefix or ()), *map(to_bytes, draft.records)]
        self._append(shard, group.group_id, records, lambda: self._install(shard, group, draft), written)

    def convert_to_classic(self, shard: Shard, group: ConsumerGroup, written: Written) -> None:
        """Replace a consumer group without members by a classic one, which keeps its offsets."""

        def install() -> None:
            self.stop(group)
            del shard.consumer_groups[group.group_id]
            self.note_state(group, ConsumerGroupState.EMPTY, "converted to a classic group")
            shard.group_or_new(group.group_id).offsets = group.offsets

        self._append(shard, group.group_id, [*map(to_bytes, tombstones_of(group.image))], install, written)

    def _append(
        self, shard: Shard, group_id: str, records: list[Record], install: Callable[[], None], written: Written
    ) -> None:
        if not records:
            written(ErrorCode.NONE)
            return

        def outcome(error: ErrorCode, _base_offset: int) -> None:
            if shard.state is not ShardState.ACTIVE:
                written(ErrorCode.NOT_COORDINATOR)
                return
            if error in _IN_THE_LOG:
                install()
            else:
                self._runtime.log(
                    f"[GroupId {group_id}] A change of the group was not written: {error.name}", "warning"
                )
            shard.gates.open(group_id, lambda: written(_CLIENT_ERRORS.get(error, error)))

        shard.gates.close(group_id)
        compression = self._runtime.settings.offsets_topic_compression_codec
        batch = batch_of(records, self._runtime.wall_ms, OFFSETS_BASE_SEQUENCE, compression)
        self._runtime.append_record(shard.partition, batch, outcome)

    def _install(self, shard: Shard, group: ConsumerGroup, draft: Draft) -> None:
        """Put a decision's state in force, and start and stop the timers that follow from it."""
        group_id = group.group_id
        is_new = shard.consumer_groups.get(group_id) is not group
        former = ConsumerGroupState.EMPTY if is_new else group.state
        if is_new:
            shard.remove_classic(group_id)
            shard.consumer_groups[group_id] = group
        changed = {member_id for record in draft.records if (member_id := _member_of(record.key)) is not None}
        group.image = draft.image
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
            timers.cancel(group.sessions.pop(member_id, None))
        elif member.state is MemberState.UNREVOKED_PARTITIONS:
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
        deadline_ms = self._runtime.now_ms + self._runtime.settings.consumer_session_timeout_ms
        timer = group.sessions.get(member_id)
        if timer is not None and timer.action is not None:
            self._runtime.timers.postpone(timer, deadline_ms)
        elif member_id in group.image.members:
            self._start_session(shard, group, member_id, deadline_ms)

    def _start_session(self, shard: Shard, group: ConsumerGroup, member_id: str, deadline_ms: int) -> None:
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
        draft = Draft(group.image)
        fence(draft, [member_id], self._topics)

        def written(error: ErrorCode) -> None:
            if error is not ErrorCode.NONE and not group.is_dead and member_id in group.image.members:
                retry = partial(self._expire, shard, group, member_id, reason, epoch)
                timers = group.sessions if epoch is None else group.rebalances
                self._runtime.timers.cancel(timers.get(member_id))
                timers[member_id] = self._runtime.start_timer(self._runtime.now_ms + RETRY_MS, "Retry", retry)

        self.write(shard, group, draft, written)

    def resume(self, shard: Shard, group: ConsumerGroup) -> None:
        """Start the timers of a group that was loaded, each in full."""
        deadline_ms = self._runtime.now_ms + self._runtime.settings.consumer_session_timeout_ms
        for member_id, member in group.image.members.items():
            self._start_session(shard, group, member_id, deadline_ms)
            if member.state is MemberState.UNREVOKED_PARTITIONS:
                self._start_rebalance(shard, group, member_id)

    def stop(self, group: ConsumerGroup) -> None:
        """Stop all timers of a group that is served no longer."""
        group.is_dead = True
        for timer in (*group.sessions.values(), *group.rebalances.values()):
            self._runtime.timers.cancel(timer)


def _member_of(key: ConsumerGroupKey) -> str | None:
    """Return the member that a record is about; None: it is about the group."""
    found: str | None = getattr(key, "member_id", None)
    return found


def _is_running(group: ConsumerGroup, member_id: str) -> bool:
    """Return whether a member was heard of since its session expired."""
    timer = group.sessions.get(member_id)
    return timer is not None and timer.action is not None
