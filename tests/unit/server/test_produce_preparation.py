"""No Produce and no Fetch of an old client holds the event loop: what takes long with records is done beside it.

Counted is the work in the loop's thread (bytes inflated, records decoded), and that between two pauses of the other.
"""

from __future__ import annotations

import asyncio
import threading
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from kafka_cluster import LEADER, NOW_MS, TOPIC, KafkaCluster

from tidegauge.errors import ErrorCode
from tidegauge.kafka.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tidegauge.partition import TopicPartition
from tidegauge.record_batch import BatchHeader, make_batch
from tidegauge.transactions import SupportedOperation
from tidegauge_broker.formats import large_batches
from tidegauge_broker.formats.compression import compress
from tidegauge_broker.formats.messages import wrap, write_message
from tidegauge_broker.formats.records import StoredRecord, encode_records
from tidegauge_broker.replica import messages as core
from tidegauge_broker.replica import preparation, validation
from tidegauge_broker.replica.preparation import LIGHT_BYTES, Preparation, prepare
from tidegauge_broker.server.service.old_formats import LIGHT_BYTES as LIGHT_CONVERSION_BYTES
from tidegauge_broker.server.service.old_formats import is_light
from tidegauge_broker.server.service.produce_preparation import ProducePreparation
from tidegauge_broker.server.service.produce_verification import ProduceVerification, Verified
from tidegauge_broker.server.service.records_pool import RecordsPool

AT = TopicPartition(TOPIC, 0)
GZIP, SNAPPY, LZ4, ZSTD = 1, 2, 3, 4


def batch(count: int, value: bytes = b"v", codec: int = 0) -> bytes:
    records = encode_records([StoredRecord(one, NOW_MS, None, value, ()) for one in range(count)], 0, NOW_MS)
    header = BatchHeader(0, 0, -1, 2, 0, codec, count - 1, NOW_MS, NOW_MS, -1, -1, -1, count, 0)
    return make_batch(header, compress(codec, records))


def message_set(count: int, codec: int) -> bytes:
    messages = b"".join(write_message(one, 1, NOW_MS, None, b"v") for one in range(count))
    return wrap(messages, codec, 1, count - 1, NOW_MS) if codec else messages


