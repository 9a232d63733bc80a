"""Large requests whose items are handled each for itself are handled in portions, with turns of the event loop between.

Rules:
    1. The response is that to the whole request: results in the order of its items, one entry for a topic that was
       divided. The fields beside the results come from the last portion, the nodes from all.
       2. If a repeated item is judged differently, a request with such an item is handled whole.
    3. Every portion begins before the responses of those that wait are awaited: timeouts do not add up.
    4. A Produce's portion has at most ``PORTION_BYTES`` of records, or one partition: they are written in one step.
    5. An item that is repeated is handled once, if its result can't depend on the others.
    6. A portion that closes the connection (a Produce with acks=0 that fails) does so when all have begun.
    7. A Produce that has begun is appended to its end, though its connection closes meanwhile, as in Kafka: the batches
       of one with acks=0 must not depend on when its client leaves.
Kafka's request handlers are threads, so that a large request keeps one of them busy and not the others.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

from tidegauge.waits import to_its_end
from tidegauge.with_turns import with_turns
from tidegauge_broker.server.wire.kafka.request import CloseConnection, Context, Handler
from tidegauge_broker.server.wire.kafka.responses import Pending, Response, Silent, settled
from tidegauge_broker.server.wire.kafka.turns import ITEMS_PER_TURN


class Division(NamedTuple):
    """The places of a request's items, and of the results of its response.

    Attributes:
        items: array of the request.
        results: array of the response; it has one result for each item, in their order.
        partitions: array of an item, and the array of its result, which can be divided too.
        judges_repeats: rule 2.
        weight: how many items an item counts for; one that names a resource has all its settings in the response.
        shares_repeats: rule 5.
        is_completed: rule 7.
        size_of: how many items a partition counts for: one with many bytes counts for several.
    """

    items: str
    results: str
    partitions: tuple[str, str] | None = None
    judges_repeats: bool = False
    size_of: Callable[[Any], int] = lambda _: 1
    weight: int = 1
    shares_repeats: bool = False
    is_completed: bool = False


def in_portions(division: Division | None, handler: Handler) -> Handler:
    """Return a handler that divides an API's large requests, if it can."""
    return handler if division is None else partial(_handle, handler, division)


def _handle(handler: Handler, division: Division, request: Any, context: Context) -> Response:
    if _is_small(getattr(request, division.items) or (), division):
        return handler(request, context)
    return _handle_large(handler, division, request, context)


def _is_small(items: Sequence[Any], division: Division) -> bool:
    """Whether items fit into one turn; of others no more are looked at than that takes."""
    room = ITEMS_PER_TURN
    if division.partitions is None or len(items) > room:
        return len(items) * division.weight <= room
    room -= len(items)
    for item in items:
        for one in getattr(item, division.partitions[0]):
            room -= division.size_of(one)
            if room < 0:
                return False
    return True


async def _handle_large(handler: Handler, division: Division, request: Any, context: Context) -> Any:
    if division.judges_repeats and await _repeats(getattr(request, division.items), division):
        return await settled(handler(request, context))
    return await _handle_portions(handler, division, request, context)


async def _repeats(items: Sequence[Any], division: Division) -> bool:
    """Whether an item is named twice. There are turns: all names of 100,000 items take 0.1 s."""
    seen: set[Any] = set()
    count = 0
    async for name in with_turns(_item_names(items, division), ITEMS_PER_TURN):
        seen.add(name)
        count += 1
        if len(seen) < count:
            return True
    return False


def _item_names(items: Sequence[Any], division: Division) -> Iterator[Any]:
    """Yield the name of each item, or of each of its partitions."""
    for item in items:
        name = item if isinstance(item, str) else (item.name, getattr(item, "topic_id", None))
        if division.partitions is None:
            yield name
            continue
        for partition in getattr(item, division.partitions[0]):
            yield name, getattr(partition, "index", None), getattr(partition, "partition_index", None)


