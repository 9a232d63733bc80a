"""Records beside a fetch response: the receiver sees the message that protobuf itself would have sent."""

from __future__ import annotations

import grpc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegauge.v1 import fetch_pb2
from tidegauge_broker.server.wire.grpc import records_response
from tidegauge_broker.server.wire.grpc.records_response import RecordsResponse, serialize, whole

RECORDS = st.one_of(st.binary(max_size=3), st.sampled_from([127, 128, 16_383, 16_384]).map(bytes))


@given(st.lists(st.tuples(st.text(max_size=5), st.integers(0, 2**40), RECORDS), max_size=4))
def test_it_is_the_message_that_protobuf_would_have_made(given_parts: list[tuple[str, int, bytes]]) -> None:
    """Lengths at the borders of protobuf's varints, partitions without records, and none at all."""
    results = [
        (fetch_pb2.FetchPartitionResult(topic=topic, high_watermark=mark), records)
        for topic, mark, records in given_parts
    ]
    client = RecordsResponse(fetch_pb2.FetchResponse(), results)
    follower = RecordsResponse(fetch_pb2.ReplicaFetchResponse(request_id=7), results)
    follower.logical_time = 5
    expected = [
        fetch_pb2.FetchPartitionResult(topic=topic, high_watermark=mark, records=records or None)
        for topic, mark, records in given_parts
    ]
    assert whole(client) == fetch_pb2.FetchResponse(partitions=expected)
    as_follower = fetch_pb2.ReplicaFetchResponse(request_id=7, logical_time=5, partitions=expected)
    assert fetch_pb2.ReplicaFetchResponse.FromString(serialize(follower)) == as_follower
    assert (follower.request_id, follower.logical_time) == (7, 5)


def test_a_response_that_is_serialized_lets_go_of_its_records() -> None:
    response = RecordsResponse(fetch_pb2.FetchResponse(), [(fetch_pb2.FetchPartitionResult(topic="t"), b"records")])
    assert b"records" in serialize(response)
    assert whole(response) == fetch_pb2.FetchResponse()


@pytest.mark.parametrize(("method", "is_changed"), [("Fetch", True), ("ReplicaFetch", True), ("Metadata", False)])
def test_methods_that_fetch_serialize_both_forms(method: str, *, is_changed: bool) -> None:
    """An error that the lab injects makes an ordinary message of the response."""
    handler = grpc.unary_unary_rpc_method_handler(
        lambda request, _context: request, fetch_pb2.FetchRequest.FromString, fetch_pb2.FetchResponse.SerializeToString
    )
    found = records_response.around(method, handler)
    assert (found is not handler) == is_changed
    message = fetch_pb2.FetchResponse(partitions=[fetch_pb2.FetchPartitionResult(topic="t")])
    assert found.response_serializer(message) == message.SerializeToString()
