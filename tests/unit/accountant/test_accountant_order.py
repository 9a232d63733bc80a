"""The finding ``reordered``: per producer and in real time; each conviction with its innocent twin."""

from __future__ import annotations

from small_books import found, log, report, sent, values

from tidegauge_lab.accountant.books import Kind


def test_a_later_record_of_a_producer_before_an_earlier_one() -> None:
    together = {"invoked_us": 0, "completed_us": 50}
    history = [sent(0, offset=1, **together), sent(1, offset=0, **together)]
    assert found(report(history, log(*values("v1", "v0")))) == {Kind.REORDERED: 1}
    history = [sent(0, **together), sent(1, **together)]
    assert report(history, log(*values("v0", "v1"))).is_balanced


def test_two_producers_at_the_same_time_have_no_order() -> None:
    together = {"invoked_us": 0, "completed_us": 50}
    history = [sent(0, offset=1, **together), sent(1, offset=0, producer="q", **together)]
    assert report(history, log(*values("v1", "v0"))).is_balanced


def test_partitions_have_no_order_between_them() -> None:
    history = [sent(0, offset=5), sent(1, offset=0, partition=1)]
    assert report(history, log(*values("a", "b", "c", "d", "e", "v0")), log(*values("v1"), partition=1)).is_balanced


def test_what_was_sent_after_an_acknowledgement_stands_behind_it() -> None:
    """The Redpanda check; also for a record whose own outcome is unknown."""
    first = sent(0, offset=1, completed_us=5)
    for second in (
        sent(1, offset=0, producer="q", invoked_us=6, completed_us=9),
        sent(1, outcome="info", producer="q", invoked_us=6, completed_us=9),
    ):
        assert found(report([first, second], log(*values("v1", "v0")))) == {Kind.REORDERED_IN_REAL_TIME: 1}
        at_once = second._replace(invoked_us=5)
        assert report([first, at_once], log(*values("v1", "v0"))).is_balanced, "not after it: at the same time"


def test_what_stands_nowhere_or_failed_has_no_order() -> None:
    history = [sent(0, outcome="info"), sent(1, offset=0), sent(2, outcome="fail")]
    assert report(history, log(*values("v1"))).is_balanced


def test_acks_0_acknowledges_nothing_and_so_orders_nothing_in_real_time() -> None:
    history = [
        sent(0, acks="0", offset=-1, completed_us=5),
        sent(1, acks="0", offset=-1, producer="q", invoked_us=6),
    ]
    assert report(history, log(*values("v1", "v0"))).is_balanced
