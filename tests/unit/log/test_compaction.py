"""Compaction (LogCleaner; KIP-58, KIP-354): the choice of logs, the remaining records, and the effect of a restart."""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.record_batch import iterate_headers, read_header
from tidegauge_broker.formats.records import StoredRecord, decode_records
from tidegauge_broker.log.compaction import OffsetMap
from tidegauge_broker.log.swap import CLEANED_SUFFIX, SWAP_SUFFIX

HOUR_MS = 3_600_000


def compact(bench, high_watermark=None):
    """One round of the cleaner; the first dirty offset afterwards, None if there was nothing to do."""
    manager = bench.manager
    end = bench.log().log_end_offset if high_watermark is None else high_watermark
    cleaning = manager.compaction.next_to_clean({bench.name: end})
    if cleaning is None:
        return None
    for group in cleaning.map_keys():
        assert cleaning.replace(group, cleaning.write(group))
    manager.compaction.note_cleaned(cleaning)
    return cleaning.end_offset


def records(log) -> list[StoredRecord]:
    found = []
    offset = log.log_start_offset
    while data := log.read(offset, log.log_end_offset, 1 << 20, at_least_one_batch=True):
        for header in iterate_headers(data):
            found += decode_records(data[header.position : header.position + header.size_bytes])
            offset = header.next_offset
    return found


def rows(log):
    return [(one.offset, one.key, one.value) for one in records(log)]


@dataclass
class Writer:
    """Appends one batch after the other, and rolls on demand."""

    bench: Any
    keyed_batch: Callable[..., bytes]

    def put(self, *pairs, **batch_options):
        self.bench.append(self.keyed_batch(*pairs, time_ms=self.bench.now_ms, **batch_options))

    def roll(self):
        log = self.bench.log()
        log._roll(log.log_end_offset)


@pytest.fixture
def writer(bench, keyed_batch):
    bench.settings |= {"log.cleanup.policy": "compact", "log.cleaner.min.cleanable.ratio": "0"}
    return Writer(bench, keyed_batch)


def test_the_last_record_of_each_key_stays_with_its_offset(bench, writer):
    writer.put((b"a", b"1"), (b"b", b"1"), (b"a", b"2"))
    writer.put((b"c", b"1"))
    writer.put((b"b", b"2"))
    writer.roll()
    writer.put((b"c", b"2"))
    assert compact(bench) == 5
    kept = [(2, b"a", b"2"), (3, b"c", b"1"), (4, b"b", b"2"), (5, b"c", b"2")]
    assert rows(bench.log()) == kept, "c-1 stays: c-2 is in the active segment"
    assert rows(bench.restart(clean=True)) == kept
    assert rows(bench.restart(clean=False)) == kept
    assert bench.log().log_end_offset == 6
    assert bench.log().log_start_offset == 0
    assert (bench.directory / "cleaner-offset-checkpoint").read_text() == "0\n1\norders 0 5\n"


def test_records_without_a_key_go(bench, writer):
    writer.put((None, b"1"), (b"a", b"1"), (None, b"2"))
    writer.roll()
    compact(bench)
    assert rows(bench.log()) == [(1, b"a", b"1")]


def test_neither_the_active_segment_nor_what_is_not_committed_is_touched(bench, writer):
    for _ in range(3):
        writer.put((b"a", b"1"), (b"a", b"2"))
        writer.roll()
    writer.put((b"a", b"3"), (b"a", b"4"))
    assert compact(bench, high_watermark=3) == 2, "the segment that holds the high watermark stays as it is"
    assert [row[0] for row in rows(bench.log())] == [1, 2, 3, 4, 5, 6, 7]
    assert compact(bench, high_watermark=8) == 6
    assert [row[0] for row in rows(bench.log())] == [5, 6, 7]
    assert compact(bench, high_watermark=8) is None, "nothing is dirty any more"


def test_young_records_wait_for_min_compaction_lag(bench, writer):
    bench.settings["log.cleaner.min.compaction.lag.ms"] = str(HOUR_MS)
    for _ in range(3):
        writer.put((b"a", b"1"))
        writer.roll()
        bench.now_ms += HOUR_MS // 2
    assert compact(bench) == 2, "a record that is just as old may go"
    bench.now_ms += HOUR_MS // 2 - 1
    assert compact(bench) is None
    bench.now_ms += 1
    assert compact(bench) == 3
    assert [row[0] for row in rows(bench.log())] == [2]


