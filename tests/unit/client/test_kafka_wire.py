"""Where a client reaches brokers over Kafka's protocol (``kafka_wire``), and coordinators (``coordinators``)."""

from __future__ import annotations

from typing import Any

import pytest

from tidegauge.channel_options import LAB_AGENT, OF_THE_LAB
from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.kafka.apis import INIT_PRODUCER_ID
from tidegauge.kafka.messages.find_coordinator import Coordinator, FindCoordinatorResponse
from tidegauge.kafka.messages.init_producer_id import InitProducerIdResponse
from tidegauge.partition import TopicPartition
from tidegauge.sasl_client import Login
from tidegauge.security import PLAIN, Security
from tidegauge_client.cluster import Cluster
from tidegauge_client.cluster_file import BootstrapServers
from tidegauge_client.coordinators import GROUP, find_coordinator
from tidegauge_client.kafka_wire import CLIENT_ID, KafkaWire, NoKafkaListener, protocol_of
from tidegauge_client.metadata import BrokerInfo, ClusterInfo, PartitionInfo, TopicInfo
from tidegauge_client.producer_id import init_producer_id

ADDRESSES = {"PLAINTEXT": "b:9092", "SASL_SSL": "b:9093"}
BROKER = BrokerInfo(0, "b", 19092, None, ADDRESSES)
LOGIN = Login.of("PLAIN", 'x required username="u" password="p";')
AT = TopicPartition("t", 0)


@pytest.mark.parametrize(
    ("security", "protocol"),
    [
        (PLAIN, "PLAINTEXT"),
        (Security(is_tls=True), "SSL"),
        (Security(is_tls=True, login=LOGIN), "SASL_SSL"),
        (Security(login=LOGIN), "SASL_PLAINTEXT"),
    ],
)
def test_a_client_needs_the_listener_of_its_own_security_protocol(security: Security, protocol: str) -> None:
    assert protocol_of(security) == protocol
    assert KafkaWire(security, {}).address_of(BROKER) == ADDRESSES.get(protocol)


def test_on_this_machine_a_client_goes_where_the_listener_listens() -> None:
    """Rule 1: a broker may advertise a port that only the host of its container has."""
    assert KafkaWire(PLAIN, {"b:19092": "127.0.0.1:9092"}).address_of(BROKER) == "127.0.0.1:9092"


def test_where_no_broker_has_such_a_listener_one_sentence_says_what_is_missing() -> None:
    """Rule 3: no retry can help."""
    wire = KafkaWire(Security(is_tls=True), {})
    info = ClusterInfo(brokers={0: BROKER})
    with pytest.raises(NoKafkaListener, match="no listener for Kafka clients with security protocol SSL") as missing:
        wire.reachable(info)
    assert (missing.value.code, missing.value.retriable) == (ErrorCode.LISTENER_NOT_FOUND, False)
    with pytest.raises(NoKafkaListener, match="broker 0 at b:19092 advertises no listener"):
        wire.address(info, 0)
    with pytest.raises(TidegaugeError, match="Broker 7 is not alive"):
        wire.address(info, 7)


def test_a_broker_of_apache_kafka_is_reached_where_its_peers_reach_it() -> None:
    info = ClusterInfo(brokers={0: BROKER}, kafka_brokers={1: BrokerInfo(1, "k", 9092)})
    assert KafkaWire(PLAIN, {}).brokers(info) == {0: "b:9092", 1: "k:9092"}


def test_data_go_over_grpc_to_a_listener_out_of_reach_until_that_fails_too() -> None:
    """Rule 4."""
    wire = KafkaWire(PLAIN, {})
    wire.failed(BROKER, "b:9092")
    assert wire.data_address(BROKER) is None
    wire.failed(BROKER, "b:19092")
    assert wire.data_address(BROKER) == "b:9092", "the broker itself is out of reach"
    wire.reached("b:9092")
    wire.failed(BROKER, "b:9092")
    assert wire.data_address(BROKER) == "b:9092", "a broker that has ended returns with its listener"


def cluster(**settings: Any) -> Cluster:
    part = PartitionInfo("t", 0, 0, 4, (0,), (0,))
    made = Cluster("b:19092", retry_backoff_ms=1, **settings)
    made.info = ClusterInfo(brokers={0: BROKER}, topics={"t": TopicInfo("t", "", {0: part})})
    made._choose_data_addresses()
    return made


def test_a_leader_is_sent_data_over_kafkas_protocol_by_default() -> None:
    made = cluster()
    leader = made.leader(AT)
    assert leader is not None
    assert (leader.address, made.is_of_kafka(leader.address)) == ("b:9092", True)
    made.note_failure("b:9092")
    leader = made.leader(AT)
    assert leader is not None
    assert (leader.address, made.is_of_kafka(leader.address)) == ("b:19092", False)


