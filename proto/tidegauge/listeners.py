"""Listeners of a broker: named addresses to bind, and the addresses advertised to clients and brokers.

``listeners`` has the addresses to bind, ``advertised.listeners`` those to advertise, by listener name. A client gets
the addresses of the listener through which it is connected, a broker those of ``inter.broker.listener.name``.
So a cluster in containers has one listener for the containers' own network and one for the host.

A listener speaks one wire protocol, by ``listener.wire.protocol.map``: KAFKA (Kafka's own) or GRPC. A listener
that is not in the map speaks gRPC if its name begins with GRPC, else Kafka's protocol. Brokers use gRPC among
themselves, unless ``inter.broker.listener.name`` names a listener that speaks Kafka's protocol: then followers and
coordinators speak that, with Apache Kafka brokers too. The controller and the brokers use
``control.plane.listener.name`` between them, if that names a gRPC listener, else the inter-broker listener. (Kafka's
control plane listener serves the controller alone; this one is a gRPC listener like any other.) A broker whose
listeners all speak Kafka's protocol gets one for gRPC, on the port of its first listener + 10000.

A listener's security protocol is in ``listener.security.protocol.map``: PLAINTEXT, SSL or SASL_SSL, and for a listener
with Kafka's protocol SASL_PLAINTEXT too: over gRPC credentials travel under TLS alone. A listener that is not in
the map has the protocol of its name (GRPC_SSL: SSL, GRPC_SASL_SSL: SASL_SSL), or PLAINTEXT; Kafka rejects such a name.
Source: SocketServer, KafkaConfig (validateValues), EndPoint.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.host_addresses import address_of

_LISTENER = re.compile(r"(?P<name>[A-Za-z0-9_-]+)://(?P<host>\[[0-9A-Fa-f:.]+\]|[^:\[\]/]*):(?P<port>[0-9]{1,5})")
_EVERY_ADDRESS = ("0.0.0.0", "::")  # noqa: S104 - compared with, never bound
PLAINTEXT = "PLAINTEXT"
SSL = "SSL"
KAFKA = "KAFKA"
GRPC = "GRPC"
GRPC_SSL = "GRPC_SSL"
GRPC_SASL_SSL = "GRPC_SASL_SSL"
GRPC_PORT_OFFSET = 10_000
"""Distance from the port of the first listener to the port of a gRPC listener that the settings do not name."""
SASL_PLAINTEXT = "SASL_PLAINTEXT"
SASL_SSL = "SASL_SSL"
SECURITY_PROTOCOL_IDS = {PLAINTEXT: 0, SSL: 1, SASL_PLAINTEXT: 2, SASL_SSL: 3}
"""Kafka's numbers of the security protocols (``SecurityProtocol.id``)."""
WITH_TLS = frozenset({SSL, SASL_SSL})
WITH_SASL = frozenset({SASL_PLAINTEXT, SASL_SSL})
GRPC_NAMES = {PLAINTEXT: GRPC, SSL: GRPC_SSL, SASL_SSL: GRPC_SASL_SSL}
"""Name of a gRPC listener by its security protocol, where ``listener.security.protocol.map`` does not name it."""


class Listener(NamedTuple):
    """A named address; names of listeners are upper case."""

    name: str
    host: str
    port: int

    @property
    def address(self) -> str:
        """``host:port``, with an IPv6 host in brackets."""
        return address_of(self.host, self.port)

    def __str__(self) -> str:
        """Return the form of settings and of ZooKeeper, ``NAME://host:port``."""
        return f"{self.name}://{self.address}"


