"""Listeners and the environment: bound and advertised addresses, and errors reported before anything starts."""

from __future__ import annotations

import pytest

from tidegauge.control import Endpoint
from tidegauge.environment import settings_of_environment
from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.listeners import GRPC, KAFKA, Listener, parse_listeners, resolve_listeners
from tidegauge.settings import parse_broker_settings

PLAIN = ("PLAINTEXT:PLAINTEXT",)


def test_one_listener_is_bound_and_advertised() -> None:
    found = resolve_listeners("GRPC://127.0.0.1:19092", None, None, PLAIN)
    assert found.bound == found.advertised == (Listener("GRPC", "127.0.0.1", 19092),)
    assert found.inter_broker.address == "127.0.0.1:19092"
    assert found.added is None


def test_a_listener_speaks_the_wire_protocol_of_its_name_or_of_the_map() -> None:
    """Kafka's protocol, as in Kafka, unless the name begins with GRPC or the map says otherwise."""
    listeners = "PLAINTEXT://h:1,GRPC://h:2,GRPC_SSL://h:3,INTERNAL://h:4,GRPCISH://h:5"
    found = resolve_listeners(listeners, None, None, PLAIN, wire_map=("internal:grpc", "GRPCISH:KAFKA"))
    assert found.wires == {
        "PLAINTEXT": "KAFKA",
        "GRPC": "GRPC",
        "GRPC_SSL": "GRPC",
        "INTERNAL": "GRPC",
        "GRPCISH": "KAFKA",
    }
    assert [one.name for one in found.bound_by("KAFKA")] == ["PLAINTEXT", "GRPCISH"]
    assert found.protocols == dict.fromkeys(found.wires, "PLAINTEXT") | {"GRPC_SSL": "SSL"}
    assert found.inter_broker.name == "GRPC"
    assert found.registered == Listener("PLAINTEXT", "h", 1)


@pytest.mark.parametrize(
    ("listeners", "inter_broker_protocol", "added"),
    [
        ("PLAINTEXT://h:9092", None, Listener("GRPC", "h", 19092)),
        ("SSL://h:9093", None, Listener("GRPC_SSL", "h", 19093)),
        ("PLAINTEXT://h:9092,SSL://h:9093", None, Listener("GRPC", "h", 19092)),
        ("PLAINTEXT://h:9092,SSL://h:9093", "SSL", Listener("GRPC_SSL", "h", 19092)),
        ("SASL_SSL://h:9092", "SASL_SSL", Listener("GRPC_SASL_SSL", "h", 19092)),
        ("SASL_SSL://h:9092", None, Listener("GRPC_SSL", "h", 19092)),
    ],
)
def test_a_broker_without_a_grpc_listener_gets_one(
    listeners: str, inter_broker_protocol: str | None, added: Listener
) -> None:
    """On the port of its first listener + 10000: brokers use gRPC among themselves."""
    both = ("PLAINTEXT:PLAINTEXT", "SSL:SSL")
    found = resolve_listeners(listeners, None, None, both, inter_broker_protocol)
    assert found.added == found.bound[-1] == found.inter_broker == added


def test_listeners_for_kafka_clients_stand_by_protocol_those_on_the_same_host_first() -> None:
    """A cluster in containers has listeners for two networks, and a client of gRPC stays in its own."""
    bound = "PLAINTEXT://0.0.0.0:1,HOST://0.0.0.0:2,GRPC://0.0.0.0:3,GRPC_HOST://0.0.0.0:4,SECURE://0.0.0.0:5"
    advertised = "PLAINTEXT://broker:1,HOST://localhost:2,GRPC://broker:3,GRPC_HOST://localhost:4,SECURE://broker:5"
    found = resolve_listeners(bound, advertised, None, ("SECURE:SASL_SSL",))
    assert found.kafka_beside("GRPC") == {"PLAINTEXT": ("PLAINTEXT", "HOST"), "SASL_SSL": ("SECURE",)}
    assert found.kafka_beside("GRPC_HOST")["PLAINTEXT"] == ("HOST", "PLAINTEXT")


def test_the_listener_that_was_added_is_advertised_on_the_advertised_host() -> None:
    found = resolve_listeners("A://0.0.0.0:9092", "A://public:1234", None, PLAIN)
    assert str(found.bound[1]) == "GRPC://0.0.0.0:19092"
    assert found.advertised == (Listener("A", "public", 1234), Listener("GRPC", "public", 19092))


def test_a_listener_without_host_is_on_the_loopback_address_only() -> None:
    assert resolve_listeners("PLAINTEXT://:9092", None, None, PLAIN).bound[0].host == "127.0.0.1"


def test_a_broker_without_listeners_is_on_the_loopback_address_only() -> None:
    """Kafka binds every address."""
    settings, _ = parse_broker_settings({})
    found = resolve_listeners(settings.text("listeners"), settings["advertised.listeners"], None, PLAIN)
    assert [listener.host for listener in (*found.bound, *found.advertised)] == ["127.0.0.1"] * 4


def test_inside_and_outside_have_addresses_of_their_own() -> None:
    found = resolve_listeners(
        "INTERNAL://0.0.0.0:9092,EXTERNAL://0.0.0.0:19092",
        "INTERNAL://broker-0:9092,EXTERNAL://127.0.0.1:19092",
        "INTERNAL",
        ("INTERNAL:PLAINTEXT", "EXTERNAL:PLAINTEXT"),
        wire_map=("INTERNAL:GRPC", "EXTERNAL:GRPC"),
    )
    assert found.inter_broker == Listener("INTERNAL", "broker-0", 9092)
    endpoint = Endpoint(0, "broker-0", 9092, None, found.advertised)
    assert endpoint.through("EXTERNAL") == Endpoint(0, "127.0.0.1", 19092)
    assert endpoint.through("INTERNAL") == Endpoint(0, "broker-0", 9092)
    assert endpoint.through("OTHER") is None


