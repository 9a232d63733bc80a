"""The rules of a share partition at its leader (KIP-932), one test for each."""

import pytest
from tests.unit.share.driver import ACCEPT, LOCK_MS, REJECT, RELEASE, RENEW, Driver, log_of

from tidegauge.errors import ErrorCode
from tidegauge.share_groups import StateBatch
from tidegauge_broker.share.acquiring import AbortedTransaction, LogBatch, Read, Wanted
from tidegauge_broker.share.effects import Dropped, FindStartOffset, Opened, ReadState, Respond, WriteState
from tidegauge_broker.share.partition import PartitionState, SharePartition
from tidegauge_broker.share.settings import AcquireMode, ShareSettings

EXACT = AcquireMode.RECORD_LIMIT


def settings(**changes):
    return ShareSettings(**({"record_lock_duration_ms": LOCK_MS} | changes))


# Loading


def test_the_read_of_the_state_carries_the_leader_epoch_which_fences_former_leaders():
    share = SharePartition(7, settings())
    assert share.initialize() == [ReadState(7)]
    assert share.initialize() == []
    assert not share.can_acquire()


def test_a_state_without_start_offset_begins_where_the_group_resets_to():
    share = SharePartition(0, settings(auto_offset_reset="earliest"))
    share.initialize()
    assert share.state_read(ErrorCode.NONE, state_epoch=4) == [FindStartOffset("earliest")]
    assert share.start_offset_found(ErrorCode.NONE, 17) == [Opened()]
    assert share.next_fetch_offset() == 17


@pytest.mark.parametrize(
    ("error", "shown"),
    [
        (ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.NOT_LEADER_OR_FOLLOWER),
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (ErrorCode.INVALID_REQUEST, ErrorCode.UNKNOWN_SERVER_ERROR),
    ],
)
def test_a_state_that_cannot_be_read_fails_the_fetches_that_wait_and_is_read_again_by_the_next(error, shown):
    share = SharePartition(0, settings())
    share.initialize()
    assert share.state_read(error, "why") == [Opened(shown, "why"), Dropped()]
    assert share.state is PartitionState.FAILED
    assert not share.can_acquire()


@pytest.mark.parametrize(
    "batches",
    [
        [StateBatch(0, 4, 1, 1)],
        [StateBatch(0, 4, 3, 1)],
        [StateBatch(0, 4, 77, 1)],
        [StateBatch(5, 4, 0, 1)],
        [StateBatch(0, 4, 0, 1), StateBatch(4, 6, 0, 1)],
        [StateBatch(0, 4, 0, 1)],
        [StateBatch(0, 4, 0, -1)],
        [StateBatch(0, 4, 0, 2**15 - 1)],
        [StateBatch(0, 2**63 - 1, 0, 1)],
    ],
)
def test_a_state_that_makes_no_sense_fails_its_partition_with_a_sentence(batches):
    share = SharePartition(0, settings())
    share.initialize()
    start_offset = 0 if batches != [StateBatch(0, 4, 0, 1)] else 1
    opened, dropped = share.state_read(ErrorCode.NONE, None, 1, start_offset, batches)
    assert opened.error is ErrorCode.UNKNOWN_SERVER_ERROR
    assert "share group state" in opened.message
    assert dropped == Dropped()


def test_what_a_former_leader_had_acquired_is_available_with_the_count_that_was_written():
    """A delivery that was neither acknowledged nor released is not counted by the next leader."""
    state = [StateBatch(0, 4, 2, 1), StateBatch(5, 9, 0, 1)]
    share = Driver(log_of(10), state=state)
    assert share.share.window.start_offset == 5
    assert share.fetch() == [(5, 9, 2)]


def test_holes_of_a_state_are_acquired_once():
    """Their records were acquired, and not acknowledged, under a former leader: SharePartition.GapWindow."""
    state = [StateBatch(10, 19, 2, 1), StateBatch(30, 39, 2, 1)]
    share = Driver(log_of(10, 10, 10, 10, 10), state=state)
    assert share.fetch(max_records=10) == [(0, 9, 1)]
    assert share.fetch(max_records=10) == [(20, 29, 1)]
    assert share.share.window.start_offset == 0
    assert share.acknowledge(0, 9, ACCEPT) is ErrorCode.NONE
    assert share.share.window.start_offset == 20
    assert share.fetch() == [(40, 49, 1)]
    assert share.acknowledge(20, 29, ACCEPT) is ErrorCode.NONE
    assert share.share.window.start_offset == 40


