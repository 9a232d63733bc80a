"""Consume the committed log with Spark Structured Streaming and write it as Parquet, every record exactly once.

    python spark_jobs/consume_committed.py --bootstrap-server 127.0.0.1:19092 --topic orders --output out --checkpoint c

Contract: runs by ``python`` and by ``spark-submit``; starts at earliest; --output holds only Parquet files and names
that begin with ``_`` or ``.``, with each record once for any reader, also after kill -9 at any moment (see
``tidegauge_spark.batch_files``). SIGTERM and Ctrl-C end it after the running batch, with 0 and 130. The last line of
stdout is ``{"batches", "rows", "end_offsets", "seconds"}`` of this run; Spark's log (WARN) goes to stderr. With
--console the records are printed instead, a line each; a batch that a killed run had printed is printed again. With
--progress-file a line ``{"batch_id", "rows", "end_offsets"}`` is appended for each batch once Spark has committed it.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from tidegauge.counted import counted
from tidegauge_spark.batch_files import BatchFiles, check_directories
from tidegauge_spark.checkpoint import Checkpoint
from tidegauge_spark.job_session import MASTER_HELP, create_session, end_session, on_terminal, patiently, sentence
from tidegauge_spark.offsets import OffsetsJson
from tidegauge_spark.options import parse_options

POLL_S = 0.1
COMMIT_PATIENCE_S = 10.0
"""How long SIGTERM waits for Spark to commit a batch that is written."""


def parse_arguments(arguments: Sequence[str]) -> argparse.Namespace:
    """Read the command line; exit with 2 on a mistake."""
    parser = argparse.ArgumentParser(
        prog="consume_committed.py", description="Consume committed records with Spark into Parquet files."
    )
    add = parser.add_argument
    add("--bootstrap-server", "-b", required=True, metavar="HOST:PORT,...", help="bootstrap brokers")
    add("--topic", required=True, metavar="T,...", help="topics to read")
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument("--output", type=Path, metavar="DIR", help="directory for the Parquet files")
    where.add_argument(
        "--console", action="store_true", help="print the records instead; not exactly once after a kill"
    )
    add("--checkpoint", required=True, type=Path, metavar="DIR", help="directory for the query's checkpoint")
    add("--available-now", action="store_true", help="read what is committed now, then end")
    add("--starting-offsets", default="earliest", metavar="earliest|latest|JSON", help="where a new query begins")
    add(
        "--isolation-level",
        choices=["read_committed", "read_uncommitted"],
        default="read_uncommitted",
        help="read_committed: nothing of open and of aborted transactions",
    )
    add("--max-offsets-per-trigger", type=int, metavar="N", help="approximate number of records in a batch")
    add("--progress-file", type=Path, metavar="FILE", help="append a JSON line for each committed batch")
    add("--master", metavar="URL", help=MASTER_HELP)
    return parser.parse_args(arguments)


def source_options(arguments: argparse.Namespace) -> dict[str, str]:
    """Return the data source's options.

    Raises:
        TidegaugeError: one of them is wrong.
    """
    options = {
        "kafka.bootstrap.servers": arguments.bootstrap_server,
        "subscribe": arguments.topic,
        "startingOffsets": arguments.starting_offsets,
        "kafka.isolation.level": arguments.isolation_level,
    }
    if arguments.max_offsets_per_trigger is not None:
        options["maxOffsetsPerTrigger"] = str(arguments.max_offsets_per_trigger)
    parse_options(options, streaming=True)
    return options


class StopRequest:
    """Set by SIGTERM and SIGINT; a second SIGINT ends the process at once."""

    def __init__(self) -> None:
        self.signal_number: int | None = None

    def listen(self) -> None:
        """Handle this process's signals. PySpark sets its own SIGINT handler, so this is called after it too."""
        signal.signal(signal.SIGTERM, self._on_signal)
        signal.signal(signal.SIGINT, self._on_signal)

    def listen_in_jvm(self, spark: Any) -> None:
        """Handle SIGTERM of the JVM too: under spark-submit it is the JVM that users and process groups signal."""
        from pyspark.java_gateway import ensure_callback_server_started  # noqa: PLC0415  (environment comes first)

        ensure_callback_server_started(spark.sparkContext._gateway)  # noqa: SLF001  (foreachBatch does the same)
        jvm = spark.sparkContext._jvm  # noqa: SLF001  (there is no public way to the JVM)
        jvm.sun.misc.Signal.handle(jvm.sun.misc.Signal("TERM"), _JvmSignalHandler(self))

    def _on_signal(self, number: int, _frame: object) -> None:
        if number == signal.SIGINT and self.signal_number == signal.SIGINT:
            os._exit(130)
        self.signal_number = number

    def __bool__(self) -> bool:
        return self.signal_number is not None


