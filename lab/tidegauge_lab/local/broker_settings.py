"""Settings of a lab broker: its ``server.properties`` from what the cluster is, the profile, and ``--set``.

Rules:
- The profile ``fast`` shortens the waits that people watch; ``kafka`` has Kafka's defaults. Nothing else differs, but
  that by ``fast`` a cluster with fewer than three brokers can have its internal topics: Kafka's exact
  replication factor of 3 would not allow it.
- A name with a broker's id before it, ``1:broker.rack=a``, is a setting of that broker alone.
- The settings that ``up`` decides itself (id, listener, directories, ZooKeeper) can't be set.
- Followers and coordinators speak Kafka's protocol, on the listener of the clients, and the controller gRPC
  (docs/adr/0018-followers-fetch-over-kafkas-protocol.md), unless listeners have TLS or SASL, there is an authorizer,
  clients are given another address than brokers, or a setting says otherwise.
- Everything is checked before a process is started; an unknown name is refused here, although a broker would only
  warn of it: in the lab it is a typing error.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from tidegauge import event_log
from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.host_addresses import address_of
from tidegauge.kafka.releases import release_of
from tidegauge.listeners import GRPC, GRPC_NAMES
from tidegauge.near_names import did_you_mean
from tidegauge.security import BESIDE_SASL, PLAINTEXT
from tidegauge.settings import BROKER_SETTINGS, KRAFT_BROKER_SETTINGS, parse_broker_settings, property_line
from tidegauge.settings.broker_security import PATHS
from tidegauge.settings.model import Values
from tidegauge.settings.parsing import broker_setting, setting_in
from tidegauge.settings.quorum import CONTROLLER_SETTINGS
from tidegauge_broker.server.cluster.node_of import with_own_authorizer
from tidegauge_client.cluster_file import (
    CONTROLLER_LISTENER,
    KRAFT_MODE,
    ZOOKEEPER_MODE,
    BrokerEntry,
    ClusterFile,
    security_of_cluster,
    security_of_controllers,
)
from tidegauge_lab.local.layout import CONTROL, RULES_FILE, broker_log_directories, session_file

_AT_MOST_BROKERS = (
    "offsets.topic.replication.factor",
    "transaction.state.log.replication.factor",
    "transaction.state.log.min.isr",
    "share.coordinator.state.topic.replication.factor",
    "share.coordinator.state.topic.min.isr",
)
"""Settings that can't exceed the number of brokers."""
PROFILES: dict[str, dict[str, str]] = {
    "fast": {
        "zookeeper.session.timeout.ms": "4000",
        "replica.lag.time.max.ms": "5000",
        "replica.fetch.backoff.ms": "100",
        "replica.high.watermark.checkpoint.interval.ms": "1000",
        "log.flush.offset.checkpoint.interval.ms": "1000",
        "controlled.shutdown.retry.backoff.ms": "200",
        "offsets.topic.num.partitions": "10",
        "offsets.topic.replication.factor": "3",
        "transaction.state.log.num.partitions": "10",
        "transaction.state.log.replication.factor": "3",
        "transaction.state.log.min.isr": "2",
        "share.coordinator.state.topic.num.partitions": "10",
        "share.coordinator.state.topic.replication.factor": "3",
        "share.coordinator.state.topic.min.isr": "2",
        "group.initial.rebalance.delay.ms": "0",
    },
    "kafka": {},
}
PROFILES_IN_KRAFT: dict[str, dict[str, str]] = {
    "fast": {
        "controller.quorum.election.timeout.ms": "100",
        "controller.quorum.fetch.timeout.ms": "500",
        "broker.heartbeat.interval.ms": "200",
        "broker.session.timeout.ms": "4000",
    },
    "kafka": {},
}
"""The timers of a quorum and of its brokers' heartbeats, which take the place of ZooKeeper's session."""
OF_ZOOKEEPER = "zookeeper."
"""Begin of the names of settings that only ZooKeeper mode has."""
MECHANISMS = "sasl.enabled.mechanisms"
DEFAULT_PROFILE = "fast"
OF_THE_LAB = {"auto.create.topics.enable": "false", "lab.enable": "true"}
_SAYS_LISTENER = frozenset({"inter.broker.listener.name", "security.inter.broker.protocol"})
_MAP = "listener.security.protocol.map"
_SAYS_HOW = _SAYS_LISTENER | {"control.plane.listener.name", _MAP, "authorizer.class.name"}
"""Settings with which the user decides how brokers speak with one another, or which rights they need for it."""
_LISTENERS = "--base-port, --kafka-port and --kafka-host say where brokers listen"
_LOG_DIRECTORIES = (
    "a further one is made by hand, before the broker starts: DIRECTORY/broker-N/data-2 of the cluster's directory "
    "(docs/faults.md)"
)
_OF_DIRECTORY = "it is in the cluster's directory, which --dir names"
DECIDED_BY_UP = {
    "broker.id": "--brokers N gives the ids 0 to N-1",
    "listeners": _LISTENERS,
    "advertised.listeners": f"{_LISTENERS}, and `PUT /v1/advertised` what they advertise (docs/steering.md)",
    "listener.wire.protocol.map": _LISTENERS,
    "zookeeper.connect": "--zookeeper HOST:PORT names another ZooKeeper",
    "log.dir": _LOG_DIRECTORIES,
    "log.dirs": _LOG_DIRECTORIES,
    "event.log.file": _OF_DIRECTORY,
    "lab.rules.file": _OF_DIRECTORY,
    "lab.session.file": _OF_DIRECTORY,
}
"""Settings that ``up`` decides, and what the user can do instead."""
LISTENERS = "listeners"
IN_KRAFT = "process.roles"
"""A setting that every node in KRaft mode has, and no other."""
IN_PLACE_OF_ZOOKEEPERS = {"zookeeper.session.timeout.ms": "broker.session.timeout.ms"}
"""Settings of KRaft mode that have the part of one of ZooKeeper's."""
DECIDED_IN_KRAFT = {
    "node.id": "--brokers N gives brokers the ids 0 to N-1, and controllers have 3000, 3001, ...",
    IN_KRAFT: "--controllers N gives the number of controllers, and --combined makes brokers the controllers",
    "controller.listener.names": "--controller-port says where controllers listen",
    "controller.quorum.bootstrap.servers": "--controller-port says where controllers listen",
    "controller.quorum.voters": "--controllers N gives the number of voters",
    "metadata.log.dir": _OF_DIRECTORY,
}
"""The same for nodes in KRaft mode, in addition."""


