"""Markers and verifications among the brokers of a cluster that is driven by hand: the work of a broker's shell.

A marker is appended as a control batch; if it is for a partition of ``__consumer_offsets``, the group coordinator there
completes the transaction's offsets before the marker has its response (``TransactionPeers`` of a broker process).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from tidegauge.errors import ErrorCode
from tidegauge.partition import TopicPartition
from tidegauge.transaction_marker import TransactionMarker, make_marker
from tidegauge.transactions import AddPartitionsToTxn, SupportedOperation
from tidegauge_broker.coordinator.coordinator import GroupCoordinator
from tidegauge_broker.coordinator.effects import VerifyTransaction, WriteMarkers
from tidegauge_broker.coordinator.events import MarkersWritten, TransactionCompleted, TransactionVerified
from tidegauge_broker.coordinator.transaction.coordinator import TransactionCoordinator
from tidegauge_broker.replica.messages import ACKS_ALL, ProducePartition, ProduceRequest, ProduceResult
from tidegauge_broker.server.service.produce_verification import OffsetsVerification
from tidegauge_proof.hand import messages as kinds
from tidegauge_proof.hand.coordinator_texts import text_of
from tidegauge_proof.hand.group_names import OFFSETS, TRANSACTIONS
from tidegauge_proof.simulator.coordinator_world import Arrived, Process
from tidegauge_proof.simulator.exactly_once.driving import Awaited, drive
from tidegauge_proof.simulator.memory_broker import MemoryBroker

if TYPE_CHECKING:
    from tidegauge_proof.hand.coordination import Coordination

E = ErrorCode
_MARKER_TIMEOUT_MS = 30_000


@dataclass(slots=True, eq=False)
class Marked:
    """The token of an append of a marker."""

    incarnation: int
    done: Callable[[Sequence[ProduceResult]], None]


@dataclass(slots=True, eq=False)
class _Completion:
    """A request to complete a transaction's offsets, which no message carries; it is like a ``Call`` of a client."""

    source: int
    request: TransactionMarker
    done: Callable[[Any], None]
    lost: Callable[[], None] = lambda: None


