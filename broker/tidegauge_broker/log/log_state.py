"""The state of a PartitionLog at its start: its settings, and the result of loading."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tidegauge.settings import Values
from tidegauge_broker.log.segment import LogSegment
from tidegauge_broker.replica.messages import EpochEntry
from tidegauge_broker.replica.producer_state import ProducerState


@dataclass(frozen=True, slots=True)
class LogSettings:
    """A topic's settings as far as its logs need them."""

    segment_bytes: int
    segment_ms: int
    segment_jitter_ms: int
    segment_index_bytes: int
    index_interval_bytes: int
    flush_messages: int
    flush_ms: int
    file_delete_delay_ms: int
    retention_bytes: int
    retention_ms: int
    cleanup_policy: tuple[str, ...]
    delete_retention_ms: int
    min_compaction_lag_ms: int
    max_compaction_lag_ms: int
    min_cleanable_dirty_ratio: float

    @classmethod
    def of(cls, values: Values) -> LogSettings:
        """Pick them from a topic's values."""
        return cls(
            segment_bytes=values.integer("segment.bytes"),
            segment_ms=values.integer("segment.ms"),
            segment_jitter_ms=values.integer("segment.jitter.ms"),
            segment_index_bytes=values.integer("segment.index.bytes"),
            index_interval_bytes=values.integer("index.interval.bytes"),
            flush_messages=values.integer("flush.messages"),
            flush_ms=values.integer("flush.ms"),
            file_delete_delay_ms=values.integer("file.delete.delay.ms"),
            retention_bytes=values.integer("retention.bytes"),
            retention_ms=values.integer("retention.ms"),
            cleanup_policy=tuple(values["cleanup.policy"]),
            delete_retention_ms=values.integer("delete.retention.ms"),
            min_compaction_lag_ms=values.integer("min.compaction.lag.ms"),
            max_compaction_lag_ms=values.integer("max.compaction.lag.ms"),
            min_cleanable_dirty_ratio=values["min.cleanable.dirty.ratio"],
        )

    @property
    def max_segment_ms(self) -> int:
        """The age at which a segment is rolled: a compacted log's no later than its records must be compacted."""
        if "compact" in self.cleanup_policy and self.max_compaction_lag_ms > 0:
            return min(self.max_compaction_lag_ms, self.segment_ms)
        return self.segment_ms

    @property
    def deletes(self) -> bool:
        """Whether old segments go by size and time."""
        return "delete" in self.cleanup_policy

    @property
    def compacts(self) -> bool:
        """Whether the log is compacted."""
        return "compact" in self.cleanup_policy


@dataclass(slots=True)
class LogState:
    """The result of loading. Offsets are absolute; ``segments`` has at least one, the active one last.

    ``epochs_owed``: leader-epoch-checkpoint is to be written with the next flush. ``former_epoch``: the newest epoch
    found after an unclean shutdown, whether or not the log still reaches to it; else -1. ``snapshots_owed``: snapshots
    of the producer state that were written and not synced.
    """

    segments: list[LogSegment]
    log_start_offset: int
    log_end_offset: int
    recovery_point: int
    producer_state: ProducerState
    epochs: list[EpochEntry]
    topic_id: str = ""
    epochs_owed: bool = False
    former_epoch: int = -1
    snapshots_owed: Sequence[Path] = ()