def check_settings(settings: Mapping[str, str], profile: str, mode: str = ZOOKEEPER_MODE) -> None:
    """Refuse what no node of the cluster could run with.

    Args:
        settings: what ``--set`` gave.
        profile: ``fast`` or ``kafka``.
        mode: the cluster's.

    Raises:
        TidegaugeError: INVALID_CONFIG, a profile or name is unknown, a value illegal, or a name is decided by ``up``,
            or belongs to the other mode.
    """
    if profile not in PROFILES:
        raise TidegaugeError(
            ErrorCode.INVALID_CONFIG, f"there is no profile {profile!r}; there are {', '.join(PROFILES)}"
        )
    decided = DECIDED_BY_UP | DECIDED_IN_KRAFT if mode == KRAFT_MODE else DECIDED_BY_UP
    for given in settings:
        _, name = _scope_of(given)
        if mode == KRAFT_MODE and name.startswith(OF_ZOOKEEPER):
            raise TidegaugeError(
                ErrorCode.INVALID_CONFIG,
                f"{name} can't be set: the cluster is in KRaft mode, whose nodes have no ZooKeeper; leave it out",
            )
        if name in decided:
            node = "node" if mode == KRAFT_MODE else "broker"
            raise TidegaugeError(
                ErrorCode.INVALID_CONFIG,
                f"{name} can't be set: `tidegauge up` gives each {node} its own value; {decided[name]}",
            )
        of_controllers = setting_in(CONTROLLER_SETTINGS, name) if mode == KRAFT_MODE else None
        if of_controllers is not None:
            of_controllers.parse(settings[given])
        elif broker_setting(name) is None:
            hint = did_you_mean(name, BROKER_SETTINGS, "; docs/configuration.md lists all")
            raise TidegaugeError(ErrorCode.INVALID_CONFIG, f"Unknown broker setting: {name}{hint}")
    scopes = {scope for scope, _ in map(_scope_of, settings)} | {None}
    for scope in scopes:
        own = settings_of(scope, settings)
        of_brokers = {name: text for name, text in own.items() if broker_setting(name) is not None}
        if mode == KRAFT_MODE:
            of_brokers = with_own_authorizer(of_brokers)
        table = KRAFT_BROKER_SETTINGS if mode == KRAFT_MODE else BROKER_SETTINGS
        values, _ = parse_broker_settings({**PROFILES[profile], **OF_THE_LAB, **of_brokers}, table)
        release_of(values.text("tidegauge.as.kafka"), is_kraft=mode == KRAFT_MODE)
    security_of_cluster(settings)
    if mode == KRAFT_MODE:
        security_of_controllers(settings)


