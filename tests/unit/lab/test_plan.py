"""The plan of a cluster at the first ``up``, and changes by a later one."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.listeners import parse_listeners
from tidegauge.settings import BROKER_SETTINGS, parse_broker_settings, read_properties
from tidegauge.settings.quorum import CONTROLLER_SETTINGS
from tidegauge_broker.server.verb import identity_of
from tidegauge_client.cluster_file import ClusterFile, load_cluster_file
from tidegauge_lab.local.broker_settings import (
    DECIDED_BY_UP,
    DECIDED_IN_KRAFT,
    PROFILES,
    advertised_of,
    check_settings,
    heartbeat_timeout_ms,
    listeners_of,
    server_properties,
    session_timeout_ms,
    ways_among_brokers,
)
from tidegauge_lab.local.layout import broker_log_directories
from tidegauge_lab.local.plan import first_plan, next_plan, ports_of
from tidegauge_lab.local.wanted import Wanted

HOME = Path("/cluster")


def all_free(_: int) -> bool:
    return True


STORE = {"broker.id": "1", "zookeeper.connect": "z:1"}


def made(**wanted: object) -> ClusterFile:
    return first_plan(HOME, Wanted(**wanted), free=all_free).file


def test_a_new_cluster_has_three_brokers_a_zookeeper_and_the_fast_profile() -> None:
    file = made()
    assert [(broker.id, broker.address, broker.kafka_address, broker.dir) for broker in file.brokers] == [
        (0, "127.0.0.1:19092", "127.0.0.1:9092", "/cluster/broker-0"),
        (1, "127.0.0.1:19093", "127.0.0.1:9093", "/cluster/broker-1"),
        (2, "127.0.0.1:19094", "127.0.0.1:9094", "/cluster/broker-2"),
    ]
    assert file.kafka_bootstrap_servers == ["127.0.0.1:9092", "127.0.0.1:9093", "127.0.0.1:9094"]
    assert (file.zookeeper_address, file.zookeeper_managed, file.profile) == ("127.0.0.1:12181", True, "fast")
    assert sorted(ports_of(file)) == [9092, 9093, 9094, 12181, 19092, 19093, 19094]


@pytest.mark.parametrize(
    ("host", "bound", "advertised"),
    [
        ("::1", "[::1]", "[::1]"),
        ("::", "[::]", "[::1]"),
        ("0.0.0.0", "0.0.0.0", "127.0.0.1"),  # noqa: S104 - never bound
        ("10.0.0.7", "10.0.0.7", "10.0.0.7"),
    ],
)
def test_brokers_advertise_an_address_at_which_they_listen_for_kafka_clients(
    host: str, bound: str, advertised: str
) -> None:
    """The listeners can be parsed, and a client that is sent to one reaches it; after a later ``up``, too."""
    for file in (made(kafka_host=host), next_plan(HOME, made(), Wanted(kafka_host=host), free=all_free).file):
        broker = file.brokers[0]
        listeners = listeners_of(broker, {}, file.kafka_host)
        assert parse_listeners(",".join(listeners), "listeners")[0].address == f"{bound}:9092"
        assert advertised_of(broker, {}, file.kafka_host)[0] == f"PLAINTEXT://{advertised}:9092"
        assert broker.kafka_listener == f"{advertised}:9092"
    assert next_plan(HOME, file, Wanted(), free=all_free).file.brokers[0].kafka_listener == f"{advertised}:9092"


def test_other_ports_than_the_usual_ones_are_said() -> None:
    plan = first_plan(HOME, Wanted(), free=lambda port: port not in {9094, 12181, 19093})
    assert [broker.port for broker in plan.file.brokers] == [19092, 19094, 19095]
    assert plan.file.zookeeper_address == "127.0.0.1:12182"
    assert [broker.kafka_port for broker in plan.file.brokers] == [9092, 9093, 9095]
    assert any("taken: port 19093;" in note and "for gRPC" in note for note in plan.notes)
    assert any("taken: port 9094;" in note and "for Kafka clients" in note for note in plan.notes)
    assert any("12181" in note and "12182" in note for note in plan.notes)
    assert first_plan(HOME, Wanted(), free=all_free).notes == []


def test_ports_that_another_cluster_is_about_to_bind_are_taken() -> None:
    plan = first_plan(HOME, Wanted(), taken=frozenset({19092, 12181}), free=all_free)
    assert [broker.port for broker in plan.file.brokers] == [19093, 19094, 19095]
    assert plan.file.zookeeper_address == "127.0.0.1:12182"


def test_requested_ports_are_taken_as_they_are_or_refused() -> None:
    assert [broker.port for broker in made(base_port=20000, brokers=2).brokers] == [20000, 20001]
    with pytest.raises(TidegaugeError, match="port 20001 of broker 1 is in use"):
        first_plan(HOME, Wanted(base_port=20000), free=lambda port: port != 20001)
    with pytest.raises(TidegaugeError, match=r"port 2181 of ZooKeeper is in use .* another port with --zookeeper-port"):
        first_plan(HOME, Wanted(zookeeper_port=2181), free=lambda port: port != 2181)
    assert [broker.kafka_port for broker in made(kafka_port=30000, brokers=2).brokers] == [30000, 30001]
    with pytest.raises(
        TidegaugeError, match=r"port 30001 of broker 1 is in use .* give another port with --kafka-port"
    ):
        first_plan(HOME, Wanted(kafka_port=30000), free=lambda port: port != 30001)
    with pytest.raises(TidegaugeError, match="port 20001 would be one of gRPC and one for Kafka clients"):
        made(base_port=20000, kafka_port=20001)


def test_a_requested_zookeeper_port_is_taken_as_it_is_or_refused() -> None:
    assert made(zookeeper_port=22181).zookeeper_address == "127.0.0.1:22181"
    with pytest.raises(TidegaugeError, match="port 22181 of ZooKeeper is in use"):
        first_plan(HOME, Wanted(zookeeper_port=22181), free=lambda port: port != 22181)
    for first in ("base_port", "kafka_port"):
        with pytest.raises(TidegaugeError, match="belongs to broker 1"):
            made(**{first: 20000}, zookeeper_port=20001)
    with pytest.raises(TidegaugeError, match="only the cluster's own gets one"):
        made(zookeeper="one:2181", zookeeper_port=22181)


def test_a_foreign_zookeeper_is_recorded_and_not_managed() -> None:
    file = made(zookeeper="one:2181,two:2182/tide")
    assert (file.zookeeper_address, file.zookeeper_managed) == ("one:2181,two:2182/tide", False)
    assert sorted(ports_of(file)) == [9092, 9093, 9094, 19092, 19093, 19094]
    with pytest.raises(TidegaugeError, match="no ZooKeeper address"):
        made(zookeeper="one:many")


def test_a_later_up_keeps_ids_and_ports_and_takes_new_settings() -> None:
    recorded = made(settings={"min.insync.replicas": "2", "num.partitions": "3"})
    file = next_plan(HOME, recorded, Wanted(profile="kafka", settings={"num.partitions": "6"}), free=all_free).file
    assert file.brokers == recorded.brokers
    assert next_plan(HOME, recorded, Wanted(zookeeper_port=12181), free=all_free).file.brokers == recorded.brokers
    assert file.profile == "kafka"
    assert file.settings == {"min.insync.replicas": "2", "num.partitions": "6"}


def test_a_moved_directory_is_named_again() -> None:
    file = next_plan(Path("/elsewhere"), made(), Wanted(), free=all_free).file
    assert [broker.dir for broker in file.brokers] == [f"/elsewhere/broker-{broker_id}" for broker_id in range(3)]


def test_brokers_may_be_added_on_ports_of_their_own() -> None:
    plan = next_plan(HOME, made(), Wanted(brokers=5), free=lambda port: port != 19095)
    assert [broker.port for broker in plan.file.brokers] == [19092, 19093, 19094, 19096, 19097]
    assert [broker.kafka_port for broker in plan.file.brokers] == [9092, 9093, 9094, 9095, 9096]
    assert [broker.id for broker in plan.file.brokers] == list(range(5))


def test_a_cluster_from_before_kafka_listeners_gets_ports_for_them() -> None:
    recorded = made()
    old = replace(recorded, brokers=[replace(broker, kafka_port=0) for broker in recorded.brokers])
    assert old.kafka_bootstrap_servers == []
    file = next_plan(HOME, old, Wanted(), free=lambda port: port != 9093).file
    assert [(broker.port, broker.kafka_port) for broker in file.brokers] == [
        (19092, 9092),
        (19093, 9094),
        (19094, 9095),
    ]


@pytest.mark.parametrize(
    "wanted",
    [
        Wanted(brokers=2),
        Wanted(zookeeper="other:2181"),
        Wanted(base_port=20000),
        Wanted(zookeeper_port=22181),
        Wanted(kafka_port=9093),
    ],
    ids=["fewer brokers", "another ZooKeeper", "other ports", "another port of ZooKeeper", "other ports for Kafka"],
)
def test_what_contradicts_the_data_in_the_directory_is_refused(wanted: Wanted) -> None:
    with pytest.raises(TidegaugeError, match="can't be changed"):
        next_plan(HOME, made(), wanted, free=all_free)


@pytest.mark.parametrize("brokers", [0, 101])
def test_a_count_that_makes_no_cluster_is_refused(brokers: int) -> None:
    with pytest.raises(TidegaugeError, match="1 to 100 brokers"):
        made(brokers=brokers)


def test_a_directory_with_a_comma_is_refused() -> None:
    """log.dirs is a list, separated by commas."""
    with pytest.raises(TidegaugeError, match="commas"):
        first_plan(Path("/a,b"), Wanted(), free=all_free)


# Settings


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"min.insync.replica": "2"}, "did you mean min.insync.replicas"),
        ({"min.insync.replicas": "two"}, "must be a whole number"),
        ({"broker.id": "7"}, "its own value"),
        ({"listeners": "PLAINTEXT://127.0.0.1:1"}, "its own value"),
        ({"replica.lag.time.max.ms": "400"}, "must not be larger than replica.lag.time.max.ms"),
    ],
)
def test_a_wrong_setting_is_refused_before_anything_starts(settings: dict[str, str], words: str) -> None:
    with pytest.raises(TidegaugeError, match=words) as caught:
        made(settings=settings)
    assert caught.value.code is ErrorCode.INVALID_CONFIG


def test_the_fast_profile_is_the_one_of_the_design() -> None:
    """Session 4 s, lag 5 s, fetch back-off 100 ms, checkpoints 1 s, controlled-shutdown back-off 200 ms, no more."""
    assert PROFILES["fast"] == {
        "zookeeper.session.timeout.ms": "4000",
        "replica.lag.time.max.ms": "5000",
        "replica.fetch.backoff.ms": "100",
        "replica.high.watermark.checkpoint.interval.ms": "1000",
        "log.flush.offset.checkpoint.interval.ms": "1000",
        "controlled.shutdown.retry.backoff.ms": "200",
        "offsets.topic.num.partitions": "10",
        "offsets.topic.replication.factor": "3",
        "transaction.state.log.num.partitions": "10",
        "transaction.state.log.replication.factor": "3",
        "transaction.state.log.min.isr": "2",
        "share.coordinator.state.topic.num.partitions": "10",
        "share.coordinator.state.topic.replication.factor": "3",
        "share.coordinator.state.topic.min.isr": "2",
        "group.initial.rebalance.delay.ms": "0",
    }
    assert PROFILES["kafka"] == {}
    for profile in PROFILES:
        check_settings({}, profile)
    assert session_timeout_ms({}, "fast") == 4000
    assert session_timeout_ms({"zookeeper.session.timeout.ms": "1500"}, "fast") == 1500
    assert session_timeout_ms({}, "kafka") == 18000
    assert heartbeat_timeout_ms({}, "fast") == 4000
    assert heartbeat_timeout_ms({"broker.session.timeout.ms": "1500", "1:broker.rack": "a"}, "fast") == 1500
    assert heartbeat_timeout_ms({}, "kafka") == 9000


def test_a_setting_of_several_lines_reaches_the_broker_as_it_was_given() -> None:
    """A private key as text, or a password with a backslash."""
    given = {"ssl.keystore.key": "-----BEGIN\nMII=\n-----END", "listener.name.ssl.ssl.keystore.key": "a\\nb\\"}
    text = server_properties(made().brokers[0], HOME, membership=STORE, profile="kafka", settings=given)
    assert read_properties(text).items() >= given.items()


def test_server_properties_say_who_the_broker_is_and_set_wins() -> None:
    file = made(settings={"replica.lag.time.max.ms": "9000", "lab.enable": "false"})
    text = server_properties(file.brokers[1], HOME, membership=STORE, profile="fast", settings=file.settings)
    values = read_properties(text)
    assert values == {
        **PROFILES["fast"],
        "broker.id": "1",
        "listeners": "PLAINTEXT://127.0.0.1:9093,GRPC://127.0.0.1:19093",
        "zookeeper.connect": "z:1",
        "log.dirs": "/cluster/broker-1/data",
        "event.log.file": "/cluster/logs/broker-1.events.jsonl",
        "lab.rules.file": "/cluster/control/rules.json",
        "lab.session.file": "/cluster/broker-1/session.json",
        "auto.create.topics.enable": "false",
        "replica.lag.time.max.ms": "9000",
        "lab.enable": "false",
    }
    assert text.count("replica.lag.time.max.ms") == 1


@pytest.mark.parametrize(
    ("settings", "listeners"),
    [
        ({"security.inter.broker.protocol": "SSL"}, "SSL://127.0.0.1:9093,GRPC_SSL://127.0.0.1:19093"),
        ({"sasl.enabled.mechanisms": "PLAIN"}, "SASL_PLAINTEXT://127.0.0.1:9093,GRPC://127.0.0.1:19093"),
        (
            {"sasl.enabled.mechanisms": "PLAIN", "security.inter.broker.protocol": "SSL"},
            "SASL_SSL://127.0.0.1:9093,GRPC_SSL://127.0.0.1:19093",
        ),
        (
            {
                "sasl.enabled.mechanisms": "PLAIN",
                "security.inter.broker.protocol": "SASL_SSL",
                "sasl.mechanism.inter.broker.protocol": "PLAIN",
                "sasl.jaas.config": 'PlainLoginModule required username="broker" password="x" user_broker="x";',
            },
            "SASL_SSL://127.0.0.1:9093,GRPC_SASL_SSL://127.0.0.1:19093",
        ),
    ],
)
def test_listeners_are_named_by_their_protocols(settings: dict[str, str], listeners: str) -> None:
    file = made(settings=settings)
    text = server_properties(file.brokers[1], HOME, membership=STORE, profile="fast", settings=settings)
    assert read_properties(text)["listeners"] == listeners


@pytest.mark.parametrize(
    ("brokers", "replicas", "min_isr"), [(1, "1", "1"), (2, "2", "2"), (3, "3", "2"), (5, "3", "2")]
)
def test_a_small_cluster_of_the_fast_profile_can_have_internal_topics(
    brokers: int, replicas: str, min_isr: str
) -> None:
    """Kafka's replication factors of internal topics are exact: one broker could have no groups and transactions."""
    texts = {
        profile: server_properties(
            made().brokers[0],
            HOME,
            membership=STORE,
            profile=profile,
            settings={},
            broker_count=brokers,
        )
        for profile in PROFILES
    }
    of_fast = read_properties(texts["fast"])
    assert of_fast["offsets.topic.replication.factor"] == replicas
    assert of_fast["transaction.state.log.replication.factor"] == replicas
    assert of_fast["transaction.state.log.min.isr"] == min_isr
    assert "offsets.topic.replication.factor" not in read_properties(texts["kafka"])


