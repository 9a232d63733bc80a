"""A member of a share group (KIP-932) at one partition, whose requests are made one by one.

For stories in which it counts what each request does: nothing is fetched, acknowledged or repeated by itself, and no
heartbeat is sent but by ``join``.

Rules:
    1. A member's session is at the leader of the partition, on a connection of its own: when that closes, what the
       member has acquired is given back. Fetches and acknowledgements share the session's epoch.
    2. A request ends as the broker responds. After an error of the session the next one begins a session; after one of
       the leadership, or of the connection, it looks for the leader again.
    3. Records are acquired exactly up to the wanted number (the acquire mode record_limit of KIP-1206). Offsets that
       were acquired and have no record, such as markers, are acknowledged as gaps with the next acknowledgement.

Source: ShareConsumeRequestManager, ShareSessionHandler of Kafka 4.3.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Mapping, Sequence
from enum import IntEnum
from typing import Any, NamedTuple

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.kafka import apis
from tidegauge.kafka.messages import share_acknowledge, share_fetch
from tidegauge.kafka.messages.find_coordinator import FindCoordinatorRequest
from tidegauge.kafka.messages.metadata import MetadataRequest, MetadataRequestTopic
from tidegauge.kafka.messages.share_group_heartbeat import ShareGroupHeartbeatRequest
from tidegauge.kafka_channel import Dialer, KafkaChannel
from tidegauge.partition import TopicPartition
from tidegauge.security import PLAIN, Security
from tidegauge_client.kafka_data import joined
from tidegauge_client.records import decode_batches

_REQUEST_SECONDS = 10.0
_ACKNOWLEDGE_SECONDS = 60.0
"""Limit of an acknowledgement: a broker's persister repeats the write for 30 s."""
_PAUSE_SECONDS = 0.1
_RECORD_LIMIT = 1
_MAX_BYTES = 1 << 20
_FINAL = -1
_SESSION_ERRORS = frozenset(
    {
        ErrorCode.SHARE_SESSION_NOT_FOUND,
        ErrorCode.INVALID_SHARE_SESSION_EPOCH,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.REQUEST_TIMED_OUT,
    }
)
_MOVED = frozenset(
    {
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.REQUEST_TIMED_OUT,
    }
)


class Says(IntEnum):
    """An acknowledgement of a record (AcknowledgeType)."""

    GAP = 0
    ACCEPT = 1
    RELEASE = 2
    REJECT = 3
    RENEW = 4


class Delivered(NamedTuple):
    """A record that a member has acquired; ``delivery_count`` says how often it was delivered with this time."""

    offset: int
    value: str
    delivery_count: int


class _Leader(NamedTuple):
    broker_id: int
    address: str
    epoch: int
    topic_id: bytes


