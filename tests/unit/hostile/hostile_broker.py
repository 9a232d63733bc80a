"""A broker without sockets: the real services, core, logs and decisions of the controller, on a ZooKeeper in memory.

It is broker 0 of three, leads t-0 and follows in t-1; it offers the Lab service too, but reaches no process. ``call``
sends one message to one RPC, as gRPC would hand it over, and gives the responses; what still waits is cancelled, as
when the client goes.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import tempfile
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import Any

from config_zookeeper import FakeZooKeeper
from google.protobuf import empty_pb2
from google.protobuf.message import Message
from memory_zookeeper import MemoryZooKeeper, Term

from tidegauge.control import (
    Endpoint,
)
from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.logical_clock import LogicalClock
from tidegauge.partition import TopicPartition
from tidegauge.record_batch import crc_matches, iterate_headers
from tidegauge.settings import BrokerSettings, parse_broker_settings, topic_values
from tidegauge.share_groups import ShareStateResult
from tidegauge.v1 import (
    admin_service_pb2,
    broker_service_pb2,
    control_pb2,
    control_service_pb2,
    controller_service_pb2,
    lab_service_pb2,
    replica_log_service_pb2,
    replication_service_pb2,
)
from tidegauge_broker.log.lab_disk import DiskFaults
from tidegauge_broker.log.manager import LogManager
from tidegauge_broker.replica.broker import BrokerCore
from tidegauge_broker.replica.effects import LeadershipChanged
from tidegauge_broker.replica.messages import CoreSettings
from tidegauge_broker.server.cluster.zookeeper.stores import ZooKeeperStores
from tidegauge_broker.server.configs.dynamic_configs import DynamicConfigs
from tidegauge_broker.server.coordinators.group_runner import GroupRunner
from tidegauge_broker.server.coordinators.share_latest_offsets import own_latest
from tidegauge_broker.server.coordinators.share_runner import ShareRunner
from tidegauge_broker.server.coordinators.transaction_runner import TransactionRunner, TransactionServices
from tidegauge_broker.server.event_log_writer import EventLogWriter
from tidegauge_broker.server.lab.fault_table import FaultTable
from tidegauge_broker.server.lab.held_fetches import HeldFetches
from tidegauge_broker.server.lab.holds import Holds
from tidegauge_broker.server.lab.rules import RuleTable
from tidegauge_broker.server.lab.servicer import LabServicer, describing
from tidegauge_broker.server.metadata.metadata_cache import MetadataCache
from tidegauge_broker.server.replication.effect_host import Outlets
from tidegauge_broker.server.replication.fetchers import Fetchers
from tidegauge_broker.server.replication.grpc_links import GrpcLinks
from tidegauge_broker.server.replication.leader_link import FetcherIdentity
from tidegauge_broker.server.replication.peers import Peers
from tidegauge_broker.server.replication.replica_manager import ReplicaManager
from tidegauge_broker.server.seams import Parts
from tidegauge_broker.server.service.broker_service import BrokerService
from tidegauge_broker.server.service.group_service import GroupService
from tidegauge_broker.server.service.produce_verification import OffsetsVerification, ProduceVerification
from tidegauge_broker.server.service.share_group_service import ShareGroupService
from tidegauge_broker.server.service.transaction_service import TransactionService
from tidegauge_broker.server.wire.grpc.admin import AdminServicer
from tidegauge_broker.server.wire.grpc.broker import BrokerServicer
from tidegauge_broker.server.wire.grpc.control import ControlServicer
from tidegauge_broker.server.wire.grpc.controller import ControllerServicer
from tidegauge_broker.server.wire.grpc.records_response import whole
from tidegauge_broker.server.wire.grpc.replica_log import ReplicaLogServicer
from tidegauge_broker.server.wire.grpc.replication import ReplicationServicer
from tidegauge_controller import wire
from tidegauge_controller.zookeeper.client import BadVersion, NodeExists, NoNode
from tidegauge_controller.zookeeper.decisions.alter_partition import process_alter_partition
from tidegauge_controller.zookeeper.decisions.leaders import elect_leaders, process_controlled_shutdown
from tidegauge_controller.zookeeper.decisions.producer_ids import allocate_producer_ids
from tidegauge_controller.zookeeper.decisions.reassignment import alter_reassignments, list_reassignments
from tidegauge_controller.zookeeper.decisions.topic_events import process_topic_change
from tidegauge_controller.zookeeper.topic_admin import TopicAdmin

CLUSTER = "abcdefghijklmnopqrstuv"
TOPIC_ID = "topicidtopicidtopicidt"
NOW_MS = 1_700_000_000_000
BROKERS = (0, 1, 2)
FILES = (
    broker_service_pb2,
    admin_service_pb2,
    control_service_pb2,
    controller_service_pb2,
    replication_service_pb2,
    replica_log_service_pb2,
    lab_service_pb2,
)
MOST_SILENT_TURNS = 60
"""So often the loop turns before a call counts as waiting."""


def rpcs() -> dict[str, Any]:
    """Every RPC of the services that brokers offer: its descriptor by its name."""
    found: dict[str, Any] = {}
    for file in FILES:
        for service in file.DESCRIPTOR.services_by_name.values():
            found |= {method.name: method for method in service.methods}
    return found


class _Session:
    """The asynchronous side of the controller's ZooKeeper."""

    def __init__(self, zookeeper: MemoryZooKeeper) -> None:
        self._zookeeper = zookeeper

    async def get(self, path: str) -> tuple[bytes, Any]:
        if path not in self._zookeeper.nodes:
            raise NoNode(path)
        node = self._zookeeper.nodes[path]
        return node.data or b"", self._zookeeper.read(path).stat

    async def exists(self, path: str) -> Any:
        return self._zookeeper.read(path).stat if path in self._zookeeper.nodes else None

    async def children(self, path: str) -> list[str]:
        return self._zookeeper.children(path) or []

    async def create(self, path: str, data: bytes | None) -> str:
        if path in self._zookeeper.nodes:
            raise NodeExists(path)
        assert data is None or len(data) < 1 << 20, "ZooKeeper takes no larger payload"
        self._zookeeper.create(path, data)
        return path

    async def set(self, path: str, data: bytes, version: int = -1) -> None:
        stat = await self.exists(path)
        if stat is None:
            raise NoNode(path)
        if version not in {-1, stat.version}:
            raise BadVersion(path)
        self._zookeeper.set(path, data)


