"""Nothing secret leaves a cluster: every path of the control server and of the page, and the verbs that describe.

The cluster has each kind of secret: passwords of PLAIN in a JAAS entry, a broker's own among them, SCRAM credentials
in ZooKeeper, and a private key as text.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)
from kazoo.client import KazooClient
from tests.certificates import Authority
from tests.integration.conftest import metadata_at
from tests.integration.test_watch import Watching
from tests.modes import IS_KRAFT
from tests.waiting import until

from tidegauge_lab.control.endpoints import ENDPOINTS
from tidegauge_lab.local import control_server, layout, takedown
from tidegauge_lab.local.cluster import LocalCluster

pytestmark = [pytest.mark.integration, pytest.mark.long, pytest.mark.timeout(600)]
LIMIT_SECONDS = 60.0
TIDEGAUGE = str(Path(sys.executable).parent / "tidegauge")
MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
PASSWORDS = ("admin-secret", "broker-secret", "carol-secret", "mallory-secret", "altered-secret")
VALUES = {
    "topic": "orders", "partition": "0", "group": "g", "transaction": "t", "id": "1", "target": "0", "verb": "dance",
    "name": "kept",
}  # fmt: skip
"""Values of the paths' placeholders."""
VERBS = (
    "status", "describe-cluster", "describe-config --broker 0", "describe-config --topic orders", "describe-log-dirs",
    "describe-topic orders --replicas", "explain orders-0", "explain group:g", "explain transaction:t", "timeline",
    "list-groups", "describe-group g", "list-transactions", "describe-transaction t", "find-hanging --broker-id 0",
    "describe-producers --topic orders --partition 0", "faults", "logs", "zk-tree", "get-offsets orders",
    "list-topics", "health",
)  # fmt: skip


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("certificates"), "authority")


@pytest.fixture(scope="module")
def cluster(
    authority: Authority,
    zookeeper: str,
    tmp_path_factory: pytest.TempPathFactory,
    next_base_port: Callable[[], int],
) -> Iterator[LocalCluster]:
    issued = authority.issue("broker")
    key, chain = split(issued.both.read_text())  # with their line breaks
    users = 'username="broker" password="broker-secret" user_broker="broker-secret" user_admin="admin-secret"'
    made = LocalCluster.create(
        tmp_path_factory.mktemp("secrets"),
        1,
        **metadata_at(zookeeper, "secrets"),
        base_port=next_base_port(),
        settings={
            "security.inter.broker.protocol": "SSL",
            "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
            "listener.name.sasl_ssl.plain.sasl.jaas.config": f"{MODULE} required {users};",
            "ssl.keystore.key": key,
            "ssl.keystore.certificate.chain": chain,
            "ssl.truststore.location": str(authority.certificate),
        },
    )
    made.up(60.0)
    yield made
    made.down(grace_seconds=0)


def split(both: str) -> tuple[str, str]:
    """Return the private key and the certificates of a PEM text."""
    blocks = re.findall(r"-----BEGIN [^-]+-----.*?-----END [^-]+-----\n?", both, re.DOTALL)
    [key] = [one for one in blocks if "PRIVATE KEY" in one]
    return key, "".join(one for one in blocks if one != key)


