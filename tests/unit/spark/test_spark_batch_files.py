"""Exactly once in the output directory, whatever dies when: BatchFiles and what it reads from a checkpoint."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tidegauge.errors import TidegaugeError
from tidegauge_spark.batch_files import BatchFiles, check_directories
from tidegauge_spark.checkpoint import Checkpoint, parse_offset_log


def writer(content: str, *, die_after: bool = False) -> Callable[[str], None]:
    """Writes as Spark does: a file of some name, and files that are no data."""

    def write(directory: str) -> None:
        path = Path(directory)
        path.mkdir(parents=True)
        (path / "part-00000-some-id-c000.snappy.parquet").write_text(content, encoding="utf-8")
        (path / "_SUCCESS").touch()
        (path / ".part-00000-some-id-c000.snappy.parquet.crc").touch()
        if die_after:
            raise KeyboardInterrupt

    return write


def rows(file: Path) -> int:
    return len(file.read_text(encoding="utf-8").split())


def seen(directory: Path) -> dict[str, str]:
    """What a reader of the directory sees: names that begin with _ or . are skipped, at any depth."""
    files = [one for one in directory.rglob("*") if one.is_file()]
    visible = [one for one in files if not any(part[0] in "_." for part in one.relative_to(directory).parts)]
    return {one.name: one.read_text(encoding="utf-8") for one in visible}


@pytest.fixture
def output(tmp_path: Path) -> Iterator[BatchFiles]:
    files = BatchFiles(tmp_path / "output")
    files.open(None)
    files.own("q1")
    yield files
    files.close()


def test_a_batch_is_one_file(output: BatchFiles) -> None:
    assert output.write(0, writer("a b c"), rows) == 3
    assert output.write(12, writer("d"), rows) == 1
    assert seen(output.directory) == {"part-00000000-0.parquet": "a b c", "part-00000012-0.parquet": "d"}


def test_a_batch_that_runs_again_replaces_its_file(output: BatchFiles) -> None:
    """Killed between the rename and Spark's commit: the same batch comes again."""
    output.write(0, writer("a b"), rows)
    output.write(0, writer("a b"), rows)
    assert seen(output.directory) == {"part-00000000-0.parquet": "a b"}


def test_a_killed_attempt_is_invisible_and_cleared_by_the_next_start(output: BatchFiles) -> None:
    with pytest.raises(KeyboardInterrupt):
        output.write(0, writer("a", die_after=True), rows)
    assert seen(output.directory) == {}
    output.close()
    output.open("q1")
    assert not list(output.directory.rglob("*.parquet"))
    output.write(0, writer("a b"), rows)
    assert seen(output.directory) == {"part-00000000-0.parquet": "a b"}


def test_an_empty_batch_leaves_no_file(output: BatchFiles) -> None:
    assert output.write(0, writer(""), rows) == 0
    assert output.write(1, lambda directory: Path(directory).mkdir(), rows) == 0
    assert seen(output.directory) == {}


def test_a_directory_of_another_query_is_refused(output: BatchFiles) -> None:
    """A lost checkpoint starts at batch 0 again and would mix with what lies there."""
    output.write(0, writer("a"), rows)
    output.close()
    for other in (None, "q2"):
        with pytest.raises(TidegaugeError, match="written with another checkpoint"):
            BatchFiles(output.directory).open(other)
    output.open("q1")


def test_a_directory_with_foreign_parquet_is_refused(tmp_path: Path) -> None:
    (tmp_path / "other.parquet").touch()
    with pytest.raises(TidegaugeError, match="did not write"):
        BatchFiles(tmp_path).open(None)


def test_two_jobs_do_not_share_a_directory(output: BatchFiles) -> None:
    with pytest.raises(TidegaugeError, match="Another job is writing"):
        BatchFiles(output.directory).open("q1", patience_s=0)


@pytest.mark.parametrize(
    ("output", "checkpoint", "fine"),
    [
        ("/d/out", "/d/checkpoint", True),
        ("/d/out", "/d/out/_checkpoint", True),
        ("/d/out", "/d/out/checkpoint", False),
        ("/d/out", "/d/out", False),
        ("/d/checkpoint/out", "/d/checkpoint", False),
    ],
)
def test_the_two_directories_do_not_spoil_each_other(output: str, checkpoint: str, fine: bool) -> None:
    if fine:
        check_directories(Path(output), Path(checkpoint))
    else:
        with pytest.raises(TidegaugeError, match="is inside"):
            check_directories(Path(output), Path(checkpoint))


def test_checkpoint(tmp_path: Path) -> None:
    checkpoint = Checkpoint(tmp_path)
    assert (checkpoint.query_id(), checkpoint.end_offsets(0), checkpoint.last_committed()) == (None, None, None)
    (tmp_path / "metadata").write_text('{"id":"abc"}')
    for directory in ("offsets", "commits"):
        (tmp_path / directory).mkdir()
    (tmp_path / "offsets" / "10").write_text('v1\n{"batchWatermarkMs":0}\n{"t": {"0": 5}}')
    for name in ("9", "10", ".10.crc"):
        (tmp_path / "commits" / name).write_text("v1\n{}")
    assert checkpoint.query_id() == "abc"
    assert checkpoint.end_offsets(10) == {"t": {"0": 5}}
    assert checkpoint.last_committed() == 10
    assert checkpoint.is_committed(9)
    assert not checkpoint.is_committed(11)
    assert parse_offset_log("v1\n{}\n-") is None
    assert parse_offset_log("") is None
