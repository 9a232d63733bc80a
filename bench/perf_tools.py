"""Kafka's own perf tools, from Maven Central, against any cluster that serves Kafka's clients."""

from __future__ import annotations

import re
import subprocess

from jars import kafka_jars
from measure import Latency, Workload

from tidegauge.java import java_program

COMMON_JVM = ("-server", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20", "-XX:InitiatingHeapOccupancyPercent=35")
"""JVM options of Kafka's own start scripts."""
_TOOL_JVM = (*COMMON_JVM, "-Xmx512M")
_LIMIT_SECONDS = 600


class PerfTools:
    """Runs the tools, each in a new JVM, as Kafka's scripts do.

    Raises:
        Unavailable: the jars can't be had.
    """

    def __init__(self) -> None:
        self.classpath = f"{kafka_jars()}/*"

    def run(self, main: str, *arguments: str) -> str:
        """Return what a tool prints.

        Raises:
            RuntimeError: it failed.
        """
        command = [java_program(), *_TOOL_JVM, "-cp", self.classpath, main, *arguments]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=_LIMIT_SECONDS)
        if done.returncode != 0:
            raise RuntimeError(f"{main} failed: {done.stdout[-500:]}{done.stderr[-500:]}")
        return done.stdout

    def produce(self, bootstrap: str, topic: str, workload: Workload) -> float:
        """Write all records with kafka-producer-perf-test; return records a second."""
        line = self._producer(bootstrap, topic, workload.records, workload, -1, "linger.ms=5", "batch.size=65536")
        return float(_number(r"([\d.]+) records/sec", line))

    def latency(self, bootstrap: str, topic: str, workload: Workload, rate: float) -> Latency:
        """Write at a steady rate (records a second) with kafka-producer-perf-test."""
        records = int(rate * workload.latency_seconds)
        line = self._producer(bootstrap, topic, records, workload, max(1, rate), "batch.size=65536")
        found = [_number(rf"([\d.]+) ms {share}", line) for share in ("50th", "99th", r"99\.9th", "max latency")]
        return Latency(*(float(value) for value in found))

    def consume(self, bootstrap: str, topic: str, workload: Workload) -> float:
        """Read so many records with kafka-consumer-perf-test; return its rate without the group's rebalance.

        Raises:
            RuntimeError: it failed, or the cluster serves no groups.
        """
        output = self.run(
            "org.apache.kafka.tools.ConsumerPerformance",
            *("--bootstrap-server", bootstrap, "--topic", topic),
            *("--messages", str(workload.records), "--timeout", "60000"),
        )
        rows = [line.split(", ") for line in output.splitlines() if ", " in line]
        if len(rows) != 2:
            raise RuntimeError(f"unexpected output of ConsumerPerformance: {output[-500:]}")
        header, values = rows
        return float(values[header.index("fetch.nMsg.sec")])

    def end_to_end(self, bootstrap: str, topic: str, workload: Workload, records: int) -> tuple[float, float, float]:
        """Write and read record by record with kafka-e2e-latency; return the average, p50 and p99 in ms.

        Raises:
            RuntimeError: it failed.
        """
        output = self.run(
            "org.apache.kafka.tools.EndToEndLatency",
            *(bootstrap, topic, str(records), workload.acks, str(workload.record_bytes)),
        )
        patterns = (r"Avg latency: ([\d.]+) ms", r"50th = ([\d.]+)", r"99th = ([\d.]+)")
        average, p50, p99 = (float(_number(pattern, output)) for pattern in patterns)
        return average, p50, p99

    def _producer(
        self, bootstrap: str, topic: str, records: int, workload: Workload, throughput: float, *properties: str
    ) -> str:
        return self.run(
            "org.apache.kafka.tools.ProducerPerformance",
            *("--topic", topic, "--num-records", str(records), "--record-size", str(workload.record_bytes)),
            *("--throughput", str(int(throughput)), "--producer-props", f"bootstrap.servers={bootstrap}"),
            *(f"acks={workload.acks}", *properties),
        ).splitlines()[-1]


def _number(pattern: str, line: str) -> str:
    found = re.search(pattern, line)
    if found is None:
        raise RuntimeError(f"unexpected output of Kafka's tool: {line}")
    return found[1]