class _Controller:
    """The active controller's decisions, each run to its end at once."""

    active_controller_id = 0
    forwards = False

    def __init__(self, settings: Any, metadata: Any) -> None:
        zookeeper = MemoryZooKeeper()
        self.broker_epochs = {broker_id: zookeeper.register_broker(broker_id) for broker_id in BROKERS}
        zookeeper.add_topic("t", {0: (1, 0), 1: (1, 0)})
        self._term = Term(zookeeper).start()
        session: Any = _Session(zookeeper)
        self._topics = TopicAdmin(session, settings, metadata, lambda count: bytes(range(count)), lambda _step: None)

    async def topic_names(self, topic_ids: Any) -> dict[str, str]:
        return {TOPIC_ID: "t"} if TOPIC_ID in topic_ids else {}

    async def alter_partition(self, request: Any) -> Any:
        return self._term.run(process_alter_partition(self._term.context, request))

    async def controlled_shutdown(self, broker_id: int, broker_epoch: int) -> Any:
        return self._term.run(process_controlled_shutdown(self._term.context, broker_id, broker_epoch))

    async def allocate_producer_ids(self, broker_id: int, broker_epoch: int) -> Any:
        return self._term.run(allocate_producer_ids(self._term.context, broker_id, broker_epoch))

    async def elect_leaders(self, partitions: Any, *, unclean: bool, timeout_ms: int) -> Any:
        del timeout_ms
        return self._term.run(elect_leaders(self._term.context, partitions, unclean=unclean))

    async def alter_reassignments(self, wanted: Any) -> Any:
        return self._term.run(alter_reassignments(self._term.context, wanted))

    async def list_reassignments(self, partitions: Any) -> Any:
        return list_reassignments(self._term.context, partitions)

    async def create_topics(self, topics: Any, timeout_ms: int, mutate: Any, *, validate_only: bool = False) -> Any:
        outcomes = await self._topics.create(
            self._term.context, topics, min(timeout_ms, 0), mutate, validate_only=validate_only
        )
        self._term.run(process_topic_change(self._term.context))
        return outcomes

    async def create_partitions(self, topics: Any, timeout_ms: int, mutate: Any, *, validate_only: bool = False) -> Any:
        return await self._topics.add_partitions(
            self._term.context, topics, min(timeout_ms, 0), mutate, validate_only=validate_only
        )

    async def delete_topics(self, names: Any, timeout_ms: int, mutate: Any) -> Any:
        return await self._topics.delete(names, min(timeout_ms, 0), mutate)


