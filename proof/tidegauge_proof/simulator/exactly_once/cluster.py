"""Both coordinators, partitions of data and their clients on one cluster whose brokers die, pause and lose disks.

The work of a broker's shell around coordinators and replicas is done here too: a transactional batch is
verified before it is appended (``ProduceVerification``, ``OffsetsVerification``), a marker is appended and responded to
when it is committed and the group coordinator has taken it up (``TransactionService``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from tidegauge.control import NO_LEADER
from tidegauge.errors import ErrorCode
from tidegauge.groups import OFFSETS_TOPIC, OffsetFetchResult
from tidegauge.partition import TopicPartition
from tidegauge.record_batch import iterate_headers
from tidegauge.transaction_marker import TransactionMarker, make_marker
from tidegauge.transactions import TRANSACTION_TOPIC, AddPartitionsToTxn, SupportedOperation
from tidegauge_broker.coordinator.coordinator import GroupCoordinator
from tidegauge_broker.coordinator.effects import (
    AllocateProducerId,
    Append,
    Effect,
    FindLeaders,
    VerifyTransaction,
    WriteMarkers,
)
from tidegauge_broker.coordinator.events import (
    NO_BROKER,
    LeadersFound,
    MarkersWritten,
    ProducerIdAllocated,
    RequestArrived,
    TransactionCompleted,
    TransactionRequestArrived,
    TransactionVerified,
)
from tidegauge_broker.coordinator.settings import GroupSettings, TransactionSettings
from tidegauge_broker.coordinator.transaction.coordinator import TransactionCoordinator
from tidegauge_broker.replica.effects import LeadershipChanged
from tidegauge_broker.replica.messages import (
    ACKS_ALL,
    CONSUMER,
    FetchPartition,
    FetchRequest,
    ProducePartition,
    ProduceRequest,
    ProduceResult,
)
from tidegauge_broker.server.coordinators.leadership_proof import needs_proof
from tidegauge_broker.server.service.produce_verification import OffsetsVerification, ProduceVerification, Verified
from tidegauge_client.isolation import Aborted, without_aborted
from tidegauge_client.records import decode_batches
from tidegauge_proof.simulator.coordinator_world import Arrived, CoordinatorWorld, Process, Sending
from tidegauge_proof.simulator.dice import Dice
from tidegauge_proof.simulator.exactly_once.clients import OUTPUTS, Copier, Produce, Reader
from tidegauge_proof.simulator.exactly_once.compacting import Batch, compacted
from tidegauge_proof.simulator.exactly_once.driving import Awaited, drive
from tidegauge_proof.simulator.exactly_once.network import LATE_ENDS, Message, Network
from tidegauge_proof.simulator.exactly_once.stable_offsets import StableOffsets
from tidegauge_proof.simulator.memory_broker import MemoryBroker, Reading
from tidegauge_proof.simulator.memory_log import MemoryLog
from tidegauge_proof.simulator.sim_partition import SimPartition
from tidegauge_proof.simulator.world import World

E = ErrorCode
TRANSACTIONS, OFFSETS = TopicPartition(TRANSACTION_TOPIC, 0), TopicPartition(OFFSETS_TOPIC, 0)
NAMES = (TRANSACTIONS, OFFSETS, *OUTPUTS)
_PRODUCE_TIMEOUT_MS = 3_000
_MARKER_TIMEOUT_MS = 5_000
_READ_BYTES = 600
Errors = Mapping[TopicPartition, ErrorCode]


@dataclass(slots=True, eq=False)
class Caller:
    """The sender of a request to a transaction coordinator."""

    transactional_id: str


@dataclass(slots=True, eq=False)
class Call:
    """A request to a coordinator; ``done`` takes the result, once, while ``is_wanted``."""

    producer: Caller | Copier
    request: Any
    done: Callable[[Any], None]
    is_wanted: Callable[[], bool]


@dataclass(slots=True, eq=False)
class Internal:
    """A request of a broker to another one or to ZooKeeper, which fails when its connection breaks.

    ``end`` takes its one outcome.
    """

    words: str
    end: Callable[[Any], None]
    is_over: bool = False

    def finish(self, result: Any) -> None:
        """Hand the outcome over, if it is the first."""
        if not self.is_over:
            self.is_over = True
            self.end(result)


@dataclass(slots=True, eq=False)
class _Appended:
    """The token of a produce that a client or a marker waits for."""

    incarnation: int
    done: Callable[[Sequence[ProduceResult]], None]


@dataclass(slots=True)
class _Load:
    """A load of a compacted log: the compacted part, and the offset of the rest."""

    batches: list[Batch]
    end_offset: int


class _Coordinators(CoordinatorWorld[Any]):
    """One kind of coordinator; what it reads in a load may have been compacted."""

    def __init__(self, cluster: Cluster, checker: Any, partition: SimPartition) -> None:
        self.cluster = cluster
        self._loads: dict[int, _Load] = {}
        super().__init__(cluster.world, checker, partition)

    def read_for_load(self, log: MemoryLog, from_offset: int) -> bytes:
        """Return the next part of a log, at times as compaction leaves it."""
        if from_offset == 0:
            end = self.cluster.cleanable_end(self.partition, log)
            passes = self.cluster.dice.below(4)
            self._loads[id(log)] = _Load(
                compacted(log, end, self.world.now_ms, passes) if passes else [], end if passes else 0
            )
        load = self._loads[id(log)]
        parts: list[bytes] = []
        size_bytes = 0
        for header, data in load.batches:
            if header.next_offset > from_offset and size_bytes < _READ_BYTES:
                parts.append(data)
                size_bytes += len(data)
        if parts:
            return b"".join(parts)
        return log.read(max(from_offset, load.end_offset), log.log_end_offset, _READ_BYTES)


class Transactions(_Coordinators):
    """The transaction coordinators."""

    def new_coordinator(self, broker: MemoryBroker) -> TransactionCoordinator:
        """Return the coordinator of a new process."""
        return TransactionCoordinator(self.cluster.transaction_settings, self.world.now_ms, broker.wall)

    def event_of(self, token: Arrived[TransactionCoordinator]) -> object:
        """Return the event of a request that arrives."""
        return TransactionRequestArrived(token, token.call.request)

    def carry_out_other(self, process: Process[TransactionCoordinator], effect: Effect) -> None:
        """Allocate producer ids, look up leaders, and send markers."""
        cluster = self.cluster
        if isinstance(effect, Append):
            cluster.checker.appending(process, effect)
        elif isinstance(effect, AllocateProducerId):
            process.events.append(ProducerIdAllocated(effect.allocation_id, E.NONE, cluster.next_producer_id()))
        elif isinstance(effect, FindLeaders):
            process.events.append(LeadersFound(effect.lookup_id, cluster.leaders_known(process.broker, effect)))
        elif isinstance(effect, WriteMarkers):
            cluster.checker.marking(process, effect)
            cluster.send_markers(process, effect)


class Groups(_Coordinators):
    """The group coordinators."""

    uuids = 0

    def new_coordinator(self, broker: MemoryBroker) -> GroupCoordinator:
        """Return the coordinator of a new process, after an empty retention run."""
        coordinator = GroupCoordinator(self.cluster.group_settings, self.world.now_ms, broker.wall)
        coordinator.step(self.world.now_ms)
        return coordinator

    def event_of(self, token: Arrived[GroupCoordinator]) -> object:
        """Return the event of an arriving request, with a new member id."""
        self.uuids += 1
        return RequestArrived(token, token.call.request, f"{self.uuids}")

    def carry_out_other(self, process: Process[GroupCoordinator], effect: Effect) -> None:
        """Have transactional offsets verified."""
        if isinstance(effect, VerifyTransaction):
            self.cluster.verify_offsets(process, effect)


class Cluster:
    """The cluster with its coordinators, partitions and clients.

    Attributes:
        in_flight: the brokers' requests to one another, and to ZooKeeper, that have no outcome yet.
    """

    def __init__(self, world: World, checker: Any, dice: Dice, mode: str, timeout_ms: int) -> None:
        self.world = world
        self.checker = checker
        self.dice = dice
        self.network = Network(mode, dice)
        self.in_flight: list[Internal] = []
        self.stable_offsets = StableOffsets(self)
        self._producer_ids = 0
        self.transaction_settings = TransactionSettings(
            partitions=1,
            transaction_max_timeout_ms=timeout_ms,
            transactional_id_expiration_ms=1 << 50,
            abort_timed_out_interval_ms=1_000,
            remove_expired_interval_ms=1 << 40,
        )
        self.group_settings = GroupSettings(
            partitions=1,
            group_initial_rebalance_delay_ms=500,
            offsets_retention_ms=1 << 50,
            offsets_retention_check_interval_ms=1 << 40,
        )
        self.partitions = {partition.at: partition for partition in world.partitions}
        checker.cluster = self
        self.transactions = Transactions(self, checker, self.partitions[TRANSACTIONS])
        self.groups = Groups(self, checker.offsets, self.partitions[OFFSETS])
        world.coordinators = self
        self.settle()

    # Reports of the replica cores

    def leadership_changed(self, broker: MemoryBroker, change: LeadershipChanged) -> None:
        """Hand a leadership that was gained or lost to the coordinators."""
        self.transactions.leadership_changed(broker, change)
        self.groups.leadership_changed(broker, change)

    def produced(self, broker: MemoryBroker, token: object, results: Sequence[ProduceResult]) -> None:
        """Hand the outcome of an append to whoever waits for it."""
        if isinstance(token, _Appended):
            if token.incarnation == broker.incarnation:
                token.done(results)
            return
        self.transactions.produced(broker, token, results)
        self.groups.produced(broker, token, results)

    def settle(self) -> None:
        """Carry out the pending work inside the processes, and put their responses on the network."""
        both = (self.transactions, self.groups)
        is_quiet = False
        while not is_quiet:
            for one in both:
                one.run()
            is_quiet = not any(process.events for one in both for process in one.processes.values())
        for one in both:
            responses, one.responses = one.responses, []
            for response in responses:
                call, result = response.call, response.result
                if isinstance(call.request, TransactionMarker):
                    call.done(result)
                elif needs_proof(call.request, result):
                    self._give_out(response.process.broker, call, result)
                else:
                    self._respond(call, result)
        self.checker.look_at_data()

    def _give_out(self, broker: MemoryBroker, call: Call, result: OffsetFetchResult) -> None:
        committed = {} if self.network.mode == LATE_ENDS else self.checker.offsets.committed_positions()

        def respond(proven: OffsetFetchResult) -> None:
            self.checker.offsets.given_out(committed, proven)
            self._respond(call, proven)

        self.stable_offsets.give_out(broker, OFFSETS, result, respond)

    def _respond(self, call: Call, result: Any) -> None:
        words = f"{type(result).__name__} of {call.producer.transactional_id}: {result}"
        self.network.send(Message("", words, lambda: call.done(result), call.is_wanted))

    # Requests to coordinators

    def leader_of(self, at: TopicPartition) -> int:
        """Return the leader that a client finds, mostly the true one."""
        leader, brokers = self.partitions[at].state_now.leader, list(self.world.brokers)
        if leader in brokers and (self.network.is_calm or self.dice.below(8)):
            return leader
        return self.dice.choose(brokers)

    def ask_coordinator(self, to: str, broker_id: int, call: Call, *, lose: Callable[[], None] | None = None) -> None:
        """Send a request to a broker for one of its coordinators."""
        coordinators = self.transactions if to == "transaction" else self.groups
        kind = type(call.request).__name__

        def arrive() -> None:
            if not coordinators.arrive(Sending(call, broker_id)) and lose is not None:
                lose()

        words = f"{kind} of {call.producer.transactional_id} to {broker_id}"
        message = Message(kind, words, arrive, call.is_wanted)
        if lose is not None:
            message.lose = lose
        self.network.send(message)

    # Data

    def ask_leader(
        self, broker_id: int, request: Produce, done: Callable[[Any], None], is_wanted: Callable[[], bool]
    ) -> None:
        """Send a batch to a broker; ``done`` takes the error."""

        def respond(error: ErrorCode) -> None:
            words = f"{error.name} of the batch of {request.transactional_id}"
            self.network.send(Message("", words, lambda: done(error), is_wanted))

        def arrive() -> None:
            if self.world.is_up(broker_id):
                self._produce(self.world.brokers[broker_id], request, respond)
                self.settle()

        words = f"Produce of {request.transactional_id} to {request.at} at {broker_id}"
        self.network.send(Message("Produce", words, arrive, is_wanted))

    def _produce(self, broker: MemoryBroker, wanted: Produce, respond: Callable[[ErrorCode], None]) -> None:
        item = ProducePartition(wanted.at, wanted.batch)
        request = ProduceRequest(ACKS_ALL, _PRODUCE_TIMEOUT_MS, [item])
        verification = ProduceVerification(
            lambda at, batch: broker.core.begin_verification(at, batch, self.world.now_ms),
            partial(self._verify, broker),
        )
        found = verification.of(request, wanted.transactional_id, SupportedOperation.GENERIC_ERROR_SUPPORTED)
        incarnation = broker.incarnation

        def go_on(verified: Verified) -> None:
            if broker.incarnation != incarnation or not broker.is_running:
                return
            if verified.refused:
                respond(verified.refused[0].error)
            else:
                token = _Appended(incarnation, lambda results: respond(results[0].error))
                broker.execute(broker.core.produce(verified.request, token, self.world.now_ms))

        if isinstance(found, Verified):
            go_on(found)
        else:
            drive(found, go_on)

    async def _verify(
        self,
        broker: MemoryBroker,
        wanted: AddPartitionsToTxn,
        _operation: SupportedOperation,
    ) -> Errors:
        errors: Errors = await Awaited(partial(self._verify_at_coordinator, broker, wanted))
        return errors

    def _verify_at_coordinator(
        self, broker: MemoryBroker, wanted: AddPartitionsToTxn, responded: Callable[[Errors], None]
    ) -> None:
        """Ask the coordinator that a broker knows; rules 3 and 4 of ``PartitionVerifier``."""
        state = broker.metadata.states.get(TRANSACTIONS)
        if state is None or state.leader == NO_LEADER:
            responded(dict.fromkeys(wanted.partitions, E.COORDINATOR_NOT_AVAILABLE))
            return

        def end(result: Any) -> None:
            errors = dict.fromkeys(wanted.partitions, E.NETWORK_EXCEPTION) if result is None else result.partitions
            known = {E.PRODUCER_FENCED: E.INVALID_PRODUCER_EPOCH}
            responded({at: known.get(error, error) for at, error in errors.items() if error is not E.NONE})
            self.settle()

        internal = self.internal(f"verification by {broker.broker_id}", broker, end)
        caller = Caller(wanted.transactional_id or "")
        call = Call(caller, wanted, internal.finish, lambda: not internal.is_over)
        self.ask_coordinator("transaction", state.leader, call, lose=lambda: internal.finish(None))

    def verify_offsets(self, process: Process[GroupCoordinator], effect: VerifyTransaction) -> None:
        """Verify that the partition of offsets is in a transaction."""
        broker = process.broker
        verification = OffsetsVerification(
            lambda at, batch: broker.core.begin_verification(at, batch, self.world.now_ms),
            partial(self._verify, broker),
        )

        def go_on(found: Any) -> None:
            if self.groups.processes.get(broker.broker_id) is process:
                process.events.append(TransactionVerified(effect.verification_id, *found))

        drive(verification.verify(effect), go_on)

    def internal(self, words: str, broker: MemoryBroker, end: Callable[[Any], None]) -> Internal:
        """Return an open request of a broker; ``end`` takes its result, None if disconnected."""
        incarnation = broker.incarnation

        def if_alive(result: Any) -> None:
            self.in_flight.remove(internal)
            if broker.is_running and broker.incarnation == incarnation:
                end(result)

        internal = Internal(words, if_alive)
        self.in_flight.append(internal)
        return internal

    # Markers

    def next_producer_id(self) -> int:
        """Return a producer id that is new."""
        self._producer_ids += 1
        return self._producer_ids

    def leaders_known(self, broker: MemoryBroker, effect: FindLeaders) -> dict[TopicPartition, int]:
        """Return the leaders by a broker's metadata, whose cache may be empty."""
        states = broker.metadata.states
        leaders: dict[TopicPartition, int] = {}
        for at in effect.partitions:
            state = states.get(at)
            if state is not None or not states:
                is_known = state is not None and state.leader >= 0 and broker.metadata.is_alive(state.leader)
                leaders[at] = state.leader if state is not None and is_known else NO_BROKER
        return leaders

    def send_markers(self, process: Process[TransactionCoordinator], effect: WriteMarkers) -> None:
        """Send markers to the broker that leads their partitions."""

        def end(errors: Any) -> None:
            if self.transactions.processes.get(process.broker.broker_id) is process:
                process.events.append(MarkersWritten(effect.request_id, errors))
                self.settle()

        internal = self.internal(f"markers of {process.broker.broker_id}", process.broker, end)

        def arrive() -> None:
            if not self.world.is_up(effect.broker_id):
                internal.finish(None)
                return
            self._write_markers(self.world.brokers[effect.broker_id], effect, internal)
            self.settle()

        words = f"WriteTxnMarkers of {process.broker.broker_id} to {effect.broker_id}"
        lose: Callable[[], None] = lambda: internal.finish(None)  # noqa: E731 - as the other messages have it
        self.network.send(Message("WriteTxnMarkers", words, arrive, lambda: not internal.is_over, lose))

    def _write_markers(self, broker: MemoryBroker, effect: WriteMarkers, internal: Internal) -> None:
        found: dict[int, dict[TopicPartition, ErrorCode]] = {}
        open_parts = [len(effect.markers)]

        def part_done() -> None:
            open_parts[0] -= 1
            if not open_parts[0]:
                words = f"response to the {internal.words}"
                self.network.send(
                    Message(
                        "",
                        words,
                        lambda: internal.finish(found),
                        lambda: not internal.is_over,
                        lambda: internal.finish(None),
                    )
                )

        for one in effect.markers:
            errors = dict.fromkeys(one.partitions, E.UNKNOWN_TOPIC_OR_PARTITION)
            of_producer = found.setdefault(one.marker.producer_id, {})
            self._write_marker(broker, one.marker, errors, of_producer, part_done)

    def _write_marker(
        self,
        broker: MemoryBroker,
        marker: TransactionMarker,
        errors: dict[TopicPartition, ErrorCode],
        found: dict[TopicPartition, ErrorCode],
        done: Callable[[], None],
    ) -> None:
        hosted = [at for at in errors if broker.core.partition(at) is not None]
        batch = make_marker(marker, broker.wall.at(self.world.now_ms))
        items = [ProducePartition(at, batch) for at in hosted]

        def finished(_: object = None) -> None:
            found.update(errors)
            done()

        def appended(results: Sequence[ProduceResult]) -> None:
            errors.update({result.topic_partition: result.error for result in results})
            process = self.groups.processes.get(broker.broker_id)
            placed = {result.topic_partition: result.base_offset for result in results}
            if errors.get(OFFSETS) is E.NONE and process is not None:
                call = Call(Caller("marker"), marker, finished, lambda: True)
                token = Arrived(call, process)
                self.checker.offsets.arrives(process, token)
                process.events.append(
                    TransactionCompleted(token, marker.producer_id, {0: placed[OFFSETS]}, marker.outcome)
                )
            else:
                finished()

        request = ProduceRequest(ACKS_ALL, _MARKER_TIMEOUT_MS, items, from_coordinator=True)
        broker.execute(broker.core.produce(request, _Appended(broker.incarnation, appended), self.world.now_ms))

    # Reading

    def read(self, reader: Reader, broker_id: int) -> str | None:
        """Let a consumer of committed records read what there is, from a broker that it takes for the leader."""
        broker = self.world.brokers[broker_id]
        if not self.world.is_up(broker_id):
            return None
        token = Reading()
        wanted = [FetchPartition(reader.at, reader.position, 300)]
        request = FetchRequest(CONSUMER, 0, 1, 300, wanted, reads_committed=True)
        broker.execute(broker.core.fetch(request, token, self.world.now_ms))
        assert token.results is not None
        ((result, records),) = token.results
        if result.error is not E.NONE or not records:
            return None
        headers = list(iterate_headers(records))
        listed = [Aborted(one.first_offset, one.producer_id) for one in result.aborted_transactions or ()]
        kept = {header.base_offset for header in without_aborted(records, headers, listed)}
        rows = [
            (record.offset, record.value or b"")
            for header in headers
            if header.base_offset in kept and not header.is_control
            for record in decode_batches(records[header.position : header.position + header.size_bytes])
            if record.offset >= reader.position
        ]
        end = headers[-1].next_offset
        reader.reads.append((reader.position, end, rows))
        reader.position = end
        return f"{reader.at} is read up to {end}"

    # Compaction

    def cleanable_end(self, partition: SimPartition, log: MemoryLog) -> int:
        """Return the end of a log's compactable part: last stable offset or committed end."""
        fold = self.checker.folds[partition.at].of(log)
        end = min(fold.last_stable_offset(len(partition.checker.committed)), log.log_end_offset)
        return log.whole_batches_below(end)

    def step_timers(self) -> bool:
        """Run the timers of the coordinators that are due."""
        is_due = [one.step_timers() for one in (self.transactions, self.groups)]
        is_due.append(self.stable_offsets.look_again())
        self.settle()
        return any(is_due)
