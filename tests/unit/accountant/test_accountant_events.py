"""What brokers' event logs convict: high watermarks and epochs that go back, acknowledgements below the ISR."""

from __future__ import annotations

from typing import Any

import pytest
from small_books import event, follows, found, isr, kept, leads, log, report, sent

from tidegauge_lab.accountant.books import Kind

STARTING = event("broker", state="starting", broker_epoch=1)


def high_watermark(old: int, new: int, source: int = 0) -> dict[str, Any]:
    return event("high_watermark", source, old=old, new=new)


def of(*events: dict[str, Any]) -> dict[Kind, int]:
    return found(report(None, events=events))


@pytest.mark.parametrize(
    ("events", "times"),
    [
        ((leads(0), high_watermark(0, 5), high_watermark(5, 3)), 1),
        ((leads(0), high_watermark(0, 5), high_watermark(3, 4)), 1),
        ((leads(0), high_watermark(0, 5), leads(0), high_watermark(3, 4)), 1),
        ((leads(0), high_watermark(0, 5), high_watermark(5, 6)), 0),
        ((follows(0), high_watermark(0, 5), high_watermark(5, 3)), 0),
        ((leads(0), high_watermark(0, 5), leads(2), high_watermark(3, 4)), 0),
        ((leads(0), high_watermark(0, 5), follows(1), leads(2), high_watermark(3, 4)), 0),
        ((leads(0), high_watermark(0, 5), STARTING, leads(1), high_watermark(3, 4)), 0),
        ((leads(0), high_watermark(0, 5), high_watermark(0, 3, source=1)), 0),
    ],
)
def test_a_leaders_high_watermark_does_not_go_back_within_an_epoch(events: tuple[Any, ...], times: int) -> None:
    assert of(*events) == ({Kind.HIGH_WATERMARK_BACK: times} if times else {})


@pytest.mark.parametrize(
    ("events", "times"),
    [
        ((leads(3), follows(2)), 1),
        ((leads(3), STARTING, follows(2)), 1),
        ((leads(3), follows(3), leads(4)), 0),
        ((leads(3), follows(2, source=1)), 0),
        ((leads(3), leads(0)), 0),  # deleted and made again
    ],
)
def test_a_replicas_epoch_does_not_go_back(events: tuple[Any, ...], times: int) -> None:
    assert of(*events) == ({Kind.EPOCH_BACK: times} if times else {})


def entry(epoch: int, start: int) -> dict[str, Any]:
    return event("epoch", leader_epoch=epoch, start_offset=start)


@pytest.mark.parametrize(
    ("events", "times"),
    [
        ((entry(0, 0), entry(2, 5), entry(1, 7)), 1),
        ((entry(0, 0), entry(2, 5), entry(2, 7)), 1),
        ((entry(0, 0), entry(2, 5), event("truncation", old=9, new=5), entry(1, 5)), 0),
        ((entry(0, 0), entry(2, 5), event("truncation", old=9, new=6), entry(1, 6)), 1),
        # The follower begins again at the leader's log start, which has moved: its whole cache is cleared.
        ((entry(0, 0), event("truncation", old=3, new=8, log_start_offset=8), entry(0, 8)), 0),
        ((entry(2, 1), event("truncation", old=9, new=8, log_start_offset=8), entry(2, 8)), 0),
        ((entry(0, 0), event("truncation", old=3, new=8), entry(0, 8)), 0),
        ((entry(2, 1), event("truncation", old=9, new=8, log_start_offset=0), entry(2, 8)), 1),
        ((entry(0, 0), entry(1, 5), entry(2, 5)), 0),
        ((entry(0, 0), entry(2, 5), STARTING, entry(1, 7)), 0),
    ],
)
def test_epochs_rise_in_the_cache(events: tuple[Any, ...], times: int) -> None:
    assert of(*events) == ({Kind.EPOCH_BACK: times} if times else {})


def test_epochs_do_not_fall_along_the_log() -> None:
    """Leader epochs in a log never fall (KIP-101), which the rules before KIP-320 break."""
    guilty = log(kept(0, leader_epoch=1), kept(1, leader_epoch=0))
    assert found(report(None, guilty)) == {Kind.EPOCH_BACK: 1}
    assert found(report(None, log(kept(0, leader_epoch=0), kept(1, leader_epoch=1)))) == {}


def test_an_epoch_has_one_leader() -> None:
    assert of(leads(1), leads(1, source=2)) == {Kind.TWO_LEADERS: 1}
    assert of(leads(1), leads(2, source=2), leads(3)) == {}
    assert of(leads(1), leads(0), leads(1, source=2)) == {}, "the topic was made again"


