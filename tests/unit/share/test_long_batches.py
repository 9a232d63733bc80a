"""The cost of a batch depends on how its records differ, not on how many offsets it has.

A producer's batch of 1 MB may have millions of records, and a state that is read back may name any offsets: anyone who
may write to the share coordinator, or to ``__share_group_state``, can make one up. Offsets here are so many that each
step would never end, or would take gigabytes, if it looked at them one by one.
"""

from __future__ import annotations

import pytest
from tests.unit.share.driver import ACCEPT, LOCK_MS, REJECT, RELEASE, RENEW, Driver, log_of

from tidegauge.errors import ErrorCode
from tidegauge.share_groups import StateBatch
from tidegauge_broker.share.acquiring import AbortedTransaction, LogBatch
from tidegauge_broker.share.settings import AcquireMode, ShareSettings

LAST = 2**62 - 1
SETTINGS = ShareSettings(record_lock_duration_ms=LOCK_MS)


def long_batch() -> Driver:
    return Driver([LogBatch(0, LAST)], SETTINGS)


def runs(share: Driver) -> list[tuple[int, int, int, int]]:
    """First offset, last offset, state and delivery count of all runs in flight."""
    return [
        (first, last, int(delivery.state), delivery.delivery_count)
        for batch in share.share.window.in_flight
        for first, last, delivery in batch.runs()
    ]


def test_one_record_of_a_long_batch_is_acknowledged() -> None:
    share = long_batch()
    assert share.fetch() == [(0, LAST, 1)]
    assert share.acknowledge(5, 5, ACCEPT) is ErrorCode.NONE
    assert runs(share) == [(0, 4, 1, 1), (5, 5, 2, 1), (6, LAST, 1, 1)]
    assert share.last_write == (0, 1, [(5, 5, 2, 1)])


def test_ranges_of_a_long_batch_are_acknowledged_in_any_order() -> None:
    share = long_batch()
    share.fetch()
    assert share.acknowledge(10, LAST, REJECT) is ErrorCode.NONE
    assert share.acknowledge(0, 3, ACCEPT, ACCEPT, RELEASE, RELEASE) is ErrorCode.NONE
    assert share.share.window.start_offset == 2
    assert share.acknowledge(0, LAST, ACCEPT) is ErrorCode.INVALID_RECORD_STATE
    assert share.fetch("b") == [(2, 3, 2)]
    assert share.acknowledge(4, 9, ACCEPT) is ErrorCode.NONE
    assert share.acknowledge(2, 3, ACCEPT, member="b") is ErrorCode.NONE
    assert share.share.window.start_offset == LAST + 1


def test_a_transition_is_taken_back_in_all_its_parts() -> None:
    """A batch is divided while a release of it is being written, because the log start has moved into it."""
    share = long_batch()
    share.fetch()
    share.acknowledge(1, 1, ACCEPT)
    share.holds = True
    share.release()
    share.share.log_start_moved(1000)
    share.written(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    assert runs(share)[-1] == (1000, LAST, 1, 1)
    share.holds = False
    share.pass_ms(LOCK_MS)
    assert share.fetch("b") == [(1000, LAST, 2)]


def test_the_locks_of_a_long_batch_time_out() -> None:
    share = long_batch()
    share.fetch()
    share.acknowledge(7, 7, ACCEPT)
    share.now_ms += LOCK_MS // 2
    assert share.acknowledge(8, 9, RENEW) is ErrorCode.NONE
    share.pass_ms(LOCK_MS // 2)
    assert runs(share) == [(0, 6, 0, 1), (7, 7, 2, 1), (8, 9, 1, 1), (10, LAST, 0, 1)]
    share.pass_ms(LOCK_MS)
    assert share.fetch("b") == [(0, 6, 2), (8, LAST, 2)]


def test_a_session_ends_that_has_a_long_batch() -> None:
    share = long_batch()
    share.fetch()
    share.acknowledge(7, 7, ACCEPT)
    share.share.log_start_moved(100)
    share.release()
    assert runs(share)[-1] == (100, LAST, 0, 1)
    assert share.fetch("b")[-1] == (100, LAST, 2)


def test_a_maximum_of_records_divides_a_long_batch() -> None:
    share = long_batch()
    assert share.fetch(max_records=3, mode=AcquireMode.RECORD_LIMIT) == [(0, 2, 1)]
    assert share.fetch("b", max_records=4, mode=AcquireMode.RECORD_LIMIT) == [(3, 6, 1)]
    assert runs(share) == [(0, 2, 1, 1), (3, 6, 1, 1), (7, LAST, 0, 0)]


def test_records_that_were_delivered_often_are_delivered_with_fewer_others() -> None:
    """The fourth time half of the batch, the fifth and last time one record: as of a short batch."""
    for share, size in ((long_batch(), LAST + 1), (Driver(log_of(64), SETTINGS), 64)):
        sizes = []
        for _ in range(5):
            (first, last, _), *_ = share.fetch(max_records=2**63)
            sizes.append(last - first + 1)
            share.acknowledge(first, last, RELEASE)
        assert sizes == [size, size, size, size // 2, 1]


@pytest.mark.parametrize("last", [9, LAST], ids=["short", "long"])
def test_records_of_an_aborted_transaction_are_archived(last: int) -> None:
    log = [LogBatch(0, 4), LogBatch(5, last - 2, 7, is_transactional=True), LogBatch(last - 1, last)]
    settings = ShareSettings(record_lock_duration_ms=LOCK_MS, reads_committed=True, max_record_locks=2**63)
    share = Driver(log, settings, aborted=[AbortedTransaction(7, 5)])
    assert share.fetch(max_records=2**63, batch_size=2**63) == [(0, 4, 1), (last - 1, last, 1)]


def test_a_state_that_names_all_offsets_is_served() -> None:
    """Its records are delivered as far as there are any, and the log goes on behind them."""
    share = Driver(log_of(10), SETTINGS, state=[StateBatch(0, LAST, 0, 1)])
    assert share.fetch() == [(0, 9, 2)]
    assert share.acknowledge(0, 9, ACCEPT) is ErrorCode.NONE
    assert share.share.window.start_offset == 10
