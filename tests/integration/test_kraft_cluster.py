"""``up --kraft``: a quorum of controllers as a local cluster's processes, and what a user does to them."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from tests.integration.conftest import free_quorum_port, kraft_cluster_at
from tests.kafka_requests import ask

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.event_log import read_events
from tidegauge.kafka import apis
from tidegauge.kafka.kraft.json_text import uuid_text
from tidegauge.kafka.messages import alter_client_quotas, create_partitions, describe_client_quotas
from tidegauge_client.cli.main import root
from tidegauge_lab.local import layout
from tidegauge_lab.local.cluster import LocalCluster
from tidegauge_lab.local.processes import ProcessState
from tidegauge_lab.local.waiting import holds_within
from tidegauge_lab.local.wanted import WantedQuorum

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]

LIMIT_SECONDS = 60.0
IDS = [3000, 3001, 3002]


@pytest.fixture
def kraft(tmp_path: Path, next_base_port: Callable[[], int]) -> Iterator[LocalCluster]:
    """Three controllers that are up, with a leader."""
    with kraft_cluster_at(tmp_path / "cluster", next_base_port()) as made:
        yield made


def controllers(cluster: LocalCluster) -> dict[int, dict[str, Any]]:
    return {one["id"]: one for one in cluster.status()["controllers"]}


def wait(cluster: LocalCluster, *condition: str) -> None:
    done = CliRunner().invoke(root, ["wait", *condition, "--dir", str(cluster.directory)])
    assert done.exit_code == 0, done.output


def test_up_waits_for_a_leader_and_status_says_all(kraft: LocalCluster) -> None:
    status = kraft.status()
    assert (status["mode"], status["zookeeper"]) == ("kraft", None)
    found = {one["id"]: one for one in status["controllers"]}
    assert list(found) == IDS
    fields = ["id", "state", "pid", "responds", "end", "address", "dir", "role", "epoch", "log_end_offset"]
    assert all(list(one) == [*fields, "high_watermark"] for one in found.values())
    assert all((one["state"], one["responds"], one["end"]) == ("up", True, None) for one in found.values())
    assert sorted(one["role"] for one in found.values()) == ["follower", "follower", "leader"]
    leader = next(one for one in found.values() if one["role"] == "leader")
    assert status["controller"] == {"id": leader["id"], "broker": leader["id"], "epoch": leader["epoch"]}
    assert leader["high_watermark"] >= 3, "its LeaderChange and the voters are committed"


def test_the_active_controller_is_killed_by_its_role_and_comes_back(kraft: LocalCluster) -> None:
    """Each verb takes a controller, and returns when its effect is true."""
    [killed] = kraft.kill("controller")
    assert (killed.name, killed.state) == (f"controller {killed.target}", ProcessState.DOWN)
    wait(kraft, "--quorum-leader")
    now = controllers(kraft)
    assert (now[int(killed.target)]["role"], now[int(killed.target)]["end"]["how"]) == (None, "killed")
    assert kraft.status()["controller"]["id"] not in {None, killed.target}
    [started] = kraft.start(killed.target)
    assert (started.changed, started.state) == (True, ProcessState.UP)
    assert holds_within(lambda: controllers(kraft)[int(killed.target)]["role"] == "follower", LIMIT_SECONDS)


def test_without_a_majority_there_is_no_leader_and_with_it_there_is(kraft: LocalCluster) -> None:
    """KIP-595: a leader is elected, and stays, by a majority of the voters; check-quorum ends the rest."""
    two = [one for one in IDS if one != kraft.status()["controller"]["id"]]
    kraft.pause(*two)
    assert holds_within(lambda: kraft.status()["controller"]["id"] is None, LIMIT_SECONDS)
    with pytest.raises(TidegaugeError, match="no active controller"):
        kraft.kill("controller")
    kraft.resume(two[0])
    wait(kraft, "--quorum-leader")
    assert {one["state"] for one in controllers(kraft).values()} == {"up", "paused"}


def test_a_stopped_leader_hands_its_leadership_over(kraft: LocalCluster) -> None:
    """EndQuorumEpoch (KIP-595): its successor does not wait for the fetch timeout."""
    before = kraft.status()["controller"]
    [stopped] = kraft.stop("controller")
    wait(kraft, "--quorum-leader")
    assert kraft.status()["controller"]["epoch"] > before["epoch"]
    assert controllers(kraft)[int(stopped.target)]["end"]["how"] == "stopped"
    log = (kraft.logs / f"controller-{stopped.target}.log").read_text()
    assert f"is Resigned in epoch {before['epoch']}" in log


def test_records_live_through_a_killed_leader_and_a_killed_controller(kraft: LocalCluster) -> None:
    """A new user's walk: a topic, records, a broker killed, then the active controller, and all records are read."""
    verb(kraft, "create-topic", "orders", "--replica-assignment", "2:0:1")
    assert (
        "1000 acknowledged, 0 failed"
        in CliRunner().invoke(root, ["produce", "orders", "--count", "1000", "--dir", str(kraft.directory)]).output
    )
    [killed] = kraft.kill("leader-of:orders-0")
    assert (killed.name, killed.target) == ("broker 2", 2)
    wait(kraft, "--leader", "orders-0!=2")
    assert [one["fenced"] for one in kraft.status()["brokers"]] == [False, False, True]
    kraft.kill("controller")
    wait(kraft, "--quorum-leader")
    kraft.up()
    wait(kraft, "--in-sync", "orders")
    output = verb(kraft, "consume", "orders", "--from-beginning", "--max-messages", "1000")
    assert output.splitlines()[:2] == ["0", "1"]
    verb(kraft, "create-topic", "later", "--replication-factor", "3")
    state = verb(kraft, "status")
    assert state.count("Controller 300") == 3
    assert "There is no active controller" not in state


