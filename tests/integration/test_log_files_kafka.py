"""Kafka's own DumpLogSegments reads our files, ours reads Kafka's; both print the same.

Needs Maven or the jars that the benchmark keeps; where neither is there the test says so and is skipped.
"""

from __future__ import annotations

import asyncio
import importlib
import subprocess
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.record.default_records import DefaultRecordBatchBuilder
from click.testing import CliRunner

from tidegauge.java import java_program
from tidegauge.partition import TopicPartition
from tidegauge.record_batch import read_header
from tidegauge.settings import parse_broker_settings, parse_topic_settings
from tidegauge_broker.log.dump_verb import dump_log
from tidegauge_broker.log.manager import LogManager

pytestmark = [pytest.mark.integration, pytest.mark.long, pytest.mark.timeout(1200)]

AT = TopicPartition("orders", 0)
START_MS = 1_700_000_000_000
BENCH = Path(__file__).parents[2] / "bench"


@pytest.fixture
def kafka_side(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(BENCH))
    module: Any = importlib.import_module("kafka_side")
    try:
        importlib.import_module("jars").kafka_jars()
    except module.Unavailable as reason:
        pytest.skip(str(reason))
    monkeypatch.setattr(module, "READY_SECONDS", 240)
    return module


@pytest.fixture
def kafka_jars(kafka_side: Any) -> Path:
    del kafka_side  # it skips where the jars can't be had
    jars: Path = importlib.import_module("jars").kafka_jars()
    return jars


def make_batch(*pairs: tuple[bytes | None, bytes | None], time_ms: int, codec: int = 0, sequence: int = -1) -> bytes:
    producer_id = -1 if sequence < 0 else 7
    builder = DefaultRecordBatchBuilder(
        magic=2,
        compression_type=codec,
        is_transactional=0,
        producer_id=producer_id,
        producer_epoch=min(producer_id, 0),
        base_sequence=sequence,
        batch_size=1 << 20,
    )
    for index, (key, value) in enumerate(pairs):
        builder.append(index, time_ms + index, key, value, [("h", b"x")])
    return bytes(builder.build())


