"""Asks transaction coordinators whether partitions are in a transaction, before a leader appends to them (KIP-890).

For a producer of transactions v2 it has them added (KIP-890, part 2).

Rules:
    1. One request to a broker is in flight at a time; verifications meanwhile wait for the next.
    2. At most one verification of a transactional id waits for a broker. A newer one takes its place: the older ends
       with INVALID_PRODUCER_EPOCH if the epoch of the newer is higher, with NETWORK_EXCEPTION if it is the same,
       since the client is trying again. One with a lower epoch than the waiting one gets INVALID_PRODUCER_EPOCH.
    3. Without a coordinator: COORDINATOR_NOT_AVAILABLE. No response in time, or a closed connection: NETWORK_EXCEPTION.
    4. The end of a queued verification is reported: how long it took, and how many partitions failed.
    5. PRODUCER_FENCED becomes INVALID_PRODUCER_EPOCH, which producers know; and TRANSACTION_ABORTABLE becomes
       INVALID_TXN_STATE where the client does not know it.
INVALID_TXN_STATE if the client does not know it.
Source: AddPartitionsToTxnManager.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field

from tidegauge.errors import ErrorCode
from tidegauge.partition import TopicPartition
from tidegauge.transactions import AddPartitionsToTxn, SupportedOperation

LOG = logging.getLogger("tidegauge.transactions")

Errors = Mapping[TopicPartition, ErrorCode]
Send = Callable[[int, Sequence[AddPartitionsToTxn]], Awaitable[Sequence[Errors] | None]]
"""Sends verifications to a broker; returns the errors of each, None without a response."""


@dataclass(slots=True)
class _Waiting:
    wanted: AddPartitionsToTxn
    future: asyncio.Future[Errors]


@dataclass(slots=True)
class _Node:
    """A broker: what waits for it, by transactional id, and the task that sends to it."""

    waiting: dict[str, _Waiting] = field(default_factory=dict[str, _Waiting])
    task: asyncio.Task[None] | None = None


class PartitionVerifier:
    """Verifies partitions of transactions at their coordinators.

    Args:
        coordinator_of: returns the broker that coordinates a transactional id; None: there is none at the moment.
        send: to a broker, this one included.

    Attributes:
        ended: called with the time that a verification took, in ms, and the number of partitions that failed; rule 4.
            Metrics set it.
    """

    def __init__(self, coordinator_of: Callable[[str], int | None], send: Send) -> None:
        self.ended: Callable[[float, int], None] | None = None
        self._coordinator_of = coordinator_of
        self._send = send
        self._nodes: dict[int, _Node] = {}

    async def verify(self, wanted: AddPartitionsToTxn, operation: SupportedOperation) -> Errors:
        """Return why partitions may not be appended to; others may.

        Args:
            wanted: a verification (``verify_only``), or partitions to be added (``is_implicit``).
            operation: what the version of the client's request supports; rule 5.
        """
        transactional_id = wanted.transactional_id or ""
        broker_id = self._coordinator_of(transactional_id)
        if broker_id is None:
            return dict.fromkeys(wanted.partitions, ErrorCode.COORDINATOR_NOT_AVAILABLE)
        begun = time.monotonic()
        found = await self._queued(self._nodes.setdefault(broker_id, _Node()), broker_id, wanted)
        if self.ended is not None:
            failures = sum(error is not ErrorCode.NONE for error in found.values())
            self.ended((time.monotonic() - begun) * 1000, failures)
        known = {ErrorCode.PRODUCER_FENCED: ErrorCode.INVALID_PRODUCER_EPOCH}
        if operation is SupportedOperation.DEFAULT_ERROR:
            known[ErrorCode.TRANSACTION_ABORTABLE] = ErrorCode.INVALID_TXN_STATE
        return {at: known.get(error, error) for at, error in found.items() if error is not ErrorCode.NONE}

    def _queued(self, node: _Node, broker_id: int, wanted: AddPartitionsToTxn) -> asyncio.Future[Errors]:
        """Queue a verification; rule 2."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Errors] = loop.create_future()
        transactional_id = wanted.transactional_id or ""
        before = node.waiting.get(transactional_id)
        if before is not None and before.wanted.producer_epoch > wanted.producer_epoch:
            _end(future, wanted, ErrorCode.INVALID_PRODUCER_EPOCH)
            return future
        if before is not None:
            is_fenced = before.wanted.producer_epoch < wanted.producer_epoch
            error = ErrorCode.INVALID_PRODUCER_EPOCH if is_fenced else ErrorCode.NETWORK_EXCEPTION
            _end(before.future, before.wanted, error)
        node.waiting[transactional_id] = _Waiting(wanted, future)
        if node.task is None:
            node.task = loop.create_task(self._run(node, broker_id), name=f"verify-at-{broker_id}")
        return future

    async def _run(self, node: _Node, broker_id: int) -> None:
        """Send what waits, until nothing does; rule 1."""
        sent: list[_Waiting] = []
        try:
            while node.waiting:
                sent = list(node.waiting.values())
                node.waiting.clear()
                for one, errors in zip(sent, await self._responses(broker_id, sent), strict=True):
                    if not one.future.done():
                        one.future.set_result(errors)
        finally:
            node.task = None
            for one in (*sent, *node.waiting.values()):  # the broker stops
                _end(one.future, one.wanted, ErrorCode.NETWORK_EXCEPTION)
            node.waiting.clear()

    async def _responses(self, broker_id: int, sent: Sequence[_Waiting]) -> Sequence[Errors]:
        """Return a response for each; rule 3."""
        found: Sequence[Errors] | None = None
        try:
            found = await self._send(broker_id, [one.wanted for one in sent])
        except Exception:
            LOG.exception("A verification at broker %d failed, which is a defect", broker_id)
        if found is None:
            return [dict.fromkeys(one.wanted.partitions, ErrorCode.NETWORK_EXCEPTION) for one in sent]
        return found

    async def close(self) -> None:
        """Give up the requests in flight."""
        tasks = [node.task for node in self._nodes.values() if node.task is not None]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)


def _end(future: asyncio.Future[Errors], wanted: AddPartitionsToTxn, error: ErrorCode) -> None:
    if not future.done():
        future.set_result(dict.fromkeys(wanted.partitions, error))
