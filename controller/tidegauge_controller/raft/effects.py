"""The effects of a quorum's node; the shell carries the effects of a step out in their order.

``PersistElection`` and ``InstallSnapshot`` end a step: the shell reports ``ElectionPersisted`` or ``SnapshotInstalled``
before it gives the node any other event, and nothing that depends on the new state is sent before that. ``Append``,
``Truncate`` and ``WriteSnapshot`` are done at once, in the page cache. ``Flush`` may take its time; ``Flushed`` reports
it. A leader counts its own records, and a follower fetches on, only after that ("persist, then respond"): a power loss
at any point takes nothing that counted.
"""

from __future__ import annotations

from tidegauge.errors import ErrorCode
from tidegauge.lazy_dataclasses import dataclass
from tidegauge_controller.raft.messages import Request, Response
from tidegauge_controller.raft.values import Batch, ElectionState, Endpoint, OffsetAndEpoch


@dataclass(frozen=True, slots=True)
class Send:
    """Send a request; report ``ResponseReceived`` or ``SendFailed`` with its correlation id.

    Attributes:
        correlation_id: unique within the node's process.
        node_id: the destination; below -1 it is a bootstrap server whose id is not known.
        endpoint: where to send it.
        request: the request.
    """

    correlation_id: int
    node_id: int
    endpoint: Endpoint
    request: Request


@dataclass(frozen=True, slots=True)
class Respond:
    """Respond to a request.

    Attributes:
        token: the request's.
        response: the response.
        read_from: of a Fetch: the offset from which to read ``max_bytes``, at least one batch; None: no records.
        max_bytes: the limit of the read, of the log or of a snapshot.
    """

    token: object
    response: Response
    read_from: int | None = None
    max_bytes: int = 0


@dataclass(frozen=True, slots=True)
class PersistElection:
    """Replace ``quorum-state`` on the disk, synced, then report ``ElectionPersisted``. Nothing comes before that."""

    election: ElectionState


@dataclass(frozen=True, slots=True)
class Append:
    """Write a batch at the log's end."""

    batch: Batch


@dataclass(frozen=True, slots=True)
class Flush:
    """Sync the log; report ``Flushed(number, end_offset)``."""

    number: int
    end_offset: int


@dataclass(frozen=True, slots=True)
class Truncate:
    """Make ``end_offset`` the log's end."""

    end_offset: int


@dataclass(frozen=True, slots=True)
class WriteSnapshot:
    """Write bytes of a snapshot that is being fetched at ``position`` of its unfinished file."""

    snapshot: OffsetAndEpoch
    position: int
    data: bytes


@dataclass(frozen=True, slots=True)
class InstallSnapshot:
    """Sync the fetched snapshot, drop the log, begin it again at the snapshot's end; then report ``SnapshotInstalled``.

    A damaged one is deleted, and ``SnapshotRefused`` reported. Nothing else comes before that report.
    """

    snapshot: OffsetAndEpoch


@dataclass(frozen=True, slots=True)
class DropSnapshot:
    """Delete the unfinished file of a snapshot that is no longer fetched."""

    snapshot: OffsetAndEpoch


@dataclass(frozen=True, slots=True)
class CleanSnapshots:
    """Look for snapshots and records that retention no longer keeps; report ``LogStartMoved`` if any were deleted."""


@dataclass(frozen=True, slots=True)
class Proposed:
    """The proposal will be committed when the high watermark reaches ``end_offset``; it begins at ``base_offset``."""

    token: object
    base_offset: int
    end_offset: int


@dataclass(frozen=True, slots=True)
class NotProposed:
    """The proposal is refused, and nothing was appended."""

    token: object
    error: ErrorCode
    message: str


@dataclass(frozen=True, slots=True)
class HighWatermarkMoved:
    """The records below ``high_watermark`` are committed."""

    high_watermark: int


@dataclass(frozen=True, slots=True)
class LeadershipChanged:
    """The node's own leadership, or its knowledge of the leader, has changed.

    A node that leads hears of it only once everything before its epoch is committed and its own LeaderChange is
    (KafkaRaftClient.ListenerContext.maybeFireLeaderChange).
    """

    leader_id: int | None
    epoch: int


@dataclass(frozen=True, slots=True)
class StateChanged:
    """The node's state in the quorum, for its event log: the state's name, its epoch, and why."""

    state: str
    epoch: int
    leader_id: int | None
    reason: str


@dataclass(frozen=True, slots=True)
class ShutDownCompleted:
    """The node has no more to do in the quorum; its process may end."""


Effect = (
    Send
    | Respond
    | PersistElection
    | Append
    | Flush
    | Truncate
    | WriteSnapshot
    | InstallSnapshot
    | DropSnapshot
    | CleanSnapshots
    | Proposed
    | NotProposed
    | HighWatermarkMoved
    | LeadershipChanged
    | StateChanged
    | ShutDownCompleted
)
