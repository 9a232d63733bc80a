"""A process with a transactional producer, as Kafka's clients behave (KIP-98, KIP-360, KIP-890): its requests in order.

With transactions v2 (KIP-890, part 2) the leader adds the partition of a batch, and each end brings the next epoch.

A batch without a response is sent again, the same bytes to whoever leads then, so that the leader finds a duplicate.
A request to the coordinator is repeated until its result is final. Once a batch or an end was refused for good the
producer asks for a new epoch with its old one before it aborts, and so learns whether it is fenced.
Source: TransactionManager of Kafka's clients; librdkafka's transactional producer.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tidegauge.errors import ErrorCode
from tidegauge.groups import OffsetToCommit, TxnOffsetCommit
from tidegauge.partition import TopicPartition, partition_named
from tidegauge.transaction_marker import Outcome
from tidegauge.transactions import AddOffsetsToTxn, AddPartitionsToTxn, EndTxn, InitProducerId, SupportedOperation
from tidegauge_proof.hand import messages as kinds
from tidegauge_proof.hand.client_process import RECONNECT_MS, RETRIED, RETRY_MS, ClientProcess, Failed
from tidegauge_proof.hand.coordination import Coordination
from tidegauge_proof.hand.group_names import OFFSETS, TRANSACTIONS
from tidegauge_proof.hand.messages import CLIENT, Coordinated
from tidegauge_proof.simulator.clients import Produced
from tidegauge_proof.simulator.memory_broker import AT


class _Attempt:
    """A batch that was sent to a leader's process."""

    def __init__(self, produced: Produced, broker: Any, end: Callable[[Any], None]) -> None:
        self.produced = produced
        self.broker = broker
        self.incarnation = broker.incarnation
        self.end = end


class ProducerProcess(ClientProcess):
    """One producer.

    Args:
        name: what the story calls it.
        transactional_id: that it takes over.
        coordination: the cluster's coordinators.
        note: takes each batch that it sends (``HandCluster.has_sent``).
        transaction_timeout_ms: transaction.timeout.ms.
        request_timeout_ms: how long it waits for a response.

    Attributes:
        is_open: whether it has begun a transaction that it has not ended.
    """

    def __init__(
        self,
        name: str,
        transactional_id: str,
        coordination: Coordination,
        note: Callable[[Produced], None],
        transaction_timeout_ms: int,
        request_timeout_ms: int,
    ) -> None:
        super().__init__(name, coordination, request_timeout_ms)
        self.transactional_id = transactional_id
        self.is_open = False
        self._note = note
        self._timeout_ms = transaction_timeout_ms
        self._identity = (-1, -1)
        self._added: set[TopicPartition] = set()
        self._has_offsets = False
        self._sequences: dict[TopicPartition, int] = {}
        self._attempt: _Attempt | None = None
        self._is_refused = False
        self._is_v2 = coordination.transactions_v2

    # Jobs

    @property
    def _operation(self) -> SupportedOperation:
        """The support that its requests imply: librdkafka's are too old for TRANSACTION_ABORTABLE."""
        return SupportedOperation.ADD_PARTITION if self._is_v2 else SupportedOperation.DEFAULT_ERROR

    async def initialize(self) -> None:
        """Take over the transactional id (InitProducerId)."""
        self._forget()
        result = await self.ask(TRANSACTIONS, InitProducerId(self.transactional_id, self._timeout_ms, *self._identity))
        self._identity, self._sequences = (result.producer_id, result.producer_epoch), {}

    def _forget(self) -> None:
        self._added, self._has_offsets, self.is_open, self._is_refused = set(), False, False, False

    async def send(self, first: int, count: int, partition: int) -> None:
        """Send a batch in the open transaction; its partition is added to it before."""
        at = partition_named(AT.topic, partition)
        try:
            if at not in self._added and not self._is_v2:
                wanted = AddPartitionsToTxn(self.transactional_id, *self._identity, (at,))
                await self.ask(TRANSACTIONS, wanted)
            self._added.add(at)
            await self._produce(at, first, count)
        except Failed:
            self._is_refused = True
            raise

    async def _produce(self, at: TopicPartition, first: int, count: int) -> None:
        sequence = self._sequences.get(at, 0)
        clients = self.coordination.partitions[at].clients
        produced = clients.send_in_transaction(count, *self._identity, sequence, first_number=first)
        self._note(produced)
        while True:
            produced.outcome, produced.error = "info", ""
            error = await self.once(lambda end: self._send(at, produced, end))
            if error is ErrorCode.NONE:
                self._sequences[at] = sequence + count
                return
            if error is not None and error not in RETRIED:
                raise Failed(error)
            await self.sleep(RECONNECT_MS if error is None else RETRY_MS)

    def _send(self, at: TopicPartition, produced: Produced, end: Callable[[Any], None]) -> bool:
        leader = self.coordination.leader_of(at)
        if leader not in self.world.brokers:
            return False
        self._attempt = _Attempt(produced, self.world.brokers[leader], end)

        def arrive() -> str:
            if not self.world.is_up(leader):
                produced.error = ErrorCode.NETWORK_EXCEPTION.name
                return f"broker {leader} does not take connections"
            self.coordination.arrive_produce(leader, self.transactional_id, produced, at, self._operation)
            return ""

        named, (_, epoch) = kinds.names_of_records(produced), self._identity
        text = f"Produce({named}, {self.transactional_id}, epoch {epoch}, transactional)"
        message = Coordinated(arrive, lambda: end(None), produced)
        self.coordination.send(kinds.COORDINATOR_REQUEST, CLIENT, leader, text, message)
        return True

    def look(self) -> None:
        """Take the response to the batch that was sent, if it is there, or the end of its connection."""
        attempt = self._attempt
        if attempt is None or self.is_dead:
            return
        produced, broker = attempt.produced, attempt.broker
        if produced.outcome == "ok":
            found: ErrorCode | None = ErrorCode.NONE
        elif produced.error:
            found = ErrorCode[produced.error]
        elif not broker.is_running or broker.incarnation != attempt.incarnation:
            found = None
        else:
            return
        self._attempt = None
        attempt.end(found)

    async def send_offsets(self, group: str, offsets: Mapping[int, int]) -> None:
        """Commit offsets of a group in the transaction (AddOffsetsToTxn, TxnOffsetCommit)."""
        if not self._has_offsets and not self._is_v2:
            await self.ask(TRANSACTIONS, AddOffsetsToTxn(self.transactional_id, *self._identity, 0))
        self._has_offsets = True
        ones = tuple(OffsetToCommit(partition_named(AT.topic, at), offset) for at, offset in offsets.items())
        request = TxnOffsetCommit(self.transactional_id, group, *self._identity, ones, operation=self._operation)
        await self.ask(OFFSETS, request)

    async def end(self, outcome: Outcome) -> None:
        """Commit or abort the open transaction."""
        if self._is_refused:
            await self.initialize()
            return
        try:
            if self._added or self._has_offsets:
                result = await self.ask(
                    TRANSACTIONS, EndTxn(self.transactional_id, *self._identity, outcome, raises_epoch=self._is_v2)
                )
                if result.producer_id >= 0:  # the next transaction has an epoch of its own
                    self._identity, self._sequences = (result.producer_id, result.producer_epoch), {}
        finally:
            self._forget()
