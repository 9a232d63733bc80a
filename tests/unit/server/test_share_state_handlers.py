"""The handlers of states and offsets of share groups: what reaches the coordinator, and what becomes of its results."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from kafka_service import FakeService, ask
from tests.wire_responses.probe import message

from tidegauge.control import Endpoint
from tidegauge.errors import ErrorCode
from tidegauge.share_groups import (
    AlteredOffset,
    AlterShareOffsets,
    AlterShareOffsetsResult,
    DeleteShareState,
    InitializeShareState,
    ReadShareState,
    ReadShareSummary,
    SharePartitionKey,
    ShareStateResult,
    StateBatch,
    WriteShareState,
)
from tidegauge_broker.server.service.group_service import FoundCoordinator
from tidegauge_broker.server.service.share_group_service import ShareOffset, ShareOffsets, TopicShareOffsets

TOPIC, OTHER = bytes(15) + b"t", bytes(15) + b"u"
KEY = SharePartitionKey("g", TOPIC, 0)
BATCH = StateBatch(3, 5, 2, 1)
STORED = {"first_offset": 3, "last_offset": 5, "delivery_state": 2, "delivery_count": 1}
FENCED = ErrorCode.FENCED_LEADER_EPOCH


class Coordinator:
    """A share coordinator that notes requests, and responds by partition."""

    def __init__(self, **results: ShareStateResult) -> None:
        self.asked: list[Any] = []
        self.results = results

    async def ask(self, request: Any) -> ShareStateResult:
        self.asked.append(request)
        return self.results.get(f"p{request.key.partition}", ShareStateResult())

    def service(self) -> FakeService:
        return FakeService(groups=SimpleNamespace(shares=self))


@pytest.mark.parametrize(
    ("api", "version", "part", "expected"),
    [
        ("InitializeShareGroupState", 0, {"state_epoch": 2, "start_offset": 7}, InitializeShareState(KEY, 2, 7)),
        ("ReadShareGroupState", 0, {"leader_epoch": 4}, ReadShareState(KEY, 4)),
        (
            *("WriteShareGroupState", 1),
            {
                "state_epoch": 2,
                "leader_epoch": 4,
                "start_offset": 3,
                "delivery_complete_count": 3,
                "state_batches": [STORED],
            },
            WriteShareState(KEY, 2, 4, 3, 3, (BATCH,)),
        ),
        ("WriteShareGroupState", 0, {"state_epoch": 2, "leader_epoch": 4}, WriteShareState(KEY, 2, 4, 0, -1)),
        ("DeleteShareGroupState", 0, {}, DeleteShareState(KEY)),
        ("ReadShareGroupStateSummary", 1, {"leader_epoch": 4}, ReadShareSummary(KEY, 4)),
    ],
)
async def test_each_share_partition_is_asked_for_by_itself(
    api: str, version: int, part: dict[str, Any], expected: Any
) -> None:
    """ShareCoordinatorService splits a request; one partition's error leaves the others."""
    coordinator = Coordinator(p1=ShareStateResult(FENCED, "old"))
    topics = [
        {"topic_id": TOPIC, "partitions": [{"partition": 0, **part}, {"partition": 1, **part}]},
        {"topic_id": OTHER, "partitions": [{"partition": 0, **part}]},
    ]
    response = await ask(coordinator.service(), api, version, message(api, group_id="g", topics=topics))
    assert coordinator.asked[0] == expected
    assert [one.key for one in coordinator.asked] == [KEY, KEY._replace(partition=1), KEY._replace(topic_id=OTHER)]
    found = [
        (bytes(topic.topic_id), one.partition, one.error_code, one.error_message)
        for topic in response.results
        for one in topic.partitions
    ]
    assert found == [(TOPIC, 0, 0, None), (TOPIC, 1, FENCED, "old"), (OTHER, 0, 0, None)]


@pytest.mark.parametrize("api", ["InitializeShareGroupState", "WriteShareGroupState", "DeleteShareGroupState"])
async def test_a_request_without_a_group_has_an_empty_response(api: str) -> None:
    """ShareCoordinatorService: isGroupIdEmpty."""
    coordinator = Coordinator()
    topics = [{"topic_id": TOPIC, "partitions": [{"partition": 0}]}]
    response = await ask(coordinator.service(), api, 0, message(api, group_id="", topics=topics))
    assert (list(response.results), coordinator.asked) == ([], [])


