"""Files that are replaced as a whole, and the operating system's errors about a file: which it is, and whether the disk
is the reason.
"""

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


def replace_text(path: Path, text: str, mode: int | None = None) -> None:
    """Write a file beside the one that is replaced, then put it in its place: readers see the old text or the new one.

    Args:
        path: the file.
        text: all of it, written in UTF-8.
        mode: its permissions, from before anything is in it; None: as the system gives them.

    Raises:
        OSError: it can't be written; it has a ``filename``.
    """
    temporary = path.with_suffix(".tmp")
    with naming(path):
        if mode is not None:
            temporary.touch(mode)
            temporary.chmod(mode)
        temporary.write_text(text, encoding="utf-8")
        temporary.replace(path)


def unusable(problem: OSError) -> str:
    """Return which file can't be read or written and why, as the begin of a sentence."""
    return f"{problem.filename or 'a file of the cluster'} can't be read or written: {problem.strerror}"


def is_of_a_disk(problem: OSError) -> bool:
    """Return whether the disk is full, over its quota, read-only, or fails."""
    return problem.errno in _OF_A_DISK
