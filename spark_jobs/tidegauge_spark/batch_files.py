"""A directory of Parquet files that holds each batch of a query exactly once, for any reader, at any moment.

Contract: one batch is one file, ``part-<batch>-0.parquet``, that appears by one rename. So a reader sees a complete
batch or nothing of it, and a batch that is run again after a kill replaces the file of its earlier attempt. The rows
are the same both times: a batch's offsets are fixed in the checkpoint before it runs.

- While a batch is written it is in ``_staging``, a name that every reader of Parquet directories skips. Each attempt
  has a directory of its own, so that tasks of a killed driver that still run cannot mix with those of the next one.
- ``_query.json`` names the query (the checkpoint) that owns the directory: batch numbers of another one would replace
  files of this one, so it is rejected.
- A lock is held while a job writes here.
- No file is empty: a batch without records leaves none.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import time
import uuid
from collections.abc import Callable
from pathlib import Path

from tidegauge.errors import ErrorCode, TidegaugeError

STAGING = "_staging"
OWNER = "_query.json"
LOCK = "_lock"
LOCK_PATIENCE_S = 10.0


def file_name(batch_id: int) -> str:
    """Return the name of a batch's file; zero-padded so that names sort as batches do."""
    return f"part-{batch_id:08d}-0.parquet"


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _is_hidden(path: Path, inside: Path) -> bool:
    return path.relative_to(inside).parts[0].startswith(("_", "."))


def check_directories(output: Path, checkpoint: Path) -> None:
    """Reject directories of which one would spoil the other.

    Raises:
        TidegaugeError: INVALID_REQUEST.
    """
    if output == checkpoint or checkpoint in output.parents:
        raise TidegaugeError(ErrorCode.INVALID_REQUEST, f"--output {output} is inside --checkpoint {checkpoint}")
    if output in checkpoint.parents and not _is_hidden(checkpoint, output):
        raise TidegaugeError(
            ErrorCode.INVALID_REQUEST,
            f"--checkpoint {checkpoint} is inside --output {output}, where readers would take it for data; "
            f"choose another directory, or one named {output}/_checkpoint",
        )


class BatchFiles:
    """The output directory of one query."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._lock: int | None = None

    def file_of(self, batch_id: int) -> Path:
        """Return a batch's file, if it has any records."""
        return self.directory / file_name(batch_id)

    def open(self, query_id: str | None, *, patience_s: float = LOCK_PATIENCE_S) -> None:
        """Lock the directory, check that the query may write here, and delete what killed attempts left.

        Args:
            query_id: from the checkpoint; None if the query is new.
            patience_s: how long to wait for a job that is just ending.

        Raises:
            TidegaugeError: another job writes here, or the directory belongs to another query.
        """
        self.directory.mkdir(parents=True, exist_ok=True)
        self._acquire(patience_s)
        try:
            self._check_owner(query_id)
        except TidegaugeError:
            self.close()
            raise
        shutil.rmtree(self.directory / STAGING, ignore_errors=True)

    def _check_owner(self, query_id: str | None) -> None:
        owner = self._owner()
        if owner is None and any(self.directory.glob("*.parquet")):
            raise TidegaugeError(
                ErrorCode.INVALID_REQUEST,
                f"{self.directory} holds Parquet files that this job did not write; choose an empty directory for "
                "--output",
            )
        if owner is not None and owner != query_id:
            raise TidegaugeError(
                ErrorCode.INVALID_REQUEST,
                f"{self.directory} was written with another checkpoint (query {owner}), so the same records would be "
                "there twice. Give its --checkpoint, or choose an empty directory for --output",
            )

    def close(self) -> None:
        """Delete incomplete files and unlock the directory."""
        if self._lock is not None:
            shutil.rmtree(self.directory / STAGING, ignore_errors=True)
            os.close(self._lock)
            self._lock = None

    def own(self, query_id: str) -> None:
        """Record which query owns the directory, before its first batch is written."""
        if self._owner() == query_id:
            return
        new = self.directory / f"{OWNER}.new"
        new.write_text(json.dumps({"query_id": query_id}) + "\n", encoding="utf-8")
        _sync(new)
        new.replace(self.directory / OWNER)
        _sync(self.directory)

    def write(self, batch_id: int, write_parquet: Callable[[str], None], count_rows: Callable[[Path], int]) -> int:
        """Write a batch and let it appear, in place of what an earlier attempt left.

        Args:
            batch_id: number of the batch.
            write_parquet: writes all records as at most one Parquet file into the directory of that name.
            count_rows: returns the rows of a Parquet file.

        Returns:
            The number of its records.
        """
        staging = self.directory / STAGING / f"{batch_id}-{os.getpid()}-{uuid.uuid4().hex[:8]}"
        staging.parent.mkdir(exist_ok=True)
        write_parquet(str(staging))
        files = sorted(staging.glob("*.parquet"))
        assert len(files) <= 1, f"one batch is one file, found {files}"
        rows = count_rows(files[0]) if files else 0
        target = self.file_of(batch_id)
        if rows:
            _sync(files[0])
            files[0].replace(target)
        else:
            target.unlink(missing_ok=True)
        _sync(self.directory)
        shutil.rmtree(self.directory / STAGING, ignore_errors=True)
        return rows

    def _owner(self) -> str | None:
        try:
            return str(json.loads((self.directory / OWNER).read_text(encoding="utf-8"))["query_id"])
        except FileNotFoundError:
            return None

    def _acquire(self, patience_s: float) -> None:
        descriptor = os.open(self.directory / LOCK, os.O_RDWR | os.O_CREAT, 0o644)
        deadline = time.monotonic() + patience_s
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() >= deadline:
                    os.close(descriptor)
                    raise TidegaugeError(
                        ErrorCode.INVALID_REQUEST, f"Another job is writing to {self.directory}; stop it first"
                    ) from None
                time.sleep(0.1)
        os.ftruncate(descriptor, 0)
        os.write(descriptor, f"{os.getpid()}\n".encode())
        self._lock = descriptor
