"""Which ZooKeeper session owns each broker's registration: a look that never waits for long.

kazoo connects in its own thread, and the first look waits a little for that; while it is not connected, nothing is
known. Kazoo's missing types stay in here.
"""

from __future__ import annotations

import contextlib
import logging
from typing import Any

from tidegauge.znodes import BROKER_IDS

_RESPONSE_SECONDS = 1.0
_CONNECT_SECONDS = 2.0


class Sessions:
    """Reads the owners of ``/brokers/ids/*``.

    Args:
        address: ``host:port[,host:port][/chroot]``.
    """

    def __init__(self, address: str) -> None:
        from kazoo.client import KazooClient  # noqa: PLC0415 - only this verb pays for it
        from kazoo.retry import KazooRetry  # noqa: PLC0415 - the same

        logging.getLogger("kazoo").setLevel(logging.CRITICAL)  # the page shows the state
        self.address = address
        retry = KazooRetry(max_tries=-1, delay=0.2, backoff=2, max_delay=2.0)
        self._client: Any = KazooClient(hosts=address, read_only=True, connection_retry=retry)
        self._first_connection: Any = self._client.start_async()

    def owners(self) -> dict[int, int] | None:
        """Session ids by broker id; None while ZooKeeper does not respond."""
        if self._first_connection is not None:  # a client that has just been made is not connected yet
            self._first_connection.wait(_CONNECT_SECONDS)
            self._first_connection = None
        if not self._client.connected:
            return None
        # On any failure (no response in time, a lost connection) there is none.
        with contextlib.suppress(Exception):
            names = self._names()
            asked = {name: self._client.exists_async(f"{BROKER_IDS}/{name}") for name in names if name.isdecimal()}
            stats = {int(name): one.get(timeout=_RESPONSE_SECONDS) for name, one in asked.items()}
            return {broker_id: stat.ephemeralOwner for broker_id, stat in stats.items() if stat is not None}
        return None

    def _names(self) -> list[str]:
        from kazoo.exceptions import NoNodeError  # noqa: PLC0415 - only this verb pays for it

        try:
            names: list[str] = self._client.get_children_async(BROKER_IDS).get(timeout=_RESPONSE_SECONDS)
        except NoNodeError:  # a cluster that has never been up
            return []
        return names

    def close(self) -> None:
        """Leave ZooKeeper."""
        with contextlib.suppress(Exception):
            self._client.stop()
            self._client.close()
