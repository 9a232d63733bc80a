"""Files from package registries for benchmarks and tests: kept in a directory of the user's cache, fetched once.

``TIDEGAUGE_BENCH_CACHE`` names another directory.
"""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Callable
from pathlib import Path

CACHE = Path(os.environ.get("TIDEGAUGE_BENCH_CACHE", "~/.cache/tidegauge-bench")).expanduser()


class Unavailable(Exception):
    """Raised when a requirement can't be had here; the text says why."""


def kept(name: str, fetch: Callable[[Path], None]) -> Path:
    """Return the cache's directory ``name``, which ``fetch`` fills if it is new.

    ``fetch`` gets an empty directory that is moved into its place when it has returned, so that one which failed leaves
    nothing. Processes that want the same directory at the same time wait for each other.

    Raises:
        Unavailable: ``fetch`` raised it.
    """
    directory = CACHE / name
    if directory.is_dir():
        return directory
    CACHE.mkdir(parents=True, exist_ok=True)
    with (CACHE / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if directory.is_dir():
            return directory
        unfinished = CACHE / f"{name}.unfinished"
        shutil.rmtree(unfinished, ignore_errors=True)
        unfinished.mkdir()
        try:
            fetch(unfinished)
        except Unavailable:
            shutil.rmtree(unfinished)
            raise
        unfinished.rename(directory)
    return directory
