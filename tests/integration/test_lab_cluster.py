"""A local cluster of real processes: every verb returns when its effect is true, from ``up`` to ``down``."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from tidegauge import event_log
from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.partition import TopicPartition
from tidegauge_client.admin import Admin
from tidegauge_lab.local import launcher, layout, processes
from tidegauge_lab.local.cluster import ZOOKEEPER, LocalCluster
from tidegauge_lab.local.ports import Reservations
from tidegauge_lab.local.processes import ProcessState
from tidegauge_lab.local.roles import Role, RoleKind

pytestmark = [pytest.mark.integration, pytest.mark.timeout(1200)]

MakeCluster = Callable[..., LocalCluster]


def listens(address: str) -> bool:
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host, int(port)), 1).close()
    except OSError:
        return False
    return True


def test_up_is_ready_and_status_says_all(cluster: LocalCluster) -> None:
    status = cluster.status()
    addresses = ["bootstrap_servers", "kafka_bootstrap_servers"]
    beside = ["mode", "zookeeper", "controllers", "controller"]
    assert list(status) == [*addresses, *beside, "brokers", "kafka_brokers", "control"]
    assert (status["mode"], status["controllers"]) == ("zookeeper", [])
    assert status["kafka_brokers"] == [], "it is no mixed cluster"
    assert status["control"] is None, "nothing serves the HTTP interface"
    assert list(status["zookeeper"]) == ["address", "pid", "state", "responds", "end"]
    assert status["zookeeper"]["pid"] is None, "an external ZooKeeper's process is not known"
    assert status["controller"]["broker"] in {0, 1, 2}
    assert status["controller"]["id"] == status["controller"]["broker"], "the name in both modes"
    assert status["controller"]["epoch"] >= 1
    assert [list(broker) for broker in status["brokers"]] == [
        ["id", "pid", "state", "responds", "fenced", "end", "address", "kafka_address", "dir"]
    ] * 3
    assert [(broker["id"], broker["state"]) for broker in status["brokers"]] == [(0, "up"), (1, "up"), (2, "up")]
    assert len({broker["pid"] for broker in status["brokers"]}) == 3
    assert [broker["address"] for broker in status["brokers"]] == cluster.bootstrap_servers
    assert [broker["kafka_address"] for broker in status["brokers"]] == cluster.kafka_bootstrap_servers
    assert status["bootstrap_servers"] == ",".join(cluster.bootstrap_servers)
    assert status["kafka_bootstrap_servers"] == ",".join(cluster.kafka_bootstrap_servers)
    assert cluster.up() == [], "a second up changes nothing"
    cluster.wait_ready(150)


def test_processes_are_sessions_of_their_own_without_the_callers_descriptors(cluster: LocalCluster) -> None:
    pid = cluster.pid_of(0)
    assert pid is not None
    assert os.getsid(pid) == pid
    descriptors = Path(f"/proc/{pid}/fd")
    assert str((descriptors / "0").readlink()) == os.devnull
    log = str(cluster.logs / "broker-0.log")
    assert {str((descriptors / number).readlink()) for number in "12"} == {log}


def test_kill_and_start_keep_id_port_and_directory(cluster: LocalCluster) -> None:
    address, old_pid = cluster.file.broker(1).address, cluster.pid_of(1)
    [killed] = cluster.kill(1)
    assert (killed.changed, killed.pid, killed.state) == (True, old_pid, ProcessState.DOWN)
    assert not listens(address)
    status = cluster.status()["brokers"][1]
    assert (status["end"]["how"], status["end"]["signal"]) == ("killed", "SIGKILL")
    assert status | {"dir": "", "end": None} == {
        "id": 1,
        "pid": None,
        "state": "down",
        "responds": False,
        "fenced": None,
        "end": None,
        "address": address,
        "kafka_address": cluster.file.broker(1).kafka_address,
        "dir": "",
    }
    [again] = cluster.kill(1)
    assert (again.changed, again.pid) == (False, None)
    with pytest.raises(TidegaugeError, match="broker 1 is down"):
        cluster.pause(0, 1)
    assert cluster.state_of(0) is ProcessState.UP, "refused before anything was done"
    [started] = cluster.start(1)
    assert started.changed
    assert started.pid not in {None, old_pid}
    assert listens(address)
    assert [broker["state"] for broker in cluster.status()["brokers"]] == ["up"] * 3
    [again] = cluster.start(1)
    assert (again.changed, again.pid) == (False, started.pid)


def test_pause_stops_every_thread_and_resume_lets_them_run(cluster: LocalCluster) -> None:
    [paused] = cluster.pause(2)
    assert paused.pid is not None
    tasks = Path(f"/proc/{paused.pid}/task")
    assert {processes.parse_stat((task / "stat").read_text())[0] for task in tasks.iterdir()} == {"T"}
    assert [broker["state"] for broker in cluster.status()["brokers"]] == ["up", "up", "paused"]
    assert cluster.pause(2)[0].changed is False
    with pytest.raises(TidegaugeError, match="paused, not down"):
        cluster.start(2)
    assert cluster.resume(2)[0].changed is True
    assert cluster.resume(2)[0].changed is False
    assert cluster.state_of(2) is ProcessState.UP
    cluster.wait_ready(150)


def test_stop_is_a_clean_shutdown_and_also_ends_a_paused_broker(cluster: LocalCluster) -> None:
    data = cluster.directory / "broker-0" / "data"
    cluster.pause(0)
    [stopped] = cluster.stop(0, limit_seconds=150)
    assert (stopped.changed, stopped.state) == (True, ProcessState.DOWN)
    assert (data / ".kafka_cleanshutdown").exists()
    assert cluster.stop(0)[0].changed is False
    cluster.start(0)


async def test_a_role_is_resolved_to_the_broker_that_holds_it(cluster: LocalCluster) -> None:
    async with Admin(cluster.bootstrap_servers) as admin:
        await admin.create_topic("roles", assignment=[[2, 0, 1], [1, 2, 0]])
        await admin.wait_for_topic("roles")
    assert cluster.leader_of("roles", 0) == 2
    assert cluster.leader_of("roles", 1) == 1
    first = TopicPartition("roles", 0)
    assert cluster.resolve(Role(RoleKind.FOLLOWER, first), ProcessState.UP) == 0
    cluster.kill(0)
    assert cluster.resolve(Role(RoleKind.FOLLOWER, first), ProcessState.UP) == 1
    assert cluster.resolve(Role(RoleKind.FOLLOWER, first), ProcessState.DOWN) == 0
    cluster.start(0)
    cluster.wait_ready(150)
    assert cluster.resolve(Role(RoleKind.CONTROLLER)) == cluster.status()["controller"]["broker"]
    for topic, partition in (("nothing", 0), ("roles", 9)):
        with pytest.raises(TidegaugeError, match=f"no broker knows {topic}-{partition}"):
            cluster.leader_of(topic, partition)
    with pytest.raises(TidegaugeError, match="no broker 7"):
        cluster.kill(0, 7)
    assert cluster.state_of(0) is ProcessState.UP


def test_the_controllers_death_leaves_no_controller_until_the_next(cluster: LocalCluster) -> None:
    before = cluster.status()["controller"]
    cluster.kill(before["broker"], expire=True)
    meanwhile = cluster.status()["controller"]
    # A machine that stalls for seconds may have the next one by now.
    assert meanwhile == {"id": None, "broker": None, "epoch": before["epoch"]} or meanwhile["epoch"] > before["epoch"]
    cluster.start(before["broker"])
    cluster.wait_ready(150)
    after = cluster.status()["controller"]
    assert after["broker"] is not None
    assert after["epoch"] > before["epoch"]


def test_faults_are_in_the_event_log(cluster: LocalCluster) -> None:
    cluster.pause(1)
    cluster.resume(1)
    path = cluster.logs / event_log.file_name("lab")
    events = list(event_log.read_events(path))
    assert [(event["action"], event["broker"]) for event in events[-2:]] == [("pause", 1), ("resume", 1)]
    assert [event["sequence"] for event in events] == list(range(1, len(events) + 1))


def test_two_commands_on_different_brokers_do_not_wait_for_each_other(cluster: LocalCluster) -> None:
    """A long start of one broker must not delay a kill of another."""
    other = next(broker.id for broker in cluster.file.brokers if broker.id != cluster.status()["controller"]["broker"])
    third = next(b.id for b in cluster.file.brokers if b.id not in {other, cluster.status()["controller"]["broker"]})
    cluster.kill(other)  # its session lives on for seconds: so long the start waits
    starting = threading.Thread(target=lambda: LocalCluster(cluster.directory).start(other))
    starting.start()
    cluster.pause(third)
    assert starting.is_alive()
    cluster.resume(third)
    starting.join(150)
    assert cluster.state_of(other) is ProcessState.UP


def test_a_zookeeper_of_its_own_is_killed_and_started_like_a_broker(make_cluster: MakeCluster) -> None:
    cluster = make_cluster(brokers=1, zookeeper=None)
    status = cluster.status()["zookeeper"]
    up = {"pid": cluster.pid_of(ZOOKEEPER), "state": "up", "responds": True, "end": None}
    assert status == {"address": cluster.file.zookeeper_address, **up}
    cluster.kill(ZOOKEEPER)
    status = cluster.status()["zookeeper"]
    assert (status["pid"], status["state"], status["responds"]) == (None, "down", False)
    cluster.kill(0)
    with pytest.raises(TidegaugeError, match="start --zookeeper"):
        cluster.start(0)
    assert cluster.state_of(0) is ProcessState.DOWN
    assert [outcome.process for outcome in cluster.start(0, ZOOKEEPER)] == ["broker-0", "zookeeper"]
    cluster.pause(ZOOKEEPER, 0)
    cluster.down(purge=True)
    assert not cluster.directory.exists()


def test_an_external_zookeeper_is_left_alone_and_its_session_limit_is_reported(make_cluster: MakeCluster) -> None:
    cluster = make_cluster(brokers=1, settings={"zookeeper.session.timeout.ms": "90000"})
    assert any("sessions of 60000 ms, not 90000 ms" in note for note in cluster.notes)
    with pytest.raises(TidegaugeError, match="was not started by `tidegauge up`"):
        cluster.kill(ZOOKEEPER)
    assert cluster.status()["zookeeper"]["state"] == "up"
    cluster.down()
    assert cluster.status()["brokers"][0]["state"] == "down"


def test_data_and_ports_survive_down_and_up(make_cluster: MakeCluster) -> None:
    cluster = make_cluster(brokers=2)
    meta = (cluster.directory / "broker-1" / "data" / "meta.properties").read_text()
    ports = cluster.bootstrap_servers
    cluster.down()
    again = LocalCluster.create(cluster.directory, settings={"num.partitions": "4"})
    assert again.up() == ["broker-0", "broker-1"]
    assert again.bootstrap_servers == ports
    assert (cluster.directory / "broker-1" / "data" / "meta.properties").read_text() == meta
    assert "num.partitions=4" in (cluster.directory / "broker-1" / "server.properties").read_text()


def test_a_broker_with_a_head_start_is_the_controller_and_another_one_after_the_next_start(
    make_cluster: MakeCluster,
) -> None:
    """Else it is a race (KafkaController.elect), and with it the leader epochs of a first failover."""
    cluster = make_cluster(up=False, brokers=3)
    assert cluster.up(controller=2) == ["broker-2", "broker-0", "broker-1"]
    assert cluster.status()["controller"] == {"id": 2, "broker": 2, "epoch": 1}
    cluster.down()
    cluster.up(controller=1)
    assert cluster.status()["controller"]["broker"] == 1
    cluster.kill(0, expire=True)
    assert cluster.up(controller=0) == ["broker-0"]
    assert cluster.status()["controller"]["broker"] == 1, "a controller that is there stays"


def test_a_cluster_that_comes_back_reserves_its_ports_before_it_binds_them(
    make_cluster: MakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the first ``up`` of another directory takes one meanwhile, and a broker that dies can't come back."""
    cluster = make_cluster(up=False, brokers=1)
    cluster.down()  # which releases them
    reserved: list[frozenset[int]] = []

    def refuse(*_: object, **__: object) -> None:
        reserved.append(Reservations().owned())
        raise TidegaugeError(ErrorCode.INVALID_REQUEST, "one is busy")

    monkeypatch.setattr("tidegauge_lab.local.startup.require_ports", refuse)
    with pytest.raises(TidegaugeError, match="one is busy"):
        cluster.up()
    broker = cluster.file.broker(0)
    assert {broker.port, broker.kafka_port} <= reserved[0]


