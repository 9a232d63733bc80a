"""A Spark session for the jobs in this directory, run by ``python`` or by ``spark-submit``.

Contract: the Python that runs the driver runs the workers; ``tidegauge.java`` chooses the Java. Without a master, from
spark-submit or from ``--master``, a job runs in local mode on two cores. Spark's log (WARN) goes to stderr; there is no
web page, and progress is shown on a terminal only. A report's stdout ends with one line of JSON.
"""

from __future__ import annotations

import json
import logging
import os
import re
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from tidegauge.java import java_home
from tidegauge_spark import register

SLOW_WORKER = "Python worker failed to connect back"
"""Spark's message about a Python worker that took more than 10 s to start; no setting changes that limit."""
DEAD_WORKER = "Python worker exited unexpectedly"
"""Spark's message about a Python worker that was killed while it ran a task."""
DEAD_PLANNER = "terminated with exception: *(SQLSTATE|null|Connection reset|Broken pipe|Socket closed|.*EOFException)"
"""A pattern of Spark's messages about a Python worker that was killed while it planned a stream."""
STARTS = 6
"""Maximum number of starts of a query that makes no progress because of its Python workers."""
ADVICE = {
    SLOW_WORKER: "A Python worker of Spark's took more than ten seconds to start, and Spark gave up on it: the machine "
    "is too busy. Nothing was read. Run the job again when there is less to do, or on one core (--master 'local[1]')",
    DEAD_WORKER: "A Python worker of Spark's died: it was killed, or the machine has too little memory. Run the job "
    "again",
    DEAD_PLANNER: "The Python process that plans Spark's batches died: it was killed, or the machine has too little "
    "memory. Run the job again",
}
"""What to do about each end of a Python worker."""
JVM_DEAD = (
    "Spark's Java process is dead: it was killed, or the machine has too little memory (spark.driver.memory says how "
    "much it may take). Run the job again; a query continues from its checkpoint"
)
JVM_ERRORS = {"Py4JNetworkError", "ConnectionRefusedError", "ConnectionResetError", "BrokenPipeError"}
"""Exceptions of py4j when its peer is dead."""
Result = TypeVar("Result")
MASTER_HELP = "Spark master, for example local[4] or spark://host:7077 (default: spark-submit's, else local[2])"


def create_session(app_name: str, master: str | None = None, *, with_bar: bool = False) -> Any:
    """Return a quiet session that knows the format ``tidegauge``.

    Args:
        app_name: shown by Spark.
        master: any Spark master; None: what spark-submit says, else ``local[2]``.
        with_bar: show Spark's progress bar on stderr.

    Raises:
        TidegaugeError: INVALID_REQUEST, there is no Java.
    """
    if "PYSPARK_GATEWAY_PORT" not in os.environ:  # else spark-submit has started Java
        os.environ["JAVA_HOME"] = str(java_home())
    # Workers and planners run the interpreter that these name, not this one.
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    warnings.filterwarnings("ignore", message="PySpark does not yet fully support pandas", category=FutureWarning)
    leave_dead_jvm_to_us()
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


def leave_dead_jvm_to_us() -> None:
    """Silence the tracebacks of py4j and PySpark's accumulators about a dead Java process, which is reported anyway."""
    from pyspark import accumulators  # noqa: PLC0415  (after the environment is set)

    def handle_error(_server: Any, _request: Any, _client_address: Any) -> None:
        logging.getLogger(__name__).debug("PySpark's accumulators", exc_info=sys.exc_info())

    logging.getLogger("py4j").setLevel(logging.CRITICAL)
    for name in ("AccumulatorTCPServer", "AccumulatorUnixServer"):
        if hasattr(accumulators, name):
            getattr(accumulators, name).handle_error = handle_error