def test_an_ipv6_address_stands_in_brackets() -> None:
    (listener,) = parse_listeners("PLAINTEXT://[::1]:9092", "listeners")
    assert (listener.host, listener.address, str(listener)) == ("::1", "[::1]:9092", "PLAINTEXT://[::1]:9092")


def test_brokers_may_speak_kafkas_protocol_among_themselves() -> None:
    """By ``inter.broker.listener.name`` alone; what only gRPC has goes to the gRPC listener all the same."""
    found = resolve_listeners("PLAINTEXT://h:1,GRPC://h:2", None, "plaintext", PLAIN)
    assert (found.inter_broker.name, found.inter_broker_wire, found.grpc_among_brokers.name) == (
        "PLAINTEXT", KAFKA, "GRPC",
    )  # fmt: skip
    assert found.control_plane == found.inter_broker
    found = resolve_listeners("PLAINTEXT://h:1,GRPC://h:2", None, None, PLAIN)
    assert (found.inter_broker.name, found.inter_broker_wire, found.grpc_among_brokers.name) == ("GRPC", GRPC, "GRPC")


def test_the_controller_may_have_a_grpc_listener_beside_that_of_followers() -> None:
    """``control.plane.listener.name``; it is also where brokers reach one another for what only gRPC has."""
    three = "PLAINTEXT://h:1,GRPC://h:2,GRPC_B://h:3"
    found = resolve_listeners(three, None, "PLAINTEXT", PLAIN, control_plane_name="grpc_b")
    assert (found.inter_broker.name, found.control_plane.name) == ("PLAINTEXT", "GRPC_B")
    assert found.grpc_among_brokers.name == "GRPC_B"


def test_a_control_plane_of_kafkas_protocol_has_no_effect() -> None:
    two = "PLAINTEXT://h:1,CONTROL://h:2,GRPC://h:3"
    found = resolve_listeners(two, None, "PLAINTEXT", PLAIN, control_plane_name="CONTROL")
    assert found.control_plane.name == "PLAINTEXT"


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("OTHER", "it must be the name of an advertised listener: PLAINTEXT, GRPC"),
        ("PLAINTEXT", "it must be another listener than inter.broker.listener.name"),
    ],
)
def test_a_control_plane_that_can_not_be_is_refused(name: str, sentence: str) -> None:
    """KafkaConfig.validateValues."""
    with pytest.raises(TidegaugeError, match=sentence):
        resolve_listeners("PLAINTEXT://h:1,GRPC://h:2", None, "PLAINTEXT", PLAIN, control_plane_name=name)


@pytest.mark.parametrize(
    ("listeners", "advertised", "inter_broker", "protocols", "sentence"),
    [
        ("", None, None, PLAIN, "at least one listener is needed"),
        ("127.0.0.1:9092", None, None, PLAIN, "is not a listener; write PLAINTEXT://HOST:PORT"),
        ("PLAINTEXT://h:0", None, None, PLAIN, "is not a listener"),
        ("PLAINTEXT://h:65536", None, None, PLAIN, "is not a listener"),
        ("A://h:1,a://h:2", None, None, PLAIN, "each listener must have a different name"),
        ("A://h:1,B://h:1", None, None, PLAIN, "each listener must have a different port"),
        ("A://h:1", "B://h:1", None, PLAIN, "there is no listener B in listeners=A://h:1"),
        ("A://h:1", "A://0.0.0.0:1", None, PLAIN, "is not a reachable address"),
        ("A://h:1", "A://:1", None, PLAIN, "an empty host is not a reachable address"),
        ("A://h:1", None, "B", PLAIN, "it must be the name of an advertised listener: A, GRPC"),
        ("A://h:60000", None, None, PLAIN, "there is no port 70000 for it; add GRPC://HOST:PORT"),
        ("A://h:1,GRPC://h:2", "A://h:1", None, PLAIN, "no gRPC listener is advertised"),
        ("A://h:1", None, None, ("A:KERBEROS",), "it must be PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL"),
        (
            *("GRPC://h:1", None, None, ("GRPC:SASL_PLAINTEXT",)),
            "it must be PLAINTEXT, SSL or SASL_SSL: over gRPC credentials travel under TLS alone",
        ),
    ],
)
def test_what_does_not_fit_is_refused(
    listeners: str, advertised: str | None, inter_broker: str | None, protocols: tuple[str, ...], sentence: str
) -> None:
    with pytest.raises(TidegaugeError) as caught:
        resolve_listeners(listeners, advertised, inter_broker, protocols)
    assert caught.value.code is ErrorCode.INVALID_CONFIG
    assert sentence in caught.value.message


def test_a_grpc_listener_is_advertised_beside_kafkas_protocol_among_brokers() -> None:
    """Requests that only gRPC has go there, with any listener of the followers."""
    with pytest.raises(TidegaugeError, match="no gRPC listener is advertised"):
        resolve_listeners("A://h:1,GRPC://h:2", "A://h:1", "A", PLAIN)


def test_variables_become_settings_as_in_kafkas_images() -> None:
    variables = {
        "KAFKA_BROKER_ID": "3",
        "KAFKA_ZOOKEEPER_CONNECT": "zookeeper:2181",
        "KAFKA_A__B___C": "x",
        "KAFKA_HEAP_OPTS": "-Xmx1G",
        "PATH": "/bin",
        "KAFKA_": "nothing",
    }
    assert settings_of_environment(variables) == {
        "broker.id": "3", "zookeeper.connect": "zookeeper:2181", "a_b-c": "x",
    }  # fmt: skip
