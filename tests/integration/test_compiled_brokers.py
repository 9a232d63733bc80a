"""Brokers as machine code: forked, with the lab, over both protocols, they do what those from the sources do.

Compiling takes minutes, so these are long; without a C compiler they are skipped and say why. Single requests and
steps are compared by ``make test-compiled``: the same unit tests, golden transcripts among them.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.integration import test_groups as of_groups
from tests.integration import test_kafka_transactions as of_transactions
from tests.integration.verify_shell import Shell, counts
from tests.waiting import until

from tidegauge.errors import TidegaugeError
from tidegauge.partition import TopicPartition
from tidegauge.transactions import TRANSACTION_TOPIC
from tidegauge_client.admin import LATEST
from tidegauge_client.sync import SyncAdmin
from tidegauge_lab.local.cluster import LocalCluster

ROOT = Path(__file__).parents[2]
DIRECTORY = ROOT / "build" / "compiled"
TIDEGAUGE = str(Path(sys.executable).with_name("tidegauge"))
pytestmark = [pytest.mark.integration, pytest.mark.long, pytest.mark.timeout(3600)]
MakeCluster = Callable[..., LocalCluster]
AMONG_BROKERS = pytest.mark.parametrize(
    "among_brokers", [{}, {"inter.broker.listener.name": "PLAINTEXT"}], ids=["grpc", "kafka"]
)


@pytest.fixture(scope="module")
def machine_code() -> Iterator[None]:
    """Processes that are started from here on find the compiled modules."""
    tool = [sys.executable, str(ROOT / "tools" / "compile_packages.py")]
    done = subprocess.run(tool, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    if not DIRECTORY.is_dir():
        pytest.skip(done.stderr.strip())
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(DIRECTORY), prepend=os.pathsep)
        patch.delenv("TIDEGAUGE_COMPILED", raising=False)
        yield


def log_of(cluster: LocalCluster, broker: int) -> str:
    return (cluster.logs / f"broker-{broker}.log").read_text(encoding="utf-8")


def mapped_by(pid: int | None) -> bool:
    """Whether a process has loaded machine code of ours."""
    return str(DIRECTORY) in Path(f"/proc/{pid}/maps").read_text(encoding="utf-8")


def runs_compiled(cluster: LocalCluster) -> bool:
    """Whether every broker has loaded machine code, and none has met an exception that nothing expected."""
    return all(
        mapped_by(cluster.pid_of(broker.id)) and "Traceback" not in log_of(cluster, broker.id)
        for broker in cluster.file.brokers
    )


@AMONG_BROKERS
def test_a_failover_and_a_return_lose_nothing(
    machine_code: None, make_cluster: MakeCluster, tmp_path: Path, among_brokers: dict[str, str]
) -> None:
    """Produce, kill the leader, produce to the next one, bring it back: replicas agree, each record is there once."""
    settings = {"auto.leader.rebalance.enable": "false"} | among_brokers
    cluster = make_cluster(zookeeper=None, settings=settings)
    for broker in cluster.file.brokers:
        assert " (compiled)" in log_of(cluster, broker.id)
        assert mapped_by(cluster.pid_of(broker.id))
    shell = Shell(cluster, tmp_path)
    topic = shell.topic("orders", (2, 0, 1), **{"min.insync.replicas": "2"})
    shell.produce(topic, *(f"before-{number}" for number in range(300)))
    shell.hold(topic, 1)  # the lab's switches reach compiled followers
    shell.produce(topic, "held back", acks="1")
    shell.hold(topic, 1, release=True)
    shell.wait("--in-sync", topic)

    cluster.kill(2)
    shell.wait("--leader", f"{topic}-0=0")
    shell.produce(topic, *(f"after-{number}" for number in range(300)))
    cluster.start(2)
    shell.wait("--in-sync", topic)

    code, document = shell.verify(topic, "h", complete=True)
    assert (code, counts(document), document["replicas"]) == (0, {}, 3)
    at = TopicPartition(topic, 0)
    with SyncAdmin(cluster.bootstrap_servers) as admin:
        assert admin.list_offsets({at: LATEST})[at].offset == 601
    assert runs_compiled(cluster), "the one that was started alone, too"


@AMONG_BROKERS
def test_a_group_rebalances_and_goes_on_over_its_coordinators_death(
    machine_code: None, make_cluster: MakeCluster, among_brokers: dict[str, str]
) -> None:
    """Compiled group coordinators: a third member joins after the death, one leaves; no acknowledged commit is lost."""
    cluster = make_cluster(zookeeper=None, settings=among_brokers)
    topic = "orders"
    of_groups.ask(
        cluster, lambda admin: admin.create_topic(topic, partitions=of_groups.PARTITIONS, replication_factor=3)
    )
    of_groups.produce(cluster, topic, 300)
    with of_groups.members(cluster, topic, ("confluent", "aiokafka")) as running:
        before = of_groups.until_stable(cluster, topic, 2)
        of_groups.until_committed(cluster, topic, 50)
        killed = of_groups.kill_coordinator(cluster, topic)
        running.append(of_groups.Member("confluent", cluster, topic))
        after = of_groups.until_stable(cluster, topic, 3)
        assert after.coordinator != killed
        assert after.generation > before.generation
        of_groups.produce(cluster, topic, 300)
        of_groups.until_committed(cluster, topic, 100)
        of_groups.nothing_went_back(running, cluster, topic)
        running[0].leave()
        of_groups.until_stable(cluster, topic, 2)
        cluster.start(killed)
        cluster.wait_ready()
    assert runs_compiled(cluster)


@AMONG_BROKERS
def test_a_transaction_commits_over_its_coordinators_death(
    machine_code: None, make_cluster: MakeCluster, among_brokers: dict[str, str]
) -> None:
    """Compiled transaction coordinators: the next one loads an open transaction, commits it, and aborts another."""
    cluster = make_cluster(zookeeper=None, settings=among_brokers)
    of_transactions.create(cluster, "orders")
    producer = of_transactions.producer_of(cluster, "tx")
    coordinator = of_transactions.coordinator_partition("tx")
    killed = cluster.leader_of(TRANSACTION_TOPIC, coordinator)
    producer.begin_transaction()
    for number in range(20):
        producer.produce("orders", b"kept %d" % number)
    producer.flush(of_transactions.LIMIT_SECONDS)

    cluster.kill(killed)

    def led_by_another() -> bool:
        with contextlib.suppress(TidegaugeError):  # there is none at the moment
            return cluster.leader_of(TRANSACTION_TOPIC, coordinator) != killed
        return False

    until(led_by_another, what="another broker coordinates the transaction", timeout=of_transactions.LIMIT_SECONDS)
    producer.commit_transaction(of_transactions.LIMIT_SECONDS)
    producer.begin_transaction()
    producer.produce("orders", b"aborted")
    producer.flush(of_transactions.LIMIT_SECONDS)
    producer.abort_transaction(of_transactions.LIMIT_SECONDS)
    cluster.start(killed)
    cluster.wait_ready()
    assert of_transactions.read(cluster, "orders", count=20) == [b"kept %d" % number for number in range(20)]
    assert runs_compiled(cluster)


def test_a_variable_leaves_it_out(
    machine_code: None, make_cluster: MakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TIDEGAUGE_COMPILED", "off")
    cluster = make_cluster(brokers=1)
    assert " (interpreted: TIDEGAUGE_COMPILED is off)" in log_of(cluster, 0)
    assert not mapped_by(cluster.pid_of(0))
