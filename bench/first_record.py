"""From nothing to the first acknowledged record, as an application meets it: ``python bench/first_record.py``.

The clock runs from the call of `tidegauge up -d` in a new directory, with its default timers, until librdkafka has an
acknowledgement by acks=all of the three replicas. The application has been loaded before and waits for `up`; the time
of a verb's own process for the topic and the record is in docs/results/kafka-4.md. Both modes by turns.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tidegauge_client.cluster_file import load_cluster_file

MODES = {"KRaft mode": ["--kraft"], "ZooKeeper mode": []}
TOPIC = "first"


class Times(NamedTuple):
    """Seconds since the call of `up`: until it returned, the topic was created, and the record was acknowledged."""

    up: float
    topic: float
    record: float


def started(directory: Path, options: list[str]) -> Times:
    """Start a cluster, write a record, and take the cluster down."""
    where = ["--dir", str(directory)]
    began = time.perf_counter()
    subprocess.run(["tidegauge", "up", "-d", *where, *options], check=True, capture_output=True)
    up = time.perf_counter() - began
    try:
        servers = ",".join(load_cluster_file(directory).kafka_bootstrap_servers)
        admin = AdminClient({"bootstrap.servers": servers})
        admin.create_topics([NewTopic(TOPIC, 1, 3)])[TOPIC].result()
        topic = time.perf_counter() - began
        producer = Producer({"bootstrap.servers": servers, "acks": "all", "log_level": 0})
        problems = []
        producer.produce(TOPIC, b"record", on_delivery=lambda problem, _: problems.append(problem))
        producer.flush()
        record = time.perf_counter() - began
        if problems != [None]:
            raise RuntimeError(f"the record was not acknowledged: {problems}")
        del producer, admin  # they would look for the brokers while the next cluster starts
    finally:
        subprocess.run(["tidegauge", "down", "--purge", *where], check=True, capture_output=True)
    return Times(up, topic, record)


def main() -> int:
    """Measure both modes, print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--starts", type=int, default=7, help="of each mode (default 7)")
    count = parser.parse_args().starts
    found: dict[str, list[Times]] = {mode: [] for mode in MODES}
    with tempfile.TemporaryDirectory(prefix="first-record-") as name:
        for number in range(count):
            for mode, options in MODES.items():
                found[mode].append(started(Path(name) / f"{number}-{mode[0]}", options))
    print("| median, worst of s | `up` returned | topic created | record acknowledged |\n|---|---|---|---|")
    for mode, times in found.items():
        cells = [f"{statistics.median(one):.2f}, {max(one):.2f}" for one in zip(*times, strict=True)]
        print(f"| {mode} | {' | '.join(cells)} |")
    return 0


if __name__ == "__main__":
    sys.exit(main())