async def test_a_state_that_was_read_is_in_the_response() -> None:
    state = ShareStateResult(state_epoch=2, leader_epoch=4, start_offset=3, complete_count=5, batches=(BATCH,))
    coordinator = Coordinator(p0=state)
    topics = [{"topic_id": TOPIC, "partitions": [{"partition": 0}]}]
    read, summary = [
        (await ask(coordinator.service(), api, 0, message(api, group_id="g", topics=topics))).results[0].partitions[0]
        for api in ("ReadShareGroupState", "ReadShareGroupStateSummary")
    ]
    assert (read.state_epoch, read.start_offset) == (2, 3)
    assert [{name: getattr(one, name) for name in STORED} for one in read.state_batches] == [STORED]
    assert (summary.state_epoch, summary.leader_epoch, summary.start_offset) == (2, 4, 3)


async def test_offsets_are_described_by_group() -> None:
    """DescribeShareGroupOffsets: without topics all that are initialized are asked for."""
    asked: list[Any] = []

    async def describe_offsets(group_id: str, wanted: Any) -> ShareOffsets:
        asked.append((group_id, wanted))
        if group_id == "away":
            return ShareOffsets(ErrorCode.NOT_COORDINATOR)
        return ShareOffsets(topics=[TopicShareOffsets("t", TOPIC, [ShareOffset(0, 4, 1, 6)])])

    service = FakeService(groups=SimpleNamespace(shares=SimpleNamespace(describe_offsets=describe_offsets)))
    groups = [
        {"group_id": "g", "topics": None},
        {"group_id": "h", "topics": [{"topic_name": "t", "partitions": [0]}]},
        {"group_id": "away", "topics": None},
    ]
    request = message("DescribeShareGroupOffsets", groups=groups)
    response = await ask(service, "DescribeShareGroupOffsets", 1, request)
    assert [(group_id, wanted and dict(wanted)) for group_id, wanted in asked] == [
        ("g", None),
        ("h", {"t": (0,)}),
        ("away", None),
    ]
    first, _, away = response.groups
    (partition,) = first.topics[0].partitions
    assert (partition.start_offset, partition.leader_epoch, partition.lag) == (4, 1, 6)
    assert (away.error_code, list(away.topics)) == (ErrorCode.NOT_COORDINATOR, [])


async def test_a_topic_that_does_not_exist_is_refused_before_the_group_is_looked_at() -> None:
    """KafkaApis.handleAlterShareGroupOffsetsRequest: the coordinator gets the topics that exist."""
    asked: list[Any] = []

    async def altered(request: Any) -> AlterShareOffsetsResult:
        asked.append(request)
        return AlterShareOffsetsResult(partitions={"t": {0: AlteredOffset()}})

    shares = SimpleNamespace(topic_id=lambda name: TOPIC if name == "t" else bytes(16))
    service = FakeService(groups=SimpleNamespace(ask=altered, shares=shares))
    topics = [
        {"topic_name": name, "partitions": [{"partition_index": 0, "start_offset": 3}]} for name in ("nosuch", "t")
    ]
    request = message("AlterShareGroupOffsets", group_id="g", topics=topics)
    response = await ask(service, "AlterShareGroupOffsets", 0, request)
    assert asked == [AlterShareOffsets("g", {"t": {0: 3}})]
    assert [(one.topic_name, bytes(one.topic_id), one.partitions[0].error_code) for one in response.responses] == [
        ("nosuch", bytes(16), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("t", TOPIC, 0),
    ]


async def test_share_partitions_have_a_coordinator_from_version_6_on() -> None:
    """KafkaApis.getCoordinator: INVALID_REQUEST below, whatever the key."""
    asked: list[Any] = []

    def find_coordinator(_caller: Any, key_type: int, key: str) -> FoundCoordinator:
        asked.append((key_type, key))
        return FoundCoordinator(key, endpoint=Endpoint(1, "h", 9092))

    service = FakeService(groups=SimpleNamespace(find_coordinator=find_coordinator))
    for version, error, node in ((5, ErrorCode.INVALID_REQUEST, -1), (6, ErrorCode.NONE, 1)):
        request = message("FindCoordinator", key_type=2, coordinator_keys=[str(KEY)])
        (found,) = (await ask(service, "FindCoordinator", version, request)).coordinators
        assert (found.error_code, found.node_id) == (error, node)
    assert asked == [(2, str(KEY))]
