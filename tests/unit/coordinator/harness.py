"""A coordinator with one partition's log beside it: appends are committed at once, unless a test holds them."""

from __future__ import annotations

from collections.abc import Sequence

from tests.unit.coordinator.driven import Driven

from tidegauge.errors import ErrorCode
from tidegauge.groups import (
    GroupRequest,
    Heartbeat,
    JoinGroup,
    JoinGroupResult,
    LeaveGroup,
    LeavingMember,
    OffsetCommit,
    OffsetFetch,
    OffsetToCommit,
    Protocol,
    SyncGroup,
    SyncGroupResult,
    TxnOffsetCommit,
)
from tidegauge.partition import TopicPartition
from tidegauge.transaction_marker import Outcome, TransactionMarker, make_marker
from tidegauge_broker.coordinator.coordinator import GroupCoordinator
from tidegauge_broker.coordinator.effects import Append, Effect, VerifyTransaction
from tidegauge_broker.coordinator.events import RequestArrived, TransactionCompleted, TransactionVerified
from tidegauge_broker.coordinator.settings import GroupSettings

T0 = TopicPartition("t", 0)
T1 = TopicPartition("t", 1)
SESSION_MS = 10_000
REBALANCE_MS = 60_000
INITIAL_DELAY_MS = 3_000


def subscription(*topics: str) -> bytes:
    """A consumer's subscription of version 0."""
    encoded = b"".join(len(topic).to_bytes(2, "big") + topic.encode() for topic in topics)
    return b"\0\0" + len(topics).to_bytes(4, "big") + encoded + b"\xff\xff\xff\xff"


class Harness(Driven):
    """One broker's coordinator of one partition."""

    def __init__(self, *, elected: bool = True, log: Sequence[bytes] = (), now_ms: int = 1_000_000, **settings: int):
        super().__init__(log, now_ms)
        settings.setdefault("partitions", 1)
        self.coordinator = GroupCoordinator(GroupSettings(**settings), now_ms, self.wall)
        self.uuids: list[str] = []
        self.verifications: list[VerifyTransaction] = []
        self.holds_verifications = False
        self.guards: list[object] = []
        self.after(0)  # the first retention run
        if elected:
            self.elect(0)

    # Driving

    def successor(self, **settings: int) -> Harness:
        """Another broker that was elected on the same log."""
        return Harness(log=self.log, now_ms=self.now_ms, **settings)

    def carry_out_own(self, effect: Effect) -> None:
        assert isinstance(effect, VerifyTransaction)
        self.verifications.append(effect)
        if not self.holds_verifications:
            self.verify()

    def verify(self, error: ErrorCode = ErrorCode.NONE, guard: object = "guard") -> None:
        """Give the outcome of the oldest verification."""
        self.event(TransactionVerified(self.verifications.pop(0).verification_id, error, guard))

    def complete_transaction(self, outcome: Outcome = Outcome.COMMIT, producer_id: int = 7, epoch: int = 0) -> int:
        """Have the marker of a producer's transaction written, and report it; return the token."""
        return self.report_marker(self.write_marker(outcome, producer_id, epoch), outcome, producer_id)

    def write_marker(self, outcome: Outcome = Outcome.COMMIT, producer_id: int = 7, epoch: int = 0) -> int:
        """Have a marker written, and return its offset: the coordinator does not know of it yet."""
        return self.write(make_marker(TransactionMarker(producer_id, epoch, outcome, 0), self.now_ms))

    def report_marker(self, offset: int, outcome: Outcome = Outcome.COMMIT, producer_id: int = 7) -> int:
        """Report that a marker is committed; return the token."""
        token = self.token()
        self.event(TransactionCompleted(token, producer_id, {0: offset}, outcome))
        return token

    def commit_transactional(
        self, offset: int = 1, partition: TopicPartition = T0, group: str = "g", producer_id: int = 7, **fields
    ) -> int:
        metadata = fields.pop("metadata", None)
        offsets = fields.pop("offsets", (OffsetToCommit(partition, offset, metadata=metadata),))
        return self.send(TxnOffsetCommit("tx", group, producer_id, 0, offsets, **fields))

    def _append(self, effect: Append) -> None:
        self.guards.append(effect.guard)
        super()._append(effect)

    # Requests

    def send(self, request: GroupRequest) -> int:
        """Send a request, and return its token."""
        token = self.token()
        self.event(RequestArrived(token, request, self.uuids.pop(0) if self.uuids else f"uuid{token}"))
        return token

    def ask(self, request: GroupRequest):
        return self.response_to(self.send(request))

    def join(self, member_id: str = "", group: str = "g", **changes) -> int:
        fields = {
            "session_timeout_ms": SESSION_MS,
            "rebalance_timeout_ms": REBALANCE_MS,
            "protocol_type": "consumer",
            "protocols": (Protocol("range", subscription("t")),),
            "client_id": "c",
            "client_host": "/127.0.0.1",
            "requires_known_member_id": False,
        } | changes
        return self.send(JoinGroup(group_id=group, member_id=member_id, **fields))

    def joined(self, token: int) -> JoinGroupResult:
        result = self.response_to(token)
        assert isinstance(result, JoinGroupResult)
        return result

    def sync(self, member_id: str, generation: int = 1, assignments=(), group: str = "g", **changes) -> int:
        return self.send(SyncGroup(group, generation, member_id, assignments=tuple(assignments), **changes))

    def synced(self, token: int) -> SyncGroupResult:
        result = self.response_to(token)
        assert isinstance(result, SyncGroupResult)
        return result

    def heartbeat(
        self, member_id: str, generation: int = 1, group: str = "g", instance: str | None = None
    ) -> ErrorCode:
        return self.ask(Heartbeat(group, generation, member_id, instance)).error

    def leave(self, *members: str | LeavingMember, group: str = "g"):
        leaving = tuple(one if isinstance(one, LeavingMember) else LeavingMember(one) for one in members)
        return self.ask(LeaveGroup(group, leaving))

    def commit(self, offset: int = 1, partition: TopicPartition = T0, group: str = "g", **fields) -> int:
        metadata = fields.pop("metadata", None)
        return self.send(OffsetCommit(group, (OffsetToCommit(partition, offset, metadata=metadata),), **fields))

    def committed(self, token: int) -> ErrorCode:
        (error,) = self.response_to(token).partitions.values()
        return error

    def offset(self, partition: TopicPartition = T0, group: str = "g", *, stable: bool = False):
        return self.ask(OffsetFetch(group, (partition,), stable)).offsets[partition]

    def group(self, group: str = "g"):
        view = self.coordinator.group_view(group)
        assert view is not None
        return view

    # Stories

    def stable_group(self, members: int = 1, group: str = "g", **changes) -> list[str]:
        """A Stable group in generation 1; returns the member ids, the leader's first."""
        tokens = [self.join(group=group, **changes) for _ in range(members)]
        self.after(2 * INITIAL_DELAY_MS)
        ids = [self.joined(token).member_id for token in tokens]
        self.sync_all(ids, group=group)
        return ids

    def sync_all(self, ids: Sequence[str], generation: int = 1, group: str = "g") -> list[int]:
        """Have all members synchronise, the leader last, and assign each member its own id."""
        assignments = [(member_id, member_id.encode()) for member_id in ids]
        leader = self.group(group).leader
        assert leader is not None
        tokens = [self.sync(member_id, generation, group=group) for member_id in ids if member_id != leader]
        return [*tokens, self.sync(leader, generation, assignments, group=group)]
