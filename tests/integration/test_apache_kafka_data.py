"""Data both ways: Apache Kafka starts on what Tidegauge left, and Tidegauge on what Kafka left (docs/interchange.md).

The promise: brokers of either kind start on the log directories and the ZooKeeper that brokers of the other kind left,
stopped cleanly or killed; they elect, serve every record that was there, and go on writing. Clients that live through
the swap notice an outage and nothing else: idempotent producers, a transaction that was left open, a group's offsets.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from tests.integration.conftest import MakeCluster
from tests.waiting import until
from tests.zookeeper_view import ZooKeeperView

from tidegauge_lab.local import layout
from tidegauge_lab.local.cluster import LocalCluster

pytest.importorskip("confluent_kafka", reason="pip install -e '.[dev]' brings it")

from tests.integration.apache_kafka import KafkaSide, Unavailable
from tests.integration.swap_clients import COMPACTED, PLAIN, TRANSFERS, Log
from tests.integration.swap_traffic import Traffic

pytestmark = [pytest.mark.integration, pytest.mark.long, pytest.mark.timeout(3000)]
TURNS = 5
LIMIT_SECONDS = 150.0
SETTINGS = {
    "zookeeper.session.timeout.ms": "12000",
    "auto.leader.rebalance.enable": "false",
    "offsets.topic.num.partitions": "3",
    "offsets.topic.segment.bytes": "20000",
    "transaction.state.log.num.partitions": "3",
    "transaction.state.log.segment.bytes": "20000",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "500",
    "log.cleaner.backoff.ms": "500",
    "log.initial.task.delay.ms": "500",
    "log.flush.start.offset.checkpoint.interval.ms": "1000",
    "replica.lag.time.max.ms": "10000",
}
OF_A_START = (
    "could not be established. Node may not be available",
    "was unsuccessful (kafka.controller.RequestSendThread)",
    "fails to send request (type: ",
    "failed to change state for partition",
    "but cannot become follower since the new leader",
    "Received UNKNOWN_TOPIC_ID from the leader",
    "Error in response for fetch request",
    "marked as failed (kafka.server.ReplicaFetcherThread)",
    "Non-monotonic update of high watermark",
    "The coordinator failed to write an epoch fence transition",
    "Rollback of ongoing transaction",
    "Number of insync replicas for partition __transaction_state",
    "Error processing append operation on partition __transaction_state",
)
"""What Kafka logs when three of its own start together too: peers are not up, no leaders yet, the ISR too small.

