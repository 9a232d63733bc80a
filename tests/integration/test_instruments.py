"""Reports of instruments on real brokers: restores, a loss by a clean election, refusals, dead and hung brokers."""

from __future__ import annotations

import json
import os
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from kazoo.client import KazooClient
from tests.integration.verify_shell import Shell, counts
from tests.waiting import until

from tidegauge.event_log import read_directory
from tidegauge.znodes import topic_path
from tidegauge_client.cli.explain import explain
from tidegauge_client.cli.produce import produce
from tidegauge_client.cli.wait import wait
from tidegauge_lab.cli.cluster import status
from tidegauge_lab.cli.inject import inject_disk
from tidegauge_lab.cli.isolate import isolate
from tidegauge_lab.cli.snapshot import restore, snapshot
from tidegauge_lab.cli.timeline import timeline
from tidegauge_lab.cli.verify import verify
from tidegauge_lab.local.cluster import LocalCluster
from tidegauge_lab.local.processes import ProcessState

pytestmark = [pytest.mark.integration, pytest.mark.timeout(1200)]
MakeCluster = Callable[..., LocalCluster]


@pytest.fixture
def shell_of_its_own(make_cluster: MakeCluster, tmp_path: Path) -> Shell:
    return Shell(make_cluster(brokers=3), tmp_path)


def ok(shell: Shell, *words: Any) -> str:
    done = shell.run(*words)
    assert done.exit_code == 0, done.stderr
    return done.stdout


def explained(shell: Shell, at: str) -> str:
    return " ".join(one["text"] for one in json.loads(ok(shell, explain, at, "-o", "json"))["sentences"])


def noted_high_watermarks(shell: Shell, topic: str) -> set[int]:
    events = read_directory(shell.cluster.logs)
    return {one["new"] for one in events if (one["kind"], one.get("topic")) == ("high_watermark", topic)}


def brokers_in_status(shell: Shell) -> list[dict[str, Any]]:
    return list(json.loads(ok(shell, status, "-o", "json"))["brokers"])


def test_a_restored_cluster_is_not_judged_by_the_time_line_that_it_abandoned(
    make_cluster: MakeCluster, tmp_path: Path
) -> None:
    """Epochs, high watermarks and records of after the snapshot are undone by the restore: that is no violation."""
    shell = Shell(make_cluster(brokers=3, zookeeper=None), tmp_path)
    topic = shell.topic("restored", (0, 1, 2))
    shell.produce(topic, "a", "b")
    ok(shell, snapshot, "s1")
    shell.wait("--in-sync", topic)
    leader = json.loads(ok(shell, explain, f"{topic}-0", "-o", "json"))["leader"]
    shell.cluster.kill(leader, expire=True)
    shell.wait("--leader", f"{topic}-0!={leader}")
    shell.produce(topic, "c", "d")
    ok(shell, restore, "s1")
    code, document = shell.verify(topic, "h")
    assert (code, counts(document)) == (0, {})
    assert document["acks"]["all"]["acknowledged"] == 2
    assert any(line.startswith("2 records of the history, acknowledged after") for line in document["not_checked"])
    assert "restores snapshot s1" in ok(shell, timeline, "--kind", "restore")
    shell.produce(topic, "e")
    assert shell.verify(topic, "h")[0] == 0, "and the time line goes on"


@pytest.mark.zookeeper_mode("the controller knows of the restart, and counts the election as unclean (KIP-966)")
def test_committed_records_that_a_clean_election_lost_are_found(shell_of_its_own: Shell) -> None:
    """KAFKA-14139: the only member of the ISR comes back with an empty disk, is elected cleanly, and others follow."""
    shell = shell_of_its_own
    topic = shell.topic("emptied", (2, 1))
    shell.produce(topic, *"abcde")
    shell.cluster.kill(1, expire=True)
    shell.wait("--isr", f"{topic}-0=2")
    shell.produce(topic, "f", "g")
    # The newest high watermark is written within 100 ms: a process that is killed before takes it along.
    until(lambda: 7 in noted_high_watermarks(shell, topic), 60)
    shell.cluster.kill(2, expire=True)
    until(lambda: "There is no leader" in explained(shell, f"{topic}-0"), 60)
    shutil.rmtree(shell.cluster.directory / "broker-2" / "data" / f"{topic}-0")
    shell.cluster.start(2)
    shell.wait("--leader", f"{topic}-0=2")
    shell.cluster.start(1)
    shell.wait("--in-sync", topic)
    code, document = shell.verify(topic)
    assert (code, counts(document)) == (1, {"leader-below-high-watermark": 1})
    (finding,) = document["findings"]
    assert "began epoch" in finding["examples"][0]["message"]
    assert "with a log that ends at 0, below the high watermark 7 of broker-2" in finding["examples"][0]["message"]
    text = shell.run(verify, topic)
    assert text.exit_code == 1
    assert "The books do not balance: 1 leader-below-high-watermark." in text.stdout


