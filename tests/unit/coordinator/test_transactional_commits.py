"""TxnOffsetCommit: its checks, the pending offsets, and the effect of the marker (KIP-98, KIP-447)."""

from __future__ import annotations

import pytest
from tests.kafka_log_dir import log_of
from tests.unit.coordinator.harness import INITIAL_DELAY_MS, SESSION_MS, T0, T1, Harness

from tidegauge.errors import ErrorCode
from tidegauge.groups import DeleteGroup, DeleteGroupResult, GroupState, OffsetFetch, OffsetToCommit
from tidegauge.record_batch import iterate_headers, patch, read_header
from tidegauge.transaction_marker import Outcome
from tidegauge.transactions import SupportedOperation
from tidegauge_broker.coordinator.effects import ReadLog
from tidegauge_broker.coordinator.record_codec import Record, batch_of, read_batches

E = ErrorCode
COMMIT, ABORT = Outcome.COMMIT, Outcome.ABORT


def test_offsets_are_visible_when_the_commit_marker_is_written():
    harness = Harness()
    assert harness.committed(harness.commit_transactional(5)) is E.NONE
    assert harness.offset().offset == -1
    assert not harness.is_parked(harness.complete_transaction(COMMIT))
    assert harness.offset().offset == 5
    assert harness.successor().offset().offset == 5


def test_offsets_of_an_aborted_transaction_are_dropped():
    harness = Harness()
    harness.committed(harness.commit(3))
    harness.committed(harness.commit_transactional(5))
    harness.complete_transaction(ABORT)
    assert harness.offset(stable=True).offset == 3
    assert harness.successor().offset(stable=True).offset == 3


def test_a_stable_fetch_gets_unstable_offset_commit_until_the_marker():
    """KIP-447: OffsetFetch with requireStable; without it the last materialised offset is returned."""
    harness = Harness()
    harness.committed(harness.commit(3))
    harness.commit_transactional(5)
    assert harness.offset(stable=True).error is E.UNSTABLE_OFFSET_COMMIT
    assert (harness.offset().offset, harness.offset().error) == (3, E.NONE)
    assert harness.offset(T1, stable=True).error is E.NONE
    assert harness.successor().offset(stable=True).error is E.UNSTABLE_OFFSET_COMMIT
    harness.complete_transaction(COMMIT)
    assert (harness.offset(stable=True).offset, harness.offset(stable=True).error) == (5, E.NONE)


def test_a_fetch_of_all_partitions_leaves_out_those_that_are_pending_only():
    """GroupMetadataManager.getOffsets asks for the materialised ones: no error appears for the others."""
    harness = Harness()
    harness.commit_transactional(5)
    assert harness.ask(OffsetFetch("g", None, require_stable=True)).offsets == {}


def test_while_its_append_is_in_flight_a_commit_is_unstable():
    harness = Harness()
    harness.holds = True
    token = harness.commit_transactional(5)
    assert harness.is_parked(token)
    assert harness.offset(stable=True).error is E.UNSTABLE_OFFSET_COMMIT
    harness.release()
    assert harness.committed(token) is E.NONE
    assert harness.offset(stable=True).error is E.UNSTABLE_OFFSET_COMMIT


@pytest.mark.parametrize(
    ("raw", "seen"),
    [
        (E.NOT_ENOUGH_REPLICAS, E.COORDINATOR_NOT_AVAILABLE),
        (E.NOT_ENOUGH_REPLICAS_AFTER_APPEND, E.COORDINATOR_NOT_AVAILABLE),
        (E.UNKNOWN_TOPIC_OR_PARTITION, E.COORDINATOR_NOT_AVAILABLE),
        (E.NOT_LEADER_OR_FOLLOWER, E.NOT_COORDINATOR),
        (E.KAFKA_STORAGE_ERROR, E.NOT_COORDINATOR),
        (E.MESSAGE_TOO_LARGE, E.INVALID_COMMIT_OFFSET_SIZE),
        (E.REQUEST_TIMED_OUT, E.REQUEST_TIMED_OUT),
        (E.INVALID_PRODUCER_EPOCH, E.INVALID_PRODUCER_EPOCH),
    ],
)
def test_a_failed_append_leaves_nothing_pending(raw, seen):
    """The log fences an old producer epoch; other errors are the same as OffsetCommit's."""
    harness = Harness()
    harness.append_error = raw
    assert harness.committed(harness.commit_transactional(5)) is seen
    assert harness.offset(stable=True).error is E.NONE


