"""The admin client: asks brokers and the controller about a cluster, and creates topics.

Rules:
    1. What only the active controller does goes to it; NOT_CONTROLLER, or a controller that is gone, means: ask
       who it is now and try again, until the time is over (Kafka's KafkaAdminClient).
    2. What only a partition's leader knows goes to it, with the same patience.
    3. ``describe_replicas`` asks all live brokers at once, each for one second: a frozen one gives nothing, and
       delays the others by no more than that.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import NamedTuple, Self, TypeVar

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.partition import TopicPartition, topic_name_problem
from tidegauge.v1 import common_pb2, metadata_pb2, offsets_pb2, topics_pb2
from tidegauge_client.channels import call
from tidegauge_client.cluster import PROBE_TIMEOUT_MS, Cluster, now_ms, unknown_topic
from tidegauge_client.metadata import BrokerInfo, ClusterInfo, TopicInfo

LATEST = -1
EARLIEST = -2
MAX_TIMESTAMP = -3

MAX_REPLICATION_FACTOR = 32767

Result = TypeVar("Result")


class OffsetAndTimestamp(NamedTuple):
    """An offset found; timestamp and epoch are None where the broker gave none."""

    offset: int
    timestamp_ms: int | None
    leader_epoch: int | None


class TopicConfig(NamedTuple):
    """One setting of a topic as it is in force."""

    name: str
    value: str
    is_default: bool
    source: str


@dataclass(frozen=True, slots=True)
class NewTopic:
    """A topic to create; give counts or an assignment (broker ids of each partition), not both."""

    name: str
    partitions: int | None = None
    replication_factor: int | None = None
    assignment: Sequence[Sequence[int]] = ()
    configs: Mapping[str, str] | None = None


class Admin:
    """Asynchronous admin client; an asynchronous context manager, or ``start`` and ``stop``."""

    def __init__(
        self,
        bootstrap_servers: str | Sequence[str],
        *,
        request_timeout_ms: float = 30_000,
        retry_backoff_ms: float = 100,
    ) -> None:
        self._cluster = Cluster(bootstrap_servers, retry_backoff_ms=retry_backoff_ms, allow_auto_topic_creation=False)
        self._request_timeout_ms = request_timeout_ms
        self._retry_backoff_ms = retry_backoff_ms

    async def start(self) -> None:
        """Nothing is contacted before the first question."""

    async def stop(self) -> None:
        """Close all connections."""
        await self._cluster.close()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    # Metadata -----------------------------------------------------------------------------------------------

    async def metadata(self, topics: Collection[str] | None = None) -> ClusterInfo:
        """One broker's view: all topics, or those named; an unknown one carries its error.

        Raises:
            TidegaugeError: BROKER_NOT_AVAILABLE, no broker answers.
        """
        return await self._cluster.ask_any(_metadata_request(topics))

    async def metadata_of(
        self, address: str, topics: Collection[str] | None = None, *, timeout_ms: float = PROBE_TIMEOUT_MS
    ) -> ClusterInfo:
        """The view of the broker at ``host:port``.

        Raises:
            TidegaugeError: it does not answer.
        """
        return await self._cluster.ask(address, _metadata_request(topics), timeout_ms)

    async def list_topics(self) -> list[str]:
        """All topics, by name."""
        return sorted((await self.metadata()).topics)

    async def describe_topics(self, topics: Collection[str]) -> list[TopicInfo]:
        """The topics named, in that order.

        Raises:
            TidegaugeError: UNKNOWN_TOPIC_OR_PARTITION, or the topic's own error.
        """
        return topics_of(await self.metadata(topics), topics)

    async def describe_replicas(
        self, topics: Collection[str] = (), *, timeout_ms: float = PROBE_TIMEOUT_MS
    ) -> dict[int, list[metadata_pb2.ReplicaDescription] | None]:
        """What each live broker holds of the topics (none named: all); None for a broker that did not answer."""
        brokers = list((await self.metadata([])).brokers.values())
        return await self.describe_replicas_of(brokers, topics, timeout_ms=timeout_ms)

    async def describe_replicas_of(
        self, brokers: Sequence[BrokerInfo], topics: Collection[str] = (), *, timeout_ms: float = PROBE_TIMEOUT_MS
    ) -> dict[int, list[metadata_pb2.ReplicaDescription] | None]:
        """The same, of these brokers, by broker id."""
        request = metadata_pb2.DescribeReplicasRequest(topics=sorted(topics))

        async def one(broker: BrokerInfo) -> list[metadata_pb2.ReplicaDescription] | None:
            stub = self._cluster.channels.broker(broker.address)
            try:
                answer = await call(stub.DescribeReplicas, request, timeout_ms=timeout_ms, address=broker.address)
            except TidegaugeError:
                return None
            return list(answer.replicas)

        answers = await asyncio.gather(*(one(broker) for broker in brokers))
        return {broker.id: answer for broker, answer in zip(brokers, answers, strict=True)}

    async def describe_topic_config(self, topic: str) -> list[TopicConfig]:
        """A topic's settings, by name, defaults included.

        Raises:
            TidegaugeError: UNKNOWN_TOPIC_OR_PARTITION, or no broker answers.
        """
        request = topics_pb2.DescribeConfigsRequest(
            resource_type=topics_pb2.CONFIG_RESOURCE_TYPE_TOPIC, resource_name=topic
        )
        problem: TidegaugeError | None = None
        for address in self._cluster.addresses():
            stub = self._cluster.channels.admin(address)
            try:
                answer = await call(stub.DescribeConfigs, request, timeout_ms=PROBE_TIMEOUT_MS, address=address)
            except TidegaugeError as error:
                self._cluster.note_failure(address)
                problem = error
                continue
            _raise_for(answer.status)
            return sorted(TopicConfig(e.name, e.value, e.is_default, e.source) for e in answer.entries)
        assert problem is not None, "there is always an address to ask"
        raise problem

    # Topics -------------------------------------------------------------------------------------------------

    async def create_topic(
        self,
        name: str,
        *,
        partitions: int | None = None,
        replication_factor: int | None = None,
        assignment: Sequence[Sequence[int]] = (),
        configs: Mapping[str, str] | None = None,
        timeout_ms: float | None = None,
    ) -> str:
        """Create a topic; returns its id when the controller's metadata shows a leader for each partition.

        Raises:
            TidegaugeError: what is wrong with the request, before anything is sent where that can be known;
                TOPIC_ALREADY_EXISTS, INVALID_REPLICATION_FACTOR, ... as the controller says;
                REQUEST_TIMED_OUT, the topic may exist all the same.
        """
        topic = NewTopic(name, partitions, replication_factor, assignment, configs)
        check_new_topic(topic)
        limit_ms = self._request_timeout_ms if timeout_ms is None else timeout_ms
        entry = topics_pb2.NewTopic(
            name=name,
            partition_count=partitions,
            replication_factor=replication_factor,
            assignment=[topics_pb2.ReplicaList(broker_ids=ids) for ids in assignment],
            configs=dict(configs or {}),
        )
        request = topics_pb2.CreateTopicsRequest(timeout_ms=int(limit_ms), topics=[entry])

        async def attempt(address: str, left_ms: float) -> str:
            stub = self._cluster.channels.admin(address)
            # The controller answers at its own limit; the second more lets that answer arrive.
            answer = await call(stub.CreateTopics, request, timeout_ms=left_ms + 1_000, address=address)
            _raise_for(answer.topics[0].status)
            return answer.topics[0].topic_id

        return await self._at_controller(attempt, limit_ms)

    async def wait_for_topic(self, name: str, *, timeout_ms: float = 30_000) -> None:
        """Wait until every live broker's own metadata shows the topic with a leader for each partition.

        A broker that does not answer is not waited for once the others no longer count it as live.

        Raises:
            TidegaugeError: REQUEST_TIMED_OUT, with the broker that lags.
        """
        deadline_ms = now_ms() + timeout_ms
        while True:
            problem = await self._topic_lag(name)
            if problem is None:
                return
            if now_ms() >= deadline_ms:
                raise TidegaugeError(ErrorCode.REQUEST_TIMED_OUT, problem)
            await asyncio.sleep(0.05)

    async def _topic_lag(self, name: str) -> str | None:
        brokers = list((await self.metadata([])).brokers.values())
        views = await asyncio.gather(
            *(self.metadata_of(broker.address, [name]) for broker in brokers), return_exceptions=True
        )
        for broker, view in zip(brokers, views, strict=True):
            if isinstance(view, TidegaugeError):
                return f"broker {broker.id} at {broker.address} did not answer"
            if isinstance(view, BaseException):
                raise view
            topic = view.topics.get(name)
            if topic is None or topic.error is not ErrorCode.NONE:
                return f"broker {broker.id} does not know topic '{name}' yet"
            for info in topic.partitions.values():
                if info.leader_id is None:
                    return f"broker {broker.id} knows no leader of {info.topic_partition} yet"
        return None

    # Offsets ------------------------------------------------------------------------------------------------

    async def list_offsets(
        self, wanted: Mapping[TopicPartition, int], *, timeout_ms: float | None = None
    ) -> dict[TopicPartition, OffsetAndTimestamp]:
        """Offsets by time: -1 the high watermark, -2 the log start offset, -3 the largest timestamp, else ms.

        A partition that holds no such record is left out, as in Kafka.

        Raises:
            TidegaugeError: what a broker said last, when the time is over or at once if it is not retriable.
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
        """Ask each leader once; what is answered moves from ``wanted`` to ``found``."""
        by_address: dict[str, list[TopicPartition]] = {}
        problem: TidegaugeError | None = None
        for tp in wanted:
            leader = self._cluster.leader(tp)
            if leader is None:
                problem = TidegaugeError(ErrorCode.LEADER_NOT_AVAILABLE, f"{tp} has no leader right now")
            else:
                by_address.setdefault(leader.address, []).append(tp)

        async def one(address: str, partitions: list[TopicPartition]) -> offsets_pb2.ListOffsetsResponse:
            entries = [
                offsets_pb2.ListOffsetsPartition(topic=tp.topic, partition=tp.partition, timestamp_ms=wanted[tp])
                for tp in partitions
            ]
            stub = self._cluster.channels.broker(address)
            # A frozen leader must not eat the whole time: in the meantime another may lead.
            limit_ms = min(max(1.0, deadline_ms - now_ms()), 2_000.0)
            request = offsets_pb2.ListOffsetsRequest(partitions=entries)
            return await call(stub.ListOffsets, request, timeout_ms=limit_ms, address=address)

        answers = await asyncio.gather(*(one(*item) for item in by_address.items()), return_exceptions=True)
        for answer in answers:
            if isinstance(answer, TidegaugeError):
                problem = answer
                continue
            if isinstance(answer, BaseException):
                raise answer
            for result in answer.partitions:
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

    # Controller ---------------------------------------------------------------------------------------------

    async def _at_controller(self, attempt: Callable[[str, float], Awaitable[Result]], timeout_ms: float) -> Result:
        """Run an attempt at the active controller, again at the next one while it moves (rule 1)."""
        deadline_ms = now_ms() + timeout_ms
        while True:
            try:
                info = await self.metadata([])
                controller = None if info.controller_id is None else info.brokers.get(info.controller_id)
                if controller is None:
                    raise TidegaugeError(ErrorCode.NOT_CONTROLLER, "the cluster has no active controller right now")
                return await attempt(controller.address, max(1.0, deadline_ms - now_ms()))
            except TidegaugeError as error:
                is_moving = error.code in {ErrorCode.NOT_CONTROLLER, ErrorCode.NETWORK_EXCEPTION}
                if not is_moving or now_ms() >= deadline_ms:
                    raise
            await asyncio.sleep(self._retry_backoff_ms / 1000)


