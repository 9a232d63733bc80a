"""A client's knowledge of a cluster, and its bootstrap (Metadata.updateLatestMetadata, KIP-951)."""

from __future__ import annotations

from pathlib import Path

import pytest

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.partition import TopicPartition
from tidegauge.v1 import metadata_pb2
from tidegauge_client.bootstrap import parse_bootstrap, resolve_bootstrap
from tidegauge_client.cluster_file import BrokerEntry, ClusterFile
from tidegauge_client.metadata import ClusterInfo, Leader, from_response, leaderless, merge, with_leader

TP = TopicPartition("t", 0)


def view(
    *, leader: int | None = 0, epoch: int = 0, topic_id: str = "id", brokers: tuple[int, ...] = (0, 1)
) -> ClusterInfo:
    part = metadata_pb2.PartitionMetadata(
        partition=0, leader_id=leader, leader_epoch=epoch, replicas=[0, 1], isr=[1, 0]
    )
    topic = metadata_pb2.TopicMetadata(name="t", topic_id=topic_id, partitions=[part])
    response = metadata_pb2.MetadataResponse(cluster_id="c", controller_id=1, topics=[topic])
    for broker in brokers:
        response.brokers.add(broker_id=broker, host="h", port=9000 + broker)
    return from_response(response)


def test_a_response_is_read_as_it_is() -> None:
    info = view(leader=1, epoch=4)
    part = info.partition(TP)
    assert part is not None
    assert (part.leader_id, part.leader_epoch, part.replicas, part.isr) == (1, 4, (0, 1), (1, 0))
    assert info.leader(TP) == Leader(1, "h:9001", 4)
    assert info.controller_id == 1


def test_absent_is_none_and_not_zero() -> None:
    info = view(leader=None)
    assert info.leader(TP) is None
    assert leaderless(info.topics.values()) == [TP]
    assert from_response(metadata_pb2.MetadataResponse()).controller_id is None


def test_a_leader_without_an_address_is_no_leader() -> None:
    assert view(leader=1, brokers=(0,)).leader(TP) is None


def test_a_lower_leader_epoch_never_replaces_a_higher_one() -> None:
    """An isolated broker shows yesterday's leaders for long."""
    assert merge(view(leader=1, epoch=5), view(leader=0, epoch=4)).leader(TP) == Leader(1, "h:9001", 5)
    assert merge(view(leader=1, epoch=5), view(leader=0, epoch=6)).leader(TP) == Leader(0, "h:9000", 6)


def test_a_new_topic_of_the_same_name_begins_from_scratch() -> None:
    newer = view(leader=0, epoch=0, topic_id="other")
    assert merge(view(leader=1, epoch=5), newer).leader(TP) == Leader(0, "h:9000", 0)


def test_brokers_are_those_of_the_newer_response() -> None:
    assert set(merge(view(brokers=(0, 1)), view(brokers=(1,))).brokers) == {1}


def test_a_hint_counts_only_with_a_higher_epoch() -> None:
    known = view(leader=0, epoch=3)
    assert with_leader(known, TP, 1, 3) is known
    assert with_leader(known, TP, 1, 4).leader(TP) == Leader(1, "h:9001", 4)
    assert with_leader(known, TopicPartition("u", 0), 1, 4) is known


def test_bootstrap_servers_are_read_in_order_and_once() -> None:
    assert parse_bootstrap("a:1, b:2,a:1") == ["a:1", "b:2"]
    assert parse_bootstrap(["a:1", "[::1]:2"]) == ["a:1", "[::1]:2"]


@pytest.mark.parametrize(
    "text", ["", ",", "host", "host:", ":1", "host:x", "host:0", "host:65536", "::1:9", "a:1,b", "a:" + "9" * 5000]
)
def test_a_malformed_bootstrap_server_is_refused(text: str) -> None:
    with pytest.raises(TidegaugeError, match="HOST:PORT") as caught:
        parse_bootstrap(text)
    assert caught.value.code is ErrorCode.INVALID_REQUEST


def test_the_option_wins_over_the_variable_and_that_over_the_directory(tmp_path: Path) -> None:
    ClusterFile("z:1", True, "fast", [BrokerEntry(0, "127.0.0.1", 7, "d")]).save(tmp_path)
    variable = {"TIDEGAUGE_BOOTSTRAP_SERVER": "v:2"}
    assert resolve_bootstrap("o:1", tmp_path, variable) == ["o:1"]
    assert resolve_bootstrap(None, tmp_path, variable) == ["v:2"]
    assert resolve_bootstrap(None, tmp_path, {}) == ["127.0.0.1:7"]


JAAS = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="{}" password="x";'


def test_credentials_stand_in_the_file_or_in_the_environment(tmp_path: Path) -> None:
    """A properties file can be readable by all where the password is in a variable."""
    config = tmp_path / "client.properties"
    config.write_text("security.protocol=SASL_SSL\nsasl.mechanism=PLAIN\n")
    variable = {"TIDEGAUGE_SASL_JAAS_CONFIG": JAAS.format("of-the-variable")}
    found = resolve_bootstrap("o:1", tmp_path, variable, config).security.login
    assert found is not None
    assert found.options["username"] == "of-the-variable"
    with pytest.raises(TidegaugeError, match=r"sasl\.jaas\.config is missing"):
        resolve_bootstrap("o:1", tmp_path, {}, config)
    config.write_text(f"{config.read_text()}sasl.jaas.config={JAAS.format('of-the-file')}\n")
    found = resolve_bootstrap("o:1", tmp_path, variable, config).security.login
    assert found is not None
    assert found.options["username"] == "of-the-file"


def test_a_clusters_directory_knows_the_user_of_its_brokers(tmp_path: Path) -> None:
    """As brokers look for it: the JAAS entry of the listener and mechanism, of the listener, of all."""
    settings = {"security.inter.broker.protocol": "SASL_SSL", "sasl.mechanism.inter.broker.protocol": "PLAIN"}
    for name in (
        "sasl.jaas.config",
        "listener.name.grpc_sasl_ssl.sasl.jaas.config",
        "listener.name.grpc_sasl_ssl.plain.sasl.jaas.config",
    ):
        settings[name] = JAAS.format(name)
        ClusterFile("z:1", True, "fast", [BrokerEntry(0, "127.0.0.1", 7, "d")], settings).save(tmp_path)
        security = resolve_bootstrap(None, tmp_path, {}).security
        assert security.is_tls
        assert security.login is not None
        assert security.login.options["username"] == name


def test_no_cluster_anywhere_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(TidegaugeError, match="no cluster is known") as caught:
        resolve_bootstrap(None, tmp_path, {})
    assert caught.value.code is ErrorCode.BROKER_NOT_AVAILABLE
