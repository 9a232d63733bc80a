"""Where an RPC's response has a place for an error (injected_responses.py), for every RPC that brokers offer."""

import pytest

from tidegauge.v1 import (
    common_pb2,
    control_pb2,
    fetch_pb2,
    lab_pb2,
    metadata_pb2,
    offsets_pb2,
    produce_pb2,
    topics_pb2,
    transaction_markers_pb2,
)
from tidegauge_broker.server.lab.injectable import check_error
from tidegauge_broker.server.wire.grpc import injected_responses as injection

ERROR = common_pb2.ERROR_CODE_NOT_LEADER_OR_FOLLOWER


def test_produce_names_each_partition_with_the_error_as_kafka_does():
    request = produce_pb2.ProduceRequest(
        correlation_id=7,
        partitions=[
            produce_pb2.ProducePartition(topic="t", partition=0, records=b"x"),
            produce_pb2.ProducePartition(topic="t", partition=3),
        ],
    )
    response = injection.refusal(ERROR, request, injection.empty_response("ProduceStream"))
    assert isinstance(response, produce_pb2.ProduceResponse)
    assert response.correlation_id == 7
    assert [(one.topic, one.partition, one.error) for one in response.partitions] == [("t", 0, ERROR), ("t", 3, ERROR)]
    assert not response.partitions[0].HasField("base_offset"), "a refusal has no offset"


def test_a_fetch_between_brokers_carries_it_for_the_whole():
    request = fetch_pb2.ReplicaFetchRequest(request_id=3, partitions=[fetch_pb2.FetchPartition(topic="t")])
    response = injection.refusal(ERROR, request, injection.empty_response("ReplicaFetch"))
    assert isinstance(response, fetch_pb2.ReplicaFetchResponse)
    assert (response.request_id, response.error, len(response.partitions)) == (3, ERROR, 0)


def test_control_requests_carry_it_for_the_whole():
    response = injection.refusal(ERROR, control_pb2.LeaderAndIsrRequest(), injection.empty_response("LeaderAndIsr"))
    assert isinstance(response, control_pb2.LeaderAndIsrResponse)
    assert response.error == ERROR


def test_a_response_with_a_status_carries_it_there():
    request = topics_pb2.ElectLeadersRequest(partitions=[topics_pb2.ElectPartition(topic="t", partition=0)])
    response = injection.refusal(ERROR, request, injection.empty_response("ElectLeaders"))
    assert isinstance(response, topics_pb2.ElectLeadersResponse)
    assert (response.status.error, response.status.message) == (ERROR, "injected by the lab")


def test_metadata_keeps_its_content_and_every_topic_gets_the_error():
    real = metadata_pb2.MetadataResponse(
        cluster_id="c",
        topics=[metadata_pb2.TopicMetadata(name="a"), metadata_pb2.TopicMetadata(name="b")],
    )
    injection.with_error(ERROR, real)
    assert real.cluster_id == "c"
    assert [(topic.name, topic.error) for topic in real.topics] == [("a", ERROR), ("b", ERROR)]


def test_after_its_effect_every_partition_of_the_real_response_gets_the_error():
    real = offsets_pb2.ListOffsetsResponse(partitions=[offsets_pb2.ListOffsetsResult(topic="t", partition=1)])
    injection.with_error(ERROR, real)
    assert real.partitions[0].error == ERROR


def test_markers_are_refused_with_the_error_in_each_partition_of_each():
    """WriteTxnMarkersRequest.getErrorResponse: errors by producer id and partition."""
    request = transaction_markers_pb2.WriteMarkersRequest()
    for producer_id in (4, 5):
        at = transaction_markers_pb2.TransactionPartition(topic="t", partition=producer_id)
        request.markers.add(producer_id=producer_id, producer_epoch=1, partitions=[at])
    response = injection.refusal(ERROR, request, injection.empty_response("WriteMarkers"))
    assert isinstance(response, transaction_markers_pb2.WriteMarkersResponse)
    found = [(one.producer_id, at.partition, at.status.error) for one in response.markers for at in one.partitions]
    assert found == [(4, 4, ERROR), (5, 5, ERROR)]
    real = transaction_markers_pb2.WriteMarkersResponse(markers=request.markers)
    assert injection.with_error(ERROR, real).markers[1].partitions[0].status.error == ERROR
    assert not injection.problem("WriteMarkers", after_effect=False)


@pytest.mark.parametrize("rpc", sorted(injection.METHODS))
def test_whatever_can_be_refused_is_refused_with_the_error_somewhere_in_its_response(rpc):
    """No RPC, present or future, is accepted for injection and then responds without the error."""
    if injection.problem(rpc, after_effect=False):
        check_error(lab_pb2.ErrorFault(rpc=rpc, grpc_status="UNAVAILABLE"))  # that is always possible
        return
    if injection.must_run(rpc):
        return  # made from the real response, see above
    method = injection.METHODS[rpc]
    request = injection.GetMessageClass(method.input_type)()
    if "markers" in method.input_type.fields_by_name:
        request.markers.add().partitions.add(topic="t", partition=2)
    elif not injection.is_for_the_whole(rpc):
        request.partitions.add(topic="t", partition=2)
    assert f"error: {common_pb2.ErrorCode.Name(ERROR)}" in str(
        injection.refusal(ERROR, request, injection.empty_response(rpc))
    )
