"""Malformed and memory-exhausting requests are refused before anything is made of them."""

from __future__ import annotations

import random
import tracemalloc
from collections.abc import Callable
from typing import Any, TypeVar

import pytest
from google.protobuf.json_format import ParseDict
from google.protobuf.message import DecodeError, Message

from tidegauge.v1 import control_pb2, fetch_pb2, produce_pb2, reassignments_pb2, topics_pb2
from tidegauge_broker.server.wire.grpc.request_guard import MalformedRequest, reader

MOST = 1_000
Wanted = TypeVar("Wanted", bound=Message)


def of(message: Callable[[], Wanted], **fields: Any) -> Wanted:
    return ParseDict(fields, message())


def empty_elements(message: type[Message], field: str, count: int) -> bytes:
    """Two bytes each."""
    return bytes([message.DESCRIPTOR.fields_by_name[field].number << 3 | 2, 0]) * count


def test_more_elements_than_the_limit_cost_no_memory() -> None:
    """Two million would become a quarter of a gigabyte."""
    read = reader(fetch_pb2.FetchRequest.FromString, MOST)
    flood = empty_elements(fetch_pb2.FetchRequest, "partitions", 2_000_000)
    tracemalloc.start()
    refused = read(flood)
    _, peak_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert str(refused) == "The request can't be read: it has more than 1000 elements; ask for fewer at a time"
    assert peak_bytes < 1 << 20
    assert len(read(empty_elements(fetch_pb2.FetchRequest, "partitions", MOST)).partitions) == MOST


@pytest.mark.parametrize(
    "message",
    [
        of(topics_pb2.CreateTopicsRequest, topics=[{"name": "t", "assignment": [{"broker_ids": [1] * (3 * MOST)}]}]),
        of(reassignments_pb2.AlterPartitionReassignmentsRequest, partitions=[{"replicas": list(range(3 * MOST))}]),
        of(control_pb2.LeaderAndIsrRequest, partitions=[{"isr": [1, 2, 3]}] * MOST),
        of(topics_pb2.AlterConfigsRequest, set={str(number): "" for number in range(2 * MOST)}),
    ],
)
def test_elements_are_counted_however_deep_they_lie(message: Message) -> None:
    read = reader(type(message).FromString, MOST)
    assert isinstance(read(message.SerializeToString()), MalformedRequest)


def test_records_are_no_elements() -> None:
    """A request with much to append is as large as socket.request.max.bytes allows."""
    request = produce_pb2.ProduceRequest()
    for _ in range(3):
        request.partitions.add(topic="t", records=bytes(8 << 20))
    read = reader(type(request).FromString, MOST)
    assert read(request.SerializeToString()) == request


def test_any_bytes_are_a_message_or_refused() -> None:
    """And nothing is refused that protobuf takes, but for its size."""
    random_ = random.Random(7)
    request = of(
        control_pb2.LeaderAndIsrRequest, partitions=[{"topic": "topic", "isr": [1, 2], "replicas": [1, 2]}] * 9
    )
    sound = request.SerializeToString()
    read = reader(type(request).FromString, 100)
    for _ in range(3_000):
        data = bytearray(sound * random_.randint(1, 2))
        for _ in range(random_.randint(0, 3)):
            data[random_.randrange(len(data))] = random_.randrange(256)
        cut = bytes(data[: random_.randint(0, len(data))])
        found = read(cut)
        try:
            parsed = type(request).FromString(cut)
        except DecodeError:
            assert isinstance(found, MalformedRequest)
        else:
            assert found == parsed or "more than 100 elements" in str(found)
