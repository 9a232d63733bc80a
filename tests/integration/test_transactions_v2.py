"""Transactions v2 (KIP-890, part 2) of brokers in KRaft mode, beside Apache Kafka 4.3.1's, and with real clients."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import confluent_kafka
import pytest
from click.testing import CliRunner
from confluent_kafka.admin import NewTopic  # type: ignore[attr-defined] # it names no exports
from tests.clients.programs import KAFKA_4, Unavailable, kafka_jars
from tests.integration.conftest import free_quorum_port
from tests.integration.copiers import COPIERS_SETTINGS, Cell, Copiers, bounce_broker
from tests.integration.kraft_nodes import KRaftBrokers, brokers_of
from tests.integration.quorum_nodes import KAFKA, OURS, kafka_classpath, quorum_of
from tests.kafka_requests import ask
from tests.waiting import until
from tests.wire_responses.batches import TRANSACTIONAL, batch
from tests.wire_responses.probe import message

from tidegauge.kafka.apis import APIS
from tidegauge.kafka.coordinator.transaction_log import TransactionLogKey, TransactionLogValue
from tidegauge.kafka.kraft.broker_apis import KRAFT_BROKER_PROTOCOL
from tidegauge_broker.coordinator.record_codec import decoded, read_batches, version_of
from tidegauge_client.cli.main import root
from tidegauge_lab.local.cluster import LocalCluster
from tidegauge_lab.local.wanted import WantedQuorum

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]

LIMIT_SECONDS = 120.0
TOPIC, STATE_TOPIC = "t", "__transaction_state"
FEATURES = ("--feature", "share.version=0", "--feature", "streams.version=0")
"""A new cluster of 4.3 but for what brokers here do not have: transaction.version is 2."""
KEYS = {api.name: key for key, api in APIS.items()}
BUSY, PREPARE_COMMIT = 51, 2


class Seats(NamedTuple):
    """The brokers' roles for a producer.

    Attributes:
        transactional_id: its id.
        coordinator: the address of its coordinator.
        group: of which it commits offsets.
        leader: the address of the leader of its partition, and of the group's coordinator.
        partition: to which it writes.
    """

    transactional_id: str
    coordinator: str
    group: str
    leader: str
    partition: int


class Producer:
    """A producer of raw requests, which notes what it gets.

    Args:
        seats: who does what for it.
    """

    def __init__(self, seats: Seats) -> None:
        self.name, self._coordinator, self._group, self._leader, self._partition = seats
        self.id, self.epoch = -1, -1
        self.story: list[Any] = []

    def _ask(self, name: str, version: int, address: str | None = None, **fields: Any) -> Any:
        at = address or self._coordinator
        return ask(at, KEYS[name], message(name, **fields), version, KRAFT_BROKER_PROTOCOL)

    def _of_producer(self, epoch: int | None) -> dict[str, Any]:
        mine = self.epoch if epoch is None else epoch
        return {"transactional_id": self.name, "producer_id": self.id, "producer_epoch": mine}

    def init(self, what: str) -> None:
        """InitProducerId until the coordinator is free; notes the epoch."""

        def initialized() -> bool:
            found = self._ask("InitProducerId", 5, transactional_id=self.name, transaction_timeout_ms=60_000)
            if found.error_code == 0:
                self.id, self.epoch = found.producer_id, found.producer_epoch
            return found.error_code == 0

        until(initialized, LIMIT_SECONDS, f"{self.name} is initialized")
        self.story.append((what, self.epoch))

    def end(self, what: str, *, commits: bool, epoch: int | None = None, version: int = 5) -> None:
        """EndTxn, again while the transaction before is being completed; the producer takes what it gets."""
        responses = (
            self._ask("EndTxn", version, **self._of_producer(epoch), committed=commits) for _ in itertools.count()
        )
        found = next(one for one in responses if one.error_code != BUSY)
        if found.error_code == 0 and found.producer_id >= 0:
            assert found.producer_id == self.id
            self.epoch = found.producer_epoch
        self.story.append((what, found.error_code, found.producer_epoch))

    def produce(self, what: str, sequence: int, **of: Any) -> None:
        """Produce, again while the coordinator is busy; ``of``: another ``epoch``, ``version`` or transactional id."""
        records = batch(
            producer_id=self.id, epoch=of.get("epoch", self.epoch), sequence=sequence, attributes=TRANSACTIONAL
        )
        data = [{"name": TOPIC, "partition_data": [{"index": self._partition, "records": records}]}]
        fields = {"transactional_id": of.get("name", self.name), "acks": -1, "timeout_ms": 10_000, "topic_data": data}
        responses = (self._ask("Produce", of.get("version", 12), self._leader, **fields) for _ in itertools.count())
        codes = (one.responses[0].partition_responses[0].error_code for one in responses)
        self.story.append((what, next(code for code in codes if code not in {BUSY, 19})))

    def add(self, what: str) -> None:
        """AddPartitionsToTxn of a client."""
        fields = {f"v3_and_below_{key}": value for key, value in self._of_producer(None).items()}
        topics = [{"name": TOPIC, "partitions": [self._partition]}]

        def code() -> int:
            found = self._ask("AddPartitionsToTxn", 3, **fields, v3_and_below_topics=topics)
            return int(found.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code)

        self.story.append((what, next(one for one in (code() for _ in itertools.count()) if one != BUSY)))

    def commit_offsets(self, what: str, *, version: int = 5, member: str = "", generation: int = -1) -> None:
        """TxnOffsetCommit at the group's coordinator."""
        offsets = [{"partition_index": 0, "committed_offset": 1, "committed_metadata": ""}]
        fields = {"group_id": self._group, "member_id": member, "generation_id": generation}
        topics = [{"name": TOPIC, "partitions": offsets}]

        def code() -> int:
            asked = self._of_producer(None)
            found = self._ask("TxnOffsetCommit", version, self._leader, **asked, **fields, topics=topics)
            return int(found.topics[0].partitions[0].error_code)

        self.story.append((what, next(one for one in (code() for _ in itertools.count()) if one != BUSY)))

    def describe(self, what: str) -> None:
        """DescribeTransactions, once no transaction is being completed."""

        def described() -> Any:
            [one] = self._ask("DescribeTransactions", 0, transactional_ids=[self.name]).transaction_states
            return None if one.transaction_state.startswith("Prepare") else one

        one = until(described, LIMIT_SECONDS, "the markers are written")
        topics = sorted(topic.topic for topic in one.topics)
        self.story.append((what, one.error_code, one.transaction_state, one.producer_epoch, topics))


