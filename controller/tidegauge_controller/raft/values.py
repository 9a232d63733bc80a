"""Values of a Raft quorum: replica keys, voters, offsets with epochs, batches, control records (KIP-595, KIP-853)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import field
from typing import NamedTuple

from tidegauge.lazy_dataclasses import dataclass

LOWEST_KRAFT_VERSION = 0
"""Static voters, named by ids alone (KIP-595)."""
VOTERS_IN_LOG = 1
"""The kraft.version from which the voter set is part of the log and voters are named by id and directory (KIP-853)."""
LAST_EPOCH = 2**31 - 2
"""The highest epoch that a message may bring and an election may begin.

Epochs are int32 in every schema, and a node that hears of a higher epoch joins it. An epoch without a successor would
end all elections of the quorum, so 2^31 - 1 is refused; Kafka's ``epoch + 1`` overflows there.
"""


class OffsetAndEpoch(NamedTuple):
    """An exclusive end offset and the leader epoch of the record before it; also the id of a snapshot."""

    offset: int
    epoch: int


class Endpoint(NamedTuple):
    """The address of a controller's listener."""

    listener: str
    host: str
    port: int


class ReplicaKey(NamedTuple):
    """A replica of the metadata log: a node and the directory of its log (ReplicaKey of KIP-853).

    Attributes:
        id: the node's id.
        directory_id: the 16 bytes of ``directory.id`` in meta.properties; None if unknown, as for voters under
            kraft.version 0.
    """

    id: int
    directory_id: bytes | None = None


@dataclass(frozen=True, slots=True)
class Voter:
    """A member of the voter set (VotersRecord): its key, its endpoints and the kraft.versions that it supports."""

    key: ReplicaKey
    endpoints: tuple[Endpoint, ...] = ()
    lowest_version: int = LOWEST_KRAFT_VERSION
    highest_version: int = VOTERS_IN_LOG

    def is_named_by(self, key: ReplicaKey) -> bool:
        """Whether ``key`` names this voter: equal ids, and equal directories if this voter's is known."""
        return self.key.id == key.id and self.key.directory_id in {None, key.directory_id}


@dataclass(frozen=True, slots=True)
class VoterSet:
    """The voters at one offset of the log. Ids are unique, over all directories (VoterSet of KIP-853)."""

    voters: Mapping[int, Voter] = field(default_factory=dict[int, Voter])

    @staticmethod
    def of(voters: Iterable[Voter]) -> VoterSet:
        """Return the set of these voters, in the order of their ids."""
        return VoterSet({voter.key.id: voter for voter in sorted(voters, key=lambda voter: voter.key.id)})

    def __len__(self) -> int:
        return len(self.voters)

    @property
    def ids(self) -> list[int]:
        """The voters' ids, ascending."""
        return list(self.voters)

    @property
    def keys(self) -> tuple[ReplicaKey, ...]:
        """The voters' keys in the order of their ids."""
        return tuple(voter.key for voter in self.voters.values())

    @property
    def majority(self) -> int:
        """The least number of voters that is more than half of them."""
        return len(self.voters) // 2 + 1

    def has(self, key: ReplicaKey) -> bool:
        """Whether this replica is a voter; its directory counts if the set knows the voter's directory."""
        voter = self.voters.get(key.id)
        return voter is not None and voter.is_named_by(key)

    def endpoint(self, voter_id: int) -> Endpoint | None:
        """Return a voter's first endpoint; None without one."""
        voter = self.voters.get(voter_id)
        return voter.endpoints[0] if voter is not None and voter.endpoints else None

    def with_voter(self, voter: Voter) -> VoterSet:
        """Return the set with this voter added, or replaced by id."""
        return VoterSet.of([*(other for other in self.voters.values() if other.key.id != voter.key.id), voter])

    def without(self, voter_id: int) -> VoterSet:
        """Return the set without this voter."""
        return VoterSet.of(voter for voter in self.voters.values() if voter.key.id != voter_id)

    def differs_by_at_most_one(self, other: VoterSet) -> bool:
        """Whether one addition or one removal at most leads to ``other``, so that majorities overlap.

        Source: VoterSet.hasOverlappingMajority.
        """
        mine, others = set(self.keys), set(other.keys)
        return len(mine - others) + len(others - mine) <= 1


@dataclass(frozen=True, slots=True)
class ElectionState:
    """A node's ``quorum-state``: its epoch, the leader it knows in it, and the vote that it gave in it.

    Attributes:
        epoch: the highest epoch that the node has seen.
        leader_id: the leader of the epoch; None if unknown.
        voted: the replica that has this node's vote of the epoch; None if no vote was given.
    """

    epoch: int = 0
    leader_id: int | None = None
    voted: ReplicaKey | None = None


@dataclass(frozen=True, slots=True)
class LeaderChange:
    """Control record: a leader begins its epoch (LeaderChangeMessage)."""

    leader_id: int
    voters: tuple[ReplicaKey, ...]
    granting_voters: tuple[ReplicaKey, ...]


@dataclass(frozen=True, slots=True)
class KRaftVersionRecord:
    """Control record: the kraft.version from this offset on."""

    version: int


@dataclass(frozen=True, slots=True)
class VotersRecord:
    """Control record: the voter set from this offset on, in force as soon as it is appended (KIP-853)."""

    voter_set: VoterSet


ControlRecord = LeaderChange | KRaftVersionRecord | VotersRecord


@dataclass(frozen=True, slots=True)
class Batch:
    """A batch of the metadata log: control records, or records that mean nothing to Raft.

    Attributes:
        base_offset: the offset of its first record.
        end_offset: the offset behind its last record (exclusive).
        epoch: the epoch of the leader that appended it.
        control: the control records of a control batch; empty for a batch of data.
        payload: the records or bytes of a batch of data, which Raft passes on and never reads.
        timestamp_ms: when the leader appended it.
    """

    base_offset: int
    end_offset: int
    epoch: int
    control: tuple[ControlRecord, ...] = ()
    payload: object = None
    timestamp_ms: int = 0
