"""Members of a consumer group (KIP-848), as Kafka's consumer behaves: what it sends, and what a response makes it do.

A consumer has one heartbeat in flight at most, and one commit beside it. It may give a request up and send another;
the old response, should it come, is ignored. It goes on reading a partition that it is to give up until it revokes it,
and says so with its next heartbeat. After each error, and after a request that it has given up, its heartbeat is full.
Source: ConsumerHeartbeatRequestManager and ConsumerMembershipManager of Kafka's clients.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tidegauge.consumer_groups import (
    JOINING_EPOCH,
    LEAVING_EPOCH,
    STATIC_LEAVING_EPOCH,
    ConsumerGroupHeartbeat,
    ConsumerGroupHeartbeatResult,
)
from tidegauge.errors import ErrorCode
from tidegauge.groups import GroupRequest, GroupResult, OffsetCommit, OffsetCommitResult, OffsetToCommit
from tidegauge.partition import TopicPartition

GROUP = "g"
TOPIC = "t"
TOPIC_ID = b"the id of topict"
PARTITIONS = 3
SESSION_MS = 10_000
REBALANCE_MS = 8_000
_FENCED = frozenset({ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.GROUP_ID_NOT_FOUND})
"""The consumer drops its partitions and joins again with the same id."""
_FATAL = frozenset({ErrorCode.UNRELEASED_INSTANCE_ID, ErrorCode.FENCED_INSTANCE_ID})
"""The process ends; another one takes its place later."""


@dataclass(slots=True, eq=False)
class Call:
    """A request of a consumer, as often as it is sent; ``number`` tells calls apart, whoever made them."""

    number: int
    consumer: Consumer | None
    request: GroupRequest


class Consumer:
    """A consumer, one process after the other.

    Attributes:
        member_id: made once for each process.
        epoch: member epoch of the last response; 0: it is to join.
        reads: the partitions that it reads, those that it is to give up included.
        given: the partitions that it may read, by the last response that had some.
        broker: its presumed coordinator; -1: it has to look.
        in_flight: its heartbeat and its commit, each with what tells it apart from a later one.
    """

    def __init__(
        self,
        name: str,
        instance_id: str | None,
        broker: int,
        group_id: str = GROUP,
        rebalance_timeout_ms: int = REBALANCE_MS,
    ) -> None:
        self.name = name
        self.instance_id = instance_id
        self.broker = broker
        self._group_id = group_id
        self._rebalance_timeout_ms = rebalance_timeout_ms
        self.in_flight: dict[str, Any] = {}
        self._processes = 0
        self.restart()

    def restart(self) -> None:
        """Begin another process: it has nothing, and an id of its own."""
        self._processes += 1
        self.member_id = f"{self.name}.{self._processes}"
        self.in_flight.clear()
        self.is_over = False
        self._drop()

    def _drop(self) -> None:
        self.epoch = JOINING_EPOCH
        self.reads: frozenset[int] = frozenset()
        self.given: frozenset[int] = frozenset()
        self._is_full = True
        self._said: frozenset[int] | None = None

    @property
    def is_settled(self) -> bool:
        """Whether it is a member, and reads exactly what it may."""
        return self.epoch > JOINING_EPOCH and self.reads == self.given and not self.in_flight

    # Requests

    def heartbeat(self) -> ConsumerGroupHeartbeat | None:
        """Return its next heartbeat; None: one is in flight, or it has ended."""
        if self.is_over or "heartbeat" in self.in_flight:
            return None
        if self.epoch == JOINING_EPOCH:
            return self._message(JOINING_EPOCH, (), is_full=True)
        says = self._is_full or self.reads != self._said
        owned = ((TOPIC_ID, tuple(sorted(self.reads))),) if self.reads else ()
        self._said = self.reads
        return self._message(self.epoch, owned if says else None, is_full=self._is_full)

    def _message(
        self, epoch: int, owned: tuple[tuple[bytes, tuple[int, ...]], ...] | None, *, is_full: bool
    ) -> ConsumerGroupHeartbeat:
        return ConsumerGroupHeartbeat(
            self._group_id,
            self.member_id,
            epoch,
            instance_id=self.instance_id,
            rebalance_timeout_ms=self._rebalance_timeout_ms if is_full else -1,
            topic_names=(TOPIC,) if is_full else None,
            owned=owned,
            client_id=self.name,
            needs_member_id=True,
        )

    def leave(self) -> ConsumerGroupHeartbeat | None:
        """Return the heartbeat with which it leaves, perhaps as a static member."""
        if self.is_over or self.epoch == JOINING_EPOCH:
            return None
        self.in_flight.pop("heartbeat", None)
        self._drop()
        self.is_over = True
        return self._message(LEAVING_EPOCH if self.instance_id is None else STATIC_LEAVING_EPOCH, None, is_full=False)

    def revoke(self) -> bool:
        """Stop reading what it may read no longer; return whether there was any."""
        is_due = not self.reads <= self.given
        self.reads &= self.given
        return is_due

    def commit(self, position: int) -> OffsetCommit | None:
        """Return a commit of one partition; None: it has none, or a commit is in flight."""
        if not self.reads or "commit" in self.in_flight:
            return None
        partition = min(self.reads)
        return OffsetCommit(
            group_id=self._group_id,
            offsets=(OffsetToCommit(TopicPartition(TOPIC, partition), position, -1, ""),),
            generation=self.epoch,
            member_id=self.member_id,
            knows_member_epochs=True,
        )

    def give_up(self, kind: str) -> None:
        """Wait for a response no longer; the next heartbeat says everything again."""
        del self.in_flight[kind]
        self._is_full = True

    def give_up_all(self) -> None:
        """Wait for no response any more."""
        self.in_flight.clear()
        self._is_full = True

    # Responses

    def responded(self, kind: str, result: GroupResult) -> None:
        """Take a response to the request in flight."""
        if isinstance(result, ConsumerGroupHeartbeatResult):
            self._beaten(result)
        elif isinstance(result, OffsetCommitResult):
            del kind

    def _beaten(self, result: ConsumerGroupHeartbeatResult) -> None:
        if result.error is ErrorCode.NONE:
            self._is_full = False
            self.epoch = result.member_epoch
            if result.assignment is not None:
                self.given = frozenset(one for _, partitions in result.assignment for one in partitions)
                self.reads |= self.given
            return
        self._is_full = True
        if result.error in _FENCED:
            self._drop()
        elif result.error in _FATAL:
            self._drop()
            self.is_over = True
        else:
            self.broker = -1