@pytest.fixture(scope="module")
def secrets(cluster: LocalCluster, authority: Authority) -> dict[str, str]:
    """Make use of all of them, refusals included; return them by what they are.

    A broker's log, its events and the metadata then have had every occasion to hold one.
    """

    def of(user: str, password: str, **more: Any) -> dict[str, Any]:
        return {
            "bootstrap.servers": cluster.kafka_bootstrap_servers[0],
            "security.protocol": "SASL_SSL",
            "ssl.ca.location": str(authority.certificate),
            "sasl.mechanism": "PLAIN",
            "sasl.username": user,
            "sasl.password": password,
            **more,
        }

    admin = AdminClient(of("admin", "admin-secret"))
    admin.create_topics([NewTopic("orders", 1, 1)])["orders"].result(LIMIT_SECONDS)
    credential = UserScramCredentialUpsertion(
        "carol", ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096), b"carol-secret", b"salt-of-carol"
    )
    admin.alter_user_scram_credentials([credential])["carol"].result(LIMIT_SECONDS)
    jaas = "listener.name.sasl_ssl.plain.sasl.jaas.config"
    altered = ConfigEntry(
        jaas, f'{MODULE} required user_x="altered-secret";', incremental_operation=AlterConfigOpType.SET
    )
    [refused] = admin.incremental_alter_configs([ConfigResource("broker", "0", incremental_configs=[altered])]).values()
    refused.exception(LIMIT_SECONDS)
    producer = Producer(of("admin", "admin-secret", **{"transactional.id": "t"}))
    producer.init_transactions(LIMIT_SECONDS)
    producer.begin_transaction()
    producer.produce("orders", b"v")
    producer.commit_transaction(LIMIT_SECONDS)
    wrong: list[str] = []
    for mechanism in ("PLAIN", "SCRAM-SHA-256"):
        refused_client = Producer(
            of("mallory", "mallory-secret", **{"sasl.mechanism": mechanism})
            | {"error_cb": lambda error: wrong.append(error.name())}
        )
        found = len(wrong)
        until(lambda client=refused_client, found=found: client.poll(0.1) or len(wrong) > found, timeout=LIMIT_SECONDS)
    found_secrets = {one: one for one in PASSWORDS}
    key = json.loads((cluster.directory / "cluster.json").read_text())["settings"]["ssl.keystore.key"]
    found_secrets["private key"] = key.split()[3]
    if IS_KRAFT:  # the keys of a SCRAM user are in the metadata log, as bytes
        return found_secrets
    client = KazooClient(cluster.file.zookeeper_address)
    client.start()
    stored = json.loads(client.get("/config/users/carol")[0])["config"]["SCRAM-SHA-256"]
    client.stop()
    client.close()
    parts = dict(part.split("=", 1) for part in stored.split(","))
    return found_secrets | {"stored key": parts["stored_key"], "server key": parts["server_key"]}


def assert_no_secret(text: str, where: str, secrets: dict[str, str]) -> None:
    for name, secret in secrets.items():
        assert secret not in text, f"{where} has the {name}"
        assert json.dumps(secret)[1:-1] not in text, f"{where} has the {name}"


def asked(url: str, method: str, body: object = None) -> str:
    """Return the response, headers and errors included."""
    data = None if body is None else json.dumps(body).encode()
    assert url.startswith("http://127.0.0.1")
    request = urllib.request.Request(url, data, {"Content-Type": "application/json"}, method=method)  # noqa: S310
    try:
        with urllib.request.urlopen(request, timeout=LIMIT_SECONDS) as response:  # noqa: S310
            return f"{response.headers}{response.read().decode()}"
    except urllib.error.HTTPError as problem:
        with problem:
            return f"{problem.headers}{problem.read().decode()}"


def test_the_control_server_gives_none(cluster: LocalCluster, secrets: dict[str, str]) -> None:
    """Every path that it has: those that look, with and without a rule on the requests of SASL, and those that act."""
    url = control_server.start(cluster.directory, "127.0.0.1:0")
    try:
        rules = [{"keys": ["SaslHandshake", "SaslAuthenticate", "Produce"], "observe": True, "count": -1}]
        assert '"id"' in asked(f"{url}/v1/faults", "POST", {"rules": rules})
        admin = {"user": "mallory", "password": "mallory-secret"}
        tried = 0
        for endpoint in ENDPOINTS:
            path = re.sub(r"\{(\w+)\}", lambda name: VALUES[name[1]], endpoint.path)
            if endpoint.name in {"snapshot", "restore", "clear_faults", "delete_fault", "advertise"}:
                continue  # the first three bodies below have what these respond: ids, names and addresses
            for body in [None, {}, admin] if endpoint.body is not None else [None]:
                text = asked(f"{url}{path}", endpoint.method, body)
                assert_no_secret(text.replace("mallory-secret", ""), f"{endpoint.method} {path}", secrets)
                tried += 1
        assert tried >= len(ENDPOINTS)
        events = json.loads(asked(f"{url}/v1/events", "GET").split("\n\n", 1)[-1])
        assert events["events"]
    finally:
        takedown.end([layout.control_process(cluster.directory)], grace_seconds=5.0)


