"""Which requests the page's server serves: none that another site, or another name for this host, sends. Pure.

Rules:
    1. ``Host`` must be 127.0.0.1 or localhost with the server's port: a name that someone else's DNS points here
       (rebinding) gets nothing, neither the page with its token nor the events.
    2. A changing request must bear the page's own ``Origin`` (browsers send it with every POST; another site can't
       forge it), the token of the page, and JSON as its type (no form of another site can send that).
    3. The token is random, of one run of the server, and compared in constant time.
"""

from __future__ import annotations

import hmac
from collections.abc import Mapping

TOKEN_HEADER = "x-tidegauge-token"  # noqa: S105 - a header's name
_NAMES = ("127.0.0.1", "localhost")


def refusal_of_reading(headers: Mapping[str, str], port: int) -> str:
    """Why a request may not even read; empty when it may (rule 1). Header names are in lower case."""
    host = headers.get("host", "").lower()
    if host in {f"{name}:{port}" for name in _NAMES} or (port == 80 and host in _NAMES):
        return ""
    return f"this server serves 127.0.0.1:{port} and localhost:{port} only"


def refusal_of_change(headers: Mapping[str, str], port: int, token: str) -> str:
    """Why a request may not change anything; empty when it may (rules 1 and 2)."""
    if refused := refusal_of_reading(headers, port):
        return refused
    if headers.get("origin", "").lower() != f"http://{headers['host'].lower()}":
        return "only the page itself may do this: the request's Origin is not this server"
    given = headers.get(TOKEN_HEADER, "").encode("utf-8", "replace")
    if not hmac.compare_digest(given, token.encode()):
        return "the page is of an earlier run of `tidegauge watch`: load it again"
    if headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
        return "an action is sent as application/json"
    return ""
