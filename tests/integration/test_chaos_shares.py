"""The matrix of faults under a share group (docs/chaos.md): after each fault the history of its members is clean.

Java's share consumers take, accept, release and reject records of a topic that is written all along. After each fault
all records are given and done, no guarantee of share groups is broken, and no member has ended by a fatal error.
``make chaos KRAFT=1`` runs it in pieces and keeps the results.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

pytest.importorskip("confluent_kafka", reason="pip install -e '.[dev]' brings it")

from confluent_kafka.admin import AdminClient, NewTopic
from tests.chaos_runs import known_runs, times_run
from tests.clients.programs import KAFKA_4, Unavailable, java_program_of
from tests.integration.chaos import Chaos, with_two_directories
from tests.integration.chaos_shares import ALL_FAULTS, COORDINATED, WORKLOAD, SharesLoad
from tests.integration.share_books import AT, LIMIT_SECONDS
from tests.modes import IS_KRAFT

from tidegauge_lab.local.cluster import LocalCluster

pytestmark = [
    pytest.mark.integration,
    pytest.mark.timeout(1200),
    pytest.mark.skipif(not IS_KRAFT, reason="faults of KRaft mode: TIDEGAUGE_TEST_MODE=kraft, or make chaos KRAFT=1"),
]
NAMES = list(ALL_FAULTS)
FAULTS_OF_A_STAGE = 8
SAMPLE = "kill the share coordinator"


class Stage:
    """A cluster with a share group at work, which lasts for some faults, or until one of them fails.

    Args:
        directory: makes a directory by a name.
        base_port: gives free ports.
    """

    def __init__(self, directory: Callable[[str], Path], base_port: Callable[[], int]) -> None:
        self._directory, self._base_port = directory, base_port
        self._stack = contextlib.ExitStack()
        self._now: tuple[LocalCluster, SharesLoad] | None = None
        self._left = FAULTS_OF_A_STAGE

    def _current(self) -> tuple[LocalCluster, SharesLoad]:
        if self._left == 0:
            self.end()
        self._left -= 1
        if self._now is None:
            where = self._directory("chaos-shares") / "cluster"
            cluster = LocalCluster.create(where, 3, base_port=self._base_port(), mode="kraft")
            self._stack.callback(cluster.down, grace_seconds=0)
            with_two_directories(cluster).up()
            client = AdminClient({"bootstrap.servers": ",".join(cluster.kafka_bootstrap_servers)})
            for future in client.create_topics([NewTopic(AT.topic, 1, 3)]).values():
                future.result(LIMIT_SECONDS)
            load = SharesLoad(cluster, self._directory("load"))
            self._stack.enter_context(load.at_work())
            self._now = cluster, load
        return self._now

    def happen(self, name: str, seed: int) -> None:
        """Let a fault happen while records are written; return when all of them are done."""
        try:
            cluster, load = self._current()
            chaos = Chaos(
                cluster,
                [AT.topic],
                seed,
                client_dies=load.kill_one,
                faults=ALL_FAULTS,
                coordinated=COORDINATED,
                client_pauses=load.pause_one,
            )
            load.write()
            load.settle()  # so that the coordinators are there
            with load.writing():
                chaos.one_fault(name)
            load.settle()
        except BaseException:
            self._left = 0
            raise

    def check(self) -> None:
        """Judge the history of the members."""
        assert self._now is not None
        wrong = self._now[1].wrong()
        if wrong:
            self._left = 0
            print(f"kept: {self._now[1].books.path}")
        assert wrong == {}

    def end(self) -> None:
        """End the members and the cluster."""
        self._now, self._left = None, FAULTS_OF_A_STAGE
        self._stack.close()


def shown(name: str) -> str:
    """Return a fault's name as a part of a test's."""
    return name.replace(" ", "-").replace(",", "").replace("'", "")


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory, next_base_port: Callable[[], int]) -> Iterator[Stage]:
    try:
        java_program_of(KAFKA_4, "ShareMember")
    except Unavailable as problem:
        pytest.skip(f"a client can't be had here: {problem}")
    made = Stage(tmp_path_factory.mktemp, next_base_port)
    try:
        yield made
    finally:
        made.end()


@pytest.fixture(scope="module", params=NAMES, ids=shown)
def after_fault(request: pytest.FixtureRequest, stage: Stage) -> Stage:
    """The share group after one more fault, which lasts for another time if it has been run before."""
    before = times_run(request.param, known_runs())
    stage.happen(request.param, seed=NAMES.index(request.param) + before * len(NAMES))
    return stage


@pytest.mark.long
@pytest.mark.parametrize("workload", [WORKLOAD])
def test_the_history_is_clean(after_fault: Stage, workload: str) -> None:
    assert workload == WORKLOAD
    after_fault.check()


@pytest.mark.long
def test_after_a_dead_share_coordinator_the_history_is_clean(stage: Stage) -> None:
    stage.happen(SAMPLE, seed=NAMES.index(SAMPLE))
    stage.check()
