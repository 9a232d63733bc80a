"""A Spark session for the jobs of this folder, run by ``python`` or by ``spark-submit``.

Contract: the Python that runs the driver runs the workers. Without a master, from spark-submit or from ``--master``, a
job runs in local mode on two cores. Spark's log (WARN) goes to stderr; there is no web page, and progress is shown on
a terminal only. What a report says ends with one line of JSON on stdout.
"""

from __future__ import annotations

import json
import os
import re
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tidegauge_spark import register

SLOW_WORKER = "Python worker failed to connect back"
"""Spark's words for a Python worker that took more than 10 s to start; no setting changes that limit."""
STARTS = 6
"""How often a query is started where that happens each time."""
MASTER_HELP = "Spark master, for example local[4] or spark://host:7077 (default: spark-submit's, else local[2])"


def create_session(app_name: str, master: str | None = None, *, with_bar: bool = False) -> Any:
    """A quiet session that knows the format ``tidegauge``.

    Args:
        app_name: shown by Spark.
        master: any Spark master; None: what spark-submit says, else ``local[2]``.
        with_bar: show Spark's progress bar on stderr.
    """
    # Workers and planners run the interpreter that these name, not this one.
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    warnings.filterwarnings("ignore", message="PySpark does not yet fully support pandas", category=FutureWarning)
    from pyspark.sql import SparkSession  # noqa: PLC0415  (after the environment is set)

    builder = SparkSession.builder.appName(app_name)
    submitted = _submitted_master()
    where = master or submitted or "local[2]"
    if where != submitted:
        builder = builder.master(where)
    if where.startswith("local"):
        builder = builder.config("spark.driver.host", "127.0.0.1").config("spark.driver.bindAddress", "127.0.0.1")
    quiet: dict[str, Any] = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": str(with_bar).lower(),
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    }
    spark = builder.config(map=quiet).getOrCreate()
    spark.sparkContext.setLogLevel("WARN")
    register(spark)
    return spark


def _submitted_master() -> str | None:
    """The master that spark-submit was given or decided on; None when it does not run this."""
    if "PYSPARK_GATEWAY_PORT" not in os.environ:
        return None
    from pyspark import SparkConf, SparkContext  # noqa: PLC0415  (after the environment is set)

    # Without its JVM a SparkConf is empty: what spark-submit says lies there.
    SparkContext._ensure_initialized()  # noqa: SLF001  (there is no public way before a session)
    master = SparkConf().get("spark.master")
    return None if master is None else str(master)


def on_terminal() -> bool:
    """Whether somebody looks at stderr; under spark-submit, which reads ours, at that of spark-submit."""
    if sys.stderr.isatty():
        return True
    if "PYSPARK_GATEWAY_PORT" not in os.environ:
        return False
    try:
        return str(Path(f"/proc/{os.getppid()}/fd/2").readlink()).startswith(("/dev/pts/", "/dev/tty"))
    except OSError:  # no /proc
        return False


def patiently(job: str, run: Callable[[], None]) -> None:
    """Run a query, and again where Spark gave up on a Python worker that was slow to start, as on a busy machine.

    Nothing was read then, and from its checkpoint a query goes on as after a kill.

    Raises:
        Exception: what ``run`` raises for any other reason, or for this one for the sixth time.
    """
    for start in range(1, STARTS + 1):
        try:
            return run()
        except Exception as error:
            if SLOW_WORKER not in str(error) or start == STARTS:
                raise
        print(f"{job}: a Python worker of Spark's was too slow to start; once more ({start})", file=sys.stderr)
    return None


Report = dict[str, Any]


def run_report(
    job: str, master: str | None, make: Callable[[Callable[[], Any]], Report], text_of: Callable[[Report], str]
) -> Report | None:
    """Run a job that ends with a report: its text, and as the last line its document with the seconds it took.

    Args:
        job: its name, before the sentence about a failure and within the name that Spark shows.
        master: as of ``create_session``.
        make: makes the report; is given what starts the session, so that mistakes need not wait for a JVM.
        text_of: the report for people.

    Returns:
        The report; None if the job failed, which stderr says.
    """
    started = time.monotonic()
    sessions: list[Any] = []

    def start() -> Any:
        sessions.append(create_session(f"tidegauge-{job.replace('_', '-')}", master, with_bar=on_terminal()))
        return sessions[0]

    try:
        report = make(start)
    except Exception as error:  # noqa: BLE001  (one sentence, never a traceback; Spark's log has the rest)
        print(f"{job}: {sentence(error)}", file=sys.stderr)
        return None
    finally:
        for spark in sessions:
            spark.stop()
    print(text_of(report))
    print(json.dumps(report | {"seconds": round(time.monotonic() - started, 3)}), flush=True)
    return report


def sentence(error: BaseException) -> str:
    """What to tell people about a failure: the cause's own sentence, not the stack around it."""
    text = str(error)
    ours = re.findall(r"TidegaugeError: (.+)", text)
    return str(ours[-1]) if ours else text.strip().split("\n", 1)[0] or type(error).__name__
