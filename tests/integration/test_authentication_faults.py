"""Authentication and permissions fail while a Kafka client works: over HTTP and from a scenario (docs/faults.md)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from tests.integration.conftest import metadata_at
from tests.steering import steering
from tests.waiting import until

from tidegauge_lab.local import control_server, layout, takedown
from tidegauge_lab.local.cluster import LocalCluster
from tidegauge_lab.scenario import play
from tidegauge_lab.scenario.loader import parse

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]
LIMIT_SECONDS = 60.0
MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
SETTINGS = {
    "sasl.enabled.mechanisms": "PLAIN",
    "listener.name.sasl_plaintext.plain.sasl.jaas.config": f'{MODULE} required user_alice="alice-secret";',
}


@pytest.fixture(scope="module")
def cluster(
    zookeeper: str, tmp_path_factory: pytest.TempPathFactory, next_base_port: Callable[[], int]
) -> Iterator[LocalCluster]:
    """A broker at which alice must authenticate herself."""
    made = LocalCluster.create(
        tmp_path_factory.mktemp("refusing"),
        1,
        **metadata_at(zookeeper, "refusing"),
        base_port=next_base_port(),
        settings=SETTINGS,
    )
    made.up(60.0)
    yield made
    made.down(grace_seconds=0)


@pytest.fixture(scope="module")
def server(cluster: LocalCluster) -> Iterator[Any]:
    served = steering.Control(control_server.start(cluster.directory, "127.0.0.1:0"))
    yield served
    takedown.end([layout.control_process(cluster.directory)], grace_seconds=5.0)


@pytest.fixture
def control(server: Any, request: pytest.FixtureRequest) -> Iterator[Any]:
    """The control server, with a topic of the test's name; what the test leaves is reset."""
    server.steps({"create_topic": {"name": topic_of(request), "assignment": [0]}})
    yield server
    server.reset()


def topic_of(request: pytest.FixtureRequest) -> str:
    return "".join(letter if letter.isalnum() else "-" for letter in request.node.name)


class Application:
    """Alice's producer, and what became of her records and of her authentication."""

    def __init__(self, cluster: LocalCluster, topic: str) -> None:
        self.refusals: list[str] = []
        self._topic = topic
        self.settings: dict[str, Any] = {
            "bootstrap.servers": cluster.kafka_bootstrap_servers[0],
            "client.id": "application",
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "PLAIN",
            "sasl.username": "alice",
            "sasl.password": "alice-secret",
            "reconnect.backoff.ms": 10,
            "reconnect.backoff.max.ms": 50,
        }
        self._producer = Producer(self.settings | {"linger.ms": 0, "error_cb": self._refused})

    def _refused(self, error: KafkaError) -> None:
        if error.name() == "_AUTHENTICATION":
            self.refusals.append(str(error))

    def send(self) -> str:
        """Return the outcome of one record: acknowledged, or the name of the error."""
        outcomes: list[str] = []

        def delivered(error: KafkaError | None, _: object) -> None:
            outcomes.append(str(error.name()) if error else "acknowledged")

        try:
            self._producer.produce(self._topic, b"v", on_delivery=delivered)
        except KafkaException as problem:  # by what the client knows of the topic, until it asks again
            return str(problem.args[0].name())
        assert self._producer.flush(LIMIT_SECONDS) == 0
        return outcomes[0]


def test_a_handshake_a_session_and_a_permission_fail_over_http(
    control: Any, cluster: LocalCluster, request: pytest.FixtureRequest
) -> None:
    """Rules on requests: right credentials are refused, a session ends in mid-stream, a permission is taken away."""
    topic = topic_of(request)
    failed = [
        control.fault({"keys": [api], "error": error})
        for api, error in (
            ("SaslHandshake", "UNSUPPORTED_SASL_MECHANISM"),
            ("SaslAuthenticate", "SASL_AUTHENTICATION_FAILED"),
        )
    ]
    application = Application(cluster, topic)
    assert application.send() == "acknowledged"
    assert len(application.refusals) == 2
    assert "Broker: Unsupported SASL mechanism" in application.refusals[0]
    for one in failed:
        assert control.wait_fault(one, hits=1)

    ended = control.fault({"keys": ["Produce"], "topic": topic, "error": "SASL_AUTHENTICATION_FAILED"})
    again = control.fault({"keys": ["SaslAuthenticate"], "observe": True, "count": -1})
    assert application.send() == "acknowledged", "the client has authenticated itself again"
    assert control.wait_fault(ended, hits=1)["actual"]["hits"] == 1
    assert control.wait_fault(again, hits=1)

    revoked = control.fault({"keys": ["Produce"], "topic": topic, "error": "TOPIC_AUTHORIZATION_FAILED", "count": -1})
    assert application.send() == "TOPIC_AUTHORIZATION_FAILED"
    control.end_fault(revoked)
    until(lambda: application.send() == "acknowledged", timeout=LIMIT_SECONDS, what="the permission is back")
    assert len(application.refusals) == 2
    assert control.partition(topic)["high_watermark"] == 3


