"""The part of the synchronous producer that is written by hand: ``send`` and ``stop``."""

from __future__ import annotations

import asyncio
from concurrent.futures import CancelledError, Future

from tidegauge_client.loop_thread import Facade
from tidegauge_client.partition_queue import RecordMetadata
from tidegauge_client.producer import Producer
from tidegauge_client.records import Headers


class ProducerFacade(Facade[Producer]):
    """``send``, the one method whose result is not waited for, and ``stop`` with a timeout."""

    def stop(self, timeout_ms: float | None = None) -> None:
        """Send the remaining records, end an open transaction, and close, as ``Producer.stop``. Idempotent.

        Args:
            timeout_ms: time for all of it; None: what delivery_timeout_ms and max_block_ms allow.
        """
        self._end(lambda: self._inner.stop(timeout_ms))

    def send(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None = None,
        *,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        headers: Headers = (),
    ) -> Future[RecordMetadata]:
        """Hand a record over, waiting for buffer memory if necessary; the future is the acknowledgement.

        The future can't be cancelled (KafkaProducer's FutureRecordMetadata): the record is written all the same.
        """
        acknowledged: Future[RecordMetadata] = Future()
        acknowledged.set_running_or_notify_cancel()

        def completed(future: asyncio.Future[RecordMetadata]) -> None:
            if future.cancelled():
                acknowledged.set_exception(CancelledError())
            elif (problem := future.exception()) is not None:
                acknowledged.set_exception(problem)
            else:
                acknowledged.set_result(future.result())

        async def hand_over() -> None:
            promise = await self._inner.send(
                topic, value, key, partition=partition, timestamp_ms=timestamp_ms, headers=headers
            )
            promise.add_done_callback(completed)

        self._loop.run(hand_over())
        return acknowledged