def test_down_and_up_again_keep_epochs_and_votes(kraft: LocalCluster) -> None:
    epoch = kraft.status()["controller"]["epoch"]
    kraft.down()
    assert all(one["state"] == "down" for one in controllers(kraft).values())
    assert set(LocalCluster(kraft.directory).up()) >= {f"controller-{one}" for one in IDS}
    assert kraft.status()["controller"]["epoch"] > epoch


def test_a_snapshot_of_the_quorum_comes_back(kraft: LocalCluster) -> None:
    states = [layout.controller_data(kraft.directory, one) / "__cluster_metadata-0" / "quorum-state" for one in IDS]
    kraft.snapshot("first")
    kept = [kraft.directory / "snapshots" / "first" / one.relative_to(kraft.directory) for one in states]
    assert all(one.exists() for one in kept), "votes are data, too"
    marks = [one.with_name("later") for one in states]
    for mark in marks:
        mark.touch()
    kraft.restore("first")
    assert [one["state"] for one in controllers(kraft).values()] == ["up"] * 3
    assert not any(mark.exists() for mark in marks)
    wait(kraft, "--quorum-leader")


def test_a_controller_that_lost_its_disk_does_not_count_as_the_voter_that_it_was(kraft: LocalCluster) -> None:
    """KIP-853: the voter is an id and a directory id; with a new directory id the node is an observer."""
    lost = next(one for one in IDS if one != kraft.status()["controller"]["id"])
    kraft.kill(lost)
    shutil.rmtree(layout.controller_data(kraft.directory, lost))
    kraft.start(lost)
    described = CliRunner().invoke(root, ["describe-quorum", "-o", "json", "--dir", str(kraft.directory)])
    assert described.exit_code == 0, described.output
    assert holds_within(lambda: controllers(kraft)[lost]["role"] == "observer", LIMIT_SECONDS)
    other = next(one for one in IDS if one not in {lost, kraft.status()["controller"]["id"]})
    kraft.pause(other)
    assert holds_within(lambda: kraft.status()["controller"]["id"] is None, LIMIT_SECONDS), "no majority is left"
    kraft.resume(other)
    wait(kraft, "--quorum-leader")