class Meter:
    """Counts inflations and decodings, by whether they are done in the thread that made it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._thread = threading.get_ident()
        self.on_loop: Counter[str] = Counter()
        self.elsewhere: Counter[str] = Counter()
        for module in (preparation, validation):
            monkeypatch.setattr(module, "inflated", self._counting(module.inflated))  # type: ignore[attr-defined]
        decoder: Any = large_batches.RecordBatch
        monkeypatch.setattr(large_batches, "RecordBatch", lambda data: self._counted(decoder(data)))

    @property
    def _counts(self) -> Counter[str]:
        return self.on_loop if threading.get_ident() == self._thread else self.elsewhere

    def _counting(self, inflated: Callable[..., Any]) -> Callable[..., Any]:
        def counting(*arguments: Any) -> Any:
            found = inflated(*arguments)
            self._counts["bytes"] += len(found)
            return found

        return counting

    def _counted(self, records: Any) -> Iterator[Any]:
        for record in records:
            self._counts["records"] += 1
            yield record


# Made by the tests that need them: who only collects tests would wait for all of them.
HEAVY: dict[str, Callable[[], list[bytes]]] = {
    "a bomb": lambda: [batch(1, bytes(8 << 20), codec=codec) for codec in (ZSTD, GZIP, LZ4, SNAPPY)],
    "many records in few bytes": lambda: [batch(60_000, codec=ZSTD)],
    "a large batch that is not compressed": lambda: [batch(40_000)],
    "many small batches": lambda: [batch(3_000)] * 20,
    "many compressed batches": lambda: [batch(1, bytes(200_000), codec=GZIP)] * 5,
}


@pytest.mark.parametrize("make", HEAVY.values(), ids=HEAVY)
async def test_what_is_heavy_is_checked_beside_the_loop(
    make: Callable[[], list[bytes]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """LogValidator's work in a thread; the loop's own is bounded by ``LIGHT_BYTES``, for all of a request."""
    batches = make()
    cluster = KafkaCluster(tmp_path, len(batches), 1)
    client = await cluster.start()
    meter = Meter(monkeypatch)
    data = [PartitionProduceData(number, one) for number, one in enumerate(batches)]
    request = ProduceRequest(None, 1, 60_000, [TopicProduceData(TOPIC, partition_data=data)])
    response: Any = await asyncio.wait_for(client.send(0, 9, request), 60)
    assert [one.error_code for one in response.responses[0].partition_responses] == [0] * len(batches)
    assert meter.on_loop["bytes"] <= LIGHT_BYTES
    assert meter.on_loop["records"] <= LIGHT_BYTES // 7
    assert meter.elsewhere
    await cluster.close()


async def test_an_ordinary_request_takes_no_turn_of_the_loop(tmp_path: Path) -> None:
    """It is appended while it is read, compressed or not."""
    cluster = KafkaCluster(tmp_path, 1, 1)
    await cluster.start()
    replicas = cluster.brokers[LEADER].replicas
    ready = ProducePreparation(_nothing_to_verify(), replicas.preparations, RecordsPool())
    for codec in range(5):
        request = core.ProduceRequest(1, 1000, [core.ProducePartition(AT, batch(100, bytes(100), codec))])
        verified = ready.of(request, None, SupportedOperation.GENERIC_ERROR_SUPPORTED)
        assert isinstance(verified, Verified)
        assert [one.error for one in await replicas.produce(verified.request)] == [ErrorCode.NONE]
    await cluster.close()


async def test_a_heavy_batch_and_the_next_are_appended_in_the_order_of_the_connection(tmp_path: Path) -> None:
    """The second is not begun while the first is checked (SocketServer: one request of a connection at a time)."""
    cluster = KafkaCluster(tmp_path, 1, 1)
    client = await cluster.start()
    requests = [
        ProduceRequest(None, 1, 60_000, [TopicProduceData(TOPIC, partition_data=[PartitionProduceData(0, one)])])
        for one in (batch(60_000, codec=ZSTD), batch(1), batch(50_000), batch(2))
    ]
    responses: list[Any] = await asyncio.wait_for(asyncio.gather(*(client.send(0, 9, one) for one in requests)), 60)
    bases = [one.responses[0].partition_responses[0].base_offset for one in responses]
    assert bases == [0, 60_000, 60_001, 110_001]
    await cluster.close()


async def test_one_batch_is_inflated_at_a_time() -> None:
    """With any number of connections that send one: only one takes memory."""
    pool, busy, most = RecordsPool(), [0], [0]

    def work(pause: Callable[[], object]) -> None:
        busy[0] += 1
        most[0] = max(most[0], busy[0])
        for _ in range(10):
            pause()
        busy[0] -= 1

    await asyncio.gather(*(pool.run(work) for _ in range(8)))
    pool.close()
    assert most == [1]


async def test_a_defect_in_a_preparation_refuses_its_batch() -> None:
    """A thread that fails takes no replica offline, and leaves no request without its response."""

    class Defective(Preparation):
        def run(self, pause: Callable[[], object]) -> core.Prepared:
            raise ZeroDivisionError

    item = core.ProducePartition(AT, batch(1))
    defective = Defective(item, core.TopicRules(), NOW_MS)
    ready = ProducePreparation(_nothing_to_verify(), lambda _: [defective], RecordsPool())
    request = core.ProduceRequest(1, 1000, [item, item])
    verified = ready.of(request, None, SupportedOperation.GENERIC_ERROR_SUPPORTED)
    assert not isinstance(verified, Verified)
    assert (await verified).request is request
    assert item.prepared is not None
    assert item.prepared.refusal is not None
    assert item.prepared.refusal.code is ErrorCode.UNKNOWN_SERVER_ERROR


def _nothing_to_verify() -> ProduceVerification:
    unused: Any = None
    return ProduceVerification(unused, unused)


CODEC = core.TopicRules(codec=core.Codec(GZIP))
PLAIN = core.TopicRules()
ITEMS: dict[str, Callable[[], tuple[core.ProducePartition, core.TopicRules]]] = {
    "records": lambda: (core.ProducePartition(AT, batch(30_000)), PLAIN),
    "one of 3 MB": lambda: (core.ProducePartition(AT, batch(1, bytes(3 << 20), ZSTD)), PLAIN),
    "recompression": lambda: (core.ProducePartition(AT, batch(3_000)), CODEC),
    "messages": lambda: (core.ProducePartition(AT, message_set(3_000, 0), is_message_set=True), PLAIN),
    "wrapped messages": lambda: (core.ProducePartition(AT, message_set(3_000, GZIP), is_message_set=True), PLAIN),
}


@pytest.mark.parametrize("make", ITEMS.values(), ids=ITEMS)
def test_a_preparation_pauses_between_records(
    make: Callable[[], tuple[core.ProducePartition, core.TopicRules]],
) -> None:
    """Compiled code lets no other thread run of its own accord; with pauses the outcome is the same as without."""
    item, rules = make()
    pauses = [0]

    def pause() -> None:
        pauses[0] += 1

    prepared = Preparation(item, rules, NOW_MS).run(pause)
    count = 1 if prepared.header is None else prepared.header.record_count
    assert pauses[0] >= max(1, count // large_batches.RECORDS_BETWEEN_PAUSES)
    assert prepared == prepare(item, rules, NOW_MS)
    assert prepared.refusal is None


@pytest.mark.parametrize(
    ("records", "magic", "light"),
    [
        (batch(100), 1, True),
        (batch(100, codec=GZIP), 1, False),
        (batch(100, codec=GZIP), None, True),
        (batch(1) + batch(1, bytes(LIGHT_CONVERSION_BYTES)), 0, False),
    ],
)
def test_what_an_old_client_reads_is_converted_beside_the_loop(records: bytes, magic: int | None, light: bool) -> None:
    """LazyDownConversionRecords: a compressed batch of some bytes may be of any size when it is converted."""
    assert is_light(records, magic) is light


def test_a_value_that_is_not_copied_is_converted_as_any_other() -> None:
    """A record beyond a run is parsed in place; its bytes are those that the codec would give."""
    value = zlib.compress(bytes(100)) * 30_000
    stored = batch(3, value)
    assert len(value) > large_batches.RUN_BYTES
    found = list(large_batches.read_large(stored, lambda: None))
    assert [(one.offset, one.timestamp, one.key, bytes(one.value), list(one.headers)) for one in found] == [
        (offset, NOW_MS, None, value, []) for offset in range(3)
    ]
