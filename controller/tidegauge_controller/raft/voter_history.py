"""Voter sets and kraft.versions by offset of the log (KRaftControlRecordStateMachine, VoterSetHistory)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from tidegauge_controller.raft.values import LOWEST_KRAFT_VERSION, Batch, KRaftVersionRecord, VoterSet, VotersRecord

IN_SNAPSHOT = -1
"""The offset at which the history notes values that came from a snapshot."""


class VotersAt(NamedTuple):
    """A voter set and the offset of its record; IN_SNAPSHOT if it came from a snapshot."""

    offset: int
    voter_set: VoterSet


class VersionAt(NamedTuple):
    """A kraft.version and the offset of its record; IN_SNAPSHOT if it came from a snapshot."""

    offset: int
    version: int


@dataclass(slots=True)
class VoterHistory:
    """Every voter set and kraft.version of the log, committed or not: the latest one is in force.

    Attributes:
        static: the voters of ``controller.quorum.voters``; they count while the log has no voter set.
        voters: voter sets by the offset of their record, ascending.
        versions: kraft.versions likewise.
        snapshot_is_bootstrap: whether the values noted at IN_SNAPSHOT come from the snapshot (0, 0), which a
            formatted node has; the log itself then never held them.
    """

    static: VoterSet = field(default_factory=VoterSet)
    voters: list[VotersAt] = field(default_factory=list[VotersAt])
    versions: list[VersionAt] = field(default_factory=list[VersionAt])
    snapshot_is_bootstrap: bool = False

    @property
    def current(self) -> VoterSet:
        """The latest voter set, committed or not."""
        return self.voters[-1].voter_set if self.voters else self.static

    @property
    def version(self) -> int:
        """The latest kraft.version, committed or not."""
        return self.versions[-1].version if self.versions else LOWEST_KRAFT_VERSION

    @property
    def last_voters_offset(self) -> int | None:
        """The offset of the latest VotersRecord in the log; None if the set is static or came from a snapshot."""
        return self.voters[-1].offset if self.voters and self.voters[-1].offset != IN_SNAPSHOT else None

    @property
    def is_from_bootstrap(self) -> bool:
        """Whether the latest voter set came from the snapshot of a formatted node and was never in the log."""
        return bool(self.voters) and self.voters[-1].offset == IN_SNAPSHOT and self.snapshot_is_bootstrap

    def voters_at(self, end_offset: int) -> VoterSet:
        """Return the voter set after the records below ``end_offset``."""
        found = [at.voter_set for at in self.voters if at.offset < end_offset]
        return found[-1] if found else self.static

    def version_at(self, end_offset: int) -> int:
        """Return the kraft.version after the records below ``end_offset``."""
        found = [at.version for at in self.versions if at.offset < end_offset]
        return found[-1] if found else LOWEST_KRAFT_VERSION

    def replay(self, batch: Batch) -> None:
        """Take in the control records of an appended batch."""
        for offset, record in enumerate(batch.control, batch.base_offset):
            if isinstance(record, VotersRecord):
                self.voters.append(VotersAt(offset, record.voter_set))
            elif isinstance(record, KRaftVersionRecord):
                self.versions.append(VersionAt(offset, record.version))

    def replay_all(self, batches: Iterable[Batch]) -> None:
        """Take in the control records of a whole log."""
        for batch in batches:
            self.replay(batch)

    def truncate(self, end_offset: int) -> None:
        """Forget the records at and beyond ``end_offset``; the values before them are in force again."""
        self.voters = [at for at in self.voters if at.offset < end_offset]
        self.versions = [at for at in self.versions if at.offset < end_offset]

    def prune(self, start_offset: int) -> None:
        """Forget what no offset of the log needs any more (``KRaftControlRecordStateMachine.truncateOldEntries``).

        The latest entry below ``start_offset``, the log's new start, is in force there and stays.
        """
        self.voters = self.voters[_first_needed([at.offset for at in self.voters], start_offset) :]
        self.versions = self.versions[_first_needed([at.offset for at in self.versions], start_offset) :]

    def restart(self, voter_set: VoterSet | None, version: int, *, is_bootstrap: bool = False) -> None:
        """Begin with the values of a snapshot.

        Args:
            voter_set: its voters; None under kraft.version 0, whose voters are static.
            version: its kraft.version.
            is_bootstrap: whether it is the snapshot (0, 0) of a formatted node.
        """
        self.voters = [] if voter_set is None else [VotersAt(IN_SNAPSHOT, voter_set)]
        self.versions = [VersionAt(IN_SNAPSHOT, version)]
        self.snapshot_is_bootstrap = is_bootstrap


def _first_needed(offsets: list[int], start_offset: int) -> int:
    """Return the index of the latest entry below an offset, or 0."""
    return max(0, sum(offset < start_offset for offset in offsets) - 1)
