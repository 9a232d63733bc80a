"""Moves replicas between the log directories of this broker (AlterReplicaLogDirs, KIP-113).

Contract: everything here happens on the event loop. The next step for a replica is decided by ``next_step``; a step
reads and appends at most ``replica.fetch.max.bytes`` through the page cache, and the other work of the broker is done
between two steps. A step changes the current log only when it replaces it, which is one step too: no record can be
appended in between.

Rules (Kafka's ReplicaManager.alterReplicaLogDirs, ReplicaAlterLogDirsManager, ReplicaAlterLogDirsThread):
    1. Checks, for each replica alone: the topic's name leaves room for the future log's (INVALID_TOPIC_EXCEPTION); the
       directory is one of ``log.dirs`` (LOG_DIR_NOT_FOUND) and online; the replica is not offline
       (KAFKA_STORAGE_ERROR). A move to another directory that is in progress is given up. Then the directory is
       remembered, and if the broker has no such replica (REPLICA_NOT_AVAILABLE, or UNKNOWN_TOPIC_OR_PARTITION) a
       later creation will use it. No future log is created while any log directory is offline.
    2. One replica is copied at a time, in the order of their names, until it has moved.
    3. ``replica.alter.log.dirs.io.max.bytes.per.second`` is measured as the replication quotas are; while it is
       exceeded, nothing is copied.
    4. A replica that is stopped is not copied. When the controller makes it leader or follower again, also after a
       restart, a copy that was begun continues. One from an earlier topic of that name is deleted: a log directory
       that had failed may still hold it, and leader epochs, which begin at 0 with each topic, can't distinguish them.
       So is one beside which the replica was created again, after its own log directory was lost: it can't be renamed
       onto a directory that exists, and the attempt would take the log directory offline. One that may hold what
       compaction has removed from the log since begins again (``FutureLogs``, rule 4).
    5. A copy replaces the replica when as much of it is on the disk: else a power loss soon after would take records
       that had been flushed. How much an earlier process has flushed is not known, so a complete copy is flushed once
       in any case. (Kafka does not look at that.)
    6. The destination fails: the move is given up, the replica stays in its directory. The current directory fails: the
       replica is offline. A log that can't be read: the copy stops until rule 4, or until the broker restarts.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.partition import TopicPartition
from tidegauge_broker.log.creation import NewLog
from tidegauge_broker.log.files import StorageError
from tidegauge_broker.log.future_logs import is_name_too_long, span_of
from tidegauge_broker.log.manager import LogManager
from tidegauge_broker.replica.broker import BrokerCore
from tidegauge_broker.replica.future_replica import (
    REPLACE,
    WAIT,
    CopyFrom,
    RaiseStart,
    StartAt,
    Step,
    TruncateTo,
    next_step,
)
from tidegauge_broker.replica.future_states import FutureState
from tidegauge_broker.replica.quota import UNLIMITED, ReplicationQuota
from tidegauge_broker.replica.roles import Role

LOG = logging.getLogger("tidegauge.replica")
_THROTTLED_PAUSE_SECONDS = 0.1
_TURN = 1_000
"""Replicas of one request after which the event loop serves others."""


class Replicas(Protocol):
    """The replica manager, for the moves."""

    core: BrokerCore
    logs: LogManager

    def report_failures(self) -> None:
        """Take the replicas of log directories offline that have failed."""


@dataclass(frozen=True, slots=True)
class MoveLimits:
    """The limits of copying.

    Attributes:
        bytes_per_second: ``replica.alter.log.dirs.io.max.bytes.per.second`` as it is now.
        step_bytes: ``replica.fetch.max.bytes``.
    """

    bytes_per_second: Callable[[], int] = lambda: UNLIMITED
    step_bytes: int = 1_048_576


class LogDirMoves:
    """Moves replicas between log directories.

    Args:
        replicas: the replicas that move, and their logs.
        limits: how much is copied.
        in_log_pool: runs a blocking call in the pool for disk work.
        now_ms: the broker's clock.
    """

    def __init__(
        self,
        replicas: Replicas,
        limits: MoveLimits,
        in_log_pool: Callable[[Callable[[], None]], Awaitable[None]],
        now_ms: Callable[[], int],
    ) -> None:
        self._replicas = replicas
        self._core = replicas.core
        self._logs = replicas.logs
        self._limits = limits
        self._in_log_pool = in_log_pool
        self._now_ms = now_ms
        self._quota = ReplicationQuota(limits.bytes_per_second)
        self._task: asyncio.Task[None] | None = None

    # Requests

    async def alter(self, wanted: Mapping[TopicPartition, str]) -> dict[TopicPartition, ErrorCode]:
        """Begin to move replicas to log directories; the caller handles no control request meanwhile."""
        errors: dict[TopicPartition, ErrorCode] = {}
        refused: Counter[ErrorCode] = Counter()
        for at, path in wanted.items():
            try:
                await self._begin(at, path)
                errors[at] = ErrorCode.NONE
            except TidegaugeError as problem:
                refused[problem.code] += 1
                if refused[problem.code] == 1:
                    LOG.warning("Unable to alter log dirs for %s: %s", at, problem.message)
                errors[at] = problem.code
            if not len(errors) % _TURN:
                await asyncio.sleep(0)
        for code, count in refused.items():
            if count > 1:
                LOG.warning("Unable to alter log dirs for %d partitions in all: %s", count, code.name)
        return errors

    async def _begin(self, at: TopicPartition, path: str) -> None:
        """Rule 1.

        Raises:
            TidegaugeError: what rule 1 says.
        """
        if is_name_too_long(at):
            raise TidegaugeError(ErrorCode.INVALID_TOPIC_EXCEPTION, "The topic name is too long.")
        log_directory = self._logs.directory_at(path)
        if log_directory.offline:
            raise StorageError(f"Log directory {path} is offline")
        partition = self._core.partition(at)
        if partition is not None and partition.role is Role.OFFLINE:
            raise StorageError(f"Partition {at} is offline")
        future, current = self._logs.futures.logs.get(at), self._logs.get(at)
        if partition is not None and future is not None and future.log_directory is not log_directory:
            self._logs.futures.delete(at)
            future = None
        if all(log is None or log.log_directory is not log_directory for log in (current, future)):
            self._logs.futures.remember(at, log_directory)
        if partition is None or current is None:
            _, error = self._core.hosted.leader_of(at, None)
            known = error is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            raise TidegaugeError(
                ErrorCode.REPLICA_NOT_AVAILABLE if known else error, f"There is no replica of {at} on this broker"
            )
        if current.log_directory is log_directory:
            LOG.info("Current log directory %s is same as requested log dir %s. ", current.log_directory.path, path)
        elif future is None:
            await self._create(at, current.topic_id)
            self._add([at])

    async def _create(self, at: TopicPartition, topic_id: str) -> None:
        creation = self._logs.begin_creation([NewLog(at, topic_id, is_new=False, is_future=True)])
        await self._in_log_pool(creation.build)
        self._logs.adopt(creation)
        if creation.refused:
            raise creation.refused[at]

    # Decisions of the controller

    def resume(self, topic_partitions: Iterable[TopicPartition]) -> None:
        """Continue the copies of replicas that the controller has made leader or follower (rule 4)."""
        copied = [at for at in topic_partitions if at in self._logs.futures.logs and self._is_hosted(at)]
        for at in copied:
            self._check_copy(at)
        self._add(at for at in copied if at in self._logs.futures.logs)

    def _why_of_no_use(self, at: TopicPartition) -> str:
        """Return why a future log can't become the log (rule 4), or empty."""
        current, future = self._logs.logs[at], self._logs.futures.logs[at]
        ids = {current.topic_id, future.topic_id}
        if len(ids) > 1 and "" not in ids:  # as in LogManager.getOrCreateLog
            return "it belongs to an earlier topic of that name"
        is_there = future.log_directory is current.log_directory
        return "the replica was created again in the same log directory" if is_there else ""

    def _check_copy(self, at: TopicPartition) -> None:
        """Delete a copy that is of no use, or begin it again (rule 4); a log directory that refuses is offline."""
        futures, current = self._logs.futures, self._logs.logs[at]
        why = self._why_of_no_use(at)
        try:
            if why:
                LOG.warning("Deleting %s: %s", futures.logs[at].directory, why)
                futures.delete(at)
            elif futures.is_out_of_date(current):
                LOG.info("%s begins again: the log may have been compacted since", futures.logs[at].directory)
                futures.start_at(at, current.log_start_offset)
        except StorageError as problem:
            LOG.error("The copy of %s could not be changed: %s", at, problem.message)  # noqa: TRY400 - it says all
            self._replicas.report_failures()

    def stop(self, topic_partitions: Iterable[TopicPartition]) -> None:
        """Copy these replicas no longer."""
        replicas = self._logs.futures.replicas
        for at in topic_partitions:
            if at in replicas:
                replicas[at].stop()

    def drop_offline(self) -> None:
        """Give up the moves to log directories that failed, and stop those whose replica is offline (rule 6)."""
        given_up = self._logs.futures.drop_offline()
        if given_up:
            names = ",".join(map(str, sorted(given_up)))
            LOG.warning("Stopped moving logs for partitions %s because they are in a failed log directory", names)
        self.stop(at for at in self.copied if not self._is_hosted(at))

    def _is_hosted(self, at: TopicPartition) -> bool:
        partition = self._core.partition(at)
        return partition is not None and partition.role is not Role.OFFLINE and self._logs.get(at) is not None

    # Copying

    @property
    def copied(self) -> list[TopicPartition]:
        """The replicas whose copies make progress now."""
        return [at for at, replica in self._logs.futures.replicas.items() if replica.is_copied]

    def _add(self, topic_partitions: Iterable[TopicPartition]) -> None:
        for at in topic_partitions:
            self._logs.futures.replicas[at].begin()
        self._start()

    def _start(self) -> None:
        if self.copied and (self._task is None or self._task.done()):
            self._task = asyncio.get_running_loop().create_task(self._run(), name="log-dir-moves")

    async def _run(self) -> None:
        """Copy until nothing moves."""
        while copied := self.copied:
            at = min(copied)
            is_waiting = not self._advance(at)
            await self._sync_copy(at)
            await asyncio.sleep(_THROTTLED_PAUSE_SECONDS if is_waiting else 0)

    def _advance(self, at: TopicPartition) -> bool:
        """Make one step of a replica's move; return False if the quota forbids it now."""
        try:
            return self._step(at)
        except StorageError as problem:
            LOG.error("The move of %s to another log directory failed: %s", at, problem.message)  # noqa: TRY400 - it says all
            self._replicas.report_failures()
        except TidegaugeError as problem:
            LOG.error("The move of %s to another log directory stops: %s", at, problem.message)  # noqa: TRY400 - it says all
        except Exception:
            LOG.exception("The move of %s to another log directory stops, which is a defect", at)
        self.stop([at])
        return True

    def _step(self, at: TopicPartition) -> bool:
        logs, futures, now_ms = self._logs, self._logs.futures, self._now_ms()
        current, future = logs.get(at), futures.logs.get(at)
        if current is None or future is None or not self._is_hosted(at):
            self.stop([at])
            return True
        truncated_to = futures.replicas[at].truncated_to
        is_throttled = self._quota.is_exceeded(now_ms)
        step = next_step(span_of(current), span_of(future), truncated_to, is_throttled=is_throttled)
        if step is WAIT:
            return False
        self._carry_out(at, step, now_ms)
        return True

    def _carry_out(self, at: TopicPartition, step: Step, now_ms: int) -> None:
        logs, futures = self._logs, self._logs.futures
        match step:
            case TruncateTo(offset):
                futures.follow_truncation(at, offset)
            case StartAt(offset):
                futures.start_at(at, offset)
            case RaiseStart(offset):
                futures.logs[at].advance_log_start(offset)
            case CopyFrom():
                size_bytes = futures.copy(logs.logs[at], self._limits.step_bytes)
                self._quota.record(size_bytes, now_ms)
                if not size_bytes or logs.logs[at].log_end_offset == futures.logs[at].log_end_offset:
                    self._replace(at)
            case _:
                assert step is REPLACE
                self._replace(at)

    def _replace(self, at: TopicPartition) -> None:
        """Rule 4 of ``next_step``; the replica has moved even if its former log directory fails now."""
        current, future = self._logs.logs[at], self._logs.futures.logs[at]
        replica = self._logs.futures.replicas[at]
        is_behind = future.recovery_point < min(current.recovery_point, future.log_end_offset)
        if replica.state is not FutureState.FLUSHED or is_behind:
            replica.enter(FutureState.FLUSHING)  # rule 5
            return
        partition = self._core.partition(at)
        assert partition is not None
        self._logs.replace_with_future(at, partition.high_watermark)

    async def _sync_copy(self, at: TopicPartition) -> None:
        """Sync a copy that is otherwise whole (rule 5); a log directory that refuses is offline."""
        replica = self._logs.futures.replicas.get(at)
        if replica is None or replica.state is not FutureState.FLUSHING:
            return
        await self._in_log_pool(self._logs.futures.logs[at].flush)
        self._replicas.report_failures()
        replica.flushed()

    async def close(self) -> None:
        """Copy nothing more; the future logs stay, and their copies continue after the next start."""
        self.stop(self.copied)
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