def check_new_topic(topic: NewTopic) -> None:
    """Refuse what Kafka's own client refuses, before anything is contacted.

    Raises:
        TidegaugeError: INVALID_TOPIC_EXCEPTION, INVALID_PARTITIONS, INVALID_REPLICATION_FACTOR,
            INVALID_REPLICA_ASSIGNMENT, INVALID_REQUEST, in Kafka's words.
    """
    problem = topic_name_problem(topic.name)
    if problem is not None:
        raise TidegaugeError(ErrorCode.INVALID_TOPIC_EXCEPTION, problem)
    if topic.assignment and (topic.partitions is not None or topic.replication_factor is not None):
        raise TidegaugeError(ErrorCode.INVALID_REQUEST, "Give counts or a replica assignment, not both.")
    if topic.partitions is not None and topic.partitions < 1:
        raise TidegaugeError(ErrorCode.INVALID_PARTITIONS, "The partitions must be greater than 0")
    factor = topic.replication_factor
    if factor is not None and not 1 <= factor <= MAX_REPLICATION_FACTOR:
        raise TidegaugeError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"The replication factor must be between 1 and {MAX_REPLICATION_FACTOR} inclusive",
        )
    sizes = {len(ids) for ids in topic.assignment}
    if len(sizes) > 1 or 0 in sizes:
        raise TidegaugeError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT, "All partitions of a topic have the same number of replicas."
        )
    if any(len(set(ids)) != len(ids) for ids in topic.assignment):
        raise TidegaugeError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT, "Partition replica lists may not contain duplicate entries."
        )


def topics_of(cluster: ClusterInfo, names: Collection[str]) -> list[TopicInfo]:
    """The topics named, in that order.

    Raises:
        TidegaugeError: UNKNOWN_TOPIC_OR_PARTITION, or the topic's own error.
    """
    found = []
    for name in names:
        topic = cluster.topics.get(name)
        if topic is None or topic.error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise TidegaugeError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, unknown_topic(name))
        if topic.error is not ErrorCode.NONE:
            raise TidegaugeError(topic.error, topic.error_message)
        found.append(topic)
    return found


def _metadata_request(topics: Collection[str] | None) -> metadata_pb2.MetadataRequest:
    if topics is None:
        return metadata_pb2.MetadataRequest(all_topics=True)
    return metadata_pb2.MetadataRequest(topics=list(topics))


def _raise_for(status: common_pb2.Status) -> None:
    code = ErrorCode.of(status.error)
    if code is not ErrorCode.NONE:
        raise TidegaugeError(code, status.message)
