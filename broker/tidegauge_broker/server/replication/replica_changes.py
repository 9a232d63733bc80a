"""Carries out what the controller decided about replicas, in either mode: become leader or follower, stop, move.

Contract: a change is handled to its end before the next begins, even if its sender disconnects: between its parts it
waits for the pool. The partitions of a large one are handled in portions of ``PARTITIONS_PER_STEP``, each a step of the
core, with turns of the event loop between. The logs that the states need are open when the core decides. The leader
epochs that a change makes
are in force at once, and on the disk before its result: the writes of many partitions are made together, and only this
change waits for them. (A process that is killed in between loses them; recovery finds them in the batches, and an epoch
without a batch has no record.)
Source: ``ReplicaManager``: ``becomeLeaderOrFollower``, ``applyDelta``, ``stopReplicas``, ``alterReplicaLogDirs``; its
``replicaStateChangeLock``.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterator, Mapping, Sequence
from typing import Any, Protocol, TypeAlias, TypeVar

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.partition import TopicPartition, partition_problem
from tidegauge.partition_state import PartitionState
from tidegauge.settings import Values
from tidegauge.with_turns import with_turns
from tidegauge_broker.log.creation import NewLog
from tidegauge_broker.log.deletion import LogDeletion
from tidegauge_broker.log.files import StorageError
from tidegauge_broker.log.manager import LogManager
from tidegauge_broker.log.partition_log import PartitionLog
from tidegauge_broker.replica.effects import DeleteLog, Effect
from tidegauge_broker.replica.ports import LoadedLog
from tidegauge_broker.server.replication.core_steps import CoreSteps
from tidegauge_broker.server.replication.log_dir_moves import LogDirMoves

LOG = logging.getLogger("tidegauge.replica")
PARTITIONS_PER_STEP = 50
"""A step that opens logs and writes lines for as many partitions takes 10 to 20 ms of CPU."""
TOPICS_PER_TURN = 10

Errors: TypeAlias = dict[TopicPartition, ErrorCode]
Loaded: TypeAlias = Mapping[TopicPartition, LoadedLog | ErrorCode]
Item = TypeVar("Item")
Result = TypeVar("Result")


class Replicas(Protocol):
    """The replica manager, for the changes."""

    logs: LogManager
    moves: LogDirMoves

    @property
    def failed(self) -> Collection[TopicPartition]:
        """Return the replicas that went offline, with their directory or one by one."""
        ...

    def configure_topic(self, topic: str, values: Values) -> None:
        """Put a topic's settings in force."""

    def report_failures(self) -> None:
        """Take the replicas of log directories offline that have failed."""

    def in_log_pool(self, call: Callable[[], None], /) -> Awaitable[None]:
        """Run a blocking call in the pool for disk work."""
        ...

    async def write_epochs(self, owed: Sequence[PartitionLog]) -> None:
        """Write leader epochs in the pool; a log directory that refuses goes offline."""


