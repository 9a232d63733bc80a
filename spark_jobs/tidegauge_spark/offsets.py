"""Offsets as Spark's Kafka source writes them, and the number of records in a batch.

Contract: pure. JSON in Kafka's shape, ``{"topic": {"0": 23, "1": -2}}``, becomes ``{TopicPartition: offset}`` and back.
In a user's document -2 means earliest and -1 latest; in a stored one every offset is a real one and an end is
exclusive. Keys are sorted, so that equal offsets are equal text: Spark compares the text to see whether anything is
new. Two keys are additions: ``"__epochs"`` holds, in the same shape, the leader epoch of the record before each offset,
and ``"__topic_ids"`` the id of each topic.

Source: ``org.apache.spark.sql.kafka010.JsonUtils``, ``KafkaSourceOffset`` and ``KafkaMicroBatchStream.rateLimit``.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from typing import Any

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.partition import TopicPartition, topic_name_problem

EARLIEST = -2
LATEST = -1
EPOCHS = "__epochs"
TOPIC_IDS = "__topic_ids"

Offsets = Mapping[TopicPartition, int]
OffsetsJson = dict[str, dict[str, int]]
StoredOffsets = Mapping[str, Mapping[str, Any]]
"""What a query stores: ``OffsetsJson``, and the keys ``__epochs``, with such a document in it, and ``__topic_ids``."""


def _invalid(option: str, text: object, why: str) -> TidegaugeError:
    example = (
        '{"topicA":[0,1],"topicB":[0,1]}' if option == "assign" else '{"topicA":{"0":23,"1":-1},"topicB":{"0":-2}}'
    )
    if option.endswith("ByTimestamp"):
        example = '{"topicA":{"0":123456789,"1":123456789},"topicB":{"0":123456789}}'
    return TidegaugeError(ErrorCode.INVALID_REQUEST, f"{option}: Expected e.g. {example}, got {text}: {why}")


def _topic_map(option: str, text: str) -> dict[str, object]:
    try:
        document = json.loads(text)
    except ValueError as error:
        raise _invalid(option, text, f"not JSON ({error})") from None
    if not isinstance(document, dict):
        raise _invalid(option, text, "not an object of topics")
    for topic in document:
        problem = topic_name_problem(topic)
        if problem:
            raise _invalid(option, text, problem)
    return document


def parse_offsets(option: str, text: str, *, lowest: int = EARLIEST) -> dict[TopicPartition, int]:
    """Read partition offsets (or timestamps, with ``lowest=0``) from an option's value.

    Raises:
        TidegaugeError: INVALID_REQUEST, not of that shape, or a number below ``lowest``.
    """
    offsets: dict[TopicPartition, int] = {}
    for topic, partitions in _topic_map(option, text).items():
        if not isinstance(partitions, dict):
            raise _invalid(option, text, f"topic '{topic}' has no object of partitions")
        for index, offset in partitions.items():
            if not index.isascii() or not index.isdigit():
                raise _invalid(option, text, f"'{index}' is not a partition of '{topic}'")
            if isinstance(offset, bool) or not isinstance(offset, int) or offset < lowest:
                raise _invalid(option, text, f"{topic}-{index} has {json.dumps(offset)}, expected {lowest} or more")
            offsets[TopicPartition(topic, int(index))] = offset
    return offsets


def parse_assignment(text: str) -> tuple[TopicPartition, ...]:
    """Read option ``assign``: ``{"orders": [0, 1]}``.

    Raises:
        TidegaugeError: INVALID_REQUEST, not of that shape or empty.
    """
    assigned: set[TopicPartition] = set()
    for topic, partitions in _topic_map("assign", text).items():
        whole = isinstance(partitions, list) and all(type(index) is int and index >= 0 for index in partitions)
        if not isinstance(partitions, list) or not whole:
            raise _invalid("assign", text, f"topic '{topic}' has no list of partitions")
        assigned.update(TopicPartition(topic, index) for index in partitions)
    if not assigned:
        raise _invalid("assign", text, "it names no partition")
    return tuple(sorted(assigned))


def to_json(offsets: Offsets) -> OffsetsJson:
    """Return offsets in Kafka's shape, sorted by topic and partition number."""
    document: OffsetsJson = {}
    for topic_partition in sorted(offsets):
        document.setdefault(topic_partition.topic, {})[str(topic_partition.partition)] = offsets[topic_partition]
    return document


