"""The admin client: asks brokers and the controller about a cluster.

Topics are changed in ``admin_topics``, records deleted in ``admin_records``.

Rules (rule 1 is in ``admin_base``):
    2. A request that only a partition's leader can serve is sent to the leader, and retried.
    3. ``describe_replicas`` asks all live brokers in parallel, with a timeout of one second each: a paused broker
       reports nothing and delays the others by no more than that.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.partition import TopicPartition
from tidegauge.v1 import metadata_pb2, offsets_pb2
from tidegauge_client.admin_configs import ConfigAdmin
from tidegauge_client.admin_reassignments import ReassignmentAdmin
from tidegauge_client.admin_records import RecordAdmin
from tidegauge_client.admin_topics import NewTopic, TopicAdmin, check_new_topic
from tidegauge_client.admin_transactions import TransactionAdmin
from tidegauge_client.channels import call
from tidegauge_client.cluster import PROBE_TIMEOUT_MS, now_ms, unknown_topic
from tidegauge_client.kafka_brokers import no_leader
from tidegauge_client.metadata import BrokerInfo, ClusterInfo, TopicInfo

LATEST = -1
EARLIEST = -2
MAX_TIMESTAMP = -3

__all__ = [
    "EARLIEST",
    "LATEST",
    "MAX_TIMESTAMP",
    "Admin",
    "NewTopic",
    "OffsetAndTimestamp",
    "TopicConfig",
    "check_new_topic",
]


class OffsetAndTimestamp(NamedTuple):
    """The offset that a lookup found; timestamp and epoch are None if the broker gave none."""

    offset: int
    timestamp_ms: int | None
    leader_epoch: int | None


class TopicConfig(NamedTuple):
    """One topic setting with the value in force."""

    name: str
    value: str
    is_default: bool
    source: str


class Admin(TopicAdmin, RecordAdmin, ConfigAdmin, ReassignmentAdmin, TransactionAdmin):
    """Asynchronous admin client; an asynchronous context manager, or ``start`` and ``stop``."""

    # Metadata -----------------------------------------------------------------------------------------------

    async def list_topics(self) -> list[str]:
        """Return all topics, sorted by name."""
        return sorted((await self.metadata()).topics)

    async def describe_topics(self, topics: Collection[str]) -> list[TopicInfo]:
        """Return the named topics, in the order given.

        Raises:
            TidegaugeError: UNKNOWN_TOPIC_OR_PARTITION, or the topic's own error.
        """
        return await self.topics_in(await self.metadata(topics), topics)

    async def topics_in(self, cluster: ClusterInfo, names: Collection[str]) -> list[TopicInfo]:
        """Return the named topics of some metadata, in the order given.

        Raises:
            TidegaugeError: UNKNOWN_TOPIC_OR_PARTITION, which says whether a topic is marked for deletion; or the
                topic's own error.
        """
        try:
            return _topics_of(cluster, names)
        except TidegaugeError as problem:
            if problem.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                raise
        missing = next(name for name in names if is_unknown(cluster, name))
        raise await self.unknown_topic(missing)

    async def describe_replicas(
        self, topics: Collection[str] = (), *, timeout_ms: float = PROBE_TIMEOUT_MS
    ) -> dict[int, list[metadata_pb2.ReplicaDescription] | None]:
        """Return the replicas at each live broker (no topics: all); None: no response."""
        brokers = list((await self.metadata([])).brokers.values())
        return await self.describe_replicas_of(brokers, topics, timeout_ms=timeout_ms)

    async def describe_replicas_of(
        self, brokers: Sequence[BrokerInfo], topics: Collection[str] = (), *, timeout_ms: float = PROBE_TIMEOUT_MS
    ) -> dict[int, list[metadata_pb2.ReplicaDescription] | None]:
        """Return the replicas at the given brokers, by id; None: no response."""
        reports = await self.replica_reports_of(brokers, topics, timeout_ms=timeout_ms)
        return {broker: None if one is None else list(one.replicas) for broker, one in reports.items()}

    async def replica_reports_of(
        self,
        brokers: Sequence[BrokerInfo],
        topics: Collection[str] = (),
        *,
        with_znodes: bool = False,
        timeout_ms: float = PROBE_TIMEOUT_MS,
    ) -> dict[int, metadata_pb2.DescribeReplicasResponse | None]:
        """Return the replicas at the given brokers, and refused requests about them.

        Args:
            brokers: that are asked.
            topics: none named: all.
            with_znodes: whether the brokers also read the topics' znodes.
            timeout_ms: for each broker.

        Returns:
            The responses by broker id; None for a broker that did not respond.
        """
        request = metadata_pb2.DescribeReplicasRequest(topics=sorted(topics), with_znodes=with_znodes)

        async def one(broker: BrokerInfo) -> metadata_pb2.DescribeReplicasResponse | None:
            stub = self._cluster.channels.broker(broker.address)
            try:
                return await call(stub.DescribeReplicas, request, timeout_ms=timeout_ms, address=broker.address)
            except TidegaugeError:
                return None

        responses = await asyncio.gather(*(one(broker) for broker in brokers))
        return {broker.id: response for broker, response in zip(brokers, responses, strict=True)}

    async def describe_topic_config(self, topic: str) -> list[TopicConfig]:
        """Return a topic's settings by name, defaults included.

        Raises:
            TidegaugeError: UNKNOWN_TOPIC_OR_PARTITION, or no broker responds.
        """
        entries = await self.describe_topic_settings(topic)
        return [TopicConfig(one.name, one.value or "", one.is_default, one.source) for one in entries]

    # Offsets ------------------------------------------------------------------------------------------------

    async def list_offsets(
        self, wanted: Mapping[TopicPartition, int], *, timeout_ms: float | None = None
    ) -> dict[TopicPartition, OffsetAndTimestamp]:
        """Return offsets by time in ms, or by Kafka's special values.

        -1 is the high watermark, -2 the log start offset, -3 the largest timestamp. A partition without such a record
        is left out, as in Kafka.

        Raises:
            TidegaugeError: the last error of a broker, when the timeout has passed, or at once if it is not retriable.
        """
        deadline_ms = now_ms() + (self._request_timeout_ms if timeout_ms is None else timeout_ms)
        await self._cluster.ensure_topics(
            {tp.topic for tp in wanted}, timeout_ms=min(1_000.0, max(0.0, deadline_ms - now_ms()))
        )
        for tp in wanted:
            if self._cluster.info.partition(tp) is None:
                raise TidegaugeError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no partition {tp}")
        found: dict[TopicPartition, OffsetAndTimestamp] = {}
        open_partitions = dict(wanted)
        while True:
            problem = await self._list_offsets_once(open_partitions, found, deadline_ms)
            if not open_partitions:
                return found
            if problem is not None and (not problem.retriable or now_ms() >= deadline_ms):
                raise problem
            await asyncio.sleep(self._retry_backoff_ms / 1000)
            self._cluster.request_refresh()

    async def _list_offsets_once(
        self, wanted: dict[TopicPartition, int], found: dict[TopicPartition, OffsetAndTimestamp], deadline_ms: float
    ) -> TidegaugeError | None:
        """Ask each leader once; what succeeds moves from ``wanted`` to ``found``."""
        by_address: dict[str, list[TopicPartition]] = {}
        problem: TidegaugeError | None = None
        for tp in wanted:
            leader = self._cluster.leader(tp)
            if leader is None:
                problem = no_leader(self._cluster.info, tp)
            else:
                by_address.setdefault(leader.address, []).append(tp)

        async def one(address: str, partitions: list[TopicPartition]) -> offsets_pb2.ListOffsetsResponse:
            entries = [
                offsets_pb2.ListOffsetsPartition(topic=tp.topic, partition=tp.partition, timestamp_ms=wanted[tp])
                for tp in partitions
            ]
            stub = self._cluster.channels.broker(address)
            # A paused leader must not use up the whole timeout: another one may lead in the meantime.
            limit_ms = min(max(1.0, deadline_ms - now_ms()), 2_000.0)
            request = offsets_pb2.ListOffsetsRequest(partitions=entries)
            return await call(stub.ListOffsets, request, timeout_ms=limit_ms, address=address)

        responses = await asyncio.gather(*(one(*item) for item in by_address.items()), return_exceptions=True)
        for response in responses:
            if isinstance(response, TidegaugeError):
                problem = response
                continue
            if isinstance(response, BaseException):
                raise response
            for result in response.partitions:
                tp = TopicPartition(result.topic, result.partition)
                code = ErrorCode.of(result.error)
                if code is not ErrorCode.NONE:
                    problem = TidegaugeError(code, result.error_message)
                    continue
                del wanted[tp]
                if result.HasField("offset"):
                    found[tp] = OffsetAndTimestamp(
                        result.offset,
                        result.timestamp_ms if result.HasField("timestamp_ms") else None,
                        result.leader_epoch if result.HasField("leader_epoch") else None,
                    )
        return problem


def is_unknown(cluster: ClusterInfo, name: str) -> bool:
    """Return whether metadata, asked for a topic, does not show it."""
    topic = cluster.topics.get(name)
    return topic is None or topic.error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def _topics_of(cluster: ClusterInfo, names: Collection[str]) -> list[TopicInfo]:
    """Return the named topics, in the order given.

    Raises:
        TidegaugeError: UNKNOWN_TOPIC_OR_PARTITION, or the topic's own error.
    """
    found = []
    for name in names:
        if is_unknown(cluster, name):
            raise TidegaugeError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, unknown_topic(name))
        topic = cluster.topics[name]
        if topic.error is not ErrorCode.NONE:
            raise TidegaugeError(topic.error, topic.error_message)
        found.append(topic)
    return found
