"""Usage of the machine by a process, by the names of Prometheus' client libraries and of Kafka's own collector.

Source: ``kafka.server.LinuxIoMetricsCollector``, which reads /proc/self/io, and the standard process metrics of
Prometheus' clients, which the JMX exporter serves beside Kafka's. A machine without /proc has the CPU time alone.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator
from pathlib import Path

from tidegauge_broker.server.metrics.exposition import Family, counter, gauge

_PROC = Path("/proc/self")
_DISK = "kafka_server_kafkaserver_linux_disk"


def process_families(proc: Path = _PROC) -> Iterator[Family]:
    """Yield the figures of this process, as far as the system shows them.

    Args:
        proc: where Linux shows the process.
    """
    used = time.process_time()
    yield counter("process_cpu_seconds_total", "CPU time that the process has used, in s.", used)
    with contextlib.suppress(OSError):
        yield gauge("process_open_fds", "Open file descriptors.", sum(1 for _ in (proc / "fd").iterdir()))
    with contextlib.suppress(OSError):
        pages = int((proc / "statm").read_text(encoding="ascii").split()[1])
        resident = pages * os.sysconf("SC_PAGE_SIZE")
        yield gauge("process_resident_memory_bytes", "Resident memory, in bytes.", resident)
    with contextlib.suppress(OSError):  # some containers forbid it
        lines = (proc / "io").read_text(encoding="ascii").splitlines()
        counted = {name: int(value) for name, _, value in (line.partition(": ") for line in lines)}
        for word, what in (("read", "read from"), ("write", "written to")):
            value = counted[f"{word}_bytes"]
            yield gauge(f"{_DISK}_{word}_bytes", f"Bytes that the process has {what} disks.", value)
