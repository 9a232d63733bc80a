"""Sends ready batches to the leaders of their partitions, and decides what each response means.

The sender is synchronous: ``step`` does the due work and returns when to look again; responses and disconnections
come in through ``responded``, ``written`` and ``disconnected``. The producer's task drives it; tests drive it by hand.

Rules (KafkaProducer's Sender, NetworkClient):
    1. One connection for each broker, with at most ``max_in_flight`` requests in flight; a request holds at most one
       batch of a partition.
    2. A batch with a retriable error is sent again until its delivery timeout has passed; any other error is reported.
       If the error says so, metadata is refreshed; a hint about the leader is accepted at once.
    3. A request without a response for ``request_timeout_ms`` closes its connection: the broker is paused or
       partitioned. Every batch in flight on a broken connection has an unknown outcome and is sent again.
    4. With acks=0 a batch is done when it was written; one that was not is sent again.
    5. Back-off doubles from retry.backoff.ms to one second, with a jitter of a fifth; a newer leader ends it.
    6. While a request to a broker is in flight, batches that are ready for the same broker wait for the response, at
       most twice as long as the last responses took in the median: if brokers and client share a machine, a further
       request queues behind the first and makes the queue longer, with one batch in it nearly as much as with ten
       (``docs/adr/0009-a-producer-waits-for-an-answer.md``). KafkaProducer sends it at once, and so does this one on
       a connection without a response yet.
"""

from __future__ import annotations

import itertools
import math
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import field
from typing import Protocol

from tidegauge.errors import ERROR_TABLE, ErrorCode, TidegaugeError
from tidegauge.lazy_dataclasses import dataclass
from tidegauge.partition import TopicPartition
from tidegauge.v1 import produce_pb2
from tidegauge_client.accumulator import Accumulator
from tidegauge_client.metadata import Leader
from tidegauge_client.partition_queue import Batch, OutcomeUnknown, RecordMetadata

MAX_BACKOFF_MS = 1_000.0
RESPONSES_REMEMBERED = 15
"""The response times of a connection that rule 6 goes by: five requests that stood still don't change their median."""
UNKNOWN_OFFSET = -1
_new = tuple.__new__


class Connection(Protocol):
    """A stream of requests to one broker."""

    def send(self, request: produce_pb2.ProduceRequest) -> None:
        """Queue a request; requests are sent in this order."""

    def close(self) -> None:
        """Close the connection; no callback is called afterwards."""


class View(Protocol):
    """The sender's view of the cluster's metadata."""

    def leader(self, topic_partition: TopicPartition) -> Leader | None:
        """Return the leader, as far as is known."""

    def hint(self, topic_partition: TopicPartition, leader_id: int, leader_epoch: int) -> bool:
        """Accept a broker's hint about the leader; return whether it was newer."""
        ...

    def request_refresh(self) -> None:
        """Request a metadata refresh soon."""

    def note_failure(self, address: str) -> None:
        """Note that the broker does not respond."""


@dataclass(slots=True)
class InFlight:
    """A request in flight."""

    batches: list[Batch]
    sent_at_ms: float


