"""The broker's service, recording metrics; a broker without metrics has the plain one and pays nothing.

``TotalTimeMs`` is from the request's arrival in the service to its response, the wait in purgatory included.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Collection, Sequence
from functools import partial
from typing import Any, TypeVar

from tidegauge.control import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    LeaderAndIsrRequest,
    PartitionsResponse,
    StopReplicaRequest,
    UpdateMetadataRequest,
)
from tidegauge.errors import ErrorCode
from tidegauge.partition import TopicPartition
from tidegauge_broker.replica.messages import CONSUMER, FetchRequest, OffsetResult, ProduceRequest, ProduceResult
from tidegauge_broker.server.metrics.meters import Meters
from tidegauge_broker.server.service.broker_service import BrokerService, FetchResponse
from tidegauge_broker.server.service.caller import Caller
from tidegauge_broker.server.service.cluster_view import ClusterView

Result = TypeVar("Result")


class MeteredService(BrokerService):
    """Counts and times what it is asked."""

    def __init__(self, meters: Meters, **parts: Any) -> None:
        super().__init__(**parts)
        self._meters = meters

    def produce(self, request: ProduceRequest) -> asyncio.Future[Sequence[ProduceResult]]:
        """Append now; timed until acks is fulfilled."""
        begin = time.monotonic()
        for item in request.partitions:
            counter = self._meters.topic(item.topic_partition.topic)
            counter["totalproducerequests"] += 1
            counter["bytesin"] += len(item.records)
        future = super().produce(request)
        future.add_done_callback(partial(self._produced, begin))
        return future

    def _produced(self, begin: float, future: asyncio.Future[Sequence[ProduceResult]]) -> None:
        if future.cancelled():
            return
        failed = [result for result in future.result() if result.error is not ErrorCode.NONE]
        for result in failed:
            self._meters.topic(result.topic_partition.topic)["failedproducerequests"] += 1
        self._took("Produce", begin, failed=bool(failed))

    async def fetch(self, caller: Caller, request: FetchRequest) -> FetchResponse:
        """Read; a follower's bytes are counted apart from consumers'."""
        begin = time.monotonic()
        is_consumer = request.replica_id == CONSUMER
        response = await super().fetch(caller, request)
        failed = False
        for result, records in response.partitions:
            counter = self._meters.topic(result.topic_partition.topic)
            counter["bytesout" if is_consumer else "replicationbytesout"] += len(records)
            counter["totalfetchrequests"] += is_consumer
            if result.error is not ErrorCode.NONE:
                failed = True
                counter["failedfetchrequests"] += is_consumer
        self._took("FetchConsumer" if is_consumer else "FetchFollower", begin, failed=failed)
        return response

    def list_offset(
        self,
        topic_partition: TopicPartition,
        current_leader_epoch: int | None,
        timestamp_ms: int,
        replica_id: int = CONSUMER,
    ) -> tuple[OffsetResult, int]:
        """Look up an offset, timed."""
        begin = time.monotonic()
        result = super().list_offset(topic_partition, current_leader_epoch, timestamp_ms, replica_id)
        self._took("ListOffsets", begin, failed=result[0].error is not ErrorCode.NONE)
        return result

    def metadata(
        self,
        caller: Caller,
        topics: Collection[str] | None,
        *,
        may_create: bool,
        names_missing_listeners: bool = False,
    ) -> ClusterView:
        """Describe the cluster, timed."""
        begin = time.monotonic()
        view = super().metadata(caller, topics, may_create=may_create, names_missing_listeners=names_missing_listeners)
        self._took("Metadata", begin)
        return view

    async def leader_and_isr(self, request: LeaderAndIsrRequest) -> PartitionsResponse:
        """Become leader or follower, timed."""
        return await self._timed("LeaderAndIsr", super().leader_and_isr(request))

    def update_metadata(self, request: UpdateMetadataRequest) -> ErrorCode:
        """Fill the metadata cache, timed."""
        begin = time.monotonic()
        error = super().update_metadata(request)
        self._took("UpdateMetadata", begin, failed=error is not ErrorCode.NONE)
        return error

    async def stop_replica(self, request: StopReplicaRequest) -> PartitionsResponse:
        """Stop replicas, timed."""
        return await self._timed("StopReplica", super().stop_replica(request))

    async def alter_partition(self, request: AlterPartitionRequest) -> AlterPartitionResponse:
        """Decide about proposed ISRs, timed."""
        return await self._timed("AlterPartition", super().alter_partition(request))

    async def _timed(self, name: str, work: Awaitable[Result]) -> Result:
        begin = time.monotonic()
        result = await work
        self._took(name, begin, failed=getattr(result, "error", ErrorCode.NONE) is not ErrorCode.NONE)
        return result

    def _took(self, name: str, begin: float, *, failed: bool = False) -> None:
        self._meters.request(name).took((time.monotonic() - begin) * 1000, failed=failed)
