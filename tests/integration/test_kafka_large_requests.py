"""Requests over very many partitions, and very many connections: refused or served, in bounded memory.

A request above the limit of items closes its connection with one line in the log, before memory is taken for it. One
below it is responded to in full. Others are served afterwards by the same process. `test_kafka_hostile.py` has a part
in `make test`.
"""

from __future__ import annotations

import contextlib
import functools
import resource
import socket
import struct
from collections.abc import Callable, Iterator
from typing import Any

import psutil
import pytest

from tidegauge.kafka import apis
from tidegauge.kafka.compiler import MAX_ITEMS
from tidegauge.kafka.frames import decode, joined, read_response_header, request_frame
from tidegauge.kafka.messages import (
    alter_partition_reassignments,
    alter_replica_log_dirs,
    create_topics,
    delete_groups,
    delete_records,
    delete_topics,
    describe_configs,
    describe_groups,
    describe_log_dirs,
    describe_producers,
    elect_leaders,
    fetch,
    find_coordinator,
    incremental_alter_configs,
    join_group,
    list_offsets,
    list_partition_reassignments,
    metadata,
    offset_commit,
    offset_delete,
    offset_fetch,
    offset_for_leader_epoch,
    produce,
)
from tidegauge_lab.local.cluster import LocalCluster

pytestmark = [pytest.mark.integration, pytest.mark.long, pytest.mark.timeout(600)]
LIMIT_SECONDS = 120.0
NOPE = "nope"
MOST_BYTES = 250_000_000
"""Most bytes of a broker's memory that a request at the limit of items may take."""


