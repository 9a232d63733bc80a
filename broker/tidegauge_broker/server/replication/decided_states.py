"""The changes of this broker's replicas that KRaft's metadata bring: each step from one image to the next.

Contract: one call is handled to its end before the next begins (``ReplicaChanges.in_turn``). A partition that fails is
reported in the log, and costs no other partition its change.
Source: ReplicaManager.applyDelta.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Iterator, Sequence
from functools import partial

from tidegauge.errors import ErrorCode
from tidegauge.partition import TopicPartition
from tidegauge.partition_state import PartitionState, ReplicaStop
from tidegauge.settings import Values
from tidegauge_broker.log.partition_log import PartitionLog
from tidegauge_broker.replica.broker import BrokerCore
from tidegauge_broker.replica.effects import Effect
from tidegauge_broker.server.replication.core_steps import CoreSteps
from tidegauge_broker.server.replication.replica_changes import Errors, Loaded, ReplicaChanges, portions

LOG = logging.getLogger("tidegauge.replica")
_CAUSE = "Metadata"


class DecidedStates:
    """The changes of this broker's replicas by KRaft's metadata.

    Args:
        core: of this broker.
        changes: carries out the changes of replicas.
        steps: carries out the core's decisions.
        now_ms: a clock that never goes back.
    """

    def __init__(self, core: BrokerCore, changes: ReplicaChanges, steps: CoreSteps, now_ms: Callable[[], int]) -> None:
        self._core = core
        self._changes = changes
        self._steps = steps
        self._now_ms = now_ms

    async def apply(
        self,
        deletions: Sequence[ReplicaStop],
        states: Sequence[PartitionState],
        new: Collection[TopicPartition],
        values_of: Callable[[str], Awaitable[Values]],
    ) -> Errors:
        """Delete replicas, then take over the states of others.

        Args:
            deletions: of replicas that this broker no longer has.
            states: of the partitions that it leads, then of those that it follows.
            new: partitions of which no log can exist, so that one is made while a log directory is offline, too.
            values_of: returns a topic's settings.

        Returns:
            The outcome of each partition, as it was carried out.
        """
        return await self._changes.in_turn(lambda: self._apply(deletions, states, new, values_of))

    async def _apply(
        self,
        deletions: Sequence[ReplicaStop],
        states: Sequence[PartitionState],
        new: Collection[TopicPartition],
        values_of: Callable[[str], Awaitable[Values]],
    ) -> Errors:
        errors: Errors = {}
        if deletions:
            errors |= await self._changes.stop(self._stops(deletions))
        owed: list[PartitionLog] = []
        for portion in portions(states) if states else ():
            decide = partial(self._take_over, portion)
            needed = self._core.logs_needed(portion)
            of_part, owed_by_part = await self._changes.take_over(portion, needed, new, values_of, decide)
            errors |= of_part
            owed += owed_by_part
            await asyncio.sleep(0)  # a portion that needs no new log has waited for nothing
        errors = await self._changes.settle(states, errors, owed) if states else errors
        for at, error in errors.items():
            if error is not ErrorCode.NONE:
                LOG.warning("The metadata's state of %s could not be taken over: %s", at, error.name)
        return errors

    def _stops(self, deletions: Sequence[ReplicaStop]) -> Iterator[Callable[[], tuple[Errors, list[Effect]]]]:
        for portion in portions(deletions):
            yield partial(self._core.stop, portion, report=lambda *_: None)

    def _take_over(self, states: Sequence[PartitionState], loaded: Loaded) -> tuple[Errors, list[Effect]]:
        return self._core.take_over(
            states,
            loaded,
            self._now_ms(),
            cause=_CAUSE,
            may_refuse=False,
            report=lambda *_: None,
            of_metadata=True,
        )
