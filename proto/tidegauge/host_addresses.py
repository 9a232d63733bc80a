"""Hosts and ports as text: ``host:port`` with an IPv6 host in brackets, and hosts in the form of Java. Pure.

Source: RFC 3986, section 3.2.2 (brackets); ``Inet6Address.getHostAddress``.
"""

from __future__ import annotations

import ipaddress
from functools import lru_cache

_HEXTETS = 8
_IPV4_PARTS = 2
_SCOPE = 3
"""The place of the interface's number in the address of an IPv6 socket, behind host, port and flow."""
_ADDRESSES_KNOWN = 4096


def address_of(host: str, port: int) -> str:
    """Return ``host:port`` for dialling, with brackets around an IPv6 host."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def host_in(address: str) -> str:
    """Return the host of ``host:port``, without brackets."""
    return address.rpartition(":")[0].strip("[]")


def dialled_host(bound: str, otherwise: str) -> str:
    """Return the host to dial, on this machine, for a server's bound host.

    Args:
        bound: host that the server binds; empty or 0.0.0.0: every IPv4 address, ``::``: every IPv6 address.
        otherwise: the host for every IPv4 address.
    """
    if bound in {"", "0.0.0.0"}:  # noqa: S104 - compared with, never bound
        return otherwise
    return "::1" if bound == "::" else bound


def peer_host(peer: object) -> str:
    """Return a socket's peer host in Java's form; ``?`` without one.

    Args:
        peer: as ``getpeername`` returns it. A link-local IPv6 address has the number of its interface.
    """
    if not isinstance(peer, tuple) or len(peer) < _IPV4_PARTS:
        return "?"
    scope = f"%{peer[_SCOPE]}" if len(peer) > _SCOPE and peer[_SCOPE] else ""
    return java_host(f"{str(peer[0]).partition('%')[0]}{scope}")


@lru_cache(_ADDRESSES_KNOWN)
def java_host(host: str) -> str:
    """Return a host in the form of ``InetAddress.getHostAddress``: ``0:0:0:0:0:0:0:1`` for ``::1``.

    An IPv4 address inside an IPv6 one (``::ffff:10.0.0.1``) is an IPv4 address to Java. A text that is no address, such
    as ``*``, stays as it is.
    """
    if ":" not in host:
        return host
    plain, percent, scope = host.partition("%")
    try:
        address = ipaddress.IPv6Address(plain)
    except ValueError:
        return host
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    number = int(address)
    hextets = (f"{number >> 16 * place & 0xFFFF:x}" for place in reversed(range(_HEXTETS)))
    return ":".join(hextets) + percent + scope