class Portion(NamedTuple):
    """Some items of a request.

    Attributes:
        items: they.
        is_continued: whether the first one has the rest of the partitions of the last one before.
    """

    items: list[Any]
    is_continued: bool


def portions(items: Sequence[Any], division: Division, size: int = ITEMS_PER_TURN) -> Iterator[Portion]:
    """Divide items into portions of up to ``size`` items and partitions."""
    portion, room, is_continued = Portion([], is_continued=False), size, False
    for item in items:
        of_item = () if division.partitions is None else getattr(item, division.partitions[0])
        first = 0
        while True:
            if room <= 0 or (portion.items and first < len(of_item) and division.size_of(of_item[first]) > room):
                yield portion
                portion, room = Portion([], is_continued=is_continued), size
            taken, size_taken = _taken(of_item, first, room, division)
            whole = len(taken) == len(of_item)
            portion.items.append(item if whole else dataclasses.replace(item, **{_partitions(division): taken}))
            room -= max(division.weight, size_taken)
            first += len(taken)
            is_continued = first < len(of_item)
            if not is_continued:
                break
    yield portion


def _taken(of_item: Sequence[Any], first: int, room: int, division: Division) -> tuple[Sequence[Any], int]:
    """Return the partitions of a portion from ``first`` on, and their size.

    The portion has some room, and takes one partition at least.
    """
    end, size = first, 0
    while end < len(of_item) and (end == first or size + division.size_of(of_item[end]) <= room):
        size += division.size_of(of_item[end])
        end += 1
    return of_item[first:end], size


def _partitions(division: Division) -> str:
    assert division.partitions is not None
    return division.partitions[0]


async def _names(items: Sequence[Any]) -> list[str]:
    """Return the names of items for rule 5, which repeated ones share.

    20,000 names take 0.1 s, so there are turns.
    """
    names: list[str] = []
    for first in range(0, len(items), ITEMS_PER_TURN):
        names += map(repr, items[first : first + ITEMS_PER_TURN])
        await asyncio.sleep(0)
    return names


async def _begin(
    handler: Handler, division: Division, request: Any, items: Sequence[Any], context: Context
) -> list[tuple[bool, Any]]:
    """Begin every portion; return whether each is continued, and its response."""
    begun: list[tuple[bool, Any]] = []
    closing: CloseConnection | None = None
    for portion in portions(items, division):
        try:
            response = handler(dataclasses.replace(request, **{division.items: portion.items}), context)
            begun.append((portion.is_continued, await response if asyncio.iscoroutine(response) else response))
        except CloseConnection as problem:
            closing = closing or problem
        await asyncio.sleep(0)
    if closing is not None:
        raise closing
    return begun


def _give_up(begun: Sequence[tuple[bool, Any]]) -> None:
    """Forget what waits for acks: the connection has closed."""
    for _, response in begun:
        if isinstance(response, Pending):
            response.future.cancel()


async def _handle_portions(handler: Handler, division: Division, request: Any, context: Context) -> Any:
    items = getattr(request, division.items)
    names = await _names(items) if division.shares_repeats else []
    distinct = dict(zip(names, items, strict=True)) if names else {}
    beginning = _begin(handler, division, request, list(distinct.values()) or items, context)
    begun = await (to_its_end(beginning, _give_up) if division.is_completed else beginning)
    results: list[Any] = []
    nodes: dict[int, Any] = {}
    message: Any = None
    for is_continued, waiting in begun:
        message = await settled(waiting)
        if isinstance(message, Silent):
            continue
        found = list(getattr(message, division.results))
        if is_continued and division.partitions is not None:
            name = division.partitions[1]
            setattr(results[-1], name, [*getattr(results[-1], name), *getattr(found.pop(0), name)])
        results += found
        nodes |= {node.node_id: node for node in getattr(message, "node_endpoints", ())}
    if isinstance(message, Silent):
        return message
    if distinct:
        found_for = dict(zip(distinct, results, strict=True))
        results = [found_for[name] for name in names]
    setattr(message, division.results, results)
    if nodes:
        message.node_endpoints = list(nodes.values())
    return message
