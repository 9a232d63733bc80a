"""Listeners of a broker: named addresses to bind, and what clients and brokers are told to use.

``listeners`` says what is bound, ``advertised.listeners`` what is told, by listener name; a client is told the
addresses of the listener through which it asks, a broker those of ``inter.broker.listener.name``.
So a cluster in containers has one listener for the containers' own network and one for the host.

A listener's protocol stands in ``listener.security.protocol.map``: PLAINTEXT or SSL. One that is not there has the
protocol of its name, or PLAINTEXT; Kafka refuses such a name.
Source: SocketServer, KafkaConfig (validateValues), EndPoint.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from tidegauge.errors import ErrorCode, TidegaugeError

_LISTENER = re.compile(r"(?P<name>[A-Za-z0-9_-]+)://(?P<host>\[[0-9A-Fa-f:.]+\]|[^:\[\]/]*):(?P<port>[0-9]{1,5})")
_EVERY_ADDRESS = ("0.0.0.0", "::")  # noqa: S104 - only compared with
PLAINTEXT = "PLAINTEXT"
SSL = "SSL"
_UNSERVED = ("SASL_PLAINTEXT", "SASL_SSL")


class Listener(NamedTuple):
    """An address by name; the names of listeners are upper case."""

    name: str
    host: str
    port: int

    @property
    def address(self) -> str:
        """``host:port``, with an IPv6 host in brackets."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    def __str__(self) -> str:
        """As it stands in settings and in ZooKeeper."""
        return f"{self.name}://{self.address}"


class Listeners(NamedTuple):
    """Where one broker listens and is found.

    Attributes:
        bound: what is bound.
        advertised: what clients are told, by the same names.
        inter_broker: the advertised listener that brokers use among themselves.
        protocols: PLAINTEXT or SSL by the listener's name.
    """

    bound: tuple[Listener, ...]
    advertised: tuple[Listener, ...]
    inter_broker: Listener
    protocols: Mapping[str, str]

    @property
    def inter_broker_protocol(self) -> str:
        """What brokers speak among themselves."""
        return self.protocols[self.inter_broker.name]


def parse_listeners(text: str, setting: str) -> tuple[Listener, ...]:
    """Read ``NAME://host:port,...``.

    Raises:
        TidegaugeError: INVALID_CONFIG, with the setting's name.
    """
    found: list[Listener] = []
    for part in filter(None, (item.strip() for item in text.split(","))):
        match = _LISTENER.fullmatch(part)
        if match is None or not 0 < int(match["port"]) < 65_536:
            raise _invalid(setting, text, f"{part!r} is not a listener; write PLAINTEXT://HOST:PORT")
        found.append(Listener(match["name"].upper(), match["host"].strip("[]"), int(match["port"])))
    if not found:
        raise _invalid(setting, text, "at least one listener is needed; write PLAINTEXT://HOST:PORT")
    names = [listener.name for listener in found]
    if len(set(names)) < len(names):
        raise _invalid(setting, text, "each listener must have a different name")
    return tuple(found)


def resolve_listeners(
    listeners: str,
    advertised: str | None,
    inter_broker_name: str | None,
    protocol_map: Sequence[str],
    inter_broker_protocol: str | None = None,
) -> Listeners:
    """What the settings of one broker say together.

    Args:
        listeners: ``listeners``.
        advertised: ``advertised.listeners``.
        inter_broker_name: ``inter.broker.listener.name``.
        protocol_map: ``listener.security.protocol.map``.
        inter_broker_protocol: ``security.inter.broker.protocol``.

    Raises:
        TidegaugeError: INVALID_CONFIG, one of them is malformed or does not fit the others.
    """
    bound = parse_listeners(listeners, "listeners")
    ports = [listener.port for listener in bound]
    if len(set(ports)) < len(ports):
        raise _invalid("listeners", listeners, "each listener must have a different port")
    told = parse_listeners(advertised, "advertised.listeners") if advertised else bound
    names = {listener.name for listener in bound}
    for listener in told:
        if listener.name not in names:
            raise _invalid(
                "advertised.listeners",
                advertised or "",
                f"there is no listener {listener.name} in listeners={listeners}",
            )
        if advertised and (listener.host in _EVERY_ADDRESS or not listener.host):
            raise _invalid(
                "advertised.listeners",
                advertised,
                f"{listener.host or 'an empty host'} can't be reached by anybody; name the address that clients use",
            )
    told = tuple(_own_address(listener) for listener in told)
    protocols = _protocols(bound, protocol_map)
    if inter_broker_name and inter_broker_protocol:
        raise _invalid(
            "inter.broker.listener.name",
            inter_broker_name,
            "only one of inter.broker.listener.name and security.inter.broker.protocol may be set",
        )
    inter_broker = _inter_broker(told, inter_broker_name, protocols, inter_broker_protocol)
    return Listeners(tuple(_own_address(listener) for listener in bound), told, inter_broker, protocols)


def _own_address(listener: Listener) -> Listener:
    return listener if listener.host else listener._replace(host="127.0.0.1")


def _inter_broker(
    told: tuple[Listener, ...], name: str | None, protocols: Mapping[str, str], protocol: str | None
) -> Listener:
    if name is not None:
        for listener in told:
            if listener.name == name.upper():
                return listener
        known = ", ".join(listener.name for listener in told)
        raise _invalid("inter.broker.listener.name", name, f"it must be the name of an advertised listener: {known}")
    if protocol is not None:
        for listener in told:
            if protocols[listener.name] == protocol:
                return listener
        raise _invalid(
            "security.inter.broker.protocol",
            protocol,
            f"no advertised listener has it; write listeners={protocol}://...",
        )
    return next((listener for listener in told if listener.name == PLAINTEXT), told[0])


def _protocols(bound: Sequence[Listener], protocol_map: Sequence[str]) -> dict[str, str]:
    """Each listener's protocol; see the module."""
    given = {name.upper(): protocol.upper() for name, _, protocol in (entry.partition(":") for entry in protocol_map)}
    known = (PLAINTEXT, SSL, *_UNSERVED)
    found = {one.name: given.get(one.name, one.name if one.name in known else PLAINTEXT) for one in bound}
    for name, protocol in found.items():
        if protocol not in {PLAINTEXT, SSL}:
            raise _invalid(
                "listener.security.protocol.map",
                ",".join(protocol_map),
                f"{name} would be {protocol or 'nothing'}; it must be PLAINTEXT or SSL",
            )
    return found


def _invalid(setting: str, value: str, why: str) -> TidegaugeError:
    return TidegaugeError(ErrorCode.INVALID_CONFIG, f"Invalid value '{value}' for configuration {setting}: {why}")
