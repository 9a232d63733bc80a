"""The full description of topics: metadata, settings, and what every replica reports.

Rules:
    1. One ``ReplicaState`` for each assigned replica, in assignment order; a broker that is dead, does not respond
       within a second, or is Apache Kafka's gives ``unknown`` and None.
    2. The partition's HW is its leader's; there is none while there is no leader, or it does not respond.
    3. ``remote_leos`` is set for the leader only: it alone records them (Replica.fetchState).
    4. Settings are in ZooKeeper, and brokers read them there: while it is unavailable they are unknown, and all the
       rest is reported.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import field

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.lazy_dataclasses import dataclass
from tidegauge.partition import TopicPartition
from tidegauge.v1 import metadata_pb2
from tidegauge_client.admin import Admin, TopicConfig
from tidegauge_client.metadata import ClusterInfo, PartitionInfo, TopicInfo

UNKNOWN = "unknown"
KAFKA = "kafka"
MIN_ISR = "min.insync.replicas"
_WITHOUT_ZOOKEEPER = frozenset(
    # No response in time; or, if the session ended while the request waited, the error that Kafka makes of it.
    {ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NETWORK_EXCEPTION, ErrorCode.UNKNOWN_SERVER_ERROR}
)


@dataclass(frozen=True, slots=True)
class ReplicaState:
    """The report of one replica; None if it could not be asked.

    Attributes:
        is_kafkas: whether it is an Apache Kafka broker's, which can't be asked.
    """

    broker: int
    role: str = UNKNOWN
    leo: int | None = None
    hw: int | None = None
    log_start: int | None = None
    in_isr: bool = False
    remote_leos: Mapping[int, int | None] = field(default_factory=dict)
    epochs: Sequence[tuple[int, int]] = ()
    lso: int | None = None
    is_kafkas: bool = False

    @property
    def shown_role(self) -> str:
        """Return the role for people; of a Kafka broker's replica ``kafka``."""
        return KAFKA if self.is_kafkas else self.role


@dataclass(frozen=True, slots=True)
class TopicDescription:
    """One topic; ``replicas`` by partition, empty lists if they were not asked.

    Attributes:
        problem: why ``configs`` is empty though there may be some (rule 4); empty when all are known.
    """

    info: TopicInfo
    configs: Sequence[TopicConfig]
    replicas: Mapping[int, Sequence[ReplicaState]]
    problem: str = ""

    @property
    def min_isr(self) -> int:
        """Return min.insync.replicas in force."""
        return next((int(config.value) for config in self.configs if config.name == MIN_ISR), 1)

    def high_watermark(self, part: PartitionInfo) -> int | None:
        """Return the leader's HW (rule 2)."""
        if part.leader_id is None:
            return None
        states = self.replicas.get(part.partition, ())
        return next((s.hw for s in states if s.broker == part.leader_id and s.role == "leader"), None)


def replica_state(
    broker: int, in_isr: bool, said: metadata_pb2.ReplicaDescription | None, *, is_kafkas: bool = False
) -> ReplicaState:
    """Return one replica's state from what its broker reported, or did not report."""
    if said is None:
        return ReplicaState(broker, in_isr=in_isr, is_kafkas=is_kafkas)
    if said.role == "offline":
        return ReplicaState(broker, said.role, in_isr=in_isr)
    remote_leos: dict[int, int | None] = {}
    if said.role == "leader":
        remote_leos = {
            remote.broker_id: remote.log_end_offset if remote.HasField("log_end_offset") else None
            for remote in sorted(said.remote_replicas, key=lambda remote: remote.broker_id)
        }
    return ReplicaState(
        broker=broker,
        role=said.role,
        leo=said.log_end_offset,
        hw=said.high_watermark,
        lso=said.last_stable_offset if said.HasField("last_stable_offset") else None,
        log_start=said.log_start_offset,
        in_isr=in_isr,
        remote_leos=remote_leos,
        epochs=[(entry.leader_epoch, entry.start_offset) for entry in said.epochs],
    )


def replica_states(
    topic: TopicInfo,
    responses: Mapping[int, Sequence[metadata_pb2.ReplicaDescription] | None],
    kafka_brokers: Collection[int] = (),
) -> dict[int, list[ReplicaState]]:
    """Return all replicas of a topic, by partition (rule 1)."""
    said = {
        (broker, TopicPartition(one.topic, one.partition)): one
        for broker, replicas in responses.items()
        for one in replicas or ()
    }
    return {
        part.partition: [
            replica_state(
                broker,
                broker in part.isr,
                said.get((broker, part.topic_partition)),
                is_kafkas=broker in kafka_brokers,
            )
            for broker in part.replicas
        ]
        for part in topic.partitions.values()
    }


async def describe(
    admin: Admin, names: Collection[str], *, with_replicas: bool
) -> tuple[list[TopicDescription], ClusterInfo]:
    """Describe topics (none named: all, by name), with the metadata that they come from.

    Raises:
        TidegaugeError: UNKNOWN_TOPIC_OR_PARTITION, or no broker responds.
    """
    cluster = await admin.metadata(names or None)
    topics = await admin.topics_in(cluster, names or sorted(cluster.topics))
    responses: Mapping[int, Sequence[metadata_pb2.ReplicaDescription] | None] = {}
    if with_replicas:
        responses = await admin.describe_replicas_of(list(cluster.brokers.values()), [t.name for t in topics])
    described = []
    problem = ""
    for topic in topics:
        configs: Sequence[TopicConfig] = ()
        if not problem:  # waiting once is enough for all topics
            configs, problem = await settings_of(admin, topic.name)
        states: Mapping[int, Sequence[ReplicaState]] = dict.fromkeys(topic.partitions, ())
        if with_replicas:
            states = replica_states(topic, responses, cluster.kafka_brokers)
        described.append(TopicDescription(topic, configs, states, problem))
    return described, cluster


async def settings_of(admin: Admin, topic: str) -> tuple[Sequence[TopicConfig], str]:
    """Return a topic's settings, or why they are not known (rule 4).

    Raises:
        TidegaugeError: UNKNOWN_TOPIC_OR_PARTITION.
    """
    try:
        return await admin.describe_topic_config(topic), ""
    except TidegaugeError as error:
        if error.code not in _WITHOUT_ZOOKEEPER:
            raise
        return (), "no broker could read the topic's settings in ZooKeeper in time"
