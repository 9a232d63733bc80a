"""Makes the C library keep memory that a broker has freed.

A Fetch of a consumer that catches up reads up to ``max.partition.fetch.bytes`` of each of its partitions: 17 MB for
34 partitions of 0.5 MB. By default glibc gives such memory back to the kernel as soon as the response is written, and
the kernel clears it again, page by page, for the next one: a fifth of what a response over many partitions cost.
"""

from __future__ import annotations

import ctypes
import os

KEPT_BYTES = 64 * 1024 * 1024
"""So much freed memory a broker keeps for what it reads next."""
_LARGEST_BYTES = 32 * 1024 * 1024
"""A block up to this size comes from the kept memory: glibc's limit."""
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
"""Parameters of ``mallopt`` (``malloc.h``)."""
_OF_THE_USER = ("MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_", "GLIBC_TUNABLES")


def keep_freed_memory() -> bool:
    """Let this process keep up to ``KEPT_BYTES`` that it has freed; return whether it does.

    It does not where the C library is another one than glibc, nor where the environment has glibc's own settings.
    """
    if any(name in os.environ for name in _OF_THE_USER):
        return False
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        return False
    return bool(mallopt(_M_MMAP_THRESHOLD, _LARGEST_BYTES) and mallopt(_M_TRIM_THRESHOLD, KEPT_BYTES))
