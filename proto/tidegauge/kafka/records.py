"""Record batches inside messages: never parsed by the codec, never copied."""

from __future__ import annotations

from typing import TypeAlias

Buffer: TypeAlias = "bytes | bytearray | memoryview"
Records: TypeAlias = "Buffer | list[Buffer]"
"""Record batches one behind the other, in one buffer or in several."""
