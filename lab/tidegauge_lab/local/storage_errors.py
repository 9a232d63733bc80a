"""Errors of the disk beneath a cluster, as sentences."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from tidegauge.errors import ErrorCode, TidegaugeError


@contextlib.contextmanager
def reporting_storage(directory: Path, outcome: str) -> Iterator[None]:
    """Turn an error of the disk into a sentence that ends with the present state.

    Raises:
        TidegaugeError: KAFKA_STORAGE_ERROR.
    """
    try:
        yield
    except OSError as problem:
        raise TidegaugeError(
            ErrorCode.KAFKA_STORAGE_ERROR,
            f"{problem.filename or directory} can't be read or written: {problem.strerror or problem}; {outcome}",
        ) from None
