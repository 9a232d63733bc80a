"""A coordinator's log is damaged where recovery does not look: nothing older is served, or written, as the newest.

The broker has stopped in order, so that its logs are not checked when it starts. Then a batch in the middle of the
partition is damaged. With the sound files back in place everything is as it was decided.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests import kafka_requests
from tests.integration.conftest import MakeCluster
from tests.waiting import until

from tidegauge.errors import ErrorCode
from tidegauge.kafka.apis import FIND_COORDINATOR, INIT_PRODUCER_ID, OFFSET_COMMIT, OFFSET_FETCH
from tidegauge.kafka.messages.find_coordinator import FindCoordinatorRequest
from tidegauge.kafka.messages.init_producer_id import InitProducerIdRequest
from tidegauge.kafka.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from tidegauge.kafka.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic
from tidegauge.record_batch import iterate_headers
from tidegauge_client import Admin
from tidegauge_lab.local import layout
from tidegauge_lab.local.cluster import LocalCluster

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]
INTERNAL = ("__consumer_offsets", "__transaction_state")
SETTINGS = {
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
}
PASSING = {ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.COORDINATOR_NOT_AVAILABLE}
LIMIT_SECONDS = 60.0


def ask(cluster: LocalCluster, key: int, version: int, request: Any) -> Any:
    """The response of the only broker to one request."""
    return kafka_requests.ask(cluster.kafka_bootstrap_servers[0], key, request, version)


def commit(cluster: LocalCluster, offset: int) -> ErrorCode:
    topics = [OffsetCommitRequestTopic("t", partitions=[OffsetCommitRequestPartition(0, offset)])]
    response = ask(cluster, OFFSET_COMMIT, 7, OffsetCommitRequest("g", topics=topics))
    return ErrorCode.of(response.topics[0].partitions[0].error_code)


def fetched(cluster: LocalCluster) -> tuple[ErrorCode, list[int]]:
    response = ask(cluster, OFFSET_FETCH, 5, OffsetFetchRequest("g", [OffsetFetchRequestTopic("t", [0])]))
    offsets = [one.committed_offset for topic in response.topics for one in topic.partitions]
    return ErrorCode.of(response.error_code), offsets


def init(cluster: LocalCluster) -> tuple[ErrorCode, int, int]:
    response = ask(cluster, INIT_PRODUCER_ID, 4, InitProducerIdRequest("tx", 60_000))
    return ErrorCode.of(response.error_code), response.producer_id, response.producer_epoch


def coordinated(cluster: LocalCluster) -> None:
    """Have the internal topics created, as a client's first request does."""
    for kind, key in enumerate(("g", "tx")):
        request = FindCoordinatorRequest(key, kind)
        until(lambda request=request: not ask(cluster, FIND_COORDINATOR, 3, request).error_code, LIMIT_SECONDS)


def loaded(cluster: LocalCluster) -> None:
    """Wait until neither coordinator is loading."""
    until(lambda: fetched(cluster)[0] not in PASSING, LIMIT_SECONDS, what="the groups are loaded")
    until(lambda: init(cluster)[0] not in PASSING | {ErrorCode.CONCURRENT_TRANSACTIONS}, LIMIT_SECONDS, what="ids")


def segments(cluster: LocalCluster) -> list[Path]:
    data = layout.broker_data(cluster.directory, 0)
    found = [path for topic in INTERNAL for path in data.rglob(f"{topic}-0/*.log")]
    assert len(found) == len(INTERNAL)
    return found


def damage(segment: Path) -> None:
    """Flip a bit of the last byte of a batch in the middle."""
    content = bytearray(segment.read_bytes())
    headers = list(iterate_headers(bytes(content)))
    assert len(headers) >= 3
    middle = headers[len(headers) // 2]
    content[middle.position + middle.size_bytes - 1] ^= 1
    segment.write_bytes(content)


async def create(cluster: LocalCluster) -> None:
    async with Admin(cluster.bootstrap_servers) as admin:
        await admin.create_topic("t", partitions=1, replication_factor=1)
        await admin.wait_for_topic("t")


async def test_nothing_older_than_the_newest_decision_is_served_or_written(make_cluster: MakeCluster) -> None:
    cluster = make_cluster(brokers=1, settings=SETTINGS)
    await create(cluster)
    coordinated(cluster)
    for offset in (1, 2, 3):
        until(lambda offset=offset: commit(cluster, offset) is ErrorCode.NONE, LIMIT_SECONDS, what="a commit")
    until(lambda: init(cluster)[0] is ErrorCode.NONE, LIMIT_SECONDS, what="a producer id")
    for _ in range(3):
        until(lambda: init(cluster)[0] is ErrorCode.NONE, LIMIT_SECONDS, what="the next epoch")
    _, producer_id, epoch = init(cluster)
    cluster.stop(0)
    sound = {path: path.read_bytes() for path in segments(cluster)}
    for path in sound:
        damage(path)
    damaged = {path: path.read_bytes() for path in sound}

    cluster.start(0)
    loaded(cluster)
    refused = ErrorCode.NOT_COORDINATOR
    assert fetched(cluster) == (refused, [])
    assert commit(cluster, 9) is refused
    assert init(cluster) == (refused, -1, -1)
    cluster.stop(0)
    assert {path: path.read_bytes() for path in segments(cluster)} == damaged, "not even recovery has looked there"

    for path, content in sound.items():
        path.write_bytes(content)
    cluster.start(0)
    loaded(cluster)
    assert fetched(cluster) == (ErrorCode.NONE, [3])
    error, same, later = init(cluster)
    assert (error, same) == (ErrorCode.NONE, producer_id)
    assert later > epoch
    assert commit(cluster, 4) is ErrorCode.NONE
