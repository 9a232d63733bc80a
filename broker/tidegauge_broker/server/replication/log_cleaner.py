"""Runs the cleaner: looks every log.cleaner.backoff.ms for logs to compact, until there are none.

Blocking work is done in the log pool, changes of a log on the event loop; see ``tidegauge_broker.log.cleaner``.
Source: Kafka's LogCleaner.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable

from tidegauge.errors import TidegaugeError
from tidegauge_broker.log.cleaner import Cleaning, CompactionVoid
from tidegauge_broker.log.segment import LogSegment
from tidegauge_broker.server.replication.replica_manager import ReplicaManager

LOG = logging.getLogger("tidegauge.cleaner")
InLogPool = Callable[[Callable[[], None]], Awaitable[None]]


class LogCleaner:
    """Compacts the logs of a broker, one after the other."""

    def __init__(self, replicas: ReplicaManager, in_log_pool: InLogPool) -> None:
        self._replicas = replicas
        self._compaction = replicas.logs.compaction
        self._in_log_pool = in_log_pool

    async def run(self) -> None:
        """Compact the logs that are worth it, the dirtiest first; then delete old segments of compacted logs."""
        while (cleaning := self._compaction.next_to_clean(self._replicas.core.last_stable_offsets())) is not None:
            at = cleaning.log.topic_partition
            try:
                if not await self._clean(cleaning):
                    break
            except CompactionVoid as reason:
                LOG.info("%s", reason)
                break
            except TidegaugeError as problem:
                LOG.error("Compacting %s failed; it is not tried again: %s", at, problem)  # noqa: TRY400 - it says all
                self._compaction.note_uncleanable(at)
            except Exception:  # the others are compacted nevertheless
                LOG.exception("Compacting %s failed; it is not tried again", at)
                self._compaction.note_uncleanable(at)
        self._replicas.delete_old_segments_of_compacted()

    async def _clean(self, cleaning: Cleaning) -> bool:
        """Compact one log; return False if the compaction has become void, or the disk failed."""
        log = cleaning.log
        before_bytes = log.size_bytes
        groups: list[list[LogSegment]] = []
        await self._in_log_pool(lambda: groups.extend(cleaning.map_keys()))
        if not groups:
            if not log.log_directory.offline:
                LOG.error(
                    "Compacting %s failed; it is not tried again: the batch at offset %d has more keys than fit in "
                    "log.cleaner.dedupe.buffer.size; raise that, and restart the broker",
                    log.topic_partition,
                    cleaning.end_offset,
                )
                self._compaction.note_uncleanable(log.topic_partition)
            return False
        for group in groups:
            written: list[LogSegment] = []
            await self._in_log_pool(lambda group=group, written=written: written.append(cleaning.write(group)))  # type: ignore[misc] # bound here
            if not written or not cleaning.replace(group, written[0]):
                return False
        await self._in_log_pool(lambda: self._compaction.note_cleaned(cleaning))
        LOG.info(
            "Cleaned log %s from offset %d to %d: %d bytes before, %d after",
            log.topic_partition,
            cleaning.part.first_dirty_offset,
            cleaning.end_offset,
            before_bytes,
            log.size_bytes,
        )
        return not log.log_directory.offline