def test_a_batch_that_begins_below_the_start_offset_does_not_move_it_back():
    """The start offset never falls: a state that begins inside a batch of the log."""
    share = Driver(log_of(10, 10), start_offset=5, state=[StateBatch(12, 13, 2, 1)])
    assert share.fetch(max_records=3) == [(5, 9, 1)]
    assert share.share.window.start_offset == 5


# Acquisition


def test_records_are_acquired_in_batches_of_the_log_beyond_the_maximum():
    share = Driver(log_of(10, 10, 10))
    assert share.fetch(max_records=15, batch_size=100) == [(0, 19, 1)]


def test_a_record_limit_is_exact_and_the_rest_of_the_batch_stays_available():
    share = Driver(log_of(10))
    assert share.fetch(max_records=3, mode=EXACT) == [(0, 2, 1)]
    assert share.fetch("b", max_records=4, mode=EXACT) == [(3, 6, 1)]
    assert share.states()[9] == (0, 0)


def test_acquired_records_are_divided_where_batches_begin_into_parts_of_the_batch_size():
    share = Driver(log_of(3, 3, 3, 3))
    assert share.fetch(batch_size=4) == [(0, 5, 1), (6, 11, 1)]


def test_a_record_has_one_owner():
    share = Driver(log_of(10))
    share.fetch("a")
    assert share.fetch("b") == []


def test_a_full_window_gives_only_what_is_inside_it():
    """group.share.partition.max.record.locks: records behind an unfinished one count."""
    share = Driver(log_of(*(10,) * 5), settings(max_record_locks=20))
    assert share.fetch(batch_size=10) == [(0, 9, 1), (10, 19, 1)]
    assert share.acknowledge(10, 19, ACCEPT) is ErrorCode.NONE
    assert share.fetch() == []
    assert share.acknowledge(0, 4, RELEASE) is ErrorCode.NONE
    assert share.fetch() == [(0, 4, 2)]
    assert share.acknowledge(0, 9, ACCEPT) is ErrorCode.NONE
    assert share.fetch() == [(20, 39, 1)]


def test_a_batch_that_compaction_has_removed_is_archived_so_that_the_start_may_move():
    share = Driver(log_of(5, 5, 5))
    share.fetch(batch_size=5)
    assert share.acknowledge(0, 14, RELEASE) is ErrorCode.NONE
    share.log = share.log[1:]
    assert share.fetch(batch_size=5) == [(5, 9, 2), (10, 14, 2)]
    assert {share.states()[offset] for offset in range(5)} == {(4, 1)}
    assert share.acknowledge(5, 9, ACCEPT) is ErrorCode.NONE
    assert share.share.window.start_offset == 10


def test_a_window_that_is_empty_begins_where_the_log_does():
    share = Driver([LogBatch(10, 19)])
    assert share.fetch() == [(10, 19, 1)]
    assert share.share.window.start_offset == 10


def test_fetches_of_a_partition_that_is_fenced_acquire_nothing():
    share = Driver(log_of(10))
    assert share.share.fence() == [Dropped()]
    assert share.share.fence() == []
    assert share.fetch() == []
    assert share.acknowledge(0, 9, ACCEPT) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_read_without_batches_or_a_member_that_wants_nothing_acquires_nothing():
    share = Driver(log_of(10))
    assert share.share.acquire("a", Read(0, ()), Wanted(10, 10), 0) == []
    assert share.fetch(max_records=0) == []


def test_a_read_that_ends_below_the_start_offset_acquires_nothing():
    """The start has moved while the log was read."""
    share = Driver(log_of(10, 10), start_offset=15)
    read = Read(0, log_of(10))
    assert share.share.acquire("a", read, Wanted(10, 10), share.now_ms) == []
    assert share.share.window.start_offset == 15


def test_a_read_below_the_start_offset_acquires_nothing_beside_records_that_a_member_still_has():
    """The check of lastBatch.lastOffset() in SharePartition.acquire: a floor batch does not excuse it."""
    share = Driver(log_of(10, 10, 10, 10))
    assert share.fetch(max_records=10, batch_size=10) == [(0, 9, 1)]
    share.share.log_start_moved(20)
    read = Read(10, [LogBatch(10, 19)])
    assert share.share.acquire("b", read, Wanted(10, 10), share.now_ms) == []
    assert list(share.states()) == list(range(10))
    assert share.fetch("b") == [(20, 39, 1)]


def test_holes_of_a_state_are_acquired_up_to_the_batch_behind_them():
    """A batch of the log that reaches from a hole into records in flight is not acquired as a whole."""
    share = Driver(log_of(20), state=[StateBatch(15, 19, 0, 1)])
    assert share.fetch(max_records=1) == [(0, 14, 1)]
    assert share.fetch(max_records=5) == [(15, 19, 2)]


