"""TLS and SASL of the controllers' listener: nodes let one another in, tools need credentials, strangers get nothing.

With Apache Kafka 4.3.1 as a controller and as a broker beside Tidegauge's, it is Kafka that judges (long).
"""

from __future__ import annotations

import asyncio
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner
from confluent_kafka.admin import NewTopic  # type: ignore[attr-defined] # it names no exports
from tests.certificates import Authority
from tests.integration.conftest import free_quorum_port
from tests.integration.kraft_nodes import FEATURES, brokers_of
from tests.integration.quorum_nodes import KAFKA, OURS, kafka_classpath, quorum_of
from tests.waiting import until

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.security import SASL_PLAINTEXT, SASL_SSL, SSL, Security, security_of
from tidegauge_client.cli.quorum import describe_quorum
from tidegauge_client.cluster_file import BootstrapServers
from tidegauge_client.quorum_admin import QuorumAdmin
from tidegauge_lab.local import layout
from tidegauge_lab.local.cluster import LocalCluster
from tidegauge_lab.local.wanted import WantedQuorum

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]
LIMIT_SECONDS = 60.0
CONTROLLER = 3000
MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM_MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule"
AUTHORIZER = {"authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer"}
OF_PLAIN = {
    "listener.name.controller.sasl.enabled.mechanisms": "PLAIN",
    "sasl.mechanism.controller.protocol": "PLAIN",
    "listener.name.controller.plain.sasl.jaas.config": (
        f'{MODULE} required username="node" password="node-secret" user_node="node-secret" user_tool="tool-secret";'
    ),
}


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    """Issues the certificates of all nodes."""
    return Authority(tmp_path_factory.mktemp("certificates"), "authority")


@pytest.fixture(scope="module")
def stores(authority: Authority) -> dict[str, str]:
    """The settings of a node with a certificate."""
    return {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(authority.issue("node").both),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(authority.certificate),
    }


@pytest.fixture(scope="module")
def cluster(
    stores: dict[str, str], tmp_path_factory: pytest.TempPathFactory, next_base_port: Callable[[], int]
) -> Iterator[LocalCluster]:
    """Three controllers and two brokers; controllers ask for credentials under TLS, brokers for nothing."""
    settings = {
        **stores,
        **OF_PLAIN,
        **AUTHORIZER,
        "listener.security.protocol.map": "CONTROLLER:SASL_SSL",
        "super.users": "User:node;User:ANONYMOUS",
    }
    quorum = WantedQuorum(controllers=3, port=free_quorum_port())
    made = LocalCluster.create(
        tmp_path_factory.mktemp("secured"),
        2,
        base_port=next_base_port(),
        settings=settings,
        mode="kraft",
        quorum=quorum,
    )
    made.up(LIMIT_SECONDS)
    yield made
    made.down(grace_seconds=0)


def leads_another(cluster: LocalCluster, controller_id: int) -> bool:
    """Whether another controller leads the quorum."""
    view = cluster.quorum()
    return view is not None and view.high_watermark >= 0 and view.leader_id != controller_id


def described(addresses: list[str], security: Security) -> str:
    """Describe the quorum; return who leads it, or why that can't be known."""

    async def ask() -> str:
        async with QuorumAdmin(BootstrapServers(addresses, security), 5.0) as admin:
            return str((await admin.describe()).leader_id)

    try:
        return asyncio.run(ask())
    except TidegaugeError as problem:
        return f"{problem.code.name}: {problem.message}"


def client(stores: dict[str, str], user: str, password: str, protocol: str = SASL_SSL) -> Security:
    """The security of a tool that logs in by PLAIN."""
    jaas = f'{MODULE} required username="{user}" password="{password}";'
    return security_of({**stores, "sasl.mechanism": "PLAIN", "sasl.jaas.config": jaas}, protocol)


def test_nodes_of_a_local_cluster_log_in_at_its_controllers_and_fail_over(cluster: LocalCluster):
    """Rule: controllers, brokers and the lab use the nodes' own credentials, also at a new leader."""
    before = cluster.quorum()
    assert before is not None
    cluster.kill(before.leader_id)
    until(lambda: leads_another(cluster, before.leader_id), LIMIT_SECONDS, "another controller leads")
    cluster.start(before.leader_id)
    asked = CliRunner().invoke(describe_quorum, ["--dir", str(cluster.directory)])
    assert asked.exit_code == 0, asked.output
    assert f'"endpoints": ["CONTROLLER://{cluster.file.quorum.controller(CONTROLLER).address}"]' in asked.output


def test_a_tool_needs_credentials_and_the_right_ones(cluster: LocalCluster, stores: dict[str, str], tmp_path: Path):
    """Rule: without TLS, without credentials and with wrong ones the sentence names the missing part."""
    addresses = list(cluster.file.controllers())
    file = tmp_path / "tool.properties"
    jaas = f'{MODULE} required username="node" password="node-secret";'
    texts = {**stores, "security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN", "sasl.jaas.config": jaas}
    file.write_text("".join(f"{name}={text}\n" for name, text in texts.items()))
    options = ["--bootstrap-controller", ",".join(addresses), "--command-config", str(file)]
    assert "LeaderId:" in CliRunner().invoke(describe_quorum, options).output
    assert "--command-config names a file with the settings" in described(addresses, Security())
    assert "did not authenticate this side: Authentication failed: Invalid username or password" in described(
        addresses, client(stores, "node", "wrong")
    )
    not_allowed = described(addresses, client(stores, "tool", "tool-secret"))
    assert ErrorCode.CLUSTER_AUTHORIZATION_FAILED.name in not_allowed


