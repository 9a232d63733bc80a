"""The compiled compressors, or a stand-in that refuses if there is no build of them, as in WebAssembly.

``cramjam`` has LZ4, Snappy and Zstandard; gzip does not need it: it is zlib's.
Without it, records that are not compressed, or by gzip, are read and written all the same; for the others a broker
responds UNSUPPORTED_COMPRESSION_TYPE, as Kafka does for a codec whose native library does not load.
"""

from __future__ import annotations

from typing import Any

from tidegauge.errors import ErrorCode, TidegaugeError

cramjam: Any


class _Missing:
    """Stands for the module; each use of a compressor is refused."""

    class DecompressionError(Exception):
        """Never raised: nothing is decompressed."""

    def __getattr__(self, name: str) -> Any:
        raise TidegaugeError(
            ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
            f"this Python has no compiled compressors ({name}): send records without compression, or with gzip",
        )


try:
    import cramjam as _cramjam
except ModuleNotFoundError:
    cramjam = _Missing()
else:
    cramjam = _cramjam
