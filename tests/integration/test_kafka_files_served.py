"""Files that Apache Kafka 3.9.1 wrote are served byte for byte by a Tidegauge broker that is started over them.

Records by Fetch, from every offset and with each isolation level; committed offsets, groups and transactions as they
are in Kafka's own ``__consumer_offsets`` and ``__transaction_state``. The broker changes none of the files.
"""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.integration.served_files import READ_COMMITTED, ServingBroker
from tests.integration.test_broker_start import Broker
from tests.kafka_log_dir import DIRECTORY, PARTITIONS, last_snapshot_of, log_of
from tests.waiting import until

from tidegauge.partition import TopicPartition
from tidegauge.record_batch import iterate_headers
from tidegauge.znodes import CLUSTER_ID, PartitionStateNode, TopicNode, encode_cluster_id, state_path, topic_path
from tidegauge_controller.zookeeper.client import ZooKeeper

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]

ALL = {TopicPartition(partition[:-2], int(partition[-1])): partition for partition in PARTITIONS}
FOR_EVER = {
    "log.retention.ms": "-1",
    "offsets.retention.minutes": "2147483647",
    "transaction.remove.expired.transaction.cleanup.interval.ms": "2147483647",
    "transactional.id.expiration.ms": "2147483647",
}
"""The files are as old as they are; nothing in them expires."""


def property_of(path: Path, name: str, separator: str) -> str:
    """Return what a small file of Kafka's says under a name."""
    lines = (line.partition(separator) for line in path.read_text().splitlines())
    return next(value for key, _, value in lines if key == name).strip()


async def make_cluster_of_the_files(zookeeper: str) -> None:
    """Create what ZooKeeper held of these partitions when their broker, the only one, had stopped."""
    session = await ZooKeeper.connect(zookeeper, session_timeout_ms=30_000, connection_timeout_ms=30_000)
    try:
        await session.ensure_path(CLUSTER_ID.rpartition("/")[0])
        cluster_id = property_of(DIRECTORY / "meta.properties", "cluster.id", "=")
        await session.create(CLUSTER_ID, encode_cluster_id(cluster_id))
        for topic in sorted({at.topic for at in ALL}):
            parts = sorted(at.partition for at in ALL if at.topic == topic)
            topic_id = property_of(DIRECTORY / f"{topic}-0" / "partition.metadata", "topic_id", ":")
            await session.ensure_path(topic_path(topic).rpartition("/")[0])
            await session.create(topic_path(topic), TopicNode(dict.fromkeys(parts, (0,)), topic_id).encode())
            for part in parts:
                path = state_path(topic, part)
                await session.ensure_path(path.rpartition("/")[0])
                await session.create(path, PartitionStateNode(0, 0, (0,), 1).encode())
    finally:
        await session.close()


class Started(Broker):
    """A broker over a copy of the files, and the port of its listener for Kafka clients."""

    def begin(self, *, clean: bool) -> ServingBroker:
        """Start on what a clean stop left, or on what kill -9 did; return once it serves."""
        data = self.directory / "data"
        shutil.copytree(DIRECTORY, data)
        if clean:
            (data / ".kafka_cleanshutdown").write_text('{"version":0,"brokerEpoch":25}')
        asyncio.run(make_cluster_of_the_files(self.settings["zookeeper.connect"]))
        listeners = f"PLAINTEXT://127.0.0.1:{self.other_port},GRPC://127.0.0.1:{self.port}"
        self.settings |= FOR_EVER | {
            "broker.id": "0",
            "listeners": listeners,
            "offsets.topic.num.partitions": "2",
            "transaction.state.log.num.partitions": "2",
        }
        self.process = self.start()
        until(self.is_ready, what="the broker is ready")
        return ServingBroker(self.other_port)


@pytest.fixture
def broker(
    zookeeper: str, tmp_path: Path, request: pytest.FixtureRequest, next_base_port: Callable[[], int]
) -> Iterator[Started]:
    made = Started(zookeeper, tmp_path, f"served-{abs(hash(request.node.name))}", next_base_port())
    yield made
    made.close()