def test_files_with_the_nodes_password_are_the_owners_alone(cluster: LocalCluster):
    """Rule: a controller's file has the password of all nodes, so no other user may read it."""
    path = layout.controller_process(cluster.directory, CONTROLLER).directory / layout.CONTROLLER_PROPERTIES
    assert "node-secret" in path.read_text()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_certificate_says_who_a_node_is(stores: dict[str, str], authority: Authority, tmp_path: Path):
    """Rule: with ssl.client.auth=required the subject is the principal; one that is no super user changes nothing."""
    settings = {
        **stores,
        **AUTHORIZER,
        "listener.security.protocol.map": "CONTROLLER:SSL,PLAINTEXT:PLAINTEXT,GRPC:PLAINTEXT",
        "ssl.client.auth": "required",
        "super.users": "User:CN=node;User:ANONYMOUS",
    }
    trusted = {"ssl.truststore.location": str(authority.certificate)}
    other = authority.issue("other")
    with quorum_of(tmp_path, [OURS], settings=settings, features=FEATURES, security=security_of(stores, SSL)) as quorum:
        quorum.wait_leader()
        with brokers_of(quorum, [OURS], settings=settings) as brokers:
            brokers.start()
            brokers.admin.create_topics([NewTopic("orders", 1, 1)])["orders"].result(LIMIT_SECONDS)
        addresses = [quorum.nodes[0].address]
        assert "NETWORK_EXCEPTION" in described(addresses, security_of(trusted, SSL))
        stranger = security_of({**trusted, "ssl.keystore.location": str(other.both)}, SSL)
        assert "CLUSTER_AUTHORIZATION_FAILED" in described(addresses, stranger)
        assert "SSL handshake failed" in quorum.nodes[0].log()


def test_a_broker_logs_in_by_a_scram_credential_of_the_format(tmp_path: Path):
    """Rule: credentials that the format has written are known to a controller that leads, so brokers may use SCRAM."""
    settings = {
        "listener.security.protocol.map": "CONTROLLER:SASL_PLAINTEXT,PLAINTEXT:PLAINTEXT,GRPC:PLAINTEXT",
        "listener.name.controller.sasl.enabled.mechanisms": "SCRAM-SHA-256",
        "sasl.mechanism.controller.protocol": "SCRAM-SHA-256",
        "listener.name.controller.scram-sha-256.sasl.jaas.config": (
            f'{SCRAM_MODULE} required username="node" password="node-secret";'
        ),
    }
    jaas = f'{SCRAM_MODULE} required username="node" password="node-secret";'
    security = security_of({"sasl.mechanism": "SCRAM-SHA-256", "sasl.jaas.config": jaas}, SASL_PLAINTEXT)
    scram = (*FEATURES, "--add-scram", "SCRAM-SHA-256=[name=node,password=node-secret]")
    with quorum_of(tmp_path, [OURS], settings=settings, features=scram, security=security) as quorum:
        quorum.wait_leader()
        with brokers_of(quorum, [OURS], settings=settings) as brokers:
            brokers.start()
            assert brokers.nodes[0].stop() == 0


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize("protocol", [SASL_PLAINTEXT, SASL_SSL, SSL])
def test_apache_kafkas_controller_and_broker_let_in_tidegauges_and_are_let_in(
    protocol: str, stores: dict[str, str], tmp_path: Path
):
    """Rule: as in Kafka, by Kafka's own judgement: each kind leads, and a topic is made whoever does."""
    settings = {
        **stores,
        **AUTHORIZER,
        "listener.security.protocol.map": f"CONTROLLER:{protocol},PLAINTEXT:PLAINTEXT,GRPC:PLAINTEXT",
        "super.users": "User:node;User:CN=node;User:ANONYMOUS",
        **({"ssl.client.auth": "required"} if protocol == SSL else OF_PLAIN),
    }
    security = security_of(stores, SSL) if protocol == SSL else client(stores, "node", "node-secret", protocol)
    classpath = kafka_classpath()
    with quorum_of(tmp_path, [OURS, OURS, KAFKA], classpath, settings, FEATURES, security) as quorum:
        view = quorum.wait_leader()
        with brokers_of(quorum, [OURS, KAFKA], classpath, settings) as brokers:
            brokers.start()
            led: set[str] = set()
            for count in range(12):
                leader = quorum.node(view.leader_id)
                led.add(leader.kind)
                topic = f"by-{leader.id}-{count}"
                brokers.admin.create_topics([NewTopic(topic, 1, 2)])[topic].result(LIMIT_SECONDS)
                brokers.wait_isr(topic, [0, 1])
                if led == {OURS, KAFKA}:
                    break
                leader.kill()
                view = quorum.wait_leader(other_than=leader.id)
                leader.start()
                quorum.wait_equal()
            assert led == {OURS, KAFKA}
            brokers.produce(topic, ["a", "b"])
        assert [one for node in quorum.nodes if node.kind == KAFKA for one in node.complaints()] == []
