"""A restore whose process is killed (snapshots.py, rule 4), on a real cluster: what the next verbs do, and say."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.modes import IS_KRAFT

from tidegauge.partition import TopicPartition
from tidegauge_client.sync import SyncAdmin, SyncProducer
from tidegauge_lab.local.cluster import LocalCluster

pytestmark = [pytest.mark.integration, pytest.mark.timeout(1200)]

KILLED_RESTORE = """
import os, pathlib, shutil, signal, sys
from tidegauge_lab.local.cluster import LocalCluster

owner, name = {"copytree": (shutil, "copytree"), "rename": (pathlib.Path, "rename")}[sys.argv[2]]
act, left = getattr(owner, name), 1

def killed_at_the_second(path, *arguments, **options):
    global left
    if left == 0:
        os.kill(os.getpid(), signal.SIGKILL)
    left -= 1
    return act(path, *arguments, **options)

cluster = LocalCluster(pathlib.Path(sys.argv[1]))
setattr(owner, name, killed_at_the_second)
cluster.restore("one")
"""


def verb(cluster: LocalCluster, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [Path(sys.executable).parent / "tidegauge", *words, "--dir", cluster.directory],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def produce(cluster: LocalCluster, *values: bytes) -> None:
    with SyncProducer(cluster.bootstrap_servers) as producer:
        for value in values:
            producer.send("kept", value).result(150)


def end_offset(cluster: LocalCluster) -> int:
    at = TopicPartition("kept", 0)
    with SyncAdmin(cluster.bootstrap_servers) as admin:
        admin.wait_for_topic("kept")
        return admin.list_offsets({at: -1}, timeout_ms=150_000)[at].offset


def test_the_next_up_finishes_or_undoes_a_restore_that_was_killed(make_cluster: Callable[..., LocalCluster]) -> None:
    cluster = make_cluster(zookeeper=None, brokers=2)
    with SyncAdmin(cluster.bootstrap_servers) as admin:
        admin.create_topic("kept", partitions=1, replication_factor=2)
        admin.wait_for_topic("kept")
    produce(cluster, b"1", b"2")
    assert verb(cluster, "snapshot", "one").returncode == 0
    produce(cluster, b"3")
    for killed_at, sentence, expected in (
        ("copytree", "was interrupted before it replaced anything: the data are as they were", 3),
        ("rename", "was interrupted while it replaced the data; it has been finished", 2),
    ):
        program = [sys.executable, "-c", KILLED_RESTORE, str(cluster.directory), killed_at]
        assert subprocess.run(program, timeout=300, check=False).returncode == -signal.SIGKILL
        refused = verb(cluster, "start", *([] if IS_KRAFT else ["--zookeeper"]), "0")
        assert refused.returncode == 1
        assert "a restore of snapshot one was interrupted" in refused.stderr
        assert f"`tidegauge up --dir {cluster.directory}` finishes or undoes it" in refused.stderr
        up = verb(cluster, "up", "--detach")
        assert up.returncode == 0, up.stderr
        assert f"A restore of snapshot one {sentence}" in up.stderr
        assert end_offset(cluster) == expected, killed_at
        assert "A restore" not in verb(cluster, "up", "--detach").stderr, "it is said once"
    produce(cluster, b"4")
    assert subprocess.run(program, timeout=300, check=False).returncode == -signal.SIGKILL
    restored = verb(cluster, "restore", "one")
    assert restored.returncode == 0, restored.stderr
    assert f"A restore of snapshot one {sentence}" in restored.stderr
    assert "Restored one" in restored.stdout
    assert end_offset(cluster) == 2
