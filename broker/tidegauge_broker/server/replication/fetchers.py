"""Replica fetchers: for each leader that this broker follows, one task and one link.

Contract: the core says what to ask (``next_round``) and judges the response; this module takes rounds from it and gives
it what their link brings back (``leader_link``: over gRPC or over Kafka's protocol). One request is in flight at a
time. By the older truncation rules the core asks where epochs end before it fetches; that is a round of its own.

Every failure of a round (no connection, no response within replica.socket.timeout.ms, an error of the whole response)
is reported to the core as ``round_failed``; it pauses the partitions for replica.fetch.backoff.ms.
Source: ReplicaFetcherManager, AbstractFetcherThread.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Sequence

from tidegauge.partition import TopicPartition
from tidegauge.settings import Values
from tidegauge.waits import until_set
from tidegauge_broker.replica.messages import (
    EpochEndResult,
    EpochRound,
    FetchedPartition,
    FetchRound,
    Wait,
)
from tidegauge_broker.server.replication.leader_link import Links, RoundFailed
from tidegauge_broker.server.replication.replica_manager import ReplicaManager

LOG = logging.getLogger("tidegauge.fetcher")


class _Fetcher:
    """The task for one leader."""

    def __init__(self, leader: int, owner: Fetchers) -> None:
        self.leader = leader
        self.look_again = asyncio.Event()
        self.in_flight: FetchRound | EpochRound | None = None
        self._owner = owner
        self._link = owner.links.open(leader)
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
                    await self._carry(chosen)
                except RoundFailed as problem:
                    self._log(problem)
                    self._link.drop()
                    manager.round_failed(self.leader, chosen.request_id)
                except asyncio.CancelledError:
                    manager.round_failed(self.leader, chosen.request_id)
                    raise
                except Exception:
                    LOG.exception("A round to broker %d failed, which is a defect; it is tried again", self.leader)
                    self._link.drop()
                    manager.round_failed(self.leader, chosen.request_id)
        finally:
            self._go_on(None)
            self._link.drop()

    def _go_on(self, chosen: FetchRound | EpochRound | None) -> None:
        self.in_flight = chosen
        self._owner.round_changed()

    async def _wait(self, until_ms: int | None) -> None:
        seconds = None if until_ms is None else max(0.0, (until_ms - self._owner.now_ms()) / 1000)
        await until_set(self.look_again, seconds)

    async def _carry(self, chosen: FetchRound | EpochRound) -> None:
        """Carry a round to the leader, and give the core what comes back."""
        if isinstance(chosen, EpochRound):
            self._owner.take_epochs(chosen, await self._link.ask_epochs(chosen))
        else:
            partitions = await self._link.fetch(chosen)
            await self._owner.manager.take_fetch_response(chosen.leader, chosen.request_id, partitions)
        self._last_problem = ""

    def _log(self, problem: RoundFailed) -> None:
        text = f"{problem.error.name}: {problem}"
        if text != self._last_problem:
            LOG.info("Fetching from broker %d: %s", self.leader, text)
            self._last_problem = text


class Fetchers:
    """All fetchers of this broker.

    Args:
        manager: the core and its logs.
        links: connections to leaders.
        settings: broker settings.
        now_ms: the core's clock.
    """

    def __init__(self, manager: ReplicaManager, links: Links, settings: Values, now_ms: Callable[[], int]) -> None:
        self.manager = manager
        self.links = links
        self.now_ms = now_ms
        self.wait_seconds = settings.integer("replica.fetch.wait.max.ms") / 1000
        self.broker_id = manager.core.broker_id
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

    # Of a round stepped by the lab

    def take_fetch(self, chosen: FetchRound, partitions: Sequence[FetchedPartition]) -> None:
        """Give the core a leader's response to a round of one partition, in one step."""
        self.manager.fetch_response_received(chosen.leader, chosen.request_id, partitions)

    def take_epochs(self, chosen: EpochRound, ends: Sequence[EpochEndResult]) -> None:
        """Give the core a leader's response to a round that asked where epochs end."""
        self.manager.epoch_ends_received(chosen.leader, chosen.request_id, ends)


def _names(chosen: FetchRound | EpochRound | None, topic_partition: TopicPartition) -> bool:
    return chosen is not None and any(item.topic_partition == topic_partition for item in chosen.partitions)
