"""Debezium's stores in Kafka: the history of a database's schema, and a connector's offsets.

The rule: all that either store has acknowledged is there for a new instance of it, though leaders died meanwhile; a
schema that came back incomplete would end a connector for good.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.clients.applications import DEBEZIUM, debezium_stores
from tests.clients.programs import Unavailable
from tests.clients.runs import Child
from tests.integration.failing_brokers import LIMIT_SECONDS, FailingBrokers
from tests.waiting import until

from tidegauge_lab.local.cluster import LocalCluster

pytestmark = [pytest.mark.integration, pytest.mark.long, pytest.mark.timeout(600)]


@pytest.fixture(params=["zookeeper", "kraft"])
def stores_cluster(request: pytest.FixtureRequest, record_property: Callable[[str, object], None]) -> LocalCluster:
    """A cluster of either mode."""
    record_property("mode", request.param)
    found: LocalCluster = request.getfixturevalue("cluster" if request.param == "zookeeper" else "kraft_cluster")
    return found


@contextlib.contextmanager
def stores(cluster: LocalCluster, name: str, directory: Path) -> Iterator[Child]:
    """Debezium's program with this name of its stores."""
    try:
        command = debezium_stores()
    except Unavailable as problem:
        pytest.skip(f"Debezium can't be had here: {problem}")
    child = Child([*command, ",".join(cluster.kafka_bootstrap_servers), name], {}, directory / f"{name}.log")
    try:
        yield child
    finally:
        child.kill()


@pytest.mark.kafka_client("stores of schema history and of offsets, through a killed leader of each")
def test_what_was_stored_is_recovered_through_failovers(
    stores_cluster: LocalCluster, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    record_property("client", "Java: Debezium's stores")
    record_property("version", DEBEZIUM)
    topics = ["debezium-history", "debezium-offsets"]
    brokers = FailingBrokers(stores_cluster, topics[:1])
    with contextlib.closing(brokers), stores(stores_cluster, "debezium", tmp_path) as child:
        stored = 0

        def store() -> None:
            nonlocal stored
            stored += 1
            child.write([str(stored)])
            until(lambda: f"stored {stored}" in child.lines(), LIMIT_SECONDS, "both stores have it")

        store()
        for topic in topics:
            with brokers.killed(brokers.leader_of(topic)):
                store()
        store()
        assert child.end()[-1] == f"recovered {stored} {stored}"


def test_a_history_that_is_missing_is_made_as_the_brokers_say(stores_cluster: LocalCluster, tmp_path: Path) -> None:
    """KafkaSchemaHistory.initializeStorage: DescribeConfigs of a broker gives the topic's replication factor."""
    with stores(stores_cluster, "debezium-new", tmp_path) as child:
        child.write(["1"])
        assert child.end()[-1] == "recovered 1 1"
