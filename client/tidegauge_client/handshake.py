"""A second look at a broker that accepted a connection and closed it: does one side use TLS, and the other not?

gRPC reports only that the socket was closed. Python's own TLS reports more, so one short connection is made with it: in
TLS, as the client would, or, for a client of plain text, only to find out whether the broker uses TLS.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl

from tidegauge.handshakes import client_reason
from tidegauge.security import Security, verifying_context
from tidegauge_client.channels import Unreachable

PATIENCE_SECONDS = 5.0
_CERTIFICATE_WANTED = "alert certificate required"
_REFUSED = "alert bad certificate"
_AFTER_HANDSHAKE_SECONDS = 3.0
"""With TLS 1.3 a broker checks a client's certificate only after the client's handshake has ended."""


async def look_at(address: str, security: Security) -> str | None:
    """Return why a connection fails, and what to do; None if TLS is no known reason."""
    host, _, port = address.rpartition(":")
    host = host.strip("[]")
    context = verifying_context(security) if security.is_tls else _unverifying_context()
    problem = ""
    try:
        async with asyncio.timeout(PATIENCE_SECONDS):
            problem = await _talk(host, int(port), context, security)
    except (OSError, TimeoutError) as error:
        problem = str(error)
        if not security.is_tls:
            return _is_tls_alert(problem)
    if not security.is_tls:
        return (
            "the broker speaks TLS on this port; set security.protocol=SSL and ssl.truststore.location "
            "(security_protocol='SSL' and ssl_cafile in Python)"
        )
    return client_reason(problem, host)


async def tls_reason(error: Unreachable, address: str, security: Security) -> str | None:
    """Return why a failed call could not use TLS; None: another reason."""
    return await look_at(address, security) if error.hung_up else error.reason


async def _talk(host: str, port: int, context: ssl.SSLContext, security: Security) -> str:
    """Connect, and wait for a rejection; return what the other side said, or nothing.

    gRPC's servers reject a client's certificate without a message, after a handshake that succeeded for the client. An
    accepted client receives their first frame.
    """
    reader, writer = await asyncio.open_connection(host, port, ssl=context)
    try:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_AFTER_HANDSHAKE_SECONDS):
                if await reader.read(1) == b"":
                    return _REFUSED if security.certificates else _CERTIFICATE_WANTED
    except OSError as error:
        return str(error)
    finally:
        writer.transport.abort()
    return ""


def _is_tls_alert(problem: str) -> str | None:
    """Return the remark if a problem is a TLS alert, as about a client certificate."""
    if "alert" not in problem.lower():
        return None
    return (
        "the broker speaks TLS on this port and wants a client certificate; set security.protocol=SSL, "
        "ssl.truststore.location and ssl.keystore.location"
    )


def _unverifying_context() -> ssl.SSLContext:
    """Return a context to probe for TLS; nothing is sent over it or trusted."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context
