"""Files that are replaced as a whole or read with a limit, and the operating system's errors about a file: which it is,
and whether the disk is the reason.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

MOST_JSON_BYTES = 16 * 1024 * 1024
"""Maximum size of a JSON file in a cluster's directory; the largest that a lab writes is some kilobytes."""
_OF_A_DISK = {errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO}


@contextlib.contextmanager
def naming(path: Path) -> Iterator[None]:
    """Name the file in an error that has no name: an open names its file, a write to a full disk does not.

    Args:
        path: the file that the block writes.

    Raises:
        OSError: the block's, with a ``filename``.
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
        if temporary.is_symlink():  # a copied directory may hold one, which leads to another file
            temporary.unlink()
        if mode is not None:
            temporary.touch(mode)
            temporary.chmod(mode)
        temporary.write_text(text, encoding="utf-8")
        temporary.replace(path)


def read_json(path: Path, most_bytes: int = MOST_JSON_BYTES) -> Any:
    """Read a JSON file that a stranger may have written: bounded in size, and a regular file.

    Args:
        path: the file.
        most_bytes: its maximum size.

    Returns:
        The value in it; NaN and Infinity, which are no JSON (RFC 8259, section 6), are refused.

    Raises:
        OSError: it can't be read; FileNotFoundError if there is none.
        ValueError: it is no regular file, too large, not UTF-8, or no JSON.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)  # a FIFO would block the open
    with os.fdopen(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise ValueError("it is no regular file")
        data = file.read(most_bytes + 1)
    if len(data) > most_bytes:
        raise ValueError(f"it is larger than {most_bytes} bytes")
    try:
        return json.loads(data.decode("utf-8"), parse_constant=_no_constant)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def _no_constant(text: str) -> float:
    raise ValueError(f"{text} is no JSON")


def unusable(problem: OSError) -> str:
    """Return an error's file and reason, as the beginning of a sentence."""
    return f"{problem.filename or 'a file of the cluster'} can't be read or written: {problem.strerror}"


def is_of_a_disk(problem: OSError) -> bool:
    """Return whether the disk is full, over its quota, read-only, or fails."""
    return problem.errno in _OF_A_DISK