def test_with_wire_grpc_a_leader_is_sent_data_over_grpc() -> None:
    leader = cluster(wire="grpc").leader(AT)
    assert leader is not None
    assert leader.address == "b:19092"
    with pytest.raises(TidegaugeError, match="wire must be kafka or grpc, not 'http'"):
        cluster(wire="http")


def test_a_failure_over_one_wire_is_one_over_both() -> None:
    """A paused broker is asked last: rule 1 of ``cluster``."""
    made = cluster()
    made.note_failure("b:9092")
    assert made.in_turn(["b:19092", "c:1"])[-1] == "b:19092"
    assert made.in_turn(["b:9092", "c:1"])[-1] == "b:9092"


async def test_a_client_names_itself_and_the_lab_by_its_own_name() -> None:
    assert KafkaWire(PLAIN, {}).channel("b:1").client_id == CLIENT_ID
    assert KafkaWire(PLAIN, {}, "app").channel("b:1").client_id == "app"
    token = OF_THE_LAB.set(True)
    try:
        assert KafkaWire(PLAIN, {}).channel("b:1").client_id == LAB_AGENT
    finally:
        OF_THE_LAB.reset(token)


async def test_requests_that_wait_have_a_channel_of_their_own() -> None:
    """Rule 2: a heartbeat must not wait behind a parked JoinGroup."""
    wire = KafkaWire(PLAIN, {})
    assert wire.channel("b:1", "rebalance") is not wire.channel("b:1", "group")
    assert wire.channel("b:1", "group") is wire.channel("b:1", "group")


def test_listeners_of_this_machine_go_with_the_bootstrap_addresses() -> None:
    servers = BootstrapServers(["b:19092"], PLAIN, {"b:19092": "127.0.0.1:9092"})
    assert Cluster(servers).kafka.address_of(BROKER) == "127.0.0.1:9092"


def with_responses(made: Cluster, monkeypatch: pytest.MonkeyPatch, **responses: Any) -> list[str]:
    """Let brokers respond to FindCoordinator by address; return the list of those asked."""
    asked: list[str] = []

    async def ask(address: str, *_: Any, **__: Any) -> Any:
        asked.append(address)
        response = responses[address.partition(":")[0]]
        if isinstance(response, TidegaugeError):
            raise response
        return FindCoordinatorResponse(coordinators=[response])

    monkeypatch.setattr(made.kafka, "ask", ask)
    return asked


async def test_any_broker_names_the_coordinator_whose_address_metadata_has(monkeypatch: pytest.MonkeyPatch) -> None:
    """The address of the response is one that is advertised, and may be out of reach."""
    made = cluster()
    other = BrokerInfo(1, "c", 19092, None, {"PLAINTEXT": "c:9092"})
    made.info = ClusterInfo(brokers={0: BROKER, 1: other})
    gone = TidegaugeError(ErrorCode.NETWORK_EXCEPTION, "no connection")
    asked = with_responses(made, monkeypatch, b=gone, c=Coordinator("g", 0, "elsewhere", 1))
    assert await find_coordinator(made, made.info, GROUP, "g") == (0, "b:9092")
    assert asked[-1] == "c:9092"


async def test_an_error_of_the_broker_is_raised_and_a_coordinator_that_is_too_new_is_asked_for_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made = cluster()
    with_responses(made, monkeypatch, b=Coordinator("g", -1, "", -1, ErrorCode.GROUP_AUTHORIZATION_FAILED, "no"))
    with pytest.raises(TidegaugeError) as refused:
        await find_coordinator(made, made.info, GROUP, "g")
    assert refused.value.code is ErrorCode.GROUP_AUTHORIZATION_FAILED
    with_responses(made, monkeypatch, b=Coordinator("g", 5, "n", 1))
    refreshed: list[bool] = []
    monkeypatch.setattr(made, "request_refresh", lambda: refreshed.append(True))
    with pytest.raises(TidegaugeError) as unknown:
        await find_coordinator(made, made.info, GROUP, "g")
    assert (unknown.value.code, refreshed) == (ErrorCode.COORDINATOR_NOT_AVAILABLE, [True])


async def test_an_idempotent_producer_gets_its_id_over_the_wire_of_its_data(monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker that has no ids yet is asked again; another wire is asked if this one is out of reach."""
    made = cluster()
    loading = InitProducerIdResponse(0, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    responses: list[Any] = [loading, InitProducerIdResponse(0, 0, 7, 0)]

    async def ask(address: str, key: int, request: Any, timeout_ms: float, **_: Any) -> Any:
        assert (address, key, request.transactional_id) == ("b:9092", INIT_PRODUCER_ID, None)
        assert timeout_ms > 0
        return responses.pop(0)

    monkeypatch.setattr(made.kafka, "ask", ask)
    assert await init_producer_id(made, 1) == (7, 0)
    assert not responses
    made.note_failure("b:9092")
    assert made.anyone() == "b:19092"
