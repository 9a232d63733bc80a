"""A broker's directory, read without the broker: records, and the high watermark in the checkpoint file.

The files may be written meanwhile: a batch at the end that is not whole yet is left out.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from tidegauge.errors import TidegaugeError
from tidegauge.partition import TopicPartition
from tidegauge_broker.log.checkpoints import REPLICATION_OFFSET_CHECKPOINT, CorruptCheckpoint, OffsetCheckpoint
from tidegauge_client.records import Record, decode_batches
from tidegauge_lab.local.layout import broker_data
from tidegauge_lab.scenario.readers import LoggedRecord


def logged_records(cluster: Path, broker_id: int, at: TopicPartition) -> tuple[LoggedRecord, ...]:
    """Return the records of a replica by offset; none without a directory."""
    return tuple(
        LoggedRecord("" if one.value is None else one.value.decode("utf-8", errors="replace"), one.leader_epoch)
        for one in stored_records(cluster, broker_id, at)
    )


def stored_records(cluster: Path, broker_id: int, at: TopicPartition) -> Iterator[Record]:
    """Read the records of a replica by offset, up to the first batch that is not whole."""
    for path in sorted((broker_data(cluster, broker_id) / str(at)).glob("*.log")):
        try:
            yield from decode_batches(path.read_bytes())
        except (TidegaugeError, OSError):
            return


def checkpointed_hw(cluster: Path, broker_id: int, at: TopicPartition) -> int | None:
    """Return the high watermark of a replica in its broker's checkpoint file."""
    try:
        return OffsetCheckpoint(broker_data(cluster, broker_id) / REPLICATION_OFFSET_CHECKPOINT).read().get(at)
    except (CorruptCheckpoint, OSError):
        return None
