"""A cluster of the shape that a suite needs: Tidegauge's, or Apache Kafka's, with the same settings on free ports."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple

from kafka_side import Kafka, free_port

from outside.proxies import proxies
from outside.results import KAFKA
from tidegauge_lab.local.cluster import LocalCluster

UP_LIMIT_SECONDS = 400.0
FOR_SUITES = {
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "6",
    "transaction.state.log.num.partitions": "6",
    "auto.create.topics.enable": "true",
}
"""On both sides: suites start very many groups, and most of them write to topics that they have not created."""


@dataclass(frozen=True, slots=True)
class Shape:
    """Requirements of a suite for a cluster.

    Attributes:
        brokers: how many; none: the suite has its clusters started itself.
        settings: of each broker, besides ``FOR_SUITES``; ``1:broker.rack`` is broker 1's alone.
        proxied: names and ports of the proxies at which brokers 0, 1, ... are known to clients; none if it is empty.
    """

    brokers: int
    settings: Mapping[str, str] = field(default_factory=dict)
    proxied: Mapping[str, int] = field(default_factory=dict)

    def all_settings(self) -> dict[str, str]:
        """Return each broker's settings, with up to three replicas of internal topics."""
        replicas = str(min(3, self.brokers))
        return {
            **FOR_SUITES,
            "offsets.topic.replication.factor": replicas,
            "transaction.state.log.replication.factor": replicas,
            "transaction.state.log.min.isr": str(min(2, self.brokers)),
            **self.settings,
        }


class Cluster(NamedTuple):
    """A running cluster.

    Attributes:
        servers: the brokers' addresses for Kafka clients.
        proxies: the address that steers the proxies in front of them; empty if there are none.
    """

    servers: list[str]
    proxies: str = ""


@contextlib.contextmanager
def cluster(side: str, shape: Shape) -> Iterator[Cluster]:
    """Start a cluster and yield it; it is removed afterwards.

    Raises:
        Unavailable: Apache Kafka or the proxies are wanted and can't be had.
    """
    if not shape.brokers:
        yield Cluster([])
        return
    with (
        tempfile.TemporaryDirectory(prefix="outside-", ignore_cleanup_errors=True) as directory,
        contextlib.ExitStack() as stack,
    ):
        yield (_kafka if side == KAFKA else _tidegauge)(Path(directory), shape, stack)


def _kafka(directory: Path, shape: Shape, stack: contextlib.ExitStack) -> Cluster:
    settings = shape.all_settings()
    kafka = Kafka(directory, settings, brokers=shape.brokers)
    servers = [f"127.0.0.1:{port}" for port in kafka.ports]
    steered = _proxies(shape, servers, stack)
    for number, port in enumerate(shape.proxied.values()):
        settings |= _behind_a_proxy(number, kafka.ports[number], port)
    kafka.use(settings)
    stack.callback(kafka.stop)
    kafka.start()
    return Cluster(_addresses(shape) or servers, steered)


def _behind_a_proxy(number: int, port: int, advertised: int) -> dict[str, str]:
    """Return settings by which clients, but not brokers, use a Kafka broker's proxy."""
    inside = free_port()
    return {
        f"{number}:listeners": f"PLAINTEXT://127.0.0.1:{port},INSIDE://127.0.0.1:{inside}",
        f"{number}:advertised.listeners": f"PLAINTEXT://127.0.0.1:{advertised},INSIDE://127.0.0.1:{inside}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,INSIDE:PLAINTEXT",
        "inter.broker.listener.name": "INSIDE",
    }


def _tidegauge(directory: Path, shape: Shape, stack: contextlib.ExitStack) -> Cluster:
    made = LocalCluster.create(directory / "tidegauge", brokers=shape.brokers, settings=shape.all_settings())
    steered = _proxies(shape, made.kafka_bootstrap_servers, stack)
    if shape.proxied:
        ports = shape.proxied.values()
        brokers = [
            replace(one, advertised=f"127.0.0.1:{port}") for one, port in zip(made.file.brokers, ports, strict=True)
        ]
        replace(made.file, brokers=brokers).save(made.directory)
        made = LocalCluster(made.directory)
    stack.callback(made.down, purge=True)
    made.up(UP_LIMIT_SECONDS)
    return Cluster(list(made.kafka_bootstrap_servers), steered)


def _proxies(shape: Shape, servers: Sequence[str], stack: contextlib.ExitStack) -> str:
    if not shape.proxied:
        return ""
    return stack.enter_context(proxies(shape.proxied, dict(zip(shape.proxied, servers, strict=True))))


def _addresses(shape: Shape) -> list[str]:
    return [f"127.0.0.1:{port}" for port in shape.proxied.values()]
