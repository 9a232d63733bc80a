"""To which offsets ``reset-offsets`` sets a group: the choices of kafka-consumer-groups.sh --reset-offsets. Pure.

Source: ConsumerGroupCommand.ConsumerGroupService.prepareOffsetsToReset, checkOffsetsRange; KIP-122.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta

from tidegauge.partition import TopicPartition

Offsets = Mapping[TopicPartition, int]
_DURATION = re.compile(
    r"P(?:(?P<days>\d+)D)?(?:T(?=\d)(?:(?P<hours>\d+)H)?(?:(?P<minutes>\d+)M)?(?:(?P<seconds>\d+(?:\.\d+)?)S)?)?"
)


def within_range(wanted: Offsets, earliest: Offsets, latest: Offsets) -> tuple[dict[TopicPartition, int], list[str]]:
    """Return offsets moved into their logs' ranges, and a sentence for each move."""
    found: dict[TopicPartition, int] = {}
    warnings = []
    for at, offset in sorted(wanted.items()):
        first, last = earliest[at], latest[at]
        if offset > last:
            warnings.append(
                f"New offset ({offset}) is higher than latest offset for topic partition {at}. "
                f"Value will be set to {last}"
            )
        elif offset < first:
            warnings.append(
                f"New offset ({offset}) is lower than earliest offset for topic partition {at}. "
                f"Value will be set to {first}"
            )
        found[at] = max(first, min(offset, last))
    return found, warnings


def shifted(partitions: Iterable[TopicPartition], committed: Offsets, by: int) -> dict[TopicPartition, int]:
    """Return the committed offsets moved by a number of records.

    Raises:
        ValueError: a partition has no committed offset.
    """
    found = {}
    for at in partitions:
        if at not in committed:
            raise ValueError(f"Cannot shift offset for partition {at} since there is no current committed offset")
        found[at] = committed[at] + by
    return found


def read_file(text: str) -> dict[TopicPartition, int]:
    """Read a CSV file of ``topic,partition,offset`` lines, as ``--export`` writes them.

    Raises:
        ValueError: a line has another form.
    """
    found = {}
    for number, row in enumerate(csv.reader(io.StringIO(text)), 1):
        if not row:
            continue
        try:
            topic, partition, offset = (cell.strip() for cell in row)
            found[TopicPartition(topic, int(partition))] = int(offset)
        except ValueError:
            raise ValueError(f"line {number} is not topic,partition,offset: {','.join(row)!r}") from None
    return found


def exported(offsets: Offsets) -> list[str]:
    """Return the lines of ``--export``."""
    return [f"{at.topic},{at.partition},{offset}" for at, offset in sorted(offsets.items())]


def parse_topic(text: str) -> tuple[str, tuple[int, ...]]:
    """Read ``topic`` or ``topic:0,1``; no partitions mean all.

    Raises:
        ValueError: a partition is not a number.
    """
    topic, separator, partitions = text.partition(":")
    if not separator:
        return topic, ()
    try:
        return topic, tuple(int(one) for one in partitions.split(","))
    except ValueError:
        raise ValueError(f"Invalid topic arg '{text}', expected TOPIC or TOPIC:P1,P2") from None


def parse_datetime(text: str) -> int:
    """Read ``YYYY-MM-DDTHH:mm:SS.sss`` with an optional zone, UTC without one, as ms since 1970 (Utils.getDateTime).

    Raises:
        ValueError: the text has another form.
    """
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return round(moment.timestamp() * 1000)


def parse_duration(text: str) -> int:
    """Read an ISO 8601 duration such as ``P1DT2H30M`` as ms (java.time.Duration.parse).

    Raises:
        ValueError: the text has another form.
    """
    found = _DURATION.fullmatch(text)
    if found is None or text == "P":
        raise ValueError(f"{text!r} is not a duration; write PnDTnHnMnS, for example PT2H30M")
    parts = {name: float(value) for name, value in found.groupdict().items() if value is not None}
    return round(timedelta(**parts).total_seconds() * 1000)


def table(group_id: str, offsets: Offsets) -> list[str]:
    """Return the lines that say what becomes of each partition."""
    header = ("GROUP", "TOPIC", "PARTITION", "NEW-OFFSET")
    rows: Sequence[Collection[str]] = [
        header,
        *((group_id, at.topic, str(at.partition), str(offset)) for at, offset in sorted(offsets.items())),
    ]
    return [f"{one:<30} {topic:<30} {partition:<10} {offset:<15}".rstrip() for one, topic, partition, offset in rows]
