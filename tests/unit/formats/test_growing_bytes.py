"""Bytes that grow beside the event loop are mapped when they are many, so that their end stops no other thread."""

from __future__ import annotations

import mmap
from typing import Any

import pytest

from tidegauge.record_batch import BatchHeader, make_batch
from tidegauge_broker.formats import messages, recompression
from tidegauge_broker.formats.compression import GZIP, SNAPPY, Codec, compress
from tidegauge_broker.formats.down_conversion import down_convert
from tidegauge_broker.formats.growing_bytes import GrowingBytes
from tidegauge_broker.formats.recompression import recompress
from tidegauge_broker.formats.records import StoredRecord, encode_records

NOW_MS = 1_700_000_000_000
HEADER = BatchHeader(0, 0, -1, 2, 0, GZIP, 0, NOW_MS, NOW_MS, -1, -1, -1, 1, 0)


def bomb() -> bytes:
    """Return a batch of a few KB with one value of 8 MiB."""
    return make_batch(
        HEADER, compress(GZIP, encode_records([StoredRecord(0, NOW_MS, None, bytes(8 << 20), ())], 0, NOW_MS))
    )


@pytest.mark.parametrize("piece_bytes", [1, 1000, 300_000, 5_000_000])
def test_they_hold_what_was_appended(piece_bytes: int) -> None:
    pieces = [bytes([number % 251]) * (piece_bytes + number % 3) for number in range(12)]
    pieces.append(bytes(range(256)) * 4096)
    pieces += pieces[:3]
    growing = GrowingBytes()
    for piece in pieces:
        growing.extend(piece)
    assert growing.content == b"".join(pieces)
    assert len(growing) == sum(map(len, pieces))


@pytest.mark.parametrize("how", ["down-conversion", "recompression"])
def test_what_a_bomb_inflates_to_is_mapped(how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A ``bytearray`` of 90 MiB held the interpreter's lock for hundreds of milliseconds when it was given back."""
    compressed: list[Any] = []

    def noting(number: int, data: Any, *rest: Any, **more: Any) -> Any:
        compressed.append(data)
        return compress(number, data, *rest, **more)

    for module in (messages, recompression):
        monkeypatch.setattr(module, "compress", noting)
    records = bomb()
    if how == "down-conversion":
        assert down_convert(records, 1, 0, lambda: None).record_count == 1
    else:
        assert recompress(records, HEADER, Codec(SNAPPY), lambda: None) is not None
    [data] = compressed
    assert len(data) > 8 << 20
    assert isinstance(data.obj, mmap.mmap)
