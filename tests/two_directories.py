"""Broker processes 1 and 2, each with the log directories a and b, started by hand."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from tidegauge.errors import TidegaugeError
from tidegauge_client.admin import Admin

FAST = {
    "zookeeper.session.timeout.ms": "4000",
    "replica.lag.time.max.ms": "10000",
    "replica.high.watermark.checkpoint.interval.ms": "500",
    "log.flush.offset.checkpoint.interval.ms": "500",
    "log.flush.start.offset.checkpoint.interval.ms": "500",
    "log.retention.check.interval.ms": "300",
    "log.segment.delete.delay.ms": "200",
    "log.cleaner.backoff.ms": "300",
    "auto.leader.rebalance.enable": "false",
}


class Brokers:
    """Brokers with two log directories each."""

    def __init__(self, zookeeper: str, directory: Path, base_port: int, settings: Mapping[str, str] = FAST) -> None:
        self.directory = directory
        self.zookeeper = zookeeper
        self.settings = settings
        self.addresses = {broker_id: f"127.0.0.1:{base_port + broker_id}" for broker_id in (1, 2)}
        self.processes: dict[int, subprocess.Popen[bytes]] = {}

    @property
    def bootstrap(self) -> list[str]:
        """Return the addresses of both brokers."""
        return list(self.addresses.values())

    def data(self, broker_id: int, name: str) -> Path:
        """A log directory."""
        return self.directory / f"broker-{broker_id}" / name

    def start(self, broker_id: int) -> None:
        """Start a process."""
        settings = {
            **self.settings,
            "broker.id": str(broker_id),
            "listeners": f"GRPC://{self.addresses[broker_id]}",
            "zookeeper.connect": self.zookeeper,
            "log.dirs": f"{self.data(broker_id, 'a')},{self.data(broker_id, 'b')}",
        }
        overrides = [part for name, value in settings.items() for part in ("--override", f"{name}={value}")]
        with (self.directory / f"broker-{broker_id}.log").open("ab") as log:
            self.processes[broker_id] = subprocess.Popen(
                [sys.executable, "-m", "tidegauge_broker.server.verb", *overrides], stdout=log, stderr=log
            )

    def end(self, broker_id: int, how: int = signal.SIGTERM) -> int:
        """End a process; return its exit status."""
        process = self.processes.pop(broker_id)
        process.send_signal(how)
        return process.wait(150)

    def log_of(self, broker_id: int) -> str:
        """Return the log of a process."""
        return (self.directory / f"broker-{broker_id}.log").read_text()


async def both_are_there(admin: Admin) -> bool:
    """Whether both brokers are alive; False while none responds."""
    try:
        return len((await admin.metadata([])).brokers) == 2
    except TidegaugeError:
        return False