def test_a_log_is_left_alone_until_it_is_dirty_enough_or_overdue(bench, writer):
    bench.settings |= {"log.cleaner.min.cleanable.ratio": "0.5", "log.cleaner.max.compaction.lag.ms": str(HOUR_MS)}
    writer.put((b"a", b"1"), (b"b", b"1"))
    writer.roll()
    assert compact(bench) == 2, "all of it is dirty"
    writer.put((b"a", b"2"))
    writer.roll()
    assert compact(bench) is None, "less than half of it"
    bench.now_ms += HOUR_MS
    assert compact(bench) is None
    bench.now_ms += 1
    assert compact(bench) == 3
    assert [row[0] for row in rows(bench.log())] == [1, 2]


def test_a_compacted_log_rolls_in_time_for_max_compaction_lag(bench, writer):
    """LogConfig.maxSegmentMs: else a record in the active segment could never be compacted in time (KIP-354)."""
    bench.settings |= {"log.cleaner.max.compaction.lag.ms": "1000"}
    writer.put((b"a", b"1"))
    bench.now_ms += 1001
    writer.put((b"a", b"2"))
    assert len(bench.log().segments) == 2


def test_a_tombstone_stays_for_its_time_after_the_compaction_that_met_it(bench, writer):
    """KIP-534: the horizon is set once, at the first compaction, and kept in the batch."""
    bench.settings["log.cleaner.delete.retention.ms"] = str(HOUR_MS)
    writer.put((b"a", b"1"), (b"b", b"1"))
    writer.put((b"a", None))
    writer.roll()
    bench.now_ms += 5 * HOUR_MS
    compact(bench)
    first = bench.now_ms
    assert rows(bench.log()) == [(1, b"b", b"1"), (2, b"a", None)]
    (tombstone,) = [one for one in records(bench.log()) if one.value is None]
    assert tombstone.timestamp_ms == first - 5 * HOUR_MS, "its time is still its own"
    for wait, left in ((HOUR_MS - 1, [b"b", b"a", b"x"]), (1, [b"b", b"x"])):
        bench.now_ms += wait
        writer.put((b"x", b"1"))
        writer.roll()
        compact(bench)
        assert [row[1] for row in rows(bench.log())] == left


def test_a_producers_last_batch_stays_and_its_sequence_is_known(bench, writer, keyed_batch):
    writer.put((b"a", b"1"), (b"a", b"2"), producer_id=7, sequence=0)
    writer.put((b"a", b"3"), producer_id=7, sequence=2)
    writer.put((b"a", b"4"))
    writer.put((b"a", b"5"))
    writer.roll()
    writer.put((b"z", b"0"))
    compact(bench)
    assert rows(bench.log()) == [(4, b"a", b"5"), (5, b"z", b"0")]
    for clean in (True, False):
        bench.restart(clean=clean)
        for snapshot in bench.partition_directory.glob("*.snapshot"):
            snapshot.unlink()
    log = bench.restart(clean=False)
    (entry,) = log.producer_state.entries()
    assert (entry.producer_id, entry.batches[-1].last_sequence) == (7, 2)


def test_small_segments_become_one(bench, writer):
    for at in range(6):
        writer.put((b"k%d" % (at % 2), b"v" * 50))
        writer.roll()
    compact(bench)
    assert [segment.base_offset for segment in bench.log().segments] == [0, 6]
    assert bench.files(".log.deleted") == [f"{offset:020d}.log.deleted" for offset in range(6)]
    assert bench.files(".snapshot") == [f"{6:020d}.snapshot"]
    bench.now_ms += HOUR_MS
    bench.manager.remove_deleted()
    assert bench.files(".deleted") == []


def test_a_segment_does_not_grow_above_its_limit(bench, writer):
    bench.settings["log.segment.bytes"] = "400"
    for at in range(8):
        writer.put((b"k%d" % at, b"v" * 50))
        writer.roll()
    before = rows(bench.log())
    compact(bench)
    assert max(segment.size_bytes for segment in bench.log().segments) <= 400
    assert len(bench.log().segments) < 9
    assert rows(bench.log()) == before


def test_a_truncation_into_what_was_compacted_lowers_the_checkpoint(bench, writer):
    for _ in range(4):
        writer.put((b"a", b"1"))
        writer.roll()
    assert compact(bench) == 4
    bench.log().truncate_to(2)
    assert (bench.directory / "cleaner-offset-checkpoint").read_text() == "0\n1\norders 0 2\n"
    bench.manager.delete(bench.name)
    assert (bench.directory / "cleaner-offset-checkpoint").read_text() == "0\n0\n"


