"""A broker that is dead or paused loses its ZooKeeper session at once (``kill --expire``, ``expire-session``).

The sessions' timeout is longer than any wait here, so a leader that changes has changed since the lab ended a session.
"""

from __future__ import annotations

import json
import stat
import subprocess
import sys
import urllib.request
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.integration.conftest import free_base_port
from tests.integration.pytest_sessions import begin, end
from tests.modes import IS_KRAFT, SESSION_TIMEOUT

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge_client.sync_admin import SyncAdmin
from tidegauge_lab.local import layout
from tidegauge_lab.local.cluster import LocalCluster
from tidegauge_lab.local.processes import ProcessState
from tidegauge_lab.local.waiting import holds_within

TIDEGAUGE = str(Path(sys.executable).with_name("tidegauge"))
LONGER_THAN_ANY_WAIT = "60000"
SETTINGS = {SESSION_TIMEOUT: LONGER_THAN_ANY_WAIT}
LIMIT_SECONDS = 50.0


def tidegauge(cluster: LocalCluster, *words: str) -> str:
    """Run a verb on the cluster, and return what it prints."""
    command = [TIDEGAUGE, *words, "--dir", str(cluster.directory)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=150, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def make_topic(cluster: LocalCluster, name: str) -> None:
    """Create a topic of one partition that broker 1 leads."""
    with SyncAdmin(list(cluster.bootstrap_servers)) as admin:
        admin.create_topic(name, assignment=[[1, 2, 0]])
        admin.wait_for_topic(name)


def wait_for_leader(cluster: LocalCluster, topic: str, leader: int) -> None:
    """Wait until a broker leads partition 0 by the newest view of the brokers that are up."""

    def leads() -> bool:
        try:
            return cluster.leader_of(topic, 0) == leader
        except TidegaugeError as problem:
            if problem.code in {ErrorCode.LEADER_NOT_AVAILABLE, ErrorCode.BROKER_NOT_AVAILABLE}:
                return False
            raise

    assert holds_within(leads, LIMIT_SECONDS, pause_seconds=0.1), f"broker {leader} does not lead {topic}"


WAYS: dict[str, Callable[[LocalCluster], object]] = {
    "kill": lambda cluster: tidegauge(cluster, "kill", "--leader-of", "kill-0", "--expire"),
    "pause": lambda cluster: tidegauge(cluster, "pause", "1", "--expire"),
    "dead": lambda cluster: (cluster.kill(1), tidegauge(cluster, "expire-session", "1")),
    "paused": lambda cluster: (cluster.pause(1), tidegauge(cluster, "expire-session", "1")),
}


@pytest.mark.parametrize("way", list(WAYS))
def test_the_next_replica_leads_without_a_wait_for_the_session(brokers: LocalCluster, way: str) -> None:
    """KafkaController.onBrokerFailure follows the deletion of ``/brokers/ids/1``, which the session's end brings.

    In KRaft mode the active controller fences the broker (ReplicationControlManager.handleBrokerFenced).
    """
    make_topic(brokers, way)
    note = layout.session_file(brokers.directory, 1)
    before = ""
    if not IS_KRAFT:
        assert stat.S_IMODE(note.stat().st_mode) == 0o600
        before = note.read_text()
    WAYS[way](brokers)
    wait_for_leader(brokers, way, 2)
    if brokers.state_of(1) is ProcessState.PAUSED:
        brokers.resume(1)
    brokers.up()
    assert IS_KRAFT or note.read_text() != before, "the broker has another session"
    brokers.kill(1, expire=True)
    wait_for_leader(brokers, way, 2)
    brokers.up()


def test_the_same_over_http_and_in_a_step_of_a_scenario(brokers: LocalCluster) -> None:
    """``{"expire": true}`` is the option over HTTP, ``expire: true`` the step's."""
    make_topic(brokers, "over-http")
    port = free_base_port()
    command = [sys.executable, "-m", "tidegauge_lab.cli.control", "--dir", str(brokers.directory)]
    with subprocess.Popen([*command, "--listen", f"127.0.0.1:{port}"]) as server:
        try:
            assert holds_within(lambda: responds(port), LIMIT_SECONDS, pause_seconds=0.1)
            response = post(port, "/v1/brokers/leader-of:over-http-0/kill", {"expire": True})
            assert ("fenced" if IS_KRAFT else "its ZooKeeper session 0x") in response["text"]
            wait_for_leader(brokers, "over-http", 2)
            brokers.up()
            with SyncAdmin(list(brokers.bootstrap_servers)) as admin:
                in_sync = lambda: len(admin.describe_topics(["over-http"])[0].partitions[0].isr) == 3  # noqa: E731
                assert holds_within(in_sync, LIMIT_SECONDS, pause_seconds=0.1), "broker 1 may lead again"
            post(port, "/v1/steps", {"steps": [{"kill": {"brokers": [2], "expire": True}}]})
            wait_for_leader(brokers, "over-http", 1)
        finally:
            server.terminate()
            server.wait(60)
    brokers.up()


def responds(port: int) -> bool:
    """Return whether the control server responds."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/v1/topics", timeout=10):
            return True
    except OSError:
        return False


def post(port: int, path: str, body: object) -> dict[str, str]:
    """Post JSON, and return the response."""
    headers = {"content-type": "application/json"}
    url = f"http://127.0.0.1:{port}{path}"
    request = urllib.request.Request(url, json.dumps(body).encode(), headers)
    with urllib.request.urlopen(request, timeout=150) as response:  # noqa: S310 - of this machine
        found: dict[str, str] = json.loads(response.read())
        return found


@pytest.mark.zookeeper_mode("the fixture's cluster is on a ZooKeeper that it is given")
def test_the_fixture_ends_the_session_of_the_leader_that_it_kills(zookeeper: str, tmp_path: Path) -> None:
    """And the next test finds the cluster healthy: each broker is registered in a session of its own."""
    outcomes, printed = end(
        begin(
            tmp_path / "project",
            """
            import pytest

            @pytest.mark.parametrize("number", range(2))
            def test_failover(tidegauge_cluster, tidegauge_topic, number):
                dead = tidegauge_cluster.kill_leader(tidegauge_topic, expire=True)
                tidegauge_cluster.wait_leader(tidegauge_topic, other_than=dead)

            def test_a_pause_that_outlasts_the_session(tidegauge_cluster, tidegauge_topic):
                leader = tidegauge_cluster.leader_of(tidegauge_topic)
                tidegauge_cluster.pause(leader, expire=True)
                tidegauge_cluster.wait_leader(tidegauge_topic, other_than=leader)

            def test_the_cluster_is_healthy(tidegauge_cluster, tidegauge_topic):
                tidegauge_cluster.wait_in_sync(tidegauge_topic)
                assert len(tidegauge_cluster.isr_of(tidegauge_topic)) == 3
            """,
            f"--tidegauge-zookeeper={zookeeper}",
            f"--tidegauge-set=zookeeper.session.timeout.ms={LONGER_THAN_ANY_WAIT}",
        )
    )
    assert set(outcomes.values()) == {"passed"}, printed
