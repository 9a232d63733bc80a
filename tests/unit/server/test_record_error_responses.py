"""A response to Produce names the records because of which a batch is refused (KIP-467)."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from kafka_service import FakeService, ask
from tests.wire_responses.records import produce

from tidegauge.errors import ErrorCode
from tidegauge.partition import TopicPartition
from tidegauge_broker.replica.messages import ProduceResult
from tidegauge_broker.replica.record_errors import RecordError
from tidegauge_broker.server.service.produce_verification import Verified
from tidegauge_client.records import NewRecord, encode_batch

AT = TopicPartition("orders", 0)


async def responded(version: int, result: ProduceResult) -> Any:
    def append(_: Any) -> Any:
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        future.set_result([result])
        return future

    verification = FakeService(of=lambda request, *_, **__: Verified(request, []))
    service = FakeService(produce=append, knows=lambda _: True, verification=verification)
    records = encode_batch([NewRecord(value=b"x"), NewRecord(value=b"y")])
    response = await ask(service, "Produce", version, produce(records, topic=AT.topic))
    [part] = response.responses[0].partition_responses
    return part


@pytest.mark.parametrize("version", [7, 8, 11])
async def test_the_records_and_a_message_come_from_version_8_on(version: int) -> None:
    errors = [RecordError(1, "no key")]
    part = await responded(version, ProduceResult(AT, ErrorCode.INVALID_RECORD, "refused", record_errors=errors))
    assert part.error_code == ErrorCode.INVALID_RECORD
    named = [(one.batch_index, one.batch_index_error_message) for one in part.record_errors]
    assert (named, part.error_message) == (([(1, "no key")], "refused") if version >= 8 else ([], None))


async def test_an_error_of_the_whole_batch_has_no_message() -> None:
    """ReplicaManager.appendToLocalLog: hasCustomErrorMessage is true for a RecordValidationException."""
    part = await responded(9, ProduceResult(AT, ErrorCode.CORRUPT_MESSAGE, "CRC"))
    assert (list(part.record_errors), part.error_message) == ([], None)
