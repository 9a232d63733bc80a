"""The matrix of faults and workloads of Kafka clients (docs/chaos.md): after each fault each history is clean.

Copiers from consume to produce (KIP-447), of librdkafka, Java and franz-go in groups, and a group whose members commit
outside of transactions. All are at work through all faults; after each one they copy what was written, and the
accountant judges the histories with the topics.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

pytest.importorskip("confluent_kafka", reason="pip install -e '.[dev]' brings it")

from tests.clients.programs import Unavailable
from tests.integration.chaos import DAMAGE, Chaos, with_two_directories
from tests.integration.chaos_coordinators import ALL_FAULTS
from tests.integration.chaos_kafka import MEMBERS, SETTINGS, WORKLOADS, KafkaLoad, prepare

from tidegauge_lab.local.cluster import LocalCluster

pytestmark = [pytest.mark.integration, pytest.mark.long, pytest.mark.timeout(1200)]
NAMES = [name for name in ALL_FAULTS if name != DAMAGE]
"""A damaged batch is no fault for Kafka clients: they end where they meet it."""


@pytest.fixture(scope="module")
def three_brokers(
    tmp_path_factory: pytest.TempPathFactory, next_base_port: Callable[[], int]
) -> Iterator[LocalCluster]:
    directory = tmp_path_factory.mktemp("chaos") / "cluster"
    cluster = with_two_directories(LocalCluster.create(directory, 3, base_port=next_base_port(), settings=SETTINGS))
    cluster.up()
    yield cluster
    cluster.down()


def shown(name: str) -> str:
    """Return a fault's name as a part of a test's."""
    return name.replace(" ", "-").replace(",", "").replace("'", "")


def happen(chaos: Chaos, load: KafkaLoad, name: str) -> None:
    """Let a fault happen while sources are written; return when everything is copied."""
    load.revive()
    with load.writing():
        chaos.one_fault(name)
        load.wait_for_more()
    load.settle()


def chaos_of(load: KafkaLoad, cluster: LocalCluster) -> Chaos:
    return Chaos(
        cluster,
        load.topics,
        seed=len(NAMES),
        client_dies=load.kill_one,
        faults=ALL_FAULTS,
        coordinated=load.coordinated,
        client_pauses=load.pause_one,
    )


@pytest.fixture(scope="module")
def load(three_brokers: LocalCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaLoad]:
    """All workloads, at work until the last fault has happened."""
    try:
        prepare()
    except Unavailable as problem:
        pytest.skip(f"a client can't be had here: {problem}")
    load = KafkaLoad(three_brokers, tmp_path_factory.mktemp("load"), "matrix")
    with load.at_work():
        yield load


@pytest.fixture(scope="module", params=NAMES, ids=shown)
def after_fault(request: pytest.FixtureRequest, load: KafkaLoad, three_brokers: LocalCluster) -> KafkaLoad:
    """All workloads after one more fault."""
    happen(chaos_of(load, three_brokers), load, request.param)
    return load


@pytest.mark.parametrize("workload", [*WORKLOADS, MEMBERS])
def test_the_history_is_clean(after_fault: KafkaLoad, workload: str) -> None:
    assert after_fault.wrong(workload) == {}
