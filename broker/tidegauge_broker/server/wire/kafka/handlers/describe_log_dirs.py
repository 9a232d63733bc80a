"""DescribeLogDirs (35), versions 0-4, in KRaft mode 1-5: this broker's log directories, and the replicas in them.

Null means all topics. ``offset_lag`` is by how much the log end offset lies below the high watermark, 0 if it does not;
for a future log, which moves here from another log directory, it is the size of the rest to copy.
Total and usable bytes (version 4, KIP-827) are the file system's. None is cordoned (version 5, KIP-1066).
Source: ``KafkaApis.handleDescribeLogDirsRequest``, ``ReplicaManager.describeLogDirs``.
"""

from __future__ import annotations

from tidegauge.cluster_metadata.access_lists import Operation
from tidegauge.kafka import apis
from tidegauge.kafka.messages.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)
from tidegauge.partition import TopicPartition
from tidegauge.with_turns import with_turns
from tidegauge_broker.server.wire.kafka.authorization import whole
from tidegauge_broker.server.wire.kafka.request import Context
from tidegauge_broker.server.wire.kafka.served_api import ServedApi
from tidegauge_broker.server.wire.kafka.turns import ITEMS_PER_TURN


async def handle(request: DescribeLogDirsRequest, context: Context) -> DescribeLogDirsResponse:
    """Describe the log directories."""
    asked = None
    if request.topics is not None:
        asked = {TopicPartition(topic.topic, partition) for topic in request.topics for partition in topic.partitions}
    results = []
    for directory in context.service.describe_log_directories():
        topics: dict[str, list[DescribeLogDirsPartition]] = {}
        async for at, replica in with_turns(directory.replicas.items(), ITEMS_PER_TURN):
            if asked is None or at in asked:
                topics.setdefault(at.topic, []).append(
                    DescribeLogDirsPartition(at.partition, replica.size_bytes, replica.offset_lag, replica.is_future)
                )
        results.append(
            DescribeLogDirsResult(
                directory.error,
                directory.path,
                [DescribeLogDirsTopic(topic, partitions) for topic, partitions in topics.items()],
                directory.total_bytes,
                directory.usable_bytes,
            )
        )
    return DescribeLogDirsResponse(results=results)


API = ServedApi(
    apis.DESCRIBE_LOG_DIRS, handle, guard=whole.of_cluster(Operation.DESCRIBE), only_reads=True, is_counted=True
)
