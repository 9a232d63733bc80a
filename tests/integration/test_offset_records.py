"""Committed offsets of brokers in KRaft mode beside Apache Kafka 4.3.1's: the same records, and each loads the other's.

Needs Maven, or the jars that it brought before; if they can't be had, the tests say so and are skipped.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("confluent_kafka", reason="pip install -e '.[dev]' brings it")

from tests.integration.mixed_kraft import OF_BROKERS, MixedKraft
from tests.integration.quorum_nodes import KAFKA, OURS, kafka_classpath
from tests.kafka_requests import ask
from tests.waiting import until
from tests.wire_responses.probe import message

from tidegauge.kafka.kraft.broker_apis import KRAFT_BROKER_PROTOCOL
from tidegauge.partition import TopicPartition
from tidegauge_broker.coordinator.record_codec import read_batches, version_of
from tidegauge_broker.coordinator.records import OffsetKey, read_key, read_offset

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]
LIMIT_SECONDS = 60.0
KEYS = {api.name: key for key, api in KRAFT_BROKER_PROTOCOL.apis.items()}
ALONE = {
    **OF_BROKERS,
    **{name: "1" for name in OF_BROKERS if name.endswith((".replication.factor", ".min.isr"))},
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
}
OFFSETS, TOPIC = "__consumer_offsets-0", "t"
NO_MEMBER = {"generation_id_or_member_epoch": -1}
GROUPS = ("retained", "with-retention", "by-name", "by-id", "in-a-transaction")


class Side:
    """A broker and a controller of a kind.

    Args:
        at: where its files go.
        kind: of both.
        classpath: of Kafka's jars.
    """

    def __init__(self, at: Path, kind: str, classpath: str) -> None:
        at.mkdir()
        self.cluster = MixedKraft(at, [kind], [kind], classpath, of_brokers=ALONE)

    def ask(self, name: str, version: int, **fields: Any) -> Any:
        """Ask the broker."""
        address = self.cluster.brokers[0].address
        return ask(address, KEYS[name], message(name, **fields), version, KRAFT_BROKER_PROTOCOL)

    def create_topic(self) -> bytes:
        """Create the topic; return its id."""
        self.cluster.create_topic(TOPIC, [[0]])
        [topic] = self.ask("Metadata", 12, topics=[{"name": TOPIC}]).topics
        return bytes(topic.topic_id)

    def commit(self, group: str, version: int, topic: dict[str, Any], **fields: Any) -> None:
        """Commit offset 7 of the topic for a group without members."""
        partitions = [{"partition_index": 0, "committed_offset": 7, "committed_leader_epoch": 3}]
        topics = [{**topic, "partitions": partitions}]

        def is_committed() -> bool:
            response = self.ask("OffsetCommit", version, group_id=group, topics=topics, **fields)
            return [one.error_code for found in response.topics for one in found.partitions] == [0]

        until(is_committed, LIMIT_SECONDS, f"{group} commits")

    def commit_in_transaction(self) -> None:
        """Commit offset 7 in a transaction of v2, whose producer has no other partition, and end it."""
        with self.cluster.acts.during("create", "__transaction_state"):
            until(lambda: self._coordinator(1, "id") == 0, LIMIT_SECONDS, "there is a transaction coordinator")
        producer: Any = None

        def begun() -> bool:
            nonlocal producer
            producer = self.ask("InitProducerId", 5, transactional_id="id", transaction_timeout_ms=60_000)
            return producer.error_code == 0

        until(begun, LIMIT_SECONDS, "there is a producer")
        of_producer = {
            "transactional_id": "id",
            "producer_id": producer.producer_id,
            "producer_epoch": producer.producer_epoch,
        }
        topics = [{"name": TOPIC, "partitions": [{"partition_index": 0, "committed_offset": 7}]}]
        response = self.ask("TxnOffsetCommit", 5, group_id=GROUPS[-1], topics=topics, **of_producer)
        assert [one.error_code for found in response.topics for one in found.partitions] == [0]
        assert self.ask("EndTxn", 5, committed=True, **of_producer).error_code == 0

    def _coordinator(self, kind: int, key: str) -> int:
        return int(self.ask("FindCoordinator", 4, key_type=kind, coordinator_keys=[key]).coordinators[0].error_code)

    def fetched(self, group: str, topic_id: bytes | None = None) -> list[tuple[int, int]]:
        """Fetch error and offset of the partition, by name or by an id."""
        topic = {"name": TOPIC} if topic_id is None else {"topic_id": topic_id}
        asked = [{"group_id": group, "topics": [{**topic, "partition_indexes": [0]}], "member_epoch": -1}]
        response = self.ask("OffsetFetch", 9 if topic_id is None else 10, groups=asked, require_stable=True)
        return [
            (one.error_code, one.committed_offset)
            for found in response.groups
            for topic in found.topics
            for one in topic.partitions
        ]

    def wait_fetched(self, topic_id: bytes) -> None:
        """Wait until all groups have the offset, whichever way it is asked for."""
        for group in GROUPS:
            for asked in (None, topic_id):
                until(lambda: self.fetched(group, asked) == [(0, 7)], LIMIT_SECONDS, f"{group} is there")  # noqa: B023

    def records(self, ids: dict[bytes, str]) -> list[tuple[str, int, Any]]:
        """Return group, version and value of each committed offset's record."""
        [directory] = self.cluster.brokers[0].directories
        found: list[tuple[str, int, Any]] = []
        for path in sorted((directory / OFFSETS).glob("*.log")):
            for batch in read_batches(path.read_bytes()):
                for key_bytes, value in () if batch.header.is_control else batch.records:
                    key = read_key(key_bytes or b"")
                    if isinstance(key, OffsetKey):
                        assert key.topic_partition == TopicPartition(TOPIC, 0)
                        found.append((key.group_id, *_plain(value, ids)))
        return found


