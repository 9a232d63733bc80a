"""The disk of a simulated controller: what the page cache holds, and what a power loss leaves of it."""

from __future__ import annotations

from dataclasses import dataclass, field

from tidegauge_controller.raft.log_view import LogView, loaded
from tidegauge_controller.raft.values import Batch, ElectionState, OffsetAndEpoch, VoterSet
from tidegauge_controller.raft.voter_history import VoterHistory
from tidegauge_proof.simulator.dice import Dice

BOOTSTRAP = OffsetAndEpoch(0, 0)


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The content of a snapshot: the batches that it stands for, its voters and its kraft.version."""

    batches: tuple[Batch, ...]
    voter_set: VoterSet | None
    kraft_version: int


@dataclass(slots=True)
class QuorumDisk:
    """Log, snapshots and ``quorum-state`` of one directory.

    Attributes:
        static: the voters of the node's configuration.
        log: the batches in the page cache, from ``start_offset`` on.
        durable: the batches that the last flush put on the disk; a truncation that no flush followed may be undone.
        start_offset: where the log begins.
        snapshots: by id. They are synced when they get their name.
        election: ``quorum-state``.
        writing: the election state that is being put in its place.
        generation: counts what makes a sync in progress worthless: truncations and the like.
        syncs: the generation at which each sync began.
    """

    static: VoterSet
    log: list[Batch] = field(default_factory=list[Batch])
    durable: list[Batch] = field(default_factory=list[Batch])
    start_offset: int = 0
    snapshots: dict[OffsetAndEpoch, Snapshot] = field(default_factory=dict[OffsetAndEpoch, Snapshot])
    election: ElectionState = field(default_factory=ElectionState)
    writing: ElectionState | None = None
    generation: int = 0
    syncs: dict[int, int] = field(default_factory=dict[int, int])

    def die(self, dice: Dice, *, loses_power: bool) -> None:
        """End the process. A rename in flight has happened or not; with the power the page cache goes.

        A part of the unflushed batches may have reached the disk by itself.
        """
        if self.writing is not None and dice.happens(0.5):
            self.election = self.writing
        self.writing = None
        self.syncs.clear()
        if not loses_power:
            return
        common = 0
        while common < min(len(self.log), len(self.durable)) and self.log[common] == self.durable[common]:
            common += 1
        if common == len(self.durable):
            self.log = self.log[: common + dice.below(len(self.log) - common + 1)]
        else:
            # A truncation that no sync followed has reached the disk, or has not.
            self.log = self.durable[:common] if dice.happens(0.5) else list(self.durable)
        self.durable = list(self.log)

    def truncate(self, end_offset: int) -> None:
        """Truncate the log in the page cache."""
        self.generation += 1
        self.log = [batch for batch in self.log if batch.end_offset <= end_offset]

    def synced(self, number: int, end_offset: int) -> None:
        """End a sync: what lies below its end is on the disk, unless the log was truncated meanwhile."""
        if self.syncs.pop(number) != self.generation:
            return
        synced = [batch for batch in self.log if batch.end_offset <= end_offset]
        if self.durable[: len(synced)] != synced:  # else a later sync was quicker
            self.durable = synced

    def install(self, snapshot_id: OffsetAndEpoch, content: Snapshot) -> None:
        """Keep a fetched snapshot and begin the log behind it."""
        self.snapshots = {snapshot_id: content}
        self.log, self.durable = [], []
        self.start_offset = snapshot_id.offset
        self.generation += 1

    def move_start(self, snapshot_id: OffsetAndEpoch) -> None:
        """Delete records and older snapshots below a snapshot's end."""
        self.start_offset = snapshot_id.offset
        self.snapshots = {key: content for key, content in self.snapshots.items() if key.offset >= snapshot_id.offset}
        self.log = [batch for batch in self.log if batch.base_offset >= snapshot_id.offset]
        self.durable = [batch for batch in self.durable if batch.base_offset >= snapshot_id.offset]

    def whole(self) -> list[Batch]:
        """Return all batches from offset 0 on: the first snapshot's, then the log's."""
        return [*self._before(), *self.log]

    def whole_durable(self) -> list[Batch]:
        """Return all batches that survive a power loss."""
        return [*self._before(), *self.durable]

    def _before(self) -> tuple[Batch, ...]:
        return next((content.batches for key, content in self.snapshots.items() if key.offset == self.start_offset), ())

    def opened(self) -> tuple[LogView, VoterHistory]:
        """Return what a node reads at its start, uncommitted records too.

        A former process's data in the page cache are synced first, as the real store does: the node counts them.
        """
        history = VoterHistory(self.static)
        newest = max(self.snapshots, default=None)
        if newest is not None and newest.offset > (self.log[-1].end_offset if self.log else self.start_offset):
            # The snapshot is beyond the log: the log begins again behind it, as at the end of a download.
            self.install(newest, self.snapshots[newest])
        self.durable = list(self.log)
        base = next((key for key in self.snapshots if key.offset == self.start_offset), None)
        if base is not None:
            content = self.snapshots[base]
            history.restart(content.voter_set, content.kraft_version, is_bootstrap=base == BOOTSTRAP)
        history.replay_all(self.log)
        return loaded(self.log, snapshots=sorted(self.snapshots), start_offset=self.start_offset), history
