"""However a session of pytest with the plugin ends, its clusters end too (plugin.py, guard.py)."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.integration.conftest import processes_of_directory
from tests.integration.pytest_sessions import begin, end

from tidegauge_lab.local.processes import look_up
from tidegauge_lab.local.waiting import holds_within

pytestmark = [pytest.mark.integration, pytest.mark.timeout(1200)]

LIMIT_SECONDS = 150
"""Of a wait: a worker of execnet whose controller is dead tries for some seconds to end in order."""
SEEN = """
    import os, pathlib, signal, threading, warnings

    def note(cluster, *others):
        "The pids that are to end with the session, in a file that is complete or not there."
        targets = [*cluster.brokers, *(["zookeeper"] if cluster.local.file.zookeeper_managed else [])]
        pids = [os.getpid(), *others, *map(cluster.local.pid_of, targets)]
        unfinished = pathlib.Path(f"unfinished-{os.getpid()}")
        unfinished.write_text(" ".join(map(str, pids)))
        unfinished.rename(f"pids-{os.getpid()}")
"""


class Session:
    """A session that runs until something ends it."""

    def __init__(self, directory: Path, tests: str, *options: str) -> None:
        self.directory = directory
        self.running = begin(directory, SEEN + tests, *options)

    def pids(self, notes: int) -> list[list[int]]:
        """Wait until so many test processes have noted their pids; the first of each is the test process's."""

        def noted() -> list[Path]:
            assert self.running.poll() is None or list(self.directory.glob("pids-*")), end(self.running)[1]
            return sorted(self.directory.glob("pids-*"))

        assert holds_within(lambda: len(noted()) >= notes, LIMIT_SECONDS), end(self.running)[1]
        return [[int(word) for word in path.read_text().split()] for path in noted()]

    def require_nothing_left(self, pids: list[int]) -> None:
        """Wait until all of these, and whatever else was started for the session, have ended."""
        assert holds_within(lambda: not [pid for pid in pids if lives(pid)], LIMIT_SECONDS), self.left(pids)
        assert holds_within(lambda: not processes_of_directory(self.directory), LIMIT_SECONDS), self.left(pids)

    def left(self, pids: list[int]) -> str:
        logs = [path.read_text() for path in self.directory.rglob("guard.log")]
        return f"{[pid for pid in pids if lives(pid)]} {processes_of_directory(self.directory)} {logs}"


def lives(pid: int) -> bool:
    facts = look_up(pid)
    return facts is not None and not facts.gone


@pytest.fixture
def session(tmp_path: Path) -> Iterator[Callable[..., Session]]:
    made: list[Session] = []

    def make(tests: str, *options: str) -> Session:
        made.append(Session(tmp_path / "project", tests, *options))
        return made[-1]

    yield make
    for one in made:
        if one.running.poll() is None:
            os.killpg(one.running.pid, signal.SIGKILL)
        one.running.communicate()


ENDS: dict[str, Callable[[subprocess.Popen[str]], None]] = {
    "SIGTERM to the controller": lambda running: running.terminate(),
    "SIGTERM to all, as by timeout": lambda running: os.killpg(running.pid, signal.SIGTERM),
    "Ctrl-C": lambda running: os.killpg(running.pid, signal.SIGINT),
    "SIGKILL of the controller": lambda running: running.kill(),
    "SIGKILL of all": lambda running: os.killpg(running.pid, signal.SIGKILL),
}
LONG = {"SIGTERM to the controller", "SIGTERM to all, as by timeout", "Ctrl-C", "SIGKILL of the controller"}
"""Workers end in them as in the others."""


