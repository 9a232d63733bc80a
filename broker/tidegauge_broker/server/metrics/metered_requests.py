"""Counts and times the requests of a broker, by Kafka's names; a broker without metrics has none of it.

Produce, Fetch and the controller's requests are measured as middleware of the service, with their bytes and
topics. All other requests are measured by their wire, which knows their begin and end (``responded``).
``TotalTimeMs`` is from a request's arrival to its response, the wait in purgatory included.
Source: Kafka's RequestChannel.Metrics, RequestMetrics.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Collection, Sequence
from functools import partial, wraps
from typing import Any

from tidegauge.errors import ErrorCode
from tidegauge.partition import TopicPartition
from tidegauge_broker.replica.effect_executor import FetchResults
from tidegauge_broker.replica.messages import CONSUMER, FetchRequest, ProduceRequest, ProduceResult
from tidegauge_broker.server.metrics.meters import Meters
from tidegauge_broker.server.service.broker_service import FetchResponse
from tidegauge_broker.server.service.caller import Caller
from tidegauge_broker.server.service.old_formats import ReadRecords

_TIMED = {
    "leader_and_isr": "LeaderAndIsr",
    "stop_replica": "StopReplica",
    "alter_partition": "AlterPartition",
}
"""Coroutines whose time is measured and nothing else, with the names of Kafka's requests."""


_NONE = ErrorCode.NONE  # a member of an enumeration takes long to look up


class MeteredRequests:
    """Counts and times the requests of a broker.

    Args:
        meters: take the measured values.
    """

    def __init__(self, meters: Meters) -> None:
        self._meters = meters
        self._measured: dict[str, Callable[..., Any]] = {
            "produce": self._produce,
            "fetch": self._fetch,
            "begin_follower_fetch": self._begin_follower_fetch,
            "withhold": self._withhold,
            "for_old_client": self._for_old_client,
            "update_metadata": self._update_metadata,
        }

    def responded(self, caller: Caller, api: str, milliseconds: float, errors: Collection[int]) -> None:
        """Count a request that a wire has the response to; see ``service.middleware.Responded``."""
        del caller
        self._meters.request(api).took(milliseconds, failed=bool(errors))

    def around(self, method: str, call: Callable[..., Any]) -> Callable[..., Any]:
        """Return the method with a meter around it, if it is measured."""
        measure = partial(self._timed, _TIMED[method]) if method in _TIMED else self._measured.get(method)
        return call if measure is None else wraps(call)(partial(measure, call))

    def _produce(
        self, call: Callable[[ProduceRequest], asyncio.Future[Sequence[ProduceResult]]], request: ProduceRequest
    ) -> asyncio.Future[Sequence[ProduceResult]]:
        """Append now; timed until acks is fulfilled."""
        begin = time.monotonic()
        for item in request.partitions:
            counter = self._meters.topic(item.topic_partition.topic)
            counter["totalproducerequests"] += 1
            counter["bytesin"] += len(item.records)
        future = call(request)
        if future.done():  # a callback would take a turn of the event loop
            self._produced(begin, future)
        else:
            future.add_done_callback(partial(self._produced, begin))
        return future

    def _produced(self, begin: float, future: asyncio.Future[Sequence[ProduceResult]]) -> None:
        if future.cancelled() or future.exception() is not None:
            return  # the wire counts what fails unexpectedly (``responded``)
        failed = False
        for result in future.result():
            if result.error is not _NONE:
                failed = True
                self._meters.topic(result.topic_partition.topic)["failedproducerequests"] += 1
            elif result.converted_count:
                self._meters.topic(result.topic_partition.topic)["producemessageconversions"] += result.converted_count
        self._meters.request("Produce").took((time.monotonic() - begin) * 1000, failed=failed)

    async def _fetch(self, call: Callable[..., Any], caller: Caller, request: FetchRequest) -> FetchResponse:
        """Read; a follower's bytes are counted apart from consumers'."""
        begin = time.monotonic()
        response: FetchResponse = await call(caller, request)
        self._fetched(begin, response.partitions, is_consumer=request.replica_id == CONSUMER)
        return response

    def _begin_follower_fetch(
        self, call: Callable[..., asyncio.Future[FetchResults]], *arguments: Any
    ) -> asyncio.Future[FetchResults]:
        """Read for a follower; timed until there is a response."""
        begin = time.monotonic()
        future = call(*arguments)
        if future.done():
            self._follower_fetched(begin, future)
        else:
            future.add_done_callback(partial(self._follower_fetched, begin))
        return future

    def _follower_fetched(self, begin: float, future: asyncio.Future[FetchResults]) -> None:
        if not future.cancelled() and future.exception() is None:
            self._fetched(begin, future.result(), is_consumer=False)

    def _fetched(self, begin: float, results: FetchResults, *, is_consumer: bool) -> None:
        """Count a fetch and its bytes."""
        failed = False
        for result, records in results:
            counter = self._meters.topic(result.topic_partition.topic)
            counter["bytesout" if is_consumer else "replicationbytesout"] += len(records)
            counter["totalfetchrequests"] += is_consumer
            if result.error is not _NONE:
                failed = True
                counter["failedfetchrequests"] += is_consumer
        self._took("FetchConsumer" if is_consumer else "FetchFollower", begin, failed=failed)

    def _withhold(self, call: Callable[[FetchResponse], None], response: FetchResponse) -> None:
        """Count the bytes no longer: they are not sent, and no page was made meanwhile (``BytesOutPerSec``)."""
        for result, records in response.partitions:
            self._meters.topic(result.topic_partition.topic)["bytesout"] -= len(records)
        call(response)

    async def _for_old_client(
        self, call: Callable[..., Awaitable[ReadRecords]], at: TopicPartition, *arguments: Any, **options: Any
    ) -> ReadRecords:
        """Count the records that were converted."""
        read = await call(at, *arguments, **options)
        self._meters.topic(at.topic)["fetchmessageconversions"] += read.converted_count
        return read

    def _update_metadata(self, call: Callable[..., ErrorCode], *arguments: Any) -> ErrorCode:
        begin = time.monotonic()
        error = call(*arguments)
        self._took("UpdateMetadata", begin, failed=error is not ErrorCode.NONE)
        return error

    async def _timed(self, name: str, call: Callable[..., Any], *arguments: Any) -> Any:
        begin = time.monotonic()
        result = await call(*arguments)
        self._took(name, begin, failed=getattr(result, "error", ErrorCode.NONE) is not ErrorCode.NONE)
        return result

    def _took(self, name: str, begin: float, *, failed: bool = False) -> None:
        self._meters.request(name).took((time.monotonic() - begin) * 1000, failed=failed)
