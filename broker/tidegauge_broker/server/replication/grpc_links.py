"""Links to leaders over gRPC: one stream for each leader.

A request names only the partitions that changed since the stream's last one, and those that are fetched no longer
(KIP-227's idea on a stream). A new stream starts from nothing, so a broken one needs no repair. A partition that began
to follow again is named as both: the leader's memory of it no longer holds.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import grpc.aio

from tidegauge.errors import ErrorCode
from tidegauge.logical_clock import LogicalClock
from tidegauge.partition import TopicPartition
from tidegauge.settings import Values
from tidegauge.v1 import fetch_pb2, offsets_pb2
from tidegauge_broker.replica.messages import EpochEndResult, EpochRound, FetchedPartition, FetchPartition, FetchRound
from tidegauge_broker.server.replication.leader_link import FetcherIdentity, LeaderLink, RoundFailed, within_round
from tidegauge_broker.server.replication.peers import Peers
from tidegauge_broker.server.wire.grpc import convert


@dataclass(slots=True)
class _Stream:
    """One stream, and what its last request left standing at the leader."""

    call: grpc.aio.StreamStreamCall[fetch_pb2.ReplicaFetchRequest, fetch_pb2.ReplicaFetchResponse]
    standing: dict[TopicPartition, FetchPartition] = field(default_factory=dict)
    round: int = 0
    """Number of the round that the latest request was for; 0: there was none."""


class GrpcLinks:
    """All links of a broker; and the messages of a round, which the lab's steps share.

    Args:
        address_of: returns a broker's gRPC address, for brokers; None: it is not alive, or has none.
        peers: channels.
        identity: what requests say of their sender.
        settings: broker settings.
        logical_clock: goes with requests, and is advanced by responses.
    """

    def __init__(
        self,
        address_of: Callable[[int], str | None],
        peers: Peers,
        identity: FetcherIdentity,
        settings: Values,
        logical_clock: LogicalClock,
    ) -> None:
        self.peers = peers
        self.logical_clock = logical_clock
        self.round_timeout_seconds = settings.integer("replica.socket.timeout.ms") / 1000
        self._address_of = address_of
        self._identity = identity
        self._settings = settings

    def open(self, leader: int) -> LeaderLink:
        """Return a link to this broker; nothing is sent yet."""
        return _GrpcLink(leader, self)

    def address_of(self, leader: int) -> str:
        """Return where a leader is reached.

        Raises:
            RoundFailed: BROKER_NOT_AVAILABLE.
        """
        address = self._address_of(leader)
        if address is None:
            # It is dead; or Apache Kafka's, and a follower of it is stepped, which goes over gRPC.
            raise RoundFailed(
                ErrorCode.BROKER_NOT_AVAILABLE,
                f"leader {leader} is not among the live brokers that have a gRPC listener; an Apache Kafka broker has "
                "none, and its followers can be held, and not stepped",
            )
        return address

    def within_round(self) -> contextlib.AbstractAsyncContextManager[None]:
        """Limit its block to ``replica.socket.timeout.ms``; RoundFailed with REQUEST_TIMED_OUT."""
        return within_round(self.round_timeout_seconds)

    def epoch_request(self, chosen: EpochRound) -> offsets_pb2.OffsetsForLeaderEpochRequest:
        """Return the request of a round that asks where epochs end."""
        return offsets_pb2.OffsetsForLeaderEpochRequest(
            replica_id=self._identity.broker_id,
            partitions=[convert.to_epoch_question(question) for question in chosen.partitions],
            logical_time=self.logical_clock.value,
        )

    def request_for(self, chosen: FetchRound, *, first: bool) -> fetch_pb2.ReplicaFetchRequest:
        """Return a round's request without partitions.

        The first of a stream names cluster and truncation rule.
        """
        settings = self._settings
        request = fetch_pb2.ReplicaFetchRequest(
            request_id=chosen.request_id,
            replica_id=self._identity.broker_id,
            broker_epoch=self._identity.broker_epoch(),
            max_wait_ms=settings.integer("replica.fetch.wait.max.ms"),
            min_bytes=settings.integer("replica.fetch.min.bytes"),
            max_bytes=settings.integer("replica.fetch.response.max.bytes"),
            logical_time=self.logical_clock.value,
        )
        if first:
            request.truncation_rule = settings.text("replica.truncation.rule")
            request.cluster_id = self._identity.cluster_id
        return request

    def fetched(self, response: fetch_pb2.ReplicaFetchResponse) -> Sequence[FetchedPartition]:
        """Return what a leader's response says of its partitions.

        Raises:
            RoundFailed: the leader responded with an error of the whole request.
        """
        self.logical_clock.receive(response.logical_time)
        error = convert.from_error(response.error)
        if error is not ErrorCode.NONE:
            raise RoundFailed(error, response.error_message or error.name)
        return [convert.from_fetch_result(result) for result in response.partitions]

    def epoch_ends(self, response: offsets_pb2.OffsetsForLeaderEpochResponse) -> Sequence[EpochEndResult]:
        """Return where a leader says that epochs end."""
        self.logical_clock.receive(response.logical_time)
        return [convert.from_epoch_end_result(result) for result in response.partitions]


class _GrpcLink:
    """A leader over gRPC; see ``LeaderLink``."""

    def __init__(self, leader: int, links: GrpcLinks) -> None:
        self._leader = leader
        self._links = links
        self._stream: _Stream | None = None

    async def fetch(self, chosen: FetchRound) -> Sequence[FetchedPartition]:
        """Send a request on the stream, and return its response."""
        try:
            stream = self._stream or self._open()
            request = self._request(stream, chosen)
            async with self._links.within_round():
                await stream.call.write(request)
                response = await stream.call.read()
            if response is grpc.aio.EOF:
                raise RoundFailed(ErrorCode.NETWORK_EXCEPTION, f"the stream ended: {await stream.call.details()}")
        except (grpc.aio.AioRpcError, asyncio.InvalidStateError) as problem:
            raise _failed(problem) from None
        assert isinstance(response, fetch_pb2.ReplicaFetchResponse)
        return self._links.fetched(response)

    async def ask_epochs(self, chosen: EpochRound) -> Sequence[EpochEndResult]:
        """Ask in a call of its own."""
        links = self._links
        stub = links.peers.replication(links.address_of(self._leader))
        try:
            response = await stub.ReplicaOffsetsForLeaderEpoch(
                links.epoch_request(chosen), timeout=links.round_timeout_seconds
            )
        except grpc.aio.AioRpcError as problem:
            raise _failed(problem) from None
        return links.epoch_ends(response)

    def _open(self) -> _Stream:
        links = self._links
        self._stream = _Stream(links.peers.replication(links.address_of(self._leader)).ReplicaFetch())
        return self._stream

    def _request(self, stream: _Stream, chosen: FetchRound) -> fetch_pb2.ReplicaFetchRequest:
        first, standing = chosen.first_fetches, stream.standing
        if chosen.follows and chosen.follows == stream.round:
            changed = [one for one in chosen.changed if (at := one.topic_partition) in first or standing.get(at) != one]
            forgotten = [at for at in (*chosen.left_out, *first) if standing.pop(at, None) is not None]
            standing.update({item.topic_partition: item for item in changed})
        else:
            wanted = stream.standing = {item.topic_partition: item for item in chosen.partitions}
            changed = [item for at, item in wanted.items() if at in first or standing.get(at) != item]
            forgotten = [at for at in standing if at not in wanted or at in first]
        request = self._links.request_for(chosen, first=not stream.round)
        request.partitions.extend(convert.to_fetch_partition(item) for item in changed)
        request.forgotten.extend(
            fetch_pb2.ForgottenPartition(topic=at.topic, partition=at.partition) for at in forgotten
        )
        stream.round = chosen.request_id
        return request

    def drop(self) -> None:
        """Cancel the stream."""
        if self._stream is not None:
            self._stream.call.cancel()
            self._stream = None


def _failed(problem: grpc.aio.AioRpcError | asyncio.InvalidStateError) -> RoundFailed:
    text = (problem.details() or problem.code().name) if isinstance(problem, grpc.aio.AioRpcError) else str(problem)
    return RoundFailed(ErrorCode.NETWORK_EXCEPTION, text)
