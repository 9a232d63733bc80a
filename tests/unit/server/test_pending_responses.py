"""A client that does not read its responses is given no more of them, and leaves room for the others."""

from __future__ import annotations

import asyncio

from tidegauge_broker.server.service.pending_responses import (
    FOLLOWER_BYTES,
    FREE_SHARE,
    NOTHING,
    RECORDS_SHARE,
    STALLED_SECONDS,
    PendingResponse,
    PendingResponses,
)

BUDGET_BYTES = 8_000_000


class Clock:
    """Seconds that pass when the test says so."""

    seconds = 0.0

    def __call__(self) -> float:
        return self.seconds


def responses(connection_bytes: int = 150_000, total_bytes: int = BUDGET_BYTES) -> PendingResponses:
    return PendingResponses(lambda: total_bytes, lambda: connection_bytes, Clock())


async def held(outgoing: PendingResponses, connection: str, size_bytes: int) -> PendingResponse:
    """A response that has been read and waits to be written."""
    response = await outgoing.room(connection)
    response.hold(size_bytes)
    return response


async def test_a_connection_with_much_unsent_waits_and_others_do_not() -> None:
    outgoing = responses()
    calls = [await held(outgoing, "slow", 100_000) for _ in range(2)]
    third = asyncio.ensure_future(outgoing.room("slow"))
    await outgoing.room("quick")
    await asyncio.sleep(0)
    assert not third.done()
    calls[0].release()
    await asyncio.wait_for(third, 60)
    assert outgoing.held_bytes("slow") == 100_000


async def test_fetches_that_wait_for_much_count_as_if_they_had_it() -> None:
    outgoing = responses(100_000)
    with outgoing.gathering("patient", 100_000):
        second = asyncio.ensure_future(outgoing.room("patient"))
        await asyncio.sleep(0)
        assert not second.done()
        with outgoing.gathering("usual", 1):
            assert outgoing.held_bytes("usual") == 0, "one byte is what clients ask for"
    await asyncio.wait_for(second, 60)
    assert outgoing.held_bytes("patient") == 0


async def test_the_end_of_the_calls_leaves_nothing() -> None:
    """Sent or cancelled: the call is over either way."""
    outgoing = responses()
    calls = [await held(outgoing, "gone", 100_000) for _ in range(2)]
    waiting = [asyncio.ensure_future(outgoing.room("gone")) for _ in range(3)]
    for call in calls:
        call.release()
        call.release()
    await asyncio.wait_for(asyncio.gather(*waiting), 60)
    assert (outgoing.held_bytes("gone"), outgoing.total_bytes) == (0, 0)


async def test_small_responses_cost_nothing() -> None:
    outgoing = responses()
    await held(outgoing, "any", 1_000)
    assert outgoing.held_bytes("any") == 0


async def test_the_limit_over_all_connections_is_held_and_responses_become_smaller_towards_it() -> None:
    """No connection reaches its own limit; all of them together stay below theirs."""
    outgoing = responses(connection_bytes=BUDGET_BYTES)
    sizes = []
    for number in range(1_000):
        response = await outgoing.room(f"deaf-{number}")
        size_bytes = max(response.limit_bytes(1 << 30), 20_000)  # a batch is never split
        sizes.append(size_bytes)
        response.hold(size_bytes)
        if outgoing.total_bytes >= RECORDS_SHARE * BUDGET_BYTES:
            break
    assert sizes[0] == int(RECORDS_SHARE * BUDGET_BYTES) // FREE_SHARE
    assert sizes == sorted(sizes, reverse=True)
    assert outgoing.total_bytes < RECORDS_SHARE * BUDGET_BYTES + 20_000
    late = asyncio.ensure_future(outgoing.room("late"))
    metadata = asyncio.ensure_future(outgoing.room("late", for_records=False))
    await asyncio.sleep(0)
    assert (late.done(), metadata.done()) == (False, True), "the last eighth is for responses without records"
    late.cancel()
    outgoing.close()


async def test_fetches_that_were_parked_while_the_limit_was_reached_get_nothing_for_now() -> None:
    """Hundreds of them can be completed by one append: the limit counts when the records are read."""
    outgoing = responses(connection_bytes=100_000, total_bytes=1_000_000)
    parked = [await outgoing.room(f"parked-{number // 2}") for number in range(4)]
    parked[0].hold(100_000)
    assert parked[1].limit_bytes(1 << 20) == NOTHING, "the same connection has enough"
    assert parked[2].limit_bytes(1_000) == 1_000
    parked[2].hold(900_000)
    assert parked[3].limit_bytes(1 << 20) == NOTHING, "all connections together have enough"


async def test_a_follower_never_waits_for_consumers() -> None:
    outgoing = responses(connection_bytes=BUDGET_BYTES)
    (await outgoing.room("deaf")).hold(BUDGET_BYTES)
    follower = outgoing.for_follower("broker-2")
    assert follower.limit_bytes(10 << 20) == FOLLOWER_BYTES
    follower.hold(FOLLOWER_BYTES)
    assert outgoing.total_bytes == BUDGET_BYTES + FOLLOWER_BYTES


async def test_requests_pass_one_after_the_other_as_room_comes_back_and_a_cancelled_one_takes_no_turn() -> None:
    outgoing = responses(connection_bytes=BUDGET_BYTES)
    deaf = await held(outgoing, "deaf", BUDGET_BYTES)
    waiting = [asyncio.ensure_future(outgoing.room(f"c{number}")) for number in range(3)]
    await asyncio.sleep(0)
    waiting[0].cancel()
    deaf.release()
    await asyncio.wait_for(asyncio.gather(*waiting[1:]), 60)
    outgoing.close()


async def test_while_others_wait_the_connection_with_the_oldest_unread_response_is_closed() -> None:
    clock = Clock()
    outgoing = PendingResponses(lambda: BUDGET_BYTES, lambda: BUDGET_BYTES, clock)
    closed: list[str] = []
    first = await held(outgoing, "first", BUDGET_BYTES // 2)
    clock.seconds = 1.0
    await held(outgoing, "second", BUDGET_BYTES // 2)
    clock.seconds = STALLED_SECONDS
    outgoing.close_connection = closed.append
    outgoing.look()
    assert closed == [], "nobody waits, so nobody is in the way"
    waiting = asyncio.ensure_future(outgoing.room("third"))
    await asyncio.sleep(0)
    outgoing.look()
    assert closed == ["first"]
    first.release()
    await asyncio.wait_for(waiting, 60)
    outgoing.close()
