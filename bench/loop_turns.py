"""The longest turn of the event loop of brokers and controllers in each workload, in CPU time, for docs/performance.md.

    PYTHONPATH=bench python bench/loop_turns.py [--records N] [--partitions N] [--json FILE]

A cluster in KRaft mode, on which one workload runs after the other; each process measures its own turns
(turn_meter/sitecustomize.py). CPU time of the thread, so other work on the machine counts little: what it takes from
the caches, no more. Collections of garbage are turns' parts, listed by themselves, too.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, Producer
from confluent_kafka import TopicPartition as Position
from confluent_kafka.admin import AdminClient, NewTopic

from tidegauge_lab.local.cluster import LocalCluster
from tidegauge_lab.local.wanted import WantedQuorum

HERE = Path(__file__).parent
LIMIT_SECONDS = 300.0
SETTINGS = {
    "log.cleaner.backoff.ms": "500",
    "log.retention.check.interval.ms": "1000",
    "offsets.topic.num.partitions": "3",
    "transaction.state.log.num.partitions": "3",
    "group.initial.rebalance.delay.ms": "0",
}
COMPACTED = {"cleanup.policy": "compact", "segment.bytes": "1048576", "min.cleanable.dirty.ratio": "0.01"}


class Work:
    """The workloads, by their names in the table.

    Args:
        cluster: on which they run.
        records: how many are written in each.
        partitions: of the wide topic.
    """

    def __init__(self, cluster: LocalCluster, records: int, partitions: int) -> None:
        self._cluster, self._records, self._partitions = cluster, records, partitions
        self._servers = ",".join(cluster.kafka_bootstrap_servers)
        self._admin = AdminClient({"bootstrap.servers": self._servers})

    def all(self) -> Mapping[str, Callable[[], Any]]:
        """Return them in their order."""
        return {
            "records of 1 KiB, 12 partitions, read at once": self.stream,
            "a topic of many partitions is created": self.create_wide,
            "the same, a record to each": self.fill_wide,
            "a compacted topic, cleaned meanwhile": self.compact,
            "transactions of ten records": self.transactions,
            "a group with 20 members that come and go": self.group,
            "a broker is killed and returns": self.failover,
            "the topic of many partitions is deleted": self.delete_wide,
        }

    def _create(self, name: str, partitions: int, **settings: str) -> None:
        topic = NewTopic(name, partitions, 3, config=settings)
        self._admin.create_topics([topic], operation_timeout=LIMIT_SECONDS)[name].result(LIMIT_SECONDS)

    def _write(self, topic: str, count: int, size: int, partitions: int, keys: int = 0) -> None:
        producer = Producer({"bootstrap.servers": self._servers, "enable.idempotence": True, "linger.ms": 5})
        for number in range(count):
            key = str(number % keys) if keys else None
            while True:
                try:
                    producer.produce(topic, b"x" * size, key, number % partitions)
                    break
                except BufferError:
                    producer.poll(0.1)
            producer.poll(0)
        assert producer.flush(LIMIT_SECONDS) == 0

    def stream(self) -> None:
        self._create("stream", 12)
        self._write("stream", self._records, 1024, 12)
        consumer = Consumer({"bootstrap.servers": self._servers, "group.id": "g", "enable.auto.commit": False})
        consumer.assign([Position("stream", partition, 0) for partition in range(12)])
        found = 0
        while found < self._records:
            found += len(consumer.consume(1000, 5))
        consumer.close()

    def create_wide(self) -> None:
        self._create("wide", self._partitions)

    def fill_wide(self) -> None:
        self._write("wide", self._partitions, 100, self._partitions)

    def delete_wide(self) -> None:
        self._admin.delete_topics(["wide"], operation_timeout=LIMIT_SECONDS)["wide"].result(LIMIT_SECONDS)
        time.sleep(3)

    def compact(self) -> None:
        self._create("compacted", 1, **COMPACTED)
        self._write("compacted", self._records, 500, 1, keys=100)
        time.sleep(5)

    def transactions(self) -> None:
        self._create("paid", 3)
        producer = Producer({"bootstrap.servers": self._servers, "transactional.id": "turns"})
        producer.init_transactions(LIMIT_SECONDS)
        for number in range(self._records // 200):
            producer.begin_transaction()
            for other in range(10):
                producer.produce("paid", b"x" * 100, partition=(number + other) % 3)
            producer.commit_transaction(LIMIT_SECONDS)

    def group(self) -> None:
        settings = {"bootstrap.servers": self._servers, "group.id": "many", "auto.offset.reset": "earliest"}
        members = [Consumer(settings) for _ in range(20)]
        for member in members:
            member.subscribe(["stream"])
        ends = time.monotonic() + 15
        while time.monotonic() < ends:
            for member in members:
                member.poll(0.01)
        for member in members:
            member.close()

    def failover(self) -> None:
        victim = self._cluster.leader_of("stream", 0)
        self._cluster.kill(victim)
        self._write("stream", 1200, 1024, 12)
        self._cluster.start(victim)
        self._cluster.wait_ready(LIMIT_SECONDS)
        time.sleep(3)


def rows(directory: Path, kinds: Mapping[int, str]) -> Iterator[tuple[str, str, float, str]]:
    """Yield workload and kind, role of the process, ms and place of each turn that was reported."""
    for file in directory.glob("*.jsonl"):
        for line in file.read_text().splitlines():
            one = json.loads(line)
            yield one["what"], kinds.get(int(file.stem), "other"), one["ms"], one["where"]


def main() -> None:
    """Run all workloads, and print the table."""
    parser = argparse.ArgumentParser(description="The longest turns of the event loop by workload.")
    parser.add_argument("--records", type=int, default=20_000)
    parser.add_argument("--partitions", type=int, default=1_000)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as at:
        directory = Path(at) / "turns"
        directory.mkdir()
        os.environ |= {"TURNS_DIRECTORY": str(directory), "PYTHONPATH": str(HERE / "turn_meter")}
        cluster = LocalCluster.create(
            Path(at) / "cluster", 3, settings=SETTINGS, mode="kraft", quorum=WantedQuorum(controllers=3)
        )
        kinds: dict[int, str] = {}
        try:
            cluster.up(LIMIT_SECONDS)
            for name, run in Work(cluster, options.records, options.partitions).all().items():
                (directory / "phase").write_text(name)
                run()
                kinds |= {pid: "broker" for one in cluster.file.brokers if (pid := cluster.pid_of(one.id))}
        finally:
            cluster.down()
        found = sorted(rows(directory, kinds), key=lambda row: -row[2])
    if options.json:
        options.json.write_text(json.dumps(found, indent=1))
    print("| workload | longest turn of a broker, ms of CPU | where | of a controller | longest collection |")
    print("|---|---|---|---|---|")
    names = ["start", *Work.all(Work.__new__(Work))]
    for name in names:
        of = {
            (kind, role): (ms, where)
            for what, role, ms, where in reversed(found)
            for kind in ("turn", "collection")
            if what == f"{name} {kind}"
        }
        broker, controller = of.get(("turn", "broker"), (0, "")), of.get(("turn", "other"), (0, ""))
        collection = max(of.get(("collection", role), (0, ""))[0] for role in ("broker", "other"))
        print(f"| {name} | {broker[0]} | {broker[1]} | {controller[0]} | {collection} |")


if __name__ == "__main__":
    main()
