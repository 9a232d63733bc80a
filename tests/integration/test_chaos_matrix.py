"""The matrix of faults and workloads (docs/chaos.md): after each fault the books of each workload balance.

All workloads are at work on topics of their own while the fault happens; each has its verdict. Among the faults are
power losses, partitions in one direction, partitions from ZooKeeper alone, and a client on the zombie leader's side.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from tests.integration.chaos import FAULTS, Chaos, with_two_directories
from tests.integration.chaos_load import WORKLOADS, Load
from tests.integration.conftest import own_metadata

from tidegauge_lab.local.cluster import LocalCluster

pytestmark = [pytest.mark.integration, pytest.mark.timeout(1200)]

PEERS_CASES = 133
SAMPLE = {"power cut of the leader"}
"""In every run of the tests: unflushed records are lost. A zombie leader is in test_lab_faults.py."""


def test_there_are_more_cases_than_peers_have() -> None:
    assert FAULTS.keys() > SAMPLE
    assert len(FAULTS) * len(WORKLOADS) > PEERS_CASES


@pytest.fixture(scope="module")
def three_brokers(
    tmp_path_factory: pytest.TempPathFactory, next_base_port: Callable[[], int]
) -> Iterator[LocalCluster]:
    directory = tmp_path_factory.mktemp("chaos") / "cluster"
    # A small budget: the load's clients that read nothing reach it.
    settings = {"queued.max.response.bytes": "2097152"}
    cluster = with_two_directories(
        LocalCluster.create(directory, 3, base_port=next_base_port(), settings=settings, **own_metadata())
    )
    cluster.up()
    yield cluster
    cluster.down()


@pytest.fixture(
    scope="module",
    params=[name if name in SAMPLE else pytest.param(name, marks=pytest.mark.long) for name in FAULTS],
    ids=lambda name: name.replace(" ", "-").replace(",", "").replace("'", ""),
)
def load(request: pytest.FixtureRequest, three_brokers: LocalCluster, tmp_path_factory: pytest.TempPathFactory) -> Load:
    """All workloads, and the fault in their middle."""
    at = list(FAULTS).index(request.param)
    load = Load(three_brokers, tmp_path_factory.mktemp("load"), f"fault-{at}")
    with load:
        chaos = Chaos(three_brokers, list(load.topics.values()), seed=at, client_dies=load.kill_client)
        chaos.one_fault(request.param)
        load.wait_for_more()
    return load


@pytest.mark.parametrize("workload", WORKLOADS)
def test_the_books_balance(load: Load, workload: str) -> None:
    report, _ = load.verdict(workload)
    (account,) = report.accounts.values()
    assert account.acknowledged > 0
    assert load.wrong(workload) == {}
