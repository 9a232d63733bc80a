"""``up --kraft --combined``: processes that are brokers and controllers, and what a user does to them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from tidegauge.errors import TidegaugeError
from tidegauge_client.cli.main import root
from tidegauge_lab.local.cluster import LocalCluster
from tidegauge_lab.local.processes import ProcessState
from tidegauge_lab.local.wanted import WantedQuorum

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]

ACKNOWLEDGED = "1000 acknowledged, 0 failed"


@pytest.fixture
def combined(tmp_path: Path, next_base_port: Callable[[], int]) -> Iterator[LocalCluster]:
    """Three brokers that are the controllers, and one that is a broker alone."""
    made = LocalCluster.create(
        tmp_path / "cluster",
        brokers=4,
        base_port=next_base_port(),
        mode="kraft",
        quorum=WantedQuorum(port=next_base_port(), is_combined=True),
    )
    try:
        made.up()
        yield made
    finally:
        made.down(grace_seconds=0)


def verb(cluster: LocalCluster, *words: str) -> str:
    done = CliRunner().invoke(root, [*words, "--dir", str(cluster.directory)])
    assert done.exit_code == 0, done.output
    return done.output


def all_read(cluster: LocalCluster, count: int) -> None:
    output = verb(cluster, "consume", "orders", "--from-beginning", "--max-messages", str(count))
    assert [line for line in output.splitlines() if line.isdecimal()] == [str(one) for one in range(1000)] * (
        count // 1000
    )


def test_the_active_node_is_killed_and_nothing_is_lost(combined: LocalCluster) -> None:
    """Its quorum and its partitions get other leaders; restarted, it follows both."""
    status = combined.status()
    assert [one["id"] for one in status["controllers"]] == [0, 1, 2]
    assert [one["id"] for one in status["brokers"]] == [0, 1, 2, 3]
    assert {one["id"]: one["pid"] for one in status["controllers"]} == {
        one["id"]: one["pid"] for one in status["brokers"][:3]
    }, "one process for both roles"
    active = status["controller"]["id"]
    others = [one for one in (0, 1, 2) if one != active]
    verb(combined, "create-topic", "orders", "--replica-assignment", ":".join(map(str, [active, *others])))
    assert ACKNOWLEDGED in verb(combined, "produce", "orders", "--count", "1000")
    [killed] = combined.kill("controller")
    assert (killed.name, killed.target) == (f"broker {active}", active)
    verb(combined, "wait", "--quorum-leader")
    verb(combined, "wait", "--leader", f"orders-0!={active}")
    assert ACKNOWLEDGED in verb(combined, "produce", "orders", "--count", "1000")
    assert combined.status()["controller"]["id"] in others
    [started] = combined.start(active)
    assert (started.changed, started.state) == (True, ProcessState.UP)
    verb(combined, "wait", "--in-sync", "orders")
    rows = {one["id"]: one for one in combined.status()["controllers"]}
    assert (rows[active]["role"], rows[active]["end"]) == ("follower", None)
    all_read(combined, 2000)


def test_without_a_majority_a_start_is_refused_and_says_what_to_start(combined: LocalCluster) -> None:
    combined.down()
    with pytest.raises(TidegaugeError, match=r"0 of its 3 controllers are up, 1 would start, and 2 .*start 1 0"):
        combined.start(1)
    with pytest.raises(TidegaugeError, match=r"0 of its 3 controllers are up, and 2 are needed .*start 0 1"):
        combined.start(3)
    assert [one.state for one in combined.start(0, 1)] == [ProcessState.UP] * 2
    combined.start(3)
    assert [one["fenced"] for one in combined.status()["brokers"]] == [False, False, True, False]


def test_a_combined_cluster_grows_and_its_snapshot_comes_back(combined: LocalCluster) -> None:
    """Growth adds brokers alone; ``down`` lets every node end in order, the last voters included."""
    verb(combined, "create-topic", "orders", "--replication-factor", "3")
    assert ACKNOWLEDGED in verb(combined, "produce", "orders", "--count", "1000")
    combined.snapshot("first")
    logs = [(combined.logs / f"broker-{one}.log").read_text() for one in range(4)]
    assert all("shut down completed" in one for one in logs), "none was killed"
    verb(combined, "create-topic", "later")
    combined.restore("first")
    assert verb(combined, "list-topics").split() == ["orders"]
    grown = LocalCluster.create(combined.directory, brokers=5)
    assert grown.up() == ["broker-4"]
    assert [one["id"] for one in grown.status()["controllers"]] == [0, 1, 2]
    verb(combined, "create-topic", "wide", "--replica-assignment", "4:0")
    all_read(combined, 1000)