def deliver_and_release(share, *offsets, times):
    for _ in range(times):
        share.fetch(max_records=1000)
        for offset in offsets:
            assert share.acknowledge(offset, offset, RELEASE) is ErrorCode.NONE


def test_a_record_that_was_delivered_often_is_not_delivered_beside_others():
    """KIP-932, "Delivery counts": half of the limit, and two at least."""
    share = Driver(log_of(1, 5), settings(delivery_count_limit=5))
    share.fetch(max_records=6, batch_size=1)
    assert share.acknowledge(0, 0, RELEASE) is ErrorCode.NONE
    deliver_and_release(share, 0, times=1)
    assert share.acknowledge(1, 5, RELEASE) is ErrorCode.NONE
    for _ in range(2):
        assert share.fetch(max_records=1, mode=EXACT)[0][0] == 0
        assert share.acknowledge(0, 0, RELEASE) is ErrorCode.NONE
    assert share.states()[0] == (0, 4)
    assert share.fetch() == [(0, 0, 5)]
    assert share.fetch() == [(1, 5, 2)]


def test_records_that_come_before_one_near_its_limit_are_delivered_without_it():
    share = Driver(log_of(1, 1), settings(delivery_count_limit=5))
    share.fetch(batch_size=1)
    for _ in range(3):
        assert share.acknowledge(1, 1, RELEASE) is ErrorCode.NONE
        share.fetch(batch_size=1)
    assert share.acknowledge(1, 1, RELEASE) is ErrorCode.NONE
    assert share.acknowledge(0, 0, RELEASE) is ErrorCode.NONE
    assert share.fetch() == [(0, 0, 2)]
    assert share.fetch() == [(1, 1, 5)]


def test_a_record_delivered_often_behind_more_than_half_of_its_batch_holds_none_back():
    """Kafka stops at exactly half of the batch, and that is passed before the record (acquireSubsetBatchRecords)."""
    share = Driver(log_of(8), settings(delivery_count_limit=5))
    share.fetch()
    for count in (2, 3):
        assert share.acknowledge(6, 6, RELEASE) is ErrorCode.NONE
        assert share.fetch() == [(6, 6, count)]
    for first, last in ((0, 5), (6, 6), (7, 7)):
        assert share.acknowledge(first, last, RELEASE) is ErrorCode.NONE
    assert share.fetch() == [(0, 5, 2), (6, 6, 4), (7, 7, 2)]


def test_the_last_delivery_of_a_record_is_made_alone():
    share = Driver(log_of(4), settings(delivery_count_limit=3))
    share.fetch()
    for _ in range(2):
        assert share.acknowledge(2, 2, RELEASE) is ErrorCode.NONE
        if share.states()[2][1] < 2:
            assert share.fetch() == [(2, 2, 2)]
    assert share.acknowledge(1, 1, RELEASE) is ErrorCode.NONE
    assert share.fetch() == [(1, 1, 2)]
    assert share.fetch() == [(2, 2, 3)]


# read_committed


def test_records_of_aborted_transactions_are_archived_and_markers_acquired():
    """share.isolation.level=read_committed: 0 to 2 committed, 3 a marker, 4 to 6 aborted, 7 their marker."""
    log = [
        LogBatch(0, 2, 7, is_transactional=True),
        LogBatch(3, 3, 7, is_transactional=True),
        LogBatch(4, 6, 8, is_transactional=True),
        LogBatch(7, 7, 8, is_transactional=True, is_abort_marker=True),
    ]
    share = Driver(log, settings(reads_committed=True), aborted=[AbortedTransaction(8, 4)])
    assert share.fetch() == [(0, 3, 1), (7, 7, 1)]
    assert share.acknowledge(0, 3, ACCEPT) is ErrorCode.NONE
    assert share.last_write[:2] == (0, 7)
    assert share.share.window.start_offset == 7


def test_read_uncommitted_delivers_aborted_records():
    log = [LogBatch(0, 2, 8, is_transactional=True), LogBatch(3, 3, 8, is_transactional=True, is_abort_marker=True)]
    share = Driver(log, settings(), aborted=[AbortedTransaction(8, 0)])
    assert share.fetch() == [(0, 3, 1)]


def test_a_transaction_of_the_same_producer_after_the_aborted_one_is_delivered():
    log = [
        LogBatch(0, 1, 8, is_transactional=True),
        LogBatch(2, 2, 8, is_transactional=True, is_abort_marker=True),
        LogBatch(3, 4, 8, is_transactional=True),
        LogBatch(5, 6),
    ]
    share = Driver(log, settings(reads_committed=True), aborted=[AbortedTransaction(8, 0)])
    assert share.fetch() == [(2, 6, 1)]


