"""Responses of other APIs than Fetch count while they wait to be written; the rules are ``PendingResponses``'.

Fetch counts its own, before the records are read. Counted here are those that may be many times larger than their
request (``ServedApi.is_counted``): while such responses hold ``queued.max.response.bytes``, a further one is not begun.
Small responses, what members of groups send, and what brokers and the controller send each other never wait for clients
that do not read.
(Over gRPC: ``tidegauge_broker.server.wire.grpc.counted_responses``.)
"""

from __future__ import annotations

from tidegauge.kafka.records import Buffer
from tidegauge_broker.server.service.pending_responses import PendingResponse, PendingResponses
from tidegauge_broker.server.wire.kafka.turns import Remaining, Turns


def count(pending: PendingResponse, parts: list[Buffer]) -> list[Buffer]:
    """Count an encoded response, unless it is counted already; return it."""
    if not pending.size_bytes:
        pending.hold(sum(map(len, parts)))
    return parts


async def encode_with_room(
    slices: Remaining[list[Buffer]], turns: Turns, responses: PendingResponses, pending: PendingResponse
) -> list[Buffer]:
    """Encode a large response when there is room for another, and count it before the next one begins.

    So all of them together exceed the limit by one response at most.

    Args:
        slices: what remains of its encoding.
        turns: of the broker; one message is encoded at a time.
        responses: those that wait to be written.
        pending: the place of this one.
    """
    while True:
        await responses.room(pending.connection, for_records=False)
        async with turns.one_at_a_time:
            if responses.room_at_once(pending.connection, for_records=False) is not None:
                return count(pending, await slices.finish())
