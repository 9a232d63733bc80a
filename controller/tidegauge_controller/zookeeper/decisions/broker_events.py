"""The controller's decisions about brokers that register, die, bounce and move.

A broker that registered again before its absence was noticed has a larger czxid: that is handled as a failure, then a
start-up. A broker that registers is not added to any ISR; the leaders do that once it has caught up. One whose
registration has other addresses has moved: all brokers are sent them, and so is what the controller sends it; Kafka's
controller keeps its connection to the former address.
Source: KafkaController.processBrokerChange, onBrokerStartup, onBrokerFailure, processBrokerModification,
onBrokerUpdate.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from tidegauge.control import PartitionsResponse, UpdateMetadataRequest
from tidegauge.errors import ErrorCode
from tidegauge.partition import TopicPartition
from tidegauge.znodes import (
    BROKER_IDS,
    LOG_DIR_EVENT_NOTIFICATION,
    BrokerNode,
    MalformedZnode,
    broker_path,
    decode_log_dir_event,
)
from tidegauge_controller.zookeeper.decisions.batch import RequestBatch
from tidegauge_controller.zookeeper.decisions.context import (
    ControllerContext,
    LiveBroker,
    PartitionStatus,
    Replica,
    ReplicaStatus,
)
from tidegauge_controller.zookeeper.decisions.deletion import fail_replica_deletion, resume_deletions
from tidegauge_controller.zookeeper.decisions.partition_machine import change_partitions, trigger_online
from tidegauge_controller.zookeeper.decisions.reassignment import process_removers_died, resume_reassignments
from tidegauge_controller.zookeeper.decisions.replica_machine import change_replicas
from tidegauge_controller.zookeeper.decisions.steps import (
    AddBroker,
    DeleteNode,
    MoveBroker,
    Outcome,
    Read,
    ReadChildren,
    ReadResult,
    RemoveBroker,
    Steps,
    Write,
)

BROKER_DATA = "BrokerModifications"
"""Name of the event of a change of a broker's znode."""


def read_brokers(control_plane_listener: str) -> Steps[dict[int, LiveBroker]]:
    """Return the registered brokers with epochs, at a listener's addresses."""
    names: list[str] | None = yield ReadChildren(BROKER_IDS)
    broker_ids = sorted(int(name) for name in names or [] if name.isdigit())
    results: list[ReadResult] = yield Read(tuple([broker_path(broker_id) for broker_id in broker_ids]))
    found = {one: _live(one, at, control_plane_listener) for one, at in zip(broker_ids, results, strict=True)}
    return {broker_id: broker for broker_id, broker in found.items() if broker is not None}


def _live(broker_id: int, registration: ReadResult, control_plane_listener: str) -> LiveBroker | None:
    if registration.outcome is not Outcome.OK or registration.stat is None:
        return None
    try:
        node = BrokerNode.decode(broker_id, registration.data)
    except MalformedZnode:
        return None
    return LiveBroker(node.endpoint(control_plane_listener), registration.stat.czxid)


def metadata_for(
    context: ControllerContext, broker_ids: Collection[int], partitions: Collection[TopicPartition] = ()
) -> Steps[None]:
    """Send brokers the live brokers, and the state of these partitions."""
    batch = RequestBatch(context)
    yield from batch.update_metadata_in_turns(broker_ids, partitions)
    yield batch.send()


def process_broker_change(context: ControllerContext) -> Steps[None]:
    """Compare the registered brokers with the known ones: handle new, bounced and dead ones, in this order."""
    now = yield from read_brokers(context.settings.control_plane_listener)
    known = context.live
    new = sorted(now.keys() - known.keys())
    dead = sorted(known.keys() - now.keys())
    bounced = sorted(
        broker_id for broker_id in now.keys() & known.keys() if now[broker_id].epoch > known[broker_id].epoch
    )
    for broker_id in new:
        yield AddBroker(now[broker_id].endpoint)
    for broker_id in (*bounced, *dead):
        yield RemoveBroker(broker_id)
    for broker_id in bounced:
        yield AddBroker(now[broker_id].endpoint)
    if new:
        _add(context, new, now)
        yield from on_broker_startup(context, new)
    if bounced:
        _remove(context, bounced)
        yield from on_broker_failure(context, bounced)
        _add(context, bounced, now)
        yield from on_broker_startup(context, bounced)
    if dead:
        _remove(context, dead)
        yield from on_broker_failure(context, dead)


