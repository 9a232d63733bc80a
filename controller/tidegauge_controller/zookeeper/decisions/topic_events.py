"""New topics and partitions: read them, assign topic ids, bring them online.

Source: KafkaController.processTopicChange, processPartitionModifications, onNewPartitionCreation.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tidegauge.cluster_metadata import Assignment, new_uuid
from tidegauge.partition import TopicPartition, partition_named
from tidegauge.znodes import BROKER_TOPICS, MalformedZnode, TopicNode, topic_path
from tidegauge_controller.zookeeper.decisions.context import ControllerContext, PartitionStatus, ReplicaStatus
from tidegauge_controller.zookeeper.decisions.partition_machine import OFFLINE_CHOICE, change_partitions
from tidegauge_controller.zookeeper.decisions.replica_machine import change_replicas
from tidegauge_controller.zookeeper.decisions.steps import (
    ITEMS_PER_TURN,
    TURN,
    Outcome,
    RandomBytes,
    Read,
    ReadChildren,
    ReadResult,
    SetNode,
    Steps,
    UnwatchData,
    WatchData,
    Write,
)

TOPIC_DATA = "TopicData"
"""Name of the event of a change of a topic's znode."""


def read_topics() -> Steps[set[str]]:
    """Return the names of the existing topics."""
    names: list[str] | None = yield ReadChildren(BROKER_TOPICS)
    return set(names or [])


def load_topics(context: ControllerContext, topics: Sequence[str]) -> Steps[list[TopicPartition]]:
    """Watch and read topics into the context; a topic without an id gets one, which is written back.

    Returns:
        Their partitions.
    """
    for topic in topics:
        yield WatchData(topic_path(topic), TOPIC_DATA, topic)
    results: list[ReadResult] = yield Read(tuple([topic_path(topic) for topic in topics]))
    partitions: list[TopicPartition] = []
    looked_at = 0
    for topic, result in zip(topics, results, strict=True):
        node = _decode(topic, result)
        looked_at += 1 if node is None else len(node.assignment)
        if looked_at >= ITEMS_PER_TURN:
            looked_at = 0
            yield TURN
        if node is None:
            context.topics.discard(topic)
            continue
        if node.topic_id is None:
            made = new_uuid((yield RandomBytes(16)))
            node = TopicNode(node.assignment, made, node.adding_replicas, node.removing_replicas)
            yield Write((SetNode(topic_path(topic), node.encode()),))
        context.topics.add(topic)
        context.name_topic(topic, node.topic_id or "")
        for at, assignment in _assignments(topic, node).items():
            context.set_assignment(at, assignment)
            partitions.append(at)
    return partitions


def _decode(topic: str, result: ReadResult) -> TopicNode | None:
    if result.outcome is not Outcome.OK:
        return None
    try:
        return TopicNode.decode(topic, result.data)
    except MalformedZnode:
        return None


def _assignments(topic: str, node: TopicNode) -> Mapping[TopicPartition, Assignment]:
    return {
        partition_named(topic, partition): Assignment(
            tuple(replicas),
            tuple(node.adding_replicas.get(partition, ())),
            tuple(node.removing_replicas.get(partition, ())),
        )
        for partition, replicas in sorted(node.assignment.items())
    }


def process_topic_change(context: ControllerContext) -> Steps[None]:
    """Handle a change of the set of topics: forget deleted ones, bring new ones online."""
    context.cause = "TopicCreation"
    now = yield from read_topics()
    for topic in sorted(context.topics - now):
        yield UnwatchData(topic_path(topic))
        context.remove_topic(topic)
    new = sorted(now - context.topics)
    partitions = yield from load_topics(context, new)
    yield from create_partitions(context, partitions)


def process_topic_data(context: ControllerContext, topic: str) -> Steps[None]:
    """Handle a change of a topic's znode: partitions may have been added. During a deletion they are removed again."""
    context.cause = "PartitionCreation"
    if topic not in context.topics:
        return
    results: list[ReadResult] = yield Read((topic_path(topic),))
    node = _decode(topic, results[0])
    if node is None:
        return
    known = context.assignments.get(topic, {})
    added = {at: assignment for at, assignment in _assignments(topic, node).items() if at.partition not in known}
    if not added:
        return
    if context.is_to_be_deleted(topic):
        old = {partition: assignment.replicas for partition, assignment in known.items()}
        adding = {partition: assignment.adding for partition, assignment in known.items() if assignment.adding}
        removing = {partition: assignment.removing for partition, assignment in known.items() if assignment.removing}
        restored = TopicNode(old, node.topic_id, adding, removing)
        yield Write((SetNode(topic_path(topic), restored.encode()),))
        return
    for at, assignment in added.items():
        context.set_assignment(at, assignment)
    yield from create_partitions(context, list(added))


def create_partitions(context: ControllerContext, partitions: Sequence[TopicPartition]) -> Steps[None]:
    """Bring new partitions to New, then Online with their first leaders, and the replicas along with them."""
    if len(partitions) >= ITEMS_PER_TURN:
        yield TURN
    replicas = context.replicas_of(partitions)
    yield from change_partitions(context, partitions, PartitionStatus.NEW)
    yield from change_replicas(context, replicas, ReplicaStatus.NEW)
    yield from change_partitions(context, partitions, PartitionStatus.ONLINE, OFFLINE_CHOICE)
    yield from change_replicas(context, replicas, ReplicaStatus.ONLINE)