class Listeners(NamedTuple):
    """The listeners of one broker.

    Attributes:
        bound: the addresses to bind.
        advertised: the addresses given to clients, by the same names.
        inter_broker: the advertised listener that brokers use among themselves.
        control_plane: the one through which the controller and the brokers reach each other.
        protocols: PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL by the listener's name.
        wires: KAFKA or GRPC by the listener's name.
        added: the gRPC listener that was added because the settings name none; None if they name one.
    """

    bound: tuple[Listener, ...]
    advertised: tuple[Listener, ...]
    inter_broker: Listener
    control_plane: Listener
    protocols: Mapping[str, str]
    wires: Mapping[str, str]
    added: Listener | None = None

    @property
    def inter_broker_protocol(self) -> str:
        """Security protocol between brokers."""
        return self.protocols[self.inter_broker.name]

    @property
    def inter_broker_wire(self) -> str:
        """Wire protocol between brokers: KAFKA or GRPC."""
        return self.wires[self.inter_broker.name]

    @property
    def grpc_among_brokers(self) -> Listener:
        """Listener at which brokers reach one another for what only gRPC has: the inter-broker listener if it can."""
        if self.inter_broker_wire == GRPC:
            return self.inter_broker
        if self.wires[self.control_plane.name] == GRPC:
            return self.control_plane
        return next(one for one in self.advertised if self.wires[one.name] == GRPC)

    @property
    def kafka_among_brokers(self) -> Listener | None:
        """Listener at which brokers reach one another for what only Kafka's protocol has; None: there is none.

        It is the inter-broker listener if it can, else the first one of the same security protocol, else the first one.
        """
        spoken = [one for one in self.advertised if self.wires[one.name] == KAFKA]
        alike = (one for one in spoken if self.protocols[one.name] == self.inter_broker_protocol)
        if self.inter_broker_wire == KAFKA:
            return self.inter_broker
        return next(alike, spoken[0] if spoken else None)

    def kafka_beside(self, name: str) -> dict[str, tuple[str, ...]]:
        """Return Kafka listeners' names by security protocol, those on the same host first.

        Args:
            name: of a listener; hosts are compared with the one that it advertises.
        """
        host = next((one.host for one in self.advertised if one.name == name), "")
        found: dict[str, tuple[str, ...]] = {}
        for one in sorted(self.advertised, key=lambda one: one.host != host):
            if self.wires[one.name] == KAFKA:
                protocol = self.protocols[one.name]
                found[protocol] = (*found.get(protocol, ()), one.name)
        return found

    def bound_by(self, wire: str) -> tuple[Listener, ...]:
        """Return the listeners that speak this wire protocol."""
        return tuple(listener for listener in self.bound if self.wires[listener.name] == wire)

    @property
    def registered(self) -> Listener:
        """Address for ``host`` and ``port`` of the broker's znode: as in Kafka, its first PLAINTEXT listener."""
        plain = (one for one in self.advertised if self.protocols[one.name] == PLAINTEXT)
        return next((one for one in plain if self.wires[one.name] == KAFKA), self.inter_broker)


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
    wire_map: Sequence[str] = (),
    control_plane_name: str | None = None,
) -> Listeners:
    """Return the listeners that the settings of one broker describe together.

    Args:
        listeners: ``listeners``.
        advertised: ``advertised.listeners``.
        inter_broker_name: ``inter.broker.listener.name``.
        protocol_map: ``listener.security.protocol.map``.
        inter_broker_protocol: ``security.inter.broker.protocol``.
        wire_map: ``listener.wire.protocol.map``.
        control_plane_name: ``control.plane.listener.name``.

    Raises:
        TidegaugeError: INVALID_CONFIG, one of them is malformed or does not fit the others.
    """
    bound = parse_listeners(listeners, "listeners")
    published = parse_listeners(advertised, "advertised.listeners") if advertised else bound
    wires = _wires(bound, wire_map)
    added = None
    if GRPC not in wires.values():
        added = _grpc_listener(bound[0], _protocols(bound, protocol_map, wires)[bound[0].name], inter_broker_protocol)
        wires[added.name] = GRPC
        bound = (*bound, added)
        published = (*published, added._replace(host=published[0].host) if advertised else added)
    ports = [listener.port for listener in bound]
    if len(set(ports)) < len(ports):
        raise _invalid("listeners", listeners, "each listener must have a different port")
    if advertised:
        _check_advertised(published, advertised, {listener.name for listener in bound}, listeners)
    published = tuple(_own_address(listener) for listener in published)
    protocols = _protocols(bound, protocol_map, wires)
    if inter_broker_name and inter_broker_protocol:
        raise _invalid(
            "inter.broker.listener.name",
            inter_broker_name,
            "only one of inter.broker.listener.name and security.inter.broker.protocol may be set",
        )
    inter_broker = _inter_broker(published, inter_broker_name, protocols, inter_broker_protocol, wires)
    control_plane = _control_plane(published, control_plane_name, inter_broker, wires)
    if GRPC not in {wires[listener.name] for listener in published}:
        raise _no_grpc(published)
    return Listeners(
        tuple(_own_address(listener) for listener in bound),
        published,
        inter_broker,
        control_plane,
        protocols,
        wires,
        added,
    )


def _check_advertised(published: Sequence[Listener], advertised: str, names: Collection[str], listeners: str) -> None:
    """Refuse an advertised listener that is not among the bound ones, or whose address no client can reach.

    Raises:
        TidegaugeError: INVALID_CONFIG.
    """
    for listener in published:
        if listener.name not in names:
            raise _invalid(
                "advertised.listeners", advertised, f"there is no listener {listener.name} in listeners={listeners}"
            )
        if listener.host in _EVERY_ADDRESS or not listener.host:
            raise _invalid(
                "advertised.listeners",
                advertised,
                f"{listener.host or 'an empty host'} is not a reachable address; name the address that clients use",
            )


