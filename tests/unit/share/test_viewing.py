"""A share partition's view of itself: each offset from start to end once, in its state (share/viewing.py)."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st
from tests.unit.share.driver import ACCEPT, LOCK_MS, REJECT, RELEASE, Driver, log_of

from tidegauge.share_groups import StateBatch
from tidegauge_broker.share.acquiring import AbortedTransaction, LogBatch
from tidegauge_broker.share.settings import AcquireMode, ShareSettings
from tidegauge_broker.share.states import RecordState
from tidegauge_broker.share.viewing import RecordsView, Whereabouts, viewed

Shown = tuple[int, int, str, int, str | None]


def shown(driver: Driver) -> list[Shown]:
    return [
        (one.first_offset, one.last_offset, one.where.value, one.delivery_count, one.member_id)
        for one in viewed(driver.share).records
    ]


def test_a_window_without_records_ends_where_it_begins() -> None:
    view = viewed(Driver(log_of(10), start_offset=4).share)
    assert (view.start_offset, view.end_offset, view.records) == (4, 4, ())
    assert (view.leader_epoch, view.state_epoch, view.state.value) == (3, 2, "active")


def test_ranges_say_who_has_what_and_what_is_done() -> None:
    """Records that are alike are one range, whether they were acquired together or apart."""
    driver = Driver(log_of(10, 10))
    driver.fetch("a", 10)
    driver.fetch("b", 10)
    driver.acknowledge(2, 6, ACCEPT, ACCEPT, RELEASE, REJECT, RELEASE)
    assert shown(driver) == [
        (0, 1, "acquired", 1, "a"),
        (2, 3, "acknowledged", 1, None),
        (4, 4, "available", 1, None),
        (5, 5, "archived", 1, None),
        (6, 6, "available", 1, None),
        (7, 9, "acquired", 1, "a"),
        (10, 19, "acquired", 1, "b"),
    ]
    view = viewed(driver.share)
    assert (view.start_offset, view.end_offset, view.complete_count) == (0, 20, 3)
    assert {one.deadline_ms for one in view.records if one.member_id} == {driver.now_ms + LOCK_MS}
    assert not any(one.is_being_written for one in view.records)


def test_what_is_being_written_still_names_the_member() -> None:
    driver = Driver(log_of(3), holds=True)
    driver.fetch("a")
    driver.acknowledge(0, 0, ACCEPT)
    first, rest = viewed(driver.share).records
    assert (first.where, first.member_id, first.is_being_written) == (Whereabouts.ACKNOWLEDGED, "a", True)
    assert (rest.first_offset, rest.where, rest.is_being_written) == (1, Whereabouts.ACQUIRED, False)
    driver.written()
    assert shown(driver) == [(1, 2, "acquired", 1, "a")]


def test_holes_of_a_state_that_was_read_are_unknown_until_they_are_acquired() -> None:
    """Kafka acquires the gap as a whole; the member finds out which of its offsets have no record."""
    state = [StateBatch(2, 3, RecordState.ACKNOWLEDGED, 1), StateBatch(6, 7, RecordState.AVAILABLE, 2)]
    log = [LogBatch(0, 3), LogBatch(6, 9)]
    driver = Driver(log, state=state)
    assert shown(driver) == [
        (0, 1, "unknown", 0, None),
        (2, 3, "acknowledged", 1, None),
        (4, 5, "unknown", 0, None),
        (6, 7, "available", 2, None),
    ]
    driver.fetch("a")
    assert [one[:3] for one in shown(driver)] == [
        (0, 1, "acquired"),
        (2, 3, "acknowledged"),
        (4, 5, "acquired"),
        (6, 7, "acquired"),
        (8, 9, "acquired"),
    ]


def test_records_of_an_aborted_transaction_are_archived_by_their_log() -> None:
    committed = ShareSettings(record_lock_duration_ms=LOCK_MS, reads_committed=True)
    log = [LogBatch(0, 1), LogBatch(2, 3, 7, True), LogBatch(4, 5)]
    driver = Driver(log, committed, aborted=[AbortedTransaction(7, 2)])
    driver.fetch("a")
    by_log = [one for one in viewed(driver.share).records if one.is_archived_by_log]
    assert [(one.first_offset, one.last_offset, one.where) for one in by_log] == [(2, 3, Whereabouts.ARCHIVED)]


def test_records_before_the_start_are_shown_while_a_member_has_them() -> None:
    """The log start has passed them; the member may still acknowledge, which changes nothing."""
    driver = Driver(log_of(5, 5))
    driver.fetch("a", 5)
    driver.fetch("b", 5)
    driver.release("b")
    driver.share.log_start_moved(7)
    view = viewed(driver.share)
    assert (view.start_offset, view.end_offset) == (7, 10)
    assert shown(driver) == [(0, 4, "acquired", 1, "a"), (7, 9, "available", 1, None)]


def covered(records: Sequence[RecordsView]) -> list[int]:
    return [offset for one in records for offset in range(one.first_offset, one.last_offset + 1)]


STEPS = st.lists(
    st.tuples(st.sampled_from("fareqlt"), st.integers(0, 29), st.integers(0, 9), st.sampled_from("ab")), max_size=25
)


@given(STEPS, st.booleans())
def test_each_offset_of_the_window_is_shown_once_and_as_the_core_has_it(
    steps: list[tuple[str, int, int, str]], holds: bool
) -> None:
    driver = Driver(log_of(10, 5, 1, 14), holds=holds)
    for kind, offset, size, member in steps:
        last = min(offset + size, 29)
        match kind:
            case "f":
                driver.fetch(member, size + 1, size + 1, AcquireMode.RECORD_LIMIT if offset % 2 else AcquireMode(0))
            case "a":
                driver.acknowledge(offset, last, ACCEPT, member=member)
            case "r":
                driver.acknowledge(offset, last, RELEASE, member=member)
            case "e":
                driver.release(member)
            case "q":
                driver.acknowledge(offset, last, REJECT, member=member)
            case "l":
                driver.share.log_start_moved(offset)
            case _:
                driver.pass_ms(LOCK_MS // 2)
                driver.written()
        view = viewed(driver.share)
        inside = [one for one in covered(view.records) if one >= view.start_offset]
        assert inside == list(range(view.start_offset, view.end_offset)), "each offset once, in order"
        states = driver.states()
        for one in view.records:
            for at in range(one.first_offset, one.last_offset + 1):
                if at in states:
                    assert (RecordState[one.where.name], one.delivery_count) == states[at]
        assert not any(later.continues(one) for one, later in zip(view.records, view.records[1:], strict=False))
