"""The periodic tasks of a broker: checkpoints, flushes, retention, compaction.

Source: the tasks that Kafka's LogManager and ReplicaManager schedule at their startup.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from tidegauge.settings import Values
from tidegauge_broker.log.manager import LogManager
from tidegauge_broker.server.periodic import Periodic
from tidegauge_broker.server.replication.log_cleaner import LogCleaner
from tidegauge_broker.server.replication.replica_manager import ReplicaManager

_LOOK_MS = 1_000
"""Interval of looks for files that can be flushed or removed by now; Kafka schedules each of them by itself."""
_LONGEST_INTERVAL_MS = 10 * 365 * 86_400_000


def begin_periodic_tasks(
    settings: Values,
    replicas: ReplicaManager,
    logs: LogManager,
    in_pool: Callable[[Callable[[], None]], Awaitable[None]],
) -> list[Periodic]:
    """Begin all of them; close each when the broker stops.

    Args:
        settings: the broker's, in force.
        replicas: of this broker.
        logs: theirs.
        in_pool: runs a blocking call in the pool for disk work.
    """
    first_ms = settings.integer("log.initial.task.delay.ms")

    def of(name: str, setting: str, call: Callable[[], Awaitable[None]], first_ms: int | None = first_ms) -> Periodic:
        return Periodic(name, min(settings.integer(setting), _LONGEST_INTERVAL_MS), call, first_ms)

    def of_logs(name: str, setting: str, call: Callable[[], None]) -> Periodic:
        return of(name, setting, lambda: in_pool(call))

    tasks = [
        of(
            "high watermarks",
            "replica.high.watermark.checkpoint.interval.ms",
            replicas.write_high_watermarks,
            first_ms=None,
        ),
        of_logs("recovery points", "log.flush.offset.checkpoint.interval.ms", logs.write_recovery_points),
        of_logs("log start offsets", "log.flush.start.offset.checkpoint.interval.ms", logs.write_log_start_offsets),
        of_logs("flush by age", "log.flush.scheduler.interval.ms", logs.flush_due),
        of("retention", "log.retention.check.interval.ms", replicas.delete_old_segments),
        Periodic("flush", _LOOK_MS, lambda: in_pool(logs.flush_dirty)),
        Periodic("deleted files", _LOOK_MS, lambda: in_pool(logs.remove_deleted)),
    ]
    if settings.flag("log.cleaner.enable"):
        cleaner = LogCleaner(replicas, in_pool)
        tasks.append(Periodic("cleaner", lambda: settings.integer("log.cleaner.backoff.ms"), cleaner.run))
    return tasks
