"""Reads the committed records of a topic at the end, as a final poll of a history of transactions.

A partition is read to the high watermark that it has at the begin. Where readers of committed records stand still below
it, the reading ends there after a while without progress: what lies beyond is not seen.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from tidegauge.partition import TopicPartition
from tidegauge_client.admin import EARLIEST, LATEST, Admin
from tidegauge_client.consumer import Consumer
from tidegauge_client.operation_history import value_text
from tidegauge_lab.accountant.transactions.model import Outcome, Place, Poll, Seen

_POLL_MS = 500
_NO_PROGRESS_SECONDS = 5.0


async def final_poll(bootstrap: Sequence[str], topic: str, timeout_ms: int) -> Poll:
    """Return a final poll of a topic with the isolation level read_committed.

    Args:
        bootstrap: servers of the cluster.
        topic: the topic.
        timeout_ms: how long a leader is waited for.

    Raises:
        TidegaugeError: UNKNOWN_TOPIC_OR_PARTITION, no broker responds, or a partition has no leader in time.
    """
    begun_us = _now_us()
    async with Admin(bootstrap, request_timeout_ms=timeout_ms) as admin:
        (info,) = await admin.describe_topics([topic])
        partitions = [part.topic_partition for part in info.partitions.values()]
        begins = await admin.list_offsets(dict.fromkeys(partitions, EARLIEST))
        ends = await admin.list_offsets(dict.fromkeys(partitions, LATEST))
    wanted = {at: found.offset for at, found in ends.items()}
    records, reached = await _read(bootstrap, wanted, timeout_ms)
    return Poll(
        "verify",
        0,
        begun_us,
        Outcome.OK,
        _now_us(),
        records=records,
        begins={Place(*at): found.offset for at, found in begins.items()},
        ends={Place(*at): offset for at, offset in reached.items()},
    )


async def _read(
    bootstrap: Sequence[str], ends: dict[TopicPartition, int], timeout_ms: int
) -> tuple[list[Seen], dict[TopicPartition, int]]:
    """Return the committed records, and up to where each partition was read."""
    records: list[Seen] = []
    async with Consumer(bootstrap, auto_offset_reset="earliest", isolation_level="read_committed") as consumer:
        consumer.assign(ends)
        last_progress, before = time.monotonic(), -1
        while True:
            reached = {at: await consumer.position(at, timeout_ms=timeout_ms) for at in ends}
            if all(reached[at] >= end for at, end in ends.items()):
                return records, reached
            if sum(reached.values()) != before:
                last_progress, before = time.monotonic(), sum(reached.values())
            elif time.monotonic() - last_progress > _NO_PROGRESS_SECONDS:
                return records, reached
            for record in await consumer.poll(_POLL_MS):
                place = Place(record.topic, record.partition)
                records.append(Seen(place, record.offset, value_text(record.value)))


def _now_us() -> int:
    return time.time_ns() // 1000
