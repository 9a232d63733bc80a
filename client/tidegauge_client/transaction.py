"""The transactions of one producer: which may begin, what belongs to the open one, and how it may end (KIP-98).

Rules (KafkaProducer, TransactionManager):
    1. ``init_transactions`` gives the producer id and epoch; producers that had the transactional id before are fenced.
    2. A partition is added to the transaction before the first record for it is sent; the offsets of a group likewise.
    3. A record that fails leaves the transaction to be aborted: a commit raises. An abort after a failure, or with
       records that were not acknowledged, drops the rest and raises the producer epoch (KIP-360): the sequences
       begin again, and a late request of the old epoch is refused.
    4. A fenced producer can do nothing any more.
    5. Requests are repeated while the coordinator moves, loads, or ends the transaction before. A commit whose time is
       over may be called again, and only that: whether the transaction is committed is unknown.
    6. Once a commit or an abort has begun the transaction takes nothing more (beginCommit, beginAbort): a record sent
       later would belong to the next one. A request that adds something is carried out even if the caller gives up
       waiting for it, and the end waits for it; if it has no response in time, the transaction must be aborted. So the
       coordinator never has a transaction of which this producer does not know.
    7. A commit that is called while another one has not ended waits for it, and shares its outcome; so does an abort
       (TransactionManager.handleCachedTransactionRequestResult).
    8. A producer that stops completes a commit or an abort that has begun, and aborts a transaction that is open
       (Sender.run, once it is to close). Without time for it, the transaction ends by its timeout.

Only ``producer`` knows the records; this module sends requests and keeps the state.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Coroutine, Iterator, Mapping
from enum import Enum
from typing import Any

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.kafka import apis
from tidegauge.kafka.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from tidegauge.kafka.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from tidegauge.kafka.messages.end_txn import EndTxnRequest
from tidegauge.kafka.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from tidegauge.kafka.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from tidegauge.partition import TopicPartition
from tidegauge.transactions import NO_PRODUCER_EPOCH, NO_PRODUCER_ID
from tidegauge_client.cluster import Cluster, now_ms
from tidegauge_client.coordinators import GROUP, TRANSACTION, find_coordinator
from tidegauge_client.group.group_consumer import GroupMetadata
from tidegauge_client.kafka_offsets import OffsetAndMetadata, errors_of, topics_to_commit
from tidegauge_client.partition_queue import Identity

_ATTEMPT_MS = 5_000.0
"""Timeout of one attempt at one broker."""
_OF_CLIENTS = 3
"""Last version of AddPartitionsToTxn for clients; later ones are for brokers (KIP-890)."""
_FIRST_WITH_IDENTITY = 3
"""First version of InitProducerId that raises a producer's epoch (KIP-360)."""
_WITH_GENERATION = 3
"""First version of TxnOffsetCommit with the member's generation (KIP-447)."""
_PURPOSE = "coordinator"
_BUSY_MS = 20.0
"""Back-off while the transaction before is still being ended (retry of CONCURRENT_TRANSACTIONS in Kafka's Sender)."""
_OF_OTHERS = frozenset({ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION})
"""Retriable errors that say nothing against the coordinator; after other ones it is looked up again."""
_FATAL = frozenset(
    {
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    }
)


class Phase(Enum):
    """Calls allowed next."""

    NEW = "init_transactions must be called first"
    READY = "no transaction has begun; call begin_transaction"
    OPEN = "a transaction is open"
    COMMITTING = "a commit has not ended; call commit_transaction again"
    TO_ABORT = "the transaction has failed; call abort_transaction"
    ABORTING = "an abort has not ended; call abort_transaction again"