@pytest.mark.parametrize(
    "send", [pytest.param(send, id=name, marks=[pytest.mark.long] * (name in LONG)) for name, send in ENDS.items()]
)
def test_nothing_of_the_workers_of_xdist_runs_on(zookeeper: str, session, send) -> None:
    """Each worker is in the middle of a test, with a broker that is paused; the second's can't be interrupted, as
    one that waits in a library written in C, so that xdist ends the worker by SIGKILL or ``os._exit``."""
    tests = """
    def test_that_is_broken_off(tidegauge_cluster, worker_id):
        tidegauge_cluster.pause(0)
        if worker_id == "gw1":
            signal.signal(signal.SIGINT, signal.SIG_IGN)
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
        note(tidegauge_cluster)
        threading.Event().wait(300)
    """
    options = ("--tidegauge-brokers", "1", "--tidegauge-zookeeper", zookeeper)
    made = session(tests, "-n", "2", "--dist", "each", *options)
    pids = [pid for noted in made.pids(2) for pid in noted]
    assert len(pids) == 4, "two workers, two brokers"
    send(made.running)
    made.require_nothing_left(pids)


def test_a_worker_that_is_killed_leaves_nothing_while_the_session_goes_on(zookeeper: str, session) -> None:
    tests = """
    def test_that_is_broken_off(tidegauge_cluster):
        note(tidegauge_cluster)
        os.kill(os.getpid(), signal.SIGKILL)

    def test_of_another_worker(tidegauge_cluster):
        note(tidegauge_cluster)
    """
    made = session(tests, "-n", "1", "--tidegauge-brokers", "1", "--tidegauge-zookeeper", zookeeper)
    outcomes, printed = end(made.running)
    assert outcomes == {"test_that_is_broken_off": "failed", "test_of_another_worker": "passed"}, printed
    pids = made.pids(2)
    assert len(pids) == 2, printed
    made.require_nothing_left([pid for noted in pids for pid in noted])


def test_a_killed_session_leaves_no_process_but_its_logs(session, tmp_path: Path) -> None:
    """Without xdist, with ZooKeeper and a broker paused, with a process that the test has forked and that lives on, and
    without the pid files of one broker and ZooKeeper: the session was killed before it noted them."""
    tests = """
    def test_that_is_broken_off(tidegauge_cluster):
        tidegauge_cluster.pause(0, "zookeeper")
        with warnings.catch_warnings(action="ignore"):  # of a process with threads, which the child does not use
            forked = os.fork()
        if forked == 0:
            signal.pause()
        pathlib.Path("forked").write_text(str(forked))
        note(tidegauge_cluster)
        for name in ("broker-1/broker.pid", "zookeeper/zookeeper.pid"):
            (tidegauge_cluster.directory / name).unlink()
        os.kill(os.getpid(), signal.SIGKILL)
    """
    made = session(tests, "--tidegauge-brokers", "2", "--tidegauge-set", "default.replication.factor=1")
    [pids] = made.pids(1)
    assert made.running.wait(LIMIT_SECONDS) == -signal.SIGKILL
    forked = int((made.directory / "forked").read_text())
    try:
        assert holds_within(lambda: not [pid for pid in pids if lives(pid)], LIMIT_SECONDS), made.left(pids)
        assert lives(forked), "or it was no test of the pipe's copy"
    finally:
        os.kill(forked, signal.SIGKILL)
    made.require_nothing_left(pids)
    [cluster] = [path.parent for path in made.directory.rglob("cluster.json")]
    assert (cluster / "broker-0" / "data").is_dir(), "data stay for a look"
    words = (cluster / "logs" / "guard.log").read_text()
    assert f"process {pids[0]}, whose cluster this was, did not take it down" in words
    assert ", known by their command lines\n" in words, "those that had no pid file"


def test_a_guard_ends_with_the_session_that_takes_its_cluster_down(zookeeper: str, session) -> None:
    tests = """
    def test_that_passes(tidegauge_cluster):
        note(tidegauge_cluster, tidegauge_cluster._guard.pid)
    """
    made = session(tests, "--tidegauge-brokers", "1", "--tidegauge-zookeeper", zookeeper)
    outcomes, printed = end(made.running)
    assert outcomes == {"test_that_passes": "passed"}, printed
    [pids] = made.pids(1)
    assert [pid for pid in pids if lives(pid)] == [], "it has ended when the session ends"
    assert not list(made.directory.rglob("guard.log"))
