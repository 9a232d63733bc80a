"""Transactions a second and the time of a commit, beside Apache Kafka: ``python bench/transaction_times.py``.

One and the same client on both sides: librdkafka through confluent-kafka, acks=all, one producer, a topic of three
partitions with three replicas. A transaction begins, writes its records to the partitions in turn, and commits; the
client sends the rest, ends the transaction, and waits for the response of its coordinator. Both clusters stay up
during the whole run and take turns, each round in the other order. Measured are whole transactions a second and the
duration of ``commit_transaction`` in milliseconds. Where the next transaction begins before all markers of the last one
are written, the client gets CONCURRENT_TRANSACTIONS and tries again after its back-off: that is part of both figures.
"""

from __future__ import annotations

import argparse
import importlib
import json
import multiprocessing
import statistics
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import kafka_side
import librdkafka
from measure import cpu_seconds

from tidegauge_lab.local.cluster import LocalCluster

SETTINGS = {
    "transaction.state.log.num.partitions": "5",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.min.isr": "2",
    "auto.create.topics.enable": "false",
}
READY_SECONDS = 90.0
PARTITIONS = 3
WARM_UP = 10
VALUE = b"x" * 100


class Round(NamedTuple):
    """The measurement of one client: whole transactions a second, and each commit in milliseconds."""

    per_second: float
    commits_ms: list[float]


class Side(NamedTuple):
    """A cluster: its name, its bootstrap servers, its brokers' process ids by broker id."""

    name: str
    bootstrap: str
    pids: Mapping[int, int]


class Measured(NamedTuple):
    """A round, and the CPU time that the three brokers used for a transaction, in milliseconds."""

    round: Round
    cpu_ms: float


def copied(bootstrap: str, topic: str, records: int, seconds: float) -> Round:
    """Commit transactions of so many records for a while; the first ones are not counted."""
    producer: Any = librdkafka.library().Producer(
        {"bootstrap.servers": bootstrap, "transactional.id": f"bench-{records}", "acks": "all", "log_level": 2}
    )
    producer.init_transactions(READY_SECONDS)
    commits_ms: list[float] = []
    begin = time.perf_counter()
    count = -WARM_UP
    while count < 0 or time.perf_counter() - begin < seconds:
        if count == 0:
            begin = time.perf_counter()
        producer.begin_transaction()
        for number in range(records):
            producer.produce(topic, VALUE, partition=number % PARTITIONS)
        commit_begin = time.perf_counter()
        producer.commit_transaction(READY_SECONDS)
        if count >= 0:
            commits_ms.append((time.perf_counter() - commit_begin) * 1000)
        count += 1
    return Round(count / (time.perf_counter() - begin), commits_ms)


def alone(bootstrap: str, topic: str, records: int, seconds: float) -> Round:
    """Measure in a process of its own: the library's threads end with it."""
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        return pool.submit(copied, bootstrap, topic, records, seconds).result()


def percentile(values: Sequence[float], share: float) -> float:
    """Return the value that so large a share of all is not above."""
    return sorted(values)[min(len(values) - 1, int(len(values) * share))]


def row(name: str, records: int, rounds: Sequence[Measured]) -> dict[str, Any]:
    """Return a row of the table, of all rounds."""
    commits = [commit for one in rounds for commit in one.round.commits_ms]
    return {
        "side": name,
        "records_per_transaction": records,
        "transactions_per_second": round(statistics.median(one.round.per_second for one in rounds), 1),
        "commit_p50_ms": round(percentile(commits, 0.5), 1),
        "commit_p99_ms": round(percentile(commits, 0.99), 1),
        "brokers_cpu_ms": round(statistics.median(one.cpu_ms for one in rounds), 1),
        "transactions": len(commits),
    }


def measured(side: Side, topic: str, records: int, seconds: float) -> Measured:
    """Measure a round of a side."""
    pids = side.pids.values()
    cpu_before = cpu_seconds(pids)
    done = alone(side.bootstrap, topic, records, seconds)
    cpu_ms = (cpu_seconds(pids) - cpu_before) * 1000
    return Measured(done, cpu_ms / (len(done.commits_ms) + WARM_UP))


def print_rows(sides: Sequence[Side], options: argparse.Namespace) -> None:
    """Measure the sides by turns, and print their rows.

    Args:
        sides: the sides to measure.
        options: ``records``, ``rounds``, ``seconds``.
    """
    for records in options.records:
        found: dict[str, list[Measured]] = {side.name: [] for side in sides}
        topic = f"transactions-{records}"
        for side in sides:
            create(side.bootstrap, topic)
        for number in range(options.rounds):
            for side in sides if number % 2 == 0 else sides[::-1]:
                found[side.name].append(measured(side, topic, records, options.seconds))
        for name, rounds in found.items():
            print(json.dumps(row(name, records, rounds)), flush=True)


def create(bootstrap: str, topic: str) -> None:
    """Create a topic that three brokers have."""
    admins: Any = importlib.import_module("confluent_kafka.admin")
    admin = admins.AdminClient({"bootstrap.servers": bootstrap})
    [created] = admin.create_topics([admins.NewTopic(topic, PARTITIONS, 3)]).values()
    created.result()


def main() -> int:
    """Measure both, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, nargs="+", default=[1, 10, 100], help="of a transaction")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=5.0, help="of a round")
    parser.add_argument("--without-kafka", action="store_true", help="our side alone")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="transactions-") as name:
        directory = Path(name)
        cluster = LocalCluster.create(directory / "tidegauge", 3, profile="kafka", settings=SETTINGS)
        theirs: kafka_side.Kafka | None = None
        try:
            cluster.up(READY_SECONDS)
            pids = {number: cluster.pid_of(number) or 0 for number in range(3)}
            sides = [Side("Tidegauge", ",".join(cluster.kafka_bootstrap_servers), pids)]
            try:
                if not options.without_kafka:
                    theirs = kafka_side.Kafka(directory, SETTINGS)
                    theirs.start()
                    sides.append(Side(theirs.name, theirs.bootstrap, theirs.pids()))
            except kafka_side.Unavailable as reason:
                print(f"Apache Kafka can't be had here ({reason}): only Tidegauge is measured", file=sys.stderr)
            print_rows(sides, options)
        finally:
            if theirs is not None:
                theirs.stop()
            cluster.down()
    return 0


if __name__ == "__main__":
    sys.exit(main())
