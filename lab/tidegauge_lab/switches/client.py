"""``Switches``: a typed asynchronous client of the brokers' Lab service.

Scenarios and tests use it so::

    async with Switches.of_cluster(load_cluster_file(directory)) as lab:
        await lab.hold_fetch(TopicPartition("orders", 0), [2])
        step = await lab.step_fetch(TopicPartition("orders", 0), 2, until=Until.REQUEST)
        await lab.isolate(1, Plane.BROKERS, Direction.IN)
        await lab.heal(1)

Rules:
    1. Every method returns when what it says is true: a hold when no round that names the partition is in flight, a
       network partition when nothing passes any more, a flush when the bytes are on disk, an expiry when the session
       has ended on the server (the broker notices it a little later).
    2. Repeating a switch is no error.
    3. A refused round is no exception: it is a ``Step`` with its ``error``. An impossible request (a partition that
       isn't held here, a broker that doesn't run, or one without lab.enable=true) raises TidegaugeError.
    4. No fault affects the Lab service itself, so ``observe`` sees through every fault.
    5. A restart of a broker clears its faults and holds.
    6. A broker that refuses a connection is down. One that does not finish it within a second is tried once more
       before it counts as silent: if the whole machine stood still, the second attempt succeeds at once.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Self, TypeVar, cast

import grpc
import grpc.aio

from tidegauge.channel_options import RECONNECT_OPTIONS
from tidegauge.counted import counted
from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.faults.messages import to_message
from tidegauge.faults.model import WantedFault
from tidegauge.partition import TopicPartition
from tidegauge.secure_channels import open_channel
from tidegauge.security import PLAIN, Security
from tidegauge.v1 import lab_pb2, metadata_pb2
from tidegauge.v1.broker_service_pb2_grpc import BrokerServiceStub
from tidegauge.v1.lab_service_pb2_grpc import LabServiceStub
from tidegauge_client.cluster_file import BootstrapServers, ClusterFile
from tidegauge_lab.ended_membership import EndedMembership
from tidegauge_lab.switches import wire
from tidegauge_lab.switches.fault_calls import FaultCalls
from tidegauge_lab.switches.model import (
    BrokerSwitches,
    Fault,
    RuleInForce,
    Step,
    Until,
)

if TYPE_CHECKING:  # it exists in the stubs only
    from tidegauge.v1.broker_service_pb2_grpc import BrokerServiceAsyncStub
    from tidegauge.v1.lab_service_pb2_grpc import LabServiceAsyncStub

_OPTIONS = (
    ("grpc.enable_http_proxy", 0),
    ("grpc.max_receive_message_length", -1),
    *RECONNECT_OPTIONS,
)
_DEADLINE_SECONDS = 10.0
_METADATA_SECONDS = 2.0
STEP_LIMIT_SECONDS = 30.0
_LOOK_AGAIN_SECONDS = 0.05

Request = TypeVar("Request")
Response = TypeVar("Response")


class Switches(FaultCalls):
    """The switches of some brokers; use it in an ``async with``, or ``close`` it.

    Attributes:
        addresses: ``host:port`` by broker id.
        security: how connections to the brokers are secured.
        unsecured: the ids of controllers, whose ``lab.listener`` has neither TLS nor credentials.
        quorum: the controllers' own addresses; none in ZooKeeper mode, or if they are not known.
    """

    def __init__(
        self,
        addresses: Mapping[int, str],
        security: Security = PLAIN,
        unsecured: Collection[int] = (),
        quorum: BootstrapServers | None = None,
    ) -> None:
        self.quorum = BootstrapServers() if quorum is None else quorum
        self.addresses = dict(addresses)
        self.unsecured = frozenset(unsecured)
        self.security = security
        self._channels: dict[int, grpc.aio.Channel] = {}

    @classmethod
    def of_cluster(cls, file: ClusterFile) -> Self:
        """Return the switches of all brokers of a cluster, and of its controllers in KRaft mode."""
        return cls(file.lab_addresses, file.security, file.unsecured_ids, file.controllers())

    def know(self, file: ClusterFile) -> None:
        """Know the nodes that a cluster has got since."""
        self.addresses = dict(file.lab_addresses)
        self.unsecured = frozenset(file.unsecured_ids)
        self.quorum = file.controllers()

    @property
    def broker_ids(self) -> list[int]:
        """The brokers."""
        return sorted(self.addresses)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close all channels."""
        for channel in self._channels.values():
            await channel.close()
        self._channels.clear()

    # Holds and steps

    async def hold_fetch(self, at: TopicPartition, brokers: Sequence[int]) -> list[int]:
        """Hold the partition's follower on these brokers; a hold lasts over changes of leader and role.

        Returns:
            Those on which that changed something.
        """
        return [broker_id for broker_id in brokers if await self._hold(at, broker_id, release=False)]

    async def release_fetch(self, at: TopicPartition, brokers: Sequence[int]) -> list[int]:
        """Let it fetch by itself again; returns the brokers on which that changed something."""
        return [broker_id for broker_id in brokers if await self._hold(at, broker_id, release=True)]

    async def _hold(self, at: TopicPartition, broker_id: int, *, release: bool) -> bool:
        request = lab_pb2.HoldFetchRequest(partition=wire.to_partition(at), release=release)
        return (await self._ask(broker_id, lambda stub: stub.HoldFetch, request, STEP_LIMIT_SECONDS)).changed

    async def step_fetch(
        self,
        at: TopicPartition,
        broker_id: int,
        *,
        until: Until = Until.RESPONSE,
        limit_seconds: float = STEP_LIMIT_SECONDS,
    ) -> Step:
        """One round of a held follower: request, response (after its wait in the purgatory), append.

        ``Until.REQUEST`` stops when the leader has taken the request and withholds the response until the next step.
        A step after such a one ends that round.

        Raises:
            TidegaugeError: INVALID_REQUEST, it is not held or does not follow; BROKER_NOT_AVAILABLE.
        """
        request = lab_pb2.StepFetchRequest(partition=wire.to_partition(at), until=wire.UNTIL[until])
        response = await self._ask(broker_id, lambda stub: stub.StepFetch, request, limit_seconds)
        return wire.from_step(at, broker_id, response)

    # Faults

    async def set_fault(self, broker: int | str, wanted: WantedFault) -> Fault:
        """Put a fault in force at a broker; every method of ``FaultCalls`` comes here.

        Raises:
            TidegaugeError: INVALID_REQUEST, its declaration or the broker refuses it; BROKER_NOT_AVAILABLE, the broker
                does not respond, or the fault names one that the cluster does not have.
        """
        if not isinstance(broker, int):
            raise TidegaugeError(ErrorCode.INVALID_REQUEST, f"{broker!r} is no id; LocalCluster.broker_of has it")
        if problem := wanted.problem(broker):
            raise TidegaugeError(ErrorCode.INVALID_REQUEST, problem)
        await self._check_named(wanted)
        request = lab_pb2.SetFaultRequest(fault=to_message(wanted))
        response = await self._ask(broker, lambda stub: stub.SetFault, request)
        return wire.from_fault(broker, response.fault)

    async def _check_named(self, wanted: WantedFault) -> None:
        """Refuse a fault that names a broker which the cluster does not have: it would never be met.

        An Apache Kafka broker of the cluster has no switches, and is known from the metadata.
        """
        missing = [broker_id for broker_id in wanted.brokers if broker_id not in self.addresses]
        if not missing:
            return
        said = await asyncio.gather(*(self._metadata_of(broker_id) for broker_id in self.broker_ids))
        known = {*self.addresses, *(one for metadata in said if metadata is not None for one in brokers_in(metadata))}
        for broker_id in missing:
            if broker_id not in known:
                raise no_broker(broker_id, known)

    async def _metadata_of(self, broker_id: int) -> metadata_pb2.MetadataResponse | None:
        """Return a broker's metadata of all topics; None if it does not respond."""
        stub = cast("BrokerServiceAsyncStub", BrokerServiceStub(await self._channel(broker_id)))
        try:
            return await stub.Metadata(metadata_pb2.MetadataRequest(all_topics=True), timeout=_METADATA_SECONDS)
        except grpc.aio.AioRpcError:
            return None

    async def heal(self, broker_id: int) -> list[Fault]:
        """End all network faults of the broker; returns those that ended."""
        return (await self._clear(broker_id, lab_pb2.ClearFaultsRequest(network_only=True)))[0]

    async def clear(
        self, broker_id: int, fault_ids: Sequence[int] = (), *, holds: bool = False
    ) -> tuple[list[Fault], list[TopicPartition]]:
        """End these faults, or all; with ``holds`` release all followers of the broker too."""
        return await self._clear(broker_id, lab_pb2.ClearFaultsRequest(fault_ids=fault_ids, holds=holds))

    async def _clear(
        self, broker_id: int, request: lab_pb2.ClearFaultsRequest
    ) -> tuple[list[Fault], list[TopicPartition]]:
        response = await self._ask(broker_id, lambda stub: stub.ClearFaults, request)
        ended = [wire.from_fault(broker_id, fault) for fault in response.faults]
        return ended, [wire.from_partition(partition) for partition in response.released]

    async def wait_held(self, broker_id: int, count: int = 1, *, limit_seconds: float = STEP_LIMIT_SECONDS) -> int:
        """Wait until the broker's holds keep a minimum number of requests; return the number that they keep.

        Raises:
            TidegaugeError: REQUEST_TIMED_OUT, with how many are held instead; BROKER_NOT_AVAILABLE.
        """
        deadline = time.monotonic() + limit_seconds
        while True:
            held = sum(fault.held for fault in (await self.list_faults(broker_id)).faults)
            if held >= count:
                return held
            if time.monotonic() >= deadline:
                raise TidegaugeError(
                    ErrorCode.REQUEST_TIMED_OUT,
                    f"broker {broker_id} holds {held} of {counted(count, 'request')} (waited {limit_seconds:g} s)",
                )
            await asyncio.sleep(_LOOK_AGAIN_SECONDS)

    async def release_requests(self, broker_id: int, which: str = "all") -> list[Fault]:
        """End the broker's holds, or only those on requests or on responses; held messages go on.

        Returns:
            Those that ended.
        """
        faults = (await self.list_faults(broker_id)).faults
        holds = [
            fault.fault_id
            for fault in faults
            if fault.message.WhichOneof("kind") == "hold"
            and which in {"all", "responses" if fault.message.hold.after_effect else "requests"}
        ]
        return (await self.clear(broker_id, holds))[0] if holds else []

    async def list_faults(self, broker_id: int) -> BrokerSwitches:
        """All that is in force on the broker."""
        response = await self._ask(broker_id, lambda stub: stub.ListFaults, lab_pb2.ListFaultsRequest())
        return wire.from_list(response)

    async def set_rules(self, broker_id: int, rules: Sequence[lab_pb2.RequestRule]) -> None:
        """Put rules for requests of Kafka's clients in force at the broker, and no others."""
        await self._ask(broker_id, lambda stub: stub.SetRules, lab_pb2.SetRulesRequest(rules=rules))

    async def list_rules(self, broker_id: int) -> list[RuleInForce]:
        """Return the rules for Kafka clients' requests in force at the broker."""
        response = await self._ask(broker_id, lambda stub: stub.ListRules, lab_pb2.ListRulesRequest())
        return [RuleInForce(one.rule_id, one.rule_json, one.held, one.hits) for one in response.rules]

    async def requests_after(self, broker_id: int, number: int) -> Sequence[lab_pb2.ArrivedRequest]:
        """Return the broker's journal of requests under rules, after a number."""
        response = await self._ask(broker_id, lambda stub: stub.ListRequests, lab_pb2.ListRequestsRequest(after=number))
        return list(response.requests)

    async def expire_session(self, broker_id: int) -> EndedMembership:
        """End the broker's membership of its cluster at once, a ZooKeeper session on the server."""
        response = await self._ask(broker_id, lambda stub: stub.ExpireSession, lab_pb2.ExpireSessionRequest())
        if response.WhichOneof("ended") == "broker_epoch":
            return EndedMembership(response.broker_epoch, is_session=False)
        return EndedMembership(response.session_id, is_session=True)

    async def sync_log(self, broker_id: int, at: TopicPartition | None = None) -> dict[TopicPartition, int]:
        """Flush a replica's log to the disk, or all of the broker; returns the recovery points."""
        request = lab_pb2.SyncLogRequest(partition=None if at is None else wire.to_partition(at))
        response = await self._ask(broker_id, lambda stub: stub.SyncLog, request, STEP_LIMIT_SECONDS)
        return {wire.from_partition(log.partition): log.recovery_point for log in response.logs}

    async def observe(
        self, broker_id: int, topics: Sequence[str] = ()
    ) -> dict[TopicPartition, metadata_pb2.ReplicaDescription]:
        """Return the broker's replicas (LEO, HW, epochs, ISR, ...), through every network partition."""
        response = await self._ask(
            broker_id, lambda stub: stub.ObserveReplicas, lab_pb2.ObserveReplicasRequest(topics=topics)
        )
        return {TopicPartition(replica.topic, replica.partition): replica for replica in response.replicas}

    async def _ask(
        self,
        broker_id: int,
        method: Callable[[LabServiceAsyncStub], grpc.aio.UnaryUnaryMultiCallable[Request, Response]],
        request: Request,
        limit_seconds: float = _DEADLINE_SECONDS,
    ) -> Response:
        """Make one call; rule 6.

        Raises:
            TidegaugeError: the one sentence that a failed call stands for.
        """
        try:
            try:
                return await method(await self._stub(broker_id))(request, timeout=limit_seconds)
            except grpc.aio.AioRpcError as problem:
                if not wire.was_never_sent(problem):
                    raise
            return await method(await self._stub(broker_id))(request, timeout=limit_seconds)
        except grpc.aio.AioRpcError as problem:
            raise wire.from_problem(broker_id, problem) from None

    async def _stub(self, broker_id: int) -> LabServiceAsyncStub:
        # The stub class is one; the generated types know it under two names.
        return LabServiceStub(await self._channel(broker_id))  # type: ignore[return-value]  # see above

    async def _channel(self, broker_id: int) -> grpc.aio.Channel:
        channel = self._channels.get(broker_id)
        if channel is not None and channel.get_state() is grpc.ChannelConnectivity.TRANSIENT_FAILURE:
            # It would refuse until its back-off is over, although the broker may be back.
            await self._channels.pop(broker_id).close()
            channel = None
        if channel is None:
            address = self.addresses.get(broker_id)
            if address is None:
                raise no_broker(broker_id, self.addresses)
            security = PLAIN if broker_id in self.unsecured else self.security
            channel = self._channels[broker_id] = open_channel(address, _OPTIONS, security)
        return channel


def brokers_in(metadata: metadata_pb2.MetadataResponse) -> set[int]:
    """Return the brokers in metadata: live ones, and all holders of replicas."""
    live = {one.broker_id for one in (*metadata.brokers, *metadata.brokers_without_listener)}
    return live.union(*(state.replicas for topic in metadata.topics for state in topic.partitions))


def no_broker(broker_id: int, known: Collection[int]) -> TidegaugeError:
    """Return the error for a broker that the cluster does not have."""
    return TidegaugeError(
        ErrorCode.BROKER_NOT_AVAILABLE,
        f"there is no broker {broker_id} in this cluster; its brokers are {', '.join(map(str, sorted(known)))}",
    )
