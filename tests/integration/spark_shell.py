"""One Spark session in a process of its own, for all tests of a file: they send it Python, it responds with JSON.

Not in the test process: a session leaves a JVM and threads behind that pytest would have to live with.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Any

CONFIG = {
    "spark.ui.enabled": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    # For a handful of rows planning and compiling cost more than the work.
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.session.timeZone": "UTC",
}
STOP_S = 30


class SparkShell:
    """The session, as tests see it."""

    def __init__(self, log: Path, jars: Sequence[Path] = ()) -> None:
        self._log = log
        options = f"--jars {','.join(map(str, jars))} " if jars else ""
        with log.open("wb") as stderr:
            self._process = subprocess.Popen(
                [sys.executable, __file__],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stderr,
                env=os.environ
                | {
                    "PYSPARK_PYTHON": sys.executable,
                    "SPARK_LOCAL_IP": "127.0.0.1",
                    "PYSPARK_SUBMIT_ARGS": f"{options}pyspark-shell",
                },
                start_new_session=True,
            )

    def run(self, code: str, **variables: Any) -> Any:
        """Run code that sees ``spark`` and the variables, and give what it leaves in ``result``; errors as a text."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps([code, variables]).encode() + b"\n")
        self._process.stdin.flush()
        for line in self._process.stdout:
            if line.startswith(b"answer:"):
                return json.loads(line.removeprefix(b"answer:"))
        raise AssertionError(f"Spark died: {self._log.read_text(encoding='utf-8')[-3000:]}")

    def close(self) -> None:
        """End the session and everything that it started."""
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            pipe.close()
        try:
            self._process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()


def main() -> None:
    """The other side."""
    from pyspark.sql import SparkSession  # noqa: PLC0415  (only this process has a session)

    spark = SparkSession.builder.master("local[2]").config(map=CONFIG).getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    for line in sys.stdin:
        code, variables = json.loads(line)
        names = {"spark": spark, "json": json, "result": None, **variables}
        try:
            exec(code, names)  # noqa: S102  (that is what this process is for)
        except Exception as error:  # noqa: BLE001  (the test judges it)
            names["result"] = f"{type(error).__name__}: {error}"
            traceback.print_exc()
        print("answer:" + json.dumps(names["result"]), flush=True)
    spark.stop()


if __name__ == "__main__":
    main()
