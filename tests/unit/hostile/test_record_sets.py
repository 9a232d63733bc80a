"""How often the record sets of Kafka's clients are copied and parsed between socket and log (rule 5 of the connection).

A copy is a buffer that the process fills from another; what the kernel moves between socket, page cache and process is
none. The counts hold for a request that the broker need not wait for.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest
from hostile_broker import NOW_MS, HostileBroker
from kafka_peer import SOCKET, Client, Listener, PlainTransport

from tidegauge.kafka.apis import FETCH, PRODUCE
from tidegauge.kafka.frames import joined, request_frame
from tidegauge.kafka.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from tidegauge.kafka.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tidegauge.partition import TopicPartition
from tidegauge_broker.formats import large_batches
from tidegauge_broker.server.service.caller import Caller
from tidegauge_broker.server.wire.kafka import connection, frame_reader
from tidegauge_broker.server.wire.kafka.handlers import fetch, produce
from tidegauge_broker.server.wire.kafka.request import Context
from tidegauge_broker.server.wire.kafka.sessions import FetchSessionCache
from tidegauge_client.records import NewRecord, encode_batch

VERSIONS = {PRODUCE: 9, FETCH: 12}
BATCH = encode_batch([NewRecord(value=b"x" * 1000) for _ in range(8)])
PRODUCE_REQUEST = ProduceRequest(
    None, 1, 1_000, [TopicProduceData("t", partition_data=[PartitionProduceData(0, BATCH)])]
)
AT = TopicPartition("t", 0)
MOST_BYTES_BESIDE_RECORDS = 300


class _Broker(Listener):
    """Listener of a broker with a real core and a real log; its clients come over no socket."""

    def __init__(self, broker: HostileBroker) -> None:
        super().__init__()
        self.broker = broker
        self._sessions = FetchSessionCache(1, lambda: 1)
        self.handlers = {PRODUCE: produce.handle, FETCH: fetch.handle}

    def context(self, of: Any, header: Any) -> Any:
        return Context(self.broker.service, Caller("test", "PLAINTEXT"), self._sessions, lambda: NOW_MS, header)


class Traffic:
    """The broker's reads and writes of its log, the record sets among them, and the places that walk records."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.received: list[bytes] = []
        self.frames: list[memoryview] = []
        self.to_log: list[Any] = []
        self.to_socket: list[Any] = []
        self.from_log: list[bytes] = []
        self.walked: list[memoryview] = []
        split = frame_reader.FrameReader._split
        begin, writev, pread = connection.KafkaConnection._begin, os.writev, os.pread
        walk = large_batches.RecordBatch

        def note_frame(of: connection.KafkaConnection, frame: memoryview) -> None:
            self.frames.append(frame)
            begin(of, frame)

        def note_received(of: frame_reader.FrameReader, data: bytes) -> None:
            self.received.append(data)
            split(of, data)

        def note_write(descriptor: int, parts: Sequence[Any]) -> int:
            noted = self.to_socket if descriptor == SOCKET else self.to_log
            noted += [part for part in parts if len(part) > MOST_BYTES_BESIDE_RECORDS]
            return sum(map(len, parts)) if descriptor == SOCKET else writev(descriptor, parts)

        def note_read(descriptor: int, size: int, at: int) -> bytes:
            self.from_log.append(pread(descriptor, size, at))
            return self.from_log[-1]

        def note_walk(view: memoryview) -> Any:
            self.walked.append(view)
            return walk(view)

        monkeypatch.setattr(connection.KafkaConnection, "_begin", note_frame)
        monkeypatch.setattr(frame_reader.FrameReader, "_split", note_received)
        monkeypatch.setattr(os, "writev", note_write)
        monkeypatch.setattr(os, "pread", note_read)
        monkeypatch.setattr(large_batches, "RecordBatch", note_walk)


@pytest.fixture
async def broker() -> AsyncIterator[_Broker]:
    made = await HostileBroker().begin()
    made.replicas.core.partition(AT).leader_role.remotes.clear()  # type: ignore[union-attr]  # no follower is waited for
    yield _Broker(made)
    made.abandon()


def send(broker: _Broker, key: int, message: Any) -> None:
    Client(broker, PlainTransport()).send(joined(request_frame(key, VERSIONS[key], 1, "test", message)))


async def test_a_produced_record_set_is_copied_once_and_its_records_are_walked_once(
    broker: _Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file gets a view of the frame, which is the one copy: out of the buffer that the socket fills."""
    traffic = Traffic(monkeypatch)
    send(broker, PRODUCE, PRODUCE_REQUEST)
    (written,) = traffic.to_log
    (walked,) = traffic.walked
    (frame,) = traffic.frames
    (received,) = traffic.received
    assert written.obj is walked.obj is frame.obj is received
    assert not traffic.from_log, "an append reads nothing"


async def test_a_fetched_record_set_is_never_copied_nor_are_its_records_walked(
    broker: _Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The buffer that is read from the file is the one that goes to the socket."""
    send(broker, PRODUCE, PRODUCE_REQUEST)
    traffic = Traffic(monkeypatch)
    asked = [FetchTopic("t", partitions=[FetchPartition(0, partition_max_bytes=1 << 20)])]
    send(broker, FETCH, FetchRequest(max_bytes=1 << 20, min_bytes=1, topics=asked))
    (written,) = traffic.to_socket
    assert any(written is read for read in traffic.from_log)
    assert len(written) == len(BATCH)
    assert not traffic.walked
