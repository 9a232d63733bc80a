"""A cluster in memory for the sender: brokers with logs and Kafka's producer check, connections that break."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.partition import TopicPartition
from tidegauge.record_batch import MAX_SEQUENCE, read_header
from tidegauge.v1 import produce_pb2
from tidegauge_client.accumulator import Accumulator
from tidegauge_client.metadata import Leader
from tidegauge_client.partition_queue import Batch, Identity, RecordMetadata
from tidegauge_client.records import decode_batches
from tidegauge_client.sender import Sender

TP = TopicPartition("t", 0)


@dataclass
class Promise:
    """A future without a loop."""

    result: RecordMetadata | None = None
    exception: BaseException | None = None

    def done(self) -> bool:
        return self.result is not None or self.exception is not None

    def set_result(self, result: RecordMetadata) -> None:
        assert not self.done()
        self.result = result

    def set_exception(self, exception: BaseException) -> None:
        assert not self.done()
        self.exception = exception


@dataclass
class FakeLog:
    """One partition's log with the checks of ProducerAppendInfo, written again in the simplest way."""

    values: list[bytes | None] = field(default_factory=list)
    seen: dict[int, tuple[int, list[tuple[int, int, int]]]] = field(default_factory=dict)

    def append(self, data: bytes) -> tuple[ErrorCode, int]:
        header = read_header(data)
        span = (header.base_sequence, header.last_sequence)
        if header.producer_id >= 0 and header.producer_id in self.seen:
            epoch, spans = self.seen[header.producer_id]
            if epoch == header.producer_epoch:
                for first, last, offset in spans[-5:]:
                    if (first, last) == span:
                        return ErrorCode.NONE, offset
                if span[0] != (spans[-1][1] + 1) % (MAX_SEQUENCE + 1):
                    return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1
            elif header.producer_epoch < epoch:
                return ErrorCode.INVALID_PRODUCER_EPOCH, -1
            elif span[0] != 0:
                return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1
        offset = len(self.values)
        self.values.extend(record.value for record in decode_batches(data))
        epoch, spans = self.seen.get(header.producer_id, (header.producer_epoch, []))
        if epoch != header.producer_epoch:
            spans = []
        self.seen[header.producer_id] = (header.producer_epoch, [*spans, (*span, offset)])
        return ErrorCode.NONE, offset


@dataclass
class FakeConnection:
    """Requests wait here until the test lets the broker take them; responses until the test delivers them."""

    world: World
    address: str
    requests: deque[produce_pb2.ProduceRequest] = field(default_factory=deque)
    responses: list[produce_pb2.ProduceResponse] = field(default_factory=list)
    is_open: bool = True

    def send(self, request: produce_pb2.ProduceRequest) -> None:
        assert self.is_open
        self.requests.append(request)

    def close(self) -> None:
        self.is_open = False

    def take(self, refuse: ErrorCode | None = None, *, refuse_after: ErrorCode | None = None) -> None:
        """Let the broker handle the oldest request.

        Args:
            refuse: the error of a broker that appends nothing.
            refuse_after: the error of a broker that appends, and then can't say that it is committed.
        """
        request = self.requests.popleft()
        response = produce_pb2.ProduceResponse(correlation_id=request.correlation_id)
        for part in request.partitions:
            tp = TopicPartition(part.topic, part.partition)
            leader = self.world.leaders.get(tp)
            if leader is None or leader.address != self.address:
                code, offset = ErrorCode.NOT_LEADER_OR_FOLLOWER, -1
            elif refuse is not None:
                code, offset = refuse, -1
            else:
                code, offset = self.world.logs.setdefault(tp, FakeLog()).append(part.records)
                if code is ErrorCode.NONE and refuse_after is not None:
                    code, offset = refuse_after, -1
            result = response.partitions.add(topic=tp.topic, partition=tp.partition, error=int(code))
            if code is ErrorCode.NONE:
                result.base_offset = offset
        self.responses.append(response)

    def deliver(self, index: int = 0) -> None:
        """Deliver a response to the producer; a later one may overtake."""
        self.world.sender.responded(self.address, self.responses.pop(index), self.world.now_ms)

    def break_(self) -> None:
        """The connection breaks; what the broker took stays taken."""
        self.is_open = False
        self.world.connections.pop(self.address, None)
        problem = TidegaugeError(ErrorCode.NETWORK_EXCEPTION, "broken")
        self.world.sender.disconnected(self.address, problem, self.world.now_ms)


