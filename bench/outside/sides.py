"""A cluster of the shape that a suite needs: Tidegauge's, or Apache Kafka's, with the same settings on free ports."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from kafka_side import Kafka

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
    """What a suite expects of a cluster.

    Attributes:
        brokers: how many.
        settings: of each broker, besides ``FOR_SUITES``.
    """

    brokers: int
    settings: Mapping[str, str] = field(default_factory=dict)

    def all_settings(self) -> dict[str, str]:
        """Return each broker's settings; internal topics have as many replicas as there are brokers, at most three."""
        replicas = str(min(3, self.brokers))
        return {
            **FOR_SUITES,
            "offsets.topic.replication.factor": replicas,
            "transaction.state.log.replication.factor": replicas,
            "transaction.state.log.min.isr": str(min(2, self.brokers)),
            **self.settings,
        }


@contextlib.contextmanager
def cluster(side: str, shape: Shape) -> Iterator[list[str]]:
    """Start a cluster and yield its brokers' addresses for Kafka clients; it is removed afterwards.

    Raises:
        Unavailable: Apache Kafka is wanted, and can't be had.
    """
    with tempfile.TemporaryDirectory(prefix="outside-", ignore_cleanup_errors=True) as directory:
        yield from _kafka(Path(directory), shape) if side == KAFKA else _tidegauge(Path(directory), shape)


def _kafka(directory: Path, shape: Shape) -> Iterator[list[str]]:
    kafka = Kafka(directory, shape.all_settings(), brokers=shape.brokers)
    try:
        kafka.start()
        yield kafka.bootstrap.split(",")
    finally:
        kafka.stop()


def _tidegauge(directory: Path, shape: Shape) -> Iterator[list[str]]:
    made = LocalCluster.create(directory / "tidegauge", brokers=shape.brokers, settings=shape.all_settings())
    try:
        made.up(UP_LIMIT_SECONDS)
        yield list(made.kafka_bootstrap_servers)
    finally:
        made.down(purge=True)
