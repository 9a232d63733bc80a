"""kafka_wire: each control message survives its way over Kafka's own protocol, in every version that carries it."""

from __future__ import annotations

import base64
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidegauge.cluster_metadata import PartitionState
from tidegauge.control import (
    NO_LEADER,
    AlterPartitionRequest,
    AlterPartitionResponse,
    ControlHeader,
    Endpoint,
    IsrProposal,
    IsrVerdict,
    LeaderAndIsrPartition,
    LeaderAndIsrRequest,
    PartitionsResponse,
    StopReplicaPartition,
    StopReplicaRequest,
    UpdateMetadataRequest,
)
from tidegauge.errors import ErrorCode
from tidegauge.kafka import apis
from tidegauge.kafka.frames import decode, encode, joined
from tidegauge.kafka.messages import leader_and_isr as roles
from tidegauge.kafka.messages import stop_replica as stops
from tidegauge.kafka.messages import update_metadata as metadata
from tidegauge.listeners import Listener
from tidegauge.metadata_update import ReportedPartition
from tidegauge.partition import TopicPartition
from tidegauge_controller.kafka_wire import FULL, INCREMENTAL, OF_KAFKA
from tidegauge_controller.kafka_wire import alter_partition as kafka_alter_partition
from tidegauge_controller.kafka_wire import leader_and_isr as kafka_leader_and_isr
from tidegauge_controller.kafka_wire import stop_replica as kafka_stop_replica
from tidegauge_controller.kafka_wire import update_metadata as kafka_update_metadata

HEADER = ControlHeader(2, 7, 2**40)
LISTENER = "INTERNAL"
few = settings(max_examples=20, deadline=None)
int32s = st.integers(-(2**31), 2**31 - 1)
broker_ids = st.integers(0, 2**31 - 1)
ids = st.lists(broker_ids, max_size=4).map(tuple)
epochs = st.integers(0, 2**31 - 1)
topic_ids = st.binary(min_size=16, max_size=16).filter(any).map(lambda raw: base64.urlsafe_b64encode(raw)[:22].decode())
names = st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=1, max_size=20)
headers = st.builds(ControlHeader, int32s, int32s, st.integers(-(2**63), 2**63 - 1))


def on_the_wire(key: int, version: int, message: Any, *, response: bool = False) -> Any:
    """Return what the other end decodes."""
    return decode(key, version, memoryview(joined(encode(key, version, message))), response=response)[0]


@st.composite
def states(draw: Callable[[Any], Any], topics: dict[str, str]) -> PartitionState:
    topic = draw(st.sampled_from(sorted(topics)))
    return PartitionState(
        TopicPartition(topic, draw(epochs)),
        topics[topic],
        draw(epochs),
        draw(st.one_of(broker_ids, st.just(NO_LEADER))),
        draw(epochs),
        draw(ids),
        draw(epochs),
        draw(ids),
        draw(ids),
        draw(ids),
        draw(st.booleans()),
    )


@st.composite
def state_lists(draw: Callable[[Any], Any]) -> list[PartitionState]:
    """Return states of several topics, grouped by topic, each partition once."""
    topics = draw(st.dictionaries(names, topic_ids, min_size=1, max_size=3))
    by_id = {topic_id: name for name, topic_id in topics.items()}
    unique = {name: topic_id for topic_id, name in by_id.items()}
    found = draw(st.lists(states(unique), max_size=3, unique_by=lambda one: one.topic_partition))
    order = {name: at for at, name in enumerate(dict.fromkeys(one.topic_partition.topic for one in found))}
    return sorted(found, key=lambda one: order[one.topic_partition.topic])


endpoints = st.builds(
    lambda broker_id, host, port, rack: Endpoint(
        broker_id,
        host,
        port,
        rack,
        (Listener("PLAINTEXT", "10.0.0.1", 9092), Listener(LISTENER, host, port), Listener("GRPC", "h", 19092)),
    ),
    broker_ids,
    names,
    st.integers(1, 65_535),
    st.one_of(st.none(), names),
)