def test_a_truncation_during_a_compaction_makes_the_rest_void(bench, writer):
    for _ in range(3):
        writer.put((b"a", b"1"))
        writer.roll()
    cleaning = bench.manager.compaction.next_to_clean({bench.name: 3})
    (group,) = cleaning.map_keys()
    cleaned = cleaning.write(group)
    bench.log().truncate_to(1)
    assert not cleaning.replace(group, cleaned)
    assert [row[0] for row in rows(bench.log())] == [0]
    bench.manager.remove_deleted()
    assert bench.files(CLEANED_SUFFIX) == []


def flipped(data: bytearray, second: int) -> None:
    data[-2] ^= 1  # of a value; the last byte counts its headers


def cut_off(data: bytearray, second: int) -> None:
    del data[second + 70 :]


def far_ahead(data: bytearray, second: int) -> None:
    struct.pack_into(">q", data, second, 1 << 40)


def fallen_back(data: bytearray, second: int) -> None:
    struct.pack_into(">q", data, second, 0)


@pytest.mark.parametrize("damage", [flipped, cut_off, far_ahead, fallen_back])
@pytest.mark.parametrize("is_clean", [False, True])
def test_damage_ends_a_compaction_and_is_not_written_again_with_a_right_crc(bench, writer, damage, is_clean):
    writer.put((b"a", b"1"), (b"b", b"1"))
    writer.put((b"b", b"1"), (b"c", b"1"))
    writer.roll()
    if is_clean:
        compact(bench)
    writer.put((b"c", b"2"))
    writer.roll()
    path = bench.log().segments[0].path
    data = bytearray(path.read_bytes())
    damage(data, read_header(data).size_bytes)
    path.write_bytes(data)
    descriptors = open_files()
    cleaning = bench.manager.compaction.next_to_clean({bench.name: 5})
    with pytest.raises(TidegaugeError) as caught:
        for group in cleaning.map_keys():
            cleaning.write(group)
    assert caught.value.code is ErrorCode.CORRUPT_MESSAGE
    assert str(path) in str(caught.value)
    assert bench.files(CLEANED_SUFFIX) == []
    assert open_files() == descriptors
    assert path.read_bytes() == data


def open_files() -> list[str]:
    return sorted(str(one.readlink()) for one in Path("/proc/self/fd").iterdir() if one.exists())


def test_a_map_that_is_full_compacts_in_several_rounds(bench, writer):
    """Room for nine keys: log.cleaner.dedupe.buffer.size bounds a round, not the log."""
    for at in range(30):
        writer.put((b"k%d" % (at % 15), b"v"))
    writer.roll()
    manager = bench.manager
    ends = []
    while (cleaning := manager.compaction.next_to_clean({bench.name: 30})) is not None and len(ends) < 9:
        cleaning._offsets.capacity = 9
        for group in cleaning.map_keys():
            cleaning.replace(group, cleaning.write(group))
        manager.compaction.note_cleaned(cleaning)
        ends.append(cleaning.end_offset)
    assert ends == [9, 18, 27, 30]
    assert [row[0] for row in rows(bench.log())] == list(range(15, 30))


def test_a_batch_with_more_keys_than_the_map_holds_leaves_the_log_as_it_is(
    bench, writer, run_cleaner, monkeypatch, caplog
):
    """Nothing of it can be mapped (Cleaner.buildOffsetMap); the others are compacted nevertheless."""
    writer.put((b"a", b"1"), (b"b", b"1"), (b"c", b"1"))
    writer.roll()
    writer.put((b"a", b"2"))
    monkeypatch.setattr(
        OffsetMap, "of_size", lambda _buffer_bytes, first_dirty_offset: OffsetMap(2, first_dirty_offset)
    )
    for _ in range(2):
        run_cleaner(bench.manager, {bench.name: 4})
    assert [row[0] for row in rows(bench.log())] == [0, 1, 2, 3]
    (said,) = (one for one in caplog.records if one.name == "tidegauge.cleaner")
    assert "log.cleaner.dedupe.buffer.size" in said.getMessage()
    assert said.exc_info is None


def test_compact_and_delete_lets_old_segments_go_too(bench, writer):
    bench.settings |= {"log.cleanup.policy": "compact,delete", "log.retention.ms": str(HOUR_MS)}
    writer.put((b"a", b"1"))
    writer.roll()
    bench.now_ms += 2 * HOUR_MS
    writer.put((b"b", b"1"))
    assert bench.manager.housekeeping({bench.name: 2}) == {}
    assert bench.manager.housekeeping_of_compacted({bench.name: 2}) == {bench.name: 1}
    assert rows(bench.log()) == [(1, b"b", b"1")]


