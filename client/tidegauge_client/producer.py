"""The asyncio producer: batching, order, retries and idempotence as in KafkaProducer.

``send`` takes a record and returns a future, which is the acknowledgement. Records with the same key, or to the same
partition, keep their order; with idempotence (the default with acks=all) each is written exactly once as long as the
producer lives, through leader changes and broken connections.

Parts: ``partitioner`` (destination), ``accumulator`` and ``partition_queue`` (batches, order, sequences), ``sender``
(what to send, what responses mean), ``kafka_data`` and ``produce_stream`` (Kafka's protocol and gRPC), ``producer_id``,
``transaction`` (the state of its transactions). Only this module knows the event loop.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import random
import time
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Literal, Self, Unpack

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.partition import TopicPartition, topic_name_problem
from tidegauge.v1 import produce_pb2
from tidegauge.waits import carried_out
from tidegauge_client.accumulator import Accumulator, Room
from tidegauge_client.bootstrap import SecurityArguments, connect_to
from tidegauge_client.buffer_memory import BufferMemory
from tidegauge_client.cluster import Cluster, now_ms
from tidegauge_client.group.group_consumer import GroupMetadata
from tidegauge_client.kafka_brokers import led_by, on_kafka_brokers
from tidegauge_client.kafka_data import open_stream
from tidegauge_client.kafka_offsets import OffsetAndMetadata
from tidegauge_client.metadata import BrokerInfo, TopicIdentity, TopicInfo
from tidegauge_client.partition_queue import Batch, RecordMetadata
from tidegauge_client.partitioner import StickyPartitioner, partition_for_key
from tidegauge_client.producer_id import init_producer_id
from tidegauge_client.producer_settings import check_idempotence, check_timeouts
from tidegauge_client.records import Headers, compression_number, estimate_size_bytes
from tidegauge_client.sender import Connection, Counters, Sender
from tidegauge_client.transaction import Phase, Transactions
from tidegauge_client.wires import Wire

YIELD_EVERY = 64
"""Sends of one task between two turns of the event loop: a loop of sends must not starve the sender."""
_LEFT, _NONE = Room.LEFT, Room.NONE
_new = tuple.__new__
"""Makes a named tuple without its class's own constructor, which takes four times as long."""