@few
@given(headers, state_lists(), st.lists(st.tuples(broker_ids, names, st.integers(1, 65_535))), st.data())
def test_leader_and_isr_keeps_everything(
    header: ControlHeader, found: list[PartitionState], leaders: list[tuple[int, str, int]], data: st.DataObject
) -> None:
    entries = [LeaderAndIsrPartition(state, data.draw(st.booleans())) for state in found]
    understands = data.draw(st.booleans())
    request = LeaderAndIsrRequest(header, entries, [Endpoint(*one) for one in leaders], understands)
    sent = on_the_wire(apis.LEADER_AND_ISR, 7, kafka_leader_and_isr.to_request(request))
    assert kafka_leader_and_isr.from_request(sent) == request


@few
@given(headers, state_lists(), st.lists(endpoints, max_size=3), st.data())
def test_update_metadata_keeps_everything_but_a_reassignments_replicas(
    header: ControlHeader, found: list[PartitionState], live: list[Endpoint], data: st.DataObject
) -> None:
    entries = []
    for state in found:
        deleted = data.draw(st.booleans())
        carried = replace(state, adding_replicas=(), removing_replicas=(), recovering=False)
        carried = replace(carried, leader=-2) if deleted else carried
        entries.append(ReportedPartition(carried, data.draw(ids), deleted))
    request = UpdateMetadataRequest(header, entries, live, data.draw(st.booleans()))
    sent = on_the_wire(apis.UPDATE_METADATA, 8, kafka_update_metadata.to_request(request))
    assert kafka_update_metadata.from_request(sent, LISTENER) == request


@few
@given(headers, st.lists(st.tuples(names, epochs, st.one_of(st.none(), epochs), st.booleans()), max_size=6))
def test_stop_replica_keeps_everything(header: ControlHeader, found: list[tuple[str, int, int | None, bool]]) -> None:
    entries = [StopReplicaPartition(TopicPartition(name, at), epoch, delete) for name, at, epoch, delete in found]
    order = {name: at for at, name in enumerate(dict.fromkeys(name for name, *_ in found))}
    entries.sort(key=lambda one: order[one.topic_partition.topic])
    request = StopReplicaRequest(header, entries)
    sent = on_the_wire(apis.STOP_REPLICA, 4, kafka_stop_replica.to_request(request))
    assert kafka_stop_replica.from_request(sent) == request


@few
@given(state_lists(), st.data())
def test_responses_to_roles_come_back_by_topic_id(found: list[PartitionState], data: st.DataObject) -> None:
    request = LeaderAndIsrRequest(HEADER, [LeaderAndIsrPartition(state, is_new=False) for state in found], [])
    errors = {state.topic_partition: data.draw(st.sampled_from(list(ErrorCode))) for state in found}
    for version in (4, 5, 7):
        message = kafka_leader_and_isr.to_response(request, PartitionsResponse(partitions=errors), version)
        sent = on_the_wire(apis.LEADER_AND_ISR, version, message, response=True)
        assert kafka_leader_and_isr.from_response(request, sent) == PartitionsResponse(partitions=errors)


def test_a_request_of_roles_that_failed_as_a_whole_names_its_partitions_and_says_nothing_of_them() -> None:
    """``LeaderAndIsrRequest.getErrorResponse``; KafkaController.processLeaderAndIsrResponseReceived."""
    state = PartitionState(TopicPartition("orders", 1), "B" * 22, 1, 0, 3, (0, 1), 5, (0, 1))
    request = LeaderAndIsrRequest(HEADER, [LeaderAndIsrPartition(state, is_new=True)], [])
    refused = PartitionsResponse(ErrorCode.STALE_CONTROLLER_EPOCH)
    message = kafka_leader_and_isr.to_response(request, refused, 7)
    assert [one.error_code for one in message.topics[0].partition_errors] == [ErrorCode.STALE_CONTROLLER_EPOCH]
    assert kafka_leader_and_isr.from_response(request, message) == refused


