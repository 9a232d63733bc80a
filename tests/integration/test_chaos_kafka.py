"""The matrix of faults and workloads of Kafka clients (docs/chaos.md): after each fault each history is clean.

Copiers from consume to produce (KIP-447), of librdkafka, Java and franz-go in groups, and a group whose members commit
outside of transactions. All are at work through all faults; after each one they copy the written records, and the
accountant judges the histories with the topics. ``make chaos`` runs it in pieces and keeps the results.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

pytest.importorskip("confluent_kafka", reason="pip install -e '.[dev]' brings it")

from tests.chaos_runs import known_runs, times_run
from tests.clients.programs import Unavailable
from tests.integration.chaos import BROKERS, DAMAGE, Chaos, with_two_directories
from tests.integration.chaos_coordinators import ALL_FAULTS, LATE_COMMITS
from tests.integration.chaos_kafka import LIBRDKAFKA, MEMBERS, SETTINGS, WORKLOADS, KafkaLoad, Workload, prepare
from tests.integration.conftest import own_metadata

from tidegauge_lab.local.cluster import LocalCluster

pytestmark = [pytest.mark.integration, pytest.mark.timeout(1200)]
NAMES = [name for name in ALL_FAULTS if name != DAMAGE]
"""A damaged batch is no fault for Kafka clients: they end when they meet it."""
SAMPLE = ["kill the transaction's coordinator", "pause the group's coordinator"]
"""In every run of the tests, with librdkafka's copiers and members: each coordinator is lost once."""


FAULTS_OF_A_STAGE = 8


class Stage:
    """A cluster with all workloads at work, which lasts for some faults, or until a case fails on it.

    Histories are judged from their beginning: each verdict takes longer than the one before, and after a failure no
    case could pass. The directories of a stage stay.

    Args:
        directory: makes a directory by a name.
        base_port: gives free ports.
        workloads: the copiers.
    """

    def __init__(
        self, directory: Callable[[str], Path], base_port: Callable[[], int], workloads: Mapping[str, Workload]
    ) -> None:
        self._directory, self._base_port, self._workloads = directory, base_port, workloads
        self._stack = contextlib.ExitStack()
        self._now: tuple[LocalCluster, KafkaLoad] | None = None
        self._has_failed = False
        self._faults: list[str] = []

    def now(self) -> tuple[LocalCluster, KafkaLoad]:
        """Return the cluster and its load for one more fault."""
        if self._has_failed or len(self._faults) >= FAULTS_OF_A_STAGE:
            self.end()
        if self._now is None:
            where = self._directory("chaos") / "cluster"
            cluster = LocalCluster.create(where, 3, base_port=self._base_port(), settings=SETTINGS, **own_metadata())
            self._stack.callback(cluster.down)
            with_two_directories(cluster).up()
            load = KafkaLoad(cluster, self._directory("load"), "matrix", self._workloads)
            self._stack.enter_context(load.at_work())
            self._now = cluster, load
        return self._now

    def happen(self, name: str, seed: int) -> None:
        """Let a fault happen while sources are written; return when everything is copied."""
        with self._noting_a_failure():
            cluster, load = self.now()
            self._faults.append(name)
            chaos = Chaos(
                cluster,
                load.topics,
                seed,
                client_dies=load.kill_one,
                faults=ALL_FAULTS,
                coordinated=load.coordinated,
                client_pauses=load.pause_one,
            )
            load.revive()
            with load.writing():
                chaos.one_fault(name)
                load.wait_for_more()
            load.settle()

    def check(self, workload: str) -> None:
        """Judge a workload's history."""
        assert self._now is not None
        with self._noting_a_failure():
            late_commits = self._faults.count(LATE_COMMITS) * len(BROKERS)
            assert self._now[1].wrong(workload, late_commits) == {}

    @contextlib.contextmanager
    def _noting_a_failure(self) -> Iterator[None]:
        try:
            yield
        except BaseException:
            self._has_failed = True
            print(f"kept: {self._now and self._now[0].directory}")
            raise

    def end(self) -> None:
        """Kill the clients and stop the cluster."""
        self._now, self._has_failed, self._faults = None, False, []
        self._stack.close()


def shown(name: str) -> str:
    """Return a fault's name as a part of a test's."""
    return name.replace(" ", "-").replace(",", "").replace("'", "")


@contextlib.contextmanager
def staged(
    tmp_path_factory: pytest.TempPathFactory, base_port: Callable[[], int], workloads: Mapping[str, Workload]
) -> Iterator[Stage]:
    try:
        prepare(workloads)
    except Unavailable as problem:
        pytest.skip(f"a client can't be had here: {problem}")
    stage = Stage(tmp_path_factory.mktemp, base_port, workloads)
    try:
        yield stage
    finally:
        stage.end()


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory, next_base_port: Callable[[], int]) -> Iterator[Stage]:
    """All workloads."""
    with staged(tmp_path_factory, next_base_port, WORKLOADS) as made:
        yield made


@pytest.fixture(scope="module", params=NAMES, ids=shown)
def after_fault(request: pytest.FixtureRequest, stage: Stage) -> Stage:
    """All workloads after one more fault, which lasts for another time if it has been run before."""
    before = times_run(request.param, known_runs())
    stage.happen(request.param, seed=NAMES.index(request.param) + before * len(NAMES))
    return stage


@pytest.mark.long
@pytest.mark.parametrize("workload", [*WORKLOADS, MEMBERS])
def test_the_history_is_clean(after_fault: Stage, workload: str) -> None:
    after_fault.check(workload)


@pytest.fixture(scope="module")
def small_stage(tmp_path_factory: pytest.TempPathFactory, next_base_port: Callable[[], int]) -> Iterator[Stage]:
    """Workloads that need no other language."""
    with staged(tmp_path_factory, next_base_port, {LIBRDKAFKA: WORKLOADS[LIBRDKAFKA]}) as made:
        yield made


@pytest.mark.parametrize("fault", SAMPLE, ids=shown)
def test_after_a_coordinators_fault_the_histories_are_clean(small_stage: Stage, fault: str) -> None:
    small_stage.happen(fault, seed=NAMES.index(fault))
    for workload in (LIBRDKAFKA, MEMBERS):
        small_stage.check(workload)