class TransactionPeers:
    """The brokers' requests to one another about transactions.

    Args:
        coordination: the cluster's coordinators.
    """

    def __init__(self, coordination: Coordination) -> None:
        self._coordination = coordination
        self._world = coordination.world

    # Verification (KIP-890)

    async def verify(
        self,
        broker: MemoryBroker,
        wanted: AddPartitionsToTxn,
        operation: SupportedOperation,
    ) -> Mapping[TopicPartition, ErrorCode]:
        """Verify at the coordinator that partitions are in a transaction; return the errors of those that are not."""
        errors: Mapping[TopicPartition, ErrorCode] = await Awaited(partial(self._ask_coordinator, broker, wanted))
        if operation is SupportedOperation.DEFAULT_ERROR:
            known = {E.TRANSACTION_ABORTABLE: E.INVALID_TXN_STATE}
            errors = {at: known.get(error, error) for at, error in errors.items()}
        return errors

    def _ask_coordinator(
        self, broker: MemoryBroker, wanted: AddPartitionsToTxn, responded: Callable[[Any], None]
    ) -> None:
        """Verify at the coordinator, as ``PartitionVerifier`` does (its rules 3 to 5)."""
        is_over: list[bool] = []

        def end(result: Any) -> None:
            if is_over:
                return  # a repeated response
            is_over.append(True)
            known = {E.PRODUCER_FENCED: E.INVALID_PRODUCER_EPOCH}
            errors = dict.fromkeys(wanted.partitions, E.NETWORK_EXCEPTION) if result is None else result.partitions
            responded({at: known.get(error, error) for at, error in errors.items() if error is not E.NONE})

        if not self._coordination.ask_from(broker.broker_id, TRANSACTIONS, wanted, end, lambda: end(None)):
            responded(dict.fromkeys(wanted.partitions, E.COORDINATOR_NOT_AVAILABLE))

    def verify_offsets(self, process: Process[GroupCoordinator], effect: VerifyTransaction) -> None:
        """Verify that the partition of offsets is in a transaction, and report the outcome to its coordinator."""
        broker = process.broker
        verification = OffsetsVerification(
            lambda at, batch: broker.core.begin_verification(at, batch, self._world.now_ms),
            partial(self.verify, broker),
        )

        def go_on(found: Any) -> None:
            if self._coordination.groups.processes.get(broker.broker_id) is process:
                process.events.append(TransactionVerified(effect.verification_id, *found))
                self._coordination.settle()

        drive(verification.verify(effect), go_on)

    # Markers

    def send_markers(self, process: Process[TransactionCoordinator], effect: WriteMarkers) -> None:
        """Send a WriteTxnMarkers request; its response, or its loss, goes to the coordinator once."""
        own, incarnation = process.broker, process.incarnation
        coordination = self._coordination
        is_over: list[bool] = []

        def end(errors: Any) -> None:
            alive = own.is_running and own.incarnation == incarnation
            if not is_over and alive and coordination.transactions.processes.get(own.broker_id) is process:
                process.events.append(MarkersWritten(effect.request_id, errors))
                is_over.append(True)
                coordination.settle()

        def arrive() -> str:
            if not self._world.is_up(effect.broker_id):
                end(None)
                return f"broker {effect.broker_id} does not take connections"
            coordination.connections.append((effect.broker_id, lambda: end(None)))
            self._write_markers(self._world.brokers[effect.broker_id], effect, own.broker_id, end)
            coordination.settle()
            return ""

        ends = (own.broker_id, effect.broker_id)
        coordination.in_flight(kinds.COORDINATOR_REQUEST, ends, text_of(effect), arrive, lambda: end(None))

    def _write_markers(
        self, broker: MemoryBroker, effect: WriteMarkers, coordinator: int, end: Callable[[Any], None]
    ) -> None:
        found: dict[int, dict[TopicPartition, ErrorCode]] = {}
        left = [len(effect.markers)]

        def respond() -> str:
            end(found)
            return ""

        def written(producer_id: int, errors: Mapping[TopicPartition, ErrorCode]) -> None:
            found.setdefault(producer_id, {}).update(errors)
            left[0] -= 1
            if not left[0]:
                names = sorted({error.name for one in found.values() for error in one.values()})
                text = f"WriteTxnMarkers response({', '.join(names)})"
                ends = (broker.broker_id, coordinator)
                self._coordination.in_flight(kinds.COORDINATOR_RESPONSE, ends, text, respond, lambda: end(None))

        for one in effect.markers:
            self._write_marker(broker, one.marker, one.partitions, partial(written, one.marker.producer_id))

    def _write_marker(
        self,
        broker: MemoryBroker,
        marker: TransactionMarker,
        partitions: Sequence[TopicPartition],
        written: Callable[[Mapping[TopicPartition, ErrorCode]], None],
    ) -> None:
        """Append a marker; complete the offsets that it concerns (KAFKA-17507), then report the errors."""
        errors = dict.fromkeys(partitions, E.UNKNOWN_TOPIC_OR_PARTITION)

        def appended(results: Sequence[ProduceResult]) -> None:
            errors.update({result.topic_partition: result.error for result in results})
            process = self._coordination.groups.processes.get(broker.broker_id)
            if errors.get(OFFSETS) is not E.NONE or process is None:
                written(errors)
                return
            offset = next(one.base_offset for one in results if one.topic_partition == OFFSETS)
            call = _Completion(broker.broker_id, marker, lambda _: written(errors))
            token = Arrived(call, process)
            process.events.append(TransactionCompleted(token, marker.producer_id, {0: offset}, marker.outcome))

        batch = make_marker(marker, broker.wall.at(self._world.now_ms))
        hosted = [ProducePartition(at, batch) for at in partitions]
        request = ProduceRequest(ACKS_ALL, _MARKER_TIMEOUT_MS, hosted, from_coordinator=True)
        broker.execute(broker.core.produce(request, Marked(broker.incarnation, appended), self._world.now_ms))


def is_completion(call: object) -> bool:
    """Return whether a response of the group coordinator is for a marker."""
    return isinstance(call, _Completion)
