"""Readers of a compacted log: records from any offset on, never a batch without records instead of them."""

from __future__ import annotations

import os

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from tests.unit.log.crash_disk import JournalDisk
from tests.unit.log.test_compaction import HOUR_MS, Writer, compact, rows
from tests.unit.log.test_flushed_compactions import Least

from tidegauge.record_batch import HEADER_BYTES, iterate_headers, read_header
from tidegauge.transaction_marker import Outcome, TransactionMarker, make_marker
from tidegauge_broker.formats.records import decode_records
from tidegauge_broker.log.rewrite import empty_batch
from tidegauge_broker.log.searching import carried_out
from tidegauge_broker.log.swap import SWAP_SUFFIX

ALL = 1 << 20


@pytest.fixture
def writer(bench, keyed_batch):
    bench.settings |= {"log.cleanup.policy": "compact", "log.cleaner.min.cleanable.ratio": "0"}
    return Writer(bench, keyed_batch)


def headers(log):
    found, offset = [], log.log_start_offset
    while data := log.read(offset, log.log_end_offset, ALL, at_least_one_batch=True):
        found += [header.alone() for header in iterate_headers(data)]
        offset = found[-1].next_offset
    return found


def sizes(log):
    return {segment.base_offset: segment.size_bytes for segment in log.segments}


def old_client(log, start, max_bytes):
    """Offsets that a client gets that knows the last record that it saw, and nothing of batches without records."""
    offset, found = start, []
    while data := log.read(offset, log.log_end_offset, max_bytes, at_least_one_batch=True):
        batches = [data[one.position : one.position + one.size_bytes] for one in iterate_headers(data)]
        given = [record.offset for batch in batches for record in decode_records(batch)]
        if not given:
            return found
        got = [one for one in given if one >= offset]
        found += got
        offset = got[-1] + 1 if got else offset + 1  # past a batch of which only earlier records are left
    return found


# The rest after compaction (Cleaner.cleanInto, MemoryRecords.filterTo)


def test_segments_of_which_nothing_is_needed_are_empty_files(bench, writer):
    """120 records of one key and 6 of others, in segments of two batches: every record is read from every offset."""
    bench.settings["log.segment.bytes"] = "200"
    for at in range(120):
        writer.put((b"dup", b"%04d" % at))
    for at in range(6):
        writer.put((b"e%d" % at, b"%04d" % at))
    assert compact(bench) == 124
    log = bench.log()
    assert [header.base_offset for header in headers(log) if not header.record_count] == []
    emptied = [base for base, size in sizes(log).items() if size == 0]
    assert emptied
    assert [row[0] for row in rows(log)] == [119, 120, 121, 122, 123, 124, 125]
    for start in range(126):
        assert old_client(log, start, 1) == [at for at in range(119, 126) if at >= start]
    for clean in (True, False):
        assert [row[0] for row in rows(bench.restart(clean=clean))] == [119, 120, 121, 122, 123, 124, 125]


def test_only_the_batch_that_ends_the_round_stays_without_records(bench, writer):
    """KAFKA-17076: a new replica reaches the log end offset. The next round removes it."""
    bench.settings["log.segment.bytes"] = "200"
    for value in (b"1", b"2", b"3"):
        writer.put((b"a", value), (None, b"x" * 90))
        writer.roll()
    writer.put((b"a", b"4"))
    writer.put((None, b"5"))
    writer.roll()
    assert compact(bench) == 8
    assert [(one.base_offset, one.record_count) for one in headers(bench.log())] == [(6, 1), (7, 0)]
    assert headers(bench.log())[-1].next_offset == bench.log().log_end_offset
    writer.put((b"b", b"1"))
    writer.roll()
    assert compact(bench) == 9
    assert [(one.base_offset, one.record_count) for one in headers(bench.log())] == [(6, 1), (8, 1)]


def test_a_batch_beyond_the_map_ends_no_round(bench, writer):
    """Kafka compares with the first uncleanable offset, not with the end of the mapped part."""
    writer.put((b"a", b"1"))
    writer.put((None, b"1"))
    writer.put((b"b", b"1"))
    writer.roll()
    cleaning = bench.manager.compaction.next_to_clean({bench.name: 3})
    cleaning._offsets.capacity = 1
    (group,) = cleaning.map_keys()
    assert cleaning.replace(group, cleaning.write(group))
    assert cleaning.end_offset == 2
    assert [(one.base_offset, one.record_count) for one in headers(bench.log())] == [(0, 1), (2, 1)]


# Reading on


