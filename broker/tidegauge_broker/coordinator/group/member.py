"""A member of a group. Source: Kafka's MemberMetadata."""

from __future__ import annotations

from dataclasses import dataclass

from tidegauge.groups import JoinedMember, Protocol
from tidegauge_broker.coordinator.timers import Timer


@dataclass(slots=True, eq=False)
class Member:
    """A member and the requests of it that are parked.

    Attributes:
        assignment: what the leader gave it in the current generation.
        join_token: of its parked JoinGroup; None while none is.
        sync_token: of its parked SyncGroup; None while none is.
        is_new: it has joined and its JoinGroup has never had a response: it may expire while that is parked.
        session: the timer that removes it; None while it cannot expire.
    """

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    protocol_type: str
    protocols: tuple[Protocol, ...]
    assignment: bytes = b""
    join_token: object | None = None
    sync_token: object | None = None
    is_new: bool = False
    session: Timer | None = None

    @property
    def is_static(self) -> bool:
        """Whether it has a group instance id (KIP-345)."""
        return self.group_instance_id is not None

    @property
    def is_exempt_from_expiration(self) -> bool:
        """Whether a parked request stands for its heartbeats (MemberMetadata.hasSatisfiedHeartbeat)."""
        return not self.is_new and (self.join_token is not None or self.sync_token is not None)

    def metadata(self, protocol_name: str) -> bytes:
        """Return the member's metadata for a protocol that it supports."""
        return next(protocol.metadata for protocol in self.protocols if protocol.name == protocol_name)

    def vote(self, candidates: frozenset[str]) -> str:
        """Return the first of the candidates in the member's own order of preference."""
        return next(protocol.name for protocol in self.protocols if protocol.name in candidates)

    def as_joined(self, protocol_name: str) -> JoinedMember:
        """Return the member as the leader is shown it."""
        return JoinedMember(self.member_id, self.group_instance_id, self.metadata(protocol_name))