def _submitted_master() -> str | None:
    """Return the master that spark-submit was given or decided on; None when it does not run this."""
    if "PYSPARK_GATEWAY_PORT" not in os.environ:
        return None
    from pyspark import SparkConf, SparkContext  # noqa: PLC0415  (after the environment is set)

    # Without its JVM a SparkConf is empty: spark-submit's settings are in its environment.
    SparkContext._ensure_initialized()  # noqa: SLF001  (there is no public way before a session)
    master = SparkConf().get("spark.master")
    return None if master is None else str(master)


def on_terminal() -> bool:
    """Return whether stderr is a terminal; under spark-submit, which reads it, whether spark-submit's is."""
    if sys.stderr.isatty():
        return True
    if "PYSPARK_GATEWAY_PORT" not in os.environ:
        return False
    try:
        return str(Path(f"/proc/{os.getppid()}/fd/2").readlink()).startswith(("/dev/pts/", "/dev/tty"))
    except OSError:  # no /proc
        return False


def patiently(job: str, run: Callable[[], Result], progress: Callable[[], int] = lambda: 0) -> Result:
    """Run a query, and again if a Python worker was slow to start, as on a busy machine, or died.

    A run that failed so is not lost: the query continues from its checkpoint, as after a kill.

    Args:
        job: its name.
        run: the query.
        progress: returns a number that grows with progress; when it has grown, the starts are counted from scratch.

    Raises:
        Exception: what ``run`` raises for any other reason, or for these ones six times without progress.
    """
    start, done = 1, progress()
    while True:
        try:
            return run()
        except Exception as error:
            reason = worker_trouble(error)
            if progress() > done:
                start, done = 1, progress()
            if reason is None or start == STARTS:
                raise
        what = "was too slow to start" if reason == SLOW_WORKER else "died"
        print(f"{job}: a Python worker of Spark's {what}; starting it again ({start})", file=sys.stderr)
        start += 1


def worker_trouble(error: BaseException) -> str | None:
    """Return which of Spark's messages about Python workers a failure contains; None if none."""
    text = str(error)
    return None if "TidegaugeError" in text else next((words for words in ADVICE if re.search(words, text)), None)


def end_session(spark: Any) -> None:
    """Stop the session; if its Java process is dead already, there is nothing left to stop."""
    try:
        spark.stop()
    except Exception as error:
        if type(error).__name__ not in JVM_ERRORS:
            raise


Report = dict[str, Any]


def run_report(
    job: str, master: str | None, make: Callable[[Callable[[], Any]], Report], text_of: Callable[[Report], str]
) -> Report | None:
    """Run a job that ends with a report: its text, and as the last line its document with the seconds it took.

    Args:
        job: its name, before the sentence about a failure and within the name that Spark shows.
        master: as of ``create_session``.
        make: makes the report; receives a function that starts the session, so that mistakes need not wait for a JVM.
        text_of: returns the report as text.

    Returns:
        The report; None if the job failed, with the reason on stderr.
    """
    started = time.monotonic()
    sessions: list[Any] = []

    def start() -> Any:
        if not sessions:
            sessions.append(create_session(f"tidegauge-{job.replace('_', '-')}", master, with_bar=on_terminal()))
        return sessions[0]

    try:
        report = patiently(job, lambda: make(start))
    except Exception as error:  # noqa: BLE001  (one sentence, never a traceback; Spark's log has the rest)
        print(f"{job}: {sentence(error)}", file=sys.stderr)
        return None
    finally:
        for spark in sessions:
            end_session(spark)
    print(text_of(report))
    print(json.dumps(report | {"seconds": round(time.monotonic() - started, 3)}), flush=True)
    return report


def sentence(error: BaseException) -> str:
    """Return the sentence about a failure: the cause's own, not the stack around it, and what to do."""
    text = str(error)
    ours = re.findall(r"TidegaugeError: (.+)", text)
    if ours:
        return str(ours[-1])
    if type(error).__name__ in JVM_ERRORS:
        return JVM_DEAD
    trouble = worker_trouble(error)
    return ADVICE[trouble] if trouble else text.strip().split("\n", 1)[0] or type(error).__name__