@pytest.mark.parametrize(
    ("raw", "seen"),
    [
        (E.NETWORK_EXCEPTION, E.COORDINATOR_LOAD_IN_PROGRESS),
        (E.NOT_ENOUGH_REPLICAS, E.COORDINATOR_NOT_AVAILABLE),
        (E.NOT_LEADER_OR_FOLLOWER, E.NOT_COORDINATOR),
        (E.INVALID_TXN_STATE, E.INVALID_TXN_STATE),
        (E.TRANSACTION_ABORTABLE, E.TRANSACTION_ABORTABLE),
        (E.INVALID_PRODUCER_ID_MAPPING, E.INVALID_PRODUCER_ID_MAPPING),
        (E.INVALID_PRODUCER_EPOCH, E.INVALID_PRODUCER_EPOCH),
        (E.CONCURRENT_TRANSACTIONS, E.CONCURRENT_TRANSACTIONS),
    ],
)
def test_nothing_is_appended_for_a_transaction_that_is_not_verified(raw, seen):
    """KIP-890: the coordinator of the transaction is asked first; NETWORK_EXCEPTION is disguised for old clients."""
    harness = Harness()
    harness.holds_verifications = True
    token = harness.commit_transactional(5)
    assert (harness.log, harness.is_parked(token)) == ([], True)
    harness.verify(raw)
    assert harness.committed(token) is seen
    assert harness.log == []
    assert harness.offset(stable=True).error is E.NONE


def test_what_is_verified_is_named_and_its_guard_goes_with_the_append():
    harness = Harness()
    harness.holds_verifications = True
    token = harness.commit_transactional(5, operation=SupportedOperation.DEFAULT_ERROR)
    (asked,) = harness.verifications
    assert (asked.partition, asked.transactional_id, asked.producer_id, asked.producer_epoch) == (0, "tx", 7, 0)
    assert asked.operation is SupportedOperation.DEFAULT_ERROR
    guard = object()
    harness.verify(guard=guard)
    assert harness.committed(token) is E.NONE
    assert harness.guards == [guard]


def test_a_group_that_does_not_exist_is_created():
    harness = Harness()
    harness.holds_verifications = True
    harness.commit_transactional(5)
    assert harness.group().state is GroupState.EMPTY


def test_a_group_that_is_unloaded_during_the_verification_is_dead():
    harness = Harness()
    harness.holds_verifications = True
    token = harness.commit_transactional(5)
    harness.resign(1)
    harness.verify()
    assert harness.committed(token) is E.COORDINATOR_NOT_AVAILABLE
    assert harness.log == []


def test_members_of_older_generations_and_replaced_ones_are_fenced():
    """KIP-447: the instance id is checked before the member id, and both before the generation."""
    harness = Harness()
    (member,) = harness.stable_group(group_instance_id="i")
    assert harness.committed(harness.commit_transactional(generation=1, member_id=member)) is E.NONE
    assert harness.committed(harness.commit_transactional(generation=0, member_id=member)) is E.ILLEGAL_GENERATION
    assert harness.committed(harness.commit_transactional(generation=1, member_id="x")) is E.UNKNOWN_MEMBER_ID
    fenced = harness.commit_transactional(generation=0, member_id="x", group_instance_id="i")
    assert harness.committed(fenced) is E.FENCED_INSTANCE_ID
    unknown = harness.commit_transactional(generation=1, member_id=member, group_instance_id="j")
    assert harness.committed(unknown) is E.UNKNOWN_MEMBER_ID


def test_a_producer_that_names_no_member_is_never_fenced():
    """Versions 0 to 2 have no such fields, so a group with members takes their offsets too (validateOffsetCommit)."""
    harness = Harness()
    harness.stable_group()
    assert harness.committed(harness.commit_transactional()) is E.NONE


def test_offsets_are_taken_while_the_group_completes_a_rebalance():
    """An OffsetCommit gets REBALANCE_IN_PROGRESS there, a TxnOffsetCommit does not (doTxnCommitOffsets)."""
    harness = Harness()
    token = harness.join()
    harness.after(2 * INITIAL_DELAY_MS)
    member = harness.joined(token).member_id
    assert harness.group().state is GroupState.COMPLETING_REBALANCE
    assert harness.committed(harness.commit(1, generation=1, member_id=member)) is E.REBALANCE_IN_PROGRESS
    assert harness.committed(harness.commit_transactional(generation=1, member_id=member)) is E.NONE


def test_a_transactional_commit_is_no_heartbeat():
    """Only OffsetCommit restarts the session timer."""
    harness = Harness()
    (member,) = harness.stable_group()
    harness.after(SESSION_MS - 1)
    harness.commit_transactional(generation=1, member_id=member)
    harness.after(1)
    assert harness.group().members == ()