def to_stored(offsets: Offsets, epochs: Offsets, topic_ids: Mapping[str, str]) -> dict[str, Any]:
    """Return what a query stores; an added key is left out if nothing is known, or if a topic has its name."""
    document: dict[str, Any] = dict(to_json(offsets))
    if epochs and EPOCHS not in document:
        document[EPOCHS] = to_json(epochs)
    if topic_ids and TOPIC_IDS not in document:
        document[TOPIC_IDS] = dict(sorted(topic_ids.items()))
    return document


def from_json(document: StoredOffsets) -> dict[TopicPartition, int]:
    """Read the offsets from a document of ``to_json`` or ``to_stored``."""
    return {
        TopicPartition(topic, int(index)): int(offset)
        for topic, partitions in offsets_alone(document).items()
        for index, offset in partitions.items()
    }


def epochs_from_json(document: StoredOffsets) -> dict[TopicPartition, int]:
    """Return the leader epoch of the record before each offset, where it was stored."""
    return from_json(document[EPOCHS]) if _is_ours(document, EPOCHS) else {}


def topic_ids_from_json(document: StoredOffsets) -> dict[str, str]:
    """Return the id of each topic, where it was stored."""
    return dict(document[TOPIC_IDS]) if _is_ours(document, TOPIC_IDS) else {}


def offsets_alone(document: StoredOffsets) -> OffsetsJson:
    """Return the offsets without the added keys, in Kafka's shape."""
    ours = [key for key in (EPOCHS, TOPIC_IDS) if _is_ours(document, key)]
    return {topic: dict(partitions) for topic, partitions in document.items() if topic not in ours}


def _is_ours(document: StoredOffsets, key: str) -> bool:
    """Return whether a key is an added one: a topic of that name holds offsets, an added key documents or texts."""
    return any(isinstance(value, (Mapping, str)) for value in document.get(key, {}).values())


def require_all(option: str, given: Iterable[TopicPartition], found: Iterable[TopicPartition]) -> None:
    """Check Spark's rule that explicit offsets name exactly the partitions that are read.

    Raises:
        TidegaugeError: INVALID_REQUEST, one is missing or is not read by this query.
    """
    missing = sorted(set(found) - set(given))
    unknown = sorted(set(given) - set(found))
    if missing:
        raise TidegaugeError(
            ErrorCode.INVALID_REQUEST,
            f"If {option} contains specific offsets, you must specify all TopicPartitions. Missing: "
            f"{', '.join(map(str, missing))}. Use -1 for latest, -2 for earliest",
        )
    if unknown:
        raise TidegaugeError(
            ErrorCode.INVALID_REQUEST,
            f"{option} names partitions that this query does not read: {', '.join(map(str, unknown))}",
        )


def rate_limit(limit: int, start: Offsets, until: Offsets) -> dict[TopicPartition, int]:
    """Return the end of a batch of about ``limit`` records, each partition in proportion to its backlog.

    A backlog whose share is below one record still gives one, so that no small partition starves behind a large one; so
    a batch may hold up to one record per partition more than ``limit``. A partition never ends past ``until``, and one
    that has nothing new (or whose offsets went backwards) ends at ``until``: the planner judges that.

    Args:
        limit: records wanted in the batch.
        start: where each partition of ``until`` begins.
        until: the current ends.
    """
    sizes = {partition: end - start[partition] for partition, end in until.items() if end > start[partition]}
    total = sum(sizes.values())
    ends = dict(until)
    for partition, size in sizes.items():
        share = limit * (size / total)
        records = math.ceil(share) if share < 1 else math.floor(share)
        ends[partition] = min(until[partition], start[partition] + records)
    return ends


class TriggerDelay:
    """minOffsetsPerTrigger and maxTriggerDelay: a batch waits for a number of records, up to a maximum time.

    The first batch does not wait, as in Spark's source.
    """

    def __init__(self, min_offsets: int, max_delay_ms: int) -> None:
        self._min_offsets = min_offsets
        self._max_delay_ms = max_delay_ms
        self._last_batch_ms: float | None = None

    def waits(self, start: Offsets, latest: Offsets, now_ms: float) -> bool:
        """Return whether the next batch has to wait; if not, it begins now."""
        new = sum(max(0, end - start.get(one, 0)) for one, end in latest.items())
        is_late = self._last_batch_ms is None or now_ms - self._last_batch_ms >= self._max_delay_ms
        if new < self._min_offsets and not is_late:
            return True
        self._last_batch_ms = now_ms
        return False
