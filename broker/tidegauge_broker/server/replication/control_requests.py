"""Carries out what the controller asks of replicas: become leader or follower, stop, move between log directories.

Requests are handled one after the other, each to its end, even if its sender disconnects: between its parts it
waits for the pool. The partitions of a large request are handled in portions of ``PARTITIONS_PER_STEP``, each a step of
the core, with turns of the event loop between. The leader epochs that a LeaderAndIsr makes are in force at once, and on
the disk before the response: the writes of many partitions are made together, and only this request waits for them. (A
process that is killed in between loses them; recovery finds them in the batches, and an epoch without a batch has no
record.)
Source: ``ReplicaManager``: ``becomeLeaderOrFollower``, ``stopReplicas``, ``alterReplicaLogDirs``; its
``replicaStateChangeLock``.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol, TypeVar

from tidegauge.control import (
    ControlHeader,
    LeaderAndIsrPartition,
    LeaderAndIsrRequest,
    PartitionsResponse,
    StopReplicaRequest,
)
from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.partition import TopicPartition, partition_problem
from tidegauge.settings import Values
from tidegauge.with_turns import with_turns
from tidegauge_broker.log.creation import NewLog
from tidegauge_broker.log.deletion import LogDeletion
from tidegauge_broker.log.files import StorageError
from tidegauge_broker.log.manager import LogManager
from tidegauge_broker.log.partition_log import PartitionLog
from tidegauge_broker.replica import control_requests as requests
from tidegauge_broker.replica.broker import BrokerCore
from tidegauge_broker.replica.effects import DeleteLog
from tidegauge_broker.replica.ports import LoadedLog
from tidegauge_broker.server.long_lived import LongLived
from tidegauge_broker.server.replication.core_steps import CoreSteps
from tidegauge_broker.server.replication.log_dir_moves import LogDirMoves

LOG = logging.getLogger("tidegauge.replica")
PARTITIONS_PER_STEP = 50
"""A step that opens logs and writes lines for as many partitions takes 10 to 20 ms of CPU."""
TOPICS_PER_TURN = 10

Item = TypeVar("Item")
Result = TypeVar("Result")


class Replicas(Protocol):
    """What control requests need of the replica manager."""

    core: BrokerCore
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


class ControlRequests:
    """See the module.

    Args:
        replicas: of this broker.
        steps: what carries out the core's decisions.
        now_ms: a clock that never goes back.

    Attributes:
        tasks: of the requests that have come and are not at their end.
    """

    def __init__(self, replicas: Replicas, steps: CoreSteps, now_ms: Callable[[], int]) -> None:
        self._replicas = replicas
        self._requests = requests.ControlRequests(replicas.core)
        self._logs = replicas.logs
        self._steps = steps
        self._now_ms = now_ms
        self._turn = asyncio.Lock()
        self._long_lived = LongLived()
        self.tasks: set[asyncio.Task[Any]] = set()

    def fence(self, request: str, header: ControlHeader) -> ErrorCode:
        """Fence a control request that is no step of the core, and report its refusal."""
        error, effects = self._steps.decided(lambda: self._requests.fence(request, header))
        self._steps.execute(effects)
        return error

    async def leader_and_isr(
        self, request: LeaderAndIsrRequest, values_of: Callable[[str], Awaitable[Values]]
    ) -> PartitionsResponse:
        """Open what must be opened, then let the core decide.

        Args:
            request: the controller's.
            values_of: returns a topic's settings.
        """
        return await self._in_turn(lambda: self._leader_and_isr(request, values_of))

    async def stop_replica(self, request: StopReplicaRequest) -> PartitionsResponse:
        """Stop replicas, and perhaps drop them."""
        return await self._in_turn(lambda: self._stop_replica(request))

    async def alter_log_directories(self, wanted: Mapping[TopicPartition, str]) -> Mapping[TopicPartition, ErrorCode]:
        """Begin to move replicas to log directories of this broker, named by their absolute paths."""
        return await self._in_turn(lambda: self._replicas.moves.alter(wanted))

    async def _in_turn(self, make: Callable[[], Coroutine[Any, Any, Result]]) -> Result:
        async def take() -> Result:
            async with self._turn:
                return await make()

        task = asyncio.get_running_loop().create_task(take(), name="control-request")
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)
        return await asyncio.shield(task)

    async def _leader_and_isr(
        self, request: LeaderAndIsrRequest, values_of: Callable[[str], Awaitable[Values]]
    ) -> PartitionsResponse:
        errors: dict[TopicPartition, ErrorCode] = {}
        owed: list[PartitionLog] = []
        error = ErrorCode.NONE
        for partitions in _portions(request.partitions):
            response, of_portion = await self._take_over(replace(request, partitions=partitions), values_of)
            errors |= response.partitions
            owed += of_portion
            error = response.error
            if error is not ErrorCode.NONE:  # fenced: another controller has been heard of
                break
            self._long_lived.grown_to(len(self._logs.logs))
            await asyncio.sleep(0)
        if owed:
            await self._replicas.write_epochs(owed)
        for partitions in _portions(request.partitions):
            self._replicas.moves.resume(item.state.topic_partition for item in partitions)
            await asyncio.sleep(0)
        return self._as_carried_out(PartitionsResponse(error, errors))

    async def _take_over(
        self, request: LeaderAndIsrRequest, values_of: Callable[[str], Awaitable[Values]]
    ) -> tuple[PartitionsResponse, list[PartitionLog]]:
        """Handle a portion; return its outcome, and the logs whose leader epochs must be written still."""
        needed = {at for at in self._requests.logs_needed(request) if partition_problem(at) is None}
        async for topic in with_turns(sorted({topic_partition.topic for topic_partition in needed}), TOPICS_PER_TURN):
            self._replicas.configure_topic(topic, await values_of(topic))
        wanted = [item for item in request.partitions if item.state.topic_partition in needed]
        refused = await self._create_logs(wanted)
        loaded: dict[TopicPartition, LoadedLog | ErrorCode] = {
            item.state.topic_partition: self._open(item, refused) for item in wanted
        }
        for item in request.partitions:
            if partition_problem(item.state.topic_partition) is not None:
                loaded[item.state.topic_partition] = ErrorCode.INVALID_TOPIC_EXCEPTION
        response, effects = self._steps.decided(lambda: self._requests.leader_and_isr(request, loaded, self._now_ms()))
        return response, self._steps.execute_without_epochs(effects)

    async def _create_logs(self, wanted: Sequence[LeaderAndIsrPartition]) -> Mapping[TopicPartition, StorageError]:
        """Make those logs that do not exist; returns which could not be made."""
        missing = [item for item in wanted if self._logs.get(item.state.topic_partition) is None]
        if not missing:
            return {}
        creation = self._logs.begin_creation(
            [NewLog(item.state.topic_partition, item.state.topic_id, item.is_new) for item in missing]
        )
        await self._replicas.in_log_pool(creation.build)
        self._logs.adopt(creation)
        return creation.refused

    def _open(
        self, item: LeaderAndIsrPartition, refused: Mapping[TopicPartition, StorageError]
    ) -> LoadedLog | ErrorCode:
        topic_partition = item.state.topic_partition
        try:
            if topic_partition in refused:
                raise refused[topic_partition]
            if topic_partition in self._replicas.failed:
                raise StorageError(f"The replica of {topic_partition} has failed; it comes back with a restart")
            self._logs.get_or_create(topic_partition, item.state.topic_id, is_new=item.is_new)
            return self._logs.loaded(topic_partition)
        except TidegaugeError as problem:
            LOG.warning("The log of %s can't be opened: %s", topic_partition, problem.message)
            return problem.code

    async def _stop_replica(self, request: StopReplicaRequest) -> PartitionsResponse:
        errors: dict[TopicPartition, ErrorCode] = {}
        deletion = self._logs.begin_deletion()
        error = ErrorCode.NONE
        for partitions in _portions(request.partitions):
            response = self._stop(replace(request, partitions=partitions), deletion)
            errors |= response.partitions
            error = response.error
            if error is not ErrorCode.NONE:
                break
            await asyncio.sleep(0)
        if deletion.logs:
            await self._replicas.in_log_pool(deletion.carry_out)
            for refusal in deletion.refusals:
                LOG.error("Logs could not be deleted: %s", refusal)
            self._replicas.report_failures()
        errors = dict(self._as_carried_out(PartitionsResponse(error, errors)).partitions)
        errors |= {
            log.topic_partition: ErrorCode.KAFKA_STORAGE_ERROR for log in deletion.logs if log.log_directory.offline
        }
        return PartitionsResponse(error, errors)

    def _stop(self, request: StopReplicaRequest, deletion: LogDeletion) -> PartitionsResponse:
        """Stop the replicas of a portion; only the deletion has the logs of those that are dropped."""
        response, effects = self._steps.decided(lambda: self._requests.stop_replica(request))
        self._replicas.moves.stop(at for at, error in response.partitions.items() if error is ErrorCode.NONE)
        deleted = [effect.topic_partition for effect in effects if isinstance(effect, DeleteLog)]
        self._steps.execute([effect for effect in effects if not isinstance(effect, DeleteLog)])
        self._logs.let_go(deleted, deletion)
        return response

    def _as_carried_out(self, response: PartitionsResponse) -> PartitionsResponse:
        """Return a response to the controller with an error for each partition that failed while it was obeyed."""
        failed = self._replicas.failed
        errors = {
            at: ErrorCode.KAFKA_STORAGE_ERROR if error is ErrorCode.NONE and at in failed else error
            for at, error in response.partitions.items()
        }
        return PartitionsResponse(response.error, errors)


def _portions(items: Sequence[Item]) -> Iterator[Sequence[Item]]:
    """Divide a request's partitions; one without any is one portion, since it is fenced all the same."""
    for first in range(0, max(1, len(items)), PARTITIONS_PER_STEP):
        yield items[first : first + PARTITIONS_PER_STEP]