@pytest.mark.parametrize(
    ("is_old", "error"), [(False, E.COORDINATOR_LOAD_IN_PROGRESS), (True, E.COORDINATOR_NOT_AVAILABLE)]
)
def test_while_the_partition_loads_old_versions_get_another_error(is_old, error):
    harness = Harness(elected=False)
    harness.loads = False
    harness.elect(0)
    assert harness.committed(harness.commit_transactional(is_load_unavailable=is_old)) is error


def test_kafka_16371_one_partition_with_too_much_metadata_does_not_hold_up_the_others():
    """KAFKA-16371: nothing of the refused partition stays pending, so that no fetch is unstable for ever."""
    harness = Harness()
    offsets = (OffsetToCommit(T0, 5, metadata="x" * 4097), OffsetToCommit(T1, 6))
    result = harness.response_to(harness.commit_transactional(offsets=offsets))
    assert result.partitions == {T0: E.OFFSET_METADATA_TOO_LARGE, T1: E.NONE}
    errors = [harness.offset(name, stable=True).error for name in (T0, T1)]
    assert errors == [E.NONE, E.UNSTABLE_OFFSET_COMMIT], "in the open transaction only what was accepted is pending"
    harness.complete_transaction(COMMIT)
    assert [harness.offset(name, stable=True).offset for name in (T0, T1)] == [-1, 6]


def test_only_too_much_metadata_is_not_appended():
    harness = Harness()
    assert harness.committed(harness.commit_transactional(metadata="x" * 4097)) is E.OFFSET_METADATA_TOO_LARGE
    assert harness.log == []


@pytest.mark.parametrize("transactional_first", [True, False])
def test_kafka_14505_the_commit_that_is_later_in_the_log_wins_wherever_the_marker_is(transactional_first):
    """KAFKA-14505: the order of the commits' batches decides, live and after a load; the marker's offset does not."""
    harness = Harness()
    if transactional_first:
        harness.commit_transactional(5)
        harness.commit(3)
    else:
        harness.commit(3)
        harness.commit_transactional(5)
    harness.complete_transaction(COMMIT)
    expected = 3 if transactional_first else 5
    assert harness.offset().offset == expected
    assert harness.successor().offset().offset == expected


def test_outcomes_that_arrive_out_of_order_do_not_invert_commits():
    harness = Harness()
    harness.holds = True
    harness.commit_transactional(5)
    harness.commit_transactional(6)
    harness.release(index=1)
    harness.release()
    harness.complete_transaction(COMMIT)
    assert harness.offset(stable=True).offset == 6
    assert harness.successor().offset(stable=True).offset == 6


def test_a_failed_second_commit_leaves_the_first_of_the_transaction():
    """Kafka forgets the first until the next load; here live and load agree (offsets.py)."""
    harness = Harness()
    harness.commit_transactional(5)
    harness.append_error = E.NOT_ENOUGH_REPLICAS
    harness.commit_transactional(6)
    harness.complete_transaction(COMMIT)
    assert harness.offset(stable=True).offset == 5
    assert harness.successor().offset(stable=True).offset == 5


@pytest.mark.parametrize(("outcome", "offset"), [(COMMIT, 5), (ABORT, -1)])
def test_a_commit_whose_outcome_is_known_after_the_marker_follows_the_marker(outcome, offset):
    harness = Harness()
    harness.holds = True
    token = harness.commit_transactional(5)
    harness.complete_transaction(outcome)
    harness.release()
    assert harness.committed(token) is E.NONE
    assert harness.offset(stable=True) == harness.successor().offset(stable=True)
    assert harness.offset(stable=True).offset == offset


@pytest.mark.parametrize("is_appending", [True, False])
@pytest.mark.parametrize(("outcome", "offset"), [(COMMIT, 6), (ABORT, 5)])
def test_a_marker_does_not_end_commits_behind_it_in_the_log(is_appending, outcome, offset):
    """Kafka's completePendingTxnOffsetCommit ends all that is pending of the producer, or throws (offsets.py)."""
    harness = Harness()
    harness.commit_transactional(5)
    harness.complete_transaction(COMMIT)
    harness.holds = is_appending
    repeated = harness.write_marker(COMMIT)
    harness.commit_transactional(6)
    assert not harness.is_parked(harness.report_marker(repeated))
    if is_appending:
        harness.release()
    for broker in (harness, harness.successor()):
        assert broker.offset(stable=True).error is E.UNSTABLE_OFFSET_COMMIT
        assert broker.offset().offset == 5
    harness.complete_transaction(outcome)
    for broker in (harness, harness.successor()):
        assert (broker.offset(stable=True).error, broker.offset(stable=True).offset) == (E.NONE, offset)