@pytest.mark.zookeeper_mode("there are no znodes and no LeaderAndIsr")
def test_a_refused_leader_and_isr_is_explained_with_both_topic_ids(shell_of_its_own: Shell) -> None:
    """A tool rewrites the topic's znode without topic_id and the controller changes (KAFKA-14190)."""
    shell = shell_of_its_own
    topic = shell.topic("renamed", (1, 2, 0))
    shell.produce(topic, "a")
    assert "topic's id" not in explained(shell, f"{topic}-0")
    client = KazooClient(shell.cluster.file.zookeeper_address)
    client.start()
    try:
        value = json.loads(client.get(topic_path(topic))[0])
        own_id = value.pop("topic_id")
        client.set(topic_path(topic), json.dumps(value).encode())
    finally:
        client.stop()
        client.close()
    assert "none in the topic's znode" in explained(shell, f"{topic}-0")
    assert counts(shell.verify(topic)[1]) == {"topic-id-differs": 1}
    controller = shell.cluster.status()["controller"]["broker"]
    shell.cluster.kill(controller, expire=True)
    until(lambda: shell.cluster.status()["controller"]["broker"] not in {None, controller}, 60)
    refused = "refused the controller's LeaderAndIsr"
    until(lambda: refused in explained(shell, f"{topic}-0"), 60)
    said = explained(shell, f"{topic}-0")
    assert "INCONSISTENT_TOPIC_ID" in said
    assert f"the replica's partition.metadata {own_id}" in said
    assert "overdue" not in said
    event = json.loads(ok(shell, wait, "--event", "refusal", "--partition", f"{topic}-0", "-o", "json"))["event"]
    assert (event["error"], event["own_topic_id"]) == ("INCONSISTENT_TOPIC_ID", own_id)
    logs = "".join(path.read_text() for path in shell.cluster.logs.glob("broker-*.log"))
    assert f"Topic ID in memory: {own_id} does not match the topic ID for partition {topic}-0 received:" in logs


def test_status_and_explain_say_how_a_process_ended(shell_of_its_own: Shell) -> None:
    """By the lab, by another's SIGKILL, in order by SIGTERM, and of a disk that refused everything."""
    shell = shell_of_its_own
    topic = shell.topic("ended", (0, 1, 2))
    shell.produce(topic, "a")
    assert [(one["responds"], one["end"]) for one in brokers_in_status(shell)] == [(True, None)] * 3
    shell.cluster.kill(2)
    pid = shell.cluster.pid_of(1)
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    until(lambda: shell.cluster.state_of(1) is ProcessState.DOWN, 60)
    ends = {one["id"]: one["end"] for one in brokers_in_status(shell)}
    assert ends[0] is None
    assert (ends[1]["how"], ends[1]["last_error"]) == ("ended", "")
    assert (ends[2]["how"], ends[2]["signal"]) == ("killed", "SIGKILL")
    said = explained(shell, f"{topic}-0")
    assert "Broker 1 ended at" in said
    assert "Broker 2 was killed by the lab (SIGKILL) at" in said
    pid = shell.cluster.pid_of(0)
    assert pid is not None
    os.kill(pid, signal.SIGTERM)
    until(lambda: shell.cluster.state_of(0) is ProcessState.DOWN, 60)
    assert "Broker 0" in ok(shell, status)
    assert brokers_in_status(shell)[0]["end"]["how"] == "shut-down"
    none = shell.run(explain, f"{topic}-0")
    assert none.exit_code != 0
    assert "Broker 0 shut down in order at" in none.stderr
    assert "Broker 2 was killed by the lab (SIGKILL) at" in none.stderr
    shell.cluster.start(0, 1, 2)
    assert [one["end"] for one in brokers_in_status(shell)] == [None] * 3


def test_a_full_disk_is_named_as_the_end(shell_of_its_own: Shell) -> None:
    """With the last of its log directories a broker shuts down, as Kafka's halts; its last error is the cause."""
    shell = shell_of_its_own
    topic = shell.topic("full", (1, 0))
    ok(shell, inject_disk, "1", "--errno", "ENOSPC")
    shell.run(produce, topic, "--acks", "1", "--delivery-timeout-ms", "2000", given=b"x\n")
    until(lambda: shell.cluster.state_of(1) is ProcessState.DOWN, 60)
    end = brokers_in_status(shell)[1]["end"]
    assert end["how"] == "shut-down"
    assert "No space left on device" in end["last_error"]
    assert "No space left on device" in explained(shell, f"{topic}-0")
    assert "No space left on device" in ok(shell, status)


def test_a_broker_that_hangs_is_up_and_does_not_respond(shell_of_its_own: Shell) -> None:
    """``state`` is the process's; whether it responds is another thing, which ``wait`` asks, too."""
    shell = shell_of_its_own
    topic = shell.topic("hung", (1, 2, 0))
    ok(shell, isolate, "1", "--from", "clients")
    broker = brokers_in_status(shell)[1]
    assert (broker["state"], broker["responds"]) == ("up", False)
    assert "up, but does not respond" in ok(shell, status)
    waited = shell.run(wait, "--leader", f"{topic}-0=1", "--timeout-ms", "1000")
    assert waited.exit_code == 4
    assert "does not respond" in waited.stderr
    assert [one["responds"] for one in brokers_in_status(shell)] == [True, False, True]
