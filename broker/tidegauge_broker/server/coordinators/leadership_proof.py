"""Proves that this broker is still a partition's leader, by the controller's state or by its followers.

A broker that is partitioned from the cluster's metadata and the other brokers continues to serve its clients: its
coordinators give out offsets that the next leader's have long overtaken. Kafka's do that; a client that copies exactly
once then copies the same records again and again, each time in a transaction that is committed (docs/transactions.md).

Rules:
    1. A controller stores a new leader in the partition's state before any broker acts on it. So a state that is read
       now, and names this broker with the epoch in which it leads, proves its leadership up to now.
    2. Without it two further fetches of every other member of the ISR prove it: a broker that leads, or follows
       another leader, no longer fetches here. The first fetch may have been delayed in the network; the second was
          sent by a follower that had received a current response.
    3. If neither succeeds, the request is handled as if this broker did not lead.
    4. One proof of a partition runs at a time. Requests meanwhile share the one that begins after it: the members of
       a thousand groups that start together cost the store two reads for each partition, and not a thousand.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol

from tidegauge.cluster_metadata import Leadership, MetadataUnavailable
from tidegauge.errors import ErrorCode
from tidegauge.groups import OffsetFetch, OffsetFetchResult
from tidegauge.partition import TopicPartition

STORE_SECONDS = 0.5
"""Limit of the wait for the stored state."""
_FETCHES = 2
"""Rule 2."""
_ROUNDS_WAITED = 3
"""Two fetches are parked at most, and there is the way between them."""
_PAUSE_SECONDS = 0.01


def needs_proof(request: object, result: object) -> bool:
    """Whether a coordinator's result needs a proof that its broker leads: stable offsets."""
    return (
        isinstance(request, OffsetFetch)
        and isinstance(result, OffsetFetchResult)
        and request.require_stable
        and result.error is ErrorCode.NONE
    )


class Led(Protocol):
    """The state of a partition at this broker's replicas."""

    def led_epoch(self, topic_partition: TopicPartition) -> int | None:
        """Return the epoch in which this broker leads the partition, or None."""
        ...

    def fetched_ms(self, topic_partition: TopicPartition) -> Mapping[int, int]:
        """Return the ISR members' last fetch times in ms; 0: not yet."""
        ...


def _as_task(work: Coroutine[Any, Any, bool]) -> Awaitable[bool]:
    """Run in a task: a timeout needs one, and a request of a Kafka client has none."""
    return asyncio.get_running_loop().create_task(work, name="leadership-proof")


class LeadershipProof:
    """Proves this broker's leadership of single partitions.

    Args:
        broker_id: this broker.
        led: its replicas.
        read_state: reads a partition's stored state, None if there is none; raises MetadataUnavailable.
        now_ms: a clock that never goes back.
        fetch_wait_ms: how long a fetch of a follower may be parked (``replica.fetch.wait.max.ms``).
        pause: waits a little between two looks at the followers.
        timeout: ends its block after some seconds, with TimeoutError.
        run: runs a proof.
    """

    def __init__(
        self,
        broker_id: int,
        led: Led,
        read_state: Callable[[TopicPartition], Awaitable[Leadership | None]],
        now_ms: Callable[[], int],
        fetch_wait_ms: Callable[[], int],
        pause: Callable[[], Awaitable[None]] = lambda: asyncio.sleep(_PAUSE_SECONDS),
        timeout: Callable[[float], AbstractAsyncContextManager[object]] = asyncio.timeout,
        run: Callable[[Coroutine[Any, Any, bool]], Awaitable[bool]] = _as_task,
    ) -> None:
        self._broker_id = broker_id
        self._led = led
        self._read_state = read_state
        self._now_ms = now_ms
        self._fetch_wait_ms = fetch_wait_ms
        self._pause = pause
        self._timeout = timeout
        self._run = run

    async def holds(self, topic_partition: TopicPartition) -> bool:
        """Whether this broker has led a partition, in its present epoch, at a time after this call."""
        return await self._run(self._holds(topic_partition))

    async def _holds(self, topic_partition: TopicPartition) -> bool:
        epoch = self._led.led_epoch(topic_partition)
        if epoch is None:
            return False
        try:
            async with self._timeout(STORE_SECONDS):
                state = await self._read_state(topic_partition)
        except (TimeoutError, MetadataUnavailable):
            return await self._is_followed(topic_partition, epoch)
        return state is not None and (state.leader, state.leader_epoch) == (self._broker_id, epoch)

    async def _is_followed(self, at: TopicPartition, epoch: int) -> bool:
        """Rule 2."""
        last = dict(self._led.fetched_ms(at))
        fetches: Counter[int] = Counter()
        end_ms = self._now_ms() + _ROUNDS_WAITED * self._fetch_wait_ms()
        while self._led.led_epoch(at) == epoch:
            latest = self._led.fetched_ms(at)
            fetches.update(follower for follower, time_ms in latest.items() if time_ms != last.get(follower, time_ms))
            last |= latest
            if all(fetches[follower] >= _FETCHES for follower in latest):
                return True
            if self._now_ms() >= end_ms:
                return False
            await self._pause()
        return False


class SharedProofs:
    """Proofs that concurrent requests share; rule 4.

    Args:
        prove: returns whether this broker leads a partition at a time after the call.
    """

    def __init__(self, prove: Callable[[TopicPartition], Awaitable[bool]]) -> None:
        self._prove = prove
        self._running: dict[TopicPartition, asyncio.Task[bool]] = {}
        self._following: dict[TopicPartition, asyncio.Task[bool]] = {}

    async def holds(self, topic_partition: TopicPartition) -> bool:
        """Whether this broker has led a partition, in its present epoch, at a time after this call."""
        proof = self._following.get(topic_partition)
        if proof is None:
            work = self._after_the_running(topic_partition)
            proof = asyncio.get_running_loop().create_task(work, name="shared-leadership-proof")
            self._following[topic_partition] = proof
        return await asyncio.shield(proof)  # a client that leaves does not end the others' proof

    async def _after_the_running(self, at: TopicPartition) -> bool:
        running = self._running.get(at)
        if running is not None:
            await asyncio.wait([running])
        self._running[at] = self._following.pop(at)  # whoever comes from now on waits for the next one
        try:
            return await self._prove(at)
        finally:
            del self._running[at]
