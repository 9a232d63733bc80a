"""Readers of committed data (KIP-98) beside a dumb twin, through compactions, copies to followers and restarts.

A reader gets batches and the aborted transactions that it must leave out, as a consumer of Kafka's does
(CompletedFetch.nextFetchedRecord); each response stands by itself. It must get every record that is left in the log
and was not aborted, and none that was, wherever it begins and however few bytes it takes at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hypothesis import example, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from tests.examples import examples

from tidegauge.record_batch import iterate_headers
from tidegauge.transaction_marker import Outcome, TransactionMarker, make_marker, read_marker
from tidegauge_broker.formats.records import decode_records
from tidegauge_broker.replica.open_transactions import AbortedTransaction

HOUR_MS = 3_600_000
SETTINGS = {
    "log.cleanup.policy": "compact",
    "log.cleaner.min.cleanable.ratio": "0",
    "log.cleaner.delete.retention.ms": str(HOUR_MS),
    "log.index.interval.bytes": "0",
}


@dataclass
class Story:
    """A log with producers, what they have done to it, and what the twin knows of it."""

    directory: Path
    make_bench: Any
    keyed_batch: Callable[..., bytes]
    copies: int = 0
    sequences: dict[int, int] = field(default_factory=dict)
    open: dict[int, list[int]] = field(default_factory=dict)
    aborted: set[int] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.bench = self.make_bench(self.directory / "data-0", dict(SETTINGS))

    def put(self, producer_id: int, key: int) -> None:
        """Append a record: of producer 0 outside of transactions, of the others in the transaction that is open."""
        if producer_id == 0:
            self.bench.append(self.keyed_batch((b"%d" % key, b"v"), time_ms=self.bench.now_ms))
            return
        sequence = self.sequences.get(producer_id, 0)
        self.sequences[producer_id] = sequence + 1
        header = self.bench.append(
            self.keyed_batch(
                (b"%d" % key, b"v"),
                time_ms=self.bench.now_ms,
                producer_id=producer_id,
                sequence=sequence,
                transactional=True,
            )
        )
        self.open.setdefault(producer_id, []).append(header.base_offset)

    def end(self, producer_id: int, outcome: Outcome) -> None:
        offsets = self.open.pop(producer_id, None)
        if offsets is None:
            return
        self.bench.append(make_marker(TransactionMarker(producer_id, 0, outcome, 0), self.bench.now_ms))
        if outcome is Outcome.ABORT:
            self.aborted.update(offsets)

    def roll(self) -> None:
        log = self.bench.log()
        if log.segments[-1].size_bytes:
            log._roll(log.log_end_offset)

    def compact(self, capacity: int) -> None:
        log = self.bench.log()
        last_stable_offset = min((offsets[0] for offsets in self.open.values()), default=log.log_end_offset)
        cleaning = self.bench.manager.compaction.next_to_clean({self.bench.name: last_stable_offset})
        if cleaning is None:
            return
        cleaning._offsets.capacity = capacity
        for group in cleaning.map_keys():
            assert cleaning.replace(group, cleaning.write(group))
        self.bench.manager.compaction.note_cleaned(cleaning)

    def follow(self, segment_bytes: int) -> None:
        """Copy the log to a follower, which leads from then on; its segments begin elsewhere."""
        self.copies += 1
        copy = self.make_bench(
            self.directory / f"data-{self.copies}",
            {**SETTINGS, "log.segment.bytes": str(segment_bytes)},
            now_ms=self.bench.now_ms,
        )
        log, offset = self.bench.log(), 0
        while data := log.read(offset, log.log_end_offset, 1, at_least_one_batch=True):
            headers = tuple(iterate_headers(data))
            copy.log().append_as_follower(data, headers)
            offset = headers[-1].next_offset
        self.bench.stop(clean=False)
        self.bench = copy


def committed(data: bytes, aborted: Iterable[AbortedTransaction]) -> set[int]:
    """The offsets of the records that a consumer takes out of a response."""
    waiting = sorted(aborted, key=lambda one: one.first_offset)
    left_out: set[int] = set()
    taken: set[int] = set()
    for header in iterate_headers(data):
        while waiting and waiting[0].first_offset <= header.last_offset:
            left_out.add(waiting.pop(0).producer_id)
        if header.is_control:
            marker = read_marker(data, header)
            if marker is not None and marker.outcome is Outcome.ABORT:
                left_out.discard(header.producer_id)
        elif not (header.is_transactional and header.producer_id in left_out):
            batch = data[header.position : header.position + header.size_bytes]
            taken |= {record.offset for record in decode_records(batch)}
    return taken


def check(story: Story, max_bytes: int) -> None:
    log = story.bench.log()
    end = min((offsets[0] for offsets in story.open.values()), default=log.log_end_offset)
    for begin in range(end):
        offset, taken, stored = begin, set(), set()
        while data := log.read(offset, end, max_bytes, at_least_one_batch=True):
            taken |= committed(data, log.aborted_transactions(offset, len(data)))
            for header in iterate_headers(data):
                if not header.is_control:
                    batch = data[header.position : header.position + header.size_bytes]
                    stored |= {record.offset for record in decode_records(batch)}
                offset = header.next_offset
        assert taken == stored - story.aborted, f"from offset {begin}"


_put = st.tuples(st.just("put"), st.integers(0, 2), st.integers(0, 3))
_end = st.tuples(st.just("end"), st.integers(1, 2), st.sampled_from(list(Outcome)))
_anything = st.lists(
    st.one_of(
        _put,
        _put,
        _end,
        st.tuples(st.just("roll")),
        st.tuples(st.just("compact"), st.sampled_from([1, 2, 100])),
        st.tuples(st.just("wait")),
        st.tuples(st.just("follow"), st.sampled_from([80, 200, 400])),
        st.tuples(st.just("restart"), st.booleans()),
    ),
    max_size=30,
)
_copied_behind_a_compaction = st.builds(
    lambda old, new, segment_bytes: [*old, ("roll",), ("compact", 100), *new, ("follow", segment_bytes)],
    st.lists(st.tuples(st.just("put"), st.just(0), st.integers(0, 3)), min_size=5, max_size=9),
    st.lists(_put | _end, min_size=2, max_size=6),
    st.sampled_from([160, 240]),
)

_A_SEGMENT_BEGINS_BEHIND_A_GAP = [
    *(("put", 0, key) for key in (0, 0, 2, 1, 1)),
    ("roll",),
    ("compact", 100),
    ("put", 1, 0),
    ("end", 1, Outcome.ABORT),
    ("follow", 160),
]


@example(steps=_A_SEGMENT_BEGINS_BEHIND_A_GAP, max_bytes=200)
@given(steps=_anything | _copied_behind_a_compaction, max_bytes=st.sampled_from([1, 200, 1 << 20]))
@hypothesis_settings(max_examples=examples(60), deadline=None)
def test_a_reader_gets_all_that_was_committed_and_nothing_that_was_aborted(
    tmp_path_factory, make_bench, keyed_batch, steps, max_bytes
):
    story = Story(tmp_path_factory.mktemp("committed"), make_bench, keyed_batch)
    story.bench.log()
    for name, *arguments in steps:
        if name == "wait":
            story.bench.now_ms += HOUR_MS
        elif name == "restart":
            story.bench.restart(clean=arguments[0])
        else:
            getattr(story, name)(*arguments)
    check(story, max_bytes)
    story.bench.stop(clean=False)