class Producer:
    """Writes records. An asynchronous context manager, or ``start`` and ``stop``.

    Attributes:
        counters: records sent (handed over), acknowledged, failed, and sent again.
    """

    def __init__(
        self,
        bootstrap_servers: str | Sequence[str],
        *,
        acks: Literal["all", 0, 1, -1] = "all",
        linger_ms: float = 0,
        batch_size_bytes: int = 16_384,
        compression: str = "none",
        max_in_flight: int = 5,
        delivery_timeout_ms: float = 120_000,
        request_timeout_ms: float = 30_000,
        buffer_memory_bytes: int = 33_554_432,
        idempotence: bool | None = None,
        max_request_size_bytes: int = 1_048_576,
        retry_backoff_ms: float = 100,
        max_block_ms: float = 60_000,
        transactional_id: str | None = None,
        transaction_timeout_ms: int = 60_000,
        client_id: str = "",
        wire: Wire = "kafka",
        **security: Unpack[SecurityArguments],
    ) -> None:
        """Check the settings; nothing is contacted.

        Args:
            bootstrap_servers: ``host:port[,host:port]``, or several.
            acks: ``all`` in-sync replicas, the leader alone (1), or none (0).
            linger_ms: how long a batch waits for more records.
            batch_size_bytes: size at which a batch is closed.
            compression: none, gzip, snappy, lz4 or zstd.
            max_in_flight: maximum number of requests in flight to one broker; at most 5 with idempotence.
            delivery_timeout_ms: time from handing over a record until it has failed.
            request_timeout_ms: how long a broker may take to respond.
            buffer_memory_bytes: bytes that unfinished records may occupy; beyond that ``send`` waits.
            idempotence: None means: if acks is all.
            max_request_size_bytes: maximum size of a request, and of a record.
            retry_backoff_ms: the first back-off; it doubles up to one second.
            max_block_ms: how long ``send`` may wait for buffer memory or metadata, and requests of transactions.
            transactional_id: of the transactions in which it writes; at most one producer has it. Needs idempotence.
            transaction_timeout_ms: after which the coordinator aborts a transaction.
            client_id: name of the client in its requests, by which quotas and fault rules tell clients apart; empty:
                ``tidegauge``.
            wire: over what records are sent: Kafka's protocol where the leader can be reached so, or gRPC (``grpc``).
            security: see ``SecurityArguments``.

        Raises:
            TidegaugeError: INVALID_REQUIRED_ACKS, UNSUPPORTED_COMPRESSION_TYPE, INVALID_CONFIG, INVALID_REQUEST.
        """
        is_all = acks in {"all", -1}
        self._idempotence = is_all if idempotence is None else idempotence
        check_idempotence(
            acks, max_in_flight, is_idempotent=self._idempotence, is_transactional=transactional_id is not None
        )
        check_timeouts(delivery_timeout_ms, linger_ms=linger_ms, request_timeout_ms=request_timeout_ms)
        compression_number(compression)
        self._batch_size_bytes = batch_size_bytes
        self._max_request_size_bytes = max_request_size_bytes
        self._max_block_ms = max_block_ms
        self._retry_backoff_ms = retry_backoff_ms
        self._most_record_bytes = min(max_request_size_bytes, buffer_memory_bytes)
        self._memory = BufferMemory(buffer_memory_bytes)
        servers = connect_to(bootstrap_servers, security)
        self._cluster = Cluster(servers, retry_backoff_ms=retry_backoff_ms, client_id=client_id, wire=wire)
        self._cluster.on_change(self._wake_up)
        self._accumulator = Accumulator(
            batch_size_bytes=batch_size_bytes,
            linger_ms=linger_ms,
            compression=compression,
            max_in_flight=max_in_flight,
            idempotence=self._idempotence,
            is_transactional=transactional_id is not None,
        )
        self._sender = Sender(
            self._accumulator,
            self._cluster,
            connect=self._connect,
            on_done=self._batch_done,
            jitter=lambda: random.uniform(0.8, 1.2),
            acks=-1 if is_all else int(acks),
            max_in_flight=max_in_flight,
            delivery_timeout_ms=delivery_timeout_ms,
            request_timeout_ms=request_timeout_ms,
            max_request_size_bytes=max_request_size_bytes,
            retry_backoff_ms=retry_backoff_ms,
            transactional_id=transactional_id or "",
        )
        self._transactions = (
            None
            if transactional_id is None
            else Transactions(
                transactional_id,
                transaction_timeout_ms,
                self._cluster,
                retry_backoff_ms=retry_backoff_ms,
                max_block_ms=max_block_ms,
            )
        )
        self._sticky: dict[str, StickyPartitioner] = {}
        self._wake = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._task: asyncio.Task[None] | None = None
        self._identifying: asyncio.Task[None] | None = None
        self._streams: set[asyncio.Task[None]] = set()
        self._flushes: list[tuple[set[int], asyncio.Future[None]]] = []
        self._since_yield = 0
        self._to_yield: asyncio.Task[object] | None = None
        self._is_stopping = False
        self._fatal: TidegaugeError | None = None

    @property
    def counters(self) -> Counters:
        """Return the numbers of records sent, acknowledged, failed, and sent again."""
        return self._sender.counters

    # Start and stop -----------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Find the cluster and begin to send.

        Raises:
            TidegaugeError: BROKER_NOT_AVAILABLE, no bootstrap server responds; INVALID_REQUEST, it was started before.
        """
        self._check_not_started()
        await self._cluster.refresh()
        self._check_not_started()
        self._loop = asyncio.get_running_loop()
        self._task = self._loop.create_task(self._run())

    def _check_not_started(self) -> None:
        if self._task is not None or self._is_stopping:
            raise TidegaugeError(
                ErrorCode.INVALID_REQUEST, "a producer can be started once; make another one to go on after its stop"
            )

    async def stop(self, timeout_ms: float | None = None) -> None:
        """Send the remaining records, wait for their acknowledgements, end the open transaction, and close.

        A commit or an abort that has begun is completed, and an open transaction is aborted (Sender.run, once it is to
        close). If that fails, or the timeout is over before it, or is 0, the transaction is left to its own
        timeout, and records without acknowledgement fail (KafkaProducer.close, Sender.forceClose). If the caller is
        cancelled nothing more is waited for: the producer is closed in the same way.

        Args:
            timeout_ms: time for all of it; None: what delivery_timeout_ms and max_block_ms allow.
        """
        self._is_stopping = True
        try:
            if self._task is not None:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(None if timeout_ms is None else timeout_ms / 1000):
                        await self.flush()
                        if self._transactions is not None and (timeout_ms is None or timeout_ms > 0):
                            await self._end_transaction(self._transactions)
        finally:
            await carried_out(self._close())

    async def _close(self) -> None:
        tasks = [task for task in (self._task, self._identifying) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._task = None
        if self._transactions is not None:
            await self._transactions.close()
        stopped = "the producer was stopped before the record was acknowledged"
        self._sender.abandon(TidegaugeError(ErrorCode.NETWORK_EXCEPTION, stopped))
        await asyncio.gather(*self._streams, return_exceptions=True)
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
        await self.stop(0 if kind is not None and issubclass(kind, asyncio.CancelledError) else None)

    async def flush(self) -> None:
        """Send everything at once and wait until every record is acknowledged or has failed."""
        waiting_for = {batch.place[0] for batch in self._accumulator.incomplete}
        if not waiting_for:
            return
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        entry = (waiting_for, done)
        self._flushes.append(entry)
        self._wake_up()
        try:
            await done
        finally:
            if entry in self._flushes:
                self._flushes.remove(entry)

    async def partitions_for(self, topic: str, *, timeout_ms: float | None = None) -> TopicInfo:
        """Return a topic's partitions; wait for metadata up to the timeout or max_block_ms.

        Raises:
            TidegaugeError: UNKNOWN_TOPIC_OR_PARTITION, INVALID_TOPIC_EXCEPTION.
        """
        return await self._wait_for_partition(topic, None, self._max_block_ms if timeout_ms is None else timeout_ms)

    def topic_identity(self, topic: str) -> TopicIdentity:
        """Return the ids of a topic and its cluster, empty while unknown."""
        return self._cluster.info.identity_of(topic)

    def led_by_kafka(self, topic: str) -> dict[int, BrokerInfo]:
        """Return a topic's partitions led by Apache Kafka brokers, with leaders."""
        return {at.partition: broker for at, broker in on_kafka_brokers(self._cluster.info, [topic]).items()}

    # Sending ------------------------------------------------------------------------------------------------

    async def send(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None = None,
        *,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        headers: Headers = (),
    ) -> asyncio.Future[RecordMetadata]:
        """Hand a record over; the future is its acknowledgement.

        Waits, up to max_block_ms, for buffer memory and for the topic's metadata. If it is cancelled while it waits,
        the record is not handed over.

        Raises:
            TidegaugeError: MESSAGE_TOO_LARGE, INVALID_TOPIC_EXCEPTION, UNKNOWN_TOPIC_OR_PARTITION, REQUEST_TIMED_OUT
                (no buffer memory), LISTENER_NOT_FOUND (an Apache Kafka broker leads, out of reach of gRPC), or why the
                producer can't continue. The future raises the error of a broker, and REQUEST_TIMED_OUT after the
                delivery timeout.
            TypeError: key or value is not bytes.
        """
        self._check_open()
        if not (
            (key is None or type(key) is bytes or _is_payload(key)) and (type(value) is bytes or _is_payload(value))
        ):
            raise TypeError("key and value are bytes or None")
        if self._to_yield is not None:
            await self._let_others_run()
        size_bytes = estimate_size_bytes(key, value, headers)
        if size_bytes > self._most_record_bytes:
            raise self._too_large(size_bytes)
        info = self._cluster.info.topics.get(topic)
        if info is None or info.error is not ErrorCode.NONE or (partition or 0) not in info.partitions:
            info = await self._wait_for_partition(topic, partition, self._max_block_ms)
        if not self._memory.try_take(size_bytes):
            self._wake_up()
            await self._memory.take(size_bytes, self._max_block_ms)
        sticky = None
        if partition is None:
            if key is not None:
                partition = partition_for_key(bytes(key), len(info.partitions))
            else:
                sticky = self._sticky_of(topic)
                partition = sticky.current
                if partition is None or partition not in info.partitions:
                    partition = self._draw(info, sticky)
        if self._cluster.info.kafka_brokers:
            partition = self._reachable(info, partition, sticky, size_bytes)
        if timestamp_ms is None:
            timestamp_ms = time.time_ns() // 1_000_000
        topic_partition = _new(TopicPartition, (topic, partition))
        try:
            if self._transactions is not None:
                await self._transactions.add(topic_partition)
            self._check_open()
            promise: asyncio.Future[RecordMetadata] = asyncio.Future(loop=self._loop)
            room = self._accumulator.append(
                topic_partition,
                value,
                key,
                timestamp_ms,
                headers,
                promise,
                reserved_bytes=size_bytes,
                now_ms=now_ms(),
            )
        except BaseException:
            self._memory.release(size_bytes)
            raise
        self._sender.counters.sent += 1
        is_full = room is _NONE
        if room is not _LEFT:
            self._wake.set()  # a record in an open batch changes nothing for the sender
        if sticky is not None:
            sticky.produced(size_bytes, batch_is_full=is_full)
        self._since_yield += 1
        if is_full or self._since_yield >= YIELD_EVERY:
            self._since_yield = 0
            self._to_yield = asyncio.current_task()  # in its next call: no wait follows that could hide the promise
        return promise

    async def _let_others_run(self) -> None:
        """Yield, if the task is the one whose last send filled a batch, or came after many others."""
        if self._to_yield is asyncio.current_task():
            self._to_yield = None
            await asyncio.sleep(0)
            self._check_open()

    # Transactions -------------------------------------------------------------------------------------------

    async def init_transactions(self) -> None:
        """Take over the transactional id: earlier producers of it are fenced, their open transaction is aborted.

        Raises:
            TidegaugeError: REQUEST_TIMED_OUT after max_block_ms; INVALID_TRANSACTION_TIMEOUT, ...
        """
        transactions = self._of_transactions(Phase.NEW)
        self._accumulator.producer = await transactions.init()

    async def begin_transaction(self) -> None:
        """Begin a transaction; all records until its end belong to it.

        Raises:
            TidegaugeError: INVALID_TXN_STATE, an earlier call does not fit; PRODUCER_FENCED.
        """
        self._of_transactions(Phase.READY).begin()

    async def send_offsets_to_transaction(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata], group: GroupMetadata
    ) -> None:
        """Store a group's offsets, the next ones to read, that count when the transaction is committed (KIP-447).

        Args:
            offsets: by partition.
            group: ``group_metadata()`` of the consumer, by which a member of an older generation is rejected.

        Raises:
            TidegaugeError: ILLEGAL_GENERATION, UNKNOWN_MEMBER_ID and others; the transaction must be aborted then.
        """
        transactions = self._of_transactions(Phase.OPEN)
        await transactions.commit_offsets({TopicPartition(*at): one for at, one in offsets.items()}, group)

    async def commit_transaction(self) -> None:
        """Send the remaining records, wait for their acknowledgements, and commit; return when the commit is decided.

        Raises:
            TidegaugeError: INVALID_TXN_STATE, a record has failed, and the transaction must be aborted.
                REQUEST_TIMED_OUT, the outcome is unknown: call it again. PRODUCER_FENCED.
        """
        transactions = self._of_transactions(Phase.OPEN, Phase.COMMITTING)
        async with transactions.one_commit() as is_to_do:
            if not is_to_do:
                return
            transactions.expect(Phase.OPEN, Phase.COMMITTING)
            if transactions.phase is Phase.OPEN:
                with transactions.closing():
                    await transactions.until_added()
                    await self.flush()
                    transactions.expect(Phase.COMMITTING)
            await transactions.end(committed=True)

    async def abort_transaction(self) -> None:
        """Drop unacknowledged records, and abort; the next transaction may begin after it.

        Raises:
            TidegaugeError: REQUEST_TIMED_OUT: call it again; PRODUCER_FENCED.
        """
        transactions = self._of_transactions(Phase.OPEN, Phase.TO_ABORT, Phase.ABORTING)
        async with transactions.one_abort() as is_to_do:
            if is_to_do:
                transactions.expect(Phase.OPEN, Phase.TO_ABORT, Phase.ABORTING)
                await self._abort(transactions)

    async def _abort(self, transactions: Transactions) -> None:
        needs_epoch = (
            transactions.phase is not Phase.OPEN or bool(self._accumulator.incomplete) or transactions.is_adding
        )
        if needs_epoch:
            transactions.phase = Phase.ABORTING
            self._accumulator.producer = None
            aborted = "the transaction was aborted before the record was acknowledged"
            self._sender.abandon(TidegaugeError(ErrorCode.INVALID_TXN_STATE, aborted))
        await transactions.end(committed=False)
        if needs_epoch:
            transactions.phase = Phase.ABORTING
            self._accumulator.producer = await transactions.init()
            self._wake_up()

    async def _end_transaction(self, transactions: Transactions) -> None:
        """End the transaction as it has begun to end, else with an abort; it stays if that fails."""
        if transactions.phase is Phase.COMMITTING:
            with contextlib.suppress(TidegaugeError):
                async with transactions.one_commit() as is_to_do:
                    if is_to_do and transactions.phase is Phase.COMMITTING:
                        await transactions.end(committed=True)
        if transactions.phase in {Phase.OPEN, Phase.TO_ABORT, Phase.ABORTING} and not transactions.is_fenced:
            with contextlib.suppress(TidegaugeError):
                async with transactions.one_abort() as is_to_do:
                    if is_to_do:
                        await self._abort(transactions)

    def _of_transactions(self, *phases: Phase) -> Transactions:
        """Return the producer's transactions, if in one of these phases."""
        self._check_open()
        if self._transactions is None:
            raise TidegaugeError(ErrorCode.INVALID_REQUEST, "the producer has no transactional_id")
        self._transactions.expect(*phases)
        return self._transactions

    def _check_open(self) -> None:
        if self._fatal is not None:
            raise TidegaugeError(self._fatal.code, self._fatal.message)
        if self._task is None or self._is_stopping:
            raise TidegaugeError(ErrorCode.INVALID_REQUEST, "the producer is not running; start it, or use async with")

    def _too_large(self, size_bytes: int) -> TidegaugeError:
        is_request = size_bytes > self._max_request_size_bytes
        limit_bytes = self._max_request_size_bytes if is_request else self._memory.size_bytes
        return TidegaugeError(
            ErrorCode.MESSAGE_TOO_LARGE,
            f"The message is {size_bytes} bytes when serialized which is larger than {limit_bytes}, which is "
            f"the value of the {'max.request.size' if is_request else 'buffer.memory'} configuration.",
        )

    async def _wait_for_partition(self, topic: str, partition: int | None, timeout_ms: float) -> TopicInfo:
        problem = topic_name_problem(topic)
        if problem is not None:
            raise TidegaugeError(ErrorCode.INVALID_TOPIC_EXCEPTION, problem)
        deadline_ms = now_ms() + timeout_ms
        while True:
            await self._cluster.ensure_topics([topic], timeout_ms=max(0.0, deadline_ms - now_ms()))
            info = self._cluster.info.topics[topic]
            if (partition or 0) in info.partitions:
                return info
            if now_ms() >= deadline_ms or (partition is not None and partition < 0):
                raise TidegaugeError(
                    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                    f"Partition {partition or 0} of topic {topic} with partition count {len(info.partitions)} is not "
                    f"present in metadata after {timeout_ms:.0f} ms.",
                )
            await asyncio.sleep(self._retry_backoff_ms / 1000)

    def _sticky_of(self, topic: str) -> StickyPartitioner:
        found = self._sticky.get(topic)
        if found is None:
            found = self._sticky[topic] = StickyPartitioner(self._batch_size_bytes)
        return found

    def _draw(self, info: TopicInfo, sticky: StickyPartitioner) -> int:
        return sticky.partition(
            info.partitions,
            lambda index: info.partitions[index].leader_id in self._cluster.info.brokers,
            lambda index: self._accumulator.queue_length(TopicPartition(info.name, index)),
        )

    def _reachable(self, info: TopicInfo, partition: int, sticky: StickyPartitioner | None, size_bytes: int) -> int:
        """Return the partition, or another one led by a Tidegauge broker if allowed.

        Raises:
            OnKafkaBroker: an Apache Kafka broker leads; the record's memory was returned.
        """
        elsewhere = self.led_by_kafka(info.name)
        if partition in elsewhere and sticky is not None:
            sticky.leave()
            partition = self._draw(info, sticky)
        if partition in elsewhere:
            self._cluster.request_refresh()
            self._memory.release(size_bytes)
            raise led_by(TopicPartition(info.name, partition), elsewhere[partition])
        return partition

    # The task that drives the sender --------------------------------------------------------------------------

    def _wake_up(self) -> None:
        self._wake.set()

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            self._wake.clear()
            self._sender.is_hurried = bool(self._flushes) or self._memory.is_exhausted or self._is_stopping
            now = now_ms()
            look_again_ms = self._sender.step(now)
            self._cluster.refresh_if_old()
            needs_id = self._idempotence and self._accumulator.producer is None and self._transactions is None
            if needs_id and self._identifying is None:
                self._identifying = loop.create_task(self._identify())
            timer = None
            if not math.isinf(look_again_ms):
                timer = loop.call_later(max(0.0, look_again_ms - now) / 1000, self._wake.set)
            await self._wake.wait()
            if timer is not None:
                timer.cancel()

    async def _identify(self) -> None:
        """Get a producer id; without one the producer can't continue."""
        try:
            self._accumulator.producer = await init_producer_id(self._cluster, self._retry_backoff_ms)
        except TidegaugeError as problem:
            self._fatal = problem
            self._sender.abandon(problem)
            return
        self._identifying = None
        self._wake_up()

    def _connect(self, address: str) -> Connection:
        stream = open_stream(self._cluster, address, self._responded, self._written, self._disconnected)
        self._streams.add(stream.on_end(self._streams.discard))
        return stream

    def _responded(self, address: str, response: produce_pb2.ProduceResponse) -> None:
        self._sender.responded(address, response, now_ms())
        self._wake.set()

    def _written(self, address: str, correlation_id: int) -> None:
        self._sender.written(address, correlation_id)
        self._wake.set()

    def _disconnected(self, address: str, problem: TidegaugeError) -> None:
        self._sender.disconnected(address, problem, now_ms())
        self._wake.set()

    def _batch_done(self, batch: Batch) -> None:
        self._memory.release(batch.reserved_bytes)
        if self._transactions is not None and batch.failure is not None:
            self._transactions.failed(batch.failure)
        for promise in batch.promises:
            # A failure that the caller never reads is no fault: asyncio would otherwise log it as one.
            if isinstance(promise, asyncio.Future) and not promise.cancelled() and promise.exception() is None:
                break  # the records of a batch share one outcome
        if not self._flushes:
            return
        place = batch.place[0]
        if len(batch.place) > 1 and any(other.place[0] == place for other in self._accumulator.incomplete):
            return
        for waiting_for, done in self._flushes:
            waiting_for.discard(place)
            if not waiting_for and not done.done():
                done.set_result(None)


def _is_payload(given: object) -> bool:
    return given is None or isinstance(given, bytes | bytearray | memoryview)