def in_kraft(settings: Mapping[str, str]) -> dict[str, str]:
    """Return settings of ZooKeeper mode as a cluster in KRaft mode has them."""
    return {IN_PLACE_OF_ZOOKEEPERS.get(name, name): text for name, text in settings.items()}


def _scope_of(given: str) -> tuple[int | None, str]:
    """Return a setting's broker, None for all, and its name, from ``1:broker.rack``."""
    number, separator, name = given.partition(":")
    return (int(number), name) if separator and number.isdecimal() else (None, given)


def check_scopes(settings: Mapping[str, str], broker_ids: Sequence[int], controller_ids: Sequence[int] = ()) -> None:
    """Refuse a setting of a node that the cluster does not have: it would have no effect.

    Args:
        settings: what ``--set`` gave.
        broker_ids: the brokers'.
        controller_ids: the controllers' of a quorum; in combined mode they are among the brokers'.

    Raises:
        TidegaugeError: INVALID_CONFIG.
    """
    for given in settings:
        scope, name = _scope_of(given)
        if scope is None or scope in broker_ids or scope in controller_ids:
            continue
        others = [one for one in controller_ids if one not in broker_ids]
        known = f"brokers {_listed(broker_ids)}" + (f" and controllers {_listed(others)}" if others else "")
        raise TidegaugeError(
            ErrorCode.INVALID_CONFIG,
            f"--set {given}: there is no node {scope}, so {name} would have no effect; the cluster has {known}",
        )


def _listed(ids: Sequence[int]) -> str:
    return ", ".join(map(str, ids))


def settings_of(broker_id: int | None, settings: Mapping[str, str]) -> dict[str, str]:
    """Return the settings of one broker, its own first; None: the common ones."""
    scoped = [(*_scope_of(given), text) for given, text in settings.items()]
    of_all = {name: text for scope, name, text in scoped if scope is None}
    return of_all | {name: text for scope, name, text in scoped if scope is not None and scope == broker_id}


def protocol_of(settings: Mapping[str, str]) -> str:
    """PLAINTEXT, SSL or SASL_SSL, of the cluster's gRPC listeners."""
    return settings.get("security.inter.broker.protocol", PLAINTEXT)


def protocol_of_kafka(settings: Mapping[str, str]) -> str:
    """Return the security protocol of Kafka clients' listeners; SASL if mechanisms are named."""
    protocol = BESIDE_SASL.get(protocol_of(settings), protocol_of(settings))
    return f"SASL_{protocol}" if MECHANISMS in settings else protocol


def listeners_of(broker: BrokerEntry, settings: Mapping[str, str], kafka_host: str = "") -> list[str]:
    """Return a broker's listeners: for Kafka clients, and for gRPC.

    Args:
        broker: its addresses.
        settings: what ``--set`` gave.
        kafka_host: host of its listener for Kafka clients; empty: its own host.
    """
    of_grpc = f"{GRPC_NAMES[protocol_of(settings)]}://{broker.address}"
    if not broker.kafka_port:
        return [of_grpc]
    listening = address_of(kafka_host or broker.host, broker.kafka_port)
    return [f"{protocol_of_kafka(settings)}://{listening}", of_grpc]


def advertised_of(broker: BrokerEntry, settings: Mapping[str, str], kafka_host: str = "") -> list[str]:
    """Return a broker's advertised listeners; empty if equal to its listeners."""
    if not broker.kafka_port or not (kafka_host or broker.advertised):
        return []
    *_, of_grpc = listeners_of(broker, settings)
    return [f"{protocol_of_kafka(settings)}://{broker.kafka_address}", of_grpc]


def ways_among_brokers(file: ClusterFile) -> dict[str, str]:
    """Return the settings of the protocol among brokers; empty: gRPC, the default."""
    settings = file.settings
    is_kraft = file.quorum is not None  # its controllers and brokers speak Kafka's protocol
    names = {name for _, name in map(_scope_of, settings)}
    is_plain = protocol_of(settings) == PLAINTEXT == protocol_of_kafka(settings)
    if is_kraft and _maps_controllers_alone(settings):
        names.discard(_MAP)
    if (
        not is_plain
        or not _SAYS_HOW.isdisjoint(names)
        or any(not one.kafka_port or advertised_of(one, settings, file.kafka_host) for one in file.brokers)
    ):
        # A broker of KRaft mode would take the listener of Kafka's clients, for which it had to have credentials.
        return {"inter.broker.listener.name": GRPC} if is_kraft and _SAYS_LISTENER.isdisjoint(names) else {}
    if is_kraft:
        return {"inter.broker.listener.name": PLAINTEXT}
    return {"inter.broker.listener.name": PLAINTEXT, "control.plane.listener.name": GRPC}


