"""The synchronous clients: a future that the application cancels, and a client whose settings are refused."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from tidegauge.errors import TidegaugeError
from tidegauge_client.partition_queue import RecordMetadata
from tidegauge_client.sync import SyncProducer


def test_a_record_that_was_handed_over_can_not_be_cancelled(monkeypatch: pytest.MonkeyPatch) -> None:
    """FutureRecordMetadata.cancel: it is written all the same, and its acknowledgement comes."""
    producer = SyncProducer("b:1")
    problems: list[dict[str, Any]] = []
    promises: list[asyncio.Future[RecordMetadata]] = []

    async def send(*_: object, **__: object) -> asyncio.Future[RecordMetadata]:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: problems.append(context))
        promises.append(asyncio.get_running_loop().create_future())
        return promises[0]

    async def acknowledge() -> None:
        promises[0].set_result(RecordMetadata("t", 0, 5, 0))
        await asyncio.sleep(0)

    monkeypatch.setattr(producer._inner, "send", send)
    acknowledged = producer.send("t", b"1")
    assert not acknowledged.cancel()
    producer._loop.run(acknowledge())
    assert acknowledged.result(5).offset == 5
    producer._loop.close()
    assert problems == []


def test_a_client_whose_settings_are_refused_leaves_no_thread() -> None:
    """A test or a service that tries settings would gather threads, each with an event loop."""
    before = set(threading.enumerate())
    with pytest.raises(TidegaugeError):
        SyncProducer("b:1", max_in_flight=99)
    assert set(threading.enumerate()) <= before
