"""The history of producers: records sent and responses received, for the accountant.

One JSON object a line; a file may hold several producers, written one after the other or at the same time. A record has
one ``invoke`` and at most one outcome, both found by ``producer`` and ``number``. A ``begin`` line, before a producer's
first record, says of which topic of that name its records are from there on; another follows when the producer learns
that the topic was deleted and created again:

| field | in | meaning |
|---|---|---|
| ``type`` | all | ``begin``; ``invoke``: handed over; ``ok``: acknowledged; ``fail``: no effect; ``info``: unknown |
| ``producer`` | all | one run of one producer; unique over runs |
| ``number`` | but begin | 0, 1, 2, ... in the order in which the producer was given its records |
| ``time_us`` | all | microseconds since 1970: just before the record was handed over, or just after its outcome |
| ``topic`` | begin, invoke | where to |
| ``topic_id``, ``cluster_id`` | begin | the ids that the producer's metadata has (KIP-516, KIP-78) |
| ``partition`` | invoke | where to; null where the producer was to choose |
| ``acks`` | invoke | ``all``, ``1`` or ``0``, as text |
| ``idempotent`` | invoke | whether the producer numbers its batches, so that a retry writes nothing twice |
| ``key``, ``value`` | invoke | as text; null if there is none; left out where the bytes are not UTF-8 |
| ``key_base64``, ``value_base64`` | invoke | instead of those, then |
| ``timestamp_ms`` | invoke | the record's own timestamp; it distinguishes two records with the same bytes |
| ``partition``, ``offset`` | ok | position in the log; the offset is -1 with acks=0: then nothing was acknowledged |
| ``error`` | fail, info | the error's name |

Rules:
    1. An ``invoke`` is in the file before the producer has the record, so every record in the log is in the history
       too, even if the producer is killed at any moment (each line is one write to the end of the file).
    2. A record without an outcome counts as ``info``.
    3. ``fail`` only if no attempt can have had an effect (``TidegaugeError.definite``).
    4. Times of one producer never go back; times of several are comparable as far as the machine's clock is.
    5. A line that is incomplete because its writer died is skipped by readers; the next writer begins on a new line.
    6. A reader that knows the topic's id skips, and counts, records of another topic with this name: one that was
       deleted, or another cluster's. Records without a ``begin`` line (older versions wrote none) are kept, and counted
       as well: their topic cannot be known.

Source: the operations invoke, ok, fail and info of Jepsen's histories.
"""

from __future__ import annotations

import base64
import json
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import field
from pathlib import Path
from typing import Any

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.lazy_dataclasses import dataclass
from tidegauge_client.history_file import AppendedLines
from tidegauge_client.metadata import TopicIdentity
from tidegauge_client.partition_queue import RecordMetadata
from tidegauge_client.sent_record import FAIL, INFO, INVOKE, NO_PARTITION, NO_TIME, OK, SentRecord

BEGIN = "begin"
CHUNK_BYTES = 1 << 20


@dataclass(slots=True)
class History:
    """The entries of some files about one topic.

    Attributes:
        records: in the order of their hand-overs.
        damaged_lines: lines that could not be read.
        of_others: how many records were left out since they were sent to another topic of that name (rule 6).
        without_identity: how many of ``records`` do not say to which topic of that name they were sent.
    """

    records: list[SentRecord] = field(default_factory=list)
    damaged_lines: int = 0
    of_others: Counter[TopicIdentity] = field(default_factory=Counter)
    without_identity: int = 0


def _bytes_fields(name: str, content: bytes | None) -> dict[str, str | None]:
    if content is None:
        return {name: None}
    try:
        return {name: content.decode()}
    except UnicodeDecodeError:
        return {f"{name}_base64": base64.b64encode(content).decode()}


def _read_bytes(line: dict[str, Any], name: str) -> bytes | None:
    if name in line:
        text = line[name]
        return None if text is None else str(text).encode()
    return base64.b64decode(line[f"{name}_base64"])


