"""Produce v0 to v2 and Fetch v0 to v9: what clients of older message formats and codecs send and read (KIP-283)."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from kafka_service import FakeService, ask
from tests.wire_responses.batches import batch, message_set
from tests.wire_responses.records import fetch, produce

from tidegauge.errors import ErrorCode
from tidegauge.partition import TopicPartition
from tidegauge_broker.formats.compression import Codec
from tidegauge_broker.replica.messages import FetchResult, ProduceResult, TopicRules
from tidegauge_broker.server.metrics.metered_requests import MeteredRequests
from tidegauge_broker.server.metrics.meters import Meters
from tidegauge_broker.server.service.old_formats import ReadRecords, for_old_client
from tidegauge_broker.server.service.produce_verification import Verified

AT = TopicPartition("probe", 0)


def reader(result: FetchResult, records: bytes, rules: TopicRules | None = None) -> FakeService:
    """A service that reads these records, of a topic with these rules."""

    async def read(*_: Any) -> Any:
        return SimpleNamespace(partitions=[(result, records)], pending=None)

    async def convert(_: TopicPartition, found: bytes, *arguments: Any, **options: Any) -> ReadRecords:
        return for_old_client(rules or TopicRules(), found, *arguments, **options)

    return FakeService(fetch=read, for_old_client=convert)


async def read_by(version: int, service: Any, **more: Any) -> Any:
    response = await ask(service, "Fetch", version, fetch(topic=AT.topic, **more))
    [part] = response.responses[0].partitions
    return part


@pytest.mark.parametrize(("version", "magic"), [(0, 0), (1, 0), (2, 1), (3, 1), (4, 2), (9, 2)])
async def test_a_version_reads_the_format_that_it_knows(version: int, magic: int) -> None:
    part = await read_by(version, reader(FetchResult(AT, high_watermark=1), batch()))
    assert part.records[16] == magic
    assert part.high_watermark == 1


@pytest.mark.parametrize(("version", "error"), [(0, 35), (3, 35), (4, 0)])
async def test_a_topic_may_refuse_to_convert(version: int, error: int) -> None:
    """message.downconversion.enable."""
    service = reader(FetchResult(AT, high_watermark=1), batch(), TopicRules(down_converts=False))
    assert (await read_by(version, service)).error_code == error


@pytest.mark.parametrize(("version", "error"), [(1, 76), (9, 76), (10, 0)])
async def test_a_topic_of_zstd_is_for_version_10(version: int, error: int) -> None:
    """KIP-110: compression.type=zstd, whatever its batches have."""
    service = reader(FetchResult(AT, high_watermark=1), batch(), TopicRules(codec=Codec(4)))
    part = await read_by(version, service)
    assert (part.error_code, part.high_watermark) == ((error, -1) if error else (0, 1))


@pytest.mark.parametrize(("version", "given"), [(0, False), (2, False), (3, True), (4, True)])
async def test_a_first_batch_beyond_the_limit_is_given_from_version_3_on(version: int, given: bool) -> None:
    """KIP-74; before, the limit of a partition is hard (FetchRequest.hardMaxBytesLimit)."""
    part = await read_by(version, reader(FetchResult(AT, high_watermark=1), batch()), partition_max_bytes=20)
    assert bool(part.records) is given


@pytest.mark.parametrize(("version", "error"), [(5, 6), (6, 56)])
async def test_a_storage_error_is_for_version_6(version: int, error: int) -> None:
    """KafkaApis.maybeDownConvertStorageError: an older client would take it for one that does not pass."""
    assert (await read_by(version, reader(FetchResult(AT, ErrorCode.KAFKA_STORAGE_ERROR), b""))).error_code == error


@pytest.mark.parametrize(
    ("version", "records", "is_message_set"),
    [(0, message_set(b"v", 0), True), (2, message_set(b"v", 1), True), (2, b"", True), (2, batch(), False)],
)
async def test_what_is_a_message_set_says_so_to_the_core(version: int, records: bytes, is_message_set: bool) -> None:
    def append(request: Any) -> Any:
        [item] = request.partitions
        assert item.is_message_set is is_message_set
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        future.set_result([ProduceResult(item.topic_partition, base_offset=5)])
        return future

    verification = FakeService(of=lambda request, *_, **__: Verified(request, []))
    service = FakeService(produce=append, knows=lambda _: True, verification=verification)
    response = await ask(service, "Produce", version, produce(records, topic=AT.topic))
    [part] = response.responses[0].partition_responses
    assert (part.error_code, part.base_offset) == (0, 5)


async def test_converted_records_are_counted_by_topic() -> None:
    """Kafka's FetchMessageConversionsPerSec."""

    async def convert(*_: Any, **__: Any) -> ReadRecords:
        return ReadRecords(converted_count=3)

    meters = Meters()
    await MeteredRequests(meters).around("for_old_client", convert)(AT, b"", 1, 0, reads_zstd=False)
    assert meters.topic(AT.topic)["fetchmessageconversions"] == 3