def test_a_producers_last_batch_alone_in_its_segment_is_not_given_alone(bench, writer):
    """Kafka gives the batch without records alone, and kafkajs and kafka-go fetch it for ever."""
    bench.settings["log.segment.bytes"] = "150"
    writer.put((b"a", b"1" * 70), producer_id=7, sequence=0)
    writer.roll()
    for value in (b"2", b"3"):
        writer.put((b"a", value * 70))
        writer.roll()
    writer.put((b"z", b"0"))
    compact(bench)
    log = bench.log()
    assert (sizes(log)[0], sizes(log)[1]) == (HEADER_BYTES, 0)
    data = log.read(0, 4, 1, at_least_one_batch=True)
    assert [(one.base_offset, one.record_count) for one in iterate_headers(data)] == [(0, 0), (2, 1)]
    data = log.read(0, 4, 100, at_least_one_batch=False)
    assert [one.base_offset for one in iterate_headers(data)] == [0], "a limit that no batch may exceed holds"
    data = log.read(0, 2, ALL, at_least_one_batch=True)
    assert [one.base_offset for one in iterate_headers(data)] == [0], "above the bound nothing is given"
    assert old_client(log, 0, 1) == [2, 3]


def test_what_was_aborted_is_named_for_bytes_of_several_segments(bench, writer):
    """The list covers the whole response (LocalLog.addAbortedTransactions)."""
    bench.settings["log.segment.bytes"] = "160"
    writer.put((b"a", b"1" * 70), producer_id=7, sequence=0)
    writer.roll()
    writer.put((b"a", b"2" * 70))
    writer.roll()
    compact(bench)
    writer.put((b"k", b"aborted"), producer_id=8, sequence=0, transactional=True)
    bench.append(make_marker(TransactionMarker(8, 0, Outcome.ABORT, 0), bench.now_ms))
    log = bench.log()
    data = log.read(0, log.log_end_offset, 1, at_least_one_batch=True)
    assert [one.base_offset for one in iterate_headers(data)] == [0, 1]
    assert log.aborted_transactions(0, len(data)) == []
    log.segments[1].truncate_file(0)  # as if nothing of it were needed
    data = log.read(0, log.log_end_offset, ALL, at_least_one_batch=True)
    assert [one.base_offset for one in iterate_headers(data)] == [0, 2, 3]
    assert [one.producer_id for one in log.aborted_transactions(0, len(data))] == [8]


# Times


def test_the_largest_time_of_a_compacted_log_is_that_of_a_record(bench, writer):
    """ListOffsets -3 and a search by time, though the record with the largest time was replaced."""
    bench.settings["log.segment.bytes"] = "150"
    for key, later_ms in ((b"a", 90), (b"a", 5), (b"a", 6), (b"z", 4)):
        bench.now_ms += later_ms
        writer.put((key, b"1" * 50), producer_id=7 if later_ms == 90 else -1, sequence=0 if later_ms == 90 else -1)
        bench.now_ms -= later_ms
        writer.roll()
    start = bench.now_ms
    compact(bench)
    for log in (bench.log(), bench.restart(clean=True), bench.restart(clean=False)):
        assert log.segments[0].size_bytes == HEADER_BYTES, "the producer's last batch"
        assert log.segments[0].largest_timestamp == (-1, 0)
        assert log.segments[0].first_timestamp_ms == -1
        assert carried_out(log.search_largest_timestamp(4)) == (2, start + 6)
        found = [carried_out(log.search_by_time(start + later_ms, 4)) for later_ms in (0, 5, 6, 7, 90)]
        assert found == [(2, start + 6), (2, start + 6), (2, start + 6), None, None]
        assert log.segments[0].time_index.entries() == []


def test_a_time_index_that_names_a_batch_without_records_hides_no_time(bench, writer):
    """Kafka writes such entries; its own search by the largest time then finds nothing."""
    bench.append(
        empty_batch(read_header(writer.keyed_batch((b"a", b"1"), time_ms=bench.now_ms + 90, producer_id=7, sequence=0)))
    )
    writer.put((b"b", b"1"))
    writer.roll()
    log = bench.log()
    time_index = log.segments[0].time_index
    time_index.create()
    time_index.maybe_append(bench.now_ms + 90, 0)
    time_index.write_out()
    log = bench.restart(clean=True)
    assert log.segments[0].largest_timestamp == (bench.now_ms + 90, 0)
    assert carried_out(log.search_largest_timestamp(2)) == (1, bench.now_ms)


