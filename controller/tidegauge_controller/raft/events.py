"""The events of a quorum's node: the inputs of ``RaftNode.step``."""

from __future__ import annotations

from tidegauge.lazy_dataclasses import dataclass
from tidegauge_controller.raft.messages import Request, Response
from tidegauge_controller.raft.values import OffsetAndEpoch, VoterSet


@dataclass(frozen=True, slots=True)
class Tick:
    """Time has passed; only timers that are due are looked at."""


@dataclass(frozen=True, slots=True)
class RequestReceived:
    """A request has arrived; ``token`` names it in the ``Respond`` that follows."""

    token: object
    request: Request


@dataclass(frozen=True, slots=True)
class ResponseReceived:
    """The response to a ``Send`` has arrived."""

    correlation_id: int
    response: Response


@dataclass(frozen=True, slots=True)
class SendFailed:
    """A ``Send`` has brought no response: the connection could not be made, was closed, or the request expired."""

    correlation_id: int


@dataclass(frozen=True, slots=True)
class ElectionPersisted:
    """The ``PersistElection`` of the last step is on the disk."""


@dataclass(frozen=True, slots=True)
class Flushed:
    """Flush ``number`` is done: everything below ``end_offset`` is on the disk."""

    number: int
    end_offset: int


@dataclass(frozen=True, slots=True)
class Propose:
    """Append records of the controller, in one batch.

    Attributes:
        token: names the proposal in the ``Proposed`` or ``NotProposed`` that follows.
        epoch: the epoch in which the controller believes that it leads.
        count: how many records they are.
        size_bytes: how long they are, encoded.
        payload: the records, which Raft never reads.
    """

    token: object
    epoch: int
    count: int
    size_bytes: int
    payload: object


@dataclass(frozen=True, slots=True)
class UpgradeKRaftVersion:
    """Raise kraft.version to ``version``, so that the voters move into the log (KIP-853, UpdateFeatures)."""

    token: object
    version: int


@dataclass(frozen=True, slots=True)
class Resign:
    """The controller gives its leadership of ``epoch`` up (RaftClient.resign)."""

    epoch: int


@dataclass(frozen=True, slots=True)
class ShutDown:
    """The process is to end; a leader hands its leadership over first."""


@dataclass(frozen=True, slots=True)
class SnapshotCreated:
    """The controller has written a snapshot of the committed records below ``snapshot.offset``."""

    snapshot: OffsetAndEpoch


@dataclass(frozen=True, slots=True)
class SnapshotInstalled:
    """The snapshot of an ``InstallSnapshot`` is on the disk and the log begins behind it.

    Attributes:
        snapshot: its id.
        voter_set: its voters; None under kraft.version 0.
        kraft_version: its kraft.version.
    """

    snapshot: OffsetAndEpoch
    voter_set: VoterSet | None
    kraft_version: int


@dataclass(frozen=True, slots=True)
class SnapshotRefused:
    """The snapshot of an ``InstallSnapshot`` is damaged; its fetched part is deleted, and the log is as it was.

    Kafka's node ends its process there, by the damage on another one's disk.
    """

    snapshot: OffsetAndEpoch


@dataclass(frozen=True, slots=True)
class LogStartMoved:
    """The shell has deleted the records below ``start_offset``, the end of a snapshot, and all older snapshots."""

    start_offset: int


Event = (
    Tick
    | RequestReceived
    | ResponseReceived
    | SendFailed
    | ElectionPersisted
    | Flushed
    | Propose
    | UpgradeKRaftVersion
    | Resign
    | ShutDown
    | SnapshotCreated
    | SnapshotInstalled
    | SnapshotRefused
    | LogStartMoved
)