class _NoOneToAsk:
    """The persister after its last attempt, and the other brokers' ends of partitions."""

    async def read_summary(self, _request: Any) -> ShareStateResult:
        return ShareStateResult(ErrorCode.COORDINATOR_NOT_AVAILABLE, "nobody is there")

    async def of(self, _partitions: Any) -> dict[Any, Any]:
        return {}


class _ProducerIds:
    def next(self) -> int | None:
        return 7


class HostileBroker:
    """A broker in memory for hostile input. Make it inside a running loop, and ``close`` it."""

    def __init__(self, log_directories: int = 1, **settings: str) -> None:
        self._scratch = tempfile.TemporaryDirectory()
        self.directory = Path(self._scratch.name) / "log"
        self._directories = [self.directory, *(Path(self._scratch.name) / f"log{n}" for n in range(1, log_directories))]
        values, _ = parse_broker_settings({"broker.id": "0", **settings})
        self._layers = BrokerSettings(values)
        self.logs = self._open_logs()
        self.metadata = MetadataCache()
        core = BrokerCore(0, CoreSettings(), self.logs, self.metadata)
        loop = asyncio.get_running_loop()
        clock = self.clock = LogicalClock(lambda: NOW_MS * 1000)
        events = EventLogWriter(None, "broker-0", lambda: NOW_MS, loop.call_later, logical_clock=clock)

        async def in_pool(call: Any) -> None:
            call()

        def leadership_changed(change: LeadershipChanged) -> None:
            for runner in (self.runner, self.transaction_runner, self.share_runner):
                runner.leadership_changed(change.topic_partition, leads=change.leads, leader_epoch=change.leader_epoch)

        def halted(problem: Exception) -> None:
            raise AssertionError("the broker would halt") from problem

        outlets = Outlets(leadership_changed=leadership_changed)
        self.replicas = ReplicaManager(core, self.logs, events, lambda: NOW_MS, in_pool, outlets)
        self.runner = GroupRunner(self._layers.live, self.replicas, events, lambda: NOW_MS, halted)
        zookeeper: Any = FakeZooKeeper(NOW_MS)
        stores = ZooKeeperStores(zookeeper, self._layers.live, lambda: NOW_MS)
        controller: Any = _Controller(self._layers.live, self.metadata)
        producer_ids: Any = _ProducerIds()
        transactions = self._transactions(producer_ids, events, halted)

        async def verify(_wanted: Any, _operation: Any) -> Any:
            return {}

        async def still_leads(_at: Any) -> bool:
            return True

        def begin_verification(at: Any, batch: Any) -> Any:
            return self.replicas.core.begin_verification(at, batch, NOW_MS)

        self.runner.verify = OffsetsVerification(begin_verification, verify).verify
        self.service = BrokerService(
            cluster_id=CLUSTER,
            settings=self._layers.live,
            replicas=self.replicas,
            metadata=self.metadata,
            controller=controller,
            producer_ids=producer_ids,
            configs=DynamicConfigs(stores, 0, self._layers, self.metadata.knows_topic),
            create_topic=lambda _topic: None,
            groups=GroupService(
                self.runner, transactions, self.metadata, lambda _topic: None, still_leads, self._shares(events, halted)
            ),
            transactions=transactions,
            verification=ProduceVerification(begin_verification, verify),
        )
        servicers = (
            BrokerServicer(self.service, lambda: NOW_MS, "PLAINTEXT"),
            AdminServicer(self.service),
            ReplicationServicer(self.service, "PLAINTEXT"),
            ControlServicer(self.service),
            ControllerServicer(self.service),
            ReplicaLogServicer(self.replicas),
            self._lab(in_pool, events, loop),
        )
        self.methods = {name: getattr(one, name) for name in rpcs() for one in servicers if hasattr(one, name)}

    def _shares(self, events: EventLogWriter, halted: Any) -> ShareGroupService:
        """Make the share coordinator; there are no other brokers to ask."""

        async def still_leads(_at: Any) -> bool:
            return True

        self.share_runner = ShareRunner(self._layers.live, self.replicas, events, lambda: NOW_MS, halted)
        latest = partial(own_latest, self.replicas.core)
        made = ShareGroupService(
            self.share_runner, self.runner, self.metadata, lambda _topic: None, still_leads, latest, ""
        )
        made.persister = made.latest = _NoOneToAsk()  # type: ignore[assignment]
        return made

    def _transactions(self, producer_ids: Any, events: EventLogWriter, halted: Any) -> TransactionService:
        """Make the transaction coordinator; no other broker takes its markers."""

        async def send_markers(_effect: Any) -> Any:
            raise ConnectionError("nobody is there")

        async def deleted(partitions: Any) -> Any:
            return partitions

        around = TransactionServices(producer_ids.next, self.metadata, deleted, send_markers)
        settings = self._layers.live
        self.transaction_runner = TransactionRunner(settings, self.replicas, around, events, lambda: NOW_MS, halted)
        return TransactionService(
            self.transaction_runner, self.runner, self.replicas, self.metadata, settings, lambda: NOW_MS
        )

    def _lab(self, in_pool: Any, events: EventLogWriter, loop: asyncio.AbstractEventLoop) -> LabServicer:
        """The lab's hand in this broker; its own fetchers do nothing, so that only steps go out."""
        channel: Any = _NoChannel()
        identity = FetcherIdentity(0, CLUSTER, lambda: 1)
        peers = Peers(lambda _address: channel)
        links = GrpcLinks(self.metadata.grpc_address, peers, identity, self._layers.live, self.clock)
        self._fetchers = Fetchers(self.replicas, links, self._layers.live, lambda: NOW_MS)
        nothing: Any = None
        membership: Any = _NoMembership()
        parts = Parts(
            service=self.service,
            replicas=self.replicas,
            fetchers=self._fetchers,
            links=links,
            logs=self.logs,
            cluster=nothing,
            in_log_pool=in_pool,
            now_ms=lambda: NOW_MS,
            note=lambda _kind, _cause, _fields: None,
        )
        self.faults = FaultTable(0, DiskFaults())
        return LabServicer(
            parts,
            Holds(self._fetchers, links, describing(parts)),
            self.faults,
            RuleTable(0),
            ReplicationServicer(self.service, "PLAINTEXT"),
            membership,
            HeldFetches(),
            lambda _address: None,
        )

    def _open_logs(self, *, now_ms: int = NOW_MS) -> LogManager:
        return LogManager.open(
            self._directories,
            broker_id=0,
            cluster_id=CLUSTER,
            broker=self._layers.live,
            topic_values=lambda _topic: topic_values({}, self._layers.live),
            now_ms=lambda: now_ms,
        )

    async def begin(self) -> HostileBroker:
        """Lead t-0 and the one partition of each coordinator, follow in t-1."""
        await self._fetchers.close()
        endpoints = [wire.to_endpoint(Endpoint(broker_id, "127.0.0.1", 9092 + broker_id)) for broker_id in BROKERS]
        header = control_pb2.ControlHeader(controller_id=0, controller_epoch=1, broker_epoch=1)
        common: dict[str, Any] = {"topic": "t", "topic_id": TOPIC_ID, "controller_epoch": 1, "leader_epoch": 3}
        states = [
            {**common, "partition": at, "leader_id": at, "replicas": replicas, "isr": [at]}
            for at, replicas in enumerate(([0, 1], [1, 0]))
        ]
        of_groups = {"topic": "__consumer_offsets", "topic_id": "groupsgroupsgroupsgrou", "replicas": [0], "isr": [0]}
        states.append({**common, **of_groups, "partition": 0, "leader_id": 0})
        of_transactions = {**of_groups, "topic": "__transaction_state", "topic_id": "transactransactransac0"}
        states.append({**common, **of_transactions, "partition": 0, "leader_id": 0})
        live = control_pb2.UpdateMetadataRequest(
            header=header,
            partitions=[control_pb2.UpdateMetadataPartition(**state) for state in states],
            live_brokers=endpoints,
        )
        await self.call("UpdateMetadata", live)
        become = control_pb2.LeaderAndIsrRequest(
            header=header,
            partitions=[control_pb2.LeaderAndIsrPartition(**state, is_new=True) for state in states],
            live_leaders=endpoints,
        )
        (response,) = await self.call("LeaderAndIsr", become)
        assert [one.error for one in response.partitions] == [0, 0, 0, 0]
        for _ in range(6):
            await asyncio.sleep(0)  # the coordinators load their groups and transactions
        return self

    async def call(self, name: str, *messages: Message) -> list[Any]:
        """Send messages (several to a stream); the responses that came before everything was silent."""
        method = self.methods[name]
        responses: list[Any] = []

        async def requests() -> AsyncIterator[Message]:
            for message in messages:
                yield message

        async def run() -> None:
            if rpcs()[name].client_streaming:
                async for response in method(requests(), _Context()):
                    responses.append(whole(response))  # noqa: PERF401 - what came before a cancellation counts
            else:
                responses.append(whole(await method(messages[0], _Context())))

        task = asyncio.get_running_loop().create_task(run())
        for _ in range(MOST_SILENT_TURNS):
            if task.done():
                break
            await asyncio.sleep(0)
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError, Aborted):
            await task
        for _ in range(5):
            await asyncio.sleep(0)
        return responses

    @property
    def waiting(self) -> int:
        """Operations in the purgatories."""
        return sum(self.replicas.core.waiting_operations().values())

    @property
    def markers_in_progress(self) -> int:
        """Markers that are being written, each with at most one operation; their coordinator may have disconnected."""
        return self.service.transactions.markers_in_progress

    def check_logs(self) -> dict[TopicPartition, int]:
        """Every batch of every log is sound and follows the one before; log end offsets."""
        for log in self.logs.logs.values():
            position = log.log_start_offset
            while position < log.log_end_offset:
                data = log.read(position, log.log_end_offset, 1 << 20, at_least_one_batch=True)
                for header in iterate_headers(data):
                    assert header.base_offset <= position <= header.last_offset
                    assert crc_matches(data, header)
                    position = header.next_offset
        return {at: log.log_end_offset for at, log in self.logs.logs.items()}

    def close(self) -> None:
        """End as if killed, start again: recovery finds the same logs, and directories with legal names only."""
        ends = self.check_logs()
        self.replicas.close()
        self.logs.close({}, clean=False)
        found = self._open_logs()
        assert {at: log.log_end_offset for at, log in found.logs.items()} == ends
        found.close({})
        beside = set(self.directory.parent.iterdir()) - set(self._directories)
        assert not beside, "a file beside the log directories"
        self._scratch.cleanup()

    def abandon(self) -> None:
        """End as if killed, without a look at the disk."""
        self.replicas.close()
        self.logs.close({}, clean=False)
        self._scratch.cleanup()


