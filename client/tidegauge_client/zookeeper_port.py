"""A second look at an address at which no broker responds: ``-b`` may have been given ZooKeeper's port.

Kafka's own tools took it before 2.2 (KIP-377), and 2181 is the port that many remember.
"""

from __future__ import annotations

import asyncio
import contextlib

PATIENCE_SECONDS = 1.0
_MOST_BYTES = 4096
_COMMAND = b"srvr"
"""One of ZooKeeper's four-letter words; a server that does not allow it says so by its name."""
_SIGNS = (b"Zookeeper version", b"srvr is not executed")


async def is_zookeeper(address: str) -> bool:
    """Return whether a ZooKeeper responds at ``host:port`` within a second."""
    host, _, port = address.rpartition(":")
    try:
        async with asyncio.timeout(PATIENCE_SECONDS):
            reader, writer = await asyncio.open_connection(host.strip("[]"), int(port))
            try:
                writer.write(_COMMAND)
                response = await reader.read(_MOST_BYTES)
            finally:
                writer.close()
                with contextlib.suppress(OSError):
                    await writer.wait_closed()
    except (OSError, TimeoutError, ValueError):
        return False
    return any(sign in response for sign in _SIGNS)
