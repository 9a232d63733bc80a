"""A large produce request is appended in portions, with turns of the event loop between them, on every wire.

Rules:
    1. A portion has at most ``PORTION_BYTES`` of records and ``PORTION_PARTITIONS`` partitions, or one partition. All
       batches for a partition that is named twice are in one portion: the core refuses all but the first.
    2. Every portion is appended before acks are awaited, so timeouts do not add up, and also if an earlier one is
       refused. The results are in the order of the request.
    3. A request that has begun is appended to its end, though its connection closes meanwhile; nothing awaits its acks
       then.
    4. The connection appends no other request meanwhile: a wire awaits ``append`` before the next.
Kafka appends a request in one thread and others beside it (KafkaRequestHandler); it has no other request of the
connection meanwhile either.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

from tidegauge.partition import TopicPartition
from tidegauge.waits import to_its_end
from tidegauge_broker.replica.messages import ProducePartition, ProduceRequest, ProduceResult

PORTION_BYTES = 1024 * 1024
PORTION_PARTITIONS = 500

Results = Sequence[ProduceResult]
Append = Callable[[ProduceRequest], "asyncio.Future[Results]"]


async def append(append_at_once: Append, request: ProduceRequest) -> asyncio.Future[Results]:
    """Append a request; return once it is appended.

    Args:
        append_at_once: appends a portion; its future is done when acks is satisfied.
        request: of any size.

    Returns:
        A future of the results, done when acks is satisfied for all partitions. Cancel it when its caller no longer
        waits.
    """
    portions = _portions(request.partitions)
    if len(portions) == 1:
        return append_at_once(request)
    return await to_its_end(_append(append_at_once, request, portions), give_up)


def is_one_portion(request: ProduceRequest) -> bool:
    """Return whether a request is appended in one step."""
    partitions = request.partitions
    return len(partitions) == 1 or (
        len(partitions) <= PORTION_PARTITIONS and sum(len(item.records) for item in partitions) <= PORTION_BYTES
    )


def give_up(appended: asyncio.Future[Results]) -> None:
    """Forget what waits for acks."""
    appended.cancel()


def _portions(partitions: Sequence[ProducePartition]) -> list[list[int]]:
    """Divide a request by rule 1; return the places of each portion's partitions in the request."""
    portions: list[list[int]] = [[]]
    size_bytes = 0
    portion_of: dict[TopicPartition, list[int]] = {}
    for place, item in enumerate(partitions):
        known = portion_of.get(item.topic_partition)
        if known is not None:
            known.append(place)  # the core refuses it, which costs no append
            continue
        portion, item_bytes = portions[-1], len(item.records)
        if portion and (size_bytes + item_bytes > PORTION_BYTES or len(portion) >= PORTION_PARTITIONS):
            portion, size_bytes = [], 0
            portions.append(portion)
        portion.append(place)
        portion_of[item.topic_partition] = portion
        size_bytes += item_bytes
    return portions


async def _append(
    append_at_once: Append, request: ProduceRequest, portions: Sequence[Sequence[int]]
) -> asyncio.Future[Results]:
    futures: list[asyncio.Future[Results]] = []
    for portion in portions:
        futures.append(append_at_once(replace(request, partitions=[request.partitions[place] for place in portion])))
        await asyncio.sleep(0)
    return _joined(portions, futures)


def _joined(portions: Sequence[Sequence[int]], futures: Sequence[asyncio.Future[Results]]) -> asyncio.Future[Results]:
    """Return a future of all results, in the request's order.

    It is done at once if all of them are.
    """
    joined: asyncio.Future[Results] = asyncio.get_running_loop().create_future()

    def settle(done: asyncio.Future[list[Results]] | None) -> None:
        if joined.done():
            return
        if done is not None and done.cancelled():
            joined.cancel()
            return
        problem = None if done is None else done.exception()
        if problem is not None:
            joined.set_exception(problem)
            return
        found = dict(
            one
            for portion, future in zip(portions, futures, strict=True)
            for one in zip(portion, future.result(), strict=True)
        )
        joined.set_result([found[place] for place in sorted(found)])

    if all(future.done() for future in futures):
        settle(None)
    else:
        waiting = asyncio.gather(*futures)
        waiting.add_done_callback(settle)
        joined.add_done_callback(partial(_pass_on_cancellation, waiting))
    return joined


def _pass_on_cancellation(waiting: asyncio.Future[list[Results]], joined: asyncio.Future[Results]) -> None:
    if joined.cancelled():
        waiting.cancel()