def test_of_markers_on_both_sides_of_a_commit_the_one_behind_it_counts():
    """The outcome of the append arrives after both."""
    harness = Harness()
    harness.holds = True
    before = harness.write_marker(COMMIT)
    harness.commit_transactional(6)
    behind, another = harness.write_marker(ABORT), harness.write_marker(COMMIT)
    for offset, outcome in ((before, COMMIT), (behind, ABORT), (another, COMMIT)):
        harness.report_marker(offset, outcome)
    harness.release()
    for broker in (harness, harness.successor()):
        assert (broker.offset(stable=True).error, broker.offset(stable=True).offset) == (E.NONE, -1)


def test_a_marker_whose_completion_is_late_does_not_end_what_a_load_found_behind_it():
    """The load has read the marker already."""
    harness = Harness()
    harness.commit_transactional(5)
    marker = harness.write_marker(COMMIT)
    harness.commit_transactional(6)
    successor = harness.successor()
    successor.report_marker(marker)
    assert successor.offset(stable=True).error is E.UNSTABLE_OFFSET_COMMIT
    assert successor.offset().offset == 5


def test_a_marker_ends_the_transaction_of_its_producer_alone():
    harness = Harness()
    harness.commit_transactional(5, producer_id=7)
    harness.commit_transactional(6, T1, producer_id=8)
    harness.complete_transaction(COMMIT, producer_id=7)
    assert harness.offset(T0, stable=True).offset == 5
    assert harness.offset(T1, stable=True).error is E.UNSTABLE_OFFSET_COMMIT


def test_a_marker_ends_the_transaction_in_every_group_of_the_partition():
    harness = Harness()
    harness.commit_transactional(5, group="a")
    harness.commit_transactional(6, group="b")
    harness.complete_transaction(COMMIT)
    assert [harness.offset(group=group, stable=True).offset for group in ("a", "b")] == [5, 6]


def test_kafka_17507_a_marker_that_is_written_during_a_load_counts_when_the_load_is_complete():
    """KAFKA-17507: WriteTxnMarkers is responded to when the offsets are moved, on the one thread that also loads."""
    harness = Harness()
    harness.commit_transactional(5)
    successor = Harness(elected=False, log=harness.log, now_ms=harness.now_ms)
    successor.loads = False
    effects = len(successor.notes)
    successor.elect(1)
    token = successor.complete_transaction(COMMIT)
    assert successor.is_parked(token)
    assert len(successor.notes) > effects
    successor.log.pop()  # the load has read to the LEO before the marker was appended
    successor.load(ReadLog(0, 1))
    assert not successor.is_parked(token)
    assert successor.offset(stable=True).offset == 5


def test_a_broker_that_has_lost_the_partition_responds_to_the_marker_too():
    harness = Harness()
    harness.commit_transactional(5)
    harness.resign(1)
    assert not harness.is_parked(harness.complete_transaction(COMMIT))


def test_pending_offsets_of_a_deleted_group_come_back_with_the_next_load():
    """A flaw that Kafka 3.9 has too: only materialised offsets get tombstones (DeleteGroups)."""
    harness = Harness()
    harness.commit_transactional(5)
    assert harness.ask(DeleteGroup("g")) == DeleteGroupResult()
    harness.complete_transaction(COMMIT)
    assert harness.offset().offset == -1
    assert harness.successor().offset().offset == 5


def test_every_transactional_batch_that_kafka_wrote_is_written_the_same():
    """Transactional, with the producer's id and epoch, and base sequence 0 whatever came before."""
    seen = 0
    for path in (log_of(f"__consumer_offsets-{partition}") for partition in (0, 1)):
        data = path.read_bytes()
        for header, batch in zip(iterate_headers(data), read_batches(data), strict=True):
            if header.is_control or not header.is_transactional:
                continue
            records = [Record(key, value) for key, value in batch.records]
            producer = header.producer_id, header.producer_epoch
            ours = bytearray(batch_of(records, header.base_timestamp_ms, 0, 0, producer))
            patch(ours, 0, header.base_offset, header.leader_epoch)
            assert bytes(ours) == data[header.position : header.position + header.size_bytes]
            seen += 1
    assert seen >= 3


def test_the_batch_of_a_transactional_commit_is_transactional():
    harness = Harness()
    harness.commit_transactional(5)
    header = read_header(harness.log[0])
    assert header.is_transactional
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (7, 0, 0)


def test_two_verifications_in_flight_go_on_with_their_own_requests():
    harness = Harness()
    harness.holds_verifications = True
    first, second = harness.commit_transactional(5, T0), harness.commit_transactional(6, T1)
    harness.verify(E.INVALID_TXN_STATE)
    assert harness.committed(first) is E.INVALID_TXN_STATE
    assert harness.is_parked(second)
    harness.verify()
    assert harness.committed(second) is E.NONE
    harness.complete_transaction(COMMIT)
    assert (harness.offset(T0).offset, harness.offset(T1).offset) == (-1, 6)