def requests(count: int) -> dict[str, Callable[[], tuple[int, int, Any]]]:
    """Return for each API a maker of a request over that many items."""
    span = range(count)
    names = functools.partial(map, "n{}".format, span)
    return {
        "Metadata": lambda: (
            *(apis.METADATA, 9),
            metadata.MetadataRequest(
                [metadata.MetadataRequestTopic(name=name) for name in names()], allow_auto_topic_creation=False
            ),
        ),
        "Produce": lambda: (
            *(apis.PRODUCE, 9),
            produce.ProduceRequest(
                None,
                1,
                1,
                [
                    produce.TopicProduceData(
                        NOPE, partition_data=[produce.PartitionProduceData(at, b"x") for at in span]
                    )
                ],
            ),
        ),
        "Fetch": lambda: (
            *(apis.FETCH, 12),
            fetch.FetchRequest(
                max_wait_ms=0,
                session_epoch=-1,
                topics=[fetch.FetchTopic(topic=NOPE, partitions=[fetch.FetchPartition(partition=at) for at in span])],
            ),
        ),
        "ListOffsets": lambda: (
            *(apis.LIST_OFFSETS, 6),
            list_offsets.ListOffsetsRequest(
                topics=[
                    list_offsets.ListOffsetsTopic(
                        NOPE, [list_offsets.ListOffsetsPartition(partition_index=at) for at in span]
                    )
                ]
            ),
        ),
        "CreateTopics": lambda: (
            *(apis.CREATE_TOPICS, 7),
            create_topics.CreateTopicsRequest(
                [
                    create_topics.CreatableTopic(
                        "a b", -1, -1, [create_topics.CreatableReplicaAssignment(at, []) for at in span]
                    )
                ],
                1_000,
            ),
        ),
        "CreateTopics, names": lambda: (
            *(apis.CREATE_TOPICS, 7),
            create_topics.CreateTopicsRequest(
                [create_topics.CreatableTopic(f"a {name}", 1, 1) for name in names()], 1_000
            ),
        ),
        "OffsetCommit": lambda: (
            *(apis.OFFSET_COMMIT, 8),
            offset_commit.OffsetCommitRequest(
                group_id="g",
                topics=[
                    offset_commit.OffsetCommitRequestTopic(
                        NOPE, partitions=[offset_commit.OffsetCommitRequestPartition(partition_index=at) for at in span]
                    )
                ],
            ),
        ),
        "OffsetFetch": lambda: (
            *(apis.OFFSET_FETCH, 7),
            offset_fetch.OffsetFetchRequest("g", [offset_fetch.OffsetFetchRequestTopic(NOPE, list(span))]),
        ),
        "OffsetDelete": lambda: (
            *(apis.OFFSET_DELETE, 0),
            offset_delete.OffsetDeleteRequest(
                "g",
                [
                    offset_delete.OffsetDeleteRequestTopic(
                        NOPE, [offset_delete.OffsetDeleteRequestPartition(at) for at in span]
                    )
                ],
            ),
        ),
        "OffsetForLeaderEpoch": lambda: (
            *(apis.OFFSET_FOR_LEADER_EPOCH, 4),
            offset_for_leader_epoch.OffsetForLeaderEpochRequest(
                -1,
                [
                    offset_for_leader_epoch.OffsetForLeaderTopic(
                        NOPE, [offset_for_leader_epoch.OffsetForLeaderPartition(partition=at) for at in span]
                    )
                ],
            ),
        ),
        "DeleteRecords": lambda: (
            *(apis.DELETE_RECORDS, 2),
            delete_records.DeleteRecordsRequest(
                [
                    delete_records.DeleteRecordsTopic(
                        NOPE, [delete_records.DeleteRecordsPartition(at, 0) for at in span]
                    )
                ],
                1_000,
            ),
        ),
        "DeleteTopics": lambda: (
            *(apis.DELETE_TOPICS, 6),
            delete_topics.DeleteTopicsRequest([delete_topics.DeleteTopicState(name) for name in names()], [], 1_000),
        ),
        "AlterReplicaLogDirs": lambda: (
            *(apis.ALTER_REPLICA_LOG_DIRS, 2),
            alter_replica_log_dirs.AlterReplicaLogDirsRequest(
                [
                    alter_replica_log_dirs.AlterReplicaLogDir(
                        "/nowhere", [alter_replica_log_dirs.AlterReplicaLogDirTopic(NOPE, list(span))]
                    )
                ]
            ),
        ),
        "DescribeLogDirs": lambda: (
            *(apis.DESCRIBE_LOG_DIRS, 4),
            describe_log_dirs.DescribeLogDirsRequest([describe_log_dirs.DescribableLogDirTopic(NOPE, list(span))]),
        ),
        "ElectLeaders": lambda: (
            *(apis.ELECT_LEADERS, 2),
            elect_leaders.ElectLeadersRequest(0, [elect_leaders.TopicPartitions(NOPE, list(span))]),
        ),
        "AlterPartitionReassignments": lambda: (
            *(apis.ALTER_PARTITION_REASSIGNMENTS, 0),
            alter_partition_reassignments.AlterPartitionReassignmentsRequest(
                1_000,
                topics=[
                    alter_partition_reassignments.ReassignableTopic(
                        NOPE, [alter_partition_reassignments.ReassignablePartition(at, []) for at in span]
                    )
                ],
            ),
        ),
        "ListPartitionReassignments": lambda: (
            *(apis.LIST_PARTITION_REASSIGNMENTS, 0),
            list_partition_reassignments.ListPartitionReassignmentsRequest(
                1_000, [list_partition_reassignments.ListPartitionReassignmentsTopics(NOPE, list(span))]
            ),
        ),
        "DescribeConfigs": lambda: (
            *(apis.DESCRIBE_CONFIGS, 4),
            describe_configs.DescribeConfigsRequest(
                [describe_configs.DescribeConfigsResource(2, name, None) for name in names()]
            ),
        ),
        "IncrementalAlterConfigs": lambda: (
            *(apis.INCREMENTAL_ALTER_CONFIGS, 1),
            incremental_alter_configs.IncrementalAlterConfigsRequest(
                [incremental_alter_configs.AlterConfigsResource(2, name, []) for name in names()]
            ),
        ),
        "DescribeProducers": lambda: (
            *(apis.DESCRIBE_PRODUCERS, 0),
            describe_producers.DescribeProducersRequest([describe_producers.TopicRequest(NOPE, list(span))]),
        ),
        "FindCoordinator": lambda: (
            *(apis.FIND_COORDINATOR, 4),
            find_coordinator.FindCoordinatorRequest(key_type=0, coordinator_keys=list(names())),
        ),
        "DescribeGroups": lambda: (
            *(apis.DESCRIBE_GROUPS, 5),
            describe_groups.DescribeGroupsRequest(list(names())),
        ),
        "DeleteGroups": lambda: (*(apis.DELETE_GROUPS, 2), delete_groups.DeleteGroupsRequest(list(names()))),
        "JoinGroup": lambda: (
            *(apis.JOIN_GROUP, 5),
            join_group.JoinGroupRequest(
                group_id="g",
                session_timeout_ms=10_000,
                protocol_type="consumer",
                protocols=[join_group.JoinGroupRequestProtocol(name, b"") for name in names()],
            ),
        ),
    }


