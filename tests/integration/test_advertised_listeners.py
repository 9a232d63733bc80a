"""``advertised.listeners`` changes while brokers run in ZooKeeper mode, as in Kafka 3.9 (DynamicListenerConfig).

An unmodified client alters it; the broker registers its other address, the controller sends it to all, and clients,
followers and the next controller find the broker there. It outlives restarts; deleted, it is the file's again. In KRaft
mode it is read at the start alone, as in Kafka 4.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest
from tests.forwarder import Forwarder
from tests.integration.conftest import MakeCluster
from tests.integration.test_kafka_admin import ask
from tests.waiting import until

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.kafka import apis
from tidegauge.kafka.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from tidegauge.kafka.messages.metadata import MetadataRequest
from tidegauge_client.sync import SyncAdmin
from tidegauge_lab.control.advertised import advertise
from tidegauge_lab.local.cluster import LocalCluster

confluent_kafka = pytest.importorskip("confluent_kafka", reason="pip install -e '.[dev]' brings it")
admin_module = pytest.importorskip("confluent_kafka.admin")

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]
LIMIT_SECONDS = 60.0
NAME = "advertised.listeners"
BROKER, SET = 4, 0
BROKER_KIND = admin_module.ResourceType.BROKER


@pytest.fixture(params=[pytest.param("PLAINTEXT", marks=pytest.mark.long), "GRPC"])
def cluster(make_cluster: MakeCluster, request: pytest.FixtureRequest) -> LocalCluster:
    """Three brokers, whose followers use this listener."""
    settings = {"inter.broker.listener.name": request.param, "auto.leader.rebalance.enable": "false"}
    return make_cluster(settings=settings)


@pytest.fixture
def others(cluster: LocalCluster) -> Iterator[dict[str, Forwarder]]:
    """Broker 0's second addresses, by the listener's name."""
    entry = cluster.file.broker(0)
    assert entry.kafka_port is not None
    with Forwarder(entry.kafka_port) as kafka, Forwarder(entry.port) as grpc:
        yield {"PLAINTEXT": kafka, "GRPC": grpc}


def altered(cluster: LocalCluster, value: str | None) -> None:
    """Alter the setting of broker 0 with a Kafka client; None: delete it."""
    how = admin_module.AlterConfigOpType.DELETE if value is None else admin_module.AlterConfigOpType.SET
    entry = admin_module.ConfigEntry(NAME, value, incremental_operation=how)
    resource = admin_module.ConfigResource(BROKER_KIND, "0", incremental_configs=[entry])
    admin = client(cluster)
    [future] = admin.incremental_alter_configs([resource]).values()
    future.result(LIMIT_SECONDS)


def client(cluster: LocalCluster) -> Any:
    return admin_module.AdminClient({"bootstrap.servers": ",".join(cluster.kafka_bootstrap_servers)})


def described(cluster: LocalCluster) -> Any:
    admin = client(cluster)
    [future] = admin.describe_configs([admin_module.ConfigResource(BROKER_KIND, "0")]).values()
    return future.result(LIMIT_SECONDS)[NAME]


def sent_to(cluster: LocalCluster) -> set[str]:
    """Where all brokers send Kafka clients for broker 0."""
    found = set[str]()
    for broker in cluster.file.brokers:
        metadata = ask(cluster, broker.id, apis.METADATA, MetadataRequest([], False), 4)
        found |= {f"{one.host}:{one.port}" for one in metadata.brokers if one.node_id == 0}
    return found


def wait_sent_to(cluster: LocalCluster, address: str) -> None:
    until(lambda: sent_to(cluster) == {address}, LIMIT_SECONDS, f"broker 0 is at {address} in all metadata")


def write(cluster: LocalCluster, *values: str) -> None:
    producer = confluent_kafka.Producer({"bootstrap.servers": ",".join(cluster.kafka_bootstrap_servers), "acks": "all"})
    for value in values:
        producer.produce("moved", value.encode(), partition=0)
    assert producer.flush(LIMIT_SECONDS) == 0


def read(cluster: LocalCluster, count: int) -> list[str]:
    settings = {"bootstrap.servers": ",".join(cluster.kafka_bootstrap_servers), "group.id": "unused"}
    consumer = confluent_kafka.Consumer(settings)
    consumer.assign([confluent_kafka.TopicPartition("moved", 0, 0)])
    records = consumer.consume(count, LIMIT_SECONDS)
    consumer.close()
    return [record.value().decode() for record in records]


def wait_in_sync(cluster: LocalCluster) -> None:
    with SyncAdmin(cluster.bootstrap_servers) as admin:
        until(lambda: set(admin.describe_topics(["moved"])[0].partitions[0].isr) == {0, 1, 2}, what="all are in sync")


def test_a_broker_moves_stays_there_through_restarts_and_returns(
    cluster: LocalCluster, others: dict[str, Forwarder]
) -> None:
    """Clients and followers use the new address; so do a new controller and the broker's next incarnations."""
    with SyncAdmin(cluster.bootstrap_servers) as admin:
        admin.create_topic("moved", assignment=[[0, 1, 2]], configs={"min.insync.replicas": "3"})
    [static] = sent_to(cluster)
    assert (described(cluster).value, described(cluster).is_read_only) == (None, False)
    write(cluster, "before")

    moved = ",".join(f"{name}://127.0.0.1:{one.port}" for name, one in others.items())
    new_address = f"127.0.0.1:{others['PLAINTEXT'].port}"
    altered(cluster, moved)
    wait_sent_to(cluster, new_address)
    now = described(cluster)
    assert (now.value, now.source) == (moved, admin_module.ConfigSource.DYNAMIC_BROKER_CONFIG.value)
    taken = others["PLAINTEXT"].taken
    write(cluster, "at the new address")
    assert read(cluster, 2) == ["before", "at the new address"]
    assert others["PLAINTEXT"].taken > taken, "clients connect where they are sent"

    used = others["PLAINTEXT" if "PLAINTEXT" in cluster.file.settings["inter.broker.listener.name"] else "GRPC"]
    taken = used.taken
    cluster.kill(1, expire=True)
    cluster.start(1)
    wait_in_sync(cluster)
    assert used.taken > taken, "a follower finds its leader at the new address"

    for end in (cluster.stop, partial(cluster.kill, expire=True)):
        end(0)
        cluster.start(0)
        wait_sent_to(cluster, new_address)
    wait_in_sync(cluster)
    controller = cluster.status()["controller"]["broker"]
    cluster.kill(controller, expire=True)
    cluster.start(controller)
    wait_sent_to(cluster, new_address)
    wait_in_sync(cluster)
    write(cluster, "after restarts")

    altered(cluster, None)
    wait_sent_to(cluster, static)
    assert (described(cluster).value, described(cluster).source) == (None, 5)
    write(cluster, "at home")
    assert read(cluster, 4) == ["before", "at the new address", "after restarts", "at home"]
    status = cluster.status()
    assert [broker["state"] for broker in status["brokers"]] == ["up", "up", "up"]
    assert status["kafka_brokers"] == []


