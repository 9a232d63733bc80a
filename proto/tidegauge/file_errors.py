"""Errors of the operating system about a file: which file it is, and whether the disk is the reason."""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Iterator
from pathlib import Path

_OF_A_DISK = {errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO}


@contextlib.contextmanager
def naming(path: Path) -> Iterator[None]:
    """Name a file in an error that names none: a write to a full disk does not say where it failed, an open does.

    Args:
        path: what is being written.

    Raises:
        OSError: that of the block, with a ``filename``.
    """
    try:
        yield
    except OSError as problem:
        if problem.filename is None:
            problem.filename = str(path)
        raise


def is_of_a_disk(problem: OSError) -> bool:
    """Return whether the disk is full, over its quota, read-only, or fails."""
    return problem.errno in _OF_A_DISK