def process_broker_data(context: ControllerContext, broker_id: int) -> Steps[None]:
    """Compare a broker's registration with the known one; a broker that bounced is the children's event."""
    results: list[ReadResult] = yield Read((broker_path(broker_id),))
    now = _live(broker_id, results[0], context.settings.control_plane_listener)
    known = context.live.get(broker_id)
    if now is None or known is None or now.epoch != known.epoch or now.endpoint == known.endpoint:
        return
    context.cause = BROKER_DATA
    context.live[broker_id] = now
    yield MoveBroker(now.endpoint)
    yield from metadata_for(context, context.live_or_shutting_down)


def _add(context: ControllerContext, broker_ids: Sequence[int], now: dict[int, LiveBroker]) -> None:
    for broker_id in broker_ids:
        context.live[broker_id] = now[broker_id]


def _remove(context: ControllerContext, broker_ids: Sequence[int]) -> None:
    for broker_id in broker_ids:
        del context.live[broker_id]


def on_broker_startup(context: ControllerContext, broker_ids: Sequence[int]) -> Steps[None]:
    """Handle registered brokers: send them full metadata, announce them to the others, retry offline partitions."""
    context.cause = "BrokerStartup"
    for broker_id in broker_ids:
        context.offline_directories.pop(broker_id, None)
    others = context.live_or_shutting_down - frozenset(broker_ids)
    yield from metadata_for(context, others)
    yield from metadata_for(context, broker_ids, context.partitions_with_leaders())
    replicas = context.replicas_on(broker_ids)
    yield from change_replicas(context, replicas, ReplicaStatus.ONLINE)
    yield from trigger_online(context)
    if context.reassigning:
        yield from resume_reassignments(context, target_brokers=broker_ids)
    if context.topics_to_delete:
        topics = {replica.topic_partition.topic for replica in replicas}
        yield from resume_deletions(context, [topic for topic in sorted(topics) if context.is_to_be_deleted(topic)])


def startups_complete(
    context: ControllerContext, notified: Mapping[int, int]
) -> tuple[list[tuple[int, UpdateMetadataRequest]], dict[int, int]]:
    """Notify each registered broker, once in a term, that everything its start-up causes is in its queue.

    The notification is queued behind the roles of its replicas and the elections that it made possible, so a broker
    that receives it is ready. Kafka has no such notification. Call it between events.

    Args:
        context: after an event.
        notified: broker id -> broker epoch of the brokers that were notified in this term.

    Returns:
        The requests by receiver, and the brokers notified so far.
    """
    batch = RequestBatch(context)
    batch.update_metadata([one for one, broker in context.live.items() if notified.get(one) != broker.epoch], ())
    requests = [
        (broker_id, replace(request, startup_complete=True))
        for broker_id, request in batch.send().messages
        if isinstance(request, UpdateMetadataRequest)
    ]
    return requests, {broker_id: broker.epoch for broker_id, broker in context.live.items()}


def on_broker_failure(context: ControllerContext, broker_ids: Sequence[int]) -> Steps[None]:
    """Handle dead brokers: their replicas are offline."""
    context.cause = "BrokerFailure"
    for broker_id in broker_ids:
        context.offline_directories.pop(broker_id, None)
        context.shutting_down.discard(broker_id)
    yield from on_replicas_offline(context, context.replicas_on(broker_ids))
    if context.reassigning:
        yield from process_removers_died(context, broker_ids)