@pytest.mark.long
@pytest.mark.parametrize("way", ["a broker's verb", "steps"])
def test_the_words_of_faults_fail_them_too(
    control: Any, cluster: LocalCluster, request: pytest.FixtureRequest, way: str
) -> None:
    """inject_error as a broker's verb and as a step of POST /v1/steps; a consumer meets them in its stream."""
    topic = topic_of(request)
    last = max((one["number"] for one in control.ask("GET", "/v1/requests")["requests"]), default=0)

    def act(verb: str, **fields: object) -> None:
        if way == "steps":
            control.steps({verb: {"broker" if verb == "inject_error" else "brokers": 0, **fields}})
        else:
            control.broker(0, verb, **fields)

    act("inject_error", rpc="SaslAuthenticate", error="SASL_AUTHENTICATION_FAILED", times=2)
    application = Application(cluster, topic)
    assert application.send() == "acknowledged"
    assert len(application.refusals) == 2
    of_group = {"group.id": topic, "auto.offset.reset": "earliest", "fetch.wait.max.ms": 50}
    consumer = Consumer(application.settings | of_group)
    consumer.subscribe([topic])
    try:
        assert next_of(consumer) == "v"
        act("inject_error", rpc="Fetch", error="SASL_AUTHENTICATION_FAILED", client_id="application", times=1)
        assert application.send() == "acknowledged"
        assert next_of(consumer) == "v", "the session ended, and the stream goes on"
        act("inject_error", rpc="Fetch", error="TOPIC_AUTHORIZATION_FAILED", topic=topic, times=0)
        assert next_of(consumer) == "TOPIC_AUTHORIZATION_FAILED"
        act("clear_faults")
        assert application.send() == "acknowledged"
        assert next_of(consumer) == "v", "the permission is back"
    finally:
        consumer.close()
    journal = control.ask("GET", f"/v1/requests?client_id=application&after={last}")["requests"]
    done = [one["done"] for one in journal]
    assert sum("error SASL_AUTHENTICATION_FAILED" in one for one in done) == 3
    assert any("error TOPIC_AUTHORIZATION_FAILED" in one for one in done)


def next_of(consumer: Consumer) -> str:
    """Return the next record's value, or the error's name."""
    try:
        found = consumer.poll(LIMIT_SECONDS)
    except KafkaException as problem:
        return str(problem.args[0].name())
    assert found is not None
    error = found.error()
    value = found.value()
    return str(error.name()) if error else (value or b"").decode()


SCENARIO = """
title: An application is refused and goes on.
teaches: What a client does when its session ends, and when a permission is taken away.
rule: A closed session is authenticated again; a refused permission fails the record (KIP-368, KIP-360).
cluster:
  brokers: 1
  controller: 0
  settings:
    sasl.enabled.mechanisms: PLAIN
    listener.name.sasl_plaintext.plain.sasl.jaas.config: '%s required user_alice="alice-secret";'
topics:
  - {name: story, assignment: [0]}
  - {name: __transaction_state, assignment: [0], config: {cleanup.policy: compact, min.insync.replicas: 1}}
steps:
  - inject_error: {broker: 0, rpc: SaslHandshake, error: UNSUPPORTED_SASL_MECHANISM, times: 2}
    note: the first handshakes fail, and the client tries again
  - start_producer:
      producer: alice
      transactional_id: copier
      settings:
        security.protocol: SASL_PLAINTEXT
        sasl.mechanism: PLAIN
        sasl.username: alice
        sasl.password: alice-secret
  - begin_transaction: alice
  - send: {producer: alice, values: a1}
  - inject_error: {broker: 0, rpc: Produce, error: SASL_AUTHENTICATION_FAILED, topic: story}
  - send: {producer: alice, values: a2}
    note: the session has ended; the client authenticates itself again and repeats the record
  - commit_transaction: alice
  - begin_transaction: alice
  - send: {producer: alice, values: b1}
  - inject_error: {broker: 0, rpc: Produce, error: TOPIC_AUTHORIZATION_FAILED, topic: story}
  - send: {producer: alice, values: b2, error: TOPIC_AUTHORIZATION_FAILED}
  - abort_transaction: alice
  - expect_read: {isolation_level: read_committed, values: [a1, a2]}
  - wait_event: {broker: 0, kind: fault}
"""


@pytest.mark.long
def test_a_scenario_refuses_its_producer(zookeeper: str, tmp_path: Path) -> None:
    outcome = play(parse(SCENARIO % MODULE, "refused.yaml"), tmp_path, zookeeper=zookeeper)
    assert outcome.passed, outcome.failure