def test_a_topic_that_was_deleted_and_created_again_begins_from_scratch() -> None:
    """The same epoch 0, perhaps the same leader, and a high watermark from 0 on; or another leader in epoch 0."""
    first = (leads(0), follows(0, source=1), entry(0, 0), high_watermark(0, 9))
    made = event("election", source=2, strategy="initial", leader=0, leader_epoch=0, isr=[0, 1])
    assert of(*first, made, entry(0, 0), leads(0), high_watermark(0, 5)) == {}
    assert of(*first, made, leads(0, source=1), follows(0), high_watermark(0, 5, source=1)) == {}
    assert of(*first, leads(0), high_watermark(0, 5)) == {Kind.HIGH_WATERMARK_BACK: 1}
    assert of(*first, leads(0, source=1)) == {Kind.TWO_LEADERS: 1}


def test_another_topics_events_say_nothing() -> None:
    assert of({**leads(3), "topic": "u"}, follows(2)) == {}


# Acknowledged below min.insync.replicas


def acknowledged(begin_ms: int, end_ms: int, **fields: Any) -> dict[Kind, int]:
    events = fields.pop("events")
    history = [sent(0, invoked_us=begin_ms * 1000, completed_us=end_ms * 1000, **fields)]
    return found(report(history, log(kept(0)), events=events, min_isr=2))


SHRUNK = (isr(0, 1, 2), leads(0), isr(0, time_ms=1000))
GUILTY = {Kind.ACKNOWLEDGED_BELOW_MIN_ISR: 1}


def setting(old: int, new: int, topic: str = "t") -> dict[str, Any]:
    """A broker takes over another min.insync.replicas."""
    return {
        "kind": "min_insync_replicas",
        "resource": topic,
        "old": old,
        "new": new,
        "time_ms": 5000,
        "source": "broker-0",
    }


def test_where_the_setting_was_changed_its_least_value_counts() -> None:
    """One in-sync replica was enough when the record was acknowledged: it is convicted only where two always were."""
    assert acknowledged(1500, 1600, events=(*SHRUNK, setting(1, 2))) == {}
    assert acknowledged(1500, 1600, events=(*SHRUNK, setting(2, 1), setting(1, 2))) == {}
    assert acknowledged(1500, 1600, events=(*SHRUNK, setting(3, 2))) == GUILTY
    assert acknowledged(1500, 1600, events=(*SHRUNK, setting(1, 2, topic="u"))) == GUILTY


def test_an_acknowledgement_while_the_isr_was_too_small() -> None:
    assert acknowledged(1500, 1600, events=SHRUNK) == GUILTY
    assert acknowledged(1500, 1600, events=SHRUNK, acks="1") == {}
    assert acknowledged(500, 1600, events=SHRUNK) == {}, "it may have been acknowledged before"
    assert acknowledged(1050, 1600, events=SHRUNK) == {}, "clocks differ a little"
    assert acknowledged(1500, 1600, events=(*SHRUNK, isr(0, 2, time_ms=1550))) == {}, "it grew again meanwhile"
    assert acknowledged(1500, 1600, events=(*SHRUNK, isr(0, 2, time_ms=1800))) == GUILTY
    assert acknowledged(1500, 1600, events=()) == {}, "nothing is known"


def test_the_maximal_isr_counts_while_a_change_is_pending() -> None:
    shrinking = isr(0, state="pending-shrink", old=(0, 1, 2), time_ms=1000)
    assert acknowledged(1500, 1600, events=(isr(0, 1, 2), leads(0), shrinking)) == {}
    growing = isr(0, 1, state="pending-expand", old=(0,), time_ms=1200)
    assert acknowledged(1500, 1600, events=(*SHRUNK, growing)) == {}


def test_a_leader_that_was_replaced_acknowledges_nothing_any_more() -> None:
    replaced = (isr(0, 1, 2), leads(0), isr(1, source=1, time_ms=1000), leads(1, source=1, time_ms=1000))
    assert acknowledged(1500, 1600, events=replaced) == GUILTY
    zombie = (*replaced[:2], isr(1, source=1, time_ms=1000), leads(0, source=1, time_ms=1000))
    assert Kind.ACKNOWLEDGED_BELOW_MIN_ISR not in acknowledged(1500, 1600, events=zombie), "not a higher epoch"
    gone = (*SHRUNK, event("broker", time_ms=1200, state="starting"))
    assert acknowledged(1500, 1600, events=gone) == {}, "nobody is known to have led"
