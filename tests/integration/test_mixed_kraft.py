"""One cluster with Apache Kafka 4.3.1 in KRaft mode: controllers and brokers of each kind, in each role, under load.

The judges are Kafka's nodes, which end or complain where a record or a response does not fit, and the accountant.
Needs Maven, or the jars that it brought before; if they can't be had, the tests say so and are skipped.
"""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

pytest.importorskip("confluent_kafka", reason="pip install -e '.[dev]' brings it")

from tests.integration import mixed_acts as acts
from tests.integration.mixed_kraft import KINDS, MixedKraft
from tests.integration.mixed_load import Load
from tests.integration.quorum_nodes import KAFKA, OURS, kafka_classpath

pytestmark = [pytest.mark.integration, pytest.mark.timeout(2400)]
CELLS = [pytest.param(*one, id="-".join(one)) for one in itertools.product(KINDS, KINDS)]


@pytest.fixture(scope="module")
def classpath() -> str:
    """The class path of Kafka 4.3.1; skips without Maven."""
    return kafka_classpath()


@pytest.mark.long
@pytest.mark.parametrize(("controllers", "brokers"), CELLS)
def test_each_kind_in_each_role(controllers: str, brokers: str, classpath: str, tmp_path: Path) -> None:
    """Nothing is lost, and Kafka's nodes complain of nothing, through every act of ``mixed_acts``."""
    with MixedKraft(tmp_path, KINDS[controllers], KINDS[brokers], classpath, acts.LOW) as cell:
        acts.create_topics(cell)
        with Load(cell.servers, tmp_path) as load:
            load.write()
            acts.upgrade(cell, load)
            acts.consume(cell, load)
            acts.returned(cell, load)
            acts.brokers_are_killed(cell, load)
            acts.brokers_are_paused(cell, load)
            acts.brokers_are_stopped(cell, load)
            acts.controllers_are_lost(cell, load)
            acts.partitions_are_moved(cell, load)
            print(f"{controllers} controllers, {brokers} brokers: {load.finish()}")
        acts.an_unclean_leader_is_elected(cell)
        acts.eligible_replicas_lead(cell)
        cell.check_judges()


def test_a_broker_and_a_controller_of_each_kind_are_killed(classpath: str, tmp_path: Path) -> None:
    """The mixed cell in short: the load goes on, and nothing is lost."""
    with MixedKraft(tmp_path, (OURS, KAFKA, OURS), (OURS, KAFKA, OURS), classpath) as cell:
        acts.create_topics(cell)
        with Load(cell.servers, tmp_path) as load:
            load.write()
            acts.consume(cell, load)
            acts.returned(cell, load)
            acts.brokers_are_killed(cell, load)
            load.finish()
        cell.check_judges()