def tell(producer: Producer) -> None:
    """Transactions of v2 and v1 by turns, with everything that comes late or twice."""
    producer.init("init")
    producer.end("an abort without a transaction", commits=False)
    producer.end("a commit of nothing", commits=True)
    producer.produce("v12 without AddPartitions", 0)
    producer.describe("open")
    producer.produce("the second batch", 1)
    first = producer.epoch
    producer.end("commit", commits=True)
    producer.describe("committed")
    producer.end("the commit again", commits=True, epoch=first)
    producer.end("an abort in place of the commit", commits=False, epoch=first)
    producer.produce("a late batch", 2, epoch=first)
    producer.produce("a sequence that goes on", 2)
    producer.produce("the next transaction", 0)
    producer.end("a late end of v5", commits=True, epoch=first)
    producer.end("a late end of v4", commits=True, epoch=first, version=4)
    producer.describe("open still")
    producer.end("abort", commits=False)
    producer.end("another abort without a transaction", commits=False)
    producer.produce("v11 without AddPartitions", 0, version=11)
    producer.produce("v10 without AddPartitions", 0, version=10)
    producer.add("v3")
    producer.produce("v11", 0, version=11)
    producer.end("commit of v4", commits=True, version=4)
    producer.describe("of v1, with the same epoch")
    producer.end("the commit of v4 again", commits=True, version=4)
    producer.add("v3 again")
    producer.end("the commit of v4 again, which ends the next transaction", commits=True, version=4)
    producer.describe("ended by a repeated request: the flaw of v1")
    producer.commit_offsets("v5 without AddOffsets")
    producer.describe("with the group's partition")
    producer.end("commit of offsets", commits=True)
    producer.commit_offsets("v4 without AddOffsets", version=4)
    producer.commit_offsets("v5 of an unknown member", member="nobody", generation=3)
    producer.describe("with the group's partition, though the commit was refused")
    producer.end("abort of offsets", commits=False)
    producer.produce("a wrong transactional id", 0, name="other")
    producer.produce("a future epoch", 0, epoch=producer.epoch + 5)
    producer.produce("open", 0)
    producer.end("commit, and at once", commits=True)
    producer.produce("the next one", 0)
    fenced = producer.epoch
    producer.init("another producer, which aborts it")
    producer.end("commit of the fenced one", commits=True, epoch=fenced)
    producer.produce("a batch of the fenced one", 1, epoch=fenced)
    producer.describe("empty")