class _JvmSignalHandler:
    """``sun.misc.SignalHandler`` for py4j."""

    def __init__(self, stop: StopRequest) -> None:
        self._stop = stop

    def handle(self, _signal: object) -> None:
        """Handle a signal; called by the JVM."""
        self._stop.signal_number = signal.SIGTERM

    class Java:
        """Interfaces that py4j reads."""

        implements = ("sun.misc.SignalHandler",)


class Batch(NamedTuple):
    """A batch in the output."""

    batch_id: int
    rows: int
    end_offsets: OffsetsJson


class Consumer:
    """One run: writes batches on Spark's callback thread, notes them on the main thread once they are committed."""

    def __init__(self, files: BatchFiles | None, checkpoint: Checkpoint, progress_file: Path | None) -> None:
        self._files = files
        self._checkpoint = checkpoint
        self._progress_file = progress_file
        self._written: list[Batch] = []
        self._lock = threading.Lock()
        self._closed = False
        self._writing = False
        self.batches = 0
        self.rows = 0
        last = checkpoint.last_committed()
        self.end_offsets: OffsetsJson = (checkpoint.end_offsets(last) or {}) if last is not None else {}
        self._note_what_a_killed_run_could_not(last)

    def write_batch(self, frame: Any, batch_id: int) -> None:
        """Write a batch; called by foreachBatch.

        Raises:
            RuntimeError: the query is being stopped; the batch is the first one of the next start.
        """
        with self._lock:
            if self._closed:
                raise RuntimeError(f"batch {batch_id} begins after the stop; the next start runs it")
            self._writing = True
        try:
            ordered = frame.repartition(1).sortWithinPartitions("topic", "partition", "offset")
            rows = print_records(ordered) if self._files is None else self._write_file(self._files, ordered, batch_id)
            # A query that is started again in this run may run its last batch again.
            self._written = [one for one in self._written if one.batch_id != batch_id]
            self._written.append(Batch(batch_id, rows, self._checkpoint.end_offsets(batch_id) or {}))
        finally:
            self._writing = False

    def _write_file(self, files: BatchFiles, ordered: Any, batch_id: int) -> int:
        query_id = self._checkpoint.query_id()
        assert query_id is not None, "Spark writes the query's id before its first batch"
        files.own(query_id)
        return files.write(batch_id, ordered.write.mode("overwrite").parquet, _count_rows)

    def note_committed(self) -> None:
        """Count the batches that Spark has committed, and note them in the progress file."""
        while self._written and self._checkpoint.is_committed(self._written[0].batch_id):
            batch = self._written.pop(0)
            self.batches += 1
            self.rows += batch.rows
            self.end_offsets = batch.end_offsets
            self._note(batch)
            if self._files is not None and on_terminal():
                print(f"batch {batch.batch_id}: {counted(batch.rows, 'record')}, {self.rows} in all", file=sys.stderr)

    def _note(self, batch: Batch) -> None:
        if self._progress_file is not None:
            with self._progress_file.open("a", encoding="utf-8") as file:
                file.write(json.dumps(batch._asdict()) + "\n")

    def _note_what_a_killed_run_could_not(self, last_committed: int | None) -> None:
        """Note batches that were committed just before a kill; those that Spark has forgotten stay without a line."""
        if self._progress_file is None or last_committed is None:
            return
        lines = self._progress_file.read_bytes().splitlines() if self._progress_file.exists() else []
        noted = int(json.loads(lines[-1])["batch_id"]) if lines else -1
        for batch_id in range(noted + 1, last_committed + 1):
            end_offsets = self._checkpoint.end_offsets(batch_id)
            if end_offsets is not None:
                file = None if self._files is None else self._files.file_of(batch_id)
                self._note(Batch(batch_id, _count_rows(file) if file and file.exists() else 0, end_offsets))

    def close(self, *, at_once: bool) -> bool:
        """Let no further batch begin, if this is a moment between two batches.

        Args:
            at_once: do not wait for Spark to commit what is written.
        """
        with self._lock:
            self._closed = not self._writing and (at_once or not self._written)
            return self._closed


