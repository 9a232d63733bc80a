"""An error in place of what a request, or a real response, says: each item that is named has it."""

from __future__ import annotations

from typing import Any

import pytest

from tidegauge.errors import ErrorCode
from tidegauge.kafka import apis
from tidegauge.kafka.frames import decode, encode, joined
from tidegauge.kafka.messages.create_topics import CreatableTopic, CreateTopicsRequest
from tidegauge.kafka.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from tidegauge.kafka.messages.fetch import FetchableTopicResponse, FetchResponse, PartitionData
from tidegauge.kafka.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from tidegauge.kafka.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from tidegauge_broker.server.wire.kafka import error_responses
from tidegauge_broker.server.wire.kafka.served import SERVED

ERROR = int(ErrorCode.COORDINATOR_NOT_AVAILABLE)


def sent(key: int, version: int, response: Any) -> Any:
    """The response as its client reads it."""
    frame = memoryview(joined(encode(key, version, response)))
    return decode(key, version, frame, 0, response=True)[0]


def test_each_partition_of_a_commit_is_refused() -> None:
    request = OffsetCommitRequest(
        "g",
        topics=[OffsetCommitRequestTopic("t", partitions=[OffsetCommitRequestPartition(index) for index in (0, 3)])],
    )
    response = sent(apis.OFFSET_COMMIT, 8, SERVED[apis.OFFSET_COMMIT].refusal(8, request, ERROR))
    [topic] = response.topics
    assert topic.name == "t"
    assert [(one.partition_index, one.error_code) for one in topic.partitions] == [(0, ERROR), (3, ERROR)]


def test_each_topic_that_was_to_be_created_is_refused() -> None:
    request = CreateTopicsRequest([CreatableTopic("a"), CreatableTopic("b")])
    response = sent(apis.CREATE_TOPICS, 7, SERVED[apis.CREATE_TOPICS].refusal(7, request, ERROR))
    assert [(one.name, one.error_code) for one in response.topics] == [("a", ERROR), ("b", ERROR)]


@pytest.mark.parametrize(
    ("version", "request_of_it"),
    [(5, DeleteTopicsRequest(topic_names=["a"])), (6, DeleteTopicsRequest(topics=[DeleteTopicState("a")]))],
)
def test_topics_are_named_as_the_requests_version_names_them(version: int, request_of_it: DeleteTopicsRequest) -> None:
    found = SERVED[apis.DELETE_TOPICS].refusal(version, request_of_it, ERROR)
    response = sent(apis.DELETE_TOPICS, version, found)
    assert [(one.name, one.error_code) for one in response.responses] == [("a", ERROR)]


def test_markers_are_refused_partition_by_partition() -> None:
    markers = [WritableTxnMarker(7, topics=[WritableTxnMarkerTopic("t", [1, 2])])]
    request = WriteTxnMarkersRequest(markers)
    response = sent(apis.WRITE_TXN_MARKERS, 1, SERVED[apis.WRITE_TXN_MARKERS].refusal(1, request, ERROR))
    [marker] = response.markers
    assert marker.producer_id == 7
    assert [(one.partition_index, one.error_code) for one in marker.topics[0].partitions] == [(1, ERROR), (2, ERROR)]


def test_a_refused_partition_of_a_fetch_has_no_records_and_not_null() -> None:
    """FetchResponse.partitionResponse: MemoryRecords.EMPTY; librdkafka can't read null."""
    response = FetchResponse(responses=[FetchableTopicResponse("t", partitions=[PartitionData(0, records=b"some")])])
    error_responses.put(response, ERROR)
    [partition] = sent(apis.FETCH, 12, response).responses[0].partitions
    assert (partition.error_code, partition.high_watermark) == (ERROR, -1)
    assert partition.records is not None
    assert len(partition.records) == 0
