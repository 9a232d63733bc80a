"""The APIs of the controller for brokers: registration, heartbeats, ISR changes, directories, producer ids.

Source: ``ControllerApis.handleBrokerRegistration``, ``handleBrokerHeartBeatRequest``, ``handleUnregisterBroker``,
``handleAlterPartitionRequest``, ``handleAssignReplicasToDirs``, ``handleAllocateProducerIdsRequest``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from tidegauge.kafka.kraft import apis
from tidegauge.kafka.kraft.messages import (
    allocate_producer_ids,
    alter_partition,
    assign_replicas_to_dirs,
    broker_heartbeat,
    broker_registration,
    unregister_broker,
)
from tidegauge.kafka.topic_ids import topic_id_bytes, topic_id_text
from tidegauge_broker.server.quorum.calls import Call, Served
from tidegauge_broker.server.quorum.controller.events import WriteEvent
from tidegauge_broker.server.quorum.controller.large_requests import prepared
from tidegauge_broker.server.quorum.controller.quorum_controller import QuorumController
from tidegauge_controller.metadata.active import ActiveController
from tidegauge_controller.metadata.decisions import activation, brokers, partitions, registration
from tidegauge_controller.metadata.decisions.view import Decision
from tidegauge_controller.metadata.delta import RECOVERED, RECOVERING
from tidegauge_controller.metadata.image import FeatureRange, NodeEndpoint

_WITH_EPOCHS = 3
"""The version of AlterPartition from which ISR members have broker epochs (KIP-903)."""


def served(controller: QuorumController, heartbeat_timeout_ms: int) -> list[Served]:
    """Return the APIs.

    Args:
        controller: the controller.
        heartbeat_timeout_ms: how long a heartbeat may wait for its turn.
    """
    return [
        Served(apis.BROKER_REGISTRATION, prepared(controller, partial(_register, controller))),
        Served(apis.BROKER_HEARTBEAT, _heartbeats(controller, heartbeat_timeout_ms)),
        Served(apis.UNREGISTER_BROKER, partial(_unregister, controller), is_forwarded=True),
        Served(apis.ALTER_PARTITION, prepared(controller, _alter_partition)),
        Served(apis.ASSIGN_REPLICAS_TO_DIRS, prepared(controller, _assign_directories)),
        Served(apis.ALLOCATE_PRODUCER_IDS, partial(_allocate_producer_ids, controller), is_forwarded=True),
    ]


def _register(controller: QuorumController, call: Call) -> WriteEvent:
    """Register a broker, unless its connection has closed while the request waited for its turn.

    The process that sent it may be dead, and the next one of this broker registered already: Kafka would give the dead
    one an epoch, and the live one would send heartbeats with a stale epoch for ever (BrokerLifecycleManager).
    """
    message: broker_registration.BrokerRegistrationRequest = call.message
    request = registration.RegistrationRequest(
        message.broker_id,
        message.cluster_id,
        topic_id_text(message.incarnation_id),
        tuple(NodeEndpoint(one.name, one.host, one.port, one.security_protocol) for one in message.listeners),
        {one.name: FeatureRange(one.min_supported_version, one.max_supported_version) for one in message.features},
        message.rack,
        _texts(message.log_dirs),
        message.previous_broker_epoch,
        message.is_migrating_zk_broker,
    )

    def decide(active: ActiveController, now_ms: int) -> Decision[int]:
        version = controller.kraft_version
        return registration.register_broker(active.view, active.heartbeats, request, version, now_ms)

    def done(epoch: int) -> None:
        call.respond(broker_registration.BrokerRegistrationResponse(broker_epoch=epoch))

    return WriteEvent("registerBroker", decide, done, call.refuse, partitions=None, is_wanted=call.is_open)


def _heartbeats(controller: QuorumController, timeout_ms: int) -> Callable[[Call], None]:
    """Return the handler of heartbeats.

    It notes a contact at once: a heartbeat that waits for its turn must not let its broker's session end.
    """
    handle = prepared(controller, partial(_heartbeat, controller, timeout_ms))

    def note_and_handle(call: Call) -> None:
        controller.contacted(call.message.broker_id, call.message.broker_epoch)
        handle(call)

    return note_and_handle


def _heartbeat(controller: QuorumController, timeout_ms: int, call: Call) -> WriteEvent:
    message: broker_heartbeat.BrokerHeartbeatRequest = call.message
    cordoned = message.cordoned_log_dirs
    request = brokers.HeartbeatRequest(
        message.broker_id,
        message.broker_epoch,
        message.current_metadata_offset,
        message.want_fence,
        message.want_shut_down,
        _texts(message.offline_log_dirs),
        None if cordoned is None else _texts(cordoned),
    )

    def decide(active: ActiveController, _: int) -> Decision[brokers.HeartbeatResponse]:
        return brokers.heartbeat(active.view, active.heartbeats, request)

    def appended(active: ActiveController, response: brokers.HeartbeatResponse, last_offset: int) -> None:
        if response.begins_shutdown:
            active.heartbeats.shutdown_began(request.broker_id, last_offset)

    def done(response: brokers.HeartbeatResponse) -> None:
        call.respond(
            broker_heartbeat.BrokerHeartbeatResponse(
                is_caught_up=response.is_caught_up,
                is_fenced=response.is_fenced,
                should_shut_down=response.should_shut_down,
            )
        )

    def expired(active: ActiveController) -> None:
        brokers.expired_heartbeat(active.view, active.heartbeats, request)

    deadline_ms = controller.now_ms + timeout_ms
    broker = controller.image.brokers.get(message.broker_id)
    changes = message.want_fence or message.want_shut_down or message.offline_log_dirs
    count = None if changes or broker is None or not broker.is_active else 0
    return WriteEvent("brokerHeartbeat", decide, done, call.refuse, appended, deadline_ms, expired, count)


def _unregister(controller: QuorumController, call: Call) -> None:
    message: unregister_broker.UnregisterBrokerRequest = call.message

    def done(_: None) -> None:
        call.respond(unregister_broker.UnregisterBrokerResponse(error_message=""))

    controller.write(
        WriteEvent(
            "unregisterBroker",
            lambda active, _: brokers.unregister(active.view, message.broker_id),
            done,
            call.refuse,
            partitions=None,
        )
    )


def _alter_partition(call: Call) -> WriteEvent | None:
    message: alter_partition.AlterPartitionRequest = call.message
    if not message.topics:  # the broker's epoch is not looked at (QuorumController.alterPartition)
        call.respond(alter_partition.AlterPartitionResponse())
        return None
    changes = [
        _isr_change(topic_id_text(topic.topic_id), one, has_epochs=call.version >= _WITH_EPOCHS)
        for topic in message.topics
        for one in topic.partitions
    ]

    def decide(active: ActiveController, _: int) -> Decision[list[partitions.IsrResult]]:
        return partitions.alter_partition(active.view, message.broker_id, message.broker_epoch, changes)

    def done(results: Sequence[partitions.IsrResult]) -> None:
        of_topics: dict[str, list[alter_partition.ResponsePartitionData]] = {}
        for one in results:
            of_topics.setdefault(one.topic_id, []).append(_isr_result(one))
        call.respond(
            alter_partition.AlterPartitionResponse(
                topics=[
                    alter_partition.ResponseTopicData(topic_id_bytes(topic_id), found)
                    for topic_id, found in of_topics.items()
                ]
            )
        )

    return WriteEvent("alterPartition", decide, done, call.refuse, partitions=len(changes))


def _isr_change(topic_id: str, one: alter_partition.PartitionData, *, has_epochs: bool) -> partitions.IsrChange:
    if has_epochs:
        members = tuple((member.broker_id, member.broker_epoch) for member in one.new_isr_with_epochs)
    else:
        members = tuple((member, partitions.ANY_EPOCH) for member in one.new_isr)
    return partitions.IsrChange(
        topic_id, one.partition_index, one.leader_epoch, one.partition_epoch, members, one.leader_recovery_state
    )


def _isr_result(one: partitions.IsrResult) -> alter_partition.ResponsePartitionData:
    state = one.state
    if state is None:
        return alter_partition.ResponsePartitionData(one.partition, one.error)
    return alter_partition.ResponsePartitionData(
        one.partition,
        one.error,
        state.leader,
        state.leader_epoch,
        state.isr,
        RECOVERING if state.recovering else RECOVERED,
        state.partition_epoch,
    )


def _assign_directories(call: Call) -> WriteEvent:
    message: assign_replicas_to_dirs.AssignReplicasToDirsRequest = call.message
    wanted: dict[str, list[tuple[str, int]]] = {}
    for directory in message.directories:
        of_directory = wanted.setdefault(topic_id_text(directory.id), [])
        for topic in directory.topics:
            of_directory += [(topic_id_text(topic.topic_id), one.partition_index) for one in topic.partitions]

    def decide(active: ActiveController, _: int) -> Decision[list[partitions.DirectoryResult]]:
        return partitions.assign_replicas_to_directories(active.view, message.broker_id, message.broker_epoch, wanted)

    def done(results: Sequence[partitions.DirectoryResult]) -> None:
        call.respond(assign_replicas_to_dirs.AssignReplicasToDirsResponse(directories=_directories(results)))

    count = sum(map(len, wanted.values()))
    return WriteEvent("assignReplicasToDirs", decide, done, call.refuse, partitions=count)


def _directories(
    results: Sequence[partitions.DirectoryResult],
) -> list[assign_replicas_to_dirs.ResponseDirectoryData]:
    found: dict[str, dict[str, list[assign_replicas_to_dirs.ResponsePartitionData]]] = {}
    for one in results:
        partition = assign_replicas_to_dirs.ResponsePartitionData(one.partition, one.error)
        found.setdefault(one.directory, {}).setdefault(one.topic_id, []).append(partition)
    return [
        assign_replicas_to_dirs.ResponseDirectoryData(
            topic_id_bytes(directory),
            [
                assign_replicas_to_dirs.ResponseTopicData(topic_id_bytes(topic_id), of_topic)
                for topic_id, of_topic in topics.items()
            ],
        )
        for directory, topics in found.items()
    ]


def _allocate_producer_ids(controller: QuorumController, call: Call) -> None:
    message: allocate_producer_ids.AllocateProducerIdsRequest = call.message

    def decide(active: ActiveController, _: int) -> Decision[tuple[int, int]]:
        return activation.allocate_producer_ids(active.view, message.broker_id, message.broker_epoch)

    def done(block: tuple[int, int]) -> None:
        first, length = block
        call.respond(allocate_producer_ids.AllocateProducerIdsResponse(producer_id_start=first, producer_id_len=length))

    controller.write(WriteEvent("allocateProducerIds", decide, done, call.refuse))


def _texts(uuids: Sequence[bytes]) -> tuple[str, ...]:
    return tuple(topic_id_text(bytes(one)) for one in uuids)
