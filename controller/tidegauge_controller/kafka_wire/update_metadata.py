"""UpdateMetadata (6): sent as version 8, read as 0 to 8; the package describes ``type``.

A leader of -2 marks a partition that is being deleted. Brokers come with all their listeners; a Kafka broker has none
that speaks gRPC. Not transmitted of the plain value: the replicas that a reassignment adds and removes.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from tidegauge.cluster_metadata import PartitionState
from tidegauge.control import ControlHeader, Endpoint, UpdateMetadataRequest
from tidegauge.kafka.messages import update_metadata as kafka
from tidegauge.kafka.topic_ids import topic_id_bytes
from tidegauge.listeners import PLAINTEXT, Listener
from tidegauge.metadata_update import ReportedPartition
from tidegauge.partition import TopicPartition
from tidegauge_controller.kafka_wire import FULL, INCREMENTAL, by_topic, states_of

VERSION = 8
"""The version of ``inter.broker.protocol.version`` 3.4 and later."""
_DURING_DELETE = -2
"""``LeaderAndIsr.LeaderDuringDelete``."""
_PROTOCOLS = {PLAINTEXT: 0, "SSL": 1, "SASL_PLAINTEXT": 2, "SASL_SSL": 3}
"""Numbers of ``SecurityProtocol``."""
_PROTOCOL_NAMES = {number: name for name, number in _PROTOCOLS.items()}


def to_request(request: UpdateMetadataRequest, listeners: Collection[str] = ()) -> kafka.UpdateMetadataRequest:
    """Return Kafka's message, with the partitions of a topic together.

    Args:
        request: the plain value.
        listeners: names of the listeners of which the receiver gets addresses; empty: all.
    """
    header = request.header
    return kafka.UpdateMetadataRequest(
        controller_id=header.controller_id,
        type=FULL if request.startup_complete else INCREMENTAL,
        controller_epoch=header.controller_epoch,
        broker_epoch=header.broker_epoch,
        topic_states=[
            kafka.UpdateMetadataTopicState(topic, topic_id_bytes(topic_id), [_to_state(entry) for entry in entries])
            for (topic, topic_id), entries in by_topic(request.partitions).items()
        ],
        live_brokers=[_to_broker(one, listeners) for one in request.live_brokers],
    )


def _to_state(entry: ReportedPartition) -> kafka.UpdateMetadataPartitionState:
    state = entry.state
    return kafka.UpdateMetadataPartitionState(
        partition_index=state.topic_partition.partition,
        controller_epoch=state.controller_epoch,
        leader=_DURING_DELETE if entry.deleted else state.leader,
        leader_epoch=state.leader_epoch,
        isr=state.isr,
        zk_version=state.partition_epoch,
        replicas=state.replicas,
        offline_replicas=entry.offline_replicas,
    )


def _to_broker(endpoint: Endpoint, listeners: Collection[str]) -> kafka.UpdateMetadataBroker:
    return kafka.UpdateMetadataBroker(
        id=endpoint.broker_id,
        endpoints=[
            kafka.UpdateMetadataEndpoint(
                one.port, one.host, one.name, _PROTOCOLS.get(endpoint.protocols.get(one.name, PLAINTEXT), 0)
            )
            for one in endpoint.listeners
            if not listeners or one.name in listeners
        ],
        rack=endpoint.rack,
    )


def from_request(message: kafka.UpdateMetadataRequest, listener: str) -> UpdateMetadataRequest:
    """Read Kafka's message.

    Args:
        message: of any version.
        listener: name of the listener through which brokers reach one another. A broker without it gets the address of
            its first listener.
    """
    return UpdateMetadataRequest(
        ControlHeader(message.controller_id, message.controller_epoch, message.broker_epoch),
        [_from_state(*one) for one in states_of(message)],
        [_from_broker(one, listener) for one in message.live_brokers],
        startup_complete=message.type != INCREMENTAL,
    )


def _from_state(topic: str, topic_id: str, state: kafka.UpdateMetadataPartitionState) -> ReportedPartition:
    return ReportedPartition(
        PartitionState(
            TopicPartition(topic, state.partition_index),
            topic_id,
            state.controller_epoch,
            state.leader,
            state.leader_epoch,
            tuple(state.isr),
            state.zk_version,
            tuple(state.replicas),
        ),
        tuple(state.offline_replicas),
        deleted=state.leader == _DURING_DELETE,
    )


def _from_broker(one: kafka.UpdateMetadataBroker, listener: str) -> Endpoint:
    found = list(_listeners(one))
    listeners = tuple(at for at, _ in found)
    at = next((one for one in listeners if one.name == listener), listeners[0] if listeners else Listener("", "", 0))
    protocols = {at.name: protocol for at, protocol in found}
    return Endpoint(one.id, at.host, at.port, one.rack or None, listeners, protocols)


def _listeners(one: kafka.UpdateMetadataBroker) -> Iterator[tuple[Listener, str]]:
    """Yield each listener with its protocol; before version 3 it is called by its protocol, before 1 PLAINTEXT."""
    if one.v0_host:
        yield Listener(PLAINTEXT, one.v0_host, one.v0_port), PLAINTEXT
    for at in one.endpoints:
        protocol = _PROTOCOL_NAMES.get(at.security_protocol, PLAINTEXT)
        yield Listener(at.listener or protocol, at.host, at.port), protocol