class World:
    """Sender, accumulator, and the brokers around them."""

    def __init__(
        self,
        *,
        idempotence: bool = True,
        acks: int = -1,
        max_in_flight: int = 5,
        batch_size_bytes: int = 100,
        linger_ms: float = 0,
        delivery_timeout_ms: float = 1_000_000,
        request_timeout_ms: float = 30_000,
    ) -> None:
        self.now_ms = 0.0
        self.logs: dict[TopicPartition, FakeLog] = {}
        self.leaders: dict[TopicPartition, Leader] = {TP: Leader(0, "b0", 0)}
        self.connections: dict[str, FakeConnection] = {}
        self.all_connections: list[FakeConnection] = []
        self.refreshes = 0
        self.done: list[Batch] = []
        self.promises: list[tuple[bytes, Promise]] = []
        self.accumulator = Accumulator(
            batch_size_bytes=batch_size_bytes,
            linger_ms=linger_ms,
            compression="none",
            max_in_flight=max_in_flight,
            idempotence=idempotence,
        )
        if idempotence:
            self.accumulator.producer = Identity(7, 0)
        self.sender = Sender(
            self.accumulator,
            self,
            connect=self._connect,
            on_done=self.done.append,
            jitter=lambda: 1.0,
            acks=acks,
            max_in_flight=max_in_flight,
            delivery_timeout_ms=delivery_timeout_ms,
            request_timeout_ms=request_timeout_ms,
            max_request_size_bytes=1_000_000,
            retry_backoff_ms=100,
        )

    def _connect(self, address: str) -> FakeConnection:
        connection = self.connections[address] = FakeConnection(self, address)
        self.all_connections.append(connection)
        return connection

    # The sender's questions to metadata.
    def leader(self, topic_partition: TopicPartition) -> Leader | None:
        return self.leaders.get(topic_partition)

    def hint(self, topic_partition: TopicPartition, leader_id: int, leader_epoch: int) -> bool:
        self.leaders[topic_partition] = Leader(leader_id, f"b{leader_id}", leader_epoch)
        return True

    def request_refresh(self) -> None:
        self.refreshes += 1

    def note_failure(self, address: str) -> None:
        self.connections.pop(address, None)

    # Actions of the test.
    def send(self, value: bytes, tp: TopicPartition = TP) -> Promise:
        promise = Promise()
        self.promises.append((value, promise))
        self.accumulator.append(tp, value, None, 0, (), promise, reserved_bytes=len(value), now_ms=self.now_ms)
        return promise

    def send_batches(self, count: int, *, first: int = 0) -> list[Promise]:
        """One record a batch: each is larger than half a batch."""
        return [self.send(b"%03d" % number + b"." * 60) for number in range(first, first + count)]

    def step(self, after_ms: float = 0) -> float:
        self.now_ms += after_ms
        return self.sender.step(self.now_ms)

    def introduce(self, response_time_ms: float = 10.0) -> None:
        """Write a first batch, so that several may be in flight afterwards (rule 8), and forget about it."""
        self.send(b"introduction")
        self.settle(response_time_ms=response_time_ms)
        self.promises.clear()
        self.done.clear()
        self.sender.counters.acked = 0
        self.now_ms = 0.0

    def settle(self, rounds: int = 1_000, response_time_ms: float = 0.0) -> None:
        """Let everything succeed from now on."""
        for _ in range(rounds):
            if not self.accumulator.incomplete:
                return
            self.step(100)
            self.now_ms += response_time_ms
            for connection in list(self.connections.values()):
                while connection.requests:
                    connection.take()
                while connection.responses:
                    connection.deliver()
        raise AssertionError(f"{len(self.accumulator.incomplete)} batches never came to an end")

    @property
    def log(self) -> list[bytes]:
        values = [bytes(value or b"") for value in self.logs.setdefault(TP, FakeLog()).values]
        return [value[:3] for value in values if value != b"introduction"]
