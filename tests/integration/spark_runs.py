"""Runs of the job consume_committed over one output, and what must lie in the output at the end."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from tests.waiting import until_async

from tidegauge_lab.local.cluster import LocalCluster

JOB = Path(__file__).parents[2] / "spark_jobs" / "consume_committed.py"
BIN = Path(sys.executable).parent
Acknowledged = dict[bytes, tuple[int, int]]


class Job:
    """Runs of the job over one output and one checkpoint."""

    def __init__(self, directory: Path, cluster: LocalCluster, topic: str) -> None:
        self.output = directory / "output"
        self.checkpoint = directory / "checkpoint"
        self.progress_file = directory / "progress.jsonl"
        self.log = directory / "spark.log"
        self._stdout = directory / "stdout"
        self._arguments = ["--bootstrap-server", ",".join(cluster.bootstrap_servers), "--topic", topic]
        self._arguments += ["--output", str(self.output), "--checkpoint", str(self.checkpoint)]
        self._arguments += ["--progress-file", str(self.progress_file)]
        self._groups: list[int] = []
        self.process: subprocess.Popen[bytes] | None = None

    def start(self, *more: str, with_spark_submit: bool = False) -> None:
        self.start_with([str(BIN / ("spark-submit" if with_spark_submit else "python"))], *more)

    def start_with(self, runner: Sequence[str], *more: str, **variables: str) -> None:
        """Start a run by a command of one's own, in an environment with these variables."""
        # As after `source .venv/bin/activate`.
        environment = os.environ | {"PATH": f"{BIN}:{os.environ['PATH']}"} | variables
        with self._stdout.open("wb") as stdout, self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [*runner, str(JOB), *self._arguments, *more],
                stdin=subprocess.DEVNULL,
                stdout=stdout,
                stderr=log,
                env=environment,
                start_new_session=True,
            )
        self._groups.append(self.process.pid)

    async def end(self, limit_s: float = 300) -> dict[str, Any]:
        """Wait until it ends well; its last line."""
        assert self.process is not None
        code = await asyncio.to_thread(self.process.wait, limit_s)
        log = self.log.read_text(encoding="utf-8")
        assert code == 0, log[-3000:]
        assert "replaced a statically registered" not in log, "both are our source; nothing to warn of"
        summary: dict[str, Any] = json.loads(self._stdout.read_text(encoding="utf-8").splitlines()[-1])
        assert list(summary) == ["batches", "rows", "end_offsets", "seconds"]
        return summary

    def kill(self) -> None:
        """SIGKILL the driver."""
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    def clean_up(self) -> None:
        for group in self._groups:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(group, signal.SIGKILL)
        if self.process is not None:
            self.process.wait()

    def progress(self) -> list[dict[str, Any]]:
        if not self.progress_file.exists():
            return []
        return [json.loads(line) for line in self.progress_file.read_text(encoding="utf-8").splitlines()]

    def end_offsets(self, topic: str) -> dict[int, int]:
        batches = self.progress()
        ends = batches[-1]["end_offsets"].get(topic, {}) if batches else {}
        return {int(partition): offset for partition, offset in ends.items()}

    async def wait(self, what: str, condition: Callable[[], bool], limit_s: float = 300) -> None:
        """Wait for a state of the job's files while the job lives."""
        assert self.process is not None
        process = self.process

        async def holds() -> bool:
            if condition():
                return True
            assert process.poll() is None, self.log.read_text(encoding="utf-8")[-3000:]
            return False

        await until_async(holds, limit_s, what)


def check_exactly_once(output: Path, topic: str, acknowledged: Acknowledged) -> None:
    """Check that a plain reader gets every acknowledged record once, at its offset."""
    table = pq.read_table(output)
    assert table.schema.names == ["key", "value", "topic", "partition", "offset", "timestamp", "timestampType"]
    assert set(table.column("topic").to_pylist()) == {topic}
    places = zip(table.column("partition").to_pylist(), table.column("offset").to_pylist(), strict=True)
    found = list(zip(table.column("value").to_pylist(), places, strict=True))
    assert Counter(value for value, _ in found).most_common(1)[0][1] == 1, "a record stands there twice"
    assert dict(found) == acknowledged
    visible = [entry.name for entry in output.iterdir() if not entry.name.startswith(("_", "."))]
    assert all(name.endswith(".parquet") for name in visible)
    assert all(entry.stat().st_size for entry in output.iterdir() if entry.is_file())