class Transactions:
    """The transactions of one producer.

    Args:
        transactional_id: of the producer.
        timeout_ms: after which its coordinator aborts a transaction (transaction.timeout.ms).
        cluster: where brokers are found.
        retry_backoff_ms: between two attempts.
        max_block_ms: how long a request is repeated.

    Attributes:
        identity: producer id and epoch; None before ``init``.
        problem: why the transaction must be aborted, or the producer can't continue; None: there is none.
    """

    def __init__(
        self, transactional_id: str, timeout_ms: int, cluster: Cluster, *, retry_backoff_ms: float, max_block_ms: float
    ) -> None:
        self._id = transactional_id
        self._timeout_ms = timeout_ms
        self._cluster = cluster
        self._retry_backoff_ms = retry_backoff_ms
        self._max_block_ms = max_block_ms
        self._partitions: set[TopicPartition] = set()
        self._has_offsets = False
        self._adding = asyncio.Lock()
        self._additions: set[asyncio.Task[None]] = set()
        self._coordinators: dict[tuple[int, str], str] = {}
        self._one_commit, self._one_abort = asyncio.Lock(), asyncio.Lock()
        self._number = 0
        self._last_end = (0, False)
        self.phase = Phase.NEW
        self.identity: Identity | None = None
        self.problem: TidegaugeError | None = None
        self.is_fenced = False

    @property
    def transactional_id(self) -> str:
        """Return the transactional id."""
        return self._id

    def expect(self, *phases: Phase) -> None:
        """Raise unless one of these phases holds.

        Raises:
            TidegaugeError: rule 4's error; INVALID_TXN_STATE with what must be called instead.
        """
        if self.is_fenced and self.problem is not None:
            raise TidegaugeError(self.problem.code, self.problem.message)
        if self.phase not in phases:
            because = f" ({self.problem})" if self.phase is Phase.TO_ABORT and self.problem is not None else ""
            raise TidegaugeError(ErrorCode.INVALID_TXN_STATE, f"{self.phase.value}{because}")

    def failed(self, problem: TidegaugeError) -> None:
        """Note a failure of a record or request: rules 3 and 4."""
        if problem.code in _FATAL:
            self.is_fenced = True
            self.problem = problem
        elif self.phase in {Phase.OPEN, Phase.COMMITTING}:
            self.phase = Phase.TO_ABORT
            self.problem = problem

    async def init(self) -> Identity:
        """Get the producer id and epoch; with an identity, one with the next epoch (rule 3)."""
        known = (NO_PRODUCER_ID, NO_PRODUCER_EPOCH) if self.identity is None else self.identity
        request = InitProducerIdRequest(self._id, self._timeout_ms, *known)
        response: InitProducerIdResponse = await self._ask(
            apis.INIT_PRODUCER_ID, request, at_least=_FIRST_WITH_IDENTITY if self.identity is not None else 0
        )
        self.identity = Identity(response.producer_id, response.producer_epoch)
        self._begun(Phase.READY)
        return self.identity

    def begin(self) -> None:
        """Begin a transaction."""
        self.expect(Phase.READY)
        self._number += 1
        self._begun(Phase.OPEN)

    def _begun(self, phase: Phase) -> None:
        self.phase = phase
        self.problem = None
        self._partitions.clear()
        self._has_offsets = False

    async def add(self, at: TopicPartition) -> None:
        """Add a partition, unless it is in the transaction already: rule 2."""
        self.expect(Phase.OPEN)
        if at not in self._partitions:
            await self._addition(self._add(at))
            self.expect(Phase.OPEN)

    async def _add(self, at: TopicPartition) -> None:
        async with self._adding:
            self.expect(Phase.OPEN)
            if at in self._partitions:
                return
            topics = [AddPartitionsToTxnTopic(at.topic, [at.partition])]
            request = AddPartitionsToTxnRequest((), *self._who(), topics)
            await self._ask_to_add(apis.ADD_PARTITIONS_TO_TXN, request, at_most=_OF_CLIENTS)
            self._partitions.add(at)

    async def commit_offsets(self, offsets: Mapping[TopicPartition, OffsetAndMetadata], group: GroupMetadata) -> None:
        """Store offsets of a group that count when the transaction is committed."""
        self.expect(Phase.OPEN)
        if offsets:
            await self._addition(self._commit_offsets(offsets, group))

    async def _commit_offsets(self, offsets: Mapping[TopicPartition, OffsetAndMetadata], group: GroupMetadata) -> None:
        added = AddOffsetsToTxnRequest(*self._who(), group.group_id)
        await self._ask_to_add(apis.ADD_OFFSETS_TO_TXN, added)
        self._has_offsets = True
        transactional_id, producer_id, producer_epoch = self._who()
        request = TxnOffsetCommitRequest(
            transactional_id,
            group.group_id,
            producer_id,
            producer_epoch,
            group.generation,
            group.member_id,
            group.group_instance_id,
            topics_to_commit(offsets, TxnOffsetCommitRequestTopic, TxnOffsetCommitRequestPartition),
        )
        to = (GROUP, group.group_id)
        await self._ask_to_add(apis.TXN_OFFSET_COMMIT, request, to, at_least=_WITH_GENERATION)

    async def _addition(self, work: Coroutine[Any, Any, None]) -> None:
        """Carry out requests that add something to the transaction, whoever gives up waiting for them: rule 6."""
        task = asyncio.get_running_loop().create_task(work, name="transaction-addition")
        self._additions.add(task)
        task.add_done_callback(self._added)
        await asyncio.shield(task)

    def _added(self, task: asyncio.Task[None]) -> None:
        self._additions.discard(task)
        if not task.cancelled():
            task.exception()  # whoever waits raises it; there may be none left

    @property
    def is_adding(self) -> bool:
        """Return whether additions to the transaction are in flight."""
        return bool(self._additions)

    async def until_added(self) -> None:
        """Wait for additions in flight."""
        while self._additions:
            await asyncio.wait(set(self._additions))

    @contextlib.contextmanager
    def closing(self) -> Iterator[None]:
        """Take nothing more while what there is, is being sent; whoever gives this up may still abort: rule 6."""
        self.phase = Phase.COMMITTING
        try:
            yield
        except BaseException:
            if self.phase is Phase.COMMITTING:
                self.phase = Phase.OPEN
            raise

    def one_commit(self) -> contextlib.AbstractAsyncContextManager[bool]:
        """Wait for a commit that has not ended; yield whether the transaction is still to be committed: rule 7.

        Raises:
            TidegaugeError: INVALID_TXN_STATE, the transaction was aborted meanwhile.
        """
        return self._one_end(self._one_commit, committed=True)

    def one_abort(self) -> contextlib.AbstractAsyncContextManager[bool]:
        """Wait for an abort that has not ended; yield whether the transaction is still to be aborted: rule 7."""
        return self._one_end(self._one_abort, committed=False)

    @contextlib.asynccontextmanager
    async def _one_end(self, one: asyncio.Lock, *, committed: bool) -> AsyncIterator[bool]:
        number = self._number
        async with one:
            is_over = self._number != number or self.phase is Phase.READY
            if is_over and self._last_end != (number, committed):
                raise TidegaugeError(
                    ErrorCode.INVALID_TXN_STATE,
                    f"the transaction was {'aborted' if committed else 'committed'} by another call meanwhile",
                )
            yield not is_over

    async def close(self) -> None:
        """Give up additions in flight: the producer stops, and an open transaction ends by its timeout (rule 8)."""
        additions = set(self._additions)
        for task in additions:
            task.cancel()
        if additions:
            await asyncio.wait(additions)

    async def end(self, *, committed: bool) -> None:
        """Commit or abort; a transaction to which nothing was added needs no request.

        Raises:
            TidegaugeError: REQUEST_TIMED_OUT, and the phase says what to call again; or the coordinator's error.
        """
        self.phase = Phase.COMMITTING if committed else Phase.ABORTING
        await self.until_added()
        if committed:
            self.expect(Phase.COMMITTING)  # additions may have failed
        if self._partitions or self._has_offsets:
            try:
                await self._ask(apis.END_TXN, EndTxnRequest(*self._who(), committed))
            except TidegaugeError as problem:
                if problem.code is not ErrorCode.REQUEST_TIMED_OUT and not self.is_fenced:
                    self.phase, self.problem = Phase.TO_ABORT, problem
                raise
        self._last_end = self._number, committed
        self._begun(Phase.READY)

    def _who(self) -> tuple[str, int, int]:
        """Return transactional id, producer id and epoch."""
        assert self.identity is not None, "the phases demand it"
        producer_id, epoch = self.identity
        return self._id, producer_id, epoch

    # Requests

    async def _ask_to_add(self, key: int, request: Any, to: tuple[int, str] | None = None, **versions: int) -> None:
        """Send a request that adds something; after any failure the transaction must be aborted: rules 3 and 6."""
        try:
            await self._ask(key, request, to, **versions)
        except TidegaugeError as problem:
            self.failed(problem)
            raise

    async def _ask(self, key: int, request: Any, to: tuple[int, str] | None = None, **versions: int) -> Any:
        """Send a request to a coordinator until it has its response: rule 5.

        Args:
            key: the API's.
            request: of the API's request class.
            to: what the coordinator coordinates, with its kind; None: the transactional id.
            versions: ``at_least``, ``at_most``.

        Raises:
            TidegaugeError: the error of the response, REQUEST_TIMED_OUT after max_block_ms.
        """
        deadline_ms = now_ms() + self._max_block_ms
        kind = to or (TRANSACTION, self._id)
        while True:
            pause_ms = self._retry_backoff_ms
            try:
                address = self._coordinators.get(kind) or await self._find(kind)
                left_ms = max(1.0, min(_ATTEMPT_MS, deadline_ms - now_ms()))
                response = await self._cluster.kafka.ask(address, key, request, left_ms, purpose=_PURPOSE, **versions)
                _raise_first(response)
            except TidegaugeError as problem:
                last = self._worded(problem)
                if last.code is ErrorCode.CONCURRENT_TRANSACTIONS:
                    pause_ms = _BUSY_MS
                elif last.code not in _OF_OTHERS:
                    self._coordinators.pop(kind, None)
            else:
                return response
            if not last.retriable:
                self.failed(last)
                raise last
            if now_ms() >= deadline_ms:
                words = (
                    f"{apis.APIS[key].name} of transactional id {self._id} did not succeed in "
                    f"{self._max_block_ms:.0f} ms: {last}"
                )
                raise TidegaugeError(ErrorCode.REQUEST_TIMED_OUT, words)
            await asyncio.sleep(pause_ms / 1000)

    async def _find(self, kind: tuple[int, str]) -> str:
        """Look a coordinator up, and remember it until it fails."""
        found = await find_coordinator(self._cluster, self._cluster.info, *kind)
        self._coordinators[kind] = found.address
        return found.address

    def _worded(self, problem: TidegaugeError) -> TidegaugeError:
        if problem.code is not ErrorCode.PRODUCER_FENCED:
            return problem
        return TidegaugeError(
            problem.code, f"A newer producer with the same transactional id has taken over: {self._id}"
        )


def _raise_first(response: Any) -> None:
    """Raise the first error; an error due to another partition's comes last."""
    codes = [ErrorCode.of(getattr(response, "error_code", 0))]
    codes += errors_of(getattr(response, "topics", ())).values()
    for topic in getattr(response, "results_by_topic_v3_and_below", ()):
        codes += [ErrorCode.of(one.partition_error_code) for one in topic.results_by_partition]
    for code in sorted(codes, key=lambda code: code is ErrorCode.OPERATION_NOT_ATTEMPTED):
        if code is not ErrorCode.NONE:
            raise TidegaugeError(code)