def _plain(value: bytes | None, ids: dict[bytes, str]) -> tuple[int, Any]:
    """Return version and fields of a value; a tombstone has none."""
    if value is None:
        return -1, None
    read = read_offset(value)
    expires_ms = read.expire_timestamp_ms
    retention_ms = None if expires_ms is None else expires_ms - read.commit_timestamp_ms
    return version_of(value), (read.offset, read.leader_epoch, read.metadata, retention_ms, ids[read.topic_id])


@pytest.fixture(scope="module")
def classpath() -> str:
    """The class path of Kafka 4.3.1; skips without Maven."""
    return kafka_classpath()


def test_both_kinds_write_the_same_and_load_what_the_other_wrote(classpath: str, tmp_path: Path) -> None:
    """A commit has the topic's id, but in a transaction; a topic that is created again has no offsets of the former."""
    written = {}
    for kind in (KAFKA, OURS):
        side = Side(tmp_path / kind, kind, classpath)
        with side.cluster as cluster:
            topic_id = side.create_topic()
            with side.cluster.acts.during("create", "__consumer_offsets"):
                until(lambda side=side: side._coordinator(0, "g") == 0, LIMIT_SECONDS, "there is a group coordinator")
            side.commit("retained", 2, {"name": TOPIC}, **NO_MEMBER, retention_time_ms=-1)
            side.commit("with-retention", 4, {"name": TOPIC}, **NO_MEMBER, retention_time_ms=60_000)
            side.commit("by-name", 9, {"name": TOPIC}, **NO_MEMBER)
            side.commit("by-id", 10, {"topic_id": topic_id}, **NO_MEMBER)
            side.commit_in_transaction()
            side.wait_fetched(topic_id)
            cluster.change(0)
            side.wait_fetched(topic_id)
            side.commit("by-name", 9, {"name": TOPIC}, **NO_MEMBER)
            cluster.change(0)
            side.wait_fetched(topic_id)
            admin = cluster.admin()  # a request ends with its client
            for future in admin.delete_topics([TOPIC]).values():
                future.result(LIMIT_SECONDS)
            until(lambda side=side: side.fetched("by-name") == [(0, -1)], LIMIT_SECONDS, "offsets go with their topic")
            again = side.create_topic()
            assert side.fetched("by-id", again) == [(0, -1)]
            side.commit("by-id", 9, {"name": TOPIC}, **NO_MEMBER)
            names = {bytes(16): "none", topic_id: "first", again: "again"}
            written[kind] = side.records(names)
            cluster.check_judges()
    commits = {group: (version, value and value[-1]) for group, version, value in written[OURS] if version > 0}
    assert commits == {
        "retained": (4, "first"),
        "with-retention": (1, "none"),
        "by-name": (4, "first"),
        "by-id": (4, "again"),
        "in-a-transaction": (4, "none"),
    }
    assert sorted(map(repr, written[OURS])) == sorted(map(repr, written[KAFKA]))