def _maps_controllers_alone(settings: Mapping[str, str]) -> bool:
    """Return whether the map of security protocols lacks the brokers' listeners."""
    pairs = (one.strip().upper().partition(":") for one in settings.get(_MAP, "").split(","))
    return all(name == CONTROLLER_LISTENER for name, _, _ in pairs)


def with_whole_paths(settings: Mapping[str, str]) -> dict[str, str]:
    """Make the names of files absolute: a broker runs in a directory of its own."""
    return {name: str(Path(text).expanduser().absolute()) if name in PATHS else text for name, text in settings.items()}


def session_timeout_ms(settings: Mapping[str, str], profile: str) -> int:
    """Return the ZooKeeper session timeout that brokers ask for."""
    values, _ = parse_broker_settings({**PROFILES[profile], **settings})
    return values.integer("zookeeper.session.timeout.ms")


def heartbeat_timeout_ms(settings: Mapping[str, str], profile: str) -> int:
    """Return the time without heartbeats until a broker is fenced."""
    name = "broker.session.timeout.ms"
    given = PROFILES_IN_KRAFT[profile] | settings_of(None, settings)
    parsed = {name: CONTROLLER_SETTINGS[name].parse(given[name])} if name in given else {}
    return Values(CONTROLLER_SETTINGS, parsed).integer(name)


def server_properties(
    broker: BrokerEntry,
    directory: Path,
    *,
    membership: Mapping[str, str],
    profile: str,
    settings: Mapping[str, str],
    broker_count: int = 3,
    kafka_host: str = "",
    among_brokers: Mapping[str, str] | None = None,
) -> str:
    """Return the text of a broker's ``server.properties``.

    Args:
        broker: its id and addresses.
        directory: of the cluster.
        membership: the settings that say who it is, and by which it finds its cluster, with the listeners that it has
            for that (``Topology.broker_settings``).
        profile: ``fast`` or ``kafka``.
        settings: what ``--set`` gave.
        broker_count: number of brokers of the cluster.
        kafka_host: where brokers listen for Kafka clients; empty: at their own host.
        among_brokers: ``ways_among_brokers`` of the cluster.
    """
    advertised = advertised_of(broker, settings, kafka_host)
    of_membership = [membership[LISTENERS]] if LISTENERS in membership else []
    own = settings_of(broker.id, settings)
    of_profile, of_session = dict(PROFILES[profile]), {"lab.session.file": str(session_file(directory, broker.id))}
    if IN_KRAFT in membership:
        of_profile = {name: text for name, text in of_profile.items() if not name.startswith(OF_ZOOKEEPER)}
        of_profile, of_session = of_profile | PROFILES_IN_KRAFT[profile], {}
    for name in _AT_MOST_BROKERS:
        if name in of_profile:
            of_profile[name] = str(min(broker_count, int(of_profile[name])))
    sections = {
        "This broker; rewritten at every start by `tidegauge up` or `start`.": {
            **membership,
            LISTENERS: ",".join([*listeners_of(broker, settings, kafka_host), *of_membership]),
            **({"advertised.listeners": ",".join(advertised)} if advertised else {}),
            "log.dirs": ",".join(map(str, broker_log_directories(directory, broker.id))),
            "event.log.file": str(directory / "logs" / event_log.file_name(f"broker-{broker.id}")),
        },
        "How brokers speak with one another.": dict(among_brokers or {}),
        "The rules that outlive a broker (docs/steering.md).": {
            "lab.rules.file": str(directory / CONTROL / RULES_FILE),
        },
        "The ZooKeeper session, which `tidegauge expire-session` can end when this broker is dead.": of_session,
        "The lab's own.": {key: value for key, value in OF_THE_LAB.items() if key not in own},
        f"Profile {profile}.": {key: value for key, value in of_profile.items() if key not in own},
        "Given with --set.": own,
    }
    return "\n".join(
        f"# {title}\n" + "".join(property_line(key, value) for key, value in lines.items())
        for title, lines in sections.items()
        if lines
    )