@dataclass(slots=True)
class Link:
    """The connection to one broker and the requests in flight on it, by correlation id."""

    address: str
    connection: Connection
    in_flight: dict[int, InFlight] = field(default_factory=dict)
    response_times_ms: deque[float] = field(default_factory=lambda: deque(maxlen=RESPONSES_REMEMBERED))

    def patience_ms(self) -> float:
        """Return how long ready batches wait for a response (rule 6)."""
        known = sorted(self.response_times_ms)
        return 2 * known[len(known) // 2] if known else 0.0


@dataclass(slots=True)
class Counters:
    """Numbers of records handed over, acknowledged, failed, and sent again."""

    sent: int = 0
    acked: int = 0
    failed: int = 0
    retries: int = 0


class Sender:
    """Moves batches between accumulator and brokers."""

    def __init__(
        self,
        accumulator: Accumulator,
        view: View,
        *,
        connect: Callable[[str], Connection],
        on_done: Callable[[Batch], None],
        jitter: Callable[[], float],
        acks: int,
        max_in_flight: int,
        delivery_timeout_ms: float,
        request_timeout_ms: float,
        max_request_size_bytes: int,
        retry_backoff_ms: float,
        transactional_id: str = "",
    ) -> None:
        """Start without a connection.

        Args:
            accumulator: the batches that wait.
            view: the cluster's metadata.
            connect: opens a connection to an address.
            on_done: called with each batch that is acknowledged or has failed, after its futures are complete.
            jitter: returns a number from 0.8 to 1.2.
            acks: -1, 0 or 1.
            max_in_flight: maximum of requests in flight on a connection, and of batches in flight of a partition.
            delivery_timeout_ms: time from a batch's first record until it has failed.
            request_timeout_ms: how long a broker may take to respond.
            max_request_size_bytes: soft limit of a request; one batch always fits.
            retry_backoff_ms: the first back-off.
            transactional_id: of a transactional producer; else empty.
        """
        self._accumulator = accumulator
        self._view = view
        self._connect = connect
        self._on_done = on_done
        self._jitter = jitter
        self._acks = acks
        self._max_in_flight = max_in_flight
        self._delivery_timeout_ms = delivery_timeout_ms
        self._request_timeout_ms = request_timeout_ms
        self._max_request_size_bytes = max_request_size_bytes
        self._retry_backoff_ms = retry_backoff_ms
        self._transactional_id = transactional_id
        self._links: dict[str, Link] = {}
        self._correlation_ids = itertools.count(1)
        self._expire_at_ms = 0.0
        self.counters = Counters()
        self.is_hurried = False

    def close(self) -> None:
        """Close all connections."""
        for link in self._links.values():
            link.connection.close()
        self._links.clear()

    # Due work -----------------------------------------------------------------------------------------------

    def step(self, now_ms: float) -> float:
        """Do the due work; return when to look again if nothing happens before."""
        self._break_silent_links(now_ms)
        if now_ms >= self._expire_at_ms:
            late, next_ms = self._accumulator.expire(now_ms, self._delivery_timeout_ms)
            for batch in late:
                self._report(batch, _expired(batch, now_ms))
            self._expire_at_ms = min(next_ms, now_ms + self._delivery_timeout_ms)
        for batch in self._accumulator.settle_epochs():
            self._report(batch, _uncertain(batch))
        look_again_ms = self._send_ready(now_ms)
        for link in self._links.values():
            for waiting in itertools.islice(link.in_flight.values(), 1):
                look_again_ms = min(look_again_ms, waiting.sent_at_ms + self._request_timeout_ms)
        return min(look_again_ms, self._expire_at_ms)

    def _break_silent_links(self, now_ms: float) -> None:
        for link in list(self._links.values()):
            oldest = next(iter(link.in_flight.values()), None)
            if oldest is not None and now_ms - oldest.sent_at_ms >= self._request_timeout_ms:
                problem = TidegaugeError(
                    ErrorCode.REQUEST_TIMED_OUT,
                    f"the broker at {link.address} did not respond within {self._request_timeout_ms:.0f} ms",
                )
                link.connection.close()
                self.disconnected(link.address, problem, now_ms)

    def _send_ready(self, now_ms: float) -> float:
        """Send round by round until no connection can take more."""
        while True:
            ready, look_again_ms = self._accumulator.ready(
                now_ms, is_hurried=self.is_hurried, leader_epoch=self._leader_epoch
            )
            by_address: dict[str, list[tuple[TopicPartition, int]]] = {}
            for topic_partition in ready:
                leader = self._view.leader(topic_partition)
                if leader is None:
                    self._view.request_refresh()
                else:
                    by_address.setdefault(leader.address, []).append((topic_partition, leader.leader_epoch))
            has_sent = False
            for address, partitions in by_address.items():
                patient_until_ms = self._patient_until_ms(address, partitions)
                if now_ms < patient_until_ms:
                    look_again_ms = min(look_again_ms, patient_until_ms)
                else:
                    has_sent = self._send_one(address, partitions, now_ms) or has_sent
            if not has_sent:
                return look_again_ms

    def _patient_until_ms(self, address: str, partitions: Sequence[tuple[TopicPartition, int]]) -> float:
        """Return until when these partitions' batches should wait for a response (rule 6).

        If one of them is urgent, none waits.
        """
        link = self._links.get(address)
        if self.is_hurried or link is None or not link.in_flight:
            return -math.inf
        since_ms = min(self._accumulator.patient_since_ms(topic_partition) for topic_partition, _ in partitions)
        return since_ms + link.patience_ms()

    def _leader_epoch(self, topic_partition: TopicPartition) -> int:
        leader = self._view.leader(topic_partition)
        return -1 if leader is None else leader.leader_epoch

    def _send_one(self, address: str, partitions: Sequence[tuple[TopicPartition, int]], now_ms: float) -> bool:
        link = self._links.get(address)
        if link is not None and len(link.in_flight) >= self._max_in_flight:
            return False
        if link is None:
            link = self._links[address] = Link(address, self._connect(address))
        batches: list[Batch] = []
        request = produce_pb2.ProduceRequest(
            correlation_id=next(self._correlation_ids),
            acks=self._acks,
            timeout_ms=int(self._request_timeout_ms),
            transactional_id=self._transactional_id,
        )
        size_bytes = 0
        # Begin at another partition each time, so that a full request starves none.
        begin = request.correlation_id % len(partitions)
        for topic_partition, leader_epoch in (*partitions[begin:], *partitions[:begin]):
            if batches and size_bytes >= self._max_request_size_bytes:
                break
            batch = self._accumulator.take(topic_partition)
            batch.leader_epoch = leader_epoch
            if batch.attempts > 1:
                self.counters.retries += batch.record_count
            data = batch.close()
            request.partitions.add(topic=topic_partition.topic, partition=topic_partition.partition, records=data)
            size_bytes += len(data)
            batches.append(batch)
        link.in_flight[request.correlation_id] = InFlight(batches, now_ms)
        link.connection.send(request)
        return True

    # Responses -----------------------------------------------------------------------------------------------

    def written(self, address: str, correlation_id: int) -> None:
        """Handle that a request with acks=0 was sent (rule 4)."""
        link = self._links.get(address)
        request = None if link is None else link.in_flight.pop(correlation_id, None)
        if request is not None:
            for batch in request.batches:
                self._acknowledge(batch, UNKNOWN_OFFSET, None)

    def responded(self, address: str, response: produce_pb2.ProduceResponse, now_ms: float) -> None:
        """Handle a broker's response; a response to an unknown request changes nothing."""
        link = self._links.get(address)
        request = None if link is None else link.in_flight.pop(response.correlation_id, None)
        if link is None or request is None:
            return
        link.response_times_ms.append(now_ms - request.sent_at_ms)
        results = {TopicPartition(r.topic, r.partition): r for r in response.partitions}
        for batch in request.batches:
            result = results.get(batch.topic_partition)
            if result is None:
                problem = TidegaugeError(
                    ErrorCode.UNKNOWN_SERVER_ERROR,
                    f"the broker at {address} did not respond for {batch.topic_partition}",
                )
                self._refused(batch, problem, now_ms)
            elif result.error == 0:
                log_append_time_ms = result.log_append_time_ms if result.HasField("log_append_time_ms") else None
                self._acknowledge(batch, result.base_offset, log_append_time_ms)
            else:
                if result.HasField("current_leader"):
                    hint = result.current_leader
                    self._view.hint(batch.topic_partition, hint.leader_id, hint.leader_epoch)
                self._refused(batch, TidegaugeError(ErrorCode.of(result.error), result.error_message), now_ms)

    def disconnected(self, address: str, problem: TidegaugeError, now_ms: float) -> None:
        """Handle a broken connection; the outcome of every batch in flight on it is unknown (rule 3)."""
        link = self._links.pop(address, None)
        if link is None:
            return
        self._view.note_failure(address)
        self._view.request_refresh()
        for request in link.in_flight.values():
            for batch in request.batches:
                self._refused(batch, problem, now_ms)

    def _refused(self, batch: Batch, problem: TidegaugeError, now_ms: float) -> None:
        queue = self._accumulator.queue(batch.topic_partition)
        if ERROR_TABLE[problem.code].refresh_metadata:
            self._view.request_refresh()
        if batch.is_expired:
            queue.dropped(batch)
            return
        batch.last_problem = problem
        batch.may_be_written = batch.may_be_written or not problem.definite
        batch.retry_at_ms = now_ms + self._backoff_ms(batch.attempts)
        may_retry = now_ms - batch.created_ms < self._delivery_timeout_ms
        if problem.code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER and batch.identity is not None and may_retry:
            queue.out_of_order(batch)
        elif problem.code is ErrorCode.MESSAGE_TOO_LARGE and batch.record_count > 1:
            self._accumulator.split(batch)
        elif problem.retriable and may_retry:
            queue.requeue(batch)
        else:
            queue.failed(batch)
            self._accumulator.incomplete.discard(batch)
            self._report(batch, problem)

    def _backoff_ms(self, attempts: int) -> float:
        doubled = self._retry_backoff_ms * math.pow(2, min(attempts - 1, 10))
        return min(doubled, max(MAX_BACKOFF_MS, self._retry_backoff_ms)) * self._jitter()

    def _acknowledge(self, batch: Batch, base_offset: int, log_append_time_ms: int | None) -> None:
        self._accumulator.queue(batch.topic_partition).acknowledged(batch)
        if batch.is_expired:
            return
        self._accumulator.incomplete.discard(batch)
        self.counters.acked += batch.record_count
        topic, partition = batch.topic_partition
        step = 0 if base_offset == UNKNOWN_OFFSET else 1
        offset = base_offset
        has_append_time = log_append_time_ms is not None
        for promise, created_ms in zip(batch.promises, batch.timestamps_ms, strict=True):
            if not promise.done():
                timestamp_ms = log_append_time_ms if has_append_time else created_ms
                promise.set_result(_new(RecordMetadata, (topic, partition, offset, timestamp_ms)))
            offset += step
        self._on_done(batch)

    def _report(self, batch: Batch, problem: TidegaugeError) -> None:
        self.counters.failed += batch.record_count
        batch.failure = problem
        kind = OutcomeUnknown if batch.may_be_written else TidegaugeError
        for promise in batch.promises:
            if not promise.done():
                promise.set_exception(kind(problem.code, problem.message))
        self._on_done(batch)

    def abandon(self, problem: TidegaugeError) -> None:
        """Report every remaining batch as failed: the producer stops or can't continue."""
        self.close()
        for batch in self._accumulator.abandon():
            batch.may_be_written = batch.may_be_written or batch.attempts > 0  # a response may be on its way
            self._report(batch, problem)


def _uncertain(batch: Batch) -> TidegaugeError:
    return TidegaugeError(
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        f"{batch.record_count} record(s) for {batch.topic_partition} may or may not be in the log: the outcome of an "
        "earlier request is unknown, and now the leader expects another sequence. They are not sent again under a new "
        f"sequence, because they could then be written twice; last: {batch.last_problem}",
    )


def _expired(batch: Batch, now_ms: float) -> TidegaugeError:
    last = "" if batch.last_problem is None else f"; last: {batch.last_problem}"
    return TidegaugeError(
        ErrorCode.REQUEST_TIMED_OUT,
        f"Expiring {batch.record_count} record(s) for {batch.topic_partition}: {now_ms - batch.created_ms:.0f} ms "
        f"has passed since batch creation{last}",
    )