def test_a_busy_recorded_port_is_refused_with_its_holder_and_nothing_is_started(make_cluster: MakeCluster) -> None:
    cluster = make_cluster(up=False, brokers=2)
    with socket.socket() as holder:
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        holder.bind(("127.0.0.1", cluster.file.broker(1).port))
        holder.listen()
        with pytest.raises(TidegaugeError, match=rf"of broker 1 is in use by .*\(process {os.getpid()}\)"):
            cluster.up()
    assert [broker["state"] for broker in cluster.status()["brokers"]] == ["down", "down"]


def test_when_a_broker_refuses_to_start_its_sentence_is_shown_and_the_others_end(make_cluster: MakeCluster) -> None:
    cluster = make_cluster(up=False, brokers=2)
    data = cluster.directory / "broker-1" / "data"
    data.mkdir()
    (data / "meta.properties").write_text("version=0\nbroker.id=7\n")
    with pytest.raises(TidegaugeError, match=r"broker-1 ended while it started: .*7") as caught:
        cluster.up()
    assert "Traceback" not in str(caught.value)
    assert [broker["state"] for broker in cluster.status()["brokers"]] == ["down", "down"]


def test_a_killed_process_that_is_not_reaped_is_dead(
    make_cluster: MakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A zombie responds to kill(pid, 0); its state says that it holds nothing any more."""
    cluster = make_cluster(brokers=1)
    cluster.stop(0)
    monkeypatch.setattr(launcher, "_kept", [])
    cluster.start(0)  # by its command: this process is the parent, not a launcher
    process = layout.broker_process(cluster.directory, 0)
    pid = process.pid
    assert pid is not None
    child = processes._children.pop(pid)  # as if another command, which has ended, had been the parent
    try:
        assert cluster.kill(0)[0].changed
        os.kill(pid, 0)
        facts = processes.look_up(pid)
        assert facts is not None
        assert facts.states[0] == "Z"
        assert cluster.state_of(0) is ProcessState.DOWN
    finally:
        child.wait()