def test_a_broker_has_the_log_directories_that_were_made_for_it(tmp_path: Path) -> None:
    """``log.dirs`` names ``data``, and every ``data-N`` beside it, in this order."""
    file = made()
    for name in ("data-3", "data-2", "other"):
        (tmp_path / "broker-1" / name).mkdir(parents=True)
    text = server_properties(file.brokers[1], tmp_path, membership=STORE, profile="fast", settings={})
    home = tmp_path / "broker-1"
    assert read_properties(text)["log.dirs"] == f"{home}/data,{home}/data-2,{home}/data-3"
    assert broker_log_directories(tmp_path, 0) == [tmp_path / "broker-0" / "data"]


def test_the_cluster_file_comes_back_as_it_was_written(tmp_path: Path) -> None:
    file = made(brokers=2, settings={"num.partitions": "3"})
    file.save(tmp_path)
    assert load_cluster_file(tmp_path) == file


def test_a_setting_with_a_brokers_id_before_it_is_of_that_broker_alone() -> None:
    settings = {"1:broker.rack": "b", "broker.rack": "a", "1:num.partitions": "7"}
    check_settings(settings, "fast")
    file = made(settings=settings)
    first, second = (
        server_properties(broker, HOME, membership=STORE, profile="fast", settings=settings).splitlines()
        for broker in file.brokers[:2]
    )
    assert "broker.rack=a" in first
    assert "num.partitions=7" not in first
    assert {"broker.rack=b", "num.partitions=7"} <= set(second)
    with pytest.raises(TidegaugeError, match=r"Unknown broker setting: broker\.rakc; did you mean broker\.rack"):
        check_settings({"1:broker.rakc": "b"}, "fast")
    with pytest.raises(TidegaugeError, match=r"Unknown broker setting: foo; docs/configuration\.md lists all"):
        check_settings({"foo": "1"}, "fast")
    with pytest.raises(TidegaugeError, match=r"broker\.id can't be set"):
        check_settings({"1:broker.id": "5"}, "fast")