def on_replicas_offline(context: ControllerContext, replicas: Sequence[Replica]) -> Steps[None]:
    """Elect where leaders are lost, then remove the replicas from the ISRs."""
    to_delete = [replica for replica in replicas if context.is_to_be_deleted(replica.topic_partition.topic)]
    others = [replica for replica in replicas if not context.is_to_be_deleted(replica.topic_partition.topic)]
    leaderless = context.leaders_offline()
    yield from change_partitions(context, leaderless, PartitionStatus.OFFLINE)
    any_online = yield from trigger_online(context)
    yield from change_replicas(context, others, ReplicaStatus.OFFLINE)
    if to_delete:
        yield from fail_replica_deletion(context, to_delete)
    if not leaderless and not any_online:
        yield from metadata_for(context, context.live_or_shutting_down)


def process_leader_and_isr_response(
    context: ControllerContext, broker_id: int, response: PartitionsResponse
) -> Steps[None]:
    """Handle a response that names replicas in a failed log directory: they are offline from now on.

    It also names the states that target the previous incarnation (``INELIGIBLE_REPLICA``): these replicas are handled
    as lost and started again.
    """
    if response.error is not ErrorCode.NONE or broker_id not in context.live:
        return
    restarted = sorted(at for at, error in response.partitions.items() if error is ErrorCode.INELIGIBLE_REPLICA)
    if restarted:
        yield from _on_overlooked_restart(context, broker_id, restarted)
    failed = {at for at, error in response.partitions.items() if error is ErrorCode.KAFKA_STORAGE_ERROR}
    working = {at for at, error in response.partitions.items() if error is ErrorCode.NONE}
    before = context.offline_directories.get(broker_id, set())
    now = (before | failed) - working
    context.offline_directories[broker_id] = now
    new = sorted(now - before)
    if new:
        context.cause = "LogDirFailure"
        yield from on_replicas_offline(context, [Replica(at, broker_id) for at in new])


def _on_overlooked_restart(
    context: ControllerContext, broker_id: int, partitions: Sequence[TopicPartition]
) -> Steps[None]:
    """Do what a bounce would have done to these replicas: remove them from the ISRs, then send their current states.

    Their leaders may have removed them from the ISRs before the rejection arrived. The states are sent all the same:
    what the replicas rejected is all that they have received about these partitions.
    """
    context.cause = "OverlookedRestart"
    refused = [Replica(at, broker_id) for at in partitions if at in context.leadership]
    in_sync = [replica for replica in refused if broker_id in context.leadership[replica.topic_partition].isr]
    if in_sync:
        offline = context.offline_directories.setdefault(broker_id, set())
        offline.update(replica.topic_partition for replica in in_sync)
        yield from on_replicas_offline(context, in_sync)
        offline.difference_update(replica.topic_partition for replica in in_sync)
    yield from change_replicas(context, refused, ReplicaStatus.ONLINE)
    yield from trigger_online(context)


def process_log_dir_notifications(context: ControllerContext) -> Steps[None]:
    """Handle reports of failed log directories: the responses to LeaderAndIsr name the offline replicas."""
    names: list[str] | None = yield ReadChildren(LOG_DIR_EVENT_NOTIFICATION)
    paths = tuple(f"{LOG_DIR_EVENT_NOTIFICATION}/{name}" for name in names or [])
    if not paths:
        return
    results: list[ReadResult] = yield Read(paths)
    broker_ids: set[int] = set()
    for result in results:
        try:
            broker_ids.add(decode_log_dir_event(result.data))
        except MalformedZnode:
            continue
    batch = RequestBatch(context)
    for replica in context.replicas_on(broker_ids):
        if replica.topic_partition in context.leadership:
            batch.leader_and_isr([replica.broker_id], replica.topic_partition, is_new=False)
    yield batch.send()
    yield Write(tuple(DeleteNode(path) for path in paths))
