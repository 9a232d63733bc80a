"""A rolling swap: three Apache Kafka nodes become Tidegauge's one at a time, on the same ids and data, and back.

Java's VerifiableProducer (acks=all, idempotent), a VerifiableConsumer in a group and two transactional copiers are at
work meanwhile: nothing is lost, nothing is there twice, and a copy that is read committed has each record once.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from tests.integration.conftest import MakeMixed

pytest.importorskip("confluent_kafka", reason="pip install -e '.[dev]' brings it")

from tests.clients.programs import KAFKA_4
from tests.integration.administered import ROUND
from tests.integration.mixed_cluster import MixedCluster
from tests.integration.mixed_kraft import KINDS, MixedKraft
from tests.integration.quorum_nodes import kafka_classpath
from tests.integration.swap_programs import COPIED, COPIED_BY_KAFKAS, SOURCE, Programs

pytestmark = [pytest.mark.integration, pytest.mark.long, pytest.mark.timeout(2400)]
TOPICS = (SOURCE, COPIED, COPIED_BY_KAFKAS, "__consumer_offsets", "__transaction_state")


@pytest.fixture
def mixed(make_mixed: MakeMixed) -> MixedCluster:
    return make_mixed((0, 1, 2))


def creator(cluster: MixedCluster | MixedKraft) -> Callable[[str], None]:
    """Return what makes a topic of the programs."""
    return lambda topic: cluster.create_topic(topic, ROUND, **{"min.insync.replicas": "2"})


def swap(cluster: MixedCluster | MixedKraft, programs: Programs, ids: Sequence[int]) -> dict[str, int]:
    """Change the kind of nodes, one after the other, with progress between, and check everything; return the counts."""
    for node_id in ids:
        programs.wait_progress()
        begin = time.monotonic()
        cluster.change(node_id)
        for topic in TOPICS:
            cluster.wait_in_sync(topic)
        kind = "Apache Kafka's" if cluster.is_kafkas(node_id) else "Tidegauge's"
        print(f"node {node_id} is {kind} and in sync after {time.monotonic() - begin:.0f} s: {programs.counts()}")
    programs.wait_progress()
    counts = programs.check(programs.finish())
    print(f"through {len(ids)} swaps: {counts}")
    return counts


def test_brokers_are_swapped_one_at_a_time_and_back_under_load(mixed: MixedCluster, tmp_path: Path) -> None:
    """Each swap is a controlled shutdown and a start of the other kind; the next one follows when all are in sync."""
    with Programs(mixed.servers, tmp_path, creator(mixed)) as programs:
        counts = swap(mixed, programs, [*mixed.ids, *mixed.ids])
    assert mixed.unexpected() == []
    assert counts["records that the group was given again"] == 0


def test_controllers_and_brokers_are_swapped_one_at_a_time_and_back_under_load(tmp_path: Path) -> None:
    """KRaft mode: first the controllers, then the brokers; the group is of the consumer protocol (KIP-848)."""
    with MixedKraft(tmp_path, KINDS["kafka"], KINDS["kafka"], kafka_classpath()) as cluster:
        ids = [*(node.id for node in cluster.quorum.nodes), *cluster.ids]
        with Programs(cluster.servers, tmp_path, creator(cluster), KAFKA_4, "consumer") as programs:
            with cluster.acts.during("create", "__consumer_offsets", "__transaction_state"):
                programs.wait_progress()
            swap(cluster, programs, [*ids, *ids])
        cluster.check_judges()
