"""The last stable offset (KIP-98): open transactions, and completed ones whose marker is not replicated."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tidegauge_broker.replica.open_transactions import CompletedTransaction, OpenTransactions

Batch = tuple[str, int]


def last_stable_offset(transactions: OpenTransactions, high_watermark: int, log_start_offset: int = 0) -> int:
    first = transactions.first_unstable_offset(log_start_offset)
    return high_watermark if first is None else min(first, high_watermark)


def dumb_twin(batches: list[Batch], high_watermark: int) -> int:
    """By definition: the first offset whose transaction has no marker below the high watermark."""
    for offset, (kind, producer_id) in enumerate(batches[:high_watermark]):
        if kind != "data":
            continue
        marker = next(
            (at for at in range(offset + 1, len(batches)) if batches[at] == ("marker", producer_id)), len(batches)
        )
        if marker >= high_watermark:
            return offset
    return high_watermark


@given(
    st.lists(st.tuples(st.sampled_from(["data", "marker", "plain"]), st.integers(1, 3)), max_size=30),
    st.lists(st.integers(0, 4), min_size=30, max_size=30),
)
def test_the_last_stable_offset_is_that_of_a_dumb_twin(batches: list[Batch], steps: list[int]) -> None:
    """After any appends and moves of the high watermark: no offset is readable whose marker is not."""
    transactions, high_watermark = OpenTransactions(), 0
    for end, ((kind, producer_id), step) in enumerate(zip(batches, steps, strict=False), start=1):
        if kind == "data":
            transactions.open(producer_id, end - 1)
        elif kind == "marker":
            completed = transactions.complete(producer_id, end - 1)
            if completed is not None:
                transactions.hold(completed)
        high_watermark = min(high_watermark + step, end)
        transactions.replicated(high_watermark)
        assert last_stable_offset(transactions, high_watermark) == dumb_twin(batches[:end], high_watermark)


def test_a_marker_at_the_high_watermark_is_not_replicated_yet():
    """ProducerStateManager.onHighWatermarkUpdated: dropped when the marker's offset is below it."""
    transactions = OpenTransactions()
    transactions.open(1, 5)
    completed = transactions.complete(1, 7)
    assert completed == CompletedTransaction(5, 7, 1)
    transactions.hold(completed)
    transactions.replicated(7)
    assert last_stable_offset(transactions, 7) == 5
    transactions.replicated(8)
    assert last_stable_offset(transactions, 8) == 8


def test_one_open_transaction_holds_all_that_commit_after_it():
    transactions = OpenTransactions()
    transactions.open(1, 0)
    for producer_id in range(2, 9):
        transactions.open(producer_id, producer_id)
        assert transactions.complete(producer_id, producer_id + 10) is not None
    assert last_stable_offset(transactions, 100) == 0


def test_the_first_unstable_offset_is_not_below_the_log_start():
    """UnifiedLog.maybeIncrementFirstUnstableOffset: deleted records hold no reader."""
    transactions = OpenTransactions()
    transactions.open(1, 3)
    assert transactions.first_unstable_offset(9) == 9


def test_a_marker_without_data_completes_nothing():
    assert OpenTransactions().complete(1, 4) is None


def test_a_copy_goes_its_own_way():
    transactions = OpenTransactions()
    transactions.open(1, 3)
    copy = transactions.copy()
    copy.complete(1, 4)
    assert transactions.first_unstable_offset(0) == 3
    assert not copy


def test_a_copy_has_what_is_completed_and_not_replicated():
    """After a load readers still wait for transactions whose marker is not below the high watermark."""
    transactions = OpenTransactions()
    transactions.open(1, 3)
    completed = transactions.complete(1, 4)
    assert completed is not None
    transactions.hold(completed)
    copy = transactions.copy()
    transactions.replicated(5)
    assert (transactions.first_unstable_offset(0), copy.first_unstable_offset(0)) == (None, 3)