def test_the_page_gives_none(cluster: LocalCluster, secrets: dict[str, str]) -> None:
    """The page, all that belongs to it, its vocabulary, the state in the stream of events, and a refused action."""
    watching = Watching.begin(cluster)
    try:
        names = ["", "vocabulary", "nothing"]
        page = asked(watching.url, "GET")
        names += re.findall(r'(?:src|href)="/?([^":]+)"', page)
        assert len(names) > 4
        for name in names:
            assert_no_secret(asked(f"{watching.url}{name}", "GET"), f"/{name}", secrets)
        status, refused = watching.post({"action": "dance"})
        assert status in {400, 403}
        assert_no_secret(json.dumps(refused), "/action", secrets)
        seen: dict[str, Any] = {}
        for name, value in watching.stream():
            assert_no_secret(json.dumps(value, ensure_ascii=False), f"the event {name}", secrets)
            seen[name] = value
            if "events" in seen and "orders-0" in json.dumps(seen):
                break
    finally:
        watching.end()


@pytest.mark.parametrize("form", ["text", "json"])
def test_no_verb_prints_one(cluster: LocalCluster, secrets: dict[str, str], form: str) -> None:
    """Verbs that describe: ``describe-config`` names the settings and hides them."""
    for verb in VERBS:
        command = [TIDEGAUGE, *verb.split(), "--dir", str(cluster.directory)]
        if form == "json":
            command += ["-o", "json"]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=LIMIT_SECONDS)
        assert done.returncode != 2, done.stderr
        kept = secrets
        if verb == "zk-tree":  # it shows znodes as they are, and Kafka keeps a SCRAM credential in them
            kept = {name: secret for name, secret in secrets.items() if name not in {"stored key", "server key"}}
        assert_no_secret(done.stdout + done.stderr, verb, kept)


def test_no_file_has_one_but_those_of_the_settings(cluster: LocalCluster, secrets: dict[str, str]) -> None:
    """Logs, events, metrics and data; the files with the settings are their owner's alone."""
    holders = {"server.properties", "cluster.json", *(["controller.properties"] if IS_KRAFT else [])}
    paths = [path for path in cluster.directory.rglob("*") if path.is_file()]
    assert {path.name for path in paths} > holders
    for path in paths:
        if path.name in holders:
            assert path.stat().st_mode & 0o077 == 0, path
        else:
            assert_no_secret(path.read_text(encoding="latin-1"), str(path), secrets)


@pytest.mark.parametrize(
    "jaas",
    [
        'required user_admin="wrong-secret";',
        'x.PlainLoginModule required user_admin="wrong-secret"',
        'x.PlainLoginModule sometimes user_admin="wrong-secret";',
        'x.PlainLoginModule required user_admin=wrong-secret"; extra',
    ],
)
def test_a_refused_entry_is_not_repeated(jaas: str, tmp_path: Path) -> None:
    """A broker's sentence about a JAAS entry that it can't read names the setting and not its value."""
    settings = {
        "broker.id": "0",
        "listeners": "CLIENTS://127.0.0.1:9,GRPC://127.0.0.1:10",
        "listener.security.protocol.map": "CLIENTS:SASL_PLAINTEXT,GRPC:PLAINTEXT",
        "zookeeper.connect": "127.0.0.1:1",
        "log.dirs": str(tmp_path),
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.clients.plain.sasl.jaas.config": jaas,
    }
    command = [TIDEGAUGE, "broker"]
    command += [word for name, value in settings.items() for word in ("--override", f"{name}={value}")]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=LIMIT_SECONDS)
    assert done.returncode != 0
    assert "listener.name.clients.plain.sasl.jaas.config" in done.stdout + done.stderr
    assert "wrong-secret" not in done.stdout + done.stderr