class HistoryWriter(AppendedLines):
    """Appends what one producer sends, and the outcomes, to a file.

    Args:
        path: the file; it may hold other producers' lines already.
        topic: the topic of the records.
        acks: ``all``, ``1`` or ``0``.
        is_idempotent: whether the producer is idempotent.

    Raises:
        TidegaugeError: the file can't be written.
    """

    def __init__(self, path: Path, topic: str, acks: str, *, is_idempotent: bool) -> None:
        super().__init__(path)
        self._identity = TopicIdentity()
        self._common = {
            "topic": topic,
            "acks": acks,
            "idempotent": is_idempotent,
        }

    def _write(self, kind: str, number: int | None, fields: dict[str, Any]) -> None:
        line: dict[str, Any] = {"type": kind, "producer": self.writer}
        if number is not None:
            line["number"] = number
        self.append({**line, "time_us": self.now_us(), **fields})

    def sends_to(self, identity: TopicIdentity) -> None:
        """Note the topic of the records from now on; write nothing if it is unchanged or unknown."""
        if identity != self._identity and identity.topic_id:
            self._identity = identity
            self._write(BEGIN, None, {"topic": self._common["topic"], **identity._asdict()})

    def invoked(
        self, number: int, key: bytes | None, value: bytes | None, partition: int | None, timestamp_ms: int
    ) -> None:
        """Note that a record is about to be handed over; call it before (rule 1)."""
        self._write(
            INVOKE,
            number,
            {
                **self._common,
                "partition": partition,
                **_bytes_fields("key", key),
                **_bytes_fields("value", value),
                "timestamp_ms": timestamp_ms,
            },
        )

    def acknowledged(self, number: int, where: RecordMetadata) -> None:
        """Note that the record was acknowledged (with acks=0: that it was sent)."""
        self._write(OK, number, {"partition": where.partition, "offset": where.offset})

    def failed(self, number: int, problem: TidegaugeError, *, is_definite: bool) -> None:
        """Note that the record failed, definitely or with unknown outcome (rule 3)."""
        self._write(FAIL if is_definite else INFO, number, {"error": problem.code.name})


def _lines(paths: Iterable[Path]) -> Iterator[dict[str, Any] | None]:
    """Yield the lines of all files; None for one that is damaged."""
    for path in paths:
        try:
            with path.open("rb") as file:
                while some := file.readlines(CHUNK_BYTES):
                    yield from _parsed([raw for raw in some if raw != b"\n"])
        except OSError as problem:
            raise TidegaugeError(
                ErrorCode.INVALID_REQUEST, f"the history {path} can't be read: {problem.strerror}"
            ) from None


def _parsed(lines: list[bytes]) -> Iterator[dict[str, Any] | None]:
    """Parse lines, many at once where all are complete: that is twice as fast."""
    try:
        found = json.loads(b"[" + b",".join(lines) + b"]")
    except ValueError:
        found = []
    if len(found) != len(lines):
        found = [_parsed_alone(line) for line in lines]
    for line in found:
        yield line if isinstance(line, dict) else None


def _parsed_alone(line: bytes) -> object:
    try:
        return json.loads(line)
    except ValueError:
        return None


def read_history(paths: Iterable[Path], topic: str, identity: TopicIdentity | None = None) -> History:
    """Read what these files say of a topic.

    Args:
        paths: the files.
        topic: the topic's name.
        identity: the topic that is meant; None or one without ids: every topic of that name (rule 6).

    Raises:
        TidegaugeError: INVALID_REQUEST, a file can't be read.
    """
    wanted = identity if identity is not None and identity.topic_id else None
    history = History()
    records = history.records
    places: dict[tuple[str, int], int] = {}
    sends_to: dict[str, TopicIdentity] = {}
    for line in _lines(paths):
        try:
            if line is None:
                history.damaged_lines += 1
            elif line["type"] == INVOKE:
                if line["topic"] != topic:
                    continue
                producer = line["producer"]
                known = sends_to.get(producer)
                if wanted is not None and known is not None and known != wanted:
                    history.of_others[known] += 1
                    continue
                records.append(_invocation(line))
                places[producer, line["number"]] = len(records) - 1
                history.without_identity += known is None
            elif line["type"] == BEGIN:
                if line["topic"] == topic:
                    sends_to[line["producer"]] = TopicIdentity(str(line["topic_id"]), str(line["cluster_id"]))
            else:
                # Each record has one outcome, so its place may be forgotten.
                place = places.pop((line["producer"], line["number"]), None)
                if place is not None:
                    records[place] = _responded(records[place], line)
        except (KeyError, TypeError, ValueError):
            history.damaged_lines += 1
    return history


def _invocation(line: dict[str, Any]) -> SentRecord:
    partition = line["partition"]
    return SentRecord(
        line["producer"],
        int(line["number"]),
        _read_bytes(line, "key"),
        _read_bytes(line, "value"),
        int(line["timestamp_ms"]),
        line["acks"],
        bool(line["idempotent"]),
        int(line["time_us"]),
        INFO,
        NO_TIME,
        NO_PARTITION if partition is None else int(partition),
    )


def _responded(record: SentRecord, line: dict[str, Any]) -> SentRecord:
    kind = line["type"]
    if kind == OK:
        # Does the same as _replace, which takes three times as long.
        producer, number, key, value, timestamp_ms, acks, is_idempotent, invoked_us, *_ = record
        return SentRecord(
            producer,
            number,
            key,
            value,
            timestamp_ms,
            acks,
            is_idempotent,
            invoked_us,
            OK,
            int(line["time_us"]),
            int(line["partition"]),
            int(line["offset"]),
        )
    if kind not in {FAIL, INFO}:
        raise ValueError(f"{kind!r} is not a known type of line")
    return record._replace(outcome=kind, completed_us=int(line["time_us"]), error=str(line["error"]))
