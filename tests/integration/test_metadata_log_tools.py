"""Kafka 4.3.1's own kafka-dump-log prints the metadata logs and snapshots of a used cluster as our verb does.

Needs Maven, or the jars that it brought before; if they can't be had, the test says so and is skipped.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner
from confluent_kafka import Producer
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)
from tests.integration.conftest import kraft_cluster_at
from tests.integration.quorum_nodes import kafka_classpath
from tests.kafka_requests import ask

from tidegauge.errors import ErrorCode
from tidegauge.java import java_program
from tidegauge.kafka import apis
from tidegauge.kafka.messages import alter_client_quotas
from tidegauge_broker.log.dump_verb import dump_log
from tidegauge_client.cli.main import root
from tidegauge_lab.local.cluster import LocalCluster
from tidegauge_lab.local.waiting import holds_within

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]
LIMIT_SECONDS = 60.0
SETTINGS = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
    "metadata.log.max.record.bytes.between.snapshots": "4000",
}
WRITTEN = (
    *("FEATURE_LEVEL_RECORD", "REGISTER_CONTROLLER_RECORD", "REGISTER_BROKER_RECORD", "TOPIC_RECORD"),
    *("BROKER_REGISTRATION_CHANGE_RECORD", "PARTITION_RECORD", "PARTITION_CHANGE_RECORD", "CONFIG_RECORD"),
    *("REMOVE_TOPIC_RECORD", "USER_SCRAM_CREDENTIAL_RECORD", "ACCESS_CONTROL_ENTRY_RECORD", "CLIENT_QUOTA_RECORD"),
    *("PRODUCER_IDS_RECORD", '"eligibleLeaderReplicas":[', "LeaderChange: {", "KRaftVersion {", "KRaftVoters {"),
    *('"voterId":3003', "SnapshotHeader {", "SnapshotFooter {"),
)


@pytest.fixture
def cluster(tmp_path: Path, next_base_port: Callable[[], int]) -> Iterator[LocalCluster]:
    """Three brokers and three controllers."""
    with kraft_cluster_at(tmp_path / "cluster", next_base_port(), settings=SETTINGS) as made:
        yield made


def verb(cluster: LocalCluster, *words: str) -> None:
    done = CliRunner().invoke(root, [*words, "--dir", str(cluster.directory)])
    assert done.exit_code == 0, done.output


def use(cluster: LocalCluster) -> None:
    """Let every kind of record of the metadata log be written that a user's requests bring about."""
    servers = ",".join(cluster.kafka_bootstrap_servers)
    admin = AdminClient({"bootstrap.servers": servers})
    config = {"min.insync.replicas": "2"}
    for one in admin.create_topics([NewTopic("kept", 3, 3, config=config), NewTopic("gone", 1, 1)]).values():
        one.result(LIMIT_SECONDS)
    retention = ConfigEntry("retention.ms", "60000", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ConfigResource.Type.TOPIC, "kept", incremental_configs=[retention])
    admin.incremental_alter_configs([resource])[resource].result(LIMIT_SECONDS)
    scram = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096)
    user = UserScramCredentialUpsertion("anna", scram, b"secret")
    admin.alter_user_scram_credentials([user])["anna"].result(LIMIT_SECONDS)
    allowed = (ResourcePatternType.LITERAL, "User:anna", "*", AclOperation.READ, AclPermissionType.ALLOW)
    binding = AclBinding(ResourceType.TOPIC, "kept", *allowed)
    admin.create_acls([binding])[binding].result(LIMIT_SECONDS)
    anna = alter_client_quotas.EntityData("user", "anna")
    rates = [
        alter_client_quotas.OpData(*one, False)
        for one in (("producer_byte_rate", 1024.0), ("request_percentage", 12.5))
    ]
    quotas = alter_client_quotas.AlterClientQuotasRequest([alter_client_quotas.EntryData([anna], rates)])
    altered = ask(cluster.kafka_bootstrap_servers[0], apis.ALTER_CLIENT_QUOTAS, quotas, 1)
    assert {one.error_code for one in altered.entries} == {ErrorCode.NONE}
    producer = Producer({"bootstrap.servers": servers, "enable.idempotence": True})
    producer.produce("kept", b"m", partition=0)
    assert producer.flush(LIMIT_SECONDS) == 0
    admin.delete_topics(["gone"])["gone"].result(LIMIT_SECONDS)
    cluster.kill(1, 2)
    verb(cluster, "wait", "--fenced", "1")
    verb(cluster, "wait", "--fenced", "2")
    cluster.start(1, 2)
    verb(cluster, "disable-feature", "--feature", "share.version")
    verb(cluster, "upgrade-features", "--feature", "share.version=1")
    cluster.add_controller()


def metadata_files(cluster: LocalCluster) -> list[Path]:
    """Return all segments and snapshots of all nodes."""
    found = cluster.directory.glob("*/data/__cluster_metadata-0/*")
    formatted = cluster.directory.glob("*/data/bootstrap.checkpoint")
    return sorted([*(one for one in found if one.suffix in {".log", ".checkpoint"}), *formatted])


def test_kafkas_tool_reads_what_every_node_wrote(cluster: LocalCluster) -> None:
    """kafka-dump-log --cluster-metadata-decoder: each batch, record and control record, in the same words."""
    classpath = kafka_classpath()
    use(cluster)
    nodes = [*range(3), *range(3000, 3004)]

    def have_snapshots() -> bool:
        written = [
            one for one in metadata_files(cluster) if one.suffix == ".checkpoint" and not one.name.startswith("0" * 20)
        ]
        return len({one.parents[2].name for one in written if one.name != "bootstrap.checkpoint"}) == len(nodes)

    assert holds_within(have_snapshots, LIMIT_SECONDS)
    cluster.down()
    files = [str(one) for one in metadata_files(cluster)]
    command = [java_program(), "-cp", classpath, "org.apache.kafka.tools.DumpLogSegments"]
    arguments = ["--cluster-metadata-decoder", "--files", ",".join(files)]
    kafkas = subprocess.run([*command, *arguments], capture_output=True, text=True, check=True).stdout.splitlines()
    ours = CliRunner().invoke(dump_log, ["--cluster-metadata-decoder", *files]).stdout.splitlines()
    assert ours == kafkas
    whole = "\n".join(kafkas)
    assert [one for one in WRITTEN if one not in whole] == []
    assert "Error at" not in whole
