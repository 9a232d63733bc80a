"""A scenario file's contents, checked: the cluster, its topics, the steps."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.partition import TopicPartition
from tidegauge_client.cluster_file import KRAFT_MODE, ZOOKEEPER_MODE
from tidegauge_client.quorum_file import FIRST_CONTROLLER_ID
from tidegauge_lab.local.broker_settings import in_kraft
from tidegauge_lab.local.wanted import DEFAULT_CONTROLLERS
from tidegauge_lab.scenario.step_base import PartitionStep, Step

LIMIT_SECONDS = 120.0
TRUNCATION_RULE = "replica.truncation.rule"

# Settings by which every scenario runs the same way each time; a file may change them.
SETTINGS: dict[str, str] = {
    "auto.leader.rebalance.enable": "false",  # no election that no step asked for
    "replica.lag.time.max.ms": "600000",  # a held follower stays in the ISR
    "min.insync.replicas": "1",
    "default.replication.factor": "1",
}


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic that exists when the first step runs."""

    name: str
    assignment: tuple[tuple[int, ...], ...]
    config: Mapping[str, str] = field(default_factory=dict)
    line: int = 0


@dataclass(frozen=True, slots=True)
class Scenario:
    """A story.

    Attributes:
        name: as it is called on the command line.
        title: what it shows, one sentence.
        teaches: what it teaches, some sentences.
        rule: the rule of Kafka that it shows, one sentence.
        brokers: how many; their ids begin at 0.
        controller: the broker that is the controller from the start to the end.
        settings: of all brokers, beside ``SETTINGS``.
        topics: made before the first step.
        steps: one after the other.
        limit_seconds: for all of it.
        mode: ``zookeeper`` or ``kraft``.
        controllers: how many, in KRaft mode; their ids begin at 3000.
        features: levels of features, in KRaft mode.
        steps_in_kraft: the steps as they are in KRaft mode, where leader epochs may differ.
        zookeeper_only: why it can't be played in KRaft mode; empty: it can.
        is_adapted: whether it is a story of ZooKeeper mode that is played in KRaft mode.
    """

    name: str
    title: str
    teaches: str
    rule: str
    brokers: int
    controller: int
    settings: Mapping[str, str]
    topics: tuple[Topic, ...]
    steps: tuple[Step, ...]
    limit_seconds: float = LIMIT_SECONDS
    mode: str = ZOOKEEPER_MODE
    controllers: int = 0
    features: Mapping[str, int] = field(default_factory=dict)
    steps_in_kraft: tuple[Step, ...] = ()
    zookeeper_only: str = ""
    is_adapted: bool = False

    def in_kraft(self, controllers: int = DEFAULT_CONTROLLERS) -> Scenario:
        """Return the scenario for KRaft mode; one that is in it already stays unchanged.

        Raises:
            TidegaugeError: INVALID_REQUEST, it shows something of ZooKeeper mode alone.
        """
        if self.mode == KRAFT_MODE:
            return self
        if self.zookeeper_only:
            raise TidegaugeError(
                ErrorCode.INVALID_REQUEST, f"{self.name} can't be played in KRaft mode: {self.zookeeper_only}"
            )
        return replace(
            self,
            mode=KRAFT_MODE,
            controllers=controllers,
            settings=in_kraft(self.settings),
            steps=self.steps_in_kraft,
            is_adapted=True,
        )

    @property
    def nodes(self) -> list[int]:
        """Return the ids of all brokers and of the controllers beside them."""
        return [*range(self.brokers), *range(FIRST_CONTROLLER_ID, FIRST_CONTROLLER_ID + self.controllers)]

    @property
    def all_settings(self) -> dict[str, str]:
        """Settings of all brokers."""
        return {**SETTINGS, **self.settings}

    @property
    def first_partition(self) -> TopicPartition:
        """The partition of a step that names none."""
        return TopicPartition(self.topics[0].name, 0)

    def partition_of(self, step: PartitionStep) -> TopicPartition:
        """Return the partition on which a step acts."""
        return step.partition or self.first_partition
