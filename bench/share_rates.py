"""How fast a share group is given records beside Apache Kafka 4.3.1: ``PYTHONPATH=. python bench/share_rates.py``.

A controller and a broker of each, both up, a topic of four partitions with the same records. kafka-share-consumer-perf-
test of 4.3.1, the same client at both, reads them all in a new group, which begins at the first record; the sides take
turns. Printed are the records a second that the tool says, and the broker's CPU for a record from the begin of the tool
to its end. The first turn of each side warms up and does not count.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys

import confluent_kafka
from coordinator_stories import PARTITIONS
from differential_kraft import ALONE, Side, both_sides, note
from measure import cpu_seconds
from tests.clients.programs import KAFKA_4, Unavailable, kafka_jars
from tests.wire_responses.probe import built

from tidegauge.java import java_program
from tidegauge.kafka.apis import ALTER_SHARE_GROUP_OFFSETS
from tidegauge.kafka.kraft.broker_apis import KRAFT_BROKER_PROTOCOL

SETTINGS = ALONE | {
    "offsets.topic.num.partitions": "1",
    "share.coordinator.state.topic.num.partitions": "1",
    "group.share.assignment.interval.ms": "0",
}
TOPIC, VALUE = "records", bytes(100)
TOOL = "org.apache.kafka.tools.ShareConsumerPerformance"
RATE = "nMsg.sec"
TOOL_SECONDS = 300.0


def fill(side: Side, records: int) -> None:
    """Write the records."""
    side.new_topic(TOPIC, PARTITIONS)
    producer = confluent_kafka.Producer({"bootstrap.servers": side.cluster.brokers[0].address, "acks": "all"})
    for number in range(records):
        producer.produce(TOPIC, VALUE, partition=number % PARTITIONS)
        if number % 10_000 == 0:
            producer.flush()
    producer.flush()


def begin(side: Side, group: str) -> None:
    """Let a group begin at the first record of each partition."""
    partitions = [{"partition_index": at, "start_offset": 0} for at in range(PARTITIONS)]
    kind = KRAFT_BROKER_PROTOCOL.message_class(ALTER_SHARE_GROUP_OFFSETS, response=False)
    request = built(kind, {"group_id": group, "topics": [{"topic_name": TOPIC, "partitions": partitions}]})

    def is_done() -> bool:
        response = side.ask(0, request)
        if isinstance(response, str) or response.error_code:
            return False
        return not any(one.error_code for topic in response.responses for one in topic.partitions)

    side.wait_for(is_done, f"{group} has begun")


def read(side: Side, group: str, records: int) -> tuple[float, float]:
    """Return records a second, and the broker's CPU for a record in us."""
    begin(side, group)
    broker = side.cluster.brokers[0]
    before = cpu_seconds([broker.pid])
    command = [java_program(), "-Xmx512m", "-cp", f"{kafka_jars(KAFKA_4)}/*", TOOL]
    words = ["--bootstrap-server", broker.address, "--topic", TOPIC, "--group", group, "--num-records", str(records)]
    done = subprocess.run([*command, *words], capture_output=True, text=True, check=True, timeout=TOOL_SECONDS)
    cpu = cpu_seconds([broker.pid]) - before
    lines = [[one.strip() for one in line.split(",")] for line in done.stdout.splitlines() if "," in line]
    head, row = next(line for line in lines if RATE in line[4:] or any(RATE in one for one in line)), lines[-1]
    at = next(number for number, one in enumerate(head) if RATE in one)
    return float(row[at]), cpu / records * 1e6


def main() -> int:
    """Measure; return the exit code."""
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("--records", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    try:
        with both_sides("share-rates", SETTINGS) as sides:
            found: dict[str, list[tuple[float, float]]] = {kind: [] for kind in sides}
            for side in sides.values():
                fill(side, options.records)
            for number in range(options.rounds + 1):
                for kind, side in sides.items():
                    note(f"{kind}: round {number}")
                    found[kind].append(read(side, f"group-{number}", options.records))
                    note(f"{kind}: {found[kind][-1]}")
    except Unavailable as problem:
        print(f"Apache Kafka can't be had here: {problem}")
        return 1
    for kind, rows in found.items():
        rates, cpus = zip(*rows[1:], strict=True)
        shown = {"side": kind, "records_per_second": round(statistics.median(rates))}
        print(json.dumps(shown | {"cpu_us": round(statistics.median(cpus), 1), "rounds": len(rates)}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
