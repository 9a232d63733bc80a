"""Brokers that speak Kafka's protocol among themselves: ``inter.broker.listener.name`` names a Kafka listener.

Whole files of tests run once more so: what brokers do among themselves must not depend on the protocol. Failover with
acks=all, kill -9 and return. Unclean leaders and truncation by each rule. Transactions, their markers and
verifications; the lab's partitions, losses, delays, injected errors, and followers that are held and stepped.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.certificates import Authority
from tests.integration.conftest import MakeCluster

from tidegauge_client import Admin, Producer

pytestmark = [pytest.mark.integration, pytest.mark.long]
HERE = Path(__file__).parent
LIMIT_SECONDS = 900
FILES = (
    "test_broker_failover",
    "test_broker_truncation_rules",
    "test_broker_exactly_once",
    "test_controller_elections",
    "test_kafka_transactions",
    "test_lab_faults",
    "test_lab_holds",
    "test_read_committed",
    "test_reassignment",
)


@pytest.mark.timeout(LIMIT_SECONDS + 60)
@pytest.mark.parametrize("name", FILES)
def test_what_holds_over_grpc_holds_over_kafkas_protocol(name: str) -> None:
    """Run a file's tests in a process of its own, with Kafka's protocol among brokers."""
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:xdist", "-m", "not long", str(HERE / f"{name}.py")],
        env={name: value for name, value in os.environ.items() if name != "PYTEST_XDIST_WORKER"}
        | {"TIDEGAUGE_TEST_AMONG_BROKERS": "KAFKA"},
        cwd=HERE.parents[1],
        capture_output=True,
        text=True,
        timeout=LIMIT_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-8_000:] + done.stderr[-2_000:]


@pytest.mark.timeout(300)
async def test_brokers_speak_kafkas_protocol_in_tls(make_cluster: MakeCluster, tmp_path: Path) -> None:
    """The inter-broker listener in TLS, gRPC in plain text: acknowledged records are on all replicas."""
    authority = Authority(tmp_path, "authority")
    cluster = make_cluster(
        settings={
            "inter.broker.listener.name": "PLAINTEXT",
            "listener.security.protocol.map": "PLAINTEXT:SSL,GRPC:PLAINTEXT",
            "ssl.keystore.location": str(authority.issue("broker").both),
            "ssl.truststore.location": str(authority.certificate),
            "ssl.client.auth": "required",
        }
    )
    async with Admin(cluster.bootstrap_servers) as admin, Producer(cluster.bootstrap_servers, acks="all") as producer:
        await admin.create_topic("t", partitions=1, replication_factor=3, configs={"min.insync.replicas": "3"})
        await admin.wait_for_topic("t")
        sent = [await producer.send("t", b"%d" % number, partition=0) for number in range(100)]
        await asyncio.gather(*sent)
        replicas = await admin.describe_replicas(["t"])
    ends = [one.log_end_offset for of_broker in replicas.values() for one in of_broker or ()]
    assert ends == [100, 100, 100]