def test_kafkas_controller_understands_no_ineligible_replica() -> None:
    """AbstractControlRequest.Type: a controller in ZooKeeper mode sends UNKNOWN."""
    assert not kafka_leader_and_isr.from_request(roles.LeaderAndIsrRequest(type=OF_KAFKA)).understands_ineligible
    assert kafka_leader_and_isr.from_request(roles.LeaderAndIsrRequest(type=INCREMENTAL)).understands_ineligible


@pytest.mark.parametrize(("type_", "complete"), [(OF_KAFKA, True), (INCREMENTAL, False), (FULL, True)])
def test_a_start_is_over_with_the_first_metadata_of_kafkas_controller(type_: int, complete: bool) -> None:
    message = metadata.UpdateMetadataRequest(type=type_)
    assert kafka_update_metadata.from_request(message, LISTENER).startup_complete is complete


@pytest.mark.parametrize("version", range(5))
def test_roles_of_old_versions_have_no_topic_ids(version: int) -> None:
    state = roles.LeaderAndIsrPartitionState(
        topic_name="orders" if version < 2 else "", partition_index=3, leader=1, leader_epoch=4, isr=[1], replicas=[1]
    )
    topics = [roles.LeaderAndIsrTopicState("orders", partition_states=[state])]
    message = roles.LeaderAndIsrRequest(ungrouped_partition_states=[state], topic_states=topics)
    sent = kafka_leader_and_isr.from_request(on_the_wire(apis.LEADER_AND_ISR, version, message))
    assert [(one.state.topic_partition, one.state.topic_id) for one in sent.partitions] == [
        (TopicPartition("orders", 3), "")
    ]


@pytest.mark.parametrize("version", range(9))
def test_metadata_of_every_version_has_the_brokers_and_the_deleted_partition(version: int) -> None:
    """UpdateMetadataRequest's constructor: a listener without a name is called by its security protocol."""
    state = metadata.UpdateMetadataPartitionState(
        topic_name="orders" if version < 5 else "", partition_index=2, leader=-2, isr=[1], replicas=[1]
    )
    broker = metadata.UpdateMetadataBroker(
        4, "h" if version == 0 else "", 9, [metadata.UpdateMetadataEndpoint(9, "h", "SSL" if version > 2 else "", 1)]
    )
    message = metadata.UpdateMetadataRequest(
        ungrouped_partition_states=[state],
        topic_states=[metadata.UpdateMetadataTopicState("orders", partition_states=[state])],
        live_brokers=[broker],
    )
    sent = kafka_update_metadata.from_request(on_the_wire(apis.UPDATE_METADATA, version, message), "SSL")
    assert [(one.state.topic_partition, one.deleted) for one in sent.partitions] == [
        (TopicPartition("orders", 2), True)
    ]
    name = "PLAINTEXT" if version == 0 else "SSL"
    assert sent.live_brokers == [Endpoint(4, "h", 9, None, (Listener(name, "h", 9),))]
    assert sent.live_brokers[0].protocols == {name: name}


@pytest.mark.parametrize("version", range(5))
def test_stops_of_every_version(version: int) -> None:
    message = stops.StopReplicaRequest(
        delete_partitions=version < 3,
        ungrouped_partitions=[stops.StopReplicaPartitionV0("orders", 1)],
        topics=[stops.StopReplicaTopicV1("orders", [1])],
        topic_states=[stops.StopReplicaTopicState("orders", [stops.StopReplicaPartitionState(1, -2, True)])],
    )
    sent = kafka_stop_replica.from_request(on_the_wire(apis.STOP_REPLICA, version, message))
    assert sent.partitions == [StopReplicaPartition(TopicPartition("orders", 1), None, delete=True)]


