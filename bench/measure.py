"""The measures of both sides: workloads, latencies, memory, and the interface of a side.

Figures are only ever compared within one run, pair by pair: the machines are shared and noisy, so a ratio means
something and an absolute number little.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple, Protocol

BYTES_PER_CELL = 150_000_000
MOST_RECORDS = 600_000
LATENCY_SECONDS = 10
QUICK_SHARE = 10
READ_SHARE = 2 / 3
"""The part of a topic that consumers read. Kafka's consumer leaves partitions whose records it still holds out of its
fetches, and has one fetch in flight to a broker: one for a partition that is read to its end waits for
``fetch.max.wait.ms`` (500 ms) while the others run dry. At the end of a topic that happens by chance, none to three
times on any broker, and would dominate the measurement; so the end is not read."""


@dataclass(frozen=True, slots=True)
class Workload:
    """One cell of the table.

    Attributes:
        record_bytes: size of a record's value.
        partitions: of the topic, which has three replicas.
        acks: ``1`` or ``all``.
        records: how many are written and read.
        latency_seconds: how long the run at half load takes.
    """

    record_bytes: int
    partitions: int
    acks: str
    records: int
    latency_seconds: int

    def with_records(self, records: int) -> Workload:
        """Return the same work with another number of records."""
        return replace(self, records=records)

    def short_of_end(self) -> Workload:
        """Return what consumers read of this work; see ``READ_SHARE``."""
        return self.with_records(max(1, int(self.records * READ_SHARE)))

    @property
    def name(self) -> str:
        """How the table calls it."""
        return f"{self.record_bytes} B, {self.partitions} partition{'s' * (self.partitions > 1)}, acks={self.acks}"


class Latency(NamedTuple):
    """From ``send`` to acknowledgement, in ms, over all records of a run."""

    p50_ms: float
    p99_ms: float
    p999_ms: float
    max_ms: float


class BrokerSide(Protocol):
    """Three brokers and a client, ours or theirs. Brokers are known by their ids."""

    name: str

    def start(self) -> None:
        """Start the whole cluster, from nothing, and return once a first record is acknowledged."""

    def stop(self) -> None:
        """End all of it."""

    def pids(self) -> dict[int, int]:
        """Return the running brokers' process ids by broker id."""
        ...

    def every_pid(self) -> list[int]:
        """Return the process ids of all that runs: brokers, and ZooKeeper or controllers."""
        ...

    @property
    def kafka_bootstrap(self) -> str:
        """Return the brokers' addresses for Kafka's clients, with commas."""
        ...

    def create(self, topic: str, partitions: int, replicas: int = 3) -> None:
        """Create a topic; returns when it can be written to."""

    def delete(self, topic: str) -> None:
        """Delete a topic; its files go later (``file.delete.delay.ms``)."""

    def produce(self, topic: str, workload: Workload) -> float:
        """Write all records as fast as possible; records a second, to the last acknowledgement."""
        ...

    def produce_together(self, topic: str, workload: Workload, producers: int) -> float:
        """As ``produce``, by several producers at once, each a process and each writing all; the sum of their rates."""
        ...

    def consume(self, topic: str, workload: Workload) -> float:
        """Read all records; records a second of fetching."""
        ...

    def latency(self, topic: str, workload: Workload, rate: float) -> Latency:
        """Write at a steady rate (records a second) for ``latency_seconds``."""
        ...

    def active_controller(self) -> int:
        """Return the id of the active broker or controller; -1: none now."""
        ...

    def kill(self, node_id: int) -> None:
        """SIGKILL, to a broker or a controller."""

    def restart(self, node_id: int) -> None:
        """Start a node that was killed; returns at once or later."""


def workloads(*, quick: bool) -> list[Workload]:
    """Return the cells: record sizes, partitions, acks; fewer if quick."""
    share = QUICK_SHARE if quick else 1
    sizes = (100, 1024) if quick else (100, 1024, 10240)
    return [
        Workload(
            size, partitions, acks, min(MOST_RECORDS, BYTES_PER_CELL // size) // share, max(2, LATENCY_SECONDS // share)
        )
        for size in sizes
        for partitions in (1, 12)
        for acks in ("1", "all")
    ]


def cpu_seconds(pids: Iterable[int]) -> float:
    """CPU time that some processes have used together, to the nanosecond: clock_getcpuclockid(3) on Linux."""
    return sum(time.clock_gettime((~pid << 3) | 2) for pid in pids)


def resident_bytes(pids: Sequence[int]) -> int:
    """Resident memory of some processes together; pages that they share count for each."""
    pages = sum(int(Path(f"/proc/{pid}/statm").read_text().split()[1]) for pid in pids)
    return pages * os.sysconf("SC_PAGE_SIZE")


def latency_of(samples_ms: Sequence[float]) -> Latency:
    """Return percentiles of samples, which may not be empty."""
    ordered = sorted(samples_ms)

    def at(share: float) -> float:
        return ordered[min(len(ordered) - 1, int(len(ordered) * share))]

    return Latency(at(0.5), at(0.99), at(0.999), ordered[-1])
