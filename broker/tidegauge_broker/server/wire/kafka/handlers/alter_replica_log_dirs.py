"""AlterReplicaLogDirs (34), versions 0-2: move replicas of this broker to other log directories of it.

A partition that is named twice goes to the directory named last. The response says that a move has begun, or that the
directory is remembered for a replica that does not exist yet (REPLICA_NOT_AVAILABLE); DescribeLogDirs shows how far a
move is.
Source: ``KafkaApis.handleAlterReplicaLogDirsRequest``, ``ReplicaManager.alterReplicaLogDirs``, KIP-113.
"""

from __future__ import annotations

from tidegauge.cluster_metadata.access_lists import Operation
from tidegauge.kafka import apis
from tidegauge.kafka.messages.alter_replica_log_dirs import (
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopicResult,
)
from tidegauge.partition import TopicPartition
from tidegauge_broker.server.wire.kafka.authorization import whole
from tidegauge_broker.server.wire.kafka.error_forms import NUMBER, Form, Part
from tidegauge_broker.server.wire.kafka.request import Context
from tidegauge_broker.server.wire.kafka.served_api import ServedApi


async def handle(request: AlterReplicaLogDirsRequest, context: Context) -> AlterReplicaLogDirsResponse:
    """Begin the moves."""
    wanted = {
        TopicPartition(topic.name, partition): directory.path
        for directory in request.dirs
        for topic in directory.topics
        for partition in topic.partitions
    }
    topics: dict[str, list[AlterReplicaLogDirPartitionResult]] = {}
    for at, error in (await context.service.alter_replica_log_dirs(wanted)).items():
        topics.setdefault(at.topic, []).append(AlterReplicaLogDirPartitionResult(at.partition, error))
    results = [AlterReplicaLogDirTopicResult(name, partitions) for name, partitions in topics.items()]
    return AlterReplicaLogDirsResponse(results=results)


API = ServedApi(
    apis.ALTER_REPLICA_LOG_DIRS,
    handle,
    guard=whole.of_cluster(Operation.ALTER),
    form=Form((Part("results", "dirs.topics", {"topic_name": "name"}, Part("partitions", "partitions", NUMBER)),)),
)
