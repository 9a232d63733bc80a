"""The finding ``reordered``: per producer and in real time; each conviction with its innocent twin."""

from __future__ import annotations

from small_books import found, kept, log, report, sent, values

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


# Equal records: whose place it is must be certain before it has an order


def test_a_place_that_two_equal_records_may_have_convicts_neither_of_them() -> None:
    """Two equal records of unknown outcome, one place: it may be the later one's, which is in order."""
    together = {"invoked_us": 0, "completed_us": 50}
    equal = {"value": "a", "timestamp_ms": 7, "outcome": "info", **together}
    history = [sent(0, **equal), sent(1, offset=0, **together), sent(2, **equal)]
    result = report(history, log(kept(0, "v1"), kept(1, "a", 7)))
    assert result.is_balanced
    assert any(one.startswith("the order of 1 record:") for one in result.not_checked)
    assert found(report(history[:2], log(kept(0, "v1"), kept(1, "a", 7)))) == {Kind.REORDERED: 1}, "it has no equal"
    of_another = [*history[:2], sent(0, producer="q", **equal)]
    assert report(of_another, log(kept(0, "v1"), kept(1, "a", 7))).is_balanced


def test_a_place_in_real_time_that_may_be_that_of_an_equal_record_convicts_neither() -> None:
    first = sent(0, offset=1, completed_us=5)
    equal = {"value": "a", "timestamp_ms": 7, "outcome": "info", "producer": "q", "completed_us": 50}
    at_once, afterwards = sent(0, invoked_us=0, **equal), sent(1, invoked_us=6, **equal)
    kept_first = log(kept(0, "a", 7), kept(1, "v0", 0))
    assert report([first, afterwards, at_once], kept_first).is_balanced
    assert found(report([first, afterwards], kept_first)) == {Kind.REORDERED_IN_REAL_TIME: 1}


def test_a_partition_that_is_known_leaves_fewer_places() -> None:
    """Equal records that were sent to different partitions are no ambiguity."""
    together = {"invoked_us": 0, "completed_us": 50}
    equal = {"value": "a", "timestamp_ms": 7, "outcome": "info", **together}
    history = [sent(0, partition=0, **equal), sent(1, offset=0, **together), sent(2, partition=1, **equal)]
    logs = log(kept(0, "v1"), kept(1, "a", 7)), log(kept(0, "a", 7), partition=1)
    assert found(report(history, *logs)) == {Kind.REORDERED: 1}


def test_equal_records_that_were_acknowledged_at_one_offset_have_no_order() -> None:
    """After a failover an offset was given twice (acks=1): which of the two is there is not known."""
    together = {"invoked_us": 0, "completed_us": 50, "acks": "1"}
    equal = {"value": "a", "timestamp_ms": 7, "offset": 1, **together}
    history = [sent(0, **equal), sent(1, offset=0, **together), sent(2, **equal)]
    assert Kind.REORDERED not in found(report(history, log(kept(0, "v1"), kept(1, "a", 7))))
    assert Kind.REORDERED in found(report(history[:2], log(kept(0, "v1"), kept(1, "a", 7))))
