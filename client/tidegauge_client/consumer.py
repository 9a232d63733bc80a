"""The asyncio consumer: committed records of the assigned partitions, in order, through leader changes.

``assign`` names partitions, ``subscribe`` takes all partitions of some topics; the members of a consumer group, which
share them, are ``tidegauge_client.group.group_consumer``. Brokers bound what a consumer reads by the high watermark.
One fetch at a time is in flight to each leader, and waits there for data; fetched records wait here until they are
polled, at most one response for each partition.

Parts: ``subscription`` (positions, epochs, the meaning of responses), ``kafka_data`` and ``grpc_reads`` (requests over
the two wires), this module (the event loop).
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Collection, Coroutine, Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any, Literal, Self, Unpack

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.partition import TopicPartition
from tidegauge.v1 import fetch_pb2, offsets_pb2
from tidegauge.waits import carried_out, until_set
from tidegauge_client.bootstrap import SecurityArguments, connect_to
from tidegauge_client.cluster import Cluster, now_ms
from tidegauge_client.grpc_reads import GrpcReads, Reads
from tidegauge_client.isolation import IsolationLevel
from tidegauge_client.kafka_brokers import no_leader, on_kafka_brokers
from tidegauge_client.kafka_data import KafkaReads
from tidegauge_client.metadata import BrokerInfo, TopicIdentity
from tidegauge_client.subscription import ConsumerRecord, Phase, Position, Reset, Subscription
from tidegauge_client.wires import Wire

FETCH_GRACE_MS = 5_000
"""How much longer than fetch.max.wait.ms a fetch may take. A paused leader is left after that, not after
request.timeout.ms, because repeating a fetch is idempotent.
"""


class ConsumerArguments(SecurityArguments, total=False):
    """The settings of ``Consumer``, for classes that build on it."""

    auto_offset_reset: Literal["latest", "earliest", "none"]
    fetch_max_wait_ms: int
    fetch_min_bytes: int
    fetch_max_bytes: int
    max_partition_fetch_bytes: int
    max_poll_records: int
    request_timeout_ms: float
    retry_backoff_ms: float
    metadata_max_age_ms: float
    check_crcs: bool
    isolation_level: IsolationLevel
    client_id: str
    wire: Wire


class Consumer:
    """Reads committed records. An asynchronous context manager, or ``start`` and ``stop``."""

    _has_group = False

    def __init__(
        self,
        bootstrap_servers: str | Sequence[str],
        *,
        auto_offset_reset: Literal["latest", "earliest", "none"] = "latest",
        fetch_max_wait_ms: int = 500,
        fetch_min_bytes: int = 1,
        fetch_max_bytes: int = 52_428_800,
        max_partition_fetch_bytes: int = 1_048_576,
        max_poll_records: int = 500,
        request_timeout_ms: float = 30_000,
        retry_backoff_ms: float = 100,
        metadata_max_age_ms: float = 300_000,
        check_crcs: bool = True,
        isolation_level: IsolationLevel = "read_uncommitted",
        client_id: str = "",
        wire: Wire = "kafka",
        **security: Unpack[SecurityArguments],
    ) -> None:
        """Check the settings; nothing is contacted before ``start``.

        Args:
            bootstrap_servers: ``host:port[,host:port]``, or several.
            auto_offset_reset: where to begin without a position, and where to continue when the position is out of
                range or the log was truncated below it; with ``none`` poll raises.
            fetch_max_wait_ms: how long a broker waits for fetch_min_bytes.
            fetch_min_bytes: minimum bytes to accumulate before a broker responds.
            fetch_max_bytes: soft limit of a response.
            max_partition_fetch_bytes: soft limit for one partition.
            max_poll_records: maximum number of records that ``poll`` returns, unless given there.
            request_timeout_ms: how long a broker may take to respond.
            retry_backoff_ms: back-off between two attempts.
            metadata_max_age_ms: age at which metadata is refreshed, and new partitions of subscribed topics are found.
            check_crcs: whether each batch's CRC is checked.
            isolation_level: with ``read_committed`` nothing of open and of aborted transactions is read (KIP-98).
            client_id: name of the client in its requests, by which quotas and fault rules tell clients apart; empty:
                ``tidegauge``.
            wire: over what records are read: Kafka's protocol where the leader can be reached so, or gRPC (``grpc``).
            security: see ``SecurityArguments``.

        Raises:
            TidegaugeError: INVALID_REQUEST, a bootstrap server is malformed; INVALID_CONFIG, a TLS file is invalid.
        """
        self._cluster = Cluster(
            connect_to(bootstrap_servers, security),
            retry_backoff_ms=retry_backoff_ms,
            metadata_max_age_ms=metadata_max_age_ms,
            client_id=client_id,
            wire=wire,
        )
        self._cluster.on_change(self._metadata_changed)
        self._reads_committed = isolation_level == "read_committed"
        self._subscription = Subscription(Reset(auto_offset_reset), check_crcs=check_crcs, has_group=self._has_group)
        self._fetch_max_wait_ms = fetch_max_wait_ms
        self._fetch_min_bytes = fetch_min_bytes
        self._fetch_max_bytes = fetch_max_bytes
        self._max_partition_fetch_bytes = max_partition_fetch_bytes
        self._max_poll_records = max_poll_records
        self._request_timeout_ms = request_timeout_ms
        self._retry_backoff_ms = retry_backoff_ms
        self._topics: set[str] = set()
        self._topic_ids: dict[str, str] = {}
        self._fetches: dict[str, asyncio.Task[None]] = {}
        self._lookups: asyncio.Task[None] | None = None
        self._ready: deque[TopicPartition] = deque()
        self._wake = asyncio.Event()
        self._is_running = False

    # Start and stop -----------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Find the cluster.

        Raises:
            TidegaugeError: BROKER_NOT_AVAILABLE, no bootstrap server responds.
        """
        self._cluster.open()
        await self._cluster.refresh()
        self._is_running = True

    async def stop(self) -> None:
        """Cancel the requests in flight and close, also if the caller is cancelled."""
        self._is_running = False
        await carried_out(self._close())

    async def _close(self) -> None:
        tasks = [*self._fetches.values(), *([] if self._lookups is None else [self._lookups])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._fetches.clear()
        await self._cluster.close()

    async def __aenter__(self) -> Self:
        try:
            await self.start()
        except BaseException:
            await self.stop()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    # Subscriptions ------------------------------------------------------------------------------------------

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Read exactly these partitions; the positions of those that stay are kept."""
        wanted = [TopicPartition(*tp) for tp in partitions]
        self._topics.clear()
        self._subscription.assign(wanted)
        self._cluster.add_topics({tp.topic for tp in wanted})
        if self._is_running:
            self._cluster.request_refresh()

    async def subscribe(self, topics: Collection[str], *, timeout_ms: float = 60_000) -> None:
        """Read all partitions of these topics; partitions added later are found with the metadata.

        Raises:
            TidegaugeError: UNKNOWN_TOPIC_OR_PARTITION, INVALID_TOPIC_EXCEPTION.
        """
        await self._cluster.ensure_topics(topics, timeout_ms=timeout_ms)
        self._topics = set(topics)
        self._assign_topics()

    def _assign_topics(self) -> None:
        known = self._cluster.info.topics
        found = [TopicPartition(t, p) for t in sorted(self._topics) if t in known for p in known[t].partitions]
        # A partition that is missing for a moment from one broker's metadata keeps its position.
        kept = [tp for tp in self._subscription.assigned() if tp.topic in self._topics]
        self._subscription.assign(list(dict.fromkeys([*kept, *found])))

    def topic_identity(self, topic: str) -> TopicIdentity:
        """Return the ids of a topic and its cluster, empty while unknown."""
        return self._cluster.info.identity_of(topic)

    def led_by_kafka(self, topic: str) -> dict[int, BrokerInfo]:
        """Return a topic's partitions led by Apache Kafka brokers, with leaders."""
        return {at.partition: broker for at, broker in on_kafka_brokers(self._cluster.info, [topic]).items()}

    def assignment(self) -> list[TopicPartition]:
        """Return the partitions that are read."""
        return self._subscription.assigned()

    def seek(self, topic_partition: TopicPartition, offset: int) -> None:
        """Continue at an offset.

        Raises:
            TidegaugeError: INVALID_REQUEST, not assigned or negative.
        """
        if offset < 0:
            raise TidegaugeError(ErrorCode.INVALID_REQUEST, f"seek offset must not be a negative number: {offset}")
        self._subscription.seek(topic_partition, Position(offset))

    async def seek_to_beginning(self, partitions: Iterable[TopicPartition] = ()) -> None:
        """Continue at the log start offset (none named: of all partitions), looked up now.

        Raises:
            TidegaugeError: REQUEST_TIMED_OUT, no leader responded in time.
        """
        await self._seek_by_time(partitions, Reset.EARLIEST)

    async def seek_to_end(self, partitions: Iterable[TopicPartition] = ()) -> None:
        """Continue at the high watermark (none named: of all partitions), looked up now.

        Raises:
            TidegaugeError: REQUEST_TIMED_OUT, no leader responded in time.
        """
        await self._seek_by_time(partitions, Reset.LATEST)

    async def _seek_by_time(self, partitions: Iterable[TopicPartition], where: Reset) -> None:
        chosen = list(partitions) or self._subscription.assigned()
        for topic_partition in chosen:
            self._subscription.reset(topic_partition, where)
        for topic_partition in chosen:
            await self.position(topic_partition)

    async def position(self, topic_partition: TopicPartition, *, timeout_ms: float = 60_000) -> int:
        """Return the offset of the next record of poll; look it up if unknown.

        Raises:
            TidegaugeError: INVALID_REQUEST, not assigned, REQUEST_TIMED_OUT, or OFFSET_OUT_OF_RANGE without a reset
                policy.
        """
        deadline_ms = now_ms() + timeout_ms
        while True:
            self._subscription.raise_problem()
            found = self._subscription.position(topic_partition)
            if found is not None:
                return found
            if now_ms() >= deadline_ms:
                why = self._subscription.troubles().get(topic_partition)
                raise TidegaugeError(
                    ErrorCode.REQUEST_TIMED_OUT,
                    f"the position of {topic_partition} could not be determined in time"
                    + (f": {why.message}" if why is not None else ""),
                )
            self._send()
            await self._wait(min(deadline_ms, now_ms() + self._retry_backoff_ms))

    def high_watermark(self, topic_partition: TopicPartition) -> int | None:
        """Return the high watermark as of the last fetch; None before the first."""
        return self._subscription.high_watermark(topic_partition)

    def troubles(self) -> dict[TopicPartition, TidegaugeError]:
        """Return the reasons why partitions can't be read now; they are retried."""
        return self._subscription.troubles()

    def take_notices(self) -> list[str]:
        """Return notices about positions since the last call, such as resets."""
        return self._subscription.take_notices()

    # Reading ------------------------------------------------------------------------------------------------

    async def poll(self, timeout_ms: float = 0, max_records: int | None = None) -> list[ConsumerRecord]:
        """Return the next records, as soon as some arrive; none after the timeout.

        Raises:
            TidegaugeError: OFFSET_OUT_OF_RANGE without a reset policy, CORRUPT_MESSAGE, or another error that is not
                retriable. Positions are unchanged; ``seek`` skips the cause.
        """
        deadline_ms = now_ms() + timeout_ms
        limit = self._max_poll_records if max_records is None else max_records
        while True:
            await self._before_take(deadline_ms)
            self._subscription.raise_problem()
            records = self._take(limit)
            self._send()
            if records:
                return records
            self._subscription.raise_problem()
            if now_ms() >= deadline_ms:
                return []
            await self._wait(deadline_ms)

    async def _before_take(self, deadline_ms: float) -> None:
        """Do what a consumer group needs in each poll; nothing without one."""

    def _due_ms(self) -> float:
        """Return when the next back-off ends."""
        return self._subscription.next_due_ms(now_ms())

    async def _wait(self, until_ms: float) -> None:
        """Wait until something happens, or until the timeout or a back-off has passed."""
        due_ms = min(until_ms, self._due_ms())
        self._wake.clear()
        await until_set(self._wake, max(0.0, due_ms - now_ms()) / 1000)

    def _take(self, limit: int) -> list[ConsumerRecord]:
        """Take records that are here, from the partitions in turn."""
        records: list[ConsumerRecord] = []
        for _ in range(len(self._ready)):
            topic_partition = self._ready.popleft()
            records += self._subscription.take(topic_partition, limit - len(records))
            if self._subscription.has_records(topic_partition):
                self._ready.append(topic_partition)
            if len(records) >= limit:
                break
        return records

    def _metadata_changed(self) -> None:
        if self._topics:
            self._assign_topics()
        for name, topic in self._cluster.info.topics.items():
            if topic.topic_id and self._topic_ids.setdefault(name, topic.topic_id) != topic.topic_id:
                self._topic_ids[name] = topic.topic_id
                self._subscription.topic_replaced(name)
        for topic_partition in self._subscription.assigned():
            info = self._cluster.info.partition(topic_partition)
            if info is not None:
                self._subscription.leader_epoch_seen(topic_partition, info.leader_epoch)
        self._wake.set()

    # Requests to brokers -------------------------------------------------------------------------------------

    def _send(self) -> None:
        """Send a fetch to every leader to which none is in flight."""
        if not self._is_running:
            raise TidegaugeError(ErrorCode.INVALID_REQUEST, "the consumer is not running; start it, or use async with")
        self._cluster.refresh_if_old()
        now = now_ms()
        if self._lookups is None and self._subscription.due(Phase.RESETTING, Phase.VALIDATING, now_ms=now):
            self._lookups = asyncio.get_running_loop().create_task(self._look_up())
        by_address: dict[str, list[TopicPartition]] = {}
        for topic_partition in self._subscription.due(Phase.FETCHING, now_ms=now):
            address = self._address(topic_partition)
            if address is not None and address not in self._fetches:
                by_address.setdefault(address, []).append(topic_partition)
        for address, partitions in by_address.items():
            self._fetches[address] = asyncio.get_running_loop().create_task(
                self._fetch(address, *self._fetch_request(partitions))
            )

    def _address(self, topic_partition: TopicPartition) -> str | None:
        leader = self._cluster.leader(topic_partition)
        if leader is None:
            why = no_leader(self._cluster.info, topic_partition)
            self._subscription.back_off(topic_partition, now_ms() + self._retry_backoff_ms, why)
            self._cluster.request_refresh()
            return None
        return leader.address

    def _fetch_request(
        self, partitions: Sequence[TopicPartition]
    ) -> tuple[fetch_pb2.FetchRequest, dict[TopicPartition, Position]]:
        """Return a request, and its positions, which may change before a task begins."""
        request = fetch_pb2.FetchRequest(
            max_wait_ms=self._fetch_max_wait_ms,
            min_bytes=self._fetch_min_bytes,
            max_bytes=self._fetch_max_bytes,
            reads_committed=self._reads_committed,
        )
        asked: dict[TopicPartition, Position] = {}
        for topic_partition in partitions:
            position = asked[topic_partition] = self._subscription.fetch_position(topic_partition)
            request.partitions.add(
                topic=topic_partition.topic,
                partition=topic_partition.partition,
                current_leader_epoch=position.leader_epoch,
                last_fetched_epoch=position.last_fetched_epoch,
                fetch_offset=position.offset,
                partition_max_bytes=self._max_partition_fetch_bytes,
            )
        return request, asked

    def _reads(self, address: str) -> Reads:
        """Return what asks a leader, over the wire whose address it is."""
        if self._cluster.is_of_kafka(address):
            return KafkaReads(self._cluster.kafka, address)
        return GrpcReads(self._cluster.channels, address)

    async def _fetch(
        self, address: str, request: fetch_pb2.FetchRequest, asked: Mapping[TopicPartition, Position]
    ) -> None:
        limit_ms = min(self._request_timeout_ms, self._fetch_max_wait_ms + FETCH_GRACE_MS)
        try:
            response = await self._reads(address).fetch(request, limit_ms)
        except TidegaugeError as problem:
            self._failed(address, asked, problem)
        else:
            for result in response.partitions:
                topic_partition = TopicPartition(result.topic, result.partition)
                if topic_partition in asked:
                    self._fetched(topic_partition, asked[topic_partition], result)
        finally:
            self._fetches.pop(address, None)
            self._wake.set()

    def _failed(self, address: str, asked: Mapping[TopicPartition, object], problem: TidegaugeError) -> None:
        self._cluster.note_failure(address)
        self._cluster.request_refresh()
        for topic_partition in asked:
            if problem.retriable:
                self._subscription.back_off(topic_partition, now_ms() + self._retry_backoff_ms, problem)
            else:
                self._subscription.report(topic_partition, problem)

    def _fetched(
        self, topic_partition: TopicPartition, asked: Position, result: fetch_pb2.FetchPartitionResult
    ) -> None:
        if result.HasField("current_leader"):
            self._cluster.hint(topic_partition, result.current_leader.leader_id, result.current_leader.leader_epoch)
        if self._subscription.fetched(topic_partition, asked, result, retry_at_ms=now_ms() + self._retry_backoff_ms):
            self._cluster.request_refresh()
        if self._subscription.has_records(topic_partition) and topic_partition not in self._ready:
            self._ready.append(topic_partition)

    async def _look_up(self) -> None:
        """Look up offsets for positions to be reset, and validate positions against a new leader epoch."""
        try:
            now = now_ms()
            resets = self._by_address(self._subscription.due(Phase.RESETTING, now_ms=now))
            checks = self._by_address(self._subscription.due(Phase.VALIDATING, now_ms=now))
            await asyncio.gather(
                *(self._list_offsets(*item) for item in resets.items()),
                *(self._check_epochs(*item) for item in checks.items()),
            )
        finally:
            self._lookups = None
            self._wake.set()

    def _by_address(self, partitions: Iterable[TopicPartition]) -> dict[str, list[TopicPartition]]:
        by_address: dict[str, list[TopicPartition]] = {}
        for topic_partition in partitions:
            address = self._address(topic_partition)
            if address is not None:
                by_address.setdefault(address, []).append(topic_partition)
        return by_address

    def _list_offsets(self, address: str, partitions: Sequence[TopicPartition]) -> Coroutine[Any, Any, None]:
        """Make a request at once, as for fetches; return what sends it."""
        request = offsets_pb2.ListOffsetsRequest(reads_committed=self._reads_committed)
        asked: dict[TopicPartition, Reset] = {}
        for tp in partitions:
            asked[tp] = self._subscription.reset_wanted(tp)
            request.partitions.add(topic=tp.topic, partition=tp.partition, timestamp_ms=asked[tp].timestamp_ms)
        return self._find_offsets(address, request, asked)

    async def _find_offsets(
        self, address: str, request: offsets_pb2.ListOffsetsRequest, asked: Mapping[TopicPartition, Reset]
    ) -> None:
        limit_ms = min(self._request_timeout_ms, FETCH_GRACE_MS)
        try:
            response = await self._reads(address).list_offsets(request, limit_ms)
        except TidegaugeError as problem:
            self._failed(address, asked, problem)
            return
        for result in response.partitions:
            tp = TopicPartition(result.topic, result.partition)
            if tp in asked and self._subscription.offset_found(
                tp, asked[tp], result, retry_at_ms=now_ms() + self._retry_backoff_ms
            ):
                self._cluster.request_refresh()

    def _check_epochs(self, address: str, partitions: Sequence[TopicPartition]) -> Coroutine[Any, Any, None]:
        """Make a request at once, as for fetches; return what sends it."""
        request = offsets_pb2.OffsetsForLeaderEpochRequest()
        asked: dict[TopicPartition, Position] = {}
        for tp in partitions:
            position = asked[tp] = self._subscription.fetch_position(tp)
            request.partitions.add(
                topic=tp.topic,
                partition=tp.partition,
                current_leader_epoch=position.leader_epoch,
                leader_epoch=-1 if position.last_fetched_epoch is None else position.last_fetched_epoch,
            )
        return self._find_epoch_ends(address, request, asked)

    async def _find_epoch_ends(
        self, address: str, request: offsets_pb2.OffsetsForLeaderEpochRequest, asked: Mapping[TopicPartition, Position]
    ) -> None:
        limit_ms = min(self._request_timeout_ms, FETCH_GRACE_MS)
        try:
            response = await self._reads(address).epoch_ends(request, limit_ms)
        except TidegaugeError as problem:
            self._failed(address, asked, problem)
            return
        for result in response.partitions:
            tp = TopicPartition(result.topic, result.partition)
            if tp in asked and self._subscription.epoch_checked(
                tp, asked[tp], result, retry_at_ms=now_ms() + self._retry_backoff_ms
            ):
                self._cluster.request_refresh()
