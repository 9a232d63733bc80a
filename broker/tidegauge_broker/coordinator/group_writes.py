"""Writes the records of a decision about a group, and puts it in force when they are committed.

Contract: a group has one write in flight at a time. If the records are not committed, nothing has changed. Records that
are in the log, but were not committed in time, count: they usually commit later, and the next load reads them.
Source: CoordinatorRuntime.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tidegauge.errors import ErrorCode
from tidegauge_broker.coordinator.led_partitions import ShardState
from tidegauge_broker.coordinator.outcomes import IN_THE_LOG, client_error
from tidegauge_broker.coordinator.record_codec import Record, batch_of
from tidegauge_broker.coordinator.records import OFFSETS_BASE_SEQUENCE
from tidegauge_broker.coordinator.runtime import GroupRuntime
from tidegauge_broker.coordinator.shard import Shard

Written = Callable[[ErrorCode], None]
"""Called with NONE when a decision's records are committed and its state is in force; else with a client's error."""


def append(
    runtime: GroupRuntime,
    shard: Shard,
    group_id: str,
    records: Sequence[Record],
    install: Callable[[], None],
    written: Written,
) -> None:
    """Append records of a group, whose gate stays closed until their outcome; without any call back at once.

    Args:
        runtime: of the coordinator.
        shard: of the group.
        group_id: its name.
        records: in one batch.
        install: puts the decision in force.
        written: called at the end.
    """
    if not records:
        written(ErrorCode.NONE)
        return

    def outcome(error: ErrorCode, _base_offset: int) -> None:
        if shard.state is not ShardState.ACTIVE:
            written(ErrorCode.NOT_COORDINATOR)
            return
        if error in IN_THE_LOG:
            install()
        else:
            runtime.log(f"[GroupId {group_id}] A change of the group was not written: {error.name}", "warning")
        shard.gates.open(group_id, lambda: written(client_error(error)))

    shard.gates.close(group_id)
    compression = runtime.settings.offsets_topic_compression_codec
    batch = batch_of(records, runtime.wall_ms, OFFSETS_BASE_SEQUENCE, compression)
    runtime.append_record(shard.partition, batch, outcome)
