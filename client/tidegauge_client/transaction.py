"""The transactions of one producer: which may begin, what belongs to the open one, and how it may end (KIP-98).

Rules (KafkaProducer, TransactionManager):
    1. ``init_transactions`` gives the producer id and epoch; producers that had the transactional id before are fenced.
    2. A partition is added to the transaction before the first record for it is sent; the offsets of a group likewise.
    3. A record that fails leaves the transaction to be aborted: a commit raises. An abort after a failure, or with
       records that were not acknowledged, drops what is left and raises the producer epoch (KIP-360): the sequences
       begin again, and a late request of the old epoch is refused.
    4. A fenced producer can do nothing any more.
    5. Requests are repeated while the coordinator moves, loads, or ends the transaction before. A commit whose time is
       over may be called again, and only that: whether the transaction is committed is unknown.
    6. Once a commit or an abort has begun the transaction takes nothing more (beginCommit, beginAbort): what was sent
       later would belong to the next one. A request that adds something is carried out even if the caller gives up
       waiting for it, and the end waits for it; if it has no response in time, the transaction must be aborted. So the
       coordinator never has a transaction of which this producer does not know.
    7. A commit that is called while another one has not ended waits for it, and shares its outcome; so does an abort
       (TransactionManager.handleCachedTransactionRequestResult).
    8. A producer that stops completes a commit or an abort that has begun, and aborts a transaction that is open
       (Sender.run, once it is to close). Where there is no time for it, the transaction ends by its timeout.

Only ``producer`` knows the records; this module sends requests and keeps the state.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Coroutine, Iterator, Mapping, Sequence
from enum import Enum
from typing import Any

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.partition import TopicPartition
from tidegauge.v1 import transactions_pb2
from tidegauge_client.admin_base import raise_for
from tidegauge_client.admin_groups import OffsetAndMetadata, to_committed
from tidegauge_client.channels import call
from tidegauge_client.cluster import Cluster, now_ms
from tidegauge_client.group.group_consumer import GroupMetadata
from tidegauge_client.partition_queue import Identity

_ATTEMPT_MS = 5_000.0
"""Timeout of one attempt at one broker."""
_BUSY_MS = 20.0
"""Back-off while the transaction before is still being ended (retry of CONCURRENT_TRANSACTIONS in Kafka's Sender)."""
_FATAL = frozenset(
    {
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    }
)


class Phase(Enum):
    """What may be called next."""

    NEW = "init_transactions must be called first"
    READY = "no transaction has begun; call begin_transaction"
    OPEN = "a transaction is open"
    COMMITTING = "a commit has not ended; call commit_transaction again"
    TO_ABORT = "the transaction has failed; call abort_transaction"
    ABORTING = "an abort has not ended; call abort_transaction again"


class Transactions:
    """See the module.

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
        request = transactions_pb2.InitTransactionsRequest(transactional_id=self._id, timeout_ms=self._timeout_ms)
        if self.identity is not None:
            request.producer_id, request.producer_epoch = self.identity
        response = await self._ask("InitTransactions", request)
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
            request = transactions_pb2.AddPartitionsRequest(
                partitions=[transactions_pb2.TransactionPartition(topic=at.topic, partition=at.partition)],
                **self._who(),
            )
            await self._ask_to_add("AddPartitions", request)
            self._partitions.add(at)

    async def commit_offsets(self, offsets: Mapping[TopicPartition, OffsetAndMetadata], group: GroupMetadata) -> None:
        """Store offsets of a group that count when the transaction is committed."""
        self.expect(Phase.OPEN)
        if offsets:
            await self._addition(self._commit_offsets(offsets, group))

    async def _commit_offsets(self, offsets: Mapping[TopicPartition, OffsetAndMetadata], group: GroupMetadata) -> None:
        added = transactions_pb2.AddOffsetsRequest(group_id=group.group_id, **self._who())
        await self._ask_to_add("AddOffsets", added)
        self._has_offsets = True
        request = transactions_pb2.CommitOffsetsInTransactionRequest(
            group_id=group.group_id,
            generation=group.generation,
            member_id=group.member_id,
            group_instance_id=group.group_instance_id or "",
            offsets=to_committed(offsets),
            **self._who(),
        )
        await self._ask_to_add("CommitOffsetsInTransaction", request)

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
        """Return whether the coordinator may come to have a partition or offsets of which nothing is known here yet."""
        return bool(self._additions)

    async def until_added(self) -> None:
        """Wait for what is being added."""
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
        """Give up what is being added: the producer stops, and what has not ended ends by its timeout (rule 8)."""
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
            self.expect(Phase.COMMITTING)  # what was being added may have failed
        if self._partitions or self._has_offsets:
            request = transactions_pb2.EndTransactionRequest(committed=committed, **self._who())
            try:
                await self._ask("EndTransaction", request)
            except TidegaugeError as problem:
                if problem.code is not ErrorCode.REQUEST_TIMED_OUT and not self.is_fenced:
                    self.phase, self.problem = Phase.TO_ABORT, problem
                raise
        self._last_end = self._number, committed
        self._begun(Phase.READY)

    def _who(self) -> dict[str, Any]:
        assert self.identity is not None, "the phases demand it"
        producer_id, producer_epoch = self.identity
        return {"transactional_id": self._id, "producer_id": producer_id, "producer_epoch": producer_epoch}

    # Requests

    async def _ask_to_add(self, method: str, request: Any) -> None:
        """Send a request that adds something; after any failure the transaction must be aborted: rules 3 and 6."""
        try:
            await self._ask(method, request)
        except TidegaugeError as problem:
            self.failed(problem)
            raise

    async def _ask(self, method: str, request: Any) -> Any:
        """Send a request until it has its response: rule 5.

        Raises:
            TidegaugeError: the error of the response, REQUEST_TIMED_OUT after max_block_ms.
        """
        deadline_ms = now_ms() + self._max_block_ms
        while True:
            address = self._cluster.addresses()[0]
            pause_ms = self._retry_backoff_ms
            try:
                ask = getattr(self._cluster.channels.transactions(address), method)
                left_ms = max(1.0, min(_ATTEMPT_MS, deadline_ms - now_ms()))
                response = await call(ask, request, timeout_ms=left_ms, address=address)
            except TidegaugeError as problem:
                self._cluster.note_failure(address)
                last = problem
            else:
                try:
                    _raise_first([response.status, *(one.status for one in _parts(response))])
                except TidegaugeError as problem:
                    last = problem
                    if problem.code is ErrorCode.CONCURRENT_TRANSACTIONS:
                        pause_ms = _BUSY_MS
                else:
                    return response
            if not last.retriable:
                self.failed(last)
                raise last
            if now_ms() >= deadline_ms:
                words = (
                    f"{method} of transactional id {self._id} did not succeed in {self._max_block_ms:.0f} ms: {last}"
                )
                raise TidegaugeError(ErrorCode.REQUEST_TIMED_OUT, words)
            await asyncio.sleep(pause_ms / 1000)


def _parts(response: Any) -> Sequence[Any]:
    return getattr(response, "offsets", ()) if hasattr(response, "offsets") else getattr(response, "partitions", ())


def _raise_first(statuses: Sequence[Any]) -> None:
    """Raise the first error; that of a partition that was not tried because of another one's comes last."""
    untried = ErrorCode.OPERATION_NOT_ATTEMPTED
    for status in sorted(statuses, key=lambda one: ErrorCode.of(one.error) is untried):
        raise_for(status)
