"""The base of the admin client: one connection to the cluster, metadata, and retries while the controller moves.

Rules:
    1. A request that only the active controller can serve is sent to it. On NOT_CONTROLLER, or if the controller has
       died, the client looks the controller up again and retries until the timeout (KafkaAdminClient).
    2. A controller that is an Apache Kafka broker has no gRPC listener, and gets the request over Kafka's protocol.
    3. A paused controller keeps its connections and never responds. While a request is in flight for longer than a
       second, the other brokers are asked who is the controller; once one of them names a controller of a higher epoch,
       the request is sent to that one. If the old one had carried it out before its term ended, the new one reports
       what it finds, for example TOPIC_ALREADY_EXISTS.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from types import TracebackType
from typing import Self, TypeVar, Unpack

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.partition import TopicPartition
from tidegauge.security import Security
from tidegauge.v1 import common_pb2, metadata_pb2, reassignments_pb2, topics_pb2
from tidegauge_client.bootstrap import SecurityArguments, connect_to
from tidegauge_client.channels import LateError
from tidegauge_client.cluster import PROBE_TIMEOUT_MS, Cluster, now_ms
from tidegauge_client.kafka_controller import KafkaController
from tidegauge_client.metadata import BrokerInfo, ClusterInfo, newest_view

RESPONSE_MARGIN_MS = 1_000
"""The controller responds at its own timeout; this margin lets that response arrive."""
NO_ID = -1
"""The place of a view among others by broker id, if it is not known which broker gave it."""

Result = TypeVar("Result")


class AdminBase:
    """Start, stop, metadata, and calls to the controller; an asynchronous context manager."""

    def __init__(
        self,
        bootstrap_servers: str | Sequence[str],
        *,
        request_timeout_ms: float = 30_000,
        retry_backoff_ms: float = 100,
        **security: Unpack[SecurityArguments],
    ) -> None:
        servers = connect_to(bootstrap_servers, security)
        self._cluster = Cluster(
            servers, retry_backoff_ms=retry_backoff_ms, allow_auto_topic_creation=False, wire="grpc"
        )
        self._request_timeout_ms = request_timeout_ms
        self._retry_backoff_ms = retry_backoff_ms

    @property
    def security(self) -> Security:
        """Return how the client connects."""
        return self._cluster.channels.security

    async def start(self) -> None:
        """Start the client; nothing is contacted before the first request."""
        self._cluster.open()

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

    async def metadata(self, topics: Collection[str] | None = None) -> ClusterInfo:
        """Return one broker's view of topics (None: all); unknown ones carry their error.

        Raises:
            TidegaugeError: BROKER_NOT_AVAILABLE, no broker responds.
        """
        return await self._cluster.ask_any(metadata_request(topics))

    async def metadata_of(
        self, address: str, topics: Collection[str] | None = None, *, timeout_ms: float = PROBE_TIMEOUT_MS
    ) -> ClusterInfo:
        """Return the view of the broker at ``host:port``.

        Raises:
            TidegaugeError: it does not respond.
        """
        return await self._cluster.ask(address, metadata_request(topics), timeout_ms)

    async def metadata_of_each(
        self, brokers: Sequence[BrokerInfo], topics: Collection[str] | None = None
    ) -> dict[int, ClusterInfo]:
        """Return the views of those brokers that respond, by broker id."""
        responses = await asyncio.gather(
            *(self.metadata_of(broker.address, topics) for broker in brokers), return_exceptions=True
        )
        return {
            broker.id: response
            for broker, response in zip(brokers, responses, strict=True)
            if isinstance(response, ClusterInfo)
        }

    async def metadata_of_all(self, topics: Collection[str] | None = None) -> dict[int, ClusterInfo]:
        """Return the views of all live brokers that respond, by id.

        At least one. The brokers come from the first view and from the newest one: the first may be old. If
        none responds when it is asked by its address, the first view is under ``NO_ID``.

        Raises:
            TidegaugeError: BROKER_NOT_AVAILABLE, no broker responds.
        """
        first = await self.metadata(topics)
        views = await self.metadata_of_each(list(first.brokers.values()), topics)
        if not views:
            return {NO_ID: first}
        others = [broker for broker in newest_view(views).brokers.values() if broker.id not in first.brokers]
        return views | await self.metadata_of_each(others, topics)

    async def at_controller(
        self,
        attempt: Callable[[str, float], Awaitable[Result]],
        timeout_ms: float,
        at_kafka: Callable[[KafkaController, float], Awaitable[Result]],
    ) -> Result:
        """Run an attempt at the active controller, and again at its successor while the controller moves (rules 1, 3).

        Args:
            attempt: takes the address of a Tidegauge controller, and the ms that are left.
            timeout_ms: for all attempts.
            at_kafka: the same over Kafka's protocol, where an Apache Kafka broker is the controller (rule 2).
        """
        deadline_ms = now_ms() + timeout_ms
        while True:
            try:
                info = await self.metadata([])
                controller = None if info.controller_id is None else info.brokers.get(info.controller_id)
                left_ms = max(1.0, deadline_ms - now_ms())
                if info.controller_id is not None and info.controller_id in info.kafka_brokers:
                    asked: Awaitable[Result] = self._at_kafka(
                        info.kafka_brokers[info.controller_id].address, at_kafka, left_ms
                    )
                elif controller is not None:
                    asked = attempt(controller.address, left_ms)
                else:
                    raise TidegaugeError(ErrorCode.NOT_CONTROLLER, "the cluster has no active controller at the moment")
                return await self._unless_succeeded(asked, info.controller_epoch)
            except LateError as late:
                raise TidegaugeError(
                    late.code,
                    f"{late.message}: the controller may be paused, or wait for ZooKeeper or for a majority of the "
                    "controllers, without which it can change nothing; it is not known whether the request was carried "
                    "out; `tidegauge describe-cluster` shows which broker it is",
                ) from None
            except TidegaugeError as error:
                is_moving = error.code in {ErrorCode.NOT_CONTROLLER, ErrorCode.NETWORK_EXCEPTION}
                if not is_moving or now_ms() >= deadline_ms:
                    raise
            await asyncio.sleep(self._retry_backoff_ms / 1000)

    async def _at_kafka(
        self, address: str, at_kafka: Callable[[KafkaController, float], Awaitable[Result]], left_ms: float
    ) -> Result:
        async with KafkaController(address, self.security) as kafka:
            return await at_kafka(kafka, left_ms)

    async def _unless_succeeded(self, attempt: Awaitable[Result], controller_epoch: int) -> Result:
        """Await an attempt at a controller, as long as no broker names one of a higher epoch (rule 3).

        Args:
            attempt: the request in flight.
            controller_epoch: of the controller to which it was sent.

        Raises:
            TidegaugeError: the attempt's; NOT_CONTROLLER, the controller has a successor and does not respond.
        """
        asked = asyncio.ensure_future(attempt)
        succeeded = asyncio.create_task(self._until_succeeded(controller_epoch))
        try:
            await asyncio.wait({asked, succeeded}, return_when=asyncio.FIRST_COMPLETED)
            # A controller that only lost its term responds at once, perhaps with what it has carried out.
            await asyncio.wait({asked}, timeout=PROBE_TIMEOUT_MS / 1000)
            if asked.done():
                return asked.result()
            raise TidegaugeError(ErrorCode.NOT_CONTROLLER, "the controller has a successor, and does not respond")
        finally:
            asked.cancel()
            succeeded.cancel()
            await asyncio.gather(asked, succeeded, return_exceptions=True)

    async def _until_succeeded(self, controller_epoch: int) -> None:
        """Return once a broker names a controller of a higher epoch; wait first."""
        while True:
            await asyncio.sleep(PROBE_TIMEOUT_MS / 1000)
            with contextlib.suppress(TidegaugeError):  # no broker responds: it may be different next time
                if (await self.metadata([])).controller_epoch > controller_epoch:
                    return


def metadata_request(topics: Collection[str] | None) -> metadata_pb2.MetadataRequest:
    """Build a metadata request for these topics; None: for all."""
    if topics is None:
        return metadata_pb2.MetadataRequest(all_topics=True)
    return metadata_pb2.MetadataRequest(topics=list(topics))


def raise_for(status: common_pb2.Status) -> None:
    """Raise TidegaugeError unless the status is NONE."""
    code = ErrorCode.of(status.error)
    if code is not ErrorCode.NONE:
        raise TidegaugeError(code, status.message)


def outcomes_of(
    results: Iterable[topics_pb2.ElectPartitionResult | reassignments_pb2.ReassignPartitionResult],
) -> dict[TopicPartition, TidegaugeError | None]:
    """Return for each partition why it failed, or None."""
    outcomes: dict[TopicPartition, TidegaugeError | None] = {}
    for result in results:
        code = ErrorCode.of(result.status.error)
        problem = None if code is ErrorCode.NONE else TidegaugeError(code, result.status.message)
        outcomes[TopicPartition(result.topic, result.partition)] = problem
    return outcomes
