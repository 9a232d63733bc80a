"""The plan of a cluster's nodes: made at the first ``up`` of a directory, kept by every later one.

Rules:
- Ids, ports and directories of brokers never change; brokers may be added, never taken away.
- A later ``up`` may bring other settings and another profile; it may not bring another topology or other ports, since
  the data in the directory belongs to them.
- Everything is checked before anything is written.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.host_addresses import dialled_host
from tidegauge_client.cluster_file import KRAFT_MODE, BrokerEntry, ClusterFile
from tidegauge_lab.local import ports
from tidegauge_lab.local.broker_settings import DEFAULT_PROFILE, check_scopes, check_settings
from tidegauge_lab.local.topology import planning_of
from tidegauge_lab.local.wanted import MOST_CONTROLLERS, Wanted, contradiction

DEFAULT_BROKERS = 3
MAX_BROKERS = 100


class Plan(NamedTuple):
    """The cluster, and what the user should know of it."""

    file: ClusterFile
    notes: list[str]


def first_plan(
    directory: Path, wanted: Wanted, *, taken: frozenset[int] = frozenset(), free: Callable[[int], bool] = ports.is_free
) -> Plan:
    """Plan a new cluster.

    Raises:
        TidegaugeError: a setting is wrong, a requested port is busy, there is no free port.
    """
    brokers = _count_of_new(wanted)
    profile = wanted.profile or DEFAULT_PROFILE
    mode = wanted.mode_of_new
    check_settings(wanted.settings, profile, mode)
    _check_count(brokers)
    _check_path(directory)
    chosen = _broker_ports(range(brokers), ports.FIRST_BROKER_PORT, wanted.base_port, "--base-port", taken, free)
    of_kafka = _broker_ports(
        range(brokers), ports.FIRST_KAFKA_PORT, wanted.kafka_port, "--kafka-port", taken | {*chosen}, free
    )
    if shared := sorted({*chosen} & {*of_kafka}):
        raise TidegaugeError(
            ErrorCode.INVALID_REQUEST,
            f"port {shared[0]} would be one of gRPC and one for Kafka clients; give --base-port and --kafka-port ports "
            f"that are {brokers} apart",
        )
    notes = [
        *_moved(range(brokers), ports.FIRST_BROKER_PORT, chosen, wanted.base_port, "gRPC"),
        *_moved(range(brokers), ports.FIRST_KAFKA_PORT, of_kafka, wanted.kafka_port, "Kafka clients"),
    ]
    file = ClusterFile(
        zookeeper_address="",
        zookeeper_managed=False,
        profile=profile,
        brokers=[
            replace(entry(directory, broker_id, *both), kafka_host=reached_at(wanted.kafka_host or ""))
            for broker_id, both in enumerate(zip(chosen, of_kafka, strict=True))
        ],
        settings=dict(wanted.settings),
        kafka_host=wanted.kafka_host or "",
    )
    whole, more = planning_of(mode).complete(file, wanted, taken=taken, free=free)
    _check_scopes(wanted, whole)
    return Plan(whole, [*notes, *more])


def next_plan(
    directory: Path,
    recorded: ClusterFile,
    wanted: Wanted,
    *,
    taken: frozenset[int] = frozenset(),
    free: Callable[[int], bool] = ports.is_free,
) -> Plan:
    """Plan the recorded cluster with the changes that are possible.

    Raises:
        TidegaugeError: the request contradicts the directory's cluster, or a setting is wrong.
    """
    if wanted.mode not in {None, recorded.mode}:
        raise contradiction(directory, f"is in {'KRaft' if recorded.mode == KRAFT_MODE else 'ZooKeeper'} mode")
    wanted.require_fits(recorded.mode)
    planning_of(recorded.mode).require_same(directory, recorded, wanted)
    first = recorded.brokers[0].port
    if wanted.base_port is not None and wanted.base_port != first:
        raise contradiction(directory, f"has its brokers from port {first} on")
    first_of_kafka = recorded.brokers[0].kafka_port
    if wanted.kafka_port is not None and first_of_kafka and wanted.kafka_port != first_of_kafka:
        raise contradiction(directory, f"serves Kafka clients from port {first_of_kafka} on")
    count = len(recorded.brokers) if wanted.brokers is None else wanted.brokers
    if count < len(recorded.brokers):
        raise contradiction(directory, f"has {len(recorded.brokers)} brokers, and each holds data")
    profile = wanted.profile or recorded.profile
    settings = {**recorded.settings, **wanted.settings}
    check_settings(settings, profile, recorded.mode)
    _check_count(count)
    known = [
        replace(entry(directory, broker.id, broker.port, broker.kafka_port), advertised=broker.advertised)
        for broker in recorded.brokers
    ]
    new_ids = range(len(known), count)
    of_brokers = {port for broker in known for port in (broker.port, broker.kafka_port)}
    used = of_brokers | planning_of(recorded.mode).ports_avoided(recorded)
    first_wanted = [max(broker.port for broker in known) + 1 + place for place in range(len(new_ids))]
    chosen = ports.choose_ports(first_wanted, taken={*used, *taken}, free=free)
    added = [entry(directory, broker_id, port, 0) for broker_id, port in zip(new_ids, chosen, strict=True)]
    brokers = _with_kafka_ports([*known, *added], wanted.kafka_port, used | {*chosen, *taken}, free)
    notes = [
        f"broker {broker.id} is new in this cluster, on port {broker.port} (gRPC) and {broker.kafka_port} (Kafka)"
        for broker in brokers[len(known) :]
    ]
    kafka_host = recorded.kafka_host if wanted.kafka_host is None else wanted.kafka_host
    brokers = [replace(one, kafka_host=reached_at(kafka_host)) for one in brokers]
    whole = replace(recorded, profile=profile, settings=settings, brokers=brokers, kafka_host=kafka_host)
    _check_scopes(wanted, whole)
    return Plan(whole, notes)


def _check_scopes(wanted: Wanted, file: ClusterFile) -> None:
    """Refuse new settings of nodes that the cluster does not have; recorded ones may be of a removed controller."""
    controllers = [] if file.quorum is None else file.quorum.ids
    check_scopes(wanted.settings, [one.id for one in file.brokers], controllers)


def _with_kafka_ports(
    brokers: list[BrokerEntry], first: int | None, taken: set[int], free: Callable[[int], bool]
) -> list[BrokerEntry]:
    """Return the brokers with ports for Kafka clients; missing ones are the next free."""
    lacking = [broker for broker in brokers if not broker.kafka_port]
    last = max((broker.kafka_port for broker in brokers), default=0)
    begin = last + 1 if last else first or ports.FIRST_KAFKA_PORT
    wanted = [begin + place for place in range(len(lacking))]
    chosen = iter(ports.choose_ports(wanted, taken=taken, free=free))
    return [broker if broker.kafka_port else replace(broker, kafka_port=next(chosen)) for broker in brokers]


def reached_at(kafka_host: str) -> str:
    """Return the local host name of listeners for Kafka clients; empty: the brokers' own."""
    return dialled_host(kafka_host, "")


