"""The compiled compressors, or a stand-in that refuses if there is no build of them, as in WebAssembly.

``cramjam`` has LZ4, Snappy and Zstandard; ``codec`` is aiokafka's module over it. gzip needs neither: it is zlib's.
Without them, records that are not compressed, or by gzip, are read and written all the same; for the others a broker
responds UNSUPPORTED_COMPRESSION_TYPE, as Kafka does for a codec whose native library does not load.
"""

from __future__ import annotations

from typing import Any

from tidegauge.errors import ErrorCode, TidegaugeError

cramjam: Any
codec: Any


class _Missing:
    """Stands for a module of compressors; each use of one is refused."""

    class DecompressionError(Exception):
        """Never raised: nothing is decompressed."""

    def __getattr__(self, name: str) -> Any:
        raise TidegaugeError(
            ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
            f"this Python has no compiled compressors ({name}): send records without compression, or with gzip",
        )


try:
    import cramjam as _cramjam
    from aiokafka import codec as _codec
except ModuleNotFoundError:
    cramjam = codec = _Missing()
else:
    cramjam, codec = _cramjam, _codec
