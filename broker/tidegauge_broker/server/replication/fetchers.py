"""Replica fetchers: for each leader that this broker follows, one task and one stream.

Contract: the core says what to ask (``next_round``) and judges the response; this module carries both. One request is
in flight at a time. A request names only the partitions that changed since the stream's last one, and those that
it fetches no longer (KIP-227's idea on a stream). A new stream starts from nothing, so a broken one needs no repair.
A partition that began to follow again is named as both: the leader's memory of it no longer holds.

By the older truncation rules the core asks where epochs end before it fetches; that is a call of its own.

Every failure of a round (no connection, no response within replica.socket.timeout.ms, an error of the whole response)
is reported to the core as ``round_failed``; it pauses the partitions for replica.fetch.backoff.ms.
Source: ReplicaFetcherManager, AbstractFetcherThread.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field

import grpc.aio

from tidegauge.errors import ErrorCode
from tidegauge.logical_clock import LogicalClock
from tidegauge.partition import TopicPartition
from tidegauge.settings import Values
from tidegauge.v1 import fetch_pb2, offsets_pb2
from tidegauge_broker.replica.messages import EpochRound, FetchPartition, FetchRound, Wait
from tidegauge_broker.server.metadata.metadata_cache import MetadataCache
from tidegauge_broker.server.replication.peers import Peers
from tidegauge_broker.server.replication.replica_manager import ReplicaManager
from tidegauge_broker.server.wire.grpc import convert

LOG = logging.getLogger("tidegauge.fetcher")


class RoundFailed(Exception):
    """The round has no response that counts; the text says why.

    Attributes:
        error: the error code that the round ends with.
    """

    def __init__(self, error: ErrorCode, message: str) -> None:
        super().__init__(message)
        self.error = error


@dataclass(slots=True)
class FetcherIdentity:
    """What each request says about its sender."""

    broker_id: int
    cluster_id: str
    broker_epoch: Callable[[], int]


@dataclass(slots=True)
class _Stream:
    """One stream, and what its last request left standing at the leader."""

    call: grpc.aio.StreamStreamCall[fetch_pb2.ReplicaFetchRequest, fetch_pb2.ReplicaFetchResponse]
    standing: dict[TopicPartition, FetchPartition] = field(default_factory=dict)
    is_first: bool = True


class _Fetcher:
    """The task for one leader."""

    def __init__(self, leader: int, owner: Fetchers) -> None:
        self.leader = leader
        self.look_again = asyncio.Event()
        self.in_flight: FetchRound | EpochRound | None = None
        self._owner = owner
        self._stream: _Stream | None = None
        self._last_problem = ""
        self.task = asyncio.get_running_loop().create_task(self._run(), name=f"fetcher-of-{leader}")

    async def _run(self) -> None:
        manager = self._owner.manager
        try:
            while True:
                self.look_again.clear()
                self._go_on(None)
                chosen = manager.next_round(self.leader, self._owner.admits)
                if isinstance(chosen, Wait):
                    await self._wait(chosen.until_ms)
                    continue
                self._go_on(chosen)
                try:
                    if isinstance(chosen, EpochRound):
                        await self._ask_epochs(chosen)
                    else:
                        await self._fetch(chosen)
                except (RoundFailed, grpc.aio.AioRpcError, asyncio.InvalidStateError) as problem:
                    self._log(problem)
                    self._drop_stream()
                    manager.round_failed(self.leader, chosen.request_id)
                except asyncio.CancelledError:
                    manager.round_failed(self.leader, chosen.request_id)
                    raise
                except Exception:
                    LOG.exception("A round to broker %d failed, which is a defect; it is tried again", self.leader)
                    self._drop_stream()
                    manager.round_failed(self.leader, chosen.request_id)
        finally:
            self._go_on(None)
            self._drop_stream()

    def _go_on(self, chosen: FetchRound | EpochRound | None) -> None:
        self.in_flight = chosen
        self._owner.round_changed()

    async def _wait(self, until_ms: int | None) -> None:
        seconds = None if until_ms is None else max(0.0, (until_ms - self._owner.now_ms()) / 1000)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self.look_again.wait(), seconds)

    async def _fetch(self, chosen: FetchRound) -> None:
        stream = self._stream or self._open()
        request = self._request(stream, chosen)
        async with self._owner.within_round():
            await stream.call.write(request)
            response = await stream.call.read()
        if response is grpc.aio.EOF:
            raise RoundFailed(ErrorCode.NETWORK_EXCEPTION, f"the stream ended: {await stream.call.details()}")
        assert isinstance(response, fetch_pb2.ReplicaFetchResponse)
        self._owner.take_fetch(chosen, response)
        self._last_problem = ""

    async def _ask_epochs(self, chosen: EpochRound) -> None:
        stub = self._owner.peers.replication(self._owner.address_of(self.leader))
        response = await stub.ReplicaOffsetsForLeaderEpoch(
            self._owner.epoch_request(chosen), timeout=self._owner.round_timeout_seconds
        )
        self._owner.take_epochs(chosen, response)
        self._last_problem = ""

    def _open(self) -> _Stream:
        self._stream = _Stream(self._owner.peers.replication(self._owner.address_of(self.leader)).ReplicaFetch())
        return self._stream

    def _request(self, stream: _Stream, chosen: FetchRound) -> fetch_pb2.ReplicaFetchRequest:
        wanted = {item.topic_partition: item for item in chosen.partitions}
        changed = [
            item
            for item in chosen.partitions
            if item.topic_partition in chosen.first_fetches or stream.standing.get(item.topic_partition) != item
        ]
        forgotten = [at for at in stream.standing if at not in wanted or at in chosen.first_fetches]
        request = self._owner.request_for(chosen, first=stream.is_first)
        request.partitions.extend(convert.to_fetch_partition(item) for item in changed)
        request.forgotten.extend(
            fetch_pb2.ForgottenPartition(topic=at.topic, partition=at.partition) for at in forgotten
        )
        stream.standing = wanted
        stream.is_first = False
        return request

    def _drop_stream(self) -> None:
        if self._stream is not None:
            self._stream.call.cancel()
            self._stream = None

    def _log(self, problem: Exception) -> None:
        text = str(problem)
        if isinstance(problem, grpc.aio.AioRpcError):
            text = problem.details() or problem.code().name
        elif isinstance(problem, RoundFailed):
            text = f"{problem.error.name}: {problem}"
        if text != self._last_problem:
            LOG.info("Fetching from broker %d: %s", self.leader, text)
            self._last_problem = text


class Fetchers:
    """All fetchers of this broker.

    Args:
        manager: the core and its logs.
        metadata: where brokers are reached.
        peers: channels.
        identity: what requests say of their sender.
        settings: broker settings.
        now_ms: the core's clock.
    """

    def __init__(
        self,
        manager: ReplicaManager,
        metadata: MetadataCache,
        peers: Peers,
        identity: FetcherIdentity,
        settings: Values,
        now_ms: Callable[[], int],
        logical_clock: LogicalClock,
    ) -> None:
        self.manager = manager
        self.metadata = metadata
        self.peers = peers
        self.now_ms = now_ms
        self.logical_clock = logical_clock
        self.round_timeout_seconds = settings.integer("replica.socket.timeout.ms") / 1000
        self.wait_seconds = settings.integer("replica.fetch.wait.max.ms") / 1000
        self.broker_id = identity.broker_id
        self._identity = identity
        self._settings = settings
        self._fetchers: dict[int, _Fetcher] = {}
        self._ending: set[asyncio.Task[None]] = set()
        self._closed = False
        self._round_change: asyncio.Future[None] | None = None
        self.admits: Callable[[TopicPartition], bool] | None = None
        """Set by the lab: a partition for which it says False is left out of the rounds."""

    def changed(self, leaders: Sequence[int]) -> None:
        """Partitions came to or left these leaders: begin, wake or end their fetchers."""
        if self._closed:
            return
        followed = self.manager.core.leaders_followed()
        for leader in leaders:
            fetcher = self._fetchers.get(leader)
            if leader not in followed:
                if fetcher is not None:
                    self._end(fetcher)
            elif fetcher is None or fetcher.task.done():
                self._fetchers[leader] = _Fetcher(leader, self)
            else:
                fetcher.look_again.set()

    def _end(self, fetcher: _Fetcher) -> None:
        del self._fetchers[fetcher.leader]
        fetcher.task.cancel()
        self._ending.add(fetcher.task)
        fetcher.task.add_done_callback(self._ending.discard)

    def round_changed(self) -> None:
        """Notify those that wait: a fetcher begins or ends a round."""
        if self._round_change is not None:
            self._round_change.set_result(None)
            self._round_change = None

    async def until_left_out(self, topic_partition: TopicPartition, patience_seconds: float) -> None:
        """Wait until no round that names the partition is in flight; cancel one that takes longer.

        The response of a cancelled round is lost, as with a broken connection.
        """
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(patience_seconds):
                while self._naming(topic_partition):
                    if self._round_change is None:
                        self._round_change = asyncio.get_running_loop().create_future()
                    await asyncio.shield(self._round_change)
        for fetcher in self._naming(topic_partition):
            self._end(fetcher)
            await asyncio.wait([fetcher.task])
            self.changed([fetcher.leader])

    def _naming(self, topic_partition: TopicPartition) -> list[_Fetcher]:
        return [fetcher for fetcher in self._fetchers.values() if _names(fetcher.in_flight, topic_partition)]

    async def close(self) -> None:
        """End all fetchers."""
        self._closed = True
        for fetcher in list(self._fetchers.values()):
            self._end(fetcher)
        if self._ending:
            await asyncio.wait(set(self._ending))

    # What a fetcher's round and a round stepped by the lab have in common

    def address_of(self, leader: int) -> str:
        """Return where a leader is reached.

        Raises:
            RoundFailed: BROKER_NOT_AVAILABLE.
        """
        endpoint = self.metadata.endpoint(leader)
        if endpoint is None:
            raise RoundFailed(ErrorCode.BROKER_NOT_AVAILABLE, f"leader {leader} is not among the live brokers")
        return endpoint.address

    @contextlib.asynccontextmanager
    async def within_round(self) -> AsyncIterator[None]:
        """Limit what is awaited in it to replica.socket.timeout.ms.

        Raises:
            RoundFailed: REQUEST_TIMED_OUT.
        """
        try:
            async with asyncio.timeout(self.round_timeout_seconds):
                yield
        except TimeoutError:
            raise RoundFailed(
                ErrorCode.REQUEST_TIMED_OUT, f"no response within {self.round_timeout_seconds:g} s"
            ) from None

    def epoch_request(self, chosen: EpochRound) -> offsets_pb2.OffsetsForLeaderEpochRequest:
        """Return the request of a round that asks where epochs end."""
        return offsets_pb2.OffsetsForLeaderEpochRequest(
            replica_id=self.broker_id,
            partitions=[convert.to_epoch_question(question) for question in chosen.partitions],
            logical_time=self.logical_clock.value,
        )

    def take_fetch(self, chosen: FetchRound, response: fetch_pb2.ReplicaFetchResponse) -> None:
        """Give the core a leader's response to a round.

        Raises:
            RoundFailed: the leader responded with an error of the whole request.
        """
        self.logical_clock.receive(response.logical_time)
        error = convert.from_error(response.error)
        if error is not ErrorCode.NONE:
            raise RoundFailed(error, response.error_message or error.name)
        partitions = [convert.from_fetch_result(result) for result in response.partitions]
        self.manager.fetch_response_received(chosen.leader, chosen.request_id, partitions)

    def take_epochs(self, chosen: EpochRound, response: offsets_pb2.OffsetsForLeaderEpochResponse) -> None:
        """Give the core a leader's response to a round that asked where epochs end."""
        self.logical_clock.receive(response.logical_time)
        ends = [convert.from_epoch_end_result(result) for result in response.partitions]
        self.manager.epoch_ends_received(chosen.leader, chosen.request_id, ends)

    def request_for(self, chosen: FetchRound, *, first: bool) -> fetch_pb2.ReplicaFetchRequest:
        """Return a round's request without its partitions; the first of a stream names cluster and truncation rule."""
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


def _names(chosen: FetchRound | EpochRound | None, topic_partition: TopicPartition) -> bool:
    return chosen is not None and any(item.topic_partition == topic_partition for item in chosen.partitions)