def _count_rows(file: Path) -> int:
    from pyarrow.parquet import ParquetFile  # noqa: PLC0415  (slow to import; not for --help)

    with ParquetFile(file) as parquet:
        return int(parquet.metadata.num_rows)


def print_records(frame: Any) -> int:
    """Print a line for each record (position, time, key and value, tab-separated); return the number of records."""
    count = 0
    for row in frame.toLocalIterator():
        key, value = ("null" if one is None else bytes(one).decode("utf-8", "backslashreplace") for one in row[:2])
        print(f"{row.topic}-{row.partition}\t{row.offset}\t{row.timestamp.isoformat()}\t{key}\t{value}", flush=True)
        count += 1
    return count


def start_session(stop: StopRequest, master: str | None) -> Any:
    """Return a quiet session whose JVM forwards SIGTERM."""
    spark = create_session("tidegauge-consume-committed", master)
    stop.listen()
    stop.listen_in_jvm(spark)
    return spark


def run(arguments: argparse.Namespace, spark: Any, consumer: Consumer, stop: StopRequest) -> None:
    """Run the query until it ends or is asked to.

    Raises:
        Exception: what Spark raises when the query failed.
    """
    frame = spark.readStream.format("tidegauge").options(**source_options(arguments)).load()
    writer = frame.writeStream.foreachBatch(consumer.write_batch)
    writer = writer.option("checkpointLocation", str(arguments.checkpoint))
    if arguments.available_now:
        writer = writer.trigger(availableNow=True)
    query = writer.start()
    stop_by: float | None = None
    while not query.awaitTermination(POLL_S):
        consumer.note_committed()
        if not stop:
            continue
        stop_by = stop_by or time.monotonic() + COMMIT_PATIENCE_S
        if consumer.close(at_once=time.monotonic() >= stop_by):
            query.stop()
            break
    consumer.note_committed()
    if not arguments.available_now and not stop:
        raise RuntimeError(
            "Spark ended the query, and gave no reason. Run the job again: it continues from its checkpoint"
        )


def main(given: Sequence[str]) -> int:
    """Run the job; return the exit code."""
    assert __debug__, "the invariants are asserts: do not run with -O"
    started = time.monotonic()
    arguments = parse_arguments(given)
    arguments.checkpoint = arguments.checkpoint.resolve()
    stop = StopRequest()
    stop.listen()
    files = None if arguments.console else BatchFiles(arguments.output.resolve())
    checkpoint = Checkpoint(arguments.checkpoint)
    spark = None
    try:
        source_options(arguments)
        if files is not None:
            check_directories(arguments.output.resolve(), arguments.checkpoint)
            files.open(checkpoint.query_id())
        consumer = Consumer(files, checkpoint, arguments.progress_file)
        spark = start_session(stop, arguments.master)
        if not stop:
            patiently("consume_committed", lambda: run(arguments, spark, consumer, stop), lambda: consumer.batches)
    except Exception as error:  # noqa: BLE001  (one sentence, never a traceback; Spark's log has the rest)
        print(f"consume_committed: {sentence(error)}", file=sys.stderr)
        return 1
    finally:
        if spark is not None:
            end_session(spark)
        if files is not None:
            files.close()
    # After everything that may still write: under spark-submit the driver's stderr goes to stdout too.
    summary = {"batches": consumer.batches, "rows": consumer.rows, "end_offsets": consumer.end_offsets}
    print(json.dumps(summary | {"seconds": round(time.monotonic() - started, 3)}), flush=True)
    return 130 if stop.signal_number == signal.SIGINT else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
