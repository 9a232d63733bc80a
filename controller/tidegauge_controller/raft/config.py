"""Settings of a node in the quorum, with Kafka's names and defaults."""

from __future__ import annotations

from dataclasses import dataclass

from tidegauge_controller.raft.values import LOWEST_KRAFT_VERSION, VOTERS_IN_LOG, Endpoint, ReplicaKey

MAX_FETCH_WAIT_MS = 500
"""The longest that a node lets its leader wait for something new (KafkaRaftClient.MAX_FETCH_WAIT_MS)."""
MAX_BATCH_BYTES = 8 * 1024 * 1024
"""The largest batch of proposals (KafkaRaftClient.MAX_BATCH_SIZE_BYTES)."""
OBSERVER_EXPIRES_MS = 300_000
"""Time that a leader describes an observer that no longer fetches (LeaderState.OBSERVER_SESSION_TIMEOUT_MS)."""
MOST_OBSERVERS = 1000
"""Maximum number of observers that a leader keeps track of: any client can fetch under any id."""
CLEANING_INTERVAL_MS = 60_000
"""Interval of a node's looks for snapshots to delete."""
CAUGHT_UP_WITHIN_MS = 3_600_000
"""Maximum age of the last fetch of a replica that becomes a voter (KafkaRaftClient, hasCaughtUp)."""


@dataclass(frozen=True, slots=True)
class QuorumConfig:
    """One node's place in the quorum, and its timers in milliseconds.

    Attributes:
        cluster_id: requests that name another cluster are refused.
        me: the node's id and the directory of its log.
        endpoints: the node's own controller listeners; empty for a broker.
        bootstrap_servers: where to look for the leader while none is known (``controller.quorum.bootstrap.servers``, or
            the addresses of ``controller.quorum.voters``).
        can_become_voter: whether the node is a controller. A broker never votes, and never flushes what it fetches.
        election_timeout_ms: ``controller.quorum.election.timeout.ms``: a random one lies between it and its double.
        fetch_timeout_ms: ``controller.quorum.fetch.timeout.ms``: how long a follower hears nothing of its leader
            before it stands for election; a leader resigns if no majority fetches for one and a half times as long.
        election_backoff_max_ms: ``controller.quorum.election.backoff.max.ms``: the longest wait of a voter that a
            resigned leader does not prefer.
        append_linger_ms: ``controller.quorum.append.linger.ms``: how long proposals are gathered into one batch.
        request_timeout_ms: ``controller.quorum.request.timeout.ms``.
        retry_backoff_ms: ``controller.quorum.retry.backoff.ms``: the wait after a request that failed.
        fetch_max_bytes: ``controller.quorum.fetch.max.bytes``.
        fetch_snapshot_max_bytes: ``controller.quorum.fetch.snapshot.max.bytes``.
        lowest_version: the lowest kraft.version that the node supports.
        highest_version: the highest one.
    """

    cluster_id: str
    me: ReplicaKey
    endpoints: tuple[Endpoint, ...] = ()
    bootstrap_servers: tuple[Endpoint, ...] = ()
    can_become_voter: bool = True
    election_timeout_ms: int = 1000
    fetch_timeout_ms: int = 2000
    election_backoff_max_ms: int = 1000
    append_linger_ms: int = 25
    request_timeout_ms: int = 2000
    retry_backoff_ms: int = 20
    fetch_max_bytes: int = 1024 * 1024
    fetch_snapshot_max_bytes: int = 1024 * 1024
    lowest_version: int = LOWEST_KRAFT_VERSION
    highest_version: int = VOTERS_IN_LOG

    @property
    def check_quorum_ms(self) -> int:
        """How long a leader leads without fetches of a majority (LeaderState.CHECK_QUORUM_TIMEOUT_FACTOR)."""
        return self.fetch_timeout_ms * 3 // 2

    @property
    def fetch_wait_ms(self) -> int:
        """How long the node lets its leader wait for something new.

        With a fetch timeout below 1500 ms it is shorter than Kafka's: a response to an idle follower that comes after
        the fetch timeout would make it stand for election against a healthy leader.
        """
        return min(MAX_FETCH_WAIT_MS, self.fetch_timeout_ms // 3)

    @property
    def begin_quorum_ms(self) -> int:
        """The interval of a leader's messages to a voter that does not fetch."""
        return max(1, self.fetch_timeout_ms // 2)
