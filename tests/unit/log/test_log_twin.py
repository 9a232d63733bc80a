"""The log against a dumb twin: a list of batches. Append, truncate, start again, read, flush, stop, kill, reopen."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import NamedTuple

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import examples

from tidegauge.record_batch import BatchHeader, iterate_headers, patch, read_header

SIZES = (1, 2, 5, 20)
_cache: dict[tuple[int, int, int], bytes] = {}


class Held(NamedTuple):
    """One batch of the twin."""

    header: BatchHeader
    data: bytes


class Twin:
    """The expected content of the log."""

    def __init__(self):
        self.batches: list[Held] = []
        self.start = self.end = 0

    def append(self, data):
        self.batches += [Held(header, data[header.position :][: header.size_bytes]) for header in iterate_headers(data)]
        self.end = self.batches[-1].header.next_offset

    def truncate_to(self, offset):
        self.batches = [held for held in self.batches if held.header.last_offset < offset]
        self.start, self.end = min(self.start, offset), offset

    def truncate_fully(self, offset):
        self.batches, self.start, self.end = [], offset, offset

    def read(self, from_offset, bound, max_bytes):
        """All that a read may give; the log may stop earlier, at a segment's end."""
        found, size = [], 0
        for held in self.batches:
            if held.header.last_offset < from_offset:
                continue
            size += held.header.size_bytes
            if held.header.last_offset >= bound or (found and size > max_bytes):
                break
            found.append(held.data)
        return b"".join(found)

    def producers(self):
        newest = {}
        for held in self.batches:
            if held.header.producer_id >= 0:
                newest[held.header.producer_id] = (held.header.producer_epoch, held.header.last_sequence)
        return newest


def numbered(batch, count, producer, base_offset, epoch):
    """A batch of the right size with its offset set; building them is slow, so they are kept."""
    key = (count, producer, base_offset % 1000)
    if key not in _cache:
        sequence = -1 if producer < 0 else base_offset % 1000
        _cache[key] = batch(count, producer_id=producer, sequence=sequence, time_ms=1_700_000_000_000 + base_offset)
    data = bytearray(_cache[key])
    patch(data, 0, base_offset, epoch)
    return bytes(data)


STEP = st.one_of(
    st.tuples(st.just("leader"), st.sampled_from(SIZES), st.integers(-1, 2)),
    st.tuples(st.just("leader"), st.sampled_from(SIZES), st.integers(-1, 2)),
    st.tuples(st.just("follower"), st.lists(st.sampled_from(SIZES), min_size=1, max_size=6), st.integers(-1, 2)),
    st.tuples(st.just("read"), st.floats(0, 1), st.floats(0, 1), st.sampled_from((0, 100, 400, 5000))),
    st.tuples(st.just("read"), st.floats(0, 1), st.floats(0, 1), st.sampled_from((0, 100, 400, 5000))),
    st.tuples(st.just("truncate"), st.floats(0, 1)),
    st.tuples(st.just("fully"), st.integers(0, 50)),
    st.tuples(st.just("flush")),
    st.tuples(st.just("reopen"), st.booleans()),
)


@settings(max_examples=examples(120), deadline=None)
@given(
    steps=st.lists(STEP, max_size=25),
    segment_bytes=st.sampled_from((150, 1000, 1 << 20)),
    interval=st.sampled_from((0, 100, 4096)),
)
def test_the_log_is_a_list_of_batches(make_bench, batch, steps, segment_bytes, interval):
    with tempfile.TemporaryDirectory() as directory:
        bench = make_bench(Path(directory))
        bench.settings = {"log.segment.bytes": str(segment_bytes), "log.index.interval.bytes": str(interval)}
        twin = Twin()
        try:
            for step in steps:
                play(bench, twin, batch, step)
                log = bench.log()
                assert (log.log_start_offset, log.log_end_offset) == (twin.start, twin.end), step
                assert log.size_bytes == sum(held.header.size_bytes for held in twin.batches)
                assert log.recovery_point <= log.log_end_offset
                assert whole(log) == b"".join(held.data for held in twin.batches)
                found = {e.producer_id: (e.producer_epoch, e.last_sequence) for e in log.producer_state.entries()}
                assert found == twin.producers()
        finally:
            bench.stop(clean=False)


def play(bench, twin, batch, step):
    log = bench.log()
    match step:
        case ("leader", count, producer):
            data = numbered(batch, count, producer, twin.end, 3)
            log.append_as_leader(data, read_header(data))
            twin.append(data)
        case ("follower", counts, producer):
            data, at = b"", twin.end
            for count in counts:
                data += numbered(batch, count, producer, at, 3)
                at += count
            log.append_as_follower(data, list(iterate_headers(data)))
            twin.append(data)
        case ("read", low, high, max_bytes):
            span = twin.end - twin.start
            from_offset = twin.start + int(low * span)
            bound = from_offset + int(high * (twin.end - from_offset + 1))
            check_read(log, twin, from_offset, bound, max_bytes)
        case ("truncate", share):
            offset = twin.start + int(share * (twin.end - twin.start))
            if offset < twin.end:
                log.truncate_to(offset)
                twin.truncate_to(offset)
        case ("fully", offset):
            log.truncate_fully(offset)
            twin.truncate_fully(offset)
        case ("flush",):
            log.flush()
            assert log.recovery_point == twin.end
        case ("reopen", clean):
            # A gap that a truncation inside a batch left at the end is not on disk, as in Kafka.
            twin.end = twin.batches[-1].header.next_offset if twin.batches else log.segments[-1].base_offset
            bench.restart(clean=clean)


def check_read(log, twin, from_offset, bound, max_bytes):
    expected = twin.read(from_offset, bound, max_bytes)
    found = log.read(from_offset, bound, max_bytes, at_least_one_batch=True)
    assert expected.startswith(found)
    assert bool(found) == bool(expected)
    strict = log.read(from_offset, bound, max_bytes, at_least_one_batch=False)
    assert strict == (found if len(found) <= max_bytes else b"")
    exact = sum(
        h.header.size_bytes
        for h in twin.batches
        if h.header.last_offset >= from_offset and h.header.last_offset < bound
    )
    assert log.bytes_between(from_offset, bound) == (exact if from_offset < bound else 0)


def whole(log):
    parts, at = [], log.log_start_offset
    while data := log.read(at, log.log_end_offset, 1 << 20, at_least_one_batch=True):
        parts.append(data)
        at = list(iterate_headers(data))[-1].next_offset
    return b"".join(parts)