@pytest.fixture(scope="module")
def one(zookeeper: str, next_base_port: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """A single broker for the tests below, which leave it as it was."""
    base_port = next_base_port()
    directory = tmp_path_factory.mktemp("advertised")
    made = LocalCluster.create(directory, 1, zookeeper=f"{zookeeper}/advertised", base_port=base_port)
    made.up()
    yield made
    made.down(grace_seconds=0)


@pytest.mark.parametrize("validate_only", [True, False])
def test_addresses_that_can_not_be_are_refused_and_change_nothing(one: LocalCluster, *, validate_only: bool) -> None:
    """DynamicBrokerConfig.validate: INVALID_REQUEST with the reason, also for all brokers at once."""
    [before] = sent_to(one)
    entry = one.file.broker(0)
    grpc = f"GRPC://{entry.address}"
    cases = {
        ("0", "PLAINTEXT://localhost:1"): "Advertised listener must be specified for inter-broker listener GRPC",
        ("0", grpc): "Advertised listener must be specified for inter-broker listener PLAINTEXT",
        ("0", f"PLAINTEXT://h:1,{grpc},OTHER://h:2"): "there is no listener OTHER",
        ("0", f"PLAINTEXT://0.0.0.0:1,{grpc}"): "0.0.0.0 is not a reachable address",
        ("0", ""): "There must be at least one broker advertised listener.",
        ("", f"PLAINTEXT://h:1,{grpc}"): "Cannot update these configs at default cluster level, broker id must be "
        "specified: Set(advertised.listeners)",
        ("1", f"PLAINTEXT://h:1,{grpc}"): "Unexpected broker id",
    }
    for (name, value), sentence in cases.items():
        resource = AlterConfigsResource(BROKER, name, [AlterableConfig(NAME, SET, value)])
        request = IncrementalAlterConfigsRequest([resource], validate_only)
        [refused] = ask(one, 0, apis.INCREMENTAL_ALTER_CONFIGS, request, 1).responses
        assert refused.error_code == ErrorCode.INVALID_REQUEST
        assert sentence in refused.error_message
    assert sent_to(one) == {before}
    assert described(one).value is None


def test_what_is_only_validated_is_not_in_force(one: LocalCluster) -> None:
    value = f"PLAINTEXT://localhost:1,GRPC://{one.file.broker(0).address}"
    resource = AlterConfigsResource(BROKER, "0", [AlterableConfig(NAME, SET, value)])
    [done] = ask(one, 0, apis.INCREMENTAL_ALTER_CONFIGS, IncrementalAlterConfigsRequest([resource], True), 1).responses
    assert (done.error_code, described(one).value) == (0, None)


def test_an_address_that_the_control_interface_gives_replaces_an_altered_one(one: LocalCluster) -> None:
    """``PUT /v1/advertised`` writes the broker's file, over which an altered setting has precedence."""
    entry = one.file.broker(0)
    altered(one, f"PLAINTEXT://localhost:{entry.kafka_port},GRPC://{entry.address}")
    wait_sent_to(one, f"localhost:{entry.kafka_port}")
    home = f"127.0.0.1:{entry.kafka_port}"
    assert advertise(one, {"0": home})["restarted"] == [0]
    wait_sent_to(one, home)
    assert described(one).source == admin_module.ConfigSource.STATIC_BROKER_CONFIG.value


def test_in_kraft_mode_the_addresses_of_a_running_broker_stay(kraft_cluster: LocalCluster) -> None:
    """DynamicBrokerConfig.ALL_DYNAMIC_CONFIGS of Kafka 4 lacks the setting; it is refused on either wire."""
    [before] = sent_to(kraft_cluster)
    value = f"PLAINTEXT://localhost:1,GRPC://{kraft_cluster.file.broker(0).address}"
    sentence = "Cannot update these configs dynamically: Set(advertised.listeners)"
    request = IncrementalAlterConfigsRequest([AlterConfigsResource(BROKER, "0", [AlterableConfig(NAME, SET, value)])])
    [refused] = ask(kraft_cluster, 0, apis.INCREMENTAL_ALTER_CONFIGS, request, 1).responses
    assert (refused.error_code, refused.error_message) == (ErrorCode.INVALID_REQUEST, sentence)
    with SyncAdmin(kraft_cluster.bootstrap_servers) as admin, pytest.raises(TidegaugeError) as caught:
        admin.alter_broker_settings(0, {NAME: value}, [])
    assert (caught.value.code, caught.value.message) == (ErrorCode.INVALID_REQUEST, sentence)
    now = described(kraft_cluster)
    assert (now.value, now.is_read_only) == (None, True)
    assert sent_to(kraft_cluster) == {before}
