"""DescribeTopicPartitions: pages of partitions with eligible leader replicas (KIP-966)."""

from __future__ import annotations

from collections.abc import Collection
from types import SimpleNamespace
from typing import Any

from tidegauge.errors import ErrorCode
from tidegauge.kafka.kraft.messages.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    TopicRequest,
)
from tidegauge_broker.server.service.cluster_view import PartitionView, TopicView
from tidegauge_broker.server.wire.kafka.handlers.describe_topic_partitions import KRAFT_API, MOST, handle


def view(partition: int) -> PartitionView:
    """A partition without a leader, whose last one is known."""
    error = ErrorCode.LEADER_NOT_AVAILABLE
    return PartitionView(partition, error, None, 3, (1, 2), (), (1, 2), 4, elr=(2,), last_known_elr=(1,))


COUNTS = {"a": 3, "b": 2, "c": 1}


def page(limit: int = MOST, cursor: Cursor | None = None, *names: str) -> DescribeTopicPartitionsResponse:
    """Return a page of the topics a, b and c."""

    def metadata(_caller: object, topics: Collection[str] | None, *, may_create: bool) -> Any:
        assert not may_create
        found = [
            TopicView(name, partitions=[view(at) for at in range(COUNTS[name])])
            if name in COUNTS
            else TopicView(name, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            for name in (COUNTS if topics is None else topics)
        ]
        return SimpleNamespace(topics=found)

    service = SimpleNamespace(metadata=metadata)
    context: Any = SimpleNamespace(service=service, caller=None, may_describe=None, version=0)
    return handle(DescribeTopicPartitionsRequest([TopicRequest(name) for name in names], limit, cursor), context)


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


def test_a_cursor_must_be_at_one_of_the_named_topics() -> None:
    """DescribeTopicPartitionsRequestHandler refuses another one, and with it every topic."""
    found = page(MOST, Cursor("b", 0), "a", "c")
    assert [(one.name, one.error_code) for one in found.topics] == [
        ("a", ErrorCode.INVALID_REQUEST),
        ("c", ErrorCode.INVALID_REQUEST),
    ]
    assert named(page(MOST, Cursor("b", 1), "b", "c")) == [("b", [1]), ("c", [0])]
