"""The connections of a scenario to its cluster: everything it asks of brokers over the network, synchronously.

Rules:
- A produce is one batch in one request to one broker, without retries: the broker's response is final. A
  connection that breaks meanwhile leaves the outcome ``unknown``.
- The state of a partition is merged from every broker that runs: the newest view of the cluster (by controller
  epoch, then leader epoch, then partition epoch), and each replica by its own broker's response, through every network
  partition.
- Brokers whose processes are frozen or dead are not asked.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine, Mapping, Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self, TypeVar

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.faults.model import WantedFault
from tidegauge.partition import TopicPartition
from tidegauge.record_batch import iterate_headers
from tidegauge.v1 import fetch_pb2, produce_pb2
from tidegauge_client.admin import Admin
from tidegauge_client.admin_groups import GroupDescription
from tidegauge_client.admin_transactions import TransactionDescription
from tidegauge_client.channels import Channels, call
from tidegauge_client.cli.explain_share import gather_share
from tidegauge_client.hanging_transactions import coordinated, hanging, open_transactions_at
from tidegauge_client.isolation import Aborted, IsolationLevel, without_aborted
from tidegauge_client.loop_thread import LoopThread
from tidegauge_client.metadata import ClusterInfo, TopicIdentity
from tidegauge_client.quorum_admin import QuorumAdmin
from tidegauge_client.records import NewRecord, decode_batch, encode_batch
from tidegauge_client.share_explanation import ShareFacts
from tidegauge_client.share_member import ShareMember
from tidegauge_lab.accountant.audit import Report
from tidegauge_lab.accountant.reading.topic_books import Sources, directories_of, read_and_audit
from tidegauge_lab.group_conditions import GroupCondition, look_at_group
from tidegauge_lab.local.cluster import LocalCluster
from tidegauge_lab.local.processes import ProcessState
from tidegauge_lab.local.waiting import TimeLimitError
from tidegauge_lab.observation import Observer, metadata_in, newest_states
from tidegauge_lab.scenario.facts import Facts, replica_of
from tidegauge_lab.scenario.files_on_disk import logged_records
from tidegauge_lab.scenario.readers import NO_LEADER
from tidegauge_lab.session_ending import expire_session
from tidegauge_lab.switches import Fault, Step, Switches, Until
from tidegauge_lab.transaction_conditions import TransactionCondition, look_at_transaction

Result = TypeVar("Result")

ACKNOWLEDGED = "ack"
NO_RESPONSE = "none"
UNKNOWN = "unknown"
_MARGIN_MS = 5_000.0
_MAX_BYTES = 16 * 1024 * 1024
_LIMIT_SECONDS = 60.0
_CLOSE_LIMIT_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class Response:
    """The response that a producer got for one record.

    Attributes:
        state: ``ack``, ``unknown``, or the name of an error.
        message: the broker's sentence; empty for ``ack``.
        offset: of the record; -1 if unknown.
    """

    state: str
    message: str = ""
    offset: int = -1


class ClusterConnections:
    """All connections to one cluster; use it in a ``with``.

    Args:
        cluster: its processes.
        is_complete: whether the histories hold all that was ever written to the cluster's topics.
    """

    def __init__(self, cluster: LocalCluster, *, is_complete: bool = True) -> None:
        self._cluster = cluster
        self._is_complete = is_complete
        self._loop = LoopThread("tidegauge-scenario")
        self._channels = self._run(_made(lambda: Channels(cluster.file.security)))
        self._clients = self._run(_made(lambda: Channels(cluster.file.security, of_the_lab=False)))
        self._admin = self._run(_made(lambda: Admin(cluster.bootstrap_servers)))
        self._switches = Switches.of_cluster(cluster.file)
        addresses = {broker.id: broker.address for broker in cluster.file.brokers}
        self._observer = Observer(addresses, self._channels, self._switches)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        async def close() -> None:
            await self._switches.close()
            await self._admin.stop()
            await self._channels.close()
            await self._clients.close()

        try:
            # A connection that does not close in time ends with its broker, which is about to be taken down.
            with contextlib.suppress(TimeLimitError):
                self._run(close(), _CLOSE_LIMIT_SECONDS)
        finally:
            self._loop.close()

    def know_nodes(self) -> None:
        """Know the nodes that the cluster has got since."""
        self._switches.know(self._cluster.file)

    def reconnect(self, brokers: Sequence[int]) -> None:
        """Connect again to nodes that were started, without any back-off; controllers are reached by switches alone."""

        async def close() -> None:
            await self._switches.close()
            for broker_id in self._cluster.file.broker_ids:
                if broker_id not in brokers:
                    continue
                await self._channels.discard(self._address(broker_id))
                await self._clients.discard(self._address(broker_id))

        self._run(close())

    def _address(self, broker_id: int) -> str:
        return self._cluster.file.broker(broker_id).address

    def _running(self) -> list[int]:
        ids = [broker.id for broker in self._cluster.file.brokers]
        return [broker_id for broker_id in ids if self._cluster.state_of(broker_id) is ProcessState.UP]

    def _run(self, coroutine: Coroutine[Any, Any, Result], limit_seconds: float = _LIMIT_SECONDS) -> Result:
        future = self._loop.submit(coroutine)
        try:
            return future.result(limit_seconds)
        except FutureTimeoutError:
            future.cancel()
            raise TimeLimitError(f"a broker did not respond within {limit_seconds:g} s") from None
        except KeyboardInterrupt:
            future.cancel()
            raise

    # Looking

    def look(self, at: TopicPartition, assigned: Sequence[int]) -> Facts:
        """Return the present facts of a partition."""
        seen = self._run(self._observer.ask(self._running(), [at.topic], with_switches=False))
        part = newest_states(metadata_in(seen)).get(at)
        said = {broker_id: one.replica(at) for broker_id, one in seen.items()}
        return Facts(
            leader=NO_LEADER if part is None or part.leader_id is None else part.leader_id,
            epoch=-1 if part is None else part.leader_epoch,
            isr=() if part is None else part.isr,
            replicas={broker_id: replica_of(one) for broker_id, one in said.items() if one is not None},
            logs={broker_id: logged_records(self._cluster.directory, broker_id, at) for broker_id in assigned},
            assigned=tuple(assigned),
        )

    def controllers(self) -> dict[int, tuple[int, int]]:
        """Return controller and controller epoch as each responding broker sees them."""
        running = self._running()

        async def ask() -> list[ClusterInfo | None]:
            return await asyncio.gather(*(self._observer.metadata(broker_id, []) for broker_id in running))

        return {
            broker_id: (NO_LEADER if said.controller_id is None else said.controller_id, said.controller_epoch)
            for broker_id, said in zip(running, self._run(ask()), strict=True)
            if said is not None
        }

    def look_at_group(self, group: str, condition: GroupCondition) -> GroupDescription | str:
        """Return the group if the condition holds, else the actual state.

        Raises:
            TidegaugeError: its coordinator does not respond.
        """
        return self._run(look_at_group(self._admin, group, condition, _MARGIN_MS))

    def look_at_transaction(
        self, transactional_id: str, condition: TransactionCondition
    ) -> TransactionDescription | str:
        """Return the transactional id if the condition holds, else the actual state.

        Raises:
            TidegaugeError: its coordinator does not respond.
        """
        return self._run(look_at_transaction(self._admin, transactional_id, condition, _MARGIN_MS))

    def open_transactions(self, at: TopicPartition) -> list[int]:
        """Return the first offsets of a partition's open transactions, by its leader.

        Raises:
            TidegaugeError: it has none that responds.
        """
        return self._run(self._starts(at, hang=False))

    def hanging_transactions(self, at: TopicPartition) -> list[int]:
        """Return the first offsets of transactions unknown to their coordinators; raises as ``open_transactions``."""
        return self._run(self._starts(at, hang=True))

    async def _starts(self, at: TopicPartition, *, hang: bool) -> list[int]:
        found = await open_transactions_at(self._admin, [at])
        if hang:
            found = hanging(found, await coordinated(self._admin, {one.producer.producer_id for one in found}))
        return [one.start_offset for one in found]

    def abort_hanging(self, at: TopicPartition, start_offset: int) -> None:
        """Write an ABORT marker for the transaction that begins at an offset.

        Raises:
            TidegaugeError: INVALID_REQUEST, there is none; or why the marker was not written.
        """
        self._run(self._admin.abort_transaction(at, start_offset))

    # Share groups

    def new_member(self, group: str, name: str, at: TopicPartition) -> ShareMember:
        """Return a new member of a share group at a partition."""
        return ShareMember(self._kafka_servers, group, name, at, self._cluster.file.security)

    def _kafka_servers(self) -> list[str]:
        """Return where the brokers that run serve Kafka clients."""
        running = self._running()
        entries = [one for one in self._cluster.file.brokers if one.id in running]
        return [one.kafka_address for one in entries if one.kafka_address is not None]

    def begun(self, work: Coroutine[Any, Any, Result]) -> Future[Result]:
        """Begin what a member does; the future is done with it."""
        return self._loop.submit(work)

    def set_group_config(self, group: str, config: Mapping[str, str]) -> None:
        """Set settings of a group, and wait until every broker has them."""

        async def alter() -> None:
            applied = await self._admin.wait_for_change(await self._admin.alter_group_settings(group, config))
            late = [broker_id for broker_id, has_applied in applied.items() if not has_applied]
            if late:
                raise TidegaugeError(ErrorCode.REQUEST_TIMED_OUT, f"brokers {late} have not applied the settings")

        self._run(alter())

    def begin_share_group(self, group: str, at: TopicPartition, offset: int) -> ErrorCode:
        """Alter the offset of a share group without members; gives the error."""
        try:
            problem = self._run(self._admin.alter_share_offsets(group, {at: offset}))[at]
        except TidegaugeError as refused:
            return refused.code
        return ErrorCode.NONE if problem is None else problem.code

    def look_at_share(self, group: str, at: TopicPartition) -> ShareFacts:
        """Return the known facts of a share partition.

        Raises:
            TidegaugeError: there is no such partition, or no broker responds.
        """
        return self._run(gather_share(self._admin, group, at, self._cluster.bootstrap_servers))

    # Clients

    def produce(
        self, at: TopicPartition, value: str, timestamp_ms: int, acks: int, broker_id: int, wait_ms: int
    ) -> Future[Response]:
        """Send one batch to a broker; the future is its response."""
        batch = encode_batch([NewRecord(value.encode(), None, timestamp_ms)])
        request = produce_pb2.ProduceRequest(
            acks=acks,
            timeout_ms=wait_ms,
            partitions=[produce_pb2.ProducePartition(topic=at.topic, partition=at.partition, records=batch)],
        )
        return self._loop.submit(self._produce(request, self._address(broker_id), wait_ms + _MARGIN_MS))

    async def _produce(self, request: produce_pb2.ProduceRequest, address: str, limit_ms: float) -> Response:
        stub = self._clients.broker(address)
        try:
            response = await call(stub.Produce, request, timeout_ms=limit_ms, address=address)
        except TidegaugeError as problem:
            return Response(UNKNOWN, problem.message)
        if not response.partitions:  # acks=0: there is no response
            return Response(ACKNOWLEDGED)
        [result] = response.partitions
        code = ErrorCode.of(result.error)
        if code is not ErrorCode.NONE:
            return Response(code.name, result.error_message)
        return Response(ACKNOWLEDGED, offset=result.base_offset)

    def readable(
        self, at: TopicPartition, leader: int, isolation_level: IsolationLevel = "read_uncommitted"
    ) -> list[str]:
        """Return the values that a consumer can read from the leader now.

        Raises:
            TidegaugeError: it refuses, or does not respond.
        """
        request = fetch_pb2.FetchRequest(
            max_wait_ms=0,
            min_bytes=0,
            max_bytes=_MAX_BYTES,
            reads_committed=isolation_level == "read_committed",
            partitions=[
                fetch_pb2.FetchPartition(
                    topic=at.topic, partition=at.partition, fetch_offset=0, partition_max_bytes=_MAX_BYTES
                )
            ],
        )

        async def fetch() -> list[str]:
            address = self._address(leader)
            response = await call(self._clients.broker(address).Fetch, request, timeout_ms=_MARGIN_MS, address=address)
            [result] = response.partitions
            if result.error:
                raise TidegaugeError(ErrorCode.of(result.error), result.error_message)
            data = result.records
            aborted = [Aborted(one.first_offset, one.producer_id) for one in result.aborted_transactions]
            kept = without_aborted(data, iterate_headers(data), aborted)
            return [
                (record.value or b"").decode(errors="replace")
                for header in kept
                for record in decode_batch(data, header)
            ]

        return self._run(fetch())

    def audit(self, topic: str, histories: Sequence[Path]) -> Report:
        """Let the accountant audit a topic."""
        sources = Sources(
            histories=histories,
            event_logs=self._cluster.logs,
            log_directories=directories_of(self._cluster.directory, self._cluster.file),
            is_complete=self._is_complete,
        )
        addresses = [self._address(broker_id) for broker_id in self._running()]
        return self._run(read_and_audit(addresses, topic, sources))

    # Admin

    def create_topic(
        self, name: str, assignment: Sequence[Sequence[int]], config: Mapping[str, str], *, is_fresh: bool = False
    ) -> None:
        """Create a topic and wait until every broker knows it with its leaders.

        Args:
            name: its name.
            assignment: the replicas of each partition.
            config: its settings.
            is_fresh: whether the cluster had no topic before, so that one that is there already was created by an
                attempt of this call whose response was lost, as on a machine so busy that the controller moved.
        """

        async def create() -> None:
            try:
                await self._admin.create_topic(name, assignment=assignment, configs=config)
            except TidegaugeError as problem:
                if not is_fresh or problem.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
                    raise
            await self._admin.wait_for_topic(name)

        self._run(create())

    def try_to_create_topic(
        self, name: str, assignment: Sequence[Sequence[int]], config: Mapping[str, str], timeout_ms: float
    ) -> ErrorCode:
        """Ask for a topic, in KRaft mode the active controller itself; return the error, or NONE."""

        async def create() -> ErrorCode:
            controllers = self._cluster.file.controllers()
            try:
                if not controllers:
                    await self._admin.create_topic(name, assignment=assignment, configs=config, timeout_ms=timeout_ms)
                    return ErrorCode.NONE
                async with QuorumAdmin(controllers, timeout_ms / 1000) as admin:
                    await admin.create_topic(name, assignment, config)
            except TidegaugeError as problem:
                return problem.code
            return ErrorCode.NONE

        return self._run(create())

    def topic_identity(self, name: str) -> TopicIdentity:
        """Return the ids of a topic and the cluster; empty without a response."""
        try:
            return self._run(self._admin.metadata([name])).identity_of(name)
        except (TidegaugeError, TimeLimitError):
            return TopicIdentity()

    def elect(self, at: TopicPartition, *, unclean: bool) -> ErrorCode:
        """Ask for an election; gives what the controller says of it.

        Raises:
            TidegaugeError: there is no controller to ask.
        """
        outcome = self._run(self._admin.elect_leaders([at], unclean=unclean))[at]
        return ErrorCode.NONE if outcome is None else outcome.code

    # Switches

    def hold(self, at: TopicPartition, brokers: Sequence[int]) -> None:
        """Hold these followers' fetches."""
        self._run(self._switches.hold_fetch(at, brokers))

    def release(self, at: TopicPartition, brokers: Sequence[int]) -> None:
        """Release these followers, which then fetch by themselves again."""
        self._run(self._switches.release_fetch(at, brokers))

    def step(self, at: TopicPartition, broker_id: int, until: str) -> Step:
        """One round of a held follower."""
        return self._run(self._switches.step_fetch(at, broker_id, until=Until(until)))

    def set_fault(self, broker_id: int, wanted: WantedFault) -> Fault:
        """Put a fault in force inside a broker."""
        return self._run(self._switches.set_fault(broker_id, wanted))

    def held_requests(self, broker_id: int) -> int:
        """Return how many requests and responses the broker's holds keep."""
        return self._run(self._switches.wait_held(broker_id, 0))

    def release_requests(self, broker_id: int, which: str) -> None:
        """End the broker's holds: all, of requests, or of responses."""
        self._run(self._switches.release_requests(broker_id, which))

    def clear_faults(self, broker_id: int) -> None:
        """End all faults inside a broker."""
        self._run(self._switches.clear(broker_id))

    def heal(self, broker_id: int) -> None:
        """End its network partitions."""
        self._run(self._switches.heal(broker_id))

    def expire_session(self, broker_id: int) -> None:
        """End its ZooKeeper session."""
        self._run(expire_session(self._cluster, self._switches, broker_id))

    def sync(self, broker_id: int, at: TopicPartition) -> int:
        """Flush its replica's log; gives its recovery point."""
        return self._run(self._switches.sync_log(broker_id, at))[at]


async def _made(make: Callable[[], Result]) -> Result:
    """Build an object on the loop on which it will live."""
    return make()
