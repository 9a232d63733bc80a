"""End a ZooKeeper session from outside, on the server, at once.

ZooKeeper's protocol allows it: a client that knows a session's id and password may take it over and close it. Both
requests are sent in one go, so that the client that had the session can't take it back in between. The server then
removes its ephemeral znodes; that client learns of it when it connects again.
Source: ZooKeeper's ConnectRequest and closeSession (protocol version 0).
"""

from __future__ import annotations

import socket
import struct
from contextlib import suppress

from tidegauge.errors import ErrorCode, TidegaugeError

_CLOSE_SESSION = -11
_TIMEOUT_MS = 10_000
_HOST_TIMEOUT_SECONDS = 10.0
_DEFAULT_PORT = 2181


_CONNECT_RESPONSE = struct.Struct(">iiiq")
"""Its length, protocol version, timeout, and session id: 0 if the server knows no such session, or another password."""


def end_session(hosts: str, session_id: int, password: bytes) -> bool:
    """End a session; return when the server has done so. Blocks.

    Args:
        hosts: ``host:port,...``; the first that responds is used.
        session_id: of the session.
        password: that the server gave with it.

    Returns:
        Whether the server knew the session; one that has expired has ended already.

    Raises:
        TidegaugeError: NETWORK_EXCEPTION, no host responded.
    """
    for text in hosts.split(","):
        host, _, port = text.strip().rpartition(":")
        address = (host.strip("[]"), int(port)) if host else (text.strip(), _DEFAULT_PORT)
        with suppress(OSError), socket.create_connection(address, timeout=_HOST_TIMEOUT_SECONDS) as connection:
            connection.sendall(_frame(_connect(session_id, password)) + _frame(_close()))
            # The responses to both arrive, then the server closes the connection: then the session is closed.
            response = bytearray()
            while block := connection.recv(4096):
                response += block
            if len(response) >= _CONNECT_RESPONSE.size:
                return bool(_CONNECT_RESPONSE.unpack_from(response)[3])
    raise TidegaugeError(
        ErrorCode.NETWORK_EXCEPTION, f"ZooKeeper at {hosts} does not respond; the session was not ended"
    )


def _connect(session_id: int, password: bytes) -> bytes:
    """ConnectRequest: protocol version, last zxid seen, timeout, session id, password, not read-only."""
    return struct.pack(">iqiqi", 0, 0, _TIMEOUT_MS, session_id, len(password)) + password + b"\x00"


def _close() -> bytes:
    return struct.pack(">ii", 1, _CLOSE_SESSION)


def _frame(message: bytes) -> bytes:
    return struct.pack(">i", len(message)) + message
