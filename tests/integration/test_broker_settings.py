"""Altered settings take effect on running brokers: at once, after a restart, and after a lost session
(docs/configuration.md).

One cluster for all tests. It looks at its logs every 300 ms.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import grpc
import pytest
from tests.integration.conftest import metadata_at
from tests.labs import whole
from tests.typed import Typed, typed
from tests.waiting import until

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.partition import TopicPartition
from tidegauge.v1 import broker_service_pb2_grpc, produce_pb2
from tidegauge_client.records import encode_batch
from tidegauge_client.sync import SyncAdmin
from tidegauge_lab.local.cluster import LocalCluster

pytestmark = [pytest.mark.integration, pytest.mark.timeout(1200)]

MIN_ISR = "min.insync.replicas"
EARLIEST = -2


@pytest.fixture(scope="module")
def own(
    zookeeper: str, next_base_port: Callable[[], int], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[LocalCluster]:
    made = LocalCluster.create(
        tmp_path_factory.mktemp("settings"),
        3,
        **metadata_at(zookeeper, "settings"),
        base_port=next_base_port(),
        settings={
            "log.retention.check.interval.ms": "300",
            "log.initial.task.delay.ms": "100",
            # Replicas leave the ISR when a test stops them, not for a slow machine.
            "replica.lag.time.max.ms": "60000",
        },
    )
    made.up()
    yield made
    made.down(grace_seconds=0)


@pytest.fixture
def admin(own: LocalCluster) -> Iterator[SyncAdmin]:
    whole(own)
    with SyncAdmin(own.bootstrap_servers) as made:
        yield made


def verb(own: LocalCluster, *arguments: str, exit_code: int = 0) -> Typed:
    done = typed(*arguments, "--dir", own.directory)
    assert done.code == exit_code, done.stderr
    return done


def alter(own: LocalCluster, *entity: str, **changes: str) -> None:
    said = ",".join(f"{name.replace('_', '.')}={value}" for name, value in changes.items())
    done = json.loads(verb(own, "alter-config", *entity, "--add-config", said, "-o", "json").stdout)
    live = own.status()["brokers"]
    assert done["applied_by"] == [broker["id"] for broker in live if broker["state"] == "up"]


def produce(own: LocalCluster, topic: str, size: int = 100) -> ErrorCode:
    """One record with acks=all to the leader of partition 0, once: its response."""
    records = encode_batch([(b"x" * size, None, int(time.time() * 1000), ())])
    partition = produce_pb2.ProducePartition(topic=topic, partition=0, records=records)
    request = produce_pb2.ProduceRequest(acks=-1, timeout_ms=30_000, partitions=[partition])

    def attempt() -> ErrorCode | None:
        try:
            leader = own.leader_of(topic, 0)
        except TidegaugeError:
            return None  # there is no leader at the moment
        with grpc.insecure_channel(own.file.broker(leader).address) as channel:
            response = broker_service_pb2_grpc.BrokerServiceStub(channel).Produce(request, timeout=150)
        code = ErrorCode.of(response.partitions[0].error)
        return None if code in {ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION} else code

    return until_known(attempt)


def until_known(attempt: Callable[[], ErrorCode | None]) -> ErrorCode:
    """The first result that is not None; NONE is a number that counts as false."""
    codes: list[ErrorCode] = []

    def look() -> bool:
        code = attempt()
        codes.extend([] if code is None else [code])
        return bool(codes)

    until(look)
    return codes[0]


def segments(own: LocalCluster, broker_id: int, topic: str) -> int:
    return len(list(Path(own.file.broker(broker_id).dir).glob(f"data/{topic}-0/*.log")))


@pytest.mark.zookeeper_mode("Kafka 4 has no segments below 1 MiB (KIP-1030)")
def test_sizes_and_times_of_a_log(own, admin):
    """segment.bytes, max.message.bytes, retention.ms: leader and followers alike, and back again."""
    admin.create_topic("log", partitions=1, replication_factor=3)
    admin.wait_for_topic("log")
    assert {produce(own, "log", size=1000) for _ in range(6)} == {ErrorCode.NONE}
    until(lambda: [segments(own, broker_id, "log") for broker_id in range(3)] == [1, 1, 1])
    alter(own, "--topic", "log", segment_bytes="2500")
    assert {produce(own, "log", size=1000) for _ in range(6)} == {ErrorCode.NONE}
    until(lambda: all(segments(own, broker_id, "log") >= 3 for broker_id in range(3)))

    alter(own, "--entity-type", "topics", "--entity-name", "log", max_message_bytes="500")
    assert produce(own, "log", size=1000) is ErrorCode.MESSAGE_TOO_LARGE
    verb(own, "alter-config", "--topic", "log", "--delete-config", "max.message.bytes")
    assert produce(own, "log", size=1000) is ErrorCode.NONE

    at = TopicPartition("log", 0)
    assert admin.list_offsets({at: EARLIEST})[at].offset == 0
    alter(own, "--topic", "log", retention_ms="1")
    until(lambda: admin.list_offsets({at: EARLIEST})[at].offset == 13, timeout=150)
    shown = verb(own, "describe-topic", "log").stdout
    assert "\tConfigs: retention.ms=1,segment.bytes=2500\n" in shown


def test_what_is_refused_changes_nothing(own, admin):
    """One bad key or value refuses all; settings that Kafka reads at start only are refused with its sentence."""
    verb(own, "create-topic", "refused", "--partitions", "1", "--replication-factor", "3", "--config", f"{MIN_ISR}=2")
    before = verb(own, "describe-config", "--topic", "refused").stdout
    bad = verb(own, "alter-config", "--topic", "refused", "--add-config", f"{MIN_ISR}=3,retention=1", exit_code=1)
    assert "Unknown topic config name: retention" in bad.stderr
    bad = verb(own, "alter-config", "--topic", "refused", "--add-config", f"{MIN_ISR}=3,segment.bytes=1", exit_code=1)
    assert "configuration segment.bytes: Value must be at least 14; it must be a whole number from 14" in bad.stderr
    for name in ("auto.leader.rebalance.enable", "leader.imbalance.check.interval.seconds"):
        bad = verb(own, "alter-config", "--broker", "0", "--add-config", f"{name}=1", exit_code=1)
        assert f"Cannot update these configs dynamically: Set({name})" in bad.stderr
    assert verb(own, "describe-config", "--topic", "refused").stdout == before
    bad = verb(own, "create-topic", "bad", "--partitions", "1", "--config", "segment.bytes=1", exit_code=1)
    assert "configuration segment.bytes: Value must be at least 14" in bad.stderr
    assert "bad" not in admin.list_topics()


@pytest.mark.zookeeper_mode("brokers' min.insync.replicas is fixed while eligible leader replicas are kept (KIP-966)")
def test_min_insync_replicas_by_topic_and_for_all_brokers_and_across_a_restart(own, admin):
    """Dynamic topic > dynamic broker > default of all brokers > server.properties > default (DynamicBrokerConfig)."""
    for name in ("own-value", "brokers-value"):
        admin.create_topic(name, assignment=[[0, 1, 2]])
        admin.wait_for_topic(name)
    own.stop(2)
    until(lambda: all(len(topic.partitions[0].isr) == 2 for topic in admin.describe_topics(["own-value"])))
    alter(own, "--topic", "own-value", min_insync_replicas="3")
    assert produce(own, "own-value") is ErrorCode.NOT_ENOUGH_REPLICAS
    assert produce(own, "brokers-value") is ErrorCode.NONE

    alter(own, "--broker-defaults", min_insync_replicas="3")
    alter(own, "--topic", "own-value", min_insync_replicas="2")
    assert produce(own, "own-value") is ErrorCode.NONE
    assert produce(own, "brokers-value") is ErrorCode.NOT_ENOUGH_REPLICAS

    alter(own, "--broker", "0", min_insync_replicas="2")
    assert produce(own, "brokers-value") is ErrorCode.NONE
    own.kill(0, expire=True)
    own.start(0)
    until(lambda: admin.describe_topics(["brokers-value"])[0].partitions[0].isr in {(1, 0), (0, 1)}, timeout=150)
    verb(own, "elect-leaders", "--election-type", "preferred", "--topic", "brokers-value", "--partition", "0")
    assert produce(own, "brokers-value") is ErrorCode.NONE
    verb(own, "alter-config", "--broker", "0", "--delete-config", MIN_ISR)
    assert produce(own, "brokers-value") is ErrorCode.NOT_ENOUGH_REPLICAS
    shown = verb(own, "describe-topic", "brokers-value").stdout
    assert f"\tConfigs: {MIN_ISR}=3\n" in shown
    verb(own, "alter-config", "--entity-type", "brokers", "--entity-default", "--delete-config", MIN_ISR)
    assert produce(own, "brokers-value") is ErrorCode.NONE


@pytest.mark.zookeeper_mode("it ends a ZooKeeper session")
def test_a_broker_that_lost_its_session_applies_what_it_missed(own, admin):
    admin.create_topic("missed", assignment=[[0, 1, 2]])
    admin.wait_for_topic("missed")
    own.pause(0, expire=True)
    until(lambda: 0 not in admin.metadata([]).brokers, timeout=150)
    alter(own, "--topic", "missed", max_message_bytes="500")
    own.resume(0)
    until(lambda: admin.describe_topics(["missed"])[0].partitions[0].isr == (1, 2, 0), timeout=150)
    verb(own, "elect-leaders", "--election-type", "preferred", "--topic", "missed", "--partition", "0")
    assert produce(own, "missed", size=1000) is ErrorCode.MESSAGE_TOO_LARGE


def test_unclean_elections_are_made_as_soon_as_they_are_allowed(own, admin):
    """TopicConfigHandler: enableTopicUncleanLeaderElection; the ISR is the new leader alone."""
    admin.create_topic("unclean", assignment=[[1, 2]])
    admin.wait_for_topic("unclean")
    own.stop(2)
    own.kill(1, expire=True)
    own.start(2)

    def state():
        # A broker that has just begun knows no topics yet.
        topic = admin.metadata(["unclean"]).topics["unclean"]
        part = topic.partitions.get(0)
        return None if part is None else (part.leader_id, part.isr)

    # No leader may still mean that only the metadata has noticed the death; the controller elects either way.
    until(lambda: (now := state()) and now[0] is None and now[1] == (1,), timeout=150)
    alter(own, "--topic", "unclean", unclean_leader_election_enable="true")
    until(lambda: (now := state()) and now == (2, (2,)), timeout=150)
