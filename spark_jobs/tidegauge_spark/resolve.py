"""From the offsets in the options (earliest, a time, numbers) to real ones, by asking the cluster.

Contract: handles no network failures; ``OffsetClient`` retries or raises. Latest offsets below known ones are requested
again a few times before they are accepted: then data was lost.

Source: ``KafkaOffsetReaderAdmin.fetchSpecificOffsets``, ``fetchLatestOffsets`` (KAFKA-7703), ``fetchPartitionOffsets``.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Protocol

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.partition import TopicPartition
from tidegauge_spark.offsets import EARLIEST, LATEST, Offsets, require_all
from tidegauge_spark.options import OffsetLimit


class OffsetClient(Protocol):
    """The requests to the cluster that are needed here."""

    def offsets(self, asked: Mapping[TopicPartition, int]) -> dict[TopicPartition, int | None]:
        """Return offsets by time: -2 earliest, -1 latest, else the first at or after that ms, or None."""
        ...


def ask(client: OffsetClient, partitions: Collection[TopicPartition], which: int) -> dict[TopicPartition, int]:
    """Return earliest or latest offsets of all partitions."""
    responses = client.offsets(dict.fromkeys(partitions, which))
    return {one: responses[one] or 0 for one in partitions}


def ask_latest(
    client: OffsetClient,
    partitions: Collection[TopicPartition],
    known: Offsets,
    *,
    retries: int,
    pause: Callable[[], None],
) -> dict[TopicPartition, int]:
    """Return latest offsets (high watermarks), requested again while one is below what is known of its partition."""
    while True:
        latest = ask(client, partitions, LATEST)
        if retries <= 0 or all(offset >= known.get(one, 0) for one, offset in latest.items()):
            return latest
        retries -= 1
        pause()


def resolve(
    client: OffsetClient,
    partitions: Collection[TopicPartition],
    limit: OffsetLimit,
    side: str,
    *,
    latest_if_no_match: bool,
) -> dict[TopicPartition, int]:
    """Return the real offsets of all partitions.

    Args:
        client: asks the cluster.
        partitions: all that the query reads.
        limit: the limit in the options.
        side: ``starting`` or ``ending``, for the option's name in errors.
        latest_if_no_match: whether a time younger than all records means latest instead of an error.

    Raises:
        TidegaugeError: INVALID_REQUEST, explicit offsets do not name all partitions, or no record is that young.
    """
    if limit.everywhere is not None:
        return ask(client, partitions, limit.everywhere)
    if limit.timestamp_ms is not None:
        return _by_time(client, dict.fromkeys(partitions, limit.timestamp_ms), side, latest_if_no_match)
    if limit.timestamps_ms:
        require_all(f"{side}OffsetsByTimestamp", limit.timestamps_ms, partitions)
        return _by_time(client, limit.timestamps_ms, side, latest_if_no_match)
    require_all(f"{side}Offsets", limit.offsets, partitions)
    words = {one: offset for one, offset in limit.offsets.items() if offset in {EARLIEST, LATEST}}
    responses = client.offsets(words)
    return {one: (responses[one] or 0) if one in words else offset for one, offset in limit.offsets.items()}


def _by_time(
    client: OffsetClient, times_ms: Mapping[TopicPartition, int], side: str, latest_if_no_match: bool
) -> dict[TopicPartition, int]:
    responses = client.offsets(times_ms)
    unmatched = sorted(one for one, offset in responses.items() if offset is None)
    if unmatched and not latest_if_no_match:
        raise TidegaugeError(
            ErrorCode.INVALID_REQUEST,
            f"No offset matched from request of topic-partition {unmatched[0]} and timestamp {times_ms[unmatched[0]]} "
            f"({side}); startingOffsetsByTimestampStrategy=latest would begin at the end",
        )
    latest = ask(client, unmatched, LATEST)
    return {one: latest[one] if offset is None else offset for one, offset in responses.items()}
