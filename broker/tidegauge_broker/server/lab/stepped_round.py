"""The leader's side of a stepped round: takes the request, says so, and responds, at once or when asked.

Rules:
    1. The request is served by the same code as a follower's stream, as the first request of a stream; so the
       response names the partition even when a stream would have nothing new to report.
    2. RequestTaken says that the request has taken effect: the leader knows the follower's log end offset, and the
       high watermark has moved if that moves it.
    3. For a response that is held back, the wait in purgatory starts again when the response is asked for: until then
       a produce completes the fetch, but no timeout does.
    4. A caller that disconnects before it has asked for its response gets none, and its fetch is forgotten.
    5. Each message describes the leader's replica before and after what it reports: what the step changed.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import grpc.aio

from tidegauge.partition import TopicPartition
from tidegauge.v1 import fetch_pb2, lab_pb2
from tidegauge_broker.server.lab.holds import Describe
from tidegauge_broker.server.wire.grpc.records_response import whole
from tidegauge_broker.server.wire.grpc.replication import ReplicationServicer

_FOR_EVER_MS = 2**31 - 1


async def stepped_round(
    replication: ReplicationServicer,
    describe: Describe,
    requests: AsyncIterator[lab_pb2.SteppedRoundRequest],
    context: grpc.aio.ServicerContext[Any, Any],
) -> AsyncIterator[lab_pb2.SteppedRoundResponse]:
    """Serve one round; see the module."""
    first = await anext(requests, None)
    if first is None:
        return
    wait_ms = first.fetch.max_wait_ms
    at = _partition_of(first)
    before = None if at is None else describe(at)

    def reported(message: lab_pb2.SteppedRoundResponse) -> lab_pb2.SteppedRoundResponse:
        nonlocal before
        after = None if at is None else describe(at)
        if before is not None and after is not None:
            message.before.CopyFrom(before)
            message.after.CopyFrom(after)
        before = after
        return message

    if first.keep_response and first.WhichOneof("message") == "fetch":
        first.fetch.max_wait_ms = _FOR_EVER_MS
    response = asyncio.get_running_loop().create_task(_respond(replication, first, context))
    try:
        await asyncio.sleep(0)  # the task runs up to its wait in the purgatory: then the request has been taken
        yield reported(lab_pb2.SteppedRoundResponse(taken=lab_pb2.RequestTaken()))
        if first.keep_response:
            if await anext(requests, None) is None:
                return
            before = None if at is None else describe(at)
            await asyncio.wait({response}, timeout=wait_ms / 1000)
            if not response.done():
                response.cancel()
                first.fetch.max_wait_ms = 0
                response = asyncio.get_running_loop().create_task(_respond(replication, first, context))
        yield reported(await response)
    finally:
        response.cancel()


def _partition_of(first: lab_pb2.SteppedRoundRequest) -> TopicPartition | None:
    asked = first.epoch_question.partitions or first.fetch.partitions
    return TopicPartition(asked[0].topic, asked[0].partition) if asked else None


async def _respond(
    replication: ReplicationServicer,
    first: lab_pb2.SteppedRoundRequest,
    context: grpc.aio.ServicerContext[Any, Any],
) -> lab_pb2.SteppedRoundResponse:
    if first.WhichOneof("message") == "epoch_question":
        ends = await replication.ReplicaOffsetsForLeaderEpoch(first.epoch_question, context)
        return lab_pb2.SteppedRoundResponse(epoch_end=ends)

    async def only() -> AsyncIterator[fetch_pb2.ReplicaFetchRequest]:
        yield first.fetch

    async for response in replication.ReplicaFetch(only(), context):
        return lab_pb2.SteppedRoundResponse(fetch=whole(response))
    raise AssertionError("a fetch has a response")
