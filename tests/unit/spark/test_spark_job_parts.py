"""The job without Spark: what is counted and noted when, when a stop may happen, and how failures are reported."""

from __future__ import annotations

import importlib.util
import json
from datetime import UTC, datetime
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark import accumulators

from tidegauge_spark.batch_files import BatchFiles
from tidegauge_spark.checkpoint import Checkpoint
from tidegauge_spark.job_session import (
    DEAD_WORKER,
    SLOW_WORKER,
    STARTS,
    end_session,
    leave_dead_jvm_to_us,
    patiently,
)

SOURCE = Path(__file__).parents[3] / "spark_jobs" / "consume_committed.py"


@pytest.fixture(scope="module")
def job() -> ModuleType:
    spec = importlib.util.spec_from_file_location("consume_committed", SOURCE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Row(NamedTuple):
    """A row of the source."""

    key: bytes | None
    value: bytes | bytearray | None
    topic: str
    partition: int
    offset: int
    timestamp: datetime


class Frame:
    """As much of a DataFrame as the job uses."""

    def __init__(self, rows: int, before_write: Any = None) -> None:
        self._rows = rows
        self._before_write = before_write or (lambda: None)
        self.write = self

    def repartition(self, count: int) -> Frame:
        assert count == 1
        return self

    def sortWithinPartitions(self, *columns: str) -> Frame:  # noqa: N802
        assert columns == ("topic", "partition", "offset")
        return self

    def mode(self, name: str) -> Frame:
        return self

    def parquet(self, directory: str) -> None:
        self._before_write()
        Path(directory).mkdir(parents=True)
        pq.write_table(pa.table({"n": list(range(self._rows))}), f"{directory}/part-00000.parquet")


class Spark:
    """A checkpoint as Spark writes it."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        for name in ("offsets", "commits"):
            (directory / name).mkdir(parents=True)
        (directory / "metadata").write_text('{"id": "q"}')

    def plan(self, batch_id: int, end: int) -> None:
        (self.directory / "offsets" / str(batch_id)).write_text(f'v1\n{{}}\n{{"t": {{"0": {end}}}}}')

    def commit(self, batch_id: int) -> None:
        (self.directory / "commits" / str(batch_id)).write_text("v1\n{}")


@pytest.fixture
def spark(tmp_path: Path) -> Spark:
    return Spark(tmp_path / "checkpoint")


def make(job: ModuleType, spark: Spark) -> Any:
    files = BatchFiles(spark.directory.parent / "output")
    files.directory.mkdir(exist_ok=True)
    return job.Consumer(files, Checkpoint(spark.directory), spark.directory.parent / "progress")


def noted(spark: Spark) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (spark.directory.parent / "progress").read_text().splitlines()]


def test_a_batch_counts_once_spark_has_committed_it(job: ModuleType, spark: Spark) -> None:
    consumer = make(job, spark)
    spark.plan(0, 7)
    consumer.write_batch(Frame(7), 0)
    consumer.note_committed()
    assert (consumer.batches, consumer.rows, consumer.end_offsets) == (0, 0, {})
    spark.commit(0)
    consumer.note_committed()
    assert (consumer.batches, consumer.rows, consumer.end_offsets) == (1, 7, {"t": {"0": 7}})
    assert noted(spark) == [{"batch_id": 0, "rows": 7, "end_offsets": {"t": {"0": 7}}}]


def test_a_batch_that_was_committed_just_before_a_kill_is_noted_by_the_next_run(job: ModuleType, spark: Spark) -> None:
    consumer = make(job, spark)
    for batch_id in range(3):
        spark.plan(batch_id, batch_id * 10 + 10)
        consumer.write_batch(Frame(10), batch_id)
        spark.commit(batch_id)
        if batch_id == 0:
            consumer.note_committed()
    again = make(job, spark)
    assert [line["batch_id"] for line in noted(spark)] == [0, 1, 2]
    assert [line["rows"] for line in noted(spark)] == [10, 10, 10]
    assert (again.batches, again.rows, again.end_offsets) == (0, 0, {"t": {"0": 30}})


def test_a_stop_falls_between_two_batches(job: ModuleType, spark: Spark) -> None:
    """SIGTERM ends after the running batch: not while one is written, not before Spark has committed it."""
    consumer = make(job, spark)
    spark.plan(0, 1)
    during: list[bool] = []
    consumer.write_batch(Frame(1, before_write=lambda: during.append(consumer.close(at_once=True))), 0)
    assert during == [False]
    assert not consumer.close(at_once=False)
    spark.commit(0)
    consumer.note_committed()
    assert consumer.close(at_once=False)
    with pytest.raises(RuntimeError, match="the next start runs it"):
        consumer.write_batch(Frame(1), 1)
    assert not list(spark.directory.parent.glob("output/part-00000001*"))


def test_a_failure_is_reported_by_its_cause(job: ModuleType) -> None:
    text = "[STREAM_FAILED] Query terminated\n  File x\ntidegauge.errors.TidegaugeError: CODE (3): the cause\n more"
    assert job.sentence(RuntimeError(text)) == "CODE (3): the cause"
    assert job.sentence(RuntimeError("one line\nstack")) == "one line"
    assert job.sentence(RuntimeError()) == "RuntimeError"


@pytest.mark.parametrize(
    ("error", "reported"),
    [
        (RuntimeError(f"[STREAM_FAILED] terminated: {SLOW_WORKER}.\nstack"), "the machine is too busy"),
        (RuntimeError(f"Job aborted: {DEAD_WORKER} (crashed)\nstack"), "A Python worker of Spark's died"),
        (
            RuntimeError("Query [x] terminated with exception: Connection reset SQLSTATE: XXKST"),
            "plans Spark's batches",
        ),
        (RuntimeError("Query [x] terminated with exception:  SQLSTATE: XXKST"), "that plans Spark's batches died"),
        (ConnectionRefusedError(111, "Connection refused"), "Spark's Java process is dead"),
    ],
)
def test_what_becomes_of_sparks_processes_is_reported_with_what_to_do(
    job: ModuleType, error: Exception, reported: str
) -> None:
    assert reported in job.sentence(error)
    assert "again" in job.sentence(error)


def test_a_session_whose_java_process_is_dead_ends_without_a_word() -> None:
    def stop(error: Exception) -> Any:
        class Session:
            def stop(self) -> None:
                raise error

        return Session()

    end_session(stop(ConnectionRefusedError()))
    with pytest.raises(ValueError, match="else"):
        end_session(stop(ValueError("something else")))


def test_pyspark_shows_no_traceback_of_a_dead_java_process(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its accumulators' server prints one for a connection that broke; what matters reaches the job as an error."""
    for server in (accumulators.AccumulatorTCPServer, accumulators.AccumulatorUnixServer):
        monkeypatch.setattr(server, "handle_error", server.handle_error)
    leave_dead_jvm_to_us()
    for server in (accumulators.AccumulatorTCPServer, accumulators.AccumulatorUnixServer):
        try:
            raise ConnectionResetError
        except ConnectionResetError:
            server.handle_error(None, None, ("127.0.0.1", 1))
    assert capsys.readouterr().err == ""


def test_a_batch_that_is_run_again_after_a_restart_of_the_query_counts_once(job: ModuleType, spark: Spark) -> None:
    consumer = make(job, spark)
    spark.plan(0, 7)
    consumer.write_batch(Frame(7), 0)
    consumer.write_batch(Frame(7), 0)
    spark.commit(0)
    consumer.note_committed()
    assert (consumer.batches, consumer.rows) == (1, 7)


@pytest.mark.parametrize(("available_now", "asked_to_stop"), [(False, False), (True, False), (False, True)])
def test_a_query_that_ends_without_a_word_is_a_failure(
    job: ModuleType, spark: Spark, available_now: bool, asked_to_stop: bool
) -> None:
    class Query:
        """A stream that ends by itself, and everything that leads to it."""

        def __getattr__(self, name: str) -> Any:
            return self if name in {"readStream", "writeStream"} else lambda *_, **__: self

        def awaitTermination(self, seconds: float) -> bool:  # noqa: N802
            return seconds > 0

    command = ["-b", "127.0.0.1:1", "--topic", "t", "--console", "--checkpoint", "c"]
    arguments = job.parse_arguments([*command, *(["--available-now"] if available_now else [])])
    stop = job.StopRequest()
    stop.signal_number = 15 if asked_to_stop else None
    if available_now or asked_to_stop:
        job.run(arguments, Query(), make(job, spark), stop)
        return
    with pytest.raises(RuntimeError, match="Run the job again"):
        job.run(arguments, Query(), make(job, spark), stop)


def test_a_worker_that_was_slow_to_start_is_no_failure() -> None:
    """Spark gives Python workers 10 s and has no setting for it; anything else ends the query at once."""
    fates: list[str] = []
    done = [0]

    def run() -> None:
        if fates:
            raise RuntimeError(fates.pop())

    def run_a_batch() -> None:
        done[0] += 1
        run()

    slow = f"[STREAM_FAILED] Query terminated with exception: {SLOW_WORKER}."
    fates[:] = [slow] * (STARTS - 1)
    patiently("job", run)
    assert not fates
    fates[:] = [slow] * (STARTS + 1)
    with pytest.raises(RuntimeError, match="connect back"):
        patiently("job", run)
    assert len(fates) == 1
    fates[:] = [slow, f"{DEAD_WORKER} (crashed)"] * STARTS
    patiently("job", run_a_batch, lambda: done[0])
    assert not fates, "a query that gets on has all the patience again"
    fates[:] = [slow, "data loss"]
    with pytest.raises(RuntimeError, match="data loss"):
        patiently("job", run)
    assert fates == [slow]


def test_records_are_printed_with_tabs(job: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    """--console: null as null, bytes that are no UTF-8 escaped."""

    class Rows:
        def toLocalIterator(self) -> list[Row]:  # noqa: N802  (Spark's name)
            at = datetime(2026, 1, 2, 3, 4, 5, 678_000, tzinfo=UTC)
            return [Row(None, bytearray(b"v\xff"), "orders", 1, 7, at), Row(b"k", b"", "orders", 2, 0, at)]

    assert job.print_records(Rows()) == 2
    at = "2026-01-02T03:04:05.678000+00:00"
    assert capsys.readouterr().out == f"orders-1\t7\t{at}\tnull\tv\\xff\norders-2\t0\t{at}\tk\t\n"


def test_output_and_console_exclude_each_other(job: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    common = ["--bootstrap-server", "h:1", "--topic", "t", "--checkpoint", "c"]
    for more in ([], ["--console", "--output", "o"]):
        with pytest.raises(SystemExit) as ended:
            job.parse_arguments([*common, *more])
        assert ended.value.code == 2
    assert job.parse_arguments([*common, "--console"]).output is None
    assert "--console" in capsys.readouterr().err
