"""A Fetch that names very many partitions: other connections are served meanwhile, and the response is the same."""

from __future__ import annotations

import asyncio
import itertools
from typing import Any

import pytest
from hostile_broker import NOW_MS, TOPIC_ID, HostileBroker

from tidegauge.errors import ErrorCode
from tidegauge.kafka.apis import FETCH
from tidegauge.kafka.frames import RequestHeader
from tidegauge.kafka.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from tidegauge.kafka.topic_ids import topic_id_bytes
from tidegauge_broker.server.service.caller import Caller
from tidegauge_broker.server.wire.kafka.handlers import fetch
from tidegauge_broker.server.wire.kafka.request import Context
from tidegauge_broker.server.wire.kafka.responses import Held, settled
from tidegauge_broker.server.wire.kafka.sessions import FetchSessionCache
from tidegauge_broker.server.wire.kafka.turns import ITEMS_PER_TURN

COUNT = 3 * ITEMS_PER_TURN + 7
BY_NAME, BY_ID = 12, 13


def asked(version: int, count: int) -> FetchRequest:
    """Ask for the topic that is there, between many that are not."""
    topics = [
        FetchTopic(f"n{number}", number.to_bytes(16, "big"), [FetchPartition(0, partition_max_bytes=1000)])
        for number in range(1, count)
    ]
    topics.insert(count // 2, FetchTopic("t", topic_id_bytes(TOPIC_ID), [FetchPartition(0, partition_max_bytes=1000)]))
    if version < BY_ID:
        topics = [FetchTopic(one.topic, partitions=one.partitions) for one in topics]
    else:
        topics = [FetchTopic(topic_id=one.topic_id, partitions=one.partitions) for one in topics]
    return FetchRequest(replica_id=-1, max_wait_ms=60_000, min_bytes=1, max_bytes=10_000, topics=topics)


async def read(broker: HostileBroker, version: int, request: FetchRequest) -> tuple[FetchResponse, int]:
    """Return the response, and the event loop's turns until then."""
    sessions = FetchSessionCache(10, itertools.count(1).__next__)
    header = RequestHeader(FETCH, version, 1, "c", 0)
    context = Context(broker.service, Caller("c", "PLAINTEXT"), sessions, lambda: NOW_MS, header)
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    counting = asyncio.create_task(count())
    try:
        found: Any = await settled(fetch.handle(request, context))
    finally:
        counting.cancel()
    if isinstance(found, Held):
        found.pending.release()
        found = found.message
    return found, turns


@pytest.mark.parametrize("version", [BY_NAME, BY_ID])
@pytest.mark.parametrize("session_epoch", [-1, 0])
async def test_the_loop_has_turns_and_every_partition_is_named_in_order(version: int, session_epoch: int) -> None:
    """One that is not there makes the Fetch respond at once (ReplicaManager.fetchMessages)."""
    broker = await HostileBroker().begin()
    request = asked(version, COUNT)
    request.session_epoch = session_epoch
    response, turns = await read(broker, version, request)
    broker.close()
    assert turns > 2 * COUNT // ITEMS_PER_TURN
    names = [(one.topic, one.topic_id) for one in response.responses]
    assert names == [(one.topic, one.topic_id) for one in request.topics]
    errors = [one.partitions[0].error_code for one in response.responses]
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if version < BY_ID else ErrorCode.UNKNOWN_TOPIC_ID
    assert set(errors) <= {unknown, ErrorCode.NONE}
    assert errors.count(unknown) == COUNT - (version < BY_ID), "this broker's metadata have no topic by its id"


@pytest.mark.parametrize("version", [BY_NAME, BY_ID])
async def test_what_is_said_of_a_partition_does_not_depend_on_how_many_there_are(version: int) -> None:
    broker = await HostileBroker().begin()
    few, _ = await read(broker, version, asked(version, 7))
    many, _ = await read(broker, version, asked(version, COUNT))
    broker.close()

    def of_there(response: FetchResponse) -> list[Any]:
        return [one.partitions for one in response.responses if one.partitions[0].error_code == 0]

    assert of_there(few) == of_there(many)
    unknown = {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID}
    [kind] = {str(one.partitions) for one in few.responses if one.partitions[0].error_code in unknown}
    assert {str(one.partitions) for one in many.responses if one.partitions[0].error_code in unknown} == {kind}