class _NoMembership:
    """The membership of a broker whose store is unreachable."""

    def identity(self) -> int:
        return 1

    async def end(self) -> None:
        raise TidegaugeError(ErrorCode.NETWORK_EXCEPTION, "the store does not respond; nothing was ended")


class _NoChannel:
    """A connection that breaks at the first word; it is the calls on it too."""

    def unary_unary(self, *_: Any, **__: Any) -> Any:
        return lambda *_, **__: self

    unary_stream = stream_unary = stream_stream = unary_unary

    async def write(self, _message: Any) -> None:
        raise asyncio.InvalidStateError("nobody is there")

    read = write

    def cancel(self) -> None:
        pass

    async def close(self) -> None:
        pass


class Aborted(Exception):
    """The call was ended with a gRPC status."""


class _Context:
    def peer(self) -> str:
        return "ipv4:127.0.0.1:9"

    def time_remaining(self) -> None:
        """It has no deadline."""

    def invocation_metadata(self) -> tuple[()]:
        return ()

    def add_done_callback(self, callback: Any) -> None:
        callback(self)

    async def abort(self, code: Any, details: str = "") -> None:
        raise Aborted(f"{code}: {details}")


def errors_in(message: Message) -> list[int]:
    """Return the error numbers in a response, at any depth."""
    found: list[int] = []
    for field, value in message.ListFields():
        if field.enum_type is not None and field.enum_type.name == "ErrorCode":
            found.append(value)
        elif field.message_type is not None and not field.message_type.GetOptions().map_entry:
            parts = value if field.is_repeated else [value]
            found += [error for part in parts for error in errors_in(part)]
    return found


KNOWN_ERRORS = frozenset(int(code) for code in ErrorCode)
NOTHING = empty_pb2.Empty()
logging.getLogger("tidegauge.replica").setLevel(logging.CRITICAL)
