"""Topic deletion: from the marker to the last znode.

A topic is deleted in rounds: its partitions become Offline and NonExistent, all brokers forget it (UpdateMetadata), the
replicas are stopped and then deleted. A replica on a dead broker makes the topic ineligible: the marker stays, and the
deletion continues when the broker returns. When every replica is deleted the topic's znode, its settings and then the
marker are deleted. Source: kafka.controller.TopicDeletionManager.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tidegauge.control import PartitionsResponse
from tidegauge.errors import ErrorCode
from tidegauge.partition import TopicPartition
from tidegauge.znodes import (
    DELETE_TOPICS,
    delete_topic_path,
    partition_path,
    state_path,
    topic_config_path,
    topic_path,
)
from tidegauge_controller.zookeeper.decisions.batch import RequestBatch
from tidegauge_controller.zookeeper.decisions.context import ControllerContext, PartitionStatus, Replica, ReplicaStatus
from tidegauge_controller.zookeeper.decisions.partition_machine import change_partitions
from tidegauge_controller.zookeeper.decisions.replica_machine import change_replicas
from tidegauge_controller.zookeeper.decisions.steps import (
    DeleteNode,
    Outcome,
    Read,
    ReadChildren,
    ReadResult,
    Steps,
    UnwatchData,
    Write,
)

_S = ReplicaStatus


def read_deletions(context: ControllerContext) -> Steps[None]:
    """Read the markers, and which of their topics must wait (step 5 of the fail-over)."""
    names: list[str] | None = yield ReadChildren(DELETE_TOPICS)
    marked = set(names or [])
    if not context.settings.delete_topic_enable:
        yield from _drop_markers(sorted(marked))
        return
    context.topics_to_delete = marked & context.topics
    yield from _drop_markers_of_unknown(sorted(marked - context.topics))
    if not context.topics_to_delete:
        context.topics_ineligible_for_deletion = set()
        return
    dead = {
        replica.topic_partition.topic
        for replica in context.replicas()
        if not context.is_online(replica.broker_id, replica.topic_partition)
    }
    reassigning = {at.topic for at in context.partitions() if context.assignment(at).is_reassigning}
    context.topics_ineligible_for_deletion = (dead | reassigning) & context.topics_to_delete


def _drop_markers(topics: Sequence[str]) -> Steps[None]:
    if topics:
        yield Write(tuple(DeleteNode(delete_topic_path(topic)) for topic in topics))


def _drop_markers_of_unknown(topics: Sequence[str]) -> Steps[None]:
    """Delete markers of unknown topics, and settings left by a controller that died. (Kafka leaves these.)"""
    if not topics:
        return
    results: list[ReadResult] = yield Read(tuple(topic_path(topic) for topic in topics))
    gone = [topic for topic, result in zip(topics, results, strict=True) if result.outcome is Outcome.NO_NODE]
    yield Write(tuple(DeleteNode(topic_config_path(topic)) for topic in gone))
    yield from _drop_markers(topics)


def process_delete_markers(context: ControllerContext) -> Steps[None]:
    """Handle new markers: drop unknown topics' (or all, if deletion is disabled), begin the other deletions."""
    context.cause = "TopicDeletion"
    names: list[str] | None = yield ReadChildren(DELETE_TOPICS)
    marked = set(names or [])
    if not context.settings.delete_topic_enable:
        yield from _drop_markers(sorted(marked))
        return
    yield from _drop_markers_of_unknown(sorted(marked - context.topics))
    new = (marked & context.topics) - context.topics_to_delete
    if not new:
        return
    reassigning = {at.topic for at in context.partitions(new) if context.assignment(at).is_reassigning}
    context.topics_ineligible_for_deletion |= reassigning
    context.topics_to_delete |= new
    yield from resume_deletions(context, ())


def resume_deletions(context: ControllerContext, eligible_again: Iterable[str]) -> Steps[None]:
    """Resume all deletions that can proceed; these topics no longer wait."""
    context.topics_ineligible_for_deletion -= set(eligible_again)
    to_retry: list[Replica] = []
    to_begin: list[str] = []
    for topic in sorted(context.topics_to_delete):
        replicas = context.replicas([topic])
        states = {context.replica_status.get(replica, _S.NON_EXISTENT) for replica in replicas}
        if states <= {_S.DELETION_SUCCESSFUL}:
            yield from _complete(context, topic)
            continue
        started = _S.DELETION_STARTED in states
        if not started and _S.DELETION_INELIGIBLE in states and topic in context.topics_deletion_started:
            to_retry.extend(context.replicas_in(topic, _S.DELETION_INELIGIBLE))
        if not started and topic not in context.topics_ineligible_for_deletion:
            to_begin.append(topic)
    yield from change_replicas(context, to_retry, _S.OFFLINE)
    if to_begin:
        yield from _begin(context, to_begin)


