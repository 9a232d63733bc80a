"""Java's consumers of Kafka 4.3.1 in KRaft mode: a group goes over to the consumer protocol while it reads (KIP-848).

Members of both protocols share it through a killed coordinator; Kafka's own tool prints it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.clients.programs import KAFKA_4, Unavailable, kafka_jars
from tests.integration.group_readers import GROUP, LIMIT_SECONDS, PARTITIONS, Readers, three_brokers

from tidegauge_lab.local.cluster import LocalCluster

pytestmark = [pytest.mark.integration, pytest.mark.long, pytest.mark.timeout(600)]


@pytest.fixture
def cluster(tmp_path: Path, next_base_port: Callable[[], int]) -> Iterator[LocalCluster]:
    """Three brokers in KRaft mode; group.version is 1, as a new cluster has it."""
    try:
        kafka_jars(KAFKA_4)
    except Unavailable as problem:
        pytest.skip(f"kafka-clients can't be had here: {problem}")
    with three_brokers(tmp_path / "cluster", next_base_port()) as made:
        yield made


def test_a_group_goes_over_to_the_consumer_protocol_through_a_killed_coordinator(
    cluster: LocalCluster, tmp_path: Path
) -> None:
    """Up and down while it reads (group.consumer.migration.policy=bidirectional)."""
    readers = Readers(cluster, tmp_path)
    try:
        readers.librdkafka("librdkafka")
        readers.java("java-classic", "classic")
        readers.wait_shared("librdkafka", "java-classic")
        readers.write()
        readers.wait_read()
        [listed] = readers.table("--list", "--type")
        assert (listed["GROUP"], listed["TYPE"]) == (GROUP, "Classic")

        readers.java("java-consumer", "consumer")
        readers.wait_shared("librdkafka", "java-classic", "java-consumer")
        readers.write()
        readers.wait_read()
        [listed] = readers.table("--list", "--type")
        assert (listed["GROUP"], listed["TYPE"]) == (GROUP, "Consumer")

        killed = readers.coordinator()
        cluster.kill(killed)
        readers.write()
        readers.wait_read()
        readers.wait_shared("librdkafka", "java-classic", "java-consumer")
        cluster.start(killed)
        cluster.wait_ready(LIMIT_SECONDS)

        rows = readers.table("--describe", "--group", GROUP)
        assert sorted(int(row["PARTITION"]) for row in rows) == list(range(PARTITIONS))
        assert {(row["CURRENT-OFFSET"], row["LAG"]) for row in rows} == {(str(readers.written), "0")}
        owners = {int(row["PARTITION"]): row["CLIENT-ID"] for row in rows}
        assert {owners[at] for at in readers.owned("java-consumer")} == {"java-consumer"}
        [state] = readers.table("--describe", "--state", "--group", GROUP)
        assert (state["STATE"], state["#MEMBERS"]) == ("Stable", "3")
        members = readers.table("--describe", "--members", "--group", GROUP)
        assert sum(int(row["#PARTITIONS"]) for row in members) == PARTITIONS

        readers.end("java-consumer")
        readers.wait_shared("librdkafka", "java-classic")
        readers.write()
        readers.wait_read()
        [listed] = readers.table("--list", "--type")
        assert (listed["GROUP"], listed["TYPE"]) == (GROUP, "Classic"), "the last member of the protocol has left"
        readers.end("librdkafka")
        readers.java("java-consumer-2", "consumer")
        readers.wait_shared("java-classic", "java-consumer-2")
        readers.end("java-classic")
        readers.wait_shared("java-consumer-2")
        readers.write()
        readers.wait_read()
    finally:
        for child in readers.children.values():
            child.kill()
