"""Facts about records: message formats before record batches, codecs, times, sizes, and how each version reads them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tests.wire_responses.batches import CONTROL, TIME_MS, batch
from tests.wire_responses.message_sets import APPEND_TIME, one, read, several, v2, wrapped
from tests.wire_responses.probe import Probe, message
from tests.wire_responses.records import FOLLOWER, LEADER, fetch, produce, produced

NAME = "probe-formats"
SETS = f"{NAME}-sets"
READ_VERSIONS = (0, 2, 4)
ALL_VERSIONS = (0, 1, 2, 3, 4, 9, 10)

OF_TOPICS: Mapping[str, tuple[dict[str, str], Sequence[bytes]]] = {
    "append-time": (
        {"message_timestamp_type": "LogAppendTime"},
        [several(0), several(1), v2()],
    ),
    "append-time-gzip": ({"message_timestamp_type": "LogAppendTime"}, [wrapped(1, 0), wrapped(1, 1), v2(1)]),
    "not-converted": ({"message_downconversion_enable": "false"}, [several(1)]),
    "compacted": ({"cleanup_policy": "compact"}, [several(1), one(b"v", 0, key=b"k"), wrapped(1, 1)]),
    "small": ({"max_message_bytes": "100"}, [one(b"x" * 80, 1), one(b"x", 1) * 3, one(b"x" * 9, 1) * 9, v2()]),
    "zstd": ({"compression_type": "zstd"}, [several(1), v2(1)]),
    "gzip": ({"compression_type": "gzip"}, [several(1), several(0), v2(), v2(2), wrapped(1, 1)]),
    "uncompressed": ({"compression_type": "uncompressed"}, [v2(1), wrapped(1, 0)]),
    "early": ({"message_timestamp_before_max_ms": "1000"}, [several(0), several(1), wrapped(1, 1)]),
    "append-time-given": (
        {"message_timestamp_type": "LogAppendTime"},
        [
            one(b"a", 1, attributes=APPEND_TIME),
            wrapped(1, 1, attributes=APPEND_TIME),
            batch(attributes=APPEND_TIME),
        ],
    ),
}
"""Settings of topics, and the batches produced to them."""


def _wanted(name: str, partitions: int = 1, **configs: str) -> dict[str, Any]:
    replicas = [{"partition_index": at, "broker_ids": [0, 1, 2]} for at in range(partitions)]
    given = [{"name": key.replace("_", "."), "value": value} for key, value in configs.items()]
    return {
        "name": f"{NAME}-{name}",
        "num_partitions": -1,
        "replication_factor": -1,
        "assignments": replicas,
        "configs": given,
    }


def _create(probe: Probe, *wanted: dict[str, Any]) -> None:
    """Create topics that broker 0 leads."""
    probe.ask(probe.controller, 7, message("CreateTopics", timeout_ms=30_000, topics=list(wanted)))
    for one_topic in wanted:
        probe.topic(one_topic["name"])


def _shown(response: Any) -> Any:
    if isinstance(response, str):
        return response
    return [
        (one.error_code, one.base_offset, "TIME" if one.log_append_time_ms > 0 else one.log_append_time_ms)
        for one in produced(response)
    ]


def _records(response: Any) -> Any:
    if isinstance(response, str):
        return response
    [part] = [one for topic in response.responses for one in topic.partitions]
    return part.error_code, part.high_watermark, read(part.records)


def _note_read(
    probe: Probe, label: str, at: int, *, topic: str = SETS, versions: Any = READ_VERSIONS, **more: Any
) -> None:
    for version in versions:
        found = _records(probe.ask(LEADER, version, fetch((at,), topic=topic, **more)))
        probe.note(f"formats: {label} read by v{version}", found)


def _appended() -> Mapping[str, tuple[int, bytes]]:
    """Return record sets that Kafka appends, each with its Produce version."""
    cases = {
        "format 0": (0, several(0)),
        "format 1": (2, several(1)),
        "format 0 in v2": (2, several(0)),
        "format 1 in v0": (0, several(1)),
        "offsets of the producer": (2, one(b"a", 1, offset=7) + one(b"b", 1, offset=7) + one(b"c", 1, offset=3)),
        "a part of a message behind": (2, several(1) + one(b"cut", 1)[:-2]),
        "a part of a message": (2, one(b"cut", 1)[:-2]),
        "nothing": (2, b""),
        "a batch in v2": (2, v2()),
        "no time": (2, one(b"a", 1, timestamp_ms=-1)),
        "append time in the message": (2, one(b"a", 1, attributes=APPEND_TIME)),
        "append time in the batch": (9, batch(attributes=APPEND_TIME)),
        "wrapper offset 0": (2, wrapped(1, 1, offset=0)),
        "wrapper offset far away": (2, wrapped(1, 1, offset=90)),
        "inner offsets absolute": (2, wrapped(1, 1, one(b"a", 1, offset=40) + one(b"b", 1, offset=41), offset=41)),
        "inner offsets all 0": (2, wrapped(1, 1, one(b"a", 1) + one(b"b", 1), offset=0)),
        "wrapper with append time": (2, wrapped(1, 1, attributes=APPEND_TIME, timestamp_ms=TIME_MS + 50)),
        "wrapper without time": (2, wrapped(1, 1, timestamp_ms=-1)),
        "wrapper with a part behind": (2, wrapped(1, 1, several(1) + one(b"cut", 1)[:-2])),
    }
    for number, name in enumerate(("gzip", "snappy", "lz4"), 1):
        for magic in (0, 1):
            cases[f"{name} format {magic}"] = (magic * 2, wrapped(number, magic))
    for number, name in enumerate(("none", "gzip", "snappy", "lz4", "zstd")):
        cases[f"batch {name}"] = (9, v2(number))
    return cases


def _refused() -> Mapping[str, tuple[int, bytes]]:
    damaged = bytearray(several(1))
    damaged[-1] ^= 1
    inner = bytearray(several(1))
    inner[-1] ^= 1
    return {
        "formats mixed": (2, one(b"a", 0) + one(b"b", 1)),
        "a message and a batch": (2, one(b"a", 1) + v2()),
        "a batch and a message": (2, v2() + one(b"a", 1)),
        "two batches in v2": (2, v2() * 2),
        "damaged": (2, bytes(damaged)),
        "size 3": (2, one(b"a", 1)[:8] + b"\0\0\0\3" + bytes(9)),
        "magic 3": (2, one(b"a", 3)),
        "magic 3 in v3": (3, one(b"a", 3)),
        "wrapper offset too small": (2, wrapped(1, 1, offset=2)),
        "inner of another format": (2, wrapped(1, 1, several(0))),
        "wrapper in a wrapper": (2, wrapped(1, 1, wrapped(1, 1))),
        "inner damaged": (2, wrapped(1, 1, bytes(inner))),
        "wrapper without value": (2, one(None, 1, attributes=1)),
        "wrapper with nothing": (2, wrapped(1, 1, b"")),
        "zstd": (2, wrapped(4, 1)),
        "two wrappers": (2, wrapped(1, 1) * 2),
        "a wrapper and a message": (2, wrapped(1, 1) + one(b"a", 1)),
        "no time, append time in the message": (2, one(b"a", 1, timestamp_ms=-1, attributes=APPEND_TIME)),
        "control batch in v2": (2, batch(attributes=CONTROL)),
    }


def _unreadable() -> Mapping[str, tuple[int, bytes]]:
    """Return what makes Kafka fail with an unexpected error."""
    return {
        "unknown codec": (2, one(b"a", 1, attributes=5)),
        "no gzip": (2, one(b"not compressed", 1, attributes=1)),
        "no snappy": (2, one(b"not compressed", 1, attributes=2)),
        "no lz4": (2, one(b"not compressed", 1, attributes=3)),
    }


def formats(probe: Probe) -> None:
    """Produce v0 to v2, and what Fetch v0 to v4 give of it."""
    probe.say("message formats before record batches")
    appended = _appended()
    _create(
        probe,
        _wanted("sets", len(appended) + 1),
        _wanted("ranges", 6),
        _wanted("markers", 3),
        *(_wanted(kind, **configs) for kind, (configs, _) in OF_TOPICS.items()),
    )
    for at, (label, (version, records)) in enumerate(appended.items()):
        probe.note(f"formats: {label}", _shown(probe.ask(LEADER, version, produce(records, topic=SETS, partition=at))))
        _note_read(probe, label, at)
    last = len(appended)
    for label, (version, records) in {**_refused(), **_unreadable()}.items():
        probe.note(
            f"formats: refused {label}",
            _shown(probe.ask(LEADER, version, produce(records, topic=SETS, partition=last))),
        )
    for label, acks, at in (("not leader", -1, FOLLOWER), ("acks 1", 1, LEADER), ("acks 2", 2, LEADER)):
        found = _shown(probe.ask(at, 1, produce(several(0), topic=SETS, partition=last, acks=acks)))
        probe.note(f"formats: produce {label}", found)
    _ranges(probe)
    _topics(probe)
    _markers(probe)


def _ranges(probe: Probe) -> None:
    """Where reads begin and end, and several batches in one."""
    name = f"{NAME}-ranges"

    def put(at: int, *sets: bytes) -> None:
        for records in sets:
            probe.ask(LEADER, 9, produce(records, topic=name, partition=at))

    put(0, v2(), v2(1), v2(1, headers=False))
    put(1, batch((b"x" * 100_000,)), *(batch((b"y" * 60_000, b"z")) for _ in range(4)))
    put(2, batch((b"x",)), v2(4), batch((b"y",)))
    put(3, v2(4), batch((b"x",)))
    put(4, batch((b"a",) * 50))
    for offset in (0, 2, 5, 9, 12):
        _note_read(probe, f"three batches from {offset}", 0, topic=name, offset=offset)
    for offset in (13, -1):
        _note_read(probe, f"three batches from {offset}", 0, topic=name, offset=offset, versions=(0, 2))
    _note_read(probe, "large batches", 1, topic=name)
    _note_read(probe, "zstd in the middle", 2, topic=name, versions=(0, 2))
    _note_read(probe, "zstd", 3, topic=name, versions=(0, 3))
    _note_read(probe, "fifty records", 4, topic=name)
    _note_read(probe, "of no records", 5, topic=name, versions=(0, 3))
    _note_read(probe, "beyond the partition's limit", 4, topic=name, partition_max_bytes=20)
    _note_read(probe, "beyond the limit of the request", 4, topic=name, max_bytes=20)
    for version in (0, 3):
        found = _records(probe.ask(FOLLOWER, version, fetch((4,), topic=name)))
        probe.note(f"formats: at a follower read by v{version}", found)


def _topics(probe: Probe) -> None:
    """Play the effects of topics' settings."""
    for kind, (_, sets) in OF_TOPICS.items():
        name = f"{NAME}-{kind}"
        for index, records in enumerate(sets):
            version = 9 if records[16] == 2 else 2
            probe.note(f"formats: {kind} set {index}", _shown(probe.ask(LEADER, version, produce(records, topic=name))))
        versions = (4, 10) if kind == "append-time-gzip" else ALL_VERSIONS
        _note_read(probe, f"topic {kind}", 0, topic=name, versions=versions)


def _markers(probe: Probe) -> None:
    """Control batches are left out of what old versions read; where the first batch is one, Kafka repeats records."""
    name = f"{NAME}-markers"

    def mark(at: int, producer_id: int) -> None:
        marker = {
            "producer_id": producer_id,
            "producer_epoch": 0,
            "transaction_result": True,
            "coordinator_epoch": 0,
            "topics": [{"name": name, "partition_indexes": [at]}],
        }
        probe.ask(LEADER, 1, message("WriteTxnMarkers", markers=[marker]))

    def put(at: int, value: bytes) -> None:
        probe.ask(LEADER, 9, produce(batch((value,)), topic=name, partition=at))

    mark(0, 77)
    put(0, b"a")
    put(0, b"b")
    put(1, b"a")
    mark(1, 78)
    put(1, b"b")
    mark(2, 79)
    for at, label in enumerate(("a marker, two batches", "a batch, a marker, a batch", "a marker")):
        _note_read(probe, label, at, topic=name, versions=(0, 3))
