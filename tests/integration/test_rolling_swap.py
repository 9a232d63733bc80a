"""A rolling swap: three Apache Kafka brokers become Tidegauge's one at a time, on the same ids and data, and back.

Java's VerifiableProducer (acks=all, idempotent), a VerifiableConsumer in a group and two transactional copiers are at
work meanwhile: nothing is lost, nothing stands twice, and a copy that is read committed has each record once.
"""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from tests.integration.conftest import MakeMixed

pytest.importorskip("confluent_kafka", reason="pip install -e '.[dev]' brings it")

from tests.integration.mixed_cluster import ROUND, MixedCluster
from tests.integration.swap_programs import COPIED, COPIED_BY_KAFKAS, SOURCE, Programs

pytestmark = [pytest.mark.integration, pytest.mark.long, pytest.mark.timeout(2400)]
TOPICS = (SOURCE, COPIED, COPIED_BY_KAFKAS, "__consumer_offsets", "__transaction_state")


@pytest.fixture
def mixed(make_mixed: MakeMixed) -> MixedCluster:
    return make_mixed((0, 1, 2))


def test_brokers_are_swapped_one_at_a_time_and_back_under_load(mixed: MixedCluster, tmp_path: Path) -> None:
    """Each swap is a controlled shutdown and a start of the other kind; the next one follows when all are in sync."""

    def create(topic: str) -> None:
        mixed.create_topic(topic, ROUND, **{"min.insync.replicas": "2"})

    with Programs(mixed.servers, tmp_path, create) as programs:
        for broker_id in (*mixed.ids, *mixed.ids):
            programs.wait_progress()
            begin = time.monotonic()
            mixed.change(broker_id)
            for topic in TOPICS:
                mixed.wait_in_sync(topic)
            kind = "Apache Kafka's" if mixed.is_kafkas(broker_id) else "Tidegauge's"
            print(
                f"broker {broker_id} is {kind} and in sync after {time.monotonic() - begin:.0f} s: {programs.counts()}"
            )
        programs.wait_progress()
        counts = programs.check(programs.finish())
    print(f"through six swaps: {counts}")
    assert mixed.unexpected() == []
    assert counts["records that the group was given again"] == 0
