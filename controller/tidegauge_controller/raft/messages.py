"""Requests and responses of a quorum as plain values; the shell turns Kafka's protocol into them and back.

Each value is what one partition of the Kafka message says: the metadata log has one partition. A shell refuses messages
that name another topic or partition with INVALID_REQUEST before they get here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field

from tidegauge.errors import ErrorCode
from tidegauge.lazy_dataclasses import dataclass
from tidegauge_controller.raft.values import Batch, Endpoint, OffsetAndEpoch, ReplicaKey

UNKNOWN_OFFSET = -1


@dataclass(frozen=True, slots=True)
class VoteRequest:
    """Vote (52).

    Attributes:
        cluster_id: the sender's cluster; None if it does not say.
        voter: the addressee; None before version 1.
        epoch: the epoch of the election: for a pre-vote the sender's present epoch.
        candidate: the replica that asks for the vote.
        last_epoch: the epoch of the last record of its log.
        end_offset: its log end offset.
        pre_vote: whether this only asks if a real vote would be granted (KIP-996).
    """

    cluster_id: str | None
    voter: ReplicaKey | None
    epoch: int
    candidate: ReplicaKey
    last_epoch: int
    end_offset: int
    pre_vote: bool


@dataclass(frozen=True, slots=True)
class BeginQuorumEpochRequest:
    """BeginQuorumEpoch (53): a leader makes itself known; ``endpoints`` are its listeners (version 1)."""

    cluster_id: str | None
    voter: ReplicaKey | None
    leader_id: int
    epoch: int
    endpoints: tuple[Endpoint, ...] = ()


@dataclass(frozen=True, slots=True)
class EndQuorumEpochRequest:
    """EndQuorumEpoch (54): a leader has resigned; the first of ``preferred`` should stand for election at once."""

    cluster_id: str | None
    leader_id: int
    epoch: int
    preferred: tuple[ReplicaKey, ...]
    endpoints: tuple[Endpoint, ...] = ()


@dataclass(frozen=True, slots=True)
class FetchRequest:
    """Fetch (1) of the metadata log.

    Attributes:
        cluster_id: the sender's cluster; None if it does not say.
        replica: the fetching replica; an id of -1 is a client.
        epoch: the sender's epoch.
        offset: its log end offset.
        last_epoch: the epoch of the last record of its log, or of its snapshot.
        max_wait_ms: how long the leader may wait for something new.
        high_watermark: the sender's high watermark; UNKNOWN_OFFSET if it knows none, None before version 18 (KIP-1166).
        max_bytes: how many bytes of records to return; one batch comes in any case.
    """

    cluster_id: str | None
    replica: ReplicaKey
    epoch: int
    offset: int
    last_epoch: int
    max_wait_ms: int
    high_watermark: int | None = None
    max_bytes: int = 1024 * 1024


@dataclass(frozen=True, slots=True)
class FetchSnapshotRequest:
    """FetchSnapshot (59): a slice of the bytes of a snapshot from ``position`` on."""

    cluster_id: str | None
    replica: ReplicaKey
    epoch: int
    snapshot: OffsetAndEpoch
    position: int
    max_bytes: int


@dataclass(frozen=True, slots=True)
class AddVoterRequest:
    """AddRaftVoter (80)."""

    cluster_id: str | None
    voter: ReplicaKey
    endpoints: tuple[Endpoint, ...]
    timeout_ms: int
    ack_when_committed: bool = True


@dataclass(frozen=True, slots=True)
class RemoveVoterRequest:
    """RemoveRaftVoter (81)."""

    cluster_id: str | None
    voter: ReplicaKey


@dataclass(frozen=True, slots=True)
class UpdateVoterRequest:
    """UpdateRaftVoter (82): a voter's endpoints and range of kraft.versions have changed."""

    cluster_id: str | None
    epoch: int
    voter: ReplicaKey
    endpoints: tuple[Endpoint, ...]
    lowest_version: int
    highest_version: int


@dataclass(frozen=True, slots=True)
class DescribeQuorumRequest:
    """DescribeQuorum (55)."""