def _wires(bound: Sequence[Listener], wire_map: Sequence[str]) -> dict[str, str]:
    """Return each listener's wire protocol; the module describes the rule."""
    given = {name.upper(): wire.upper() for name, _, wire in (entry.partition(":") for entry in wire_map)}
    setting, text = "listener.wire.protocol.map", ",".join(wire_map)
    for name, wire in given.items():
        if wire not in {KAFKA, GRPC}:
            raise _invalid(setting, text, f"{name} would be {wire or 'nothing'}; it must be KAFKA or GRPC")
    return {one.name: given.get(one.name, GRPC if one.name.startswith(GRPC) else KAFKA) for one in bound}


def _grpc_listener(first: Listener, protocol: str, inter_broker_protocol: str | None) -> Listener:
    """Return the gRPC listener of a broker whose settings name none."""
    name = GRPC_NAMES[inter_broker_protocol or (SSL if protocol in WITH_TLS else PLAINTEXT)]
    port = first.port + GRPC_PORT_OFFSET
    if port > 65_535:
        raise _invalid(
            "listeners",
            str(first),
            f"brokers use gRPC among themselves, and there is no port {port} for it; add {name}://HOST:PORT",
        )
    return Listener(name, first.host, port)


def _own_address(listener: Listener) -> Listener:
    return listener if listener.host else listener._replace(host="127.0.0.1")


def _control_plane(
    advertised: tuple[Listener, ...], name: str | None, inter_broker: Listener, wires: Mapping[str, str]
) -> Listener:
    """Return the control plane's listener, which never speaks Kafka's protocol."""
    if not name:
        return inter_broker
    setting = "control.plane.listener.name"
    found = next((listener for listener in advertised if listener.name == name.upper()), None)
    if found is None:
        known = ", ".join(listener.name for listener in advertised)
        raise _invalid(setting, name, f"it must be the name of an advertised listener: {known}")
    if found == inter_broker:
        raise _invalid(setting, name, "it must be another listener than inter.broker.listener.name")
    return found if wires[found.name] == GRPC else inter_broker


def _inter_broker(
    advertised: tuple[Listener, ...],
    name: str | None,
    protocols: Mapping[str, str],
    protocol: str | None,
    wires: Mapping[str, str],
) -> Listener:
    of_brokers = [listener for listener in advertised if wires[listener.name] == GRPC]
    if name is not None:
        for listener in advertised:
            if listener.name == name.upper():
                return listener
        known = ", ".join(listener.name for listener in advertised)
        raise _invalid("inter.broker.listener.name", name, f"it must be the name of an advertised listener: {known}")
    if protocol is not None:
        for listener in of_brokers:
            if protocols[listener.name] == protocol:
                return listener
        raise _invalid(
            "security.inter.broker.protocol",
            protocol,
            f"no advertised gRPC listener has it; write listeners={GRPC_NAMES[protocol]}://HOST:PORT beside the others",
        )
    if not of_brokers:
        raise _no_grpc(advertised)
    return of_brokers[0]


def _no_grpc(advertised: Sequence[Listener]) -> TidegaugeError:
    return _invalid(
        "advertised.listeners",
        ",".join(map(str, advertised)),
        "brokers use gRPC among themselves, and no gRPC listener is advertised",
    )


def _protocols(bound: Sequence[Listener], protocol_map: Sequence[str], wires: Mapping[str, str]) -> dict[str, str]:
    """Return each listener's security protocol; the module describes the rule."""
    given = {name.upper(): protocol.upper() for name, _, protocol in (entry.partition(":") for entry in protocol_map)}
    of_kafka = (PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL)
    of_grpc = (PLAINTEXT, SSL, SASL_SSL)
    by_name = {name: name for name in of_kafka} | {GRPC_SSL: SSL, GRPC_SASL_SSL: SASL_SSL}
    found = {one.name: given.get(one.name, by_name.get(one.name, PLAINTEXT)) for one in bound}
    for name, protocol in found.items():
        legal = of_kafka if wires[name] == KAFKA else of_grpc
        if protocol not in legal:
            raise _invalid(
                "listener.security.protocol.map",
                ",".join(protocol_map),
                f"{name} would be {protocol or 'nothing'}; it must be {', '.join(legal[:-1])} or {legal[-1]}"
                + (": over gRPC credentials travel under TLS alone" if protocol == SASL_PLAINTEXT else ""),
            )
    return found


def _invalid(setting: str, value: str, why: str) -> TidegaugeError:
    return TidegaugeError(ErrorCode.INVALID_CONFIG, f"Invalid value '{value}' for configuration {setting}: {why}")