# Acknowledgement


def test_an_acknowledgement_counts_when_it_is_written_and_not_before():
    share = Driver(log_of(10))
    share.fetch()
    share.holds = True
    assert share.acknowledge(0, 9, ACCEPT) is None
    assert share.share.window.start_offset == 0
    assert share.acknowledge(0, 9, ACCEPT) is ErrorCode.INVALID_RECORD_STATE
    share.written()
    assert share.responses[1] == (ErrorCode.NONE, None)
    assert share.share.window.start_offset == 10


def test_a_release_is_not_delivered_again_before_it_is_written():
    share = Driver(log_of(10))
    share.fetch()
    share.holds = True
    share.acknowledge(0, 9, RELEASE)
    assert share.fetch("b") == []
    share.written()
    assert share.fetch("b") == [(0, 9, 2)]


def test_a_failed_write_gives_records_back_to_their_member():
    share = Driver(log_of(10))
    share.fetch()
    share.holds = True
    share.acknowledge(0, 9, ACCEPT)
    share.written(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    assert share.responses[1][0] is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert share.share.window.complete_count == 0
    share.holds = False
    assert share.acknowledge(0, 9, ACCEPT) is ErrorCode.NONE


def test_a_failed_write_makes_records_available_whose_lock_has_timed_out_meanwhile():
    share = Driver(log_of(10))
    share.fetch()
    share.holds = True
    share.acknowledge(0, 9, ACCEPT)
    share.pass_ms(LOCK_MS)
    assert len(share.writes) == 1
    share.written(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    assert share.fetch("b") == [(0, 9, 2)]


def test_a_failed_write_makes_no_record_available_that_the_log_start_has_passed():
    share = Driver(log_of(10))
    share.fetch()
    share.holds = True
    share.acknowledge(0, 9, ACCEPT)
    share.share.log_start_moved(10)
    share.pass_ms(LOCK_MS)
    share.written(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    assert share.states() == {}, "all of them were archived, and the start has passed them"
    assert share.share.next_fetch_offset() == 10


def test_a_full_window_goes_on_where_a_failed_write_archives_its_last_record():
    """The lock ends at the delivery limit while the acceptance is being written, and the write fails: nothing is left
    that would move the start offset later. Kafka 4.3 stays there (SharePartition.rollbackOrProcessStateUpdates).
    """
    settings = ShareSettings(LOCK_MS, delivery_count_limit=1, max_record_locks=2)
    share = Driver(log_of(1, 1, 1), settings)
    assert share.fetch(max_records=2, batch_size=1) == [(0, 0, 1), (1, 1, 1)]
    share.holds = True
    share.acknowledge(0, 1, ACCEPT)
    share.pass_ms(LOCK_MS)
    assert not share.share.can_acquire()
    share.written(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    assert share.share.can_acquire()
    assert share.fetch() == [(2, 2, 1)]


@pytest.mark.parametrize("error", [ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.FENCED_STATE_EPOCH])
def test_a_leader_whose_write_is_fenced_drops_the_partition(error):
    share = Driver(log_of(10))
    share.fetch()
    share.holds = True
    share.acknowledge(0, 9, ACCEPT)
    share.written(error)
    assert share.responses[1][0] is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert share.effects[-1] == Dropped()
    assert share.share.state is PartitionState.FENCED


def test_a_write_carries_state_epoch_leader_epoch_and_the_start_offset_before_it():
    share = Driver(log_of(10, 10), leader_epoch=9)
    share.fetch(batch_size=10)
    share.acknowledge(0, 9, ACCEPT)
    share.acknowledge(10, 14, REJECT)
    assert share.writes == [
        WriteState(1, 2, 9, 0, 10, (StateBatch(0, 9, 2, 1),)),
        WriteState(2, 2, 9, 10, 5, tuple(StateBatch(offset, offset, 4, 1) for offset in range(10, 15))),
    ]


def test_the_outcome_of_a_write_counts_once():
    share = Driver(log_of(10))
    share.fetch()
    share.acknowledge(0, 9, ACCEPT)
    assert share.share.state_written(1, ErrorCode.COORDINATOR_NOT_AVAILABLE) == []


def test_offsets_below_the_window_are_ignored_and_beyond_it_refused():
    share = Driver(log_of(10, 10))
    share.fetch(max_records=10, batch_size=10)
    assert share.acknowledge(0, 9, ACCEPT) is ErrorCode.NONE
    assert share.acknowledge(0, 9, ACCEPT) is ErrorCode.NONE
    assert len(share.writes) == 1
    assert share.acknowledge(10, 19, ACCEPT) is ErrorCode.INVALID_RECORD_STATE
    share.fetch(max_records=10, batch_size=10)
    assert share.acknowledge(10, 20, ACCEPT) is ErrorCode.INVALID_REQUEST


def test_the_start_waits_for_acknowledgements_that_are_being_written():
    share = Driver(log_of(10, 10))
    share.fetch(batch_size=10)
    share.holds = True
    share.acknowledge(0, 9, ACCEPT)
    share.acknowledge(10, 19, ACCEPT)
    first, second = share.held
    share.take(share.share.state_written(first.write_id, ErrorCode.NONE))
    assert share.share.window.start_offset == 10
    share.take(share.share.state_written(second.write_id, ErrorCode.COORDINATOR_NOT_AVAILABLE))
    assert share.states()[10] == (1, 1)


def test_the_start_waits_for_the_first_record():
    share = Driver(log_of(10))
    share.fetch()
    share.acknowledge(1, 9, ACCEPT)
    assert share.share.window.start_offset == 0
    assert share.share.window.complete_count == 9
    share.acknowledge(0, 0, ACCEPT)
    assert (share.share.window.start_offset, share.share.window.complete_count) == (10, 0)


# Locks


def test_a_lock_that_times_out_gives_its_records_to_the_next_fetch_even_if_its_write_fails():
    share = Driver(log_of(10))
    share.fetch()
    share.holds = True
    share.pass_ms(LOCK_MS - 1)
    assert share.writes == []
    share.pass_ms(1)
    assert share.last_write[2] == [(0, 9, 0, 1)]
    share.written(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    assert share.fetch("b") == [(0, 9, 2)]


def test_a_renewal_holds_the_lock_on_from_then_and_writes_nothing():
    """KIP-1222."""
    share = Driver(log_of(10))
    share.fetch()
    share.pass_ms(LOCK_MS - 1)
    assert share.acknowledge(0, 9, RENEW) is ErrorCode.NONE
    assert share.writes == []
    share.pass_ms(LOCK_MS - 1)
    assert share.acknowledge(0, 9, ACCEPT) is ErrorCode.NONE


def test_a_group_may_refuse_renewals():
    """share.renew.acknowledge.enable=false."""
    share = Driver(log_of(10), settings(renews_locks=False))
    share.fetch()
    assert share.acknowledge(0, 9, RENEW) is ErrorCode.INVALID_RECORD_STATE


def test_changed_settings_count_for_acquisitions_from_then_on():
    share = Driver(log_of(10, 10))
    share.fetch(max_records=10, batch_size=10)
    share.share.settings = settings(record_lock_duration_ms=2 * LOCK_MS)
    share.fetch("b")
    share.pass_ms(LOCK_MS)
    assert [share.states()[offset][0] for offset in (0, 10)] == [0, 1]


def test_the_next_deadline_is_that_of_a_lock_that_is_held():
    share = Driver(log_of(10))
    assert share.share.next_deadline_ms() is None
    share.fetch()
    assert share.share.next_deadline_ms() == share.now_ms + LOCK_MS
    share.acknowledge(0, 9, ACCEPT)
    assert share.share.next_deadline_ms() is None


# The end of a session, and of records


def test_the_records_of_a_member_whose_session_ends_are_available_at_once():
    """The delivery counts: it was one."""
    share = Driver(log_of(10, 10))
    share.fetch("a", max_records=10, batch_size=10)
    share.fetch("b", max_records=10, batch_size=10)
    share.release("a")
    assert share.last_write[2] == [(0, 9, 0, 1)]
    assert share.fetch("c") == [(0, 9, 2)]
    assert share.states()[10] == (1, 1)


def test_a_release_without_records_is_complete_at_once():
    share = Driver(log_of(10))
    assert share.share.release("token", "a", 0) == [Respond("token")]


def test_acquired_records_below_a_moved_log_start_are_archived_when_they_come_back():
    share = Driver(log_of(10))
    share.fetch()
    share.share.log_start_moved(5)
    share.pass_ms(LOCK_MS)
    assert [share.states()[offset] for offset in (4, 5)] == [(4, 1), (0, 1)]
    assert share.share.window.complete_count == 0
    assert share.fetch() == [(5, 9, 2)]


def test_a_log_start_beyond_the_window_empties_it():
    share = Driver(log_of(10, 10))
    share.fetch(max_records=10, batch_size=10)
    share.acknowledge(0, 9, RELEASE)
    share.share.log_start_moved(10)
    assert share.share.next_fetch_offset() == 10
    assert share.fetch() == [(10, 19, 1)]
