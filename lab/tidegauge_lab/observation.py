"""Asks brokers what they know, and says which of their responses counts: the one place in the lab that does either.

Brokers' metadata caches differ for a while, and a broker partitioned from the controller stays behind.

Rules:
    1. Of several brokers' metadata the newest counts, by the client's rules (``tidegauge_client.metadata``:
       ``newest_view``, ``newest_of``): the highest controller epoch, then the controller's own, then one that names a
       controller, as a broker without a ZooKeeper session does not. Of several states of one partition it is the
       highest leader epoch, then the highest partition epoch.
    2. States are compared within one topic id only. Where the views that count show no such topic, there is none: a
       broker with old metadata does not revive it.
    3. The controller is the one of the highest controller epoch in the responses, if its process lives.
    4. A broker with a Lab service is asked for its replicas through it, since no fault affects it; another one, and one
       without ``lab.enable=true``, by DescribeReplicas. A broker that does not respond costs the deadline, no more.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple, Self

import grpc
import grpc.aio
from grpc_health.v1 import health_pb2

from tidegauge.errors import TidegaugeError
from tidegauge.groups import OFFSETS_TOPIC
from tidegauge.lazy_dataclasses import dataclass
from tidegauge.partition import TopicPartition
from tidegauge.security import PLAIN, Security
from tidegauge.v1 import lab_pb2, metadata_pb2
from tidegauge_client.channels import Channels
from tidegauge_client.kafka_wire import KafkaWire
from tidegauge_client.loop_thread import LoopThread, made_on
from tidegauge_client.metadata import ClusterInfo, PartitionInfo, from_response, newest_of, newest_view
from tidegauge_client.share_views import BrokerShares, ask_for_shares, shares_of
from tidegauge_lab.group_observation import observed_groups
from tidegauge_lab.switches import BrokerSwitches, Switches

READY_SERVICE = "tidegauge.ready"
DEADLINE_SECONDS = 1.0
MAX_RANGES = 200
"""Maximum number of ranges of records that are asked for of each share partition."""

# Which response counts


def newest_states(views: Mapping[int, ClusterInfo]) -> dict[TopicPartition, PartitionInfo]:
    """Return the newest state of each partition in these views (rules 1, 2)."""
    return {part.topic_partition: part for part in newest_of(views)}


def kafka_brokers(views: Mapping[int, ClusterInfo]) -> dict[int, str]:
    """Return the client addresses of live Apache Kafka brokers, by id."""
    found = newest_view(views).kafka_brokers if views else {}
    return {broker_id: one.address for broker_id, one in found.items()}


class ControllerView(NamedTuple):
    """The active controller; both None while it is unknown."""

    broker: int | None
    epoch: int | None


def controller_of(
    views: Mapping[int, Observation],
    alive: Collection[int],
    members: Collection[int] | None = None,
    kafkas: Collection[int] = (),
) -> ControllerView:
    """Return the controller that most recently sent the brokers metadata (rule 3).

    Args:
        views: what each broker said.
        alive: the brokers whose processes live.
        members: the brokers of this cluster. Another one counts as alive. None: there is no other.
        kafkas: Apache Kafka brokers that are registered, also those that have the id of a member. They count as alive.
    """
    newest = max((view.controller_epoch for view in views.values()), default=-1)
    if newest < 0:
        return ControllerView(None, None)
    named = (view.controller_id for view in views.values() if view.controller_epoch == newest)
    known = {*alive, *kafkas}
    living = (
        one for one in named if one is not None and (one in known or (members is not None and one not in members))
    )
    return ControllerView(next(living, None), newest)


# Asking


@dataclass(frozen=True, slots=True)
class Observation:
    """The report of one broker.

    Attributes:
        metadata: its metadata cache; None if it did not respond.
        replicas: its replicas; None if it did not respond, or was not asked.
        switches: its active faults; None likewise.
        groups: the consumer groups that it coordinates; None likewise, or if they were not asked for.
        shares: share partitions that it leads, and states of such that it keeps; None likewise, or without a lab.
        ready: health says SERVING for ``tidegauge.ready``: registered, metadata received, replicas in their roles.
    """

    metadata: ClusterInfo | None = None
    replicas: Sequence[metadata_pb2.ReplicaDescription] | None = None
    switches: BrokerSwitches | None = None
    ready: bool = False
    groups: Sequence[lab_pb2.ObservedGroup] | None = None
    shares: BrokerShares | None = None

    @property
    def broker_ids(self) -> set[int]:
        """The live brokers in its metadata, Apache Kafka's among them."""
        return set() if self.metadata is None else set(self.metadata.live)

    @property
    def controller_id(self) -> int | None:
        """The active controller in its metadata."""
        return None if self.metadata is None else self.metadata.controller_id

    @property
    def controller_epoch(self) -> int:
        """The controller epoch of its metadata; -1 if it did not respond."""
        return -1 if self.metadata is None else self.metadata.controller_epoch

    @property
    def held(self) -> dict[TopicPartition, int | None]:
        """The followers that are held there, and the leader that keeps a response back from each."""
        return {} if self.switches is None else self.switches.held

    def replica(self, at: TopicPartition) -> metadata_pb2.ReplicaDescription | None:
        """Return what it says of its replica of a partition."""
        return next((one for one in self.replicas or () if (one.topic, one.partition) == at), None)


