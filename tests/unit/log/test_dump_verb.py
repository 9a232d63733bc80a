"""``tidegauge dump-log``: the layout of DumpLogSegments."""

import json
import struct

import pytest
from click.testing import CliRunner

from tidegauge.record_batch import iterate_headers, patch, read_header
from tidegauge_broker.log.dump_verb import dump_log

LOG = "00000000000000000000.log"


def run(*arguments):
    return CliRunner().invoke(dump_log, [str(argument) for argument in arguments])


def test_a_log_file_is_shown_batch_by_batch(bench, batch):
    bench.append(batch(2), epoch=3)
    bench.append(batch(1, producer_id=9, sequence=4, epoch=2, codec=1), epoch=3)
    log = bench.log()
    first, second = iterate_headers(log.read(0, 3, 1 << 20, at_least_one_batch=True))
    path = bench.partition_directory / LOG
    result = run(path)
    assert result.exit_code == 0
    assert result.stdout.splitlines() == [
        f"Dumping {path}",
        "Log starting offset: 0",
        "baseOffset: 0 lastOffset: 1 count: 2 baseSequence: -1 lastSequence: -1 producerId: -1 producerEpoch: -1 "
        "partitionLeaderEpoch: 3 isTransactional: false isControl: false deleteHorizonMs: OptionalLong.empty "
        f"position: 0 CreateTime: 1700000000001 size: {first.size_bytes} magic: 2 compresscodec: none "
        f"crc: {first.crc} isvalid: true",
        "baseOffset: 2 lastOffset: 2 count: 1 baseSequence: 4 lastSequence: 4 producerId: 9 producerEpoch: 2 "
        "partitionLeaderEpoch: 3 isTransactional: false isControl: false deleteHorizonMs: OptionalLong.empty "
        f"position: {first.size_bytes} CreateTime: 1700000000000 size: {second.size_bytes} magic: 2 "
        f"compresscodec: gzip crc: {second.crc} isvalid: true",
    ]


def test_records_are_shown_when_asked_for(bench, batch):
    bench.append(batch(2, producer_id=9, sequence=4))
    path = bench.partition_directory / LOG
    records = [line for line in run(path, "--print-data-log").stdout.splitlines() if line.startswith("|")]
    assert records == [
        "| offset: 0 CreateTime: 1700000000000 keySize: 2 valueSize: 1 sequence: 4 headerKeys: [h] key: k0 payload: v",
        "| offset: 1 CreateTime: 1700000000001 keySize: 2 valueSize: 1 sequence: 5 headerKeys: [h] key: k1 payload: v",
    ]
    records = [line for line in run(path, "--deep-iteration").stdout.splitlines() if line.startswith("|")]
    assert records[1].endswith("sequence: 5 headerKeys: [h]")
    records = run(path, "--print-data-log", "--skip-record-metadata").stdout.splitlines()
    assert records[-1] == "| key: k1 payload: v"


def test_without_metadata_the_bar_stands_before_a_key_only(bench, keyed_batch):
    """So prints Kafka's tool, as its own jar showed."""
    bench.append(keyed_batch((None, b"v"), (b"k", None), (None, None)))
    path = bench.partition_directory / LOG
    lines = run(path, "--print-data-log", "--skip-record-metadata").stdout.splitlines()
    assert lines[-3:] == [" payload: v", "| key: k", ""]


def test_log_append_time_is_named(bench, batch):
    bench.append(batch(1), append_time_ms=1_800_000_000_000)
    assert " LogAppendTime: 1800000000000 " in run(bench.partition_directory / LOG).stdout


def test_damage_is_shown(bench, batch):
    bench.append(batch(1))
    bench.append(batch(1))
    path = bench.partition_directory / LOG
    data = bytearray(path.read_bytes() + b"\0" * 12)
    data[65] ^= 1
    path.write_bytes(data)
    result = run(path, "--print-data-log")
    lines = result.stdout.splitlines()
    assert lines[2].endswith("isvalid: false")
    assert lines[3].endswith("isvalid: true")
    assert lines[-1] == f"Found 12 invalid bytes at the end of {LOG}"
    assert "The records at byte 0 are not shown: the CRC is wrong" in result.stderr
    limited = run(path, "--max-bytes", len(batch(1))).stdout.splitlines()
    assert len(limited) == 3


def test_a_batch_that_is_cut_off_is_not_shown_as_one(bench, batch):
    """FileLogInputStream.nextBatch: a batch that ends beyond the file's end is none."""
    bench.append(batch(1))
    bench.append(batch(1))
    path = bench.partition_directory / LOG
    first = read_header(path.read_bytes())
    path.write_bytes(path.read_bytes()[:-1])
    lines = run(path).stdout.splitlines()
    assert len(lines) == 4
    assert f"size: {first.size_bytes}" in lines[2]
    assert lines[3] == f"Found {first.size_bytes - 1} invalid bytes at the end of {LOG}"


def test_gaps_are_reported(bench, batch):
    bench.append(batch(1))
    data = bytearray(batch(1))
    patch(data, 0, 7, 0)
    bench.log().append_as_follower(bytes(data), [read_header(data)])
    result = run(bench.partition_directory / LOG, "--deep-iteration")
    assert f"Non-consecutive offsets in {bench.partition_directory / LOG}\n  0 is followed by 7\n" in result.stderr


