"""FastStream as a program, see tests/clients/applications.py: SERVERS SOURCE SINK GROUP DIRECTORY copies records."""

from __future__ import annotations

import asyncio
import sys

from faststream import AckPolicy, FastStream  # type: ignore[import-not-found]  # installed beside it, not in this venv
from faststream.kafka import KafkaBroker  # type: ignore[import-not-found]  # likewise

servers, source, sink, group, _ = sys.argv[1:]
broker = KafkaBroker(servers.split(","), enable_idempotence=True, acks="all")


@broker.subscriber(
    source, group_id=group, auto_offset_reset="earliest", session_timeout_ms=6000, ack_policy=AckPolicy.NACK_ON_ERROR
)
@broker.publisher(sink)
async def copy(value: bytes) -> bytes:
    """Return what goes to the other topic."""
    return value


asyncio.run(FastStream(broker).run())