def test_compact_alone_lets_only_segments_below_the_log_start_go(bench, writer):
    bench.settings["log.retention.ms"] = str(HOUR_MS)
    for _ in range(3):
        writer.put((b"a", b"1"))
        writer.roll()
    bench.now_ms += 9 * HOUR_MS
    bench.log().advance_log_start(1)
    bench.manager.housekeeping_of_compacted({bench.name: 3})
    assert [segment.base_offset for segment in bench.log().segments] == [1, 2, 3]


def test_a_swap_that_a_crash_interrupted_is_completed(bench, writer):
    """LogLoader.load: while a .log.swap is there, the old segments do not count."""
    for at in range(4):
        writer.put((b"a" if at < 3 else None, b"%d" % at))
        writer.roll()
    cleaning = bench.manager.compaction.next_to_clean({bench.name: 4})
    (group,) = cleaning.map_keys()
    cleaning.write(group).rename_files(SWAP_SUFFIX)
    log = bench.restart(clean=False)
    assert rows(log) == [(2, b"a", b"2")]
    assert bench.files(SWAP_SUFFIX) == []
    assert [segment.base_offset for segment in log.segments] == [0, 4], "also the one of which nothing is left"


def test_what_was_not_yet_swapped_is_dropped(bench, writer):
    for at in range(4):
        writer.put((b"a", b"%d" % at))
        writer.roll()
    cleaning = bench.manager.compaction.next_to_clean({bench.name: 4})
    (group,) = cleaning.map_keys()
    cleaning.write(group)
    log = bench.restart(clean=False)
    assert len(rows(log)) == 4
    assert bench.files(CLEANED_SUFFIX) == []


_keys = st.sampled_from([None, b"a", b"b", b"c"])
_batches = st.lists(st.tuples(_keys, st.none() | st.binary(max_size=4)), min_size=1, max_size=4)
_steps = st.lists(
    st.one_of(
        st.tuples(st.just("put"), _batches),
        st.tuples(st.just("roll"), st.none()),
        st.tuples(st.just("compact"), st.integers(0, 100)),
        st.tuples(st.just("wait"), st.sampled_from([1, HOUR_MS])),
        st.tuples(st.just("cut"), st.integers(0, 100)),
        st.tuples(st.just("restart"), st.booleans()),
    ),
    max_size=25,
)


@given(steps=_steps)
@hypothesis_settings(max_examples=50, deadline=None)
def test_a_compacted_log_is_its_twin_without_what_later_records_replaced(
    tmp_path_factory, make_bench, keyed_batch, steps
):
    """A dumb twin: all records ever appended and not truncated. Missing ones were replaced, or are old enough."""
    bench = make_bench(tmp_path_factory.mktemp("compaction") / "data")
    bench.settings |= {
        "log.cleanup.policy": "compact",
        "log.cleaner.min.cleanable.ratio": "0",
        "log.cleaner.delete.retention.ms": str(HOUR_MS),
    }
    writer = Writer(bench, keyed_batch)
    twin: list[tuple[int, bytes | None, bytes | None]] = []
    ends: dict[int, int] = {}
    clean_end = 0
    bench.log()
    for name, argument in steps:
        end = bench.log().log_end_offset
        if name == "put":
            writer.put(*argument)
            twin += [(end + at, key, value) for at, (key, value) in enumerate(argument)]
            ends.update((end + at, end + len(argument)) for at in range(len(argument)))
        elif name == "roll":
            writer.roll()
        elif name == "compact":
            found = compact(bench, end * argument // 100)
            assert found is None or found <= end * argument // 100
            clean_end = max(clean_end, found or 0)
        elif name == "wait":
            bench.now_ms += argument
        elif name == "restart":
            bench.restart(clean=argument)
        else:
            target = end * argument // 100
            bench.log().truncate_to(target)
            if target < end:  # whole batches go, also the one that reaches over the target
                twin = [row for row in twin if ends[row[0]] <= target]
            clean_end = min(clean_end, target)
        left = rows(bench.log())
        assert set(left) <= set(twin), "no record is changed or invented"
        for offset, key, value in set(twin) - set(left):
            later = [row for row in twin if row[1] == key and row[0] > offset]
            assert key is None or later or value is None, f"{offset} was the last of its key"
            assert offset < clean_end
    bench.stop(clean=False)
