"""EpochCache (LeaderEpochFileCache; invariant I3): a table of cases, and a dumb twin that only knows sets.

Holds: the assign rule with replacement of equal starts, endOffsetFor cases 1 to 5, truncation at both ends.
"""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidegauge_broker.replica.epoch_cache import EpochCache
from tidegauge_broker.replica.messages import UNDEFINED_EPOCH_END, EpochEnd, EpochEntry


def cache_of(*entries: tuple[int, int]) -> EpochCache:
    return EpochCache(EpochEntry(*entry) for entry in entries)


class Twin:
    """The same by its definition: an unordered set of pairs, searched again for each question."""

    def __init__(self) -> None:
        self.starts: dict[int, int] = {}

    def assign(self, epoch: int, start: int) -> None:
        if self.starts:
            latest = max(self.starts)
            if epoch == latest and start >= self.starts[latest]:
                return
        self.starts = {e: s for e, s in self.starts.items() if e < epoch and s < start}
        self.starts[epoch] = start

    def end_offset_for(self, epoch: int, log_end_offset: int) -> EpochEnd:
        if epoch == -1 or not self.starts:
            return UNDEFINED_EPOCH_END
        if epoch == max(self.starts):
            return EpochEnd(epoch, log_end_offset)
        higher = {e for e in self.starts if e > epoch}
        lower_or_same = {e for e in self.starts if e <= epoch}
        if not higher:
            return UNDEFINED_EPOCH_END
        if not lower_or_same:
            return EpochEnd(epoch, min(self.starts.values()))
        return EpochEnd(max(lower_or_same), self.starts[min(higher)])

    def truncate_from_end(self, end: int) -> None:
        self.starts = {e: s for e, s in self.starts.items() if s < end}

    def truncate_from_start(self, start: int) -> None:
        removed = {e for e, s in self.starts.items() if s <= start}
        self.starts = {e: s for e, s in self.starts.items() if s > start}
        if removed:
            self.starts[max(removed)] = start


@pytest.mark.parametrize(
    ("before", "assign", "after"),
    [
        ([], (3, 10), [(3, 10)]),
        ([(0, 0)], (1, 5), [(0, 0), (1, 5)]),
        ([(0, 0), (1, 5)], (1, 7), [(0, 0), (1, 5)]),  # the latest epoch again, further on: nothing
        ([(0, 0), (1, 5)], (1, 3), [(0, 0), (1, 3)]),  # the latest epoch, but earlier
        ([(0, 0), (1, 5)], (2, 5), [(0, 0), (2, 5)]),  # equal start: epoch 1 had no record, it is replaced
        ([(0, 0)], (4, 0), [(4, 0)]),
        ([(0, 0), (2, 5), (3, 7)], (1, 6), [(0, 0), (1, 6)]),  # lower epoch removes higher ones
        ([(0, 0), (2, 5), (3, 7)], (4, 2), [(0, 0), (4, 2)]),  # lower start removes what begins later
    ],
)
def test_assign(before: list[tuple[int, int]], assign: tuple[int, int], after: list[tuple[int, int]]):
    cache = cache_of(*before)
    changed = cache.assign(*assign)
    assert cache.entries == after
    assert changed == (before != after)


@pytest.mark.parametrize("illegal", [(-1, 0), (0, -1)])
def test_negative_values_are_illegal(illegal: tuple[int, int]):
    with pytest.raises(AssertionError):
        cache_of().assign(*illegal)


@pytest.mark.parametrize(
    ("asked", "response"),
    [
        (-1, (-1, -1)),  # case 1: no epoch
        (7, (7, 30)),  # case 2: the latest goes to the log's end
        (8, (-1, -1)),  # case 3: newer than all that is known
        (-2, (-2, 10)),  # no epoch is negative, but -1 alone stands for none
        (1, (1, 10)),  # case 4: older than all: the asked epoch with the first start
        (2, (2, 20)),  # case 5: known: up to the next one's start
        (3, (2, 20)),  # case 5: unknown, in between: the largest below it (KIP-279)
        (5, (5, 25)),
        (6, (5, 25)),
    ],
)
def test_end_offset_for(asked: int, response: tuple[int, int]):
    assert cache_of((2, 10), (5, 20), (7, 25)).end_offset_for(asked, 30) == response


def test_an_empty_cache_knows_no_end():
    assert cache_of().end_offset_for(0, 30).is_undefined


def test_an_epoch_without_records_ends_where_it_begins():
    """KAFKA-7415: a leader notes its epoch at election, and returns it before its first append."""
    cache = cache_of((0, 0), (3, 10))
    assert cache.end_offset_for(3, 10) == (3, 10)
    assert cache.end_offset_for(2, 10) == (0, 10)


def test_truncation_reports_whether_something_changed():
    cache = cache_of((0, 0), (2, 10))
    assert not cache.truncate_from_end(11)
    assert cache.truncate_from_end(10)
    assert cache.entries == [(0, 0)]
    assert not cache.truncate_from_start(0)
    assert cache.truncate_from_start(4)
    assert cache.entries == [(0, 4)]
    assert cache.clear()
    assert not cache.clear()


EPOCHS = st.integers(0, 8)
OFFSETS = st.integers(0, 12)
OPERATIONS = st.lists(
    st.one_of(
        st.tuples(st.just("assign"), EPOCHS, OFFSETS),
        st.tuples(st.just("truncate_from_end"), OFFSETS),
        st.tuples(st.just("truncate_from_start"), OFFSETS),
    ),
    max_size=12,
)


@settings(max_examples=150, deadline=None)
@given(OPERATIONS)
def test_the_cache_does_what_its_twin_does(operations: list[tuple[str, int]]):
    cache, twin = EpochCache(), Twin()
    for name, *arguments in operations:
        before = cache.entries
        changed = getattr(cache, name)(*arguments)
        getattr(twin, name)(*arguments)
        assert cache.entries == sorted(twin.starts.items())
        assert changed == (cache.entries != before)
        for one, other in pairwise(cache.entries):
            assert one.epoch < other.epoch
            assert one.start_offset < other.start_offset
        assert cache.latest_epoch == max(twin.starts, default=None)
        for asked in range(-1, 10):
            assert cache.end_offset_for(asked, 20) == twin.end_offset_for(asked, 20)
    assert EpochCache(cache.entries).entries == cache.entries


@settings(max_examples=100, deadline=None)
@given(st.lists(EPOCHS, min_size=1, max_size=20))
def test_a_known_epoch_ends_at_the_first_record_of_a_later_one(epochs: list[int]):
    """The cache's purpose: it gives the same result as a look at every record."""
    records = sorted(epochs)
    cache = EpochCache()
    for offset, epoch in enumerate(records):
        cache.assign(epoch, offset)
    for epoch in records:
        later = [offset for offset, other in enumerate(records) if other > epoch]
        assert cache.end_offset_for(epoch, len(records)) == (epoch, min(later, default=len(records)))


def test_the_epoch_of_an_offset_is_that_which_began_last_at_or_below_it() -> None:
    """LeaderEpochFileCache.epochForOffset."""
    cache = cache_of((3, 10), (5, 20))
    assert [cache.epoch_at(offset) for offset in (9, 10, 19, 20, 99)] == [None, 3, 3, 5, 5]
    assert EpochCache().epoch_at(0) is None