def entry(directory: Path, broker_id: int, port: int, kafka_port: int) -> BrokerEntry:
    """Return a broker of this directory."""
    return BrokerEntry(broker_id, ports.HOST, port, str(directory / f"broker-{broker_id}"), kafka_port)


def ports_of(file: ClusterFile) -> list[int]:
    """Ports that processes of the cluster bind."""
    of_brokers = [port for broker in file.brokers for port in (broker.port, broker.kafka_port) if port]
    return [*of_brokers, *planning_of(file.mode).ports_bound(file)]


def _broker_ports(
    broker_ids: range,
    first: int,
    asked: int | None,
    option: str,
    taken: frozenset[int],
    free: Callable[[int], bool],
) -> list[int]:
    """Return a port for each broker, from the requested or the default first one."""
    if asked is None:
        return ports.choose_ports([first + broker_id for broker_id in broker_ids], taken=taken, free=free)
    chosen = [asked + broker_id for broker_id in broker_ids]
    for broker_id, port in enumerate(chosen):
        ports.require_free(port, f"broker {broker_id}", option=option, free=free)
    return chosen


def _moved(broker_ids: range, first: int, chosen: list[int], asked: int | None, of: str) -> list[str]:
    wanted = [first + broker_id for broker_id in broker_ids]
    if asked is not None or wanted == chosen:
        return []
    taken = ", ".join(str(port) for port in range(wanted[0], chosen[-1]) if port not in chosen)
    return [f"taken: port {taken}; the brokers get {', '.join(map(str, chosen))} for {of}"]


def _count_of_new(wanted: Wanted) -> int:
    """Return the number of brokers of a new cluster: as requested, or by default."""
    if wanted.brokers is not None:
        return wanted.brokers
    is_combined = wanted.quorum.is_combined
    return max(DEFAULT_BROKERS, min(wanted.quorum.size(None), MOST_CONTROLLERS)) if is_combined else DEFAULT_BROKERS


def _check_count(brokers: int) -> None:
    if not 1 <= brokers <= MAX_BROKERS:
        raise TidegaugeError(ErrorCode.INVALID_REQUEST, f"a cluster has 1 to {MAX_BROKERS} brokers, not {brokers}")


def _check_path(directory: Path) -> None:
    if "," in str(directory) or "\n" in str(directory):
        raise TidegaugeError(
            ErrorCode.INVALID_REQUEST,
            f"{str(directory)!r} can't hold a cluster: log.dirs in server.properties separates directories by commas",
        )