class Places(NamedTuple):
    """Places in a cluster of one broker of each kind.

    Attributes:
        transactional_ids: one that each kind coordinates.
        groups: likewise.
        addresses: of each kind.
    """

    transactional_ids: dict[str, str]
    groups: dict[str, str]
    addresses: dict[str, str]


def found_places(brokers: KRaftBrokers, round_number: int) -> Places:
    """Find names that each kind of broker coordinates; asking creates the internal topics."""
    kind_of = {node.id: node.kind for node in brokers.nodes}

    def coordinators(key_type: int, name: str) -> dict[str, str]:
        names = [f"{name}-{round_number}-{number}" for number in range(12)]
        fields = {"key_type": key_type, "coordinator_keys": names}
        request = message("FindCoordinator", **fields)
        found = ask(brokers.nodes[0].address, KEYS["FindCoordinator"], request, 4, KRAFT_BROKER_PROTOCOL)
        return {kind_of[one.node_id]: one.key for one in found.coordinators if one.error_code == 0}

    def both(key_type: int, name: str) -> dict[str, str]:
        def look() -> dict[str, str] | None:
            named = coordinators(key_type, name)
            return named if len(named) == len(brokers.nodes) else None

        wanted = until(look, LIMIT_SECONDS, f"both kinds coordinate a {name}")
        assert wanted is not None
        return wanted

    return Places(both(1, "tx"), both(0, "group"), {node.kind: node.address for node in brokers.nodes})


def records_of(brokers: KRaftBrokers, transactional_id: str) -> list[tuple[Any, ...]]:
    """Return a transactional id's records, with producer ids 0 and no times."""
    found: list[tuple[Any, ...]] = []
    for node in brokers.nodes:
        for path in sorted(node.directories[0].glob(f"{STATE_TOPIC}-*/*.log")):
            mine = [one for one in _values(path) if one[0] == transactional_id]
            found = mine if len(mine) > len(found) else found  # a follower's may end earlier
    return found


def _values(path: Path) -> Iterator[tuple[Any, ...]]:
    for loaded in read_batches(path.read_bytes()):
        for key, value in loaded.records:
            assert value is not None
            version = version_of(value)
            read = decoded(TransactionLogValue, value, version, flexible=version >= 1)
            topics = read.transaction_partitions
            names = None if topics is None else sorted((one.topic, len(one.partition_ids)) for one in topics)
            yield (
                decoded(TransactionLogKey, key, 0).transactional_id,
                *(version, read.transaction_status, read.producer_epoch, names, read.transaction_timeout_ms),
                *(read.previous_producer_id == read.producer_id, read.next_producer_id),
                *(read.client_transaction_version, read.transaction_start_timestamp_ms < 0),
            )


@pytest.fixture
def classpath() -> str:
    """The class path of Kafka 4.3.1; skips without Maven."""
    return kafka_classpath()


def test_each_kind_of_coordinator_and_of_leader_tells_the_same_story(classpath: str, tmp_path: Path) -> None:
    """Tidegauge's and Kafka's brokers ask each other: AddPartitionsToTxn v5, WriteTxnMarkers v2. Records are equal."""
    with quorum_of(tmp_path, [OURS], features=FEATURES) as quorum:
        quorum.wait_leader()
        with brokers_of(quorum, [OURS, KAFKA], classpath) as brokers:
            brokers.start()
            done = brokers.admin.create_topics([NewTopic(TOPIC, 2, replica_assignment=[[0, 1], [1, 0]])])
            done[TOPIC].result(60)
            stories, logs = {}, {}
            for number, (coordinator, leader) in enumerate(itertools.product((KAFKA, OURS), repeat=2)):
                partition = 0 if leader == OURS else 1
                ids = [node.id for node in brokers.nodes]
                brokers.wait_isr(TOPIC, ids, partition)
                places = found_places(brokers, number)
                names = places.transactional_ids[coordinator], places.addresses[coordinator]
                producer = Producer(Seats(*names, places.groups[leader], places.addresses[leader], partition))
                tell(producer)
                stories[coordinator, leader] = producer.story
                logs[coordinator, leader] = records_of(brokers, producer.name)
            wanted, records = stories[KAFKA, KAFKA], [one[1:] for one in logs[KAFKA, KAFKA]]
            assert len(records) == 30
            for kinds, story in stories.items():
                assert story == wanted, kinds
                assert [one[1:] for one in logs[kinds]] == records, kinds