def _begin(context: ControllerContext, topics: Sequence[str]) -> Steps[None]:
    """Take the partitions offline, make brokers forget the topics, and stop and delete the live replicas."""
    fresh = [topic for topic in topics if topic not in context.topics_deletion_started]
    if fresh:
        partitions = list(context.partitions(fresh))
        yield from change_partitions(context, partitions, PartitionStatus.OFFLINE)
        yield from change_partitions(context, partitions, PartitionStatus.NON_EXISTENT)
        context.topics_deletion_started |= set(fresh)
    batch = RequestBatch(context)
    yield from batch.update_metadata_in_turns(context.live_or_shutting_down, list(context.partitions(topics)))
    yield batch.send()
    dead: list[Replica] = []
    alive: list[Replica] = []
    for topic in topics:
        for replica in context.replicas([topic]):
            if context.replica_status.get(replica) is _S.DELETION_SUCCESSFUL:
                continue
            online = context.is_online(replica.broker_id, replica.topic_partition)
            (alive if online else dead).append(replica)
    yield from change_replicas(context, dead, _S.OFFLINE)
    yield from change_replicas(context, dead, _S.DELETION_INELIGIBLE)
    context.topics_ineligible_for_deletion |= {replica.topic_partition.topic for replica in dead}
    yield from change_replicas(context, alive, _S.OFFLINE)
    yield from change_replicas(context, alive, _S.DELETION_STARTED)


def process_stop_replica_response(
    context: ControllerContext, broker_id: int, deleted: Sequence[TopicPartition], response: PartitionsResponse
) -> Steps[None]:
    """Handle a broker's outcomes of replica deletions.

    Args:
        context: the controller's state.
        broker_id: the broker.
        deleted: the partitions whose deletion was requested.
        response: its response.
    """
    context.cause = "TopicDeletion"
    whole = response.error is not ErrorCode.NONE
    asked = [at for at in deleted if context.is_to_be_deleted(at.topic)]
    bad = {at: None for at in asked if whole or response.partitions.get(at, ErrorCode.NONE) is not ErrorCode.NONE}
    good = [at for at in asked if at not in bad]
    yield from fail_replica_deletion(context, [Replica(at, broker_id) for at in bad])
    yield from change_replicas(context, [Replica(at, broker_id) for at in good], _S.DELETION_SUCCESSFUL)
    yield from resume_deletions(context, ())


def fail_replica_deletion(context: ControllerContext, replicas: Sequence[Replica]) -> Steps[None]:
    """Mark replicas that can't be deleted now: their topics wait."""
    if not replicas:
        return
    yield from change_replicas(context, replicas, _S.DELETION_INELIGIBLE)
    context.topics_ineligible_for_deletion |= {replica.topic_partition.topic for replica in replicas}
    yield from resume_deletions(context, ())


def _complete(context: ControllerContext, topic: str) -> Steps[None]:
    """Remove the topic from ZooKeeper and from memory: all replicas are deleted."""
    yield UnwatchData(topic_path(topic))
    yield from change_replicas(context, context.replicas_in(topic, _S.DELETION_SUCCESSFUL), _S.NON_EXISTENT)
    yield from _delete_partitions(context, topic)
    yield from delete_recursively(topic_path(topic))
    yield Write((DeleteNode(topic_config_path(topic)),))
    yield Write((DeleteNode(delete_topic_path(topic)),))
    context.topics_to_delete.discard(topic)
    context.topics_deletion_started.discard(topic)
    context.topics_ineligible_for_deletion.discard(topic)
    context.remove_topic(topic)


def _delete_partitions(context: ControllerContext, topic: str) -> Steps[None]:
    """Delete the znodes of a topic's partitions by the hundred, states first; what else lies there is left.

    One after the other, as Kafka deletes them, 3,000 partitions take 12,000 requests, and nothing else is decided
    meanwhile.
    """
    partitions = [at.partition for at in context.partitions([topic])]
    yield Write(tuple(DeleteNode(state_path(topic, partition)) for partition in partitions))
    yield Write(tuple(DeleteNode(partition_path(topic, partition)) for partition in partitions))


def delete_recursively(path: str) -> Steps[None]:
    """Delete a znode and its descendants, children first; a missing one is no error."""
    names: list[str] | None = yield ReadChildren(path)
    for name in names or []:
        yield from delete_recursively(f"{path}/{name}")
    if names is not None:
        yield Write((DeleteNode(path),))