@pytest.mark.parametrize(
    ("name", "instead"),
    [
        ("broker.id", "--brokers"),
        ("listeners", "--kafka-port"),
        ("advertised.listeners", "PUT /v1/advertised"),
        ("zookeeper.connect", "--zookeeper"),
        ("log.dirs", "broker-N/data-2"),
        ("log.dir", "broker-N/data-2"),
        ("event.log.file", "--dir"),
    ],
)
def test_the_refusal_of_a_setting_that_up_decides_names_the_other_way(name: str, instead: str) -> None:
    """A setting that another one of ``up`` hides is refused too: it would have no effect, and none would say so."""
    with pytest.raises(TidegaugeError, match=rf"{re.escape(name)} can't be set: .*{re.escape(instead)}"):
        check_settings({name: "1"}, "fast")


def test_every_setting_that_up_decides_is_one_of_a_broker() -> None:
    assert DECIDED_BY_UP.keys() <= BROKER_SETTINGS.keys()
    assert DECIDED_IN_KRAFT.keys() <= CONTROLLER_SETTINGS.keys()


def test_brokers_replicate_over_kafkas_protocol_and_the_controller_speaks_grpc() -> None:
    """docs/adr/0018: a third less CPU for a record, and the logical clock goes along."""
    assert ways_among_brokers(made()) == {
        "inter.broker.listener.name": "PLAINTEXT",
        "control.plane.listener.name": "GRPC",
    }
    for broker in made().brokers:
        text = server_properties(
            broker,
            HOME,
            membership=STORE,
            profile="fast",
            settings={},
            among_brokers=ways_among_brokers(made()),
        )
        values, unknown = parse_broker_settings(read_properties(text))
        assert not unknown
        listeners = identity_of(values).listeners
        assert (listeners.inter_broker_wire, listeners.control_plane.name) == ("KAFKA", "GRPC")