@contextlib.contextmanager
def connected(cluster: LocalCluster) -> Iterator[socket.socket]:
    host, _, port = cluster.kafka_bootstrap_servers[0].partition(":")
    with socket.create_connection((host, int(port)), LIMIT_SECONDS) as made:
        yield made


def is_served(connection: socket.socket) -> bool:
    """Send an ApiVersions request of version 0, and read the response."""
    connection.sendall(struct.pack(">ihhih", 10, apis.API_VERSIONS, 0, 7, -1))
    size, correlation_id = struct.unpack(">ii", connection.recv(8, socket.MSG_WAITALL))
    connection.recv(size - 4, socket.MSG_WAITALL)
    return bool(correlation_id == 7)


def process_of(cluster: LocalCluster) -> psutil.Process:
    pid = cluster.pid_of(0)
    assert pid is not None
    return psutil.Process(pid)


def refused(cluster: LocalCluster, name: str, count: int) -> None:
    """Send a request over too many items: the connection is closed with one line, and nothing grows."""
    process, log = process_of(cluster), cluster.logs / "broker-0.log"
    key, version, message = requests(count)[name]()
    frame = joined(request_frame(key, version, 1, "large", message))
    before_bytes, before = process.memory_info().rss, log.read_text().count("Closing the connection of /127.0.0.1")
    with connected(cluster) as connection, connected(cluster) as other:
        connection.sendall(frame)
        assert connection.recv(1) == b"", name
        assert is_served(other)
    assert log.read_text().count("Closing the connection of /127.0.0.1") == before + 1
    assert process.memory_info().rss < before_bytes + len(frame) + 50_000_000
    assert process_of(cluster) == process


@pytest.mark.parametrize("name", list(requests(0)))
def test_a_request_over_a_million_items_closes_its_connection(cluster: LocalCluster, name: str) -> None:
    refused(cluster, name, 1_000_000)


@pytest.mark.parametrize("name", list(requests(0)))
def test_a_request_just_below_the_limit_has_its_response_in_bounded_memory(cluster: LocalCluster, name: str) -> None:
    process = process_of(cluster)
    key, version, message = requests(MAX_ITEMS - 10)[name]()
    frame = joined(request_frame(key, version, 1, "large", message))
    before_bytes = process.memory_info().rss
    with connected(cluster) as connection, connected(cluster) as other:
        connection.sendall(frame)
        with connection.makefile("rb") as stream:
            (size,) = struct.unpack(">i", stream.read(4))
            assert process.memory_info().rss < before_bytes + MOST_BYTES
            response = memoryview(stream.read(size))
        assert is_served(other)
        assert is_served(connection)
    correlation_id, at = read_response_header(key, version, response)
    assert correlation_id == 1
    _, end = decode(key, version, response, at, response=True)
    assert end == len(response)
    assert process_of(cluster) == process


def test_two_thousand_open_connections_are_all_served_and_cost_little(cluster: LocalCluster) -> None:
    """Each sends a request, then half of one; a newcomer is served, and when they close nothing is left."""
    count = 2_000
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < count + 500:
        if hard < count + 500:
            pytest.skip(f"only {hard} open files are allowed here")
        resource.setrlimit(resource.RLIMIT_NOFILE, (count + 500, hard))
    process = process_of(cluster)
    before_bytes = process.memory_info().rss
    with contextlib.ExitStack() as stack:
        opened = [stack.enter_context(connected(cluster)) for _ in range(count)]
        assert all(is_served(one) for one in opened)
        for one in opened:
            one.sendall(struct.pack(">ih", 100, apis.METADATA))
        with connected(cluster) as newcomer:
            assert is_served(newcomer)
        assert process.num_fds() >= count
        assert process.memory_info().rss < before_bytes + 30_000 * count
    with connected(cluster) as newcomer:
        assert is_served(newcomer)