@dataclass(frozen=True, slots=True)
class ApiVersionsRequest:
    """ApiVersions (18) to a replica that is to become a voter: which kraft.versions does it support?"""


Request = (
    VoteRequest
    | BeginQuorumEpochRequest
    | EndQuorumEpochRequest
    | FetchRequest
    | FetchSnapshotRequest
    | AddVoterRequest
    | RemoveVoterRequest
    | UpdateVoterRequest
    | DescribeQuorumRequest
    | ApiVersionsRequest
)


@dataclass(frozen=True, slots=True, kw_only=True)
class QuorumResponse:
    """The responder's fields in every response of the quorum's own APIs.

    Attributes:
        error: of the partition.
        top_level_error: of the whole message: INCONSISTENT_CLUSTER_ID, INVALID_REQUEST, or a failed authorization.
        leader_id: the leader that the responder knows; None if it knows none.
        epoch: the responder's epoch.
        endpoints: the addresses of that leader, by node id.
    """

    error: ErrorCode = ErrorCode.NONE
    top_level_error: ErrorCode = ErrorCode.NONE
    leader_id: int | None = None
    epoch: int = 0
    endpoints: Mapping[int, Endpoint] = field(default_factory=dict[int, Endpoint])


@dataclass(frozen=True, slots=True, kw_only=True)
class VoteResponse(QuorumResponse):
    """Response to a Vote."""

    granted: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class BeginQuorumEpochResponse(QuorumResponse):
    """Response to a BeginQuorumEpoch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EndQuorumEpochResponse(QuorumResponse):
    """Response to an EndQuorumEpoch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchResponse(QuorumResponse):
    """Response to a Fetch.

    Attributes:
        high_watermark: the leader's; UNKNOWN_OFFSET if it knows none yet.
        log_start_offset: the start of the leader's log.
        diverging: the leader's end of an epoch, if the follower's log is not a prefix of the leader's.
        snapshot: the snapshot that the follower must load first.
        batches: records from the offset that was asked for. The responding node leaves them out; the shell reads them
            (``effects.Respond.read_from``).
    """

    high_watermark: int = UNKNOWN_OFFSET
    log_start_offset: int = UNKNOWN_OFFSET
    diverging: OffsetAndEpoch | None = None
    snapshot: OffsetAndEpoch | None = None
    batches: tuple[Batch, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchSnapshotResponse(QuorumResponse):
    """Response to a FetchSnapshot: ``data`` are the bytes from ``position`` on of a snapshot of ``size_bytes``.

    The responding node leaves size and data out; the shell reads them, and responds SNAPSHOT_NOT_FOUND or
    POSITION_OUT_OF_RANGE in its place if the file is missing or too short.
    """

    snapshot: OffsetAndEpoch
    position: int = 0
    size_bytes: int = 0
    data: bytes = b""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeVoterResponse(QuorumResponse):
    """Response to an AddRaftVoter, a RemoveRaftVoter or an UpdateRaftVoter, with a sentence for a person."""

    message: str | None = None


@dataclass(frozen=True, slots=True)
class ReplicaStatus:
    """One replica as its leader sees it (DescribeQuorumResponseData.ReplicaState)."""

    key: ReplicaKey
    end_offset: int
    last_fetch_ms: int
    last_caught_up_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeQuorumResponse(QuorumResponse):
    """Response to a DescribeQuorum; the leader alone can give it."""

    high_watermark: int = UNKNOWN_OFFSET
    voters: tuple[ReplicaStatus, ...] = ()
    observers: tuple[ReplicaStatus, ...] = ()
    nodes: Mapping[int, tuple[Endpoint, ...]] = field(default_factory=dict[int, tuple[Endpoint, ...]])


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiVersionsResponse(QuorumResponse):
    """The range of kraft.versions that a replica supports, from its ApiVersions."""

    lowest_version: int
    highest_version: int


Response = (
    VoteResponse
    | BeginQuorumEpochResponse
    | EndQuorumEpochResponse
    | FetchResponse
    | FetchSnapshotResponse
    | ChangeVoterResponse
    | DescribeQuorumResponse
    | ApiVersionsResponse
)
