"""Facts about leader epochs: an offset's in ListOffsets, past ones in Fetch and OffsetForLeaderEpoch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tests.wire_responses.batches import TIME_MS, batch
from tests.wire_responses.probe import Probe, message
from tests.wire_responses.records import LEADER, fetch, fetched, produce

NAME = "probe-epochs"
TIMEOUT_MS = 20_000
TIMES = (-1, -2, -3, -4, -5, TIME_MS, TIME_MS + 10, TIME_MS + 11, TIME_MS + 99)


def epochs(probe: Probe) -> None:
    """All of them, on a topic whose records were written in three epochs of one leader."""
    probe.say("leader epochs")
    replicas = {"partition_index": 0, "broker_ids": [0, 1, 2]}
    wanted = {"name": NAME, "num_partitions": -1, "replication_factor": -1, "assignments": [replicas]}
    segment = [{"name": "segment.bytes", "value": "150"}]
    probe.ask(probe.controller, 7, message("CreateTopics", timeout_ms=30_000, topics=[wanted | {"configs": segment}]))
    topic_id = bytes(probe.topic(NAME).topic_id)
    for epoch, order in enumerate(([0, 1, 2], [0, 2, 1], [0, 1, 2])):
        if epoch:
            _begin_epoch(probe, epoch, order)
        made = batch((b"a", b"b"), timestamp_ms=TIME_MS + 10 * epoch)
        probe.ask(LEADER, 9, produce(made, topic=NAME))
    _listed(probe, "")
    for epoch in (0, 1, 2, 3):
        probe.case(f"epochs: Fetch v12 in epoch {epoch}", LEADER, 12, fetch(topic=NAME, epoch=epoch), fetched)
        probe.case(f"epochs: Fetch v16 in epoch {epoch}", LEADER, 16, fetch(topic=topic_id, epoch=epoch), fetched)
        item = {"partition": 0, "current_leader_epoch": -1, "leader_epoch": epoch}
        ends = message("OffsetForLeaderEpoch", replica_id=-2, topics=[{"topic": NAME, "partitions": [item]}])
        probe.case(f"epochs: OffsetForLeaderEpoch {epoch}", LEADER, 4, ends)
    item = {"partition_index": 0, "offset": 3}
    topics = [{"name": NAME, "partitions": [item]}]
    probe.ask(LEADER, 2, message("DeleteRecords", timeout_ms=TIMEOUT_MS, topics=topics))
    _listed(probe, " after a deletion of records")


def _begin_epoch(probe: Probe, epoch: int, order: Sequence[int]) -> None:
    """Let the same leader begin an epoch: a reassignment to the same replicas in another order is complete at once."""
    partitions = [{"partition_index": 0, "replicas": order}]
    topics = [{"name": NAME, "partitions": partitions}]
    probe.ask(probe.controller, 0, message("AlterPartitionReassignments", timeout_ms=TIMEOUT_MS, topics=topics))

    def has_begun() -> bool:
        item = {"partition": 0, "current_leader_epoch": epoch, "leader_epoch": 0}
        asked = message("OffsetForLeaderEpoch", replica_id=-2, topics=[{"topic": NAME, "partitions": [item]}])
        found = probe.ask(LEADER, 4, asked)
        return all(one.error_code == 0 for topic in found.topics for one in topic.partitions)

    probe.wait_for(has_begun, f"{NAME} is led in epoch {epoch}")


def _listed(probe: Probe, when: str) -> None:
    for version in (1, 9):
        for timestamp in TIMES:
            item = {"partition_index": 0, "timestamp": timestamp}
            asked: Any = message("ListOffsets", replica_id=-1, topics=[{"name": NAME, "partitions": [item]}])
            label = timestamp if timestamp < TIME_MS else f"T+{timestamp - TIME_MS}"
            probe.case(f"epochs: ListOffsets v{version} time {label}{when}", LEADER, version, asked)
