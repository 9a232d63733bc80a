"""``create-topic``, ``alter-topic``, ``delete-topic``, ``elect-leaders``, ``zk-tree``: Kafka's words and exit codes.

Data on stdout, messages on stderr.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.typed import Typed, typed

from tidegauge_lab.cli import zk_tree
from tidegauge_lab.local.cluster import LocalCluster

pytestmark = [pytest.mark.integration, pytest.mark.timeout(1200)]

TIDEGAUGE = str(Path(sys.executable).parent / "tidegauge")
Run = Callable[..., Typed]
OK, FAILED, USAGE = 0, 1, 2


@pytest.fixture
def run(cluster: LocalCluster) -> Run:
    return lambda verb, *arguments: typed(verb, *arguments, "--dir", cluster.directory)


def test_a_topic_grows_and_goes(run: Run, cluster: LocalCluster) -> None:
    created = run("create-topic", "grown", "--replica-assignment", "0:1,1:2")
    assert created.stdout == "Created topic grown.\n", created
    for arguments, code, said in [
        (
            ("alter-topic", "grown", "--partitions", "1"),
            FAILED,
            "INVALID_PARTITIONS (37): Topic currently has 2 partitions, which is higher than the requested 1.",
        ),
        (
            ("alter-topic", "grown", "--partitions", "2"),
            FAILED,
            "INVALID_PARTITIONS (37): Topic already has 2 partitions.",
        ),
        (("alter-topic", "grown", "--partitions", "0"), USAGE, "Error: The partitions must be greater than 0"),
        (
            ("alter-topic", "grown", "--partitions", "3", "--replica-assignment", "0:1,1:2,0:9"),
            FAILED,
            "INVALID_REPLICA_ASSIGNMENT (39): Unknown broker(s) in replica assignment: 9.",
        ),
        (("alter-topic", "grown", "--partitions", "3", "--replica-assignment", "0:1,1:2,2:0"), OK, ""),
        (
            ("alter-topic", "no-such", "--partitions", "3"),
            FAILED,
            "UNKNOWN_TOPIC_OR_PARTITION (3): Topic 'no-such' does not exist as expected; `tidegauge list-topics "
            f"--dir {cluster.directory}` shows what does",
        ),
    ]:
        done = run(*arguments)
        assert (done.code, done.stdout) == (code, ""), arguments
        assert done.stderr.strip().splitlines()[-1:] == ([said] if said else []), arguments
    described = run("describe-topic", "grown", "-o", "json")
    replicas = [entry["replicas"] for entry in json.loads(described.stdout)["topics"][0]["partitions"]]
    assert replicas == [[0, 1], [1, 2], [2, 0]]

    missing = run("delete-topic", "grown", "no-such")
    assert missing.code == FAILED
    assert "Topic 'no-such' does not exist as expected" in missing.stderr
    assert "grown" in run("list-topics").stdout.split(), "nothing is deleted when one is missing"
    gone = run("delete-topic", "grown", "no-such", "--if-exists", "-o", "json")
    assert (gone.code, gone.stderr) == (OK, "")
    assert json.loads(gone.stdout) == {
        "topics": [
            {"name": "grown", "deleted": True, "waits_for": []},
            {"name": "no-such", "deleted": False, "waits_for": []},
        ]
    }
    assert "grown" not in run("list-topics").stdout.split()


def test_elections(run: Run) -> None:
    assert run("create-topic", "voted", "--replica-assignment", "0:1").code == OK
    one = ("--topic", "voted", "--partition", "0")
    valid = run("elect-leaders", "--election-type", "preferred", *one)
    assert (valid.code, valid.stdout) == (OK, "Valid replica already elected for partitions voted-0\n")
    unclean = run("elect-leaders", "--election-type", "UNCLEAN", *one, "-o", "json")
    response = json.loads(unclean.stdout)
    assert (response["election_type"].lower(), response["partitions"][0]["error"]["name"]) == (
        "unclean",
        "ELECTION_NOT_NEEDED",
    )
    assert unclean.code == OK
    rest = run("elect-leaders", "--election-type", "preferred", "--all-topic-partitions")
    assert "voted" not in rest.stdout + rest.stderr, "those that need none are not named; others' topics may need one"
    unknown = run("elect-leaders", "--election-type", "preferred", "--topic", "voted", "--partition", "7")
    assert (unknown.code, unknown.stdout) == (FAILED, "")
    assert unknown.stderr.splitlines()[:2] == [
        "Error completing leader election (PREFERRED) for partition: voted-7: UNKNOWN_TOPIC_OR_PARTITION (3): "
        "The partition does not exist.",
        "1 replica(s) could not be elected",
    ]
    for wrong in ((), ("--topic", "voted"), ("--partition", "0"), (*one, "--all-topic-partitions")):
        assert run("elect-leaders", "--election-type", "preferred", *wrong).code == USAGE, wrong
    assert run("elect-leaders", *one).code == USAGE
    assert run("delete-topic", "voted").code == OK


def test_the_znodes_as_text_and_as_they_change(cluster: LocalCluster, run: Run) -> None:
    lines = run("zk-tree").stdout.splitlines()
    controller = next(line for line in lines if line.startswith("controller "))
    assert '"kraftControllerEpoch":-1}' in controller
    assert "# version 0, ephemeral, owner broker " in controller
    assert any(line.startswith('    0  {"') and '"version":5,' in line for line in lines), "indented by depth"

    watcher = subprocess.Popen(
        [TIDEGAUGE, "zk-tree", "--watch", "-o", "json", "--dir", str(cluster.directory)],
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert watcher.stdout is not None
        first = json.loads(watcher.stdout.readline())
        assert (first["path"], "change" in first) == ("/admin", False)
        run("create-topic", "watched", "--partitions", "1", "--replication-factor", "1")
        changed = {}
        while "/brokers/topics/watched/partitions/0/state" not in changed:
            entry = json.loads(watcher.stdout.readline())
            if "change" in entry:
                changed[entry["path"]] = entry["change"]
        assert changed["/brokers/topics/watched"] == "+"
    finally:
        watcher.terminate()
        watcher.communicate(timeout=150)
    run("delete-topic", "watched")


def test_a_zookeeper_that_is_not_there_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(zk_tree, "RESPONSE_SECONDS", 0.3)
    done = typed("zk-tree", "--zookeeper", "127.0.0.1:1")
    assert (done.code, done.stdout) == (FAILED, "")
    assert "ZooKeeper at 127.0.0.1:1 does not respond" in done.stderr