def test_a_segment_is_rolled_by_the_time_of_its_first_record(bench, writer):
    bench.settings["log.roll.ms"] = str(HOUR_MS)
    old_ms = bench.now_ms - 5 * HOUR_MS
    bench.append(empty_batch(read_header(writer.keyed_batch((b"a", b"1"), time_ms=old_ms, producer_id=7, sequence=0))))
    writer.put((b"b", b"1"))
    assert len(bench.log().segments) == 1
    assert bench.log().segments[0].first_timestamp_ms == bench.now_ms
    bench.now_ms += HOUR_MS + 1
    writer.put((b"b", b"2"))
    assert len(bench.log().segments) == 2


def test_a_segment_without_times_waits_for_min_compaction_lag_by_the_time_of_its_file(bench, writer):
    """LogSegment.largestTimestamp."""
    bench.settings["log.cleaner.min.compaction.lag.ms"] = str(HOUR_MS)
    bench.append(empty_batch(read_header(writer.keyed_batch((b"a", b"1")))))
    writer.roll()
    writer.put((b"b", b"1"))
    path, now = bench.log().segments[0].path, bench.now_ms // 1000
    os.utime(path, (now, now))
    assert compact(bench) is None
    os.utime(path, (now - 3600, now - 3600))
    assert compact(bench) == 1


# Crashes


def with_a_hole(bench, writer, *, is_noted=False):
    """A log of which the second segment is empty; the cleaner checkpoint is written only if ``is_noted``."""
    bench.settings["log.segment.bytes"] = "150"
    for key in (b"a", b"b", b"b", b"c"):
        writer.put((key, b"1" * 70))
        writer.roll()
    writer.put((b"z", b"1"))
    cleaning = bench.manager.compaction.next_to_clean({bench.name: 4})
    for group in cleaning.map_keys():
        assert cleaning.replace(group, cleaning.write(group))
    if is_noted:
        bench.manager.compaction.note_cleaned(cleaning)
    assert sizes(bench.log())[1] == 0
    return [(0, b"a"), (2, b"b"), (3, b"c"), (4, b"z")]


def test_a_segment_that_compaction_has_emptied_ends_no_log_after_a_kill(bench, writer):
    """The recovery point is on the disk before anything is replaced: below it nothing synced can be missing."""
    kept = with_a_hole(bench, writer)
    assert [row[:2] for row in rows(bench.restart(clean=False))] == kept


def test_a_segment_that_compaction_has_emptied_ends_no_log_after_a_loss_of_power(bench, writer, tmp_path):
    bench.disk = JournalDisk(bench.directory, tmp_path / "attic")
    kept = with_a_hole(bench, writer)
    bench.stop(clean=False)
    bench.disk.lose_power(Least())
    assert [row[:2] for row in rows(bench.log())] == kept


def test_the_cleaner_checkpoint_says_so_too_where_the_recovery_point_is_missing(bench, writer):
    """As in a directory that Apache Kafka has left, or with a file that is corrupt."""
    kept = with_a_hole(bench, writer, is_noted=True)
    bench.stop(clean=False)
    (bench.directory / "recovery-point-offset-checkpoint").unlink()
    assert [row[:2] for row in rows(bench.log())] == kept


def test_a_loss_of_power_above_the_compacted_part_still_ends_the_log(bench, writer):
    """Rule 9 of recovery: the empty segment was not synced."""
    with_a_hole(bench, writer)
    writer.roll()
    writer.put((b"y", b"1" * 90))
    writer.roll()
    writer.put((b"x", b"1"))
    bench.stop(clean=False)
    path = bench.partition_directory / f"{5:020d}.log"
    path.write_bytes(b"")
    assert [row[0] for row in rows(bench.log())] == [0, 2, 3, 4]


@pytest.mark.parametrize("renamed", range(4))
def test_old_segments_behind_the_last_record_may_outlive_a_swap(bench, writer, renamed):
    """LogLoader.load deletes the old segments within the new one's offsets, which end with its last batch.

    Those behind hold nothing that is needed, and the next compaction removes them.
    """
    for value in range(3):
        writer.put((b"a", b"%d" % value), (None, b"x"))
        writer.roll()
    writer.put((b"a", b"9"))
    writer.roll()
    cleaning = bench.manager.compaction.next_to_clean({bench.name: 7})
    (group,) = cleaning.map_keys()
    group = group[:3]
    cleaning.write(group).rename_files(SWAP_SUFFIX)
    for segment in group[:renamed]:
        segment.mark_deleted()
    log = bench.restart(clean=False)
    assert bench.files(SWAP_SUFFIX) == []
    left = {0: [2, 3, 4, 5], 1: [2, 3, 4, 5], 2: [4, 5], 3: []}[renamed]
    assert [row[0] for row in rows(log)] == [*left, 6]
    assert compact(bench) == 7
    assert rows(bench.log()) == [(6, b"a", b"9")]