def test_neither_zookeepers_client_nor_pyspark_is_loaded_and_no_java_is_needed(tmp_path: Path) -> None:
    """The base installation is enough for a cluster in KRaft mode: there is no Java on this path."""
    program = (
        "import sys\n"
        "from pathlib import Path\n"
        "from tidegauge_lab.cli.cluster import up\n"
        "from tidegauge_lab.local.cluster import LocalCluster\n"
        "from tidegauge_lab.local.wanted import WantedQuorum\n"
        f"made = LocalCluster.create(Path({str(tmp_path / 'c')!r}), mode='kraft', quorum=WantedQuorum(controllers=1))\n"
        "made.up()\n"
        "made.status()\n"
        "made.down(purge=True)\n"
        "print([name for name in ('kazoo', 'pyspark') if name in sys.modules])\n"
    )
    environment = {name: value for name, value in os.environ.items() if name != "JAVA_HOME"} | {"PATH": ""}
    command = [sys.executable, "-P", "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert (done.stdout.strip(), done.stderr) == ("[]", "")


def leader_and_followers(cluster: LocalCluster) -> tuple[int, list[int]]:
    leader = int(cluster.status()["controller"]["id"])
    return leader, [one for one in IDS if one != leader]


def verb(cluster: LocalCluster, *words: str) -> str:
    done = CliRunner().invoke(root, [*words, "--dir", str(cluster.directory)])
    assert done.exit_code == 0, done.output
    return done.output


def epoch_of(cluster: LocalCluster) -> int:
    return int(cluster.status()["controller"]["epoch"])


def test_a_follower_whose_fetches_are_held_does_not_depose_a_healthy_leader(kraft: LocalCluster) -> None:
    """Pre-votes (KIP-996): voters that hear of the leader reject them, and no epoch begins."""
    leader, (held, _) = leader_and_followers(kraft)
    epoch = epoch_of(kraft)
    assert verb(kraft, "hold-fetch", "__cluster_metadata-0", "--broker", str(held))
    log = kraft.logs / f"controller-{held}.log"
    assert holds_within(lambda: "a majority rejected its pre-votes" in log.read_text(), LIMIT_SECONDS)
    assert f"Controller {held}: fetches of __cluster_metadata-0 are held" in verb(kraft, "faults")
    assert kraft.status()["controller"] == {"id": leader, "broker": leader, "epoch": epoch}
    verb(kraft, "hold-fetch", "__cluster_metadata-0", "--broker", str(held), "--release")
    end = controllers(kraft)[leader]["log_end_offset"]
    assert holds_within(lambda: controllers(kraft)[held]["log_end_offset"] >= end, LIMIT_SECONDS)


def test_a_leader_that_is_cut_off_resigns_and_the_others_elect_one(kraft: LocalCluster) -> None:
    """KIP-595, check-quorum: one and a half fetch timeouts without fetches of a majority end a leadership."""
    leader, others = leader_and_followers(kraft)
    epoch = epoch_of(kraft)
    output = verb(kraft, "isolate", str(leader), "--from", "controllers")
    assert f"Controller {leader}: calls from and to controllers: partitioned" in output
    assert holds_within(lambda: kraft.status()["controller"]["id"] in others, LIMIT_SECONDS)
    assert epoch_of(kraft) > epoch
    log = kraft.logs / f"controller-{leader}.log"
    assert holds_within(lambda: f"is Resigned in epoch {epoch}" in log.read_text(), LIMIT_SECONDS)
    verb(kraft, "heal", str(leader))
    assert holds_within(lambda: controllers(kraft)[leader]["role"] in {"follower", "leader"}, LIMIT_SECONDS)


def broker(cluster: LocalCluster, broker_id: int) -> dict[str, Any]:
    return next(one for one in cluster.status()["brokers"] if one["id"] == broker_id)


def test_a_broker_that_reaches_no_controller_is_fenced_and_comes_back(kraft: LocalCluster) -> None:
    """KIP-631: without heartbeats its session ends, and others lead; the same registration is unfenced later."""
    verb(kraft, "create-topic", "orders", "--replica-assignment", "1:2:0")
    output = verb(kraft, "isolate", "1", "--from", "controllers")
    assert "Broker 1: calls from and to controllers: partitioned" in output
    wait(kraft, "--fenced", "1")
    wait(kraft, "--leader", "orders-0=2")
    assert broker(kraft, 1)["state"] == "up", "its process lives, and serves its clients as it last knew"
    verb(kraft, "heal", "1")
    wait(kraft, "--unfenced", "1")
    wait(kraft, "--in-sync", "orders")


def test_brokers_are_unfenced_as_soon_as_the_controller_hears_them_again(kraft: LocalCluster) -> None:
    """Requests that a partition has dropped leave no connection on which the next heartbeats would wait behind them."""
    controller = str(kraft.status()["controller"]["id"])
    verb(kraft, "isolate", controller, "--from", "brokers")
    log = kraft.logs / f"controller-{controller}.events.jsonl"

    def states() -> dict[int, str]:
        """The brokers by what the controller has decided last: their own metadata do not show it meanwhile."""
        return {one["broker"]: one["state"] for one in read_events(log) if one["kind"] == "fencing"}

    assert holds_within(lambda: set(states().values()) == {"fenced"}, 60)
    verb(kraft, "heal", controller)
    assert holds_within(lambda: set(states().values()) == {"unfenced"}, 60)


def test_a_brokers_heartbeats_are_held_at_the_broker_whoever_leads_the_quorum(kraft: LocalCluster) -> None:
    """The fault is in the broker, so another active controller gets none either; fetches of the metadata go on."""
    verb(kraft, "hold-requests", "2", "--rpc", "BrokerHeartbeat")
    wait(kraft, "--fenced", "2")
    kraft.kill("controller")
    wait(kraft, "--quorum-leader")
    verb(kraft, "create-topic", "later", "--replica-assignment", "0:1")
    assert "Broker 2: BrokerHeartbeat held" in verb(kraft, "faults")
    assert broker(kraft, 2)["fenced"]
    at_broker = ("list-topics", "--bootstrap-server", kraft.bootstrap_servers[2])
    assert holds_within(lambda: "later" in verb(kraft, *at_broker), LIMIT_SECONDS), "it has the metadata"
    verb(kraft, "faults", "--clear")
    wait(kraft, "--unfenced", "2")


def test_a_leader_whose_proposals_fail_keeps_its_isr(kraft: LocalCluster) -> None:
    """AlterPartition (KIP-497): without the controller's word the ISR stays, and acks=all waits for the laggard."""
    verb(kraft, "create-topic", "orders", "--replica-assignment", "0:1")
    verb(kraft, "inject-error", "0", "--rpc", "AlterPartition", "--error", "UNKNOWN_SERVER_ERROR", "--times", "0")
    verb(kraft, "hold-fetch", "orders-0", "--broker", "1")
    CliRunner().invoke(root, ["produce", "orders", "--count", "1", "--acks", "1", "--dir", str(kraft.directory)])

    def met() -> int:
        [found] = json.loads(verb(kraft, "faults", "-o", "json"))["brokers"][0]["faults"]
        return int(found["met"])

    assert holds_within(lambda: met() > 0, LIMIT_SECONDS), "it has asked"
    described = json.loads(verb(kraft, "describe-topic", "orders", "-o", "json"))
    assert sorted(described["topics"][0]["partitions"][0]["isr"]) == [0, 1]
    verb(kraft, "faults", "--clear")
    wait(kraft, "--in-sync", "orders")


def test_a_broker_ends_with_its_metadata_directory_and_lives_on_without_another(kraft: LocalCluster) -> None:
    """ReplicaManager.handleLogDirFailure: whatever fails in the metadata directory, the broker ends with it.

    Appends to a partition fail, while the metadata log of the same directory could still be written.
    """
    kraft.stop(1)
    data = layout.broker_data(kraft.directory, 1)
    for name in ("data-2", "data-3"):
        data.with_name(name).mkdir()
    kraft.start(1)
    wait(kraft, "--unfenced", "1")
    verb(kraft, "create-topic", "orders", "--replica-assignment", "1,1,1")
    process = kraft.processes()[1]

    def fail_in(directory: Path) -> None:
        [home] = directory.glob("orders-*")
        verb(kraft, "inject-disk", "1", "--errno", "EIO", "--operation", "append", "--path", home.name)
        verb(kraft, "produce", "orders", "--count", "1", "--partition", home.name[-1], "--acks", "0")

    fail_in(data.with_name("data-2"))
    assert holds_within(lambda: "Stopping serving logs in dir" in process.log_file.read_text(), LIMIT_SECONDS)
    verb(kraft, "describe-topic", "orders")
    assert process.state is ProcessState.UP
    fail_in(data)
    assert holds_within(lambda: process.state is ProcessState.DOWN, LIMIT_SECONDS)
    log = process.log_file.read_text()
    assert f"Shutdown broker because the metadata log dir {data} has failed" in log
    assert "Traceback" not in log


def test_held_votes_keep_a_quorum_without_leader(kraft: LocalCluster) -> None:
    """A candidate needs the votes of a majority; with the responses of both others held there is none."""
    leader, followers = leader_and_followers(kraft)
    for one in followers:
        verb(kraft, "hold-requests", str(one), "--rpc", "Vote")
    kraft.kill(leader)
    logs = [kraft.logs / f"controller-{one}.log" for one in followers]
    assert holds_within(lambda: all("no majority" in log.read_text() for log in logs), LIMIT_SECONDS)
    assert kraft.status()["controller"]["id"] is None
    verb(kraft, "faults", "--clear")
    wait(kraft, "--quorum-leader")


def test_votes_and_committed_records_survive_a_power_loss_of_all(kraft: LocalCluster) -> None:
    """A vote is on the disk before it is given, and a record before it counts (KIP-595): nothing of either is lost."""
    epoch, committed = epoch_of(kraft), kraft.status()["controllers"][0]["high_watermark"]
    kraft.kill(*IDS)
    kraft.start(*IDS, after_power_cut=True)
    wait(kraft, "--quorum-leader")
    assert epoch_of(kraft) > epoch
    assert kraft.status()["controllers"][0]["high_watermark"] >= committed


def test_a_power_loss_before_the_rename_of_quorum_state_leaves_the_file_as_it_was(kraft: LocalCluster) -> None:
    """A vote counts only when its file has its name (FileQuorumStateStore): until then no other node knows of it."""
    leader, [slow, _] = leader_and_followers(kraft)
    epoch = epoch_of(kraft)
    file = layout.controller_data(kraft.directory, slow) / "__cluster_metadata-0" / "quorum-state"
    before = file.read_bytes()
    verb(kraft, "inject-disk", str(slow), "--delay-ms", "600000", "--path", "quorum-state")
    kraft.kill(leader)
    assert holds_within(lambda: re.search(r"met [1-9]", verb(kraft, "faults")) is not None, LIMIT_SECONDS)
    assert kraft.status()["controller"]["id"] is None, "the one that is left has its own vote alone"
    kraft.kill(slow)
    assert file.read_bytes() == before
    kraft.start(slow, after_power_cut=True)
    wait(kraft, "--quorum-leader")
    assert epoch_of(kraft) > epoch


def test_a_dead_broker_is_fenced_at_once_if_the_kill_asks_for_it(
    tmp_path: Path, next_base_port: Callable[[], int]
) -> None:
    """KIP-631: fencing moves its leaders; by itself it would come after a session of ten minutes here."""
    made = LocalCluster.create(
        tmp_path / "cluster",
        brokers=2,
        settings={"broker.session.timeout.ms": "600000"},
        base_port=next_base_port(),
        mode="kraft",
        quorum=WantedQuorum(controllers=1, port=free_quorum_port()),
    )
    try:
        made.up()
        verb(made, "create-topic", "orders", "--replica-assignment", "1:0")
        [paused] = json.loads(verb(made, "pause", "1", "--expire", "-o", "json"))["processes"]
        assert ("session" in paused, paused["broker_epoch"] >= 0) == (False, True), "there is no session"
        wait(made, "--leader", "orders-0=0")
        made.resume(1)
        wait(made, "--in-sync", "orders")
        [killed] = made.kill("leader-of:orders-0", expire=True)
        assert killed.ended is not None
        assert (killed.target, killed.ended.is_session) == (0, False)
        wait(made, "--leader", "orders-0=1")
    finally:
        made.down(grace_seconds=0)


def test_a_controller_is_added_and_the_metadata_are_shown_as_a_tree(kraft: LocalCluster) -> None:
    """KIP-853 by one verb: a process is started, catches up, and votes; ``metadata-tree`` shows its registration."""
    added = verb(kraft, "add-controller")
    assert added.startswith("Added controller 3003 with directory id ")
    kraft = LocalCluster(kraft.directory)
    assert list(controllers(kraft)) == [*IDS, 3003]
    assert controllers(kraft)[3003]["role"] == "follower"
    view = kraft.quorum()
    assert view is not None
    assert [one.id for one in view.voters] == [*IDS, 3003]
    verb(kraft, "create-topic", "orders", "--replica-assignment", "2:0:1")
    assert "replicas=[2, 0, 1]" in verb(kraft, "metadata-tree", "topics/byName/orders/0")
    assert "ControllerRegistration(id=3003" in verb(kraft, "metadata-tree", "/image/cluster/controllers/3003")
    one, *_ = [one for one in view.voters if one.id == 3003]
    removed = verb(kraft, "remove-controller", "-i", "3003", "-d", uuid_text(one.directory_id))
    assert removed.startswith("Removed")
    kraft.down()
    assert "orders" in verb(kraft, "metadata-tree", "topics/byName"), "files are read while nothing runs"
    refused = CliRunner().invoke(root, ["add-controller", "--dir", str(kraft.directory)])
    assert "only its leader adds a voter" in refused.output
    assert len(controllers(kraft)) == 4, "nothing was changed"


def test_requests_of_very_many_items_are_forwarded_and_the_quorum_keeps_its_leader(kraft: LocalCluster) -> None:
    """A broker sends such a request in an Envelope (KIP-590), waits for its response, and hands it on whole."""
    address = kraft.kafka_bootstrap_servers[0]
    before = kraft.status()["controller"]
    names = [f"no-{number}" for number in range(99_000)]
    wanted = [create_partitions.CreatePartitionsTopic(name, 2, None) for name in names]
    refused = ask(address, apis.CREATE_PARTITIONS, create_partitions.CreatePartitionsRequest(wanted, 60_000), 3)
    assert {one.error_code for one in refused.results} == {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    assert [one.name for one in refused.results] == names

    values = [alter_client_quotas.OpData("producer_byte_rate", 1000.0, False)]
    users = [alter_client_quotas.EntityData("user", name) for name in names[:9_000]]
    entries = [alter_client_quotas.EntryData([user], values) for user in users]
    altered = ask(address, apis.ALTER_CLIENT_QUOTAS, alter_client_quotas.AlterClientQuotasRequest(entries), 1)
    assert {one.error_code for one in altered.entries} == {ErrorCode.NONE}
    every = describe_client_quotas.DescribeClientQuotasRequest(
        [describe_client_quotas.ComponentData("user", 2, None)], False
    )
    assert holds_within(
        lambda: len(ask(address, apis.DESCRIBE_CLIENT_QUOTAS, every, 1).entries or ()) == 9_000, LIMIT_SECONDS
    )
    assert kraft.status()["controller"] == before
