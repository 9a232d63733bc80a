"""Follows a lab's page, as ``documents`` follows a chapter; the cluster checks it before anything is done, too."""

from __future__ import annotations

import dataclasses
import json
import re
import subprocess
from pathlib import Path
from typing import Any

from tests.documents import LIMIT_SECONDS, Block, Reader

from tidegauge_lab.labs.catalogue import lab_named

PORTS = 16
"""A lab's cluster has at most four brokers, each with a port for gRPC and one for Kafka clients, and ZooKeeper."""
_KAFKA = 4
_ZOOKEEPER = 8
_CONTROL = 9
_VERDICT = re.compile(r"^[a-z0-9-]+: done\..*$", re.MULTILINE)
_START = re.compile(r"^tidegauge lab start ([a-z0-9-]+)$", re.MULTILINE)


class LabReader(Reader):
    """A learner who lets the cluster check right after the start, and then does what the page says."""

    kafka_ports = _KAFKA

    def __init__(self, directory: Path, base_port: int, *, kraft: bool = False) -> None:
        super().__init__(directory, base_port)
        self._kraft = kraft
        if kraft:
            self.environment["TIDEGAUGE_MODE"] = "kraft"
        self.before: dict[str, Any] | None = None

    def here(self, text: str) -> str:
        """Give the cluster ports of this test's own."""
        base = self.base_port
        options = f"--base-port {base} --kafka-port {base + _KAFKA}"
        text = super().here(text).replace("127.0.0.1:19079", f"127.0.0.1:{base + _CONTROL}")
        started = _START.search(text)
        if started is not None and not self._kraft and not lab_named(started[1]).kraft_only:
            options += f" --zookeeper-port {base + _ZOOKEEPER}"
        return _START.sub(rf"\g<0> {options}", text)

    def do(self, block: Block, where: str) -> None:
        """Run a block; after the start the check must not pass.

        In KRaft mode the check's verdict alone is compared: pages show causes and epochs of ZooKeeper mode.
        """
        if self._kraft:
            verdict = _VERDICT.search(block.expected or "")
            block = dataclasses.replace(block, expected=None if verdict is None else f"...\n{verdict[0]}")
        super().do(block, where)
        if (started := _START.search(block.text)) is not None:
            self.before = self.check(started[1])

    def check(self, name: str) -> dict[str, Any]:
        """Return what the cluster says of a lab now."""
        done = subprocess.run(
            ["tidegauge", "lab", "check", name, "-o", "json"],
            cwd=self.directory,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=LIMIT_SECONDS,
            check=False,
        )
        found: dict[str, Any] = json.loads(done.stdout)
        assert done.returncode == (0 if found["passed"] else 1), done.stderr
        return found
