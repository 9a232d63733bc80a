"""Addresses of ZooKeeper servers as text."""

from __future__ import annotations

import re

from tidegauge.errors import ErrorCode, TidegaugeError


def split_address(address: str) -> list[tuple[str, int]]:
    """Return the servers in ``host:port[,host:port][/chroot]``; a missing port is ZooKeeper's 2181.

    Raises:
        TidegaugeError: INVALID_REQUEST, a host is missing, or a port is no number from 1 to 65535.
    """
    servers = []
    for part in address.partition("/")[0].split(","):
        host, separator, port = part.strip().rpartition(":")
        if not separator:
            host, port = port, "2181"
        if not (host and re.fullmatch("[0-9]{1,5}", port) and 1 <= int(port) <= 65535):
            raise TidegaugeError(
                ErrorCode.INVALID_REQUEST, f"{address!r} is no ZooKeeper address: host:port[,host:port][/chroot]"
            )
        servers.append((host.strip("[]"), int(port)))
    return servers
