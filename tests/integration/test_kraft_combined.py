"""``up --kraft --combined``: processes that are brokers and controllers, and what a user does to them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner
from tests.integration.conftest import free_quorum_port, kraft_cluster_at
from tests.waiting import until

from tidegauge.errors import TidegaugeError
from tidegauge_client.cli.main import root
from tidegauge_lab.local.cluster import LocalCluster
from tidegauge_lab.local.processes import ProcessState
from tidegauge_lab.local.wanted import WantedQuorum

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]

LIMIT_SECONDS = 60.0
ACKNOWLEDGED = "1000 acknowledged, 0 failed"


@pytest.fixture
def combined(tmp_path: Path, next_base_port: Callable[[], int]) -> Iterator[LocalCluster]:
    """Three brokers that are the controllers, and one that is a broker alone."""
    quorum = WantedQuorum(port=free_quorum_port(), is_combined=True)
    with kraft_cluster_at(tmp_path / "cluster", next_base_port(), brokers=4, quorum=quorum) as made:
        yield made


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


def leader_of(cluster: LocalCluster) -> int:
    """The controller that leads the quorum; -1: none is known."""
    view = cluster.quorum()
    return -1 if view is None or view.high_watermark < 0 else view.leader_id


def test_faults_of_a_node_with_both_roles_are_of_both(combined: LocalCluster) -> None:
    """Parted from the controllers it leads them no more; held, it lags, and fetches once when it is stepped."""
    until(lambda: leader_of(combined) >= 0, LIMIT_SECONDS, "the quorum has a leader")
    first = leader_of(combined)
    verb(combined, "isolate", str(first), "--from", "controllers")
    until(lambda: leader_of(combined) not in {-1, first}, LIMIT_SECONDS, "another controller leads")
    verb(combined, "heal")
    until(lambda: first in caught_up(combined), LIMIT_SECONDS, "the former leader has the whole log again")
    follower = next(one for one in (0, 1, 2) if one != leader_of(combined))
    verb(combined, "hold-fetch", "__cluster_metadata-0", "--broker", str(follower))
    assert "__cluster_metadata-0" in verb(combined, "faults")
    stepped = verb(combined, "step-fetch", "__cluster_metadata-0", "--broker", str(follower))
    assert f"Broker {follower} asked broker {leader_of(combined)} for __cluster_metadata-0" in stepped
    until(lambda: follower not in caught_up(combined), LIMIT_SECONDS, "the held follower lags")
    verb(combined, "hold-fetch", "__cluster_metadata-0", "--release")
    until(lambda: follower in caught_up(combined), LIMIT_SECONDS, "the released follower has caught up")


def caught_up(cluster: LocalCluster) -> set[int]:
    """The voters that had the whole log, as the leader knew it, at the last look."""
    view = cluster.quorum()
    if view is None:
        return set()
    end = max(one.log_end_offset for one in view.voters)
    return {one.id for one in view.voters if one.log_end_offset >= end}


def test_a_power_cut_of_all_nodes_leaves_what_the_quorum_has_committed(combined: LocalCluster) -> None:
    """A voter flushes before it counts: the disk with the replicas' record of synced lengths has the log's, too."""
    verb(combined, "create-topic", "orders", "--replication-factor", "3")
    combined.kill(0, 1, 2, 3)
    combined.start(0, 1, 2, 3, after_power_cut=True)
    verb(combined, "wait", "--leader", "orders-0")
    assert verb(combined, "list-topics").split() == ["orders"]


def test_a_node_whose_metadata_log_can_not_be_written_ends_and_comes_back(combined: LocalCluster) -> None:
    """As a controller alone does; the others go on, and its log says why."""
    until(lambda: leader_of(combined) >= 0, LIMIT_SECONDS, "the quorum has a leader")
    follower = next(one for one in (0, 1, 2) if one != leader_of(combined))
    verb(combined, "inject-disk", str(follower), "--errno", "ENOSPC", "--path", "__cluster_metadata")
    until(lambda: combined.state_of(follower) is ProcessState.DOWN, LIMIT_SECONDS, "the full disk ends the node")
    assert "No space left on device" in (combined.logs / f"broker-{follower}.log").read_text()
    verb(combined, "create-topic", "meanwhile", "--replica-assignment", "3")  # the dead one is not fenced yet
    combined.start(follower)
    until(lambda: follower in caught_up(combined), LIMIT_SECONDS, "the node has caught up")