After they were killed, a follower's checkpoint of the high watermark may be newer than its leader's.
"""
TIDEGAUGE = str(Path(sys.executable).with_name("tidegauge"))


class Znodes(NamedTuple):
    """What stays in ZooKeeper through a swap, and what only rises.

    Attributes:
        kept: payloads of topics, settings, the cluster's id and the features, by path.
        rising: controller epoch, producer ids given out, and each partition's leader epoch, by path.
        left: znodes of requests and notifications that should have been dealt with.
    """

    kept: dict[str, bytes | None]
    rising: dict[str, int]
    left: list[str]

    @classmethod
    def of(cls, view: ZooKeeperView) -> Znodes:
        """Read them."""
        tree = {path: znode.data for path, znode in view.tree().items()}
        states = {path: json.loads(data or b"{}") for path, data in tree.items() if path.endswith("/state")}
        rising = {path: int(state["leader_epoch"]) for path, state in states.items()}
        rising["/controller_epoch"] = int(tree["/controller_epoch"] or b"0")
        rising["/latest_producer_id_block"] = int(json.loads(tree["/latest_producer_id_block"] or b"")["block_end"])
        kept = {
            path: data
            for path, data in tree.items()
            if re.fullmatch(
                r"/brokers/topics/[^/]+|/config/(topics|brokers|clients|users|ips)/.*|/cluster/id|/feature", path
            )
        }
        waiting = (
            r"/(admin/(delete_topics/.*|reassign_partitions|preferred_replica_election)|isr_change_notification/.*)"
        )
        return cls(kept, rising, [path for path in tree if re.fullmatch(waiting, path)])

    def problems(self, later: Znodes) -> list[str]:
        """Return what is not as it was, or has fallen."""
        found = [
            f"{path}: {data!r} is {later.kept.get(path)!r}"
            for path, data in self.kept.items()
            if later.kept.get(path) != data
        ]
        found += [f"{path} fell from {value}" for path, value in self.rising.items() if later.rising[path] < value]
        return [*found, *(f"{path} is left" for path in later.left)]


class Swapped:
    """A cluster whose brokers are Tidegauge's or Kafka's, by turns.

    Attributes:
        is_ours: whether Tidegauge's brokers run.
    """

    def __init__(self, cluster: LocalCluster, directory: Path) -> None:
        self.cluster, self.kafka = cluster, KafkaSide(cluster, directory)
        self.is_ours = True
        self._ids = [broker.id for broker in cluster.file.brokers]

    def znodes(self) -> Znodes:
        """Return what ZooKeeper holds of the cluster now."""
        with closing(ZooKeeperView(self.cluster.file.zookeeper_address)) as view:
            return Znodes.of(view)

    def end(self, *, clean: bool) -> None:
        """End all brokers; those that were killed are forgotten by ZooKeeper before this returns."""
        side: Any = self.kafka
        if self.is_ours:
            self.cluster.stop(*self._ids) if clean else self.cluster.kill(*self._ids)
        else:
            side.stop() if clean else side.kill()
        with closing(ZooKeeperView(self.cluster.file.zookeeper_address)) as view:
            until(lambda: not view.children("/brokers/ids"), LIMIT_SECONDS, "the sessions have ended")

    def start_other(self) -> None:
        """Start the brokers of the other kind."""
        self.is_ours = not self.is_ours
        if self.is_ours:
            self.cluster.start(*self._ids)
        else:
            self.kafka.start()


@pytest.fixture
def swapped(make_cluster: MakeCluster, next_base_port: Callable[[], int], tmp_path: Path) -> Iterator[Swapped]:
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
def test_each_starts_on_what_the_other_left(swapped: Swapped, tmp_path: Path, clean: bool) -> None:
    """Five times in turn, with everything that lies in directories and in ZooKeeper."""
    traffic = Traffic(",".join(swapped.cluster.kafka_bootstrap_servers), tmp_path)
    read = 0
    for swap in range(2 * TURNS):
        traffic.administer(swap)
        traffic.write(60)
        traffic.transactions()
        traffic.goes_on()
        member = traffic.joined(swap)
        shown, kept = traffic.shown(member.group), swapped.znodes()
        assert shown["members"] == {member.group: ("STABLE", [member.id])}
        before = traffic.read(committed=False)
        traffic.leave_open()
        with traffic.writing():
            swapped.end(clean=clean)
        swapped.start_other()
        traffic.wait_in_sync()
        assert traffic.shown(member.group) == shown
        member.close()
        assert kept.problems(swapped.znodes()) == []
        traffic.end_open(commit=swap % 2 == 0)
        traffic.write(1)
        after = traffic.read(committed=False)
        read += sum(map(len, after.values()))
        assert differences(before, after, shown["starts"]) == []
        traffic.check(after, traffic.read(committed=True))
        if swapped.is_ours:
            verify(swapped.cluster, traffic.history)
        else:
            assert unexpected(swapped.kafka.complaints()) == {}
    print(f"{read} records read and compared")


def verify(cluster: LocalCluster, history: Path) -> None:
    """The accountant finds nothing: in the history, in the committed log, and between the replicas."""
    for topic in (PLAIN, TRANSFERS):
        command = [TIDEGAUGE, "verify", topic, "--transactions", str(history), "--dir", str(cluster.directory)]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
        assert done.returncode == 0, done.stdout + done.stderr
    done = subprocess.run([*command[:2], COMPACTED, *command[-2:]], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def unexpected(complaints: Mapping[int, Sequence[str]]) -> dict[int, list[str]]:
    """Return what Kafka has logged at WARN and above, but for what brokers that start say of each other."""
    found = {
        broker: [line for line in lines if not any(part in line for part in OF_A_START)]
        for broker, lines in complaints.items()
    }
    return {broker: lines for broker, lines in found.items() if lines}
