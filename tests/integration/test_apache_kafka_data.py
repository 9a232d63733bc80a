"""Data both ways: Apache Kafka starts on what Tidegauge left, and Tidegauge on what Kafka left (docs/interchange.md).

The promise: nodes of either kind start on the directories, and on the ZooKeeper, that nodes of the other kind left,
stopped cleanly or killed; they elect, serve every record that was there, and go on writing. Clients that live through
the swap notice an outage and nothing else: idempotent producers, a transaction that was left open, a group's offsets.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from tests.integration.conftest import MakeCluster

from tidegauge_lab.local import layout

pytest.importorskip("confluent_kafka", reason="pip install -e '.[dev]' brings it")

from tests.integration.apache_kafka import Unavailable
from tests.integration.quorum_nodes import kafka_classpath
from tests.integration.swap_clients import COMPACTED, Log
from tests.integration.swap_traffic import Traffic
from tests.integration.swapped_clusters import OFTEN, Swapped, SwappedKraft

pytestmark = [pytest.mark.integration, pytest.mark.long, pytest.mark.timeout(3000)]
TURNS = 5
LIMIT_SECONDS = 150.0
SETTINGS = OFTEN | {
    "zookeeper.session.timeout.ms": "12000",
    "auto.leader.rebalance.enable": "false",
    "offsets.topic.segment.bytes": "20000",
    "transaction.state.log.segment.bytes": "20000",
}


@pytest.fixture(params=["zookeeper", "kraft"])
def swapped(
    request: pytest.FixtureRequest, next_base_port: Callable[[], int], tmp_path: Path
) -> Iterator[Swapped | SwappedKraft]:
    if request.param == "kraft":
        (tmp_path / "kraft").mkdir()
        of_kraft = SwappedKraft(tmp_path / "kraft", kafka_classpath())
        with of_kraft.cluster:
            yield of_kraft
        return
    make_cluster: MakeCluster = request.getfixturevalue("make_cluster")
    cluster = make_cluster(up=False, settings=SETTINGS, kafka_port=next_base_port())
    for broker in cluster.file.brokers:
        (layout.broker_data(cluster.directory, broker.id).parent / "data-2").mkdir()
    try:
        made = Swapped(cluster, tmp_path / "kafka")
    except Unavailable as problem:
        pytest.skip(f"Apache Kafka can't be had here: {problem}")
    cluster.up(LIMIT_SECONDS)
    yield made
    made.kafka.kill()


def differences(before: Log, after: Log, starts: Mapping[tuple[str, int], int]) -> list[str]:
    """Return how the records that were read before differ now.

    Deleted ones may be missing, and those that the cleaner may remove as their key was written again.
    """
    found = []
    for at, records in before.items():
        now = after[at]
        last = {record.key: offset for offset, record in now.items()}
        for offset, record in records.items():
            may_be_missing = offset < starts[at] or (at[0] == COMPACTED and last.get(record.key, -1) > offset)
            if offset not in now and not may_be_missing:
                found.append(f"{at} {offset}: {record} is missing")
            elif offset in now and now[offset] != record:
                found.append(f"{at} {offset}: {record} is {now[offset]}")
    return found


@pytest.mark.parametrize("clean", [True, False], ids=["stopped", "killed"])
def test_each_starts_on_what_the_other_left(swapped: Swapped | SwappedKraft, tmp_path: Path, clean: bool) -> None:
    """Five times in turn, with everything that lies in directories, and in ZooKeeper or the metadata log."""
    traffic = Traffic(swapped.servers, tmp_path, swapped.segments)
    read = 0
    for swap in range(2 * TURNS):
        traffic.administer(swap)
        traffic.write(60)
        traffic.transactions()
        traffic.goes_on()
        member = traffic.joined(swap)
        shown, kept = traffic.shown(member.group), swapped.kept()
        assert shown["members"] == {member.group: ("STABLE", [member.id])}
        before = traffic.read(committed=False)
        traffic.leave_open()
        with traffic.writing():
            swapped.end(clean=clean)
        swapped.start_other()
        traffic.wait_in_sync()
        assert traffic.shown(member.group) == shown
        member.close()
        before_and_now: Any = (kept, swapped.kept())
        assert before_and_now[0].problems(before_and_now[1]) == []
        traffic.end_open(commit=swap % 2 == 0)
        traffic.write(1)
        after = traffic.read(committed=False)
        read += sum(map(len, after.values()))
        assert differences(before, after, shown["starts"]) == []
        traffic.check(after, traffic.read(committed=True))
        swapped.judge(traffic.history)
    print(f"{read} records read and compared")
