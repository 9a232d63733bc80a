"""What the keeper of a cluster's metadata says of brokers and partitions, in either mode: for the tests with faults."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet
from contextlib import contextmanager
from typing import Any, Protocol

from tests.zookeeper_view import ZooKeeperView

from tidegauge.errors import TidegaugeError
from tidegauge_client.cluster_file import KRAFT_MODE
from tidegauge_client.sync import SyncAdmin
from tidegauge_lab.local.cluster import LocalCluster

SEQUENCE = re.compile(r"\d{10}$")


class Truth(Protocol):
    """A look at the metadata."""

    def all_of(self, topics: Sequence[str]) -> list[Any]:
        """Return brokers, controller and partitions; never twice the same while a broker is missing."""

    def isr(self, topic: str) -> list[int]:
        """Return the ISR of the topic's partition 0."""

    def kept(self) -> AbstractSet[str]:
        """Return the names of all that is kept; a sequence node counts as one, however many there are."""


class ZooKeeperTruth:
    """In znodes."""

    def __init__(self, cluster: LocalCluster, view: ZooKeeperView) -> None:
        self._brokers = [broker.id for broker in cluster.file.brokers]
        self._view = view

    def all_of(self, topics: Sequence[str]) -> list[Any]:
        epochs = [self._view.broker_epoch(broker) for broker in self._brokers]
        if None in epochs:
            return [time.monotonic()]
        states = [
            self._view.state(topic, int(number))
            for topic in topics
            for number in self._view.children(f"/brokers/topics/{topic}/partitions")
        ]
        return [epochs, self._view.controller(), states]

    def isr(self, topic: str) -> list[int]:
        return list(self._view.state(topic)["isr"])

    def kept(self) -> AbstractSet[str]:
        return {SEQUENCE.sub("N", path) for path in self._view.tree()}


class QuorumTruth:
    """In the metadata log: as the quorum's leader describes the quorum, and brokers the rest."""

    def __init__(self, cluster: LocalCluster, admin: SyncAdmin) -> None:
        self._cluster = cluster
        self._admin = admin

    def all_of(self, topics: Sequence[str]) -> list[Any]:
        try:
            fenced = [one["fenced"] for one in self._cluster.status()["brokers"]]
            quorum = self._cluster.quorum()
            partitions = self._partitions(topics)
        except TidegaugeError:
            return [time.monotonic()]
        if quorum is None or any(one is not False for one in fenced):
            return [time.monotonic()]
        return [quorum.leader_id, quorum.epoch, partitions]

    def isr(self, topic: str) -> list[int]:
        return list(self._partitions([topic])[topic, 0][-1])

    def kept(self) -> AbstractSet[str]:
        return frozenset()

    def _partitions(self, topics: Sequence[str]) -> dict[tuple[str, int], Any]:
        return {
            (info.name, number): (one.leader_id, one.leader_epoch, one.partition_epoch, one.isr)
            for info in self._admin.describe_topics(topics)
            for number, one in info.partitions.items()
        }


@contextmanager
def truth_of(cluster: LocalCluster) -> Iterator[Truth]:
    """Yield the look that the cluster's mode allows, by one session or one client."""
    if cluster.file.mode == KRAFT_MODE:
        with SyncAdmin(cluster.bootstrap_servers) as admin:
            yield QuorumTruth(cluster, admin)
    else:
        with ZooKeeperView(cluster.file.zookeeper_address) as view:
            yield ZooKeeperTruth(cluster, view)
