"""The same refused batches to Apache Kafka 3.9.1 and to Tidegauge: errors, messages and named records (KIP-467)."""

from __future__ import annotations

import itertools
import re
import time
from pathlib import Path
from typing import Any

import pytest
from crc32c import crc32c
from tests.integration.conftest import MakeCluster, free_base_port
from tests.wire_responses.batches import CONTROL, batch
from tests.wire_responses.probe import Facts, Probe, message
from tests.wire_responses.records import produce, produced

from tidegauge.record_batch import LOG_APPEND_TIME_BIT, read_header
from tidegauge_client.records import NewRecord, encode_batch

pytest.importorskip("confluent_kafka", reason="pip install -e '.[dev]' brings it")

from tests.integration.apache_kafka import KafkaBroker, Unavailable

pytestmark = [pytest.mark.integration, pytest.mark.long, pytest.mark.timeout(600)]
PAST_MS, FUTURE_MS = 1_000_000_000_000, 4_000_000_000_000
LIMITS = {"message.timestamp.before.max.ms": "86400000", "message.timestamp.after.max.ms": "86400000"}
TOPICS: dict[str, dict[str, str]] = {
    "plain": {},
    "compacted": {"cleanup.policy": "compact"},
    "limited": LIMITS,
    "both": LIMITS | {"cleanup.policy": "compact"},
    "stamped": {"message.timestamp.type": "LogAppendTime"},
    "zstd": {"message.timestamp.type": "LogAppendTime", "compression.type": "zstd"},
    "appended": {"message.timestamp.type": "LogAppendTime", "cleanup.policy": "compact"},
}
CODECS = ("none", "gzip", "zstd")
ALLOWED = re.compile(r"within \[\d+, \d+\]")
"""The limits of a topic as times: the two brokers' lie apart."""


def keyed(keys: str, times_ms: list[int], codec: str = "none", **more: Any) -> bytes:
    """Return a batch with a record for each letter; ``-``: without key."""
    records = [
        NewRecord(value=b"value", key=None if key == "-" else key.encode(), timestamp_ms=time_ms)
        for key, time_ms in zip(keys, itertools.cycle(times_ms), strict=False)
    ]
    return encode_batch(records, compression=codec, **more)


def claiming_append_time(data: bytes) -> bytes:
    """Return a batch that claims the broker's time, with its checksum."""
    attributes = read_header(data).attributes | LOG_APPEND_TIME_BIT
    return with_checksum(data[:21] + attributes.to_bytes(2, "big") + data[23:])


def with_checksum(data: bytes) -> bytes:
    """Return a batch with the checksum of its content."""
    checksum: int = crc32c(data[21:])
    return data[:17] + checksum.to_bytes(4, "big") + data[21:]


def refused(codec: str, now_ms: int) -> dict[str, tuple[str, bytes]]:
    """Return batches by name, each with its topic."""
    now, wrong = [now_ms], [now_ms, PAST_MS, FUTURE_MS]
    return {
        "no key in one of three": ("compacted", keyed("a-b", now, codec)),
        "no key in any of five": ("compacted", keyed("-----", now, codec)),
        "no key in the only record": ("compacted", keyed("-", now, codec)),
        "keys in all": ("compacted", keyed("abc", now, codec)),
        "times before and after the limits": ("limited", keyed("abcd", wrong, codec)),
        "all times wrong": ("limited", keyed("-----", [PAST_MS], codec)),
        "times within the limits": ("limited", keyed("a-", now, codec)),
        "a time wrong in one, no key in another": ("both", keyed("a-bc-d", [now_ms, now_ms, PAST_MS], codec)),
        "a time wrong and no key in the same": ("both", keyed("ab-", [now_ms, now_ms, FUTURE_MS], codec)),
        "claims the broker's time": ("appended", claiming_append_time(keyed("abc", now, codec))),
        "claims the broker's time, one without a key": ("appended", claiming_append_time(keyed("a-c", now, codec))),
        "claims the broker's time, without keys": ("stamped", claiming_append_time(keyed("-b-", now, codec))),
        "claims the broker's time, stored as zstd": ("zstd", claiming_append_time(keyed("-b", now, codec))),
        "no key where times are the broker's": ("appended", keyed("a-c", [PAST_MS], codec)),
        "of an idempotent producer": (
            "compacted",
            keyed("a-", now, codec, producer_id=7, producer_epoch=0, base_sequence=0),
        ),
    }


def facts(address: tuple[str, int], now_ms: int) -> Facts:
    """Return what one broker says to the batches."""
    probe = Probe([address])
    try:
        for name, settings in TOPICS.items():
            configs = [{"name": key, "value": value} for key, value in settings.items()]
            wanted = {"name": name, "num_partitions": 1, "replication_factor": 1, "assignments": [], "configs": configs}
            probe.case(
                name,
                0,
                7,
                message("CreateTopics", timeout_ms=60_000, topics=[wanted]),
                lambda x: x.topics[0].error_code,
            )
            probe.topic(name)
        for codec in CODECS:
            for name, (topic, data) in refused(codec, now_ms).items():
                for version in (7, 8, 9, 11) if codec == "none" else (9,):
                    response = probe.ask(0, version, produce(data, topic=topic))
                    probe.note(f"v{version} {codec}: {name}", [_shown(one) for one in produced(response)])
        control = batch(attributes=CONTROL)
        for name, data in {
            "a control batch": control,
            "two batches": batch() * 2,
            "wrong count": _miscounted(),
        }.items():
            response = probe.ask(0, 9, produce(data, topic="plain"))
            probe.note(name, [_shown(one) for one in produced(response)])
        return probe.facts
    finally:
        probe.close()


def _miscounted() -> bytes:
    data = batch((b"a", b"b"))
    return with_checksum(data[:57] + (5).to_bytes(4, "big") + data[61:])


def _shown(partition: Any) -> Any:
    """Return the error, its message and named records, without offsets."""
    if isinstance(partition, str):
        return partition
    named = [(one.batch_index, one.batch_index_error_message) for one in partition.record_errors or []]
    return ALLOWED.sub("within [...]", repr((partition.error_code, named, partition.error_message)))


def test_refused_batches_name_the_same_records_with_the_same_reasons(
    make_cluster: MakeCluster, zookeeper: str, tmp_path: Path
) -> None:
    """LogValidator.validateMessagesAndAssignOffsets; the response of Produce v8 (KIP-467)."""
    now_ms = time.time_ns() // 1_000_000
    port = free_base_port()
    try:
        kafka = KafkaBroker(
            0,
            {"offsets.topic.replication.factor": "1"},
            port=port,
            log_dirs=[tmp_path / "kafka-logs"],
            zookeeper=f"{zookeeper}/record-errors-of-kafka",
            directory=tmp_path / "kafka",
        )
    except Unavailable as problem:
        pytest.skip(f"Apache Kafka can't be had here: {problem}")
    kafka.start()
    try:
        kafka.wait_started()
        theirs = facts(("127.0.0.1", port), now_ms)
    finally:
        if kafka.pid is not None:
            kafka.kill()
    host, _, own_port = make_cluster(brokers=1).kafka_bootstrap_servers[0].partition(":")
    ours = facts((host, int(own_port)), now_ms)
    different = [
        f"{name}: Kafka {fact}, Tidegauge {ours.get(name)}" for name, fact in theirs.items() if ours.get(name) != fact
    ]
    assert not different, "\n".join(different)
    assert sum("RecordError" in fact for fact in ours.values()) > 5, "batches are refused because of their records"
