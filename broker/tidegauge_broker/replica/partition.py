"""One replica of one partition: its state, and its transitions between leader, follower and neither.

Contract: every method that takes ``out`` appends the effects to execute, in order: log effects first, then
    notifications (effects.py). Nothing here reads a clock, a disk or a network. The roles' own rules are in
    ``leader.py`` and ``follower.py``; this module holds what both share.

The invariants I1 to I8 that are asserted here are listed in the package's contract (``replica/__init__.py``).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tidegauge.cluster_metadata import PartitionState
from tidegauge.control import NO_LEADER
from tidegauge.errors import ErrorCode
from tidegauge.partition import TopicPartition
from tidegauge.record_batch import TRANSACTIONAL_BIT, BatchHeader, Buffer
from tidegauge.transaction_marker import read_marker
from tidegauge_broker.replica.effects import (
    AdvanceLogStart,
    Effect,
    LogLine,
    Note,
    TruncateFully,
    TruncateLog,
    WriteEpochs,
)
from tidegauge_broker.replica.epoch_cache import EpochCache
from tidegauge_broker.replica.messages import CoreSettings, LeaderHint, TopicRules
from tidegauge_broker.replica.open_transactions import OpenTransactions
from tidegauge_broker.replica.ports import LoadedLog
from tidegauge_broker.replica.roles import Role, check_transition
from tidegauge_broker.replica.rules import rule_named
from tidegauge_broker.replica.verification import Verifications

if TYPE_CHECKING:
    from tidegauge_broker.replica.follower import Follower
    from tidegauge_broker.replica.leader import Leader
    from tidegauge_broker.replica.producer_state import ProducerState


EPOCHS_NOTED = 32
"""Maximum number of entries of the epoch cache in an event, the newest ones."""

# Asked for every partition of every fetch: a member of an enumeration takes longer to look up than the question.
_LEADER = Role.LEADER
_OFFLINE = Role.OFFLINE
_NONE = ErrorCode.NONE


class Partition:
    """State of one local replica. ``leader_role`` or ``follower_role`` is set according to ``role``."""

    __slots__ = (
        "adding_replicas",
        "broker_id",
        "emits_diagnostics",
        "epochs",
        "follower_role",
        "high_watermark",
        "leader",
        "leader_epoch",
        "leader_role",
        "log_end_offset",
        "log_start_offset",
        "moved_high_watermark",
        "moved_log_end",
        "moved_low_watermark",
        "partition_epoch",
        "producer_state",
        "removing_replicas",
        "replicas",
        "role",
        "rules",
        "settings",
        "topic_id",
        "topic_partition",
        "transactions",
        "truncation_rule",
        "unwritten",
        "verifications",
    )

    def __init__(
        self,
        topic_partition: TopicPartition,
        broker_id: int,
        settings: CoreSettings,
        rules: TopicRules,
        topic_id: str,
        loaded: LoadedLog,
    ) -> None:
        self.topic_partition = topic_partition
        self.broker_id = broker_id
        self.settings = settings
        self.emits_diagnostics = settings.emits_diagnostics
        """Whether notes and log lines are emitted: what happens often does not make one for nothing."""
        tried = None if settings.tried is None else settings.tried.truncation
        self.truncation_rule = rule_named(settings.truncation_rule) if tried is None else tried
        self.rules = rules
        self.topic_id = topic_id
        check_transition(None, Role.NONE)
        self.role = Role.NONE
        self.leader = NO_LEADER
        self.leader_epoch = -1
        self.partition_epoch = -1
        self.replicas: tuple[int, ...] = ()
        self.adding_replicas: tuple[int, ...] = ()
        self.removing_replicas: tuple[int, ...] = ()
        self.log_start_offset = loaded.log_start_offset
        self.log_end_offset = loaded.log_end_offset
        self.high_watermark = min(max(loaded.high_watermark, loaded.log_start_offset), loaded.log_end_offset)
        self._check_offsets()
        self.epochs = EpochCache(loaded.epochs)
        self.producer_state: ProducerState = loaded.producer_state
        self.transactions: OpenTransactions | None = None
        """Those that keep readers of committed data waiting, as of this step; None until a truncation is executed."""
        self._take_transactions(loaded.producer_state)
        self.leader_role: Leader | None = None
        self.follower_role: Follower | None = None
        self.moved_high_watermark = False
        self.moved_log_end = False
        self.moved_low_watermark = False
        self.unwritten: list[BatchHeader] = []
        """Batches that this very step appends: the log does not have them before the effects are executed."""
        self.verifications = Verifications()

    # Decisions of the controller

    def enter(self, role: Role) -> None:
        """Take a role, which must be allowed by the table of roles."""
        check_transition(self.role, role)
        self.role = role

    def adopt(self, state: PartitionState) -> None:
        """Take over the leader and its epochs. The caller has checked that they are not stale."""
        assert state.leader_epoch >= self.leader_epoch, "I5"
        assert state.partition_epoch >= self.partition_epoch, "I5"
        self.mark_changed()
        self.leader = state.leader
        self.leader_epoch = state.leader_epoch
        self.partition_epoch = state.partition_epoch
        self.replicas = state.replicas
        self.adding_replicas, self.removing_replicas = state.adding_replicas, state.removing_replicas

    def go_offline(self, cause: str, out: list[Effect]) -> None:
        """Stop serving after a failure of the log directory."""
        if self.role is _OFFLINE:
            return
        self.mark_changed()
        self.leader_role = None
        self.follower_role = None
        self.enter(_OFFLINE)
        self.unwritten.clear()
        self.note("role", cause, out, role="offline", leader=self.leader, leader_epoch=self.leader_epoch)

    def mark_changed(self) -> None:
        """Have the sessions that fetch from this replica, or the rounds that fetch for it, look at it again.

        To be called wherever anything changes that decides what a follower's fetch gives or does here
        (``standing_fetch``), or what this replica asks its leader (``standing_rounds``).
        """
        if self.leader_role is not None:
            self.leader_role.mark_changed()
        elif self.follower_role is not None and self.follower_role.standing is not None:
            self.follower_role.standing.look_at(self.topic_partition)

    def note_role(self, cause: str, out: list[Effect]) -> None:
        """Note the role that this replica has taken, and what its log and its topic's min.insync.replicas are then.

        Without it a log that was found on the disk, or a setting that was changed while the broker did not run, would
        be unknown to a reader of events until its first change.
        """
        if not self.emits_diagnostics:
            return
        fields: dict[str, object] = {
            "role": self.role.value,
            "leader": self.leader,
            "leader_epoch": self.leader_epoch,
            "replicas": self.replicas,
            "topic_id": self.topic_id,
            "min_insync_replicas": self.rules.min_insync_replicas,
            "log_start_offset": self.log_start_offset,
            "high_watermark": self.high_watermark,
            "log_end_offset": self.log_end_offset,
            "epochs": [(entry.epoch, entry.start_offset) for entry in self.epochs.entries[-EPOCHS_NOTED:]],
        }
        if self.transactions is not None:  # else a truncation has to be executed before they are known again
            fields["last_stable_offset"] = self.last_stable_offset
        self.note("role", cause, out, **fields)

    @property
    def is_reassigning(self) -> bool:
        """Whether the latest state names replicas to add or to remove (Partition.isReassigning)."""
        return bool(self.adding_replicas or self.removing_replicas)

    # Checks of every request

    def check_leader_epoch(self, asked: int | None) -> ErrorCode:
        """Compare the epoch that a request carries with this replica's (KIP-320). It comes before the leader check."""
        if asked is None or asked == self.leader_epoch:
            return _NONE
        if asked < self.leader_epoch:
            return ErrorCode.FENCED_LEADER_EPOCH
        return ErrorCode.UNKNOWN_LEADER_EPOCH

    def refusal_as_leader(self, asked_epoch: int | None) -> ErrorCode:
        """Why this replica can't serve as leader of that epoch, or NONE."""
        if self.role is _LEADER and (asked_epoch is None or asked_epoch == self.leader_epoch):
            return _NONE
        if self.role is _OFFLINE:
            return ErrorCode.KAFKA_STORAGE_ERROR
        error = self.check_leader_epoch(asked_epoch)
        if error is not _NONE:
            return error
        return _NONE if self.role is _LEADER else ErrorCode.NOT_LEADER_OR_FOLLOWER

    @property
    def leader_hint(self) -> LeaderHint | None:
        """The leader, as far as this replica knows."""
        return None if self.leader == NO_LEADER else LeaderHint(self.leader, self.leader_epoch)

    # Changes of the log, shared by both roles

    def note_election(self, cause: str, out: list[Effect]) -> None:
        """Note that this replica leads in a new epoch, if the rule does; it is on disk before anything that follows."""
        if self.truncation_rule.note_election(self.epochs, self.leader_epoch, self.log_end_offset):
            self._epoch_noted(self.leader_epoch, self.log_end_offset, cause, out)

    def note_batch_epoch(self, header: BatchHeader, cause: str, out: list[Effect]) -> None:
        """Note the epoch of a batch about to be appended; a new one is on disk before the batch."""
        if header.leader_epoch != self.epochs.latest_epoch and self.truncation_rule.note_batch(
            self.epochs, header.leader_epoch, header.base_offset
        ):
            self._epoch_noted(header.leader_epoch, header.base_offset, cause, out)

    def _epoch_noted(self, epoch: int, start_offset: int, cause: str, out: list[Effect]) -> None:
        self.mark_changed()
        out.append(WriteEpochs(self.topic_partition, self.epochs.entries, sync=True))
        if self.emits_diagnostics:
            self.note("epoch", cause, out, leader_epoch=epoch, start_offset=start_offset)

    def move_log_end(self, log_end_offset: int, cause: str, out: list[Effect]) -> None:
        """Move the log end offset after an append."""
        assert log_end_offset >= self.log_end_offset, "I1"
        old, self.log_end_offset = self.log_end_offset, log_end_offset
        self.moved_log_end = True
        self.mark_changed()
        if self.emits_diagnostics:  # as ``note``, which costs twice as much for what happens with every batch
            out.append(Note("log_end_offset", self.topic_partition, cause, {"old": old, "new": log_end_offset}))

    def _check_offsets(self) -> None:
        """Assert the order of the offsets, after a change of any of them."""
        assert 0 <= self.log_start_offset <= self.high_watermark <= self.log_end_offset, "I1"

    def note_transactions(self, records: Buffer, headers: Sequence[BatchHeader]) -> None:
        """Note what batches that are about to be appended do to transactions; their markers can be read.

        On leader and follower alike, a producer's transactional batch ends its verification
        (UnifiedLog.updateProducers).
        """
        transactions = self.transactions
        for header in headers:
            if not header.attributes & TRANSACTIONAL_BIT or header.producer_id < 0:
                continue
            self.verifications.end(header)
            if transactions is None:
                continue
            if not header.is_control:
                transactions.open(header.producer_id, header.base_offset)
            elif read_marker(records, header) is not None:
                completed = transactions.complete(header.producer_id, header.last_offset)
                if completed is not None:
                    transactions.hold(completed)

    def _take_transactions(self, producer_state: ProducerState) -> None:
        self.transactions = producer_state.transactions.copy()
        self.transactions.replicated(self.high_watermark)

    @property
    def last_stable_offset(self) -> int:
        """Return the exclusive bound for readers of committed data: open_transactions.py."""
        transactions = self.transactions
        if transactions is None:
            return self.log_start_offset
        if not transactions:
            return self.high_watermark
        first_unstable = transactions.first_unstable_offset(self.log_start_offset)
        return self.high_watermark if first_unstable is None else min(first_unstable, self.high_watermark)

    def set_high_watermark(self, high_watermark: int, cause: str, out: list[Effect]) -> bool:
        """Set the high watermark; says whether it changed. A follower's may go down, a leader's never (I2)."""
        assert self.log_start_offset <= high_watermark <= self.log_end_offset, "I1"
        assert self.role is not _LEADER or high_watermark >= self.high_watermark, "I2"
        if high_watermark == self.high_watermark:
            return False
        stable = self.last_stable_offset if self.transactions else None
        old, self.high_watermark = self.high_watermark, high_watermark
        self.moved_high_watermark = True
        self.mark_changed()
        if self.transactions:
            self.transactions.replicated(high_watermark)
        if self.emits_diagnostics:
            out.append(Note("high_watermark", self.topic_partition, cause, {"old": old, "new": high_watermark}))
        if stable is not None:
            self._note_stable(stable, cause, out, was_held=stable < old)
        return True

    def _note_stable(self, old: int, cause: str, out: list[Effect], *, was_held: bool) -> None:
        """Note that transactions hold the last stable offset below the high watermark, that it moved, or let it go."""
        new = self.last_stable_offset
        if new != old if was_held else new < self.high_watermark:
            self.note("last_stable_offset", cause, out, old=old, new=new, high_watermark=self.high_watermark)

    def truncate_to(self, offset: int, cause: str, out: list[Effect]) -> None:
        """Truncate the log to an end offset. At or above the end only the epoch cache is trimmed (KAFKA-10706)."""
        if offset >= self.log_end_offset:
            if self.epochs.truncate_from_end(self.log_end_offset):
                self.mark_changed()
                out.append(WriteEpochs(self.topic_partition, self.epochs.entries, sync=False))
            return
        assert offset >= 0, "an end of a log, by the truncation rule"
        old = self.log_end_offset
        self.mark_changed()
        out.append(TruncateLog(self.topic_partition, offset))
        self.transactions = None
        self.log_start_offset = min(self.log_start_offset, offset)
        # The high watermark falls first, so that no event shows it above the log end offset.
        self._lower_high_watermark(offset, cause, out)
        self.log_end_offset = offset
        self._check_offsets()
        if self.epochs.truncate_from_end(offset):
            out.append(WriteEpochs(self.topic_partition, self.epochs.entries, sync=False))
        if self.emits_diagnostics:
            self.note("truncation", cause, out, old=old, new=offset, log_start_offset=self.log_start_offset)
            self.say("info", f"Truncating to offset {offset} (log end offset was {old}, cause: {cause})", out)

    def truncate_fully(self, start_offset: int, cause: str, out: list[Effect]) -> None:
        """Empty the log and start again at an offset."""
        assert start_offset >= 0, "the start of a leader's log"
        old = self.log_end_offset
        self.mark_changed()
        out.append(TruncateFully(self.topic_partition, start_offset))
        self.transactions = None
        self.log_start_offset = min(self.log_start_offset, start_offset)
        self._lower_high_watermark(start_offset, cause, out)
        self.log_start_offset = self.log_end_offset = start_offset
        if self.epochs.clear():
            # Kafka flushes this one (clearAndFlush): old epochs must not precede a log that begins elsewhere.
            out.append(WriteEpochs(self.topic_partition, [], sync=True))
        self.note("truncation", cause, out, old=old, new=start_offset, log_start_offset=start_offset)
        self.say("info", f"Truncating fully and starting at offset {start_offset} (log end offset was {old})", out)
        if self.high_watermark != start_offset:
            self.set_high_watermark(start_offset, cause, out)
        self._check_offsets()

    def _lower_high_watermark(self, log_end_offset: int, cause: str, out: list[Effect]) -> None:
        if self.high_watermark > log_end_offset:
            self.say(
                "warning", f"Non-monotonic update of high watermark from {self.high_watermark} to {log_end_offset}", out
            )
            self.set_high_watermark(log_end_offset, cause, out)

    def advance_log_start(self, offset: int, cause: str, out: list[Effect], *, tell_log: bool = True) -> bool:
        """Raise the log start offset; it may not pass the high watermark. Says whether it moved."""
        offset = min(offset, self.high_watermark)
        if offset <= self.log_start_offset:
            return False
        if tell_log:
            out.append(AdvanceLogStart(self.topic_partition, offset))
        stable = self.last_stable_offset
        self.mark_changed()
        old, self.log_start_offset = self.log_start_offset, offset
        self._check_offsets()
        if self.epochs.truncate_from_start(offset):
            out.append(WriteEpochs(self.topic_partition, self.epochs.entries, sync=False))
        self.note("log_start_offset", cause, out, old=old, new=offset)
        if self.transactions:
            self._note_stable(stable, cause, out, was_held=stable < self.high_watermark)
        return True

    def log_truncated(self, producer_state: ProducerState) -> None:
        """Take over the producer state that the executed truncation rebuilt."""
        assert not self.unwritten, "a truncation and an append in one step"
        self.producer_state = producer_state
        self._take_transactions(producer_state)

    # Views

    def note(self, kind: str, cause: str, out: list[Effect], **fields: object) -> None:
        """Emit a line for the event log."""
        if self.emits_diagnostics:
            out.append(Note(kind, self.topic_partition, cause, fields))

    def say(self, level: str, text: str, out: list[Effect]) -> None:
        """Emit a line for the broker's log, with Kafka's prefix."""
        if self.emits_diagnostics:
            line = f"[Partition {self.topic_partition} broker={self.broker_id}] {text}"
            out.append(LogLine(level, line, self.topic_partition))