class ReplicaChanges:
    """Carries out the controller's decisions about replicas.

    Args:
        replicas: of this broker.
        steps: carries out the core's decisions.

    Attributes:
        tasks: of the changes that have come and are not at their end.
    """

    def __init__(self, replicas: Replicas, steps: CoreSteps) -> None:
        self._replicas = replicas
        self._logs = replicas.logs
        self._steps = steps
        self._turn = asyncio.Lock()
        self.tasks: set[asyncio.Task[Any]] = set()

    async def in_turn(self, make: Callable[[], Coroutine[Any, Any, Result]]) -> Result:
        """Carry out a change when those before it are at their end, whether or not the caller waits for it."""

        async def take() -> Result:
            async with self._turn:
                return await make()

        task = asyncio.get_running_loop().create_task(take(), name="replica-change")
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)
        return await asyncio.shield(task)

    async def alter_log_directories(self, wanted: Mapping[TopicPartition, str]) -> Errors:
        """Begin to move replicas to log directories of this broker, named by their absolute paths."""
        return await self.in_turn(lambda: self._replicas.moves.alter(wanted))

    async def take_over(
        self,
        states: Sequence[PartitionState],
        needed: Collection[TopicPartition],
        new: Collection[TopicPartition],
        values_of: Callable[[str], Awaitable[Values]],
        decide: Callable[[Loaded], tuple[Errors, list[Effect]]],
    ) -> tuple[Errors, list[PartitionLog]]:
        """Open the logs that a portion of states needs, then let the core decide. Call it in turn, then ``settle``.

        Args:
            states: of partitions.
            needed: the partitions whose log the core needs (``BrokerCore.logs_needed``).
            new: partitions of which no log can exist, so that one is made while a log directory is offline, too.
            values_of: returns a topic's settings.
            decide: lets the core take the states over, with the logs that are open or the errors of the others.

        Returns:
            The outcome of each partition, and the logs whose leader epochs must be written still.
        """
        problems = {at for at in (state.topic_partition for state in states) if partition_problem(at) is not None}
        names = {*needed} - problems
        async for topic in with_turns(sorted({topic_partition.topic for topic_partition in names}), TOPICS_PER_TURN):
            self._replicas.configure_topic(topic, await values_of(topic))
        logs = [
            NewLog(state.topic_partition, state.topic_id, state.topic_partition in new)
            for state in states
            if state.topic_partition in names
        ]
        refused = await self._create_logs(logs)
        loaded: dict[TopicPartition, LoadedLog | ErrorCode] = {
            log.topic_partition: self._open(log, refused) for log in logs
        }
        loaded |= dict.fromkeys(problems, ErrorCode.INVALID_TOPIC_EXCEPTION)
        errors, effects = self._steps.decided(lambda: decide(loaded))
        owed = self._steps.execute_without_epochs(effects)
        return errors, owed

    async def settle(self, states: Sequence[PartitionState], errors: Errors, owed: Sequence[PartitionLog]) -> Errors:
        """Write the leader epochs of all portions, and continue the moves of their partitions.

        Args:
            states: of all portions.
            errors: the outcomes that ``take_over`` returned.
            owed: the logs that ``take_over`` returned.

        Returns:
            The outcome of each partition, as it was carried out.
        """
        if owed:
            await self._replicas.write_epochs(owed)
        for portion in portions(states):
            self._replicas.moves.resume(state.topic_partition for state in portion)
            await asyncio.sleep(0)
        return self._as_carried_out(errors)

    async def _create_logs(self, wanted: Sequence[NewLog]) -> Mapping[TopicPartition, StorageError]:
        """Make those logs that do not exist; returns which could not be made."""
        missing = [log for log in wanted if self._logs.get(log.topic_partition) is None]
        if not missing:
            return {}
        creation = self._logs.begin_creation(missing)
        await self._replicas.in_log_pool(creation.build)
        self._logs.adopt(creation)
        return creation.refused

    def _open(self, log: NewLog, refused: Mapping[TopicPartition, StorageError]) -> LoadedLog | ErrorCode:
        topic_partition = log.topic_partition
        try:
            if topic_partition in refused:
                raise refused[topic_partition]
            if topic_partition in self._replicas.failed:
                raise StorageError(f"The replica of {topic_partition} has failed; it comes back with a restart")
            self._logs.get_or_create(topic_partition, log.topic_id, is_new=log.is_new)
            return self._logs.loaded(topic_partition)
        except TidegaugeError as problem:
            LOG.warning("The log of %s can't be opened: %s", topic_partition, problem.message)
            return problem.code

    async def stop(self, decisions: Iterator[Callable[[], tuple[Errors, list[Effect]]]]) -> Errors:
        """Let the core stop replicas, and delete the logs of those that are dropped. Call it in turn.

        Args:
            decisions: each lets the core stop a portion of them.

        Returns:
            The outcome of each partition, as it was carried out.
        """
        errors: Errors = {}
        deletion = self._logs.begin_deletion()
        for decide in decisions:
            errors |= self._stop(decide, deletion)
            await asyncio.sleep(0)
        if deletion.logs:
            await self._replicas.in_log_pool(deletion.carry_out)
            for refusal in deletion.refusals:
                LOG.error("Logs could not be deleted: %s", refusal)
            self._replicas.report_failures()
        offline = [log.topic_partition for log in deletion.logs if log.log_directory.offline]
        return {**self._as_carried_out(errors), **dict.fromkeys(offline, ErrorCode.KAFKA_STORAGE_ERROR)}

    def _stop(self, decide: Callable[[], tuple[Errors, list[Effect]]], deletion: LogDeletion) -> Errors:
        """Stop the replicas of a portion; only the deletion has the logs of those that are dropped."""
        errors, effects = self._steps.decided(decide)
        self._replicas.moves.stop(at for at, error in errors.items() if error is ErrorCode.NONE)
        deleted = [effect.topic_partition for effect in effects if isinstance(effect, DeleteLog)]
        self._steps.execute([effect for effect in effects if not isinstance(effect, DeleteLog)])
        self._logs.let_go(deleted, deletion)
        return errors

    def _as_carried_out(self, errors: Errors) -> Errors:
        """Return the outcomes, with errors for partitions that failed meanwhile."""
        failed = self._replicas.failed
        return {
            at: ErrorCode.KAFKA_STORAGE_ERROR if error is ErrorCode.NONE and at in failed else error
            for at, error in errors.items()
        }


def portions(items: Sequence[Item]) -> Iterator[Sequence[Item]]:
    """Divide the partitions of a change; one without any is one portion, since its request is fenced all the same."""
    for first in range(0, max(1, len(items)), PARTITIONS_PER_STEP):
        yield items[first : first + PARTITIONS_PER_STEP]