class ShareMember:
    """A member of a share group.

    Args:
        servers: returns addresses of brokers that serve Kafka clients, those that are up.
        group_id: the group.
        member_id: the member's id, which is its client id, too.
        at: the partition.
        security: of all connections.
    """

    def __init__(
        self,
        servers: Callable[[], Sequence[str]],
        group_id: str,
        member_id: str,
        at: TopicPartition,
        security: Security = PLAIN,
    ) -> None:
        self.group_id, self.member_id, self.at = group_id, member_id, at
        self._servers = servers
        self._dialer, self._login = Dialer(security), security.login
        self._channel: KafkaChannel | None = None
        self._leader: _Leader | None = None
        self._session_epoch = 0
        self._gaps: set[int] = set()
        self._member_epoch = 0

    # The group

    async def join(self) -> None:
        """Join the group, and send heartbeats until the partition is assigned; the caller limits the time."""
        topics: tuple[str, ...] | None = (self.at.topic,)
        topic_id = (await self._find_leader()).topic_id
        while True:
            request = ShareGroupHeartbeatRequest(self.group_id, self.member_id, self._member_epoch, None, topics)
            response = await self._of_group(apis.SHARE_GROUP_HEARTBEAT, request)
            code = ErrorCode.of(response.error_code)
            if code is not ErrorCode.NONE:
                raise TidegaugeError(code, response.error_message or code.name)
            self._member_epoch, topics = response.member_epoch, None
            given = [] if response.assignment is None else response.assignment.topic_partitions
            if any(bytes(one.topic_id) == topic_id and self.at.partition in one.partitions for one in given):
                return
            await asyncio.sleep(_PAUSE_SECONDS)

    async def _of_group(self, key: int, message: Any) -> Any:
        """Ask the group's coordinator, again while it moves."""
        while True:
            for address in self._servers():
                with contextlib.suppress(TidegaugeError):
                    found = await self._ask(address, apis.FIND_COORDINATOR, _whose(self.group_id))
                    (one,) = found.coordinators
                    if one.error_code == ErrorCode.NONE:
                        response = await self._ask(f"{one.host}:{one.port}", key, message)
                        if not ErrorCode.of(response.error_code).name.startswith(("COORDINATOR_", "NOT_COORDINATOR")):
                            return response
            await asyncio.sleep(_PAUSE_SECONDS)

    async def leave(self) -> None:
        """End the session with its last request, and leave the group if the member has joined it."""
        if self._session_epoch and self._leader is not None:
            last = share_acknowledge.ShareAcknowledgeRequest(self.group_id, self.member_id, _FINAL, False, [])
            with contextlib.suppress(TidegaugeError):
                await self._at_leader(self._leader, apis.SHARE_ACKNOWLEDGE, last)
        self.abandon()
        if self._member_epoch:
            request = ShareGroupHeartbeatRequest(self.group_id, self.member_id, _FINAL, None, None)
            self._member_epoch = 0
            await self._of_group(apis.SHARE_GROUP_HEARTBEAT, request)

    # The session

    def abandon(self) -> None:
        """Close the connection at once, as the death of the member's process would."""
        if self._channel is not None:
            self._channel.close()
        self._channel, self._leader, self._session_epoch = None, None, 0
        self._gaps = set()

    async def fetch(self, max_records: int, wait_ms: int) -> list[Delivered]:
        """Return the records that the member acquires, once.

        Args:
            max_records: at most so many are acquired.
            wait_ms: how long the broker may wait for the first.

        Raises:
            TidegaugeError: as the broker responds, or as the connection ends.
        """
        leader = await self._found_leader()
        partition = share_fetch.FetchPartition(self.at.partition)
        topics = [] if self._session_epoch else [share_fetch.FetchTopic(leader.topic_id, [partition])]
        request = share_fetch.ShareFetchRequest(
            group_id=self.group_id,
            member_id=self.member_id,
            share_session_epoch=self._session_epoch,
            max_wait_ms=wait_ms,
            min_bytes=1,
            max_bytes=_MAX_BYTES,
            max_records=max_records,
            batch_size=max_records,
            share_acquire_mode=_RECORD_LIMIT,
            topics=topics,
        )
        self._session_epoch += 1
        response = await self._at_leader(leader, apis.SHARE_FETCH, request, _REQUEST_SECONDS + wait_ms / 1000)
        self._check(response.error_code, response.error_message)
        delivered: list[Delivered] = []
        for topic in response.responses:
            for one in topic.partitions:
                self._check(one.error_code, one.error_message)
                delivered += self._delivered(one)
        return delivered

    def _delivered(self, one: share_fetch.PartitionData) -> list[Delivered]:
        """Return a response's acquired records, and note offsets without a record."""
        counts = {
            offset: them.delivery_count
            for them in one.acquired_records
            for offset in range(them.first_offset, them.last_offset + 1)
        }
        values = {
            record.offset: (record.value or b"").decode(errors="replace")
            for record in decode_batches(joined(one.records))
        }
        self._gaps |= counts.keys() - values.keys()
        return [Delivered(offset, values[offset], counts[offset]) for offset in sorted(counts) if offset in values]

    async def acknowledge(self, offsets: Mapping[int, Says]) -> None:
        """Say what becomes of records, in one request.

        Raises:
            TidegaugeError: as the broker responds, of the request or of the partition; or as the connection ends.
        """
        leader = await self._found_leader()
        batches = [
            share_acknowledge.AcknowledgementBatch(first, first + len(types) - 1, types)
            for first, types in _in_ranges({**dict.fromkeys(self._gaps, Says.GAP), **offsets})
        ]
        partition = share_acknowledge.AcknowledgePartition(self.at.partition, batches)
        request = share_acknowledge.ShareAcknowledgeRequest(
            self.group_id,
            self.member_id,
            self._session_epoch,
            Says.RENEW in offsets.values(),
            [share_acknowledge.AcknowledgeTopic(leader.topic_id, [partition])],
        )
        self._session_epoch += 1
        self._gaps = set()
        response = await self._at_leader(leader, apis.SHARE_ACKNOWLEDGE, request, _ACKNOWLEDGE_SECONDS)
        self._check(response.error_code, response.error_message)
        for topic in response.responses:
            for one in topic.partitions:
                self._check(one.error_code, one.error_message)

    def _check(self, error_code: int, message: str | None) -> None:
        code = ErrorCode.of(error_code)
        if code is ErrorCode.NONE:
            return
        self._failed(code)
        raise TidegaugeError(code, message or code.name)

    def _failed(self, code: ErrorCode) -> None:
        """Forget what an error has made false; rule 2."""
        if code in _MOVED:
            self.abandon()
        elif code in _SESSION_ERRORS:
            self._session_epoch = 0

    async def _at_leader(self, leader: _Leader, key: int, request: Any, limit_seconds: float = _REQUEST_SECONDS) -> Any:
        if self._channel is None:
            self._channel = KafkaChannel(leader.address, self.member_id, self._dialer, self._login)
        try:
            return await self._channel.request(key, request, limit_seconds)
        except TidegaugeError as problem:
            self._failed(problem.code)
            raise

    # The leader

    async def _found_leader(self) -> _Leader:
        if self._leader is None:
            self._leader = await self._find_leader()
        return self._leader

    async def _find_leader(self) -> _Leader:
        """Return the leader of the latest epoch that any broker names.

        Raises:
            TidegaugeError: LEADER_NOT_AVAILABLE, none names one.
        """
        found: list[_Leader] = []
        request = MetadataRequest([MetadataRequestTopic(name=self.at.topic)], allow_auto_topic_creation=False)
        for address in self._servers():
            with contextlib.suppress(TidegaugeError):
                found += _leaders(await self._ask(address, apis.METADATA, request), self.at)
        if not found:
            raise TidegaugeError(ErrorCode.LEADER_NOT_AVAILABLE, f"no broker names a leader of {self.at}")
        return max(found, key=lambda one: one.epoch)

    async def _ask(self, address: str, key: int, message: Any) -> Any:
        """Send one request on a connection of its own."""
        channel = KafkaChannel(address, self.member_id, self._dialer, self._login)
        try:
            return await channel.request(key, message, _REQUEST_SECONDS)
        finally:
            channel.close()


def _whose(group_id: str) -> FindCoordinatorRequest:
    return FindCoordinatorRequest(coordinator_keys=[group_id])


def _leaders(response: Any, at: TopicPartition) -> list[_Leader]:
    """Return the live leader by a broker's metadata, if any."""
    addresses = {one.node_id: f"{one.host}:{one.port}" for one in response.brokers}
    return [
        _Leader(one.leader_id, addresses[one.leader_id], one.leader_epoch, bytes(topic.topic_id))
        for topic in response.topics
        for one in topic.partitions
        if one.partition_index == at.partition and one.leader_id in addresses
    ]


def _in_ranges(offsets: Mapping[int, Says]) -> list[tuple[int, list[int]]]:
    """Return acknowledgements as first offsets with the types of consecutive offsets."""
    ranges: list[tuple[int, list[int]]] = []
    for offset in sorted(offsets):
        if ranges and ranges[-1][0] + len(ranges[-1][1]) == offset:
            ranges[-1][1].append(int(offsets[offset]))
        else:
            ranges.append((offset, [int(offsets[offset])]))
    return ranges
