"""ProducerState (KIP-98): rules 1 to 4 of its docstring, the window, the wrap-around."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from memory_broker import make_batch

from tidegauge.errors import ErrorCode
from tidegauge.record_batch import CONTROL_BIT, MAX_SEQUENCE, BatchHeader, read_header
from tidegauge_broker.replica.producer_state import WINDOW, ProducerState

NONE = ErrorCode.NONE
OUT_OF_ORDER = ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def header(
    sequence: int, count: int = 1, *, epoch: int = 0, offset: int = 0, producer_id: int = 7, time_ms: int = 1000
) -> BatchHeader:
    return BatchHeader(offset, 100, 0, 2, 0, 0, count - 1, time_ms, time_ms, producer_id, epoch, sequence, count, 0)


def state_after(*headers: BatchHeader) -> ProducerState:
    state = ProducerState()
    for one in headers:
        state.update(one)
    return state


def test_without_a_producer_id_everything_goes():
    state = ProducerState()
    plain = read_header(make_batch("a"))
    assert state.check(plain) == (NONE, "", None)
    state.update(plain)
    assert state.entries() == []


def test_an_unknown_producer_may_begin_anywhere():
    """Rule 4: nothing stored, any sequence (its earlier batches may have been deleted by retention)."""
    assert ProducerState().check(header(41, epoch=3)).error is NONE


def test_the_same_batch_again_is_a_duplicate_with_its_first_offset():
    """Rule 1: success with the original offset; there is no error 46."""
    state = state_after(header(0, 3, offset=100), header(3, 2, offset=103))
    check = state.check(header(0, 3, offset=0))
    assert check.error is NONE
    assert check.duplicate is not None
    assert (check.duplicate.base_offset, check.duplicate.last_offset) == (100, 102)


def test_a_duplicate_of_any_epoch_is_one():
    """Rule 1, with an epoch that is read from each batch."""
    first, again = (header(0, 3, epoch=int("30000")) for _ in range(2))
    assert first.producer_epoch is not again.producer_epoch
    assert state_after(first).check(again).duplicate is not None


@pytest.mark.parametrize(("sequence", "count"), [(0, 2), (1, 2), (0, 4), (3, 1)])
def test_a_duplicate_is_equal_in_first_and_last_sequence(sequence: int, count: int):
    """Rule 1: an overlap is no duplicate; it is out of order unless it continues."""
    check = state_after(header(0, 3)).check(header(sequence, count))
    assert check.duplicate is None
    assert check.error is (NONE if sequence == 3 else OUT_OF_ORDER)


def test_the_window_holds_five_batches():
    """Rules 1 and 4: a duplicate older than the last five batches is out of order."""
    state = state_after(*(header(sequence, offset=sequence) for sequence in range(WINDOW + 1)))
    assert state.check(header(0)).error is OUT_OF_ORDER
    for sequence in range(1, WINDOW + 1):
        check = state.check(header(sequence))
        assert check.duplicate is not None
        assert check.duplicate.base_offset == sequence
    assert [len(entry.batches) for entry in state.entries()] == [5]


def test_an_older_epoch_is_refused():
    """Rule 2; a batch of the older epoch that once was appended is no duplicate any more."""
    state = state_after(header(0, epoch=4), header(0, epoch=5))
    assert state.check(header(0, epoch=4)).error is ErrorCode.INVALID_PRODUCER_EPOCH
    assert state.check(header(1, epoch=4)).error is ErrorCode.INVALID_PRODUCER_EPOCH


@pytest.mark.parametrize(("sequence", "error"), [(0, NONE), (1, OUT_OF_ORDER), (3, OUT_OF_ORDER)])
def test_a_newer_epoch_begins_at_sequence_0(sequence: int, error: ErrorCode):
    """Rule 3; (3) would continue the older epoch."""
    assert state_after(header(0, 3, epoch=1)).check(header(sequence, epoch=2)).error is error


def test_a_newer_epoch_forgets_the_batches_of_the_older():
    state = state_after(header(0, 3, epoch=1), header(0, 1, epoch=2))
    (entry,) = state.entries()
    assert (entry.producer_epoch, entry.last_sequence, len(entry.batches)) == (2, 0, 1)


@pytest.mark.parametrize(("sequence", "error"), [(4, OUT_OF_ORDER), (5, NONE), (6, OUT_OF_ORDER)])
def test_the_same_epoch_goes_on_at_the_next_sequence(sequence: int, error: ErrorCode):
    """Rule 4: no gap, no step back."""
    assert state_after(header(3, 2)).check(header(sequence, 3)).error is error


def test_the_sequence_after_the_largest_is_0():
    """Rule 4: 2147483647 is followed by 0."""
    state = state_after(header(MAX_SEQUENCE))
    assert state.check(header(0)).error is NONE
    assert state.check(header(1)).error is OUT_OF_ORDER


def test_a_batch_may_lie_across_the_wrap():
    state = state_after(header(MAX_SEQUENCE - 1, 4, offset=50))
    (entry,) = state.entries()
    assert entry.last_sequence == 1
    assert state.check(header(2)).error is NONE
    assert state.check(header(MAX_SEQUENCE - 1, 4)).duplicate is not None


def test_a_known_producer_without_batches_begins_at_0():
    """ProducerAppendInfo.checkSequence: the last sequence of an entry without batches is -1, the next one 0."""
    state = state_after(header(0))
    (entry,) = state.entries()
    entry.batches.clear()
    assert state.check(header(0)).error is NONE
    assert state.check(header(9)).error is OUT_OF_ORDER


def test_control_batches_are_not_noted():
    state = state_after(header(-1)._replace(attributes=CONTROL_BIT))
    assert state.entries() == []


def test_producers_do_not_touch_each_other():
    state = state_after(header(0, producer_id=1), header(10, producer_id=2))
    assert state.check(header(1, producer_id=1)).error is NONE
    assert state.check(header(11, producer_id=2)).error is NONE
    assert state.check(header(1, producer_id=2)).error is OUT_OF_ORDER


def test_idle_producers_are_forgotten_at_the_bound():
    """producer.id.expiration.ms: idle for that long or longer."""
    state = state_after(header(0, producer_id=1, time_ms=1000), header(0, producer_id=2, time_ms=1001))
    state.expire(now_ms=1500, expiration_ms=500)
    assert [entry.producer_id for entry in state.entries()] == [2]
    assert state.check(header(99, producer_id=1)).error is NONE


def test_a_check_changes_nothing_and_a_snapshot_restores_all():
    state = state_after(header(0, 2, offset=4), header(2, offset=6))
    before = [(entry.producer_id, entry.producer_epoch, list(entry.batches)) for entry in state.entries()]
    for sequence in (0, 3, 9):
        state.check(header(sequence, epoch=1))
    restored = ProducerState.from_entries(state.entries())
    assert [(e.producer_id, e.producer_epoch, list(e.batches)) for e in restored.entries()] == before


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 6), st.integers(1, 3)), max_size=25))
def test_against_a_twin_that_keeps_every_batch(offered: list[tuple[int, int, int]]):
    """Rules 1 to 4 by their wording, over the whole history of appends."""
    state = ProducerState()
    history: list[BatchHeader] = []
    for offset, (epoch, sequence, count) in enumerate(offered):
        batch = header(sequence, count, epoch=epoch, offset=offset * 10)
        check = state.check(batch)
        current = [one for one in history if one.producer_epoch == max(h.producer_epoch for h in history)]
        stored = current[0].producer_epoch if current else None
        same = [
            one
            for one in current[-5:]
            if (one.producer_epoch, one.base_sequence, one.last_sequence) == (epoch, sequence, batch.last_sequence)
        ]
        if same:
            assert check.duplicate is not None
            assert check.duplicate.base_offset in {one.base_offset for one in same}
            continue
        expected = NONE
        if stored is not None and epoch < stored:
            expected = ErrorCode.INVALID_PRODUCER_EPOCH
        elif stored is not None and sequence != (0 if epoch > stored else current[-1].last_sequence + 1):
            expected = OUT_OF_ORDER
        assert (check.error, check.duplicate) == (expected, None)
        if expected is NONE:
            state.update(batch)
            history.append(batch)


def test_the_time_of_a_producer_is_that_of_its_last_batch_also_where_it_is_earlier():
    """Rule 7, ProducerStateEntry.addBatch: find-hanging and expiry go by the records' own time."""
    state = state_after(header(0, time_ms=5_000), header(1, time_ms=2_000))
    assert [one.last_timestamp_ms for one in state.entries()] == [2_000]
    state.expire(now_ms=5_000, expiration_ms=3_000)
    assert state.entries() == []


def test_a_snapshot_s_open_transactions_are_open_again_the_earliest_first():
    """Loading re-opens what a snapshot has open, and nothing of a producer that had nothing open."""
    entries = state_after(*(header(0, producer_id=producer_id) for producer_id in (7, 8, 9))).entries()
    for entry, start in zip(entries, (None, 9, 5), strict=True):
        entry.transaction_start = start
    state = ProducerState.from_entries(entries)
    assert (len(state.transactions), state.transactions.first_unstable_offset(0)) == (2, 5)


def test_a_state_that_is_cleared_knows_no_producer_and_no_transaction():
    state = state_after(header(0))
    state.transactions.open(7, 0)
    state.clear()
    assert (state.entries(), len(state.transactions)) == ([], 0)
