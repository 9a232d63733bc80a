"""The hold of a node's fetches of the metadata log: what waits, what a round is, and what a step reports of it."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.v1 import lab_pb2
from tidegauge_broker.server.lab import held_fetches
from tidegauge_broker.server.lab.held_fetches import HeldFetches
from tidegauge_broker.server.lab.metadata_round import metadata_round

LEADER = "127.0.0.1:9393"
RESPONSE, REQUEST = lab_pb2.STEP_UNTIL_RESPONSE, lab_pb2.STEP_UNTIL_REQUEST


def fetch(offset: int, epoch: int = 3, high_watermark: int = 5) -> Any:
    partition = SimpleNamespace(
        current_leader_epoch=epoch, fetch_offset=offset, last_fetched_epoch=epoch, high_watermark=high_watermark
    )
    return SimpleNamespace(topics=[SimpleNamespace(partitions=[partition])])


def response(records: bytes = b"", error: int = 0, diverging: Any = None, leader_id: int = 3000) -> Any:
    partition = SimpleNamespace(
        error_code=error,
        high_watermark=5,
        log_start_offset=0,
        records=records,
        diverging_epoch=diverging,
        current_leader=SimpleNamespace(leader_id=leader_id),
    )
    return SimpleNamespace(error_code=0, responses=[SimpleNamespace(partitions=[partition])])


class Node:
    """A node that fetches on from where its log ends; each response brings one record."""

    def __init__(self, held: HeldFetches, limit_seconds: float = 60.0) -> None:
        self.held = held
        self.offset = 7
        self.sent: list[int] = []
        self.failures: list[TidegaugeError] = []
        self.respond: Any = None
        self.limit_seconds = limit_seconds

    async def fetch_once(self) -> None:
        async def send(_left_seconds: float) -> Any:
            self.sent.append(self.offset)
            return response(b"1234567890") if self.respond is None else await self.respond()

        try:
            await self.held.exchange(LEADER, fetch(self.offset), self.limit_seconds, send)
        except TidegaugeError as problem:
            self.failures.append(problem)
        else:
            self.offset += 1

    async def run(self, rounds: int) -> None:
        for _ in range(rounds):
            await self.fetch_once()


@pytest.fixture
async def held(monkeypatch: pytest.MonkeyPatch) -> HeldFetches:
    monkeypatch.setattr(held_fetches, "STEP_SECONDS", 0.05)
    monkeypatch.setattr(held_fetches, "_NEXT_SECONDS", 0.05)
    held = HeldFetches()
    await held.hold()
    return held


async def test_a_step_is_one_fetch_and_reports_what_the_next_one_says_of_the_log(held: HeldFetches) -> None:
    node = Node(held)
    running = asyncio.ensure_future(node.run(3))
    done = await metadata_round(held, RESPONSE, lambda _: 3000)
    assert node.sent == [7], "the next fetch waits"
    assert (done.kind, done.leader_id, done.records_bytes) == (lab_pb2.STEP_KIND_FETCH, 3000, 10)
    assert (done.follower_before.log_end_offset, done.follower_after.log_end_offset) == (7, 8)
    await metadata_round(held, RESPONSE, lambda _: 3000)
    assert node.sent == [7, 8]
    held.release()
    await running
    assert node.sent == [7, 8, 9]


async def test_a_step_before_the_node_fetches_is_its_next_fetch(held: HeldFetches) -> None:
    node = Node(held)
    step = asyncio.ensure_future(metadata_round(held, RESPONSE, lambda _: None))
    await asyncio.sleep(0)
    await node.run(1)
    done = await step
    assert node.sent == [7]
    assert done.leader_id == 3000, "an address that is not known: the response names the leader"
    assert not done.HasField("follower_after"), "no fetch has said what the log is like now"


async def test_a_withheld_response_is_taken_in_with_the_next_step(held: HeldFetches) -> None:
    node = Node(held)
    running = asyncio.ensure_future(node.run(2))
    taken = await metadata_round(held, REQUEST, lambda _: 3000)
    assert taken.response_withheld
    assert (node.sent, node.offset) == ([7], 7), "the controller has the request, the node not the response"
    done = await metadata_round(held, RESPONSE, lambda _: 3000)
    assert not done.response_withheld
    assert (node.sent, node.offset, done.follower_after.log_end_offset) == ([7], 8, 8)
    held.release()
    await running


async def test_a_withheld_response_is_lost_at_the_end_of_its_senders_time(held: HeldFetches) -> None:
    node = Node(held, limit_seconds=0.02)
    running = asyncio.ensure_future(node.run(1))
    assert (await metadata_round(held, REQUEST, lambda _: 3000)).response_withheld
    await running
    assert [one.code for one in node.failures] == [ErrorCode.NETWORK_EXCEPTION]
    again = asyncio.ensure_future(node.run(1))
    await metadata_round(held, RESPONSE, lambda _: 3000)
    await again
    assert node.sent == [7, 7], "the next step is a round of its own"


async def test_a_node_that_sends_no_fetch_can_be_stepped_later(held: HeldFetches) -> None:
    """It leads, or stands for election."""
    refused = await metadata_round(held, RESPONSE, lambda _: 3000)
    assert refused.error == ErrorCode.REQUEST_TIMED_OUT
    assert "it leads the quorum, or stands for election" in refused.error_message
    node = Node(held)
    running = asyncio.ensure_future(node.run(1))
    for _ in range(5):
        await asyncio.sleep(0)
    assert node.sent == [], "the step that found none is over"
    held.release()
    await running


async def test_a_step_says_why_the_round_failed(held: HeldFetches) -> None:
    node = Node(held)

    async def no_response() -> Any:
        raise TidegaugeError(ErrorCode.NETWORK_EXCEPTION, "connection refused")

    node.respond = no_response
    running = asyncio.ensure_future(node.run(1))
    done = await metadata_round(held, RESPONSE, lambda _: 3000)
    assert (done.error, done.error_message) == (ErrorCode.NETWORK_EXCEPTION, "connection refused")
    await running


async def test_a_refused_fetch_and_a_truncation_are_reported(held: HeldFetches) -> None:
    node = Node(held)
    responses = [
        response(error=int(ErrorCode.FENCED_LEADER_EPOCH)),
        response(diverging=SimpleNamespace(epoch=2, end_offset=4)),
    ]

    async def in_turn() -> Any:
        return responses.pop(0)

    node.respond = in_turn
    running = asyncio.ensure_future(node.run(2))
    refused = await metadata_round(held, RESPONSE, lambda _: 3000)
    assert refused.error == ErrorCode.FENCED_LEADER_EPOCH
    truncating = await metadata_round(held, RESPONSE, lambda _: 3000)
    diverging = truncating.fetch_result.diverging_epoch
    assert (diverging.leader_epoch, diverging.end_offset) == (2, 4)
    await running


async def test_only_held_fetches_are_stepped() -> None:
    with pytest.raises(TidegaugeError, match="are not held; `tidegauge hold-fetch __cluster_metadata-0 --broker ID`"):
        await metadata_round(HeldFetches(), RESPONSE, lambda _: 3000)


async def test_a_hold_waits_for_the_fetch_that_was_sent_before_it() -> None:
    """Its response may bring records, and would do so after the hold."""
    held = HeldFetches()
    node, promised = Node(held), asyncio.get_running_loop().create_future()
    node.respond = lambda: promised
    running = asyncio.ensure_future(node.run(1))
    await asyncio.sleep(0)
    holding = asyncio.ensure_future(held.hold())
    await asyncio.sleep(0)
    assert not holding.done()
    promised.set_result(response())
    assert await holding
    await running


async def test_a_held_fetch_ends_at_its_own_timeout_or_when_it_is_released(held: HeldFetches) -> None:
    assert not await held.hold(), "held already"
    node = Node(held, limit_seconds=0.0)
    await node.run(1)
    assert [str(one.message) for one in node.failures] == ["held by the lab"]
    node.limit_seconds = 60.0
    waiting = asyncio.ensure_future(node.run(1))
    await asyncio.sleep(0)
    assert held.release()
    await waiting
    assert node.sent == [7]
    assert not held.release()