def test_a_stale_broker_epoch_stands_at_each_stopped_replica() -> None:
    """``StopReplicaRequest.getErrorResponse``: the controller's deletion of a topic reads the partitions alone."""
    at = TopicPartition("orders", 1)
    request = StopReplicaRequest(HEADER, [StopReplicaPartition(at, None, delete=True)])
    message = kafka_stop_replica.to_response(request, PartitionsResponse(ErrorCode.STALE_BROKER_EPOCH))
    sent = kafka_stop_replica.from_response(on_the_wire(apis.STOP_REPLICA, 4, message, response=True))
    assert sent == PartitionsResponse(ErrorCode.STALE_BROKER_EPOCH, {at: ErrorCode.STALE_BROKER_EPOCH})


@st.composite
def proposals(draw: Callable[[Any], Any]) -> list[IsrProposal]:
    found = []
    for state in draw(state_lists()):
        isr = draw(ids.filter(bool))
        joiner = draw(st.one_of(st.just(-1), st.integers(0, 2**60)))
        found.append(
            IsrProposal(
                state.topic_partition,
                state.topic_id,
                state.leader_epoch,
                isr,
                state.partition_epoch,
                state.recovering,
                joiner,
            )
        )
    return found


@few
@given(st.integers(0, 10), st.integers(-1, 2**60), proposals())
def test_alter_partition_keeps_everything(broker_id: int, broker_epoch: int, found: list[IsrProposal]) -> None:
    request = AlterPartitionRequest(broker_id, broker_epoch, found)
    known = {one.topic_id: one.topic_partition.topic for one in found}
    sent = on_the_wire(apis.ALTER_PARTITION, 3, kafka_alter_partition.to_request(request))
    assert kafka_alter_partition.from_request(sent, 3, known.get) == (request, [])


@few
@given(proposals(), st.data())
def test_verdicts_come_back_by_topic_id(found: list[IsrProposal], data: st.DataObject) -> None:
    request = AlterPartitionRequest(0, 1, found)
    verdicts = []
    for one in found:
        error = data.draw(st.sampled_from([ErrorCode.NONE, ErrorCode.NONE, *ErrorCode]))
        at = one.topic_partition
        state = IsrVerdict(at, ErrorCode.NONE, at.partition, 5, one.new_isr, 7, data.draw(st.booleans()))
        verdicts.append(IsrVerdict(at, error) if error else state)
    message = kafka_alter_partition.to_response(request, AlterPartitionResponse(partitions=verdicts), 3)
    sent = on_the_wire(apis.ALTER_PARTITION, 3, message, response=True)
    assert kafka_alter_partition.from_response(request, sent) == AlterPartitionResponse(partitions=verdicts)


def test_a_proposal_for_an_unknown_topic_id_is_refused_beside_the_others() -> None:
    at = TopicPartition("orders", 1)
    found = [IsrProposal(at, "B" * 21 + "A", 4, (0,), 3), IsrProposal(at, "C" * 21 + "A", 4, (0,), 3)]
    sent = on_the_wire(apis.ALTER_PARTITION, 3, kafka_alter_partition.to_request(AlterPartitionRequest(0, 1, found)))
    request, unknown = kafka_alter_partition.from_request(sent, 3, {"C" * 21 + "A": "orders"}.get)
    assert request.partitions == found[1:]
    message = kafka_alter_partition.to_response(
        request, AlterPartitionResponse(partitions=[IsrVerdict(at, ErrorCode.FENCED_LEADER_EPOCH)]), 3, unknown
    )
    errors = [one.error_code for topic in message.topics for one in topic.partitions]
    assert errors == [ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.FENCED_LEADER_EPOCH]


def test_an_ineligible_member_is_an_operation_not_attempted_before_version_2() -> None:
    """KafkaController.processAlterPartition."""
    request = AlterPartitionRequest(0, 1, [IsrProposal(TopicPartition("orders", 1), "", 4, (0, 1), 3)])
    refused = AlterPartitionResponse(partitions=[IsrVerdict(TopicPartition("orders", 1), ErrorCode.INELIGIBLE_REPLICA)])
    for version, error in ((1, ErrorCode.OPERATION_NOT_ATTEMPTED), (2, ErrorCode.INELIGIBLE_REPLICA)):
        message = kafka_alter_partition.to_response(request, refused, version)
        assert message.topics[0].partitions[0].error_code == error