@pytest.fixture
def cluster(tmp_path: Path, next_base_port: Callable[[], int]) -> Iterator[LocalCluster]:
    """Three brokers in KRaft mode whose transaction.version is 0."""
    quorum = WantedQuorum(controllers=1, port=free_quorum_port(), features={"transaction.version": 0})
    made = LocalCluster.create(
        tmp_path / "cluster", 3, settings=COPIERS_SETTINGS, base_port=next_base_port(), mode="kraft", quorum=quorum
    )
    try:
        made.up()
        yield made
    finally:
        made.down()


def upgrade(cluster: LocalCluster, level: int) -> None:
    words = ["upgrade-features", "--feature", f"transaction.version={level}", "--dir", str(cluster.directory)]
    done = CliRunner().invoke(root, words)
    assert done.exit_code == 0, done.output


def fence(cluster: LocalCluster, transactional_id: str) -> None:
    """Have another producer take over a transactional id."""
    servers = ",".join(cluster.kafka_bootstrap_servers)
    confluent_kafka.Producer({"bootstrap.servers": servers, "transactional.id": transactional_id}).init_transactions(60)


def spoken_version(cluster: LocalCluster, transactional_id: str) -> int | None:
    """Return what explain says of the version that a producer speaks."""
    words = ["explain", f"transaction:{transactional_id}", "-o", "json", "--dir", str(cluster.directory)]
    done = CliRunner().invoke(root, words)
    assert done.exit_code == 0, done.output
    version: int | None = json.loads(done.output)["transactions_version"]
    return version


def commits(cluster: LocalCluster, transactional_id: str) -> list[tuple[int, int]]:
    """Return value version and client's version of a producer's commits.

    Aborts may be the coordinator's own, which are of the cluster's level.
    """
    paths = sorted(cluster.directory.glob(f"broker-*/data/{STATE_TOPIC}-*/*.log"))
    logs = [[one for one in _values(path) if one[0] == transactional_id] for path in paths]
    return [(one[1], one[8]) for one in max(logs, key=len) if one[2] == PREPARE_COMMIT]


@pytest.mark.long
def test_javas_producer_goes_over_to_v2_and_copies_exactly_once(cluster: LocalCluster, tmp_path: Path) -> None:
    """TransactionManager: between two transactions, once a connection has seen the level; librdkafka stays at v1."""
    try:
        kafka_jars(KAFKA_4)
    except Unavailable as problem:
        pytest.skip(f"kafka-clients can't be had here: {problem}")
    cell = Cell(clean=False, brokers=True, ordered=False, grouped=True)
    copiers = Copiers(cluster, cell, ("confluent", "java"), tmp_path, kafka=KAFKA_4)
    of_librdkafka, of_java = (f"{copiers.group}-{number}" for number in range(2))

    def work() -> None:
        before = [len(child.lines()) for child in copiers.children]

        def has_worked() -> bool:
            copiers.transactions()
            return all(len(child.lines()) >= count + 2 for child, count in zip(copiers.children, before, strict=True))

        until(has_worked, LIMIT_SECONDS, "both copiers are at work")

    with copiers.running():
        with copiers.writing(200):
            work()
            upgrade(cluster, 2)
            bounce_broker(cluster, 0, copiers.target, clean=False)
            work()
            java = copiers.children[1]
            java.pause()
            fence(cluster, of_java)
            java.resume()
            for broker in (1, 2):
                bounce_broker(cluster, broker, copiers.target, clean=False)
                work()
        copiers.finish()
    copiers.check()
    assert (spoken_version(cluster, of_java), spoken_version(cluster, of_librdkafka)) == (2, 1)
    by_java, by_librdkafka = commits(cluster, of_java), commits(cluster, of_librdkafka)
    assert (by_java[0], by_java[-1]) == ((0, 0), (1, 2)), "records are flexible from the upgrade on"
    assert (by_librdkafka[0], by_librdkafka[-1]) == ((0, 0), (1, 0)), "librdkafka stays at v1"
