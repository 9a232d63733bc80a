"""The produce requests of one connection: order, their limit, and acks=0 (KafkaApis.handleProduceRequest)."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from tidegauge.errors import ErrorCode
from tidegauge.partition import TopicPartition
from tidegauge_broker.replica.messages import ProduceRequest, ProduceResult
from tidegauge_broker.server.service.open_produces import OpenProduces, UnacknowledgedAppendFailed

AT = TopicPartition("t", 0)
Results = Sequence[ProduceResult]


class Log:
    """Appends at once; acks are satisfied when the test says so."""

    def __init__(self, max_open: int = 2) -> None:
        self.appended: list[int] = []
        self.acks: list[asyncio.Future[Results]] = []
        self.responses: list[tuple[int, Results]] = []
        self.error = ErrorCode.NONE
        self.produces = OpenProduces(self._produce, max_open)

    def _produce(self, request: ProduceRequest) -> asyncio.Future[Results]:
        self.appended.append(request.timeout_ms)
        future: asyncio.Future[Results] = asyncio.get_running_loop().create_future()
        self.acks.append(future)
        if request.acks == 0:
            future.set_result([ProduceResult(AT, self.error, "why")])
        return future

    async def submit(self, number: int, acks: int = -1) -> None:
        """The timeout serves as the request's number."""
        request = ProduceRequest(acks, number, [])
        await self.produces.submit(request, lambda results: self.responses.append((number, results)))


async def turn() -> None:
    for _ in range(3):
        await asyncio.sleep(0)


async def test_appends_keep_their_order_and_responses_may_overtake() -> None:
    log = Log()
    await log.submit(1)
    await log.submit(2)
    log.acks[1].set_result([])
    await turn()
    log.acks[0].set_result([])
    await log.produces.until_acknowledged()
    assert log.appended == [1, 2]
    assert [number for number, _ in log.responses] == [2, 1]


async def test_above_the_limit_nothing_is_appended_until_the_client_takes_a_response() -> None:
    """An acknowledgement alone makes no room: the response still takes memory."""
    log = Log(max_open=1)
    await log.submit(1)
    second = asyncio.ensure_future(log.submit(2))
    log.acks[0].set_result([])
    await turn()
    assert log.appended == [1]
    log.produces.taken()
    await second
    assert log.appended == [1, 2]


async def test_without_acks_a_failed_append_ends_the_connection_and_a_good_one_has_no_results() -> None:
    log = Log()
    await log.submit(1, acks=0)
    assert log.responses == [(1, ())]
    log.error = ErrorCode.NOT_LEADER_OR_FOLLOWER
    with pytest.raises(UnacknowledgedAppendFailed, match="NOT_LEADER_OR_FOLLOWER: why"):
        await log.submit(2, acks=0)
    assert len(log.responses) == 1


async def test_a_closed_connection_leaves_nothing_in_purgatory() -> None:
    log = Log()
    await log.submit(1)
    log.produces.close()
    await turn()
    assert log.acks[0].cancelled()
    assert log.responses == []
