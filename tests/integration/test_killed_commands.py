"""A killed command leaves no process of a cluster that is to end with it (guard.py; docs/command-line.md)."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.integration.conftest import processes_of_directory
from tests.waiting import until

from tidegauge_lab.local.cluster import ZOOKEEPER, LocalCluster
from tidegauge_lab.local.guard import MODULE
from tidegauge_lab.local.processes import ProcessState

pytestmark = [pytest.mark.integration, pytest.mark.timeout(1200)]

TIDEGAUGE = str(Path(sys.executable).parent / "tidegauge")
PAUSED_CLIENT = """\
title: A story with a client that is paused when the run is killed.
cluster: {brokers: 1}
topics:
  - {name: story, assignment: 0}
  - {name: __transaction_state, assignment: 0, config: {cleanup.policy: compact, min.insync.replicas: 1}}
steps:
  - start_producer: {producer: frozen, transactional_id: t, library: tidegauge}
  - pause_client: frozen
  - wait_leader: none
"""


@contextmanager
def running(*arguments: object, temporary: Path | None = None) -> Iterator[subprocess.Popen[str]]:
    """A command with its output in pipes, killed at the end if it still runs."""
    environment = os.environ | ({} if temporary is None else {"TMPDIR": str(temporary)})
    process = subprocess.Popen(
        [TIDEGAUGE, *map(str, arguments)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def guards(directory: Path) -> list[int]:
    return [pid for pid, command in processes_of_directory(directory.parent).items() if f" -m {MODULE} " in command]


def targets(cluster: LocalCluster) -> list[int | str]:
    """Two brokers, and what keeps their metadata."""
    return [0, 1, *(sorted(cluster.file.unsecured_ids) or [ZOOKEEPER])]


def states(cluster: LocalCluster) -> set[ProcessState]:
    return {cluster.state_of(target) for target in targets(cluster)}


def test_the_cluster_of_a_killed_up_ends_and_an_up_that_follows_at_once_starts_it_again(
    make_cluster: Callable[..., LocalCluster],
) -> None:
    """It doesn't take over processes that are about to end, also paused ones."""
    cluster = make_cluster(up=False, brokers=2, zookeeper=None)
    with running("up", "--dir", cluster.directory) as front:
        assert front.stderr is not None
        until(lambda: front.stderr.readline().startswith("Ctrl-C takes the cluster down"))
        pids = {cluster.pid_of(target) for target in targets(cluster)}
        cluster.pause(1)
        front.kill()
        done = subprocess.run(
            [TIDEGAUGE, "up", "-d", "--dir", cluster.directory],
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
    assert done.returncode == 0, done.stderr
    until(lambda: guards(cluster.directory) == [], what="the guard has done what it does")
    assert states(cluster) == {ProcessState.UP}
    assert pids.isdisjoint({cluster.pid_of(target) for target in targets(cluster)})
    assert f"process {front.pid}, whose cluster this was" in (cluster.logs / "guard.log").read_text()


def test_nothing_of_a_killed_up_runs_on(make_cluster: Callable[..., LocalCluster]) -> None:
    cluster = make_cluster(up=False, brokers=2, zookeeper=None)
    with running("up", "--dir", cluster.directory) as front:
        assert front.stderr is not None
        until(lambda: front.stderr.readline().startswith("Ctrl-C takes the cluster down"))
        assert states(cluster) == {ProcessState.UP}
        front.kill()
        until(lambda: processes_of_directory(cluster.directory) == {})
    until(lambda: guards(cluster.directory) == [])
    assert (cluster.directory / "broker-0" / "data").is_dir(), "its data stay"


def test_an_up_in_front_whose_output_is_closed_takes_its_cluster_down(
    make_cluster: Callable[..., LocalCluster],
) -> None:
    cluster = make_cluster(up=False, brokers=2, zookeeper=None)
    with running("up", "--dir", cluster.directory) as front:
        assert front.stdout is not None
        front.stdout.close()
        assert front.wait(300) == 0
        assert states(cluster) == {ProcessState.DOWN}


def test_nothing_of_a_killed_scenario_stays(tmp_path: Path) -> None:
    """Neither a paused client, nor the temporary directory, whose name nothing has said."""
    (tmp_path / "temporary").mkdir()
    (tmp_path / "story.yaml").write_text(PAUSED_CLIENT)
    arguments = ("scenario", "run", "--verbose", tmp_path / "story.yaml")
    with running(*arguments, temporary=tmp_path / "temporary") as run:
        assert run.stdout is not None
        assert any("Wait until there is no leader" in line for line in run.stdout)
        commands = processes_of_directory(tmp_path / "temporary").values()
        for part in ("producer_process", "server.verb --config", "zoo.cfg", MODULE):
            assert any(part in command for command in commands), commands
        run.kill()
        until(lambda: processes_of_directory(tmp_path / "temporary") == {})
    assert list((tmp_path / "temporary").glob("tidegauge-scenario-*/")) == []


def test_nothing_of_a_story_stays_when_its_page_is_killed(tmp_path: Path) -> None:
    pytest.importorskip("starlette")
    (tmp_path / "temporary").mkdir()
    (tmp_path / "story.yaml").write_text(PAUSED_CLIENT)
    arguments = ("watch", "--port", "0", "-o", "json", "--scenario", tmp_path / "story.yaml")
    with running(*arguments, temporary=tmp_path / "temporary") as page:
        until(lambda: list((tmp_path / "temporary").rglob("broker.pid")))
        page.kill()
        until(lambda: processes_of_directory(tmp_path / "temporary") == {})
    assert list((tmp_path / "temporary").glob("tidegauge-scenario-*/")) == []
