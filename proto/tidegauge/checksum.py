"""The checksum of Kafka's record batches, CRC-32C (Castagnoli; RFC 3720, appendix B.4).

``crc32c`` is the compiled one of the package ``crc32c``. Without a build of that package, as in WebAssembly, it is
``plain_crc32c``, which gives the same numbers (test_plain_helpers.py compares them).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidegauge.late_package import run_late

if TYPE_CHECKING:
    from collections.abc import Callable

Buffer = bytes | bytearray | memoryview
_REVERSED_POLYNOMIAL = 0x82F63B78


def _table() -> tuple[int, ...]:
    """Return the remainder of each byte."""
    remainders = []
    for byte in range(256):
        value = byte
        for _ in range(8):
            value = value >> 1 ^ (_REVERSED_POLYNOMIAL if value & 1 else 0)
        remainders.append(value)
    return tuple(remainders)


_TABLE = _table()


def plain_crc32c(data: Buffer, value: int = 0) -> int:
    """Return the CRC-32C of some bytes.

    Args:
        data: the bytes.
        value: the checksum of the bytes before them.
    """
    table = _TABLE
    value ^= 0xFFFFFFFF
    for byte in memoryview(data).cast("B"):
        value = table[(value ^ byte) & 0xFF] ^ value >> 8
    return value ^ 0xFFFFFFFF


crc32c: Callable[..., int]
"""The checksum of ``plain_crc32c``, from the fastest library that is installed."""
try:
    run_late("crc32c")  # the package's own code reads the metadata of distributions, for its version
    from crc32c._crc32c import crc32c as _compiled
except ModuleNotFoundError:
    crc32c = plain_crc32c
else:
    crc32c = _compiled
