"""DescribeTopicPartitions: pages of partitions with eligible leader replicas (KIP-966)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Coroutine
from types import SimpleNamespace
from typing import Any

import pytest

from tidegauge.errors import ErrorCode
from tidegauge.kafka.kraft.messages.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    TopicRequest,
)
from tidegauge_broker.server.service.cluster_view import PartitionView, TopicView
from tidegauge_broker.server.wire.kafka.handlers.describe_topic_partitions import KRAFT_API, MOST, handle
from tidegauge_broker.server.wire.kafka.turns import ITEMS_PER_TURN


def view(partition: int) -> PartitionView:
    """A partition without a leader, whose last one is known."""
    error = ErrorCode.LEADER_NOT_AVAILABLE
    return PartitionView(partition, error, None, 3, (1, 2), (), (1, 2), 4, elr=(2,), last_known_elr=(1,))


COUNTS = {"a": 3, "b": 2, "c": 1}


def begin(
    request: DescribeTopicPartitionsRequest, largest: list[int], may_describe: Callable[[str], bool] | None = None
) -> Coroutine[Any, Any, DescribeTopicPartitionsResponse]:
    """Begin to handle a request at a broker that has the topics a, b and c; note how many it asks for at a time."""

    def metadata(_caller: object, topics: Collection[str] | None, *, may_create: bool) -> Any:
        assert not may_create
        largest[0] = max(largest[0], len(topics or ()))
        found = [
            TopicView(name, partitions=[view(at) for at in range(COUNTS[name])])
            if name in COUNTS
            else TopicView(name, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            for name in (COUNTS if topics is None else topics)
        ]
        return SimpleNamespace(topics=found)

    service = SimpleNamespace(metadata=metadata)
    context: Any = SimpleNamespace(service=service, caller=None, may_describe=may_describe, version=0)
    return handle(request, context)


def page(limit: int = MOST, cursor: Cursor | None = None, *names: str) -> DescribeTopicPartitionsResponse:
    """Return a page of the topics a, b and c."""
    return asyncio.run(
        begin(DescribeTopicPartitionsRequest([TopicRequest(name) for name in names], limit, cursor), [0])
    )


def named(response: DescribeTopicPartitionsResponse) -> list[tuple[str | None, list[int]]]:
    return [(topic.name, [one.partition_index for one in topic.partitions]) for topic in response.topics]


def test_a_partition_has_its_eligible_leaders_and_its_last_one() -> None:
    [topic] = page(MOST, None, "c").topics
    [one] = topic.partitions
    assert (one.leader_id, one.error_code) == (-1, ErrorCode.LEADER_NOT_AVAILABLE)
    assert (one.isr_nodes, one.eligible_leader_replicas, one.last_known_elr) == ((), (2,), (1,))


def test_pages_follow_one_another_without_a_gap() -> None:
    """The cursor names the first partition of the next page."""
    first = page(2)
    assert named(first) == [("a", [0, 1])]
    assert first.next_cursor == Cursor("a", 2)
    second = page(2, first.next_cursor)
    assert named(second) == [("a", [2]), ("b", [0])]
    assert second.next_cursor == Cursor("b", 1)
    third = page(2, second.next_cursor)
    assert named(third) == [("b", [1]), ("c", [0])]
    assert third.next_cursor is None


def test_a_page_that_ends_with_a_topic_points_to_the_next_one() -> None:
    found = page(3)
    assert named(found) == [("a", [0, 1, 2])]
    assert found.next_cursor == Cursor("b", 0)


def test_topics_come_by_name_each_once_and_unknown_ones_with_their_error() -> None:
    found = page(MOST, None, "c", "zz", "a", "c")
    assert [(topic.name, topic.error_code) for topic in found.topics] == [("a", 0), ("c", 0), ("zz", 3)]


def test_a_request_that_fails_names_its_topics() -> None:
    request = DescribeTopicPartitionsRequest([TopicRequest("a")])
    response = KRAFT_API.refusal(0, request, ErrorCode.UNKNOWN_SERVER_ERROR)
    assert [(topic.name, topic.error_code) for topic in response.topics] == [("a", ErrorCode.UNKNOWN_SERVER_ERROR)]


def test_very_many_topics_are_looked_at_in_portions_with_turns_between() -> None:
    """The names of one request may be 100,000; other connections are served meanwhile."""
    largest = [0]
    names = [TopicRequest(f"n{number}") for number in range(3 * ITEMS_PER_TURN)]
    work = begin(DescribeTopicPartitionsRequest([*names, TopicRequest("a")], MOST, None), largest)
    turns = 0
    try:
        while True:
            work.send(None)
            turns += 1
    except StopIteration as end:
        response = end.value
    assert (turns, largest) == (3, [ITEMS_PER_TURN])
    assert len(response.topics) == len(names) + 1
    assert [one.partition_index for one in response.topics[0].partitions] == [0, 1, 2]


def test_topics_that_may_not_be_described_come_last_whatever_the_page() -> None:
    request = DescribeTopicPartitionsRequest([TopicRequest(name) for name in ("c", "b", "a")], 1, Cursor("b", 1))
    response = asyncio.run(begin(request, [0], lambda name: name != "a"))
    assert [(topic.name, topic.error_code) for topic in response.topics] == [("b", 0), ("a", 29)]
    assert response.next_cursor == Cursor("c", 0)
    everything = asyncio.run(begin(DescribeTopicPartitionsRequest([], MOST, None), [0], lambda name: name != "a"))
    assert [topic.name for topic in everything.topics] == ["b", "c"]


@pytest.mark.parametrize("names", [("a", "c"), ()])
def test_a_cursor_has_no_negative_partition(names: tuple[str, ...]) -> None:
    """DescribeTopicPartitionsRequestHandler; without names there are no topics to give the error to."""
    found = page(MOST, Cursor("a", -1), *names)
    assert [(one.name, one.error_code, len(one.partitions)) for one in found.topics] == [
        (name, ErrorCode.INVALID_REQUEST, 0) for name in names
    ]


def test_a_cursor_must_be_at_one_of_the_named_topics() -> None:
    """DescribeTopicPartitionsRequestHandler refuses another one, and with it every topic."""
    found = page(MOST, Cursor("b", 0), "a", "c")
    assert [(one.name, one.error_code) for one in found.topics] == [
        ("a", ErrorCode.INVALID_REQUEST),
        ("c", ErrorCode.INVALID_REQUEST),
    ]
    assert named(page(MOST, Cursor("b", 1), "b", "c")) == [("b", [1]), ("c", [0])]