def write_log(directory: Path, *, compact: bool) -> Path:
    """A log of several segments: all codecs, two epochs, a producer, tombstones; the partition's directory."""
    given = {"log.segment.bytes": "1500", "log.index.interval.bytes": "100", "log.cleaner.min.cleanable.ratio": "0"}
    broker, _ = parse_broker_settings(given | ({"log.cleanup.policy": "compact"} if compact else {}))
    manager = LogManager.open(
        [directory],
        broker_id=1,
        cluster_id="abcdefghijklmnopqrstuv",
        broker=broker,
        topic_values=lambda _topic: parse_topic_settings({}, broker),
        now_ms=lambda: START_MS,
    )
    log = manager.get_or_create(AT, "topicidtopicidtopicidt", is_new=True)

    def append(records: bytes, epoch: int) -> None:
        header = read_header(records)._replace(base_offset=log.log_end_offset, leader_epoch=epoch)
        log.append_as_leader(records, header)

    for at in range(30):
        pairs = [(b"k%d" % (at % 4), b"v%d" % at), (b"only %d" % at, None if at % 9 == 0 else b"v"), (None, b"no key")]
        append(make_batch(*pairs, time_ms=START_MS + 1000 * at, codec=at % 5, sequence=3 * at), at // 15)
        append(make_batch((b"other", b"%d" % at), time_ms=START_MS), at // 15)
    if compact:
        cleaning = manager.compaction.next_to_clean({AT: log.log_end_offset})
        assert cleaning is not None
        for group in cleaning.map_keys():
            assert cleaning.replace(group, cleaning.write(group))
    manager.close({})
    return directory / str(AT)


def files_of(directory: Path) -> list[str]:
    found = [path for suffix in ("log", "index", "timeindex", "snapshot") for path in directory.glob(f"*.{suffix}")]
    return sorted(str(path) for path in found)


def kafkas_dump(jars: Path, files: list[str], *options: str) -> tuple[list[str], list[str]]:
    command = [java_program(), "-cp", f"{jars}/*", "kafka.tools.DumpLogSegments", "--files", ",".join(files), *options]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=300)
    return done.stdout.splitlines(), [line for line in done.stderr.splitlines() if not line.startswith("SLF4J")]


def our_dump(files: list[str], *options: str) -> tuple[list[str], list[str]]:
    result = CliRunner().invoke(dump_log, [*files, *options])
    return result.stdout.splitlines(), result.stderr.splitlines()


@pytest.mark.parametrize("compact", [False, True], ids=["delete", "compact"])
def test_kafka_reads_our_files_and_prints_what_we_print(kafka_jars, tmp_path, compact):
    files = files_of(write_log(tmp_path / "data", compact=compact))
    assert len([name for name in files if name.endswith(".log")]) > 2
    for options in ((), ("--print-data-log",), ("--deep-iteration",), ("--print-data-log", "--skip-record-metadata")):
        theirs, complaints = kafkas_dump(kafka_jars, files, *options)
        ours, ours_too = our_dump(files, *options)
        assert ours == theirs, options
        assert {line for line in ours_too if "Non-consecutive" in line} == {
            line for line in complaints if "Non-consecutive" in line
        }
        if not compact:
            # A compacted log has gaps; and Kafka takes the time of a batch from its records, also if none is left.
            assert complaints == ours_too == [], "Kafka finds nothing amiss in indexes and offsets"


def test_kafka_finds_our_indexes_sane(kafka_jars, tmp_path):
    files = [name for name in files_of(write_log(tmp_path / "data", compact=False)) if name.endswith("index")]
    theirs, complaints = kafkas_dump(kafka_jars, files, "--index-sanity-check")
    ours, _ = our_dump(files, "--index-sanity-check")
    assert ours == theirs
    assert complaints == []
    assert sum(line.endswith("passed sanity check.") for line in theirs) == len(files)


async def write_to_kafka(bootstrap: str) -> None:
    """A topic of several segments: all codecs, idempotent and plain batches, headers, tombstones, a transaction."""
    admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
    await admin.start()
    configs = {"segment.bytes": "3000", "index.interval.bytes": "200"}
    await admin.create_topics([NewTopic(AT.topic, 1, 3, topic_configs=configs)])
    await admin.close()
    for number, codec in enumerate((None, "gzip", "snappy", "lz4", "zstd")):
        kind = {"acks": "all", "enable_idempotence": number % 2 == 0, "compression_type": codec}
        async with AIOKafkaProducer(bootstrap_servers=bootstrap, linger_ms=20, **kind) as producer:
            sent = [
                await producer.send(
                    AT.topic,
                    None if at % 7 == 0 else b"value %d" % at * 5,
                    key=None if at % 7 == 1 else b"k%d" % at,
                    headers=[("h", b"x")] * (at % 3),
                )
                for at in range(40)
            ]
            await asyncio.gather(*sent)
            for at in range(10):
                await producer.send_and_wait(AT.topic, b"alone %d" % at)
    for commits in (True, False):
        producer = AIOKafkaProducer(bootstrap_servers=bootstrap, transactional_id="writer")
        await producer.start()
        await producer.begin_transaction()
        await producer.send_and_wait(AT.topic, b"in a transaction", key=b"t")
        await (producer.commit_transaction() if commits else producer.abort_transaction())
        await producer.stop()


def test_we_read_kafkas_files_and_print_what_it_prints(kafka_side, kafka_jars, tmp_path):
    """Our log manager opens the directories of a leader and a follower of Apache Kafka unchanged."""
    kafka = kafka_side.Kafka(tmp_path)
    try:
        kafka.start()
        asyncio.run(write_to_kafka(kafka.bootstrap))
    except kafka_side.Unavailable as reason:
        pytest.skip(str(reason))
    finally:
        kafka.stop()
    for number in (0, 1):
        directory = tmp_path / "kafka" / f"data-{number}"
        files = files_of(directory / str(AT))
        assert len([name for name in files if name.endswith(".log")]) > 2
        for options in ((), ("--print-data-log",), ("--deep-iteration",)):
            theirs, complaints = kafkas_dump(kafka_jars, files, *options)
            ours, ours_too = our_dump(files, *options)
            assert ours == theirs, options
            assert ours_too == complaints == []
        opened = open_kafkas(directory, number)
        log = opened.logs[AT]
        headers = [header for segment in log.segments for header in segment.headers()]
        assert (headers[0].base_offset, headers[-1].next_offset) == (log.log_start_offset, log.log_end_offset)
        assert opened.loaded(AT).high_watermark == log.log_end_offset
        opened.close({}, clean=False)


def open_kafkas(directory: Path, broker_id: int) -> LogManager:
    (cluster,) = (
        line for line in (directory / "meta.properties").read_text().splitlines() if line.startswith("cluster.id")
    )
    broker, _ = parse_broker_settings({})
    return LogManager.open(
        [directory],
        broker_id=broker_id,
        cluster_id=cluster.partition("=")[2],
        broker=broker,
        topic_values=lambda _topic: parse_topic_settings({}, broker),
        now_ms=lambda: START_MS,
    )