@pytest.mark.parametrize(
    "settings",
    [
        {"security.inter.broker.protocol": "SSL"},
        {"sasl.enabled.mechanisms": "PLAIN"},
        {"listener.security.protocol.map": "PLAINTEXT:SSL,GRPC:PLAINTEXT"},
        {"authorizer.class.name": "kafka.security.authorizer.AclAuthorizer"},
        {"inter.broker.listener.name": "GRPC"},
        {"inter.broker.listener.name": "PLAINTEXT"},
        {"1:inter.broker.listener.name": "GRPC"},
    ],
    ids=lambda settings: next(iter(settings)),
)
def test_who_says_how_brokers_speak_or_encrypts_gets_nothing_else(settings: dict[str, str]) -> None:
    assert ways_among_brokers(made(settings=settings)) == {}


def test_addresses_for_clients_alone_are_not_those_of_followers() -> None:
    """A container runner maps ports; brokers in the container do not reach each other through them."""
    file = made()
    mapped = [replace(file.brokers[0], advertised="docker.example:32771"), *file.brokers[1:]]
    assert ways_among_brokers(replace(file, brokers=mapped)) == {}
    assert ways_among_brokers(replace(file, kafka_host="0.0.0.0")) == {}  # noqa: S104 - never bound
    assert ways_among_brokers(replace(file, brokers=[replace(one, kafka_port=0) for one in file.brokers])) == {}
