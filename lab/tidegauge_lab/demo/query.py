"""The Spark job as a process of its own, watched through its progress file and the last line of its output."""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.extras import install_command
from tidegauge_lab.demo.patience import Patience, Usage, usage_of_session

JOB = "consume_committed.py"
STOP_LIMIT_SECONDS = 120
"""How long nothing may move while it ends (``Patience``)."""
_POLL_SECONDS = 0.2


def find_job() -> Path:
    """Return the job's file: beside the package in a checkout, else inside it.

    Raises:
        TidegaugeError: INVALID_REQUEST, Spark or the job is not there.
    """
    if importlib.util.find_spec("pyspark") is None:
        raise TidegaugeError(ErrorCode.INVALID_REQUEST, f"Spark is not installed: {install_command('spark')}")
    spec = importlib.util.find_spec("tidegauge_spark")
    for directory in (spec.submodule_search_locations or ()) if spec is not None else ():
        for job in (Path(directory).parent / JOB, Path(directory) / "jobs" / JOB):
            if job.exists():
                return job
    raise TidegaugeError(ErrorCode.INVALID_REQUEST, f"{JOB} is missing: it belongs to the package tidegauge_spark")


class Query:
    """One run of the job.

    Args:
        directory: where its output, checkpoint, progress file and logs go.

    Attributes:
        sign: what its command line contains, and no other one.
    """

    def __init__(self, directory: Path) -> None:
        self.output = directory / "flights.parquet"
        self.log = directory / "spark.log"
        self._checkpoint = directory / "checkpoint"
        self._progress = directory / "progress.jsonl"
        self._stdout = directory / "spark.out"
        self.sign = f" --progress-file {self._progress} "
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, bootstrap_servers: Sequence[str], topic: str) -> None:
        """Start it; its first row takes a quarter of a minute."""
        command = [
            sys.executable,
            str(find_job()),
            "--bootstrap-server",
            ",".join(bootstrap_servers),
            "--topic",
            topic,
            "--output",
            str(self.output),
            "--checkpoint",
            str(self._checkpoint),
            "--progress-file",
            str(self._progress),
        ]
        with self._stdout.open("wb") as stdout, self.log.open("wb") as log:
            # A session of its own: Ctrl-C reaches the demo alone, which then ends the job in order.
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=stdout,
                stderr=log,
                env=os.environ | {"PYTHONUNBUFFERED": "1"},
                start_new_session=True,
            )

    def check(self) -> None:
        """Raise if the job has ended by itself.

        Raises:
            TidegaugeError: UNKNOWN_SERVER_ERROR.
        """
        if self._process is not None and (code := self._process.poll()) is not None:
            raise TidegaugeError(
                ErrorCode.UNKNOWN_SERVER_ERROR, f"the Spark job ended with code {code}; see {self.log}"
            )

    def usage(self) -> Usage:
        """Return what the job's processes have had of the machine, for ``Patience``."""
        return {} if self._process is None else usage_of_session(self._process.pid)

    def trace(self) -> object:
        """Return signs of progress: sizes of files, and batches begun and ended."""
        sizes = [path.stat().st_size if path.exists() else 0 for path in (self.log, self._stdout, self._progress)]
        notes = [
            len(list(directory.glob("[0-9]*")))
            for directory in (self._checkpoint / "offsets", self._checkpoint / "commits")
        ]
        return sizes, notes

    def batches(self) -> list[dict[str, Any]]:
        """Return what it has committed so far, a batch each."""
        try:
            lines = self._progress.read_text(encoding="utf-8").splitlines(keepends=True)
        except FileNotFoundError:
            return []
        return [json.loads(line) for line in lines if line.endswith("\n")]

    def rows(self) -> int:
        """Rows committed so far."""
        return sum(int(batch["rows"]) for batch in self.batches())

    def end_offsets(self, topic: str) -> dict[int, int]:
        """Where the last committed batch ends, by partition."""
        batches = self.batches()
        offsets = batches[-1]["end_offsets"].get(topic, {}) if batches else {}
        return {int(partition): int(offset) for partition, offset in offsets.items()}

    def stop(self) -> dict[str, Any]:
        """End it after the running batch; returns its summary.

        Raises:
            TidegaugeError: UNKNOWN_SERVER_ERROR, it did not end well.
        """
        process = self._process
        assert process is not None
        process.terminate()
        patience = Patience(STOP_LIMIT_SECONDS, self.usage)
        while (code := process.poll()) is None:
            if patience.is_over(self.trace()):
                self._kill(process)
            time.sleep(_POLL_SECONDS)
        self._process = None
        lines = self._stdout.read_text(encoding="utf-8").splitlines()
        if code != 0 or not lines:
            raise TidegaugeError(
                ErrorCode.UNKNOWN_SERVER_ERROR, f"the Spark job ended with code {code}; see {self.log}"
            )
        summary: dict[str, Any] = json.loads(lines[-1])
        return summary

    def abandon(self) -> None:
        """Leave nothing running."""
        process, self._process = self._process, None
        if process is not None:
            self._kill(process)

    @staticmethod
    def _kill(process: subprocess.Popen[bytes]) -> None:
        """Kill the job and the Spark that it started: they are a process group of their own."""
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