def test_a_follower_begins_a_segment_where_its_log_ends_though_a_gap_comes_first(bench, writer, keyed_batch):
    """Else a kill would take what lies behind a gap that the leader's compaction has left (recovery, rule 9)."""
    bench.settings["log.segment.bytes"] = "150"
    writer.put((b"a", b"1" * 70))
    bench.manager.sync(bench.name)
    bench.manager.write_recovery_points()
    log = bench.log()
    data = keyed_batch((b"b", b"1" * 70))
    data = (5).to_bytes(8, "big") + data[8:12] + (0).to_bytes(4, "big") + data[16:]
    log.append_as_follower(data, [read_header(data)])
    assert sizes(log).keys() == {0, 1}
    assert [row[0] for row in rows(bench.restart(clean=False))] == [0, 5]


# Any log


_keys = st.sampled_from([None, b"a", b"b", b"c"])
_pairs = st.lists(st.tuples(_keys, st.none() | st.binary(max_size=80)), min_size=1, max_size=3)
_steps = st.lists(
    st.one_of(
        st.tuples(st.just("put"), _pairs, st.sampled_from([-1, -1, 5, 6])),
        st.tuples(st.just("put"), _pairs, st.sampled_from([-1, 5])),
        st.tuples(st.just("roll"), st.none(), st.none()),
        st.tuples(st.just("compact"), st.none(), st.integers(1, 4)),
        st.tuples(st.just("restart"), st.booleans(), st.none()),
    ),
    min_size=4,
    max_size=20,
)


@given(steps=_steps, limits=st.lists(st.sampled_from([0, 1, 61, 62, 200, ALL]), min_size=1, max_size=3))
@hypothesis_settings(max_examples=25, deadline=None)
def test_every_reader_gets_on_from_every_offset_and_sees_the_same(
    tmp_path_factory, make_bench, keyed_batch, steps, limits
):
    """Any offset, any limit: the reads equal the files' content, and no response lacks records if some follow."""
    bench = make_bench(tmp_path_factory.mktemp("readers") / "data")
    bench.settings |= {
        "log.cleanup.policy": "compact",
        "log.cleaner.min.cleanable.ratio": "0",
        "log.segment.bytes": "200",
        "log.index.interval.bytes": "0",
        "log.cleaner.delete.retention.ms": "0",
    }
    writer = Writer(bench, keyed_batch)
    sequences = {-1: -1}
    twin: list[tuple[int, bytes | None, bytes | None, int]] = []
    bench.log()
    for name, argument, number in steps:
        bench.now_ms += 1
        if name == "put":
            end, sequence = bench.log().log_end_offset, sequences.get(number, 0)
            writer.put(*argument, producer_id=number, sequence=sequence)
            twin += [(end + at, *pair, bench.now_ms) for at, pair in enumerate(argument)]
            sequences[number] = -1 if number < 0 else sequence + len(argument)
        elif name == "roll" and bench.log().segments[-1].size_bytes:
            writer.roll()
        elif name == "compact":
            for _ in range(number):
                _is_as_kafka_leaves_it(bench.log(), compact(bench))
        elif name == "restart":
            bench.restart(clean=argument)
    log = bench.log()
    left = rows(log)
    assert set(left) <= {row[:3] for row in twin}
    newest_of_keys = {row[1]: row[:3] for row in twin if row[1] is not None}
    assert {row for row in newest_of_keys.values() if row[2] is not None} <= set(left)
    for start in range(log.log_end_offset):
        for max_bytes in limits:
            assert old_client(log, start, max_bytes) == [row[0] for row in left if row[0] >= start]
    times = [row for row in twin if row[:3] in left]
    newest = max((row[3] for row in times), default=None)
    wanted = next(((row[0], row[3]) for row in times if row[3] == newest), None)
    assert carried_out(log.search_largest_timestamp(log.log_end_offset)) == wanted
    for wanted_ms in {row[3] for row in twin}:
        first = next(((row[0], row[3]) for row in times if row[3] >= wanted_ms), None)
        assert carried_out(log.search_by_time(wanted_ms, log.log_end_offset)) == first
    bench.stop(clean=False)


def _is_as_kafka_leaves_it(log, end_offset):
    """Each batch below the end of a compaction has a record, holds its producer's sequence, or ends the round."""
    if end_offset is None:
        return
    last_offsets = {entry.batches[-1].last_offset for entry in log.producer_state.entries() if entry.batches}
    for header in headers(log):
        assert header.record_count or header.last_offset in last_offsets or header.next_offset == end_offset
