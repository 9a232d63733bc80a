"""A broker keeps the memory of a large response for the next one: the kernel need not clear it again."""

import os
import subprocess
import sys
from collections.abc import Mapping

import pytest

from tidegauge_broker.server.allocator import KEPT_BYTES

BLOCKS, BLOCK_BYTES = 34, 529_445
"""A response over so many partitions with so much of each: 17 MB in 4,400 pages."""
COUNT_FAULTS = f"""
import os, resource, sys
from tidegauge_broker.server.allocator import keep_freed_memory

zeros = os.open("/dev/zero", os.O_RDONLY)

def respond():
    return sum(len(block) for block in [os.read(zeros, {BLOCK_BYTES}) for _ in range({BLOCKS})])

if sys.argv[1] == "keep":
    sys.stderr.write(str(keep_freed_memory()))
respond()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(4):
    respond()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def _run(argument: str, environment: Mapping[str, str]) -> tuple[int, str]:
    """Return the page faults of four responses, and ``keep_freed_memory``'s result."""
    done = subprocess.run(
        [sys.executable, "-c", COUNT_FAULTS, argument], env=environment, capture_output=True, text=True, check=True
    )
    return int(done.stdout), done.stderr


def _environment(**more: str) -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith(("MALLOC_", "GLIBC_"))} | more


@pytest.mark.skipif(os.confstr_names.get("CS_GNU_LIBC_VERSION") is None, reason="needs glibc")
def test_a_response_of_17_mb_reuses_the_memory_of_the_one_before() -> None:
    assert BLOCKS * BLOCK_BYTES < KEPT_BYTES
    without, _ = _run("default", _environment())
    kept, returned = _run("keep", _environment())
    assert returned == "True"
    assert kept * 10 < without


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("MALLOC_TRIM_THRESHOLD_", "131072"),
        ("MALLOC_MMAP_THRESHOLD_", "131072"),
        ("GLIBC_TUNABLES", "glibc.malloc.trim_threshold=131072"),
    ],
)
def test_what_the_environment_says_of_the_allocator_stands(name: str, value: str) -> None:
    _, returned = _run("keep", _environment(**{name: value}))
    assert returned == "False"
