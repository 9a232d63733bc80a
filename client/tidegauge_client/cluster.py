"""A client's connection to a cluster: bootstrap, channels, and metadata that refreshes itself on demand.

Rules:
    1. A broker that is dead or frozen costs one second at most, and is asked last the next time.
    2. Brokers are asked in rotation: a broker that is cut off from the cluster answers with old metadata, and a
       client that kept asking it would never learn of a new leader.
    3. One refresh at a time; whoever asks meanwhile shares its answer, unless it wants a topic that the running
       one does not ask for.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Collection, Sequence

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.partition import TopicPartition
from tidegauge.v1 import metadata_pb2
from tidegauge_client import metadata
from tidegauge_client.bootstrap import parse_bootstrap
from tidegauge_client.channels import Channels, Unreachable, call
from tidegauge_client.handshake import tls_reason
from tidegauge_client.metadata import ClusterInfo, Leader

PROBE_TIMEOUT_MS = 1_000
"""How long a single broker may take to answer with metadata."""
FAILURE_MEMORY_MS = 10_000
"""How long a broker that did not answer is asked last."""
DEFAULT_METADATA_MAX_AGE_MS = 300_000


def now_ms() -> float:
    """The monotonic clock in ms: for deadlines and back-off, never for timestamps."""
    return time.monotonic() * 1000


class HandshakeError(TidegaugeError):
    """BROKER_NOT_AVAILABLE, because a TLS connection does not come about: to try again is of no use (Kafka's rule)."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.BROKER_NOT_AVAILABLE, message)


class Cluster:
    """What producer, consumer and admin share.

    Attributes:
        info: what is known now; replaced whole, never changed in place.
        channels: to all brokers asked so far.
    """

    def __init__(
        self,
        bootstrap_servers: str | Sequence[str],
        *,
        retry_backoff_ms: float = 100,
        metadata_max_age_ms: float = DEFAULT_METADATA_MAX_AGE_MS,
        allow_auto_topic_creation: bool = True,
    ) -> None:
        self._bootstrap = parse_bootstrap(bootstrap_servers)
        self._retry_backoff_ms = retry_backoff_ms
        self._max_age_ms = metadata_max_age_ms
        self._allow_auto_topic_creation = allow_auto_topic_creation
        self.channels = Channels(self._bootstrap.security)
        self.info = ClusterInfo()
        self._topics: set[str] = set()
        self._failed_at_ms: dict[str, float] = {}
        self._turn = 0
        self._refreshed_at_ms = -metadata_max_age_ms
        self._attempted_at_ms = -retry_backoff_ms
        self._refreshing: asyncio.Task[ClusterInfo] | None = None
        self._refreshing_topics: frozenset[str] = frozenset()
        self._background: asyncio.Task[None] | None = None
        self._listeners: list[Callable[[], None]] = []

    async def close(self) -> None:
        """Stop refreshing and close all channels."""
        tasks = [task for task in (self._background, self._refreshing) if task is not None]
        for task in tasks:
            task.cancel()
        for task in tasks:
            with contextlib.suppress(asyncio.CancelledError, TidegaugeError):
                await task
        await self.channels.close()

    def on_change(self, listener: Callable[[], None]) -> None:
        """Call a listener on the loop after each refresh and each hint taken."""
        self._listeners.append(listener)

    def addresses(self) -> list[str]:
        """Whom to ask next, in order (rules 1 and 2)."""
        known = [broker.address for broker in self.info.brokers.values()]
        everyone = list(dict.fromkeys([*known, *self._bootstrap]))
        self._turn += 1
        turn = self._turn % len(everyone)
        rotated = everyone[turn:] + everyone[:turn]
        recently_ms = now_ms() - FAILURE_MEMORY_MS
        failed = {address: at_ms for address, at_ms in self._failed_at_ms.items() if at_ms > recently_ms}
        return sorted(rotated, key=lambda address: failed.get(address, recently_ms))

    async def ask(self, address: str, request: metadata_pb2.MetadataRequest, timeout_ms: float) -> ClusterInfo:
        """One broker's own view, without touching what this client knows.

        Raises:
            TidegaugeError: it does not answer.
        """
        stub = self.channels.broker(address)
        return metadata.from_response(await call(stub.Metadata, request, timeout_ms=timeout_ms, address=address))

    async def ask_any(self, request: metadata_pb2.MetadataRequest) -> ClusterInfo:
        """The first answer that any broker gives; each is given one second.

        Raises:
            TidegaugeError: BROKER_NOT_AVAILABLE, none answers; ``HandshakeError``, none does because of TLS.
        """
        problems: list[str] = []
        insecure: list[str] = []
        for address in self.addresses():
            try:
                answer = await self.ask(address, request, PROBE_TIMEOUT_MS)
            except TidegaugeError as error:
                self.note_failure(address)
                problems.append(error.message)
                if isinstance(error, Unreachable) and (
                    reason := await tls_reason(error, address, self.channels.security)
                ):
                    insecure.append(f"the broker at {address} cannot be reached: {reason}")
            else:
                self._failed_at_ms.pop(address, None)
                return answer
        if insecure:
            raise HandshakeError(insecure[0])
        raise TidegaugeError(
            ErrorCode.BROKER_NOT_AVAILABLE,
            f"no broker answers ({'; '.join(problems)}); see `tidegauge status`, and start the cluster with "
            "`tidegauge up -d`",
        )

    def note_failure(self, address: str) -> None:
        """Remember that a broker did not answer, so that it is asked last."""
        self._failed_at_ms[address] = now_ms()

    # Metadata -----------------------------------------------------------------------------------------------

    def add_topics(self, topics: Collection[str]) -> None:
        """Ask for these topics from the next refresh on."""
        self._topics.update(topics)

    async def refresh(self) -> ClusterInfo:
        """Ask for metadata now.

        Raises:
            TidegaugeError: BROKER_NOT_AVAILABLE, no broker answers.
        """
        running = self._refreshing
        if running is not None and not running.done():
            if self._topics <= self._refreshing_topics:
                return await asyncio.shield(running)
            with contextlib.suppress(TidegaugeError):
                await asyncio.shield(running)
            return await self.refresh()
        self._refreshing_topics = frozenset(self._topics)
        self._refreshing = asyncio.get_running_loop().create_task(self._refresh_once())
        return await asyncio.shield(self._refreshing)

    async def _refresh_once(self) -> ClusterInfo:
        self._attempted_at_ms = now_ms()
        request = metadata_pb2.MetadataRequest(
            topics=sorted(self._refreshing_topics), allow_auto_topic_creation=self._allow_auto_topic_creation
        )
        answer = await self.ask_any(request)
        self.info = metadata.merge(self.info, answer)
        self._refreshed_at_ms = now_ms()
        self._tell()
        return self.info

    def request_refresh(self) -> None:
        """Refresh in the background, not sooner than the back-off after the last attempt."""
        if self._background is None or self._background.done():
            self._background = asyncio.get_running_loop().create_task(self._refresh_later())

    def refresh_if_old(self) -> None:
        """Refresh in the background when metadata is older than metadata.max.age.ms."""
        if now_ms() - self._refreshed_at_ms >= self._max_age_ms:
            self.request_refresh()

    async def _refresh_later(self) -> None:
        wait_ms = self._attempted_at_ms + self._retry_backoff_ms - now_ms()
        if wait_ms > 0:
            await asyncio.sleep(wait_ms / 1000)
        try:
            await self.refresh()
        except TidegaugeError:
            # Whoever needs it asks again, after the back-off.
            self._tell()

    async def ensure_topics(self, topics: Collection[str], *, timeout_ms: float) -> ClusterInfo:
        """Wait until all these topics are known.

        Raises:
            TidegaugeError: what the brokers said last, when the time is over; INVALID_TOPIC_EXCEPTION at once.
        """
        self.add_topics(topics)
        deadline_ms = now_ms() + timeout_ms
        while True:
            problem: TidegaugeError | None = None
            try:
                await self.refresh()
            except TidegaugeError as error:
                problem = error
            for name in sorted(topics):
                problem = problem or self._topic_problem(name)
            if problem is None:
                return self.info
            is_final = isinstance(problem, HandshakeError) or problem.code is ErrorCode.INVALID_TOPIC_EXCEPTION
            if is_final or now_ms() >= deadline_ms:
                self._topics.difference_update(n for n in topics if self._topic_problem(n) is not None)
                raise problem
            await asyncio.sleep(min(self._retry_backoff_ms, max(1.0, deadline_ms - now_ms())) / 1000)

    def _topic_problem(self, name: str) -> TidegaugeError | None:
        topic = self.info.topics.get(name)
        if topic is None:
            return TidegaugeError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, unknown_topic(name))
        if topic.error is ErrorCode.NONE:
            return None
        if topic.error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            return TidegaugeError(topic.error, unknown_topic(name))
        return TidegaugeError(topic.error, topic.error_message)

    def leader(self, topic_partition: TopicPartition) -> Leader | None:
        """The partition's leader as far as is known."""
        return self.info.leader(topic_partition)

    def hint(self, topic_partition: TopicPartition, leader_id: int, leader_epoch: int) -> bool:
        """Take a broker's hint on who leads; whether it was news."""
        changed = metadata.with_leader(self.info, topic_partition, leader_id, leader_epoch)
        if changed is self.info:
            return False
        self.info = changed
        self._tell()
        return True

    def _tell(self) -> None:
        for listener in self._listeners:
            listener()


def unknown_topic(name: str) -> str:
    """The sentence for a topic that nobody knows."""
    return (
        f"Topic '{name}' does not exist as expected; `tidegauge list-topics` shows what does, `tidegauge create-topic` "
        "makes it"
    )