@pytest.mark.parametrize("clean", [True, False], ids=["stopped", "killed"])
def test_every_byte_of_kafkas_logs_is_served(broker: Started, *, clean: bool) -> None:
    """From each batch's offset on, in pieces and in one; and the broker leaves the logs and their indexes alone."""
    serving = broker.begin(clean=clean)
    for at, partition in ALL.items():
        kafkas = log_of(partition).read_bytes()
        end = int(last_snapshot_of(partition).stem)
        for isolation in (0, READ_COMMITTED):
            served = serving.log(at, isolation=isolation)
            assert served.records == kafkas
            assert served.ends == (end, end, 0)
        assert serving.log(at, max_bytes=1).records == kafkas
        for header in iterate_headers(kafkas):
            batch = kafkas[header.position : header.position + header.size_bytes]
            for offset in {header.base_offset, header.next_offset - 1}:
                assert bytes(serving.fetch(at, offset, max_bytes=1).records) == batch
    assert "shut down completed" in broker.stop(broker.process)
    for partition in PARTITIONS:
        for name in (log_of(partition).name, log_of(partition).with_suffix(".txnindex").name):
            path = DIRECTORY / partition / name
            if path.exists():
                assert (broker.directory / "data" / partition / name).read_bytes() == path.read_bytes()


@pytest.mark.parametrize("clean", [True, False], ids=["stopped", "killed"])
def test_aborted_transactions_and_offsets_are_kafkas(broker: Started, *, clean: bool) -> None:
    """As Kafka's DumpLogSegments prints the transaction indexes; times by the records that bear them."""
    serving = broker.begin(clean=clean)
    found = {at: serving.log(at, isolation=READ_COMMITTED).aborted for at in ALL}
    assert {at: aborted for at, aborted in found.items() if aborted} == {
        TopicPartition("t", 0): [(0, 3), (1, 5)],
        TopicPartition("o", 0): [(3, 3)],
        TopicPartition("__consumer_offsets", 1): [(0, 4)],
    }
    assert [serving.offset(TopicPartition("t", 0), time_ms) for time_ms in (-2, -1, 1795340841173, 1795340841505)] == [
        0, 11, 1, 2,
    ]  # fmt: skip


@pytest.mark.parametrize("clean", [True, False], ids=["stopped", "killed"])
def test_groups_and_their_offsets_are_those_of_kafkas_coordinator(broker: Started, *, clean: bool) -> None:
    """Groups are as Kafka's tool prints ``__consumer_offsets``: deleted or aborted commits are not there."""
    serving = broker.begin(clean=clean)
    assert serving.groups() == [
        ("gs", "consumer", "Empty"),
        ("pend", "", "Empty"),
        ("sg57308", "consumer", "Empty"),
        ("tg66156", "", "Empty"),
    ]
    at = TopicPartition("t", 0)
    for stable in (False, True):
        assert {
            group: serving.committed(group, stable=stable) for group in ("g", "gs", "pend", "sg57308", "tg66156")
        } == {
            "g": {},
            "gs": {at: (5, 0, "", 0)},
            "pend": {at: (7, -1, "", 0)},
            "sg57308": {},
            "tg66156": {at: (9, -1, "", 0)},
        }
    described = serving.group("gs")
    assert (described.error_code, described.group_state, described.protocol_type, described.protocol_data) == (
        0, "Empty", "consumer", "",
    )  # fmt: skip
    assert described.members == []
    assert serving.group("rg10712").group_state == "Dead", "it was deleted"


@pytest.mark.parametrize("clean", [True, False], ids=["stopped", "killed"])
def test_transactions_are_those_of_kafkas_coordinator(broker: Started, *, clean: bool) -> None:
    """Ids are as Kafka's tool prints ``__transaction_state``: producer ids and epochs, states, timeouts, partitions."""
    serving = broker.begin(clean=clean)
    assert serving.transactions() == [
        ("open2283", 4, "CompleteCommit"),
        ("re91804", 2, "CompleteCommit"),
        ("rt48809", 1, "CompleteCommit"),
        ("rz90496", 3, "Empty"),
        ("tx", 0, "CompleteAbort"),
    ]
    found = {name: serving.transaction(name) for name in ("open2283", "re91804", "rt48809", "rz90496", "tx")}
    assert {
        name: (one.error_code, one.producer_id, one.producer_epoch, one.transaction_timeout_ms, list(one.topics))
        for name, one in found.items()
    } == {
        "open2283": (0, 4, 0, 900_000, []),
        "re91804": (0, 2, 0, 60_000, []),
        "rt48809": (0, 1, 3, 60_000, []),
        "rz90496": (0, 3, 2, 500, []),
        "tx": (0, 0, 0, 60_000, []),
    }