@pytest.fixture
def indexed(bench, batch):
    bench.settings["log.index.interval.bytes"] = "0"
    for at in range(3):
        bench.append(batch(2, time_ms=1000 * at))
    bench.stop()
    return bench.partition_directory / LOG


def test_indexes_are_shown_and_checked(indexed, batch):
    index, time_index = indexed.with_suffix(".index"), indexed.with_suffix(".timeindex")
    size = len(batch(2))
    result = run(index, time_index)
    assert result.stdout.splitlines() == [
        f"Dumping {index}",
        f"offset: 3 position: {size}",
        f"offset: 5 position: {2 * size}",
        f"Dumping {time_index}",
        "timestamp: 1001 offset: 3",
        "timestamp: 2001 offset: 5",
    ]
    assert result.stderr == ""
    assert run(index, "--verify-index-only").stdout.splitlines() == [f"Dumping {index}"]
    result = run(index, time_index, "--index-sanity-check")
    assert f"{index} passed sanity check." in result.stdout
    assert f"{time_index} passed sanity check." in result.stdout
    assert result.exit_code == 0


def test_an_index_that_does_not_fit_its_log_is_reported(indexed):
    index, time_index = indexed.with_suffix(".index"), indexed.with_suffix(".timeindex")
    index.write_bytes(struct.pack(">ii", 4, 0))
    time_index.write_bytes(struct.pack(">qiqi", 99, 3, 50, 4))
    result = run(index, time_index, "--verify-index-only")
    assert result.exit_code == 1
    assert f"Mismatches in :{index}\n  Index offset: 4, log offset: 5\n" in result.stderr
    assert f"Found timestamp mismatch in :{time_index}\n  Index timestamp: 99, log timestamp: 1001\n" in result.stderr
    assert "Indexed offset: 4, found log offset: 5" in result.stderr
    index.write_bytes(b"\0" * 16)
    assert run(index, "--index-sanity-check").exit_code == 1


def test_a_followers_index_entries_are_right(bench, batch):
    """Rule 2: an entry names the last offset of several batches, and where the first of them begins."""
    bench.settings["log.index.interval.bytes"] = "0"
    bench.append(batch(1))
    records = b""
    for base in (1, 2, 3):
        one = bytearray(batch(1))
        patch(one, 0, base, 0)
        records += bytes(one)
    bench.log().append_as_follower(records, list(iterate_headers(records)))
    result = run(bench.partition_directory / "00000000000000000000.index", "--verify-index-only")
    assert (result.exit_code, result.stderr) == (0, "")


def test_an_empty_index_says_so(bench, batch):
    bench.append(batch(1))
    path = bench.partition_directory / "00000000000000000000.index"
    assert run(path).stdout.splitlines() == [f"Dumping {path}", f"{path} is empty."]


def test_a_snapshot_shows_the_producers(bench, batch):
    bench.append(batch(3, producer_id=9, sequence=4, epoch=1))
    bench.stop()
    path = bench.partition_directory / "00000000000000000003.snapshot"
    assert run(path).stdout.splitlines()[1] == (
        "producerId: 9 producerEpoch: 1 coordinatorEpoch: -1 currentTxnFirstOffset: OptionalLong.empty "
        "lastTimestamp: 1700000000002 firstSequence: 4 lastSequence: 6 lastOffset: 2 offsetDelta: 2 "
        "timestamp: 1700000000002"
    )
    path.write_bytes(path.read_bytes()[:-1])
    result = run(path)
    assert "is corrupt" in result.stderr


def test_json_is_a_line_for_each_item(bench, batch):
    bench.append(batch(1, value=b"\xff"))
    path = bench.partition_directory / LOG
    items = [json.loads(line) for line in run(path, "--print-data-log", "-o", "json").stdout.splitlines()]
    assert [item["kind"] for item in items] == ["log", "batch", "record"]
    assert items[1]["isvalid"] is True
    assert items[1]["deleteHorizonMs"] is None
    assert (items[2]["key"], items[2]["payload"]) == ("k0", {"base64": "/w=="})


def test_what_cannot_be_read_is_one_sentence(tmp_path):
    missing = tmp_path / LOG
    result = run(missing)
    assert result.exit_code == 1
    assert result.stderr == f"KAFKA_STORAGE_ERROR (56): {missing} cannot be read: No such file or directory\n"
    odd = tmp_path / "orders.log"
    odd.write_bytes(b"")
    assert "is not named by a base offset" in run(odd).stderr
    unknown = tmp_path / "notes.txt"
    result = run(unknown)
    assert (result.exit_code, "No such file or directory" in result.stderr) == (1, True), "whatever its name"
    unknown.write_bytes(b"")
    result = run(unknown)
    assert (result.exit_code, result.stderr) == (0, f"Ignoring unknown file {unknown}\n"), "as DumpLogSegments"
    result = run(tmp_path)
    assert (result.exit_code, f"is a directory; name files in it, for example {tmp_path}/*.log" in result.stderr) == (
        1,
        True,
    ), "nothing was dumped, so it is no success"
    assert run().exit_code == 2
