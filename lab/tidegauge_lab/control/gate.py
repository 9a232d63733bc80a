"""Which requests the control server serves: none that a web page sends, or that lacks the token. Pure.

Rules:
    1. ``Host`` must be an IP address, ``localhost``, or a name that was given: a name that another DNS points here
       (rebinding) gets nothing. The port in it does not count, since a container's port is mapped to another one.
    2. A request with an ``Origin`` comes from a web page and is refused: there is no CORS, and a page needs none.
    3. With a token, each request bears it as ``Authorization: Bearer TOKEN``, compared in constant time.
"""

from __future__ import annotations

import hmac
import ipaddress
import re
from collections.abc import Collection, Mapping

_LOCAL = "localhost"
_HOST = re.compile(r"(?:\[(?P<address>[0-9a-f:.]+)\]|(?P<name>[^\[\]:@/\\\s]+))(?::[0-9]{0,5})?", re.ASCII)
"""``uri-host [ ":" port ]`` (RFC 9110, section 7.2), with an IPv6 address in brackets (RFC 3986, section 3.2.2)."""


def refusal(headers: Mapping[str, str], names: Collection[str], token: str) -> tuple[int, str]:
    """Return status and sentence of a refusal; status 0 if the request is served.

    Args:
        headers: of the request; names in lower case.
        names: host names besides localhost under which the server is reached.
        token: of the server; empty: none is needed.
    """
    host = host_of(headers.get("host", ""))
    if not (host == _LOCAL or host in {name.lower() for name in names} or _is_address(host)):
        return 403, (
            f"the host {host!r} is not one of this server: use localhost or an IP address, or start it with "
            f"--control-name {host or 'NAME'}"
        )
    if headers.get("origin"):
        return 403, "requests of web pages are refused (they carry Origin): use a program"
    if token:
        given = headers.get("authorization", "")
        if not hmac.compare_digest(given.encode("utf-8", "replace"), f"Bearer {token}".encode()):
            return 401, "this server wants its token: Authorization: Bearer TOKEN"
    return 0, ""


def host_of(header: str) -> str:
    """Return the host of a Host header in lower case; empty if malformed.

    Text after the brackets of an address, such as ``[::1].example.org``, makes a name of another DNS.
    """
    found = _HOST.fullmatch(header.strip(" \t").lower())
    if found is None:
        return ""
    address = found["address"]
    return found["name"] if address is None else address if _is_ipv6(address) else ""


def _is_ipv6(text: str) -> bool:
    try:
        ipaddress.IPv6Address(text)
    except ValueError:
        return False
    return True


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True