def metadata_in(observations: Mapping[int, Observation]) -> dict[int, ClusterInfo]:
    """Return the metadata of those that gave it, by broker id."""
    return {broker: one.metadata for broker, one in observations.items() if one.metadata is not None}


class Observer:
    """Asks some brokers, all at once, each with its own channel and deadline.

    Args:
        addresses: ``host:port`` by broker id.
        channels: to the brokers; the caller closes them, or ``close`` does.
        switches: the brokers' Lab services; None if they have none.
    """

    def __init__(self, addresses: Mapping[int, str], channels: Channels, switches: Switches | None) -> None:
        self.addresses = dict(addresses)
        self._channels = channels
        self._kafka = KafkaWire(channels.security, {})
        self._switches = switches
        self._reached: set[int] = set()

    @classmethod
    def of(cls, addresses: Mapping[int, str], *, has_switches: bool, security: Security = PLAIN) -> Observer:
        """Return one with channels of its own; ``close`` it."""
        return cls(addresses, Channels(security), Switches(addresses, security) if has_switches else None)

    async def close(self) -> None:
        """Close all channels."""
        self._kafka.close()
        await self._channels.close()
        if self._switches is not None:
            await self._switches.close()

    async def ask(
        self,
        broker_ids: Collection[int],
        topics: Sequence[str] | None = None,
        *,
        with_switches: bool = True,
        with_groups: bool = False,
    ) -> dict[int, Observation]:
        """Ask brokers for metadata, replicas and active faults.

        Args:
            broker_ids: whom to ask.
            topics: of these topics; None: of all.
            with_switches: whether to ask for active faults.
            with_groups: whether to ask for groups, share groups included.
        """
        found = await asyncio.gather(
            *(self._one(one, topics, with_switches=with_switches, with_groups=with_groups) for one in broker_ids)
        )
        return dict(zip(broker_ids, found, strict=True))

    async def readiness(self, topics: Sequence[str] = ()) -> dict[int, Observation]:
        """Ask every broker for its health and its metadata of these topics.

        A broker may just be starting. Its channel is opened when its port takes connections, since a channel that was
        refused would wait before it connects again.
        """
        found = await asyncio.gather(*(self._readiness_of(one, topics) for one in self.addresses))
        return dict(zip(self.addresses, found, strict=True))

    async def _readiness_of(self, broker_id: int, topics: Sequence[str]) -> Observation:
        address = self.addresses[broker_id]
        # A connection that ends at once would count as a failed handshake at a TLS listener.
        if broker_id not in self._reached and not self._channels.security.is_tls and not await _is_open(address):
            return Observation()
        self._reached.add(broker_id)
        ready, metadata = await asyncio.gather(self._is_ready(address), self.metadata(broker_id, topics))
        return Observation(metadata, ready=ready)

    async def _is_ready(self, address: str) -> bool:
        # The generated stub of the health service has no types.
        check = self._channels.channel(address).unary_unary(
            "/grpc.health.v1.Health/Check",
            request_serializer=health_pb2.HealthCheckRequest.SerializeToString,
            response_deserializer=health_pb2.HealthCheckResponse.FromString,
        )
        try:
            response = await check(health_pb2.HealthCheckRequest(service=READY_SERVICE), timeout=DEADLINE_SECONDS)
        except grpc.aio.AioRpcError:
            return False
        return bool(response.status == health_pb2.HealthCheckResponse.SERVING)

    async def _one(
        self, broker_id: int, topics: Sequence[str] | None, *, with_switches: bool, with_groups: bool
    ) -> Observation:
        metadata, replicas, switches, shares = await asyncio.gather(
            self.metadata(broker_id, topics),
            self.replicas(broker_id, topics or ()),
            self._in_force(broker_id, is_wanted=with_switches),
            self._shares(broker_id, is_wanted=with_groups),
        )
        groups = await self._groups(broker_id, metadata) if with_groups and metadata is not None else None
        return Observation(metadata, replicas, switches, groups=groups, shares=shares)

    async def metadata(self, broker_id: int, topics: Sequence[str] | None) -> ClusterInfo | None:
        """Return one broker's metadata of topics (None: all); None: no response."""
        stub = self._channels.broker(self.addresses[broker_id])
        request = metadata_pb2.MetadataRequest(topics=topics or (), all_topics=topics is None)
        try:
            return from_response(await stub.Metadata(request, timeout=DEADLINE_SECONDS))
        except grpc.aio.AioRpcError:
            return None

    async def replicas_of_each(
        self, broker_ids: Collection[int], topics: Sequence[str]
    ) -> dict[int, Sequence[metadata_pb2.ReplicaDescription]]:
        """Return the replicas of topics (none named: all) by responding broker."""
        found = await asyncio.gather(*(self.replicas(one, topics) for one in broker_ids))
        return {one: said for one, said in zip(broker_ids, found, strict=True) if said is not None}

    async def replicas(self, broker_id: int, topics: Sequence[str]) -> Sequence[metadata_pb2.ReplicaDescription] | None:
        """Return one broker's replicas of topics (none named: all), if it responds (rule 4)."""
        if self._switches is not None:
            try:
                async with asyncio.timeout(DEADLINE_SECONDS):
                    return list((await self._switches.observe(broker_id, topics)).values())
            except (TidegaugeError, TimeoutError):
                pass  # without lab.enable=true there is still the other way
        stub = self._channels.broker(self.addresses[broker_id])
        try:
            response = await stub.DescribeReplicas(
                metadata_pb2.DescribeReplicasRequest(topics=topics), timeout=DEADLINE_SECONDS
            )
        except grpc.aio.AioRpcError:
            return None
        return list(response.replicas)

    async def _in_force(self, broker_id: int, *, is_wanted: bool) -> BrokerSwitches | None:
        if self._switches is None or not is_wanted:
            return None
        try:
            async with asyncio.timeout(DEADLINE_SECONDS):
                return await self._switches.list_faults(broker_id)
        except (TidegaugeError, TimeoutError):
            return None

    async def _shares(self, broker_id: int, *, is_wanted: bool) -> BrokerShares | None:
        if not is_wanted:
            return None
        request = lab_pb2.ObserveSharesRequest(max_ranges=MAX_RANGES)
        found = await ask_for_shares(self._channels, self.addresses[broker_id], request, DEADLINE_SECONDS * 1000)
        return None if found is None else shares_of(found)

    async def _groups(self, broker_id: int, metadata: ClusterInfo) -> Sequence[lab_pb2.ObservedGroup] | None:
        partitions = sum(at.topic == OFFSETS_TOPIC for at in newest_states({broker_id: metadata}))
        broker = metadata.brokers.get(broker_id)
        kafka_address = None if broker is None else self._kafka.address_of(broker)
        return await observed_groups(self._channels, self.addresses[broker_id], self._kafka, kafka_address, partitions)


class BlockingObserver:
    """An ``Observer`` for code without an event loop; use it in a ``with``."""

    def __init__(self, addresses: Mapping[int, str], security: Security = PLAIN) -> None:
        self._loop = LoopThread("tidegauge-observer")
        self._observer = made_on(self._loop, lambda: Observer.of(addresses, has_switches=False, security=security))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self._loop.run(self._observer.close())
        finally:
            self._loop.close()

    def readiness(self, topics: Sequence[str] = ()) -> dict[int, Observation]:
        """Return what ``Observer.readiness`` returns."""
        return self._loop.run(self._observer.readiness(topics))


async def _is_open(address: str) -> bool:
    """Return whether a port takes connections."""
    host, _, port = address.rpartition(":")
    try:
        async with asyncio.timeout(DEADLINE_SECONDS):
            _, writer = await asyncio.open_connection(host.strip("[]"), int(port))
    except OSError:  # TimeoutError is one
        return False
    writer.close()
    return True
