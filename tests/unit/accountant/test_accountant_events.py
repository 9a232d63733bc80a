"""Violations found in brokers' event logs: high watermarks and epochs that go back, acknowledgements below the ISR."""

from __future__ import annotations

from typing import Any

import pytest
from small_books import event, follows, found, isr, kept, leads, log, report, sent

from tidegauge_lab.accountant.audit import Report
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


def test_another_topic_id_is_another_topic() -> None:
    """Where the controller that made the topic again has written no event, as an Apache Kafka broker writes none."""
    first = (leads(0, topic_id="old"), follows(0, source=1), high_watermark(0, 9))
    again = leads(0, source=1, topic_id="new")
    assert of(*first, again, high_watermark(0, 5, source=1)) == {}
    assert of(*first, leads(0, topic_id="new"), high_watermark(0, 5)) == {}
    assert of(*first, leads(0, source=1, topic_id="old")) == {Kind.TWO_LEADERS: 1}
    assert of(*first, again, leads(0, topic_id="new")) == {Kind.TWO_LEADERS: 1}


def test_another_topics_events_say_nothing() -> None:
    assert of({**leads(3), "topic": "u"}, follows(2)) == {}


# Acknowledged below min.insync.replicas


def judged(begin_ms: int, end_ms: int, **fields: Any) -> Report:
    events = fields.pop("events")
    history = [sent(0, invoked_us=begin_ms * 1000, completed_us=end_ms * 1000, **fields)]
    return report(history, log(kept(0)), events=events)


def acknowledged(begin_ms: int, end_ms: int, **fields: Any) -> dict[Kind, int]:
    return found(judged(begin_ms, end_ms, **fields))


def is_judged(result: Report) -> bool:
    return not any("in sync" in one for one in result.not_checked)


SHRUNK = (isr(0, 1, 2), leads(0), isr(0, time_ms=1000))
GUILTY = {Kind.ACKNOWLEDGED_BELOW_MIN_ISR: 1}


def setting(new: int, topic: str = "t", source: int = 0, time_ms: int = 1000) -> dict[str, Any]:
    """A broker takes over another min.insync.replicas."""
    fields = {"resource": topic, "old": 9, "new": new, "time_ms": time_ms, "source": f"broker-{source}"}
    return {"kind": "min_insync_replicas", **fields}


def test_the_setting_that_the_leader_had_at_the_time_counts() -> None:
    assert acknowledged(1500, 1600, events=(*SHRUNK, setting(1))) == {}
    assert acknowledged(2500, 2600, events=(*SHRUNK, setting(1), setting(2, time_ms=2000))) == GUILTY
    assert acknowledged(1500, 1600, events=(*SHRUNK, setting(1), setting(2, time_ms=2000))) == {}
    assert acknowledged(1500, 1600, events=(*SHRUNK, setting(1), setting(2, time_ms=1550))) == {}, "it may have been 1"
    assert acknowledged(1500, 1600, events=(*SHRUNK, setting(1, topic="u"))) == GUILTY
    assert acknowledged(1500, 1600, events=(*SHRUNK, setting(1, source=1))) == GUILTY, "another broker's view"
    raised = (isr(0, 1), leads(0), setting(3))
    assert acknowledged(1500, 1600, events=raised) == GUILTY
    assert acknowledged(500, 600, events=raised) == {}


def test_a_setting_changed_while_no_broker_ran_counts_from_the_next_role_on() -> None:
    """No event says that it was changed: the role's event names the one in force."""
    lowered = (*SHRUNK, STARTING | {"time_ms": 2000}, isr(0, time_ms=3000), leads(1, 0, 3000, min_insync_replicas=1))
    assert acknowledged(3500, 3600, events=lowered) == {}
    assert acknowledged(1500, 1600, events=lowered) == GUILTY, "it was 2 then"
    before = (isr(0), leads(0, min_insync_replicas=1), STARTING | {"time_ms": 2000})
    raised = (*before, isr(0, time_ms=3000), leads(1, 0, 3000, min_insync_replicas=2))
    assert acknowledged(1500, 1600, events=raised) == {}, "it was 1 then"
    assert acknowledged(3500, 3600, events=raised) == GUILTY


def test_no_more_replicas_are_asked_for_than_the_partition_had_at_the_time() -> None:
    single = (isr(0), leads(0, replicas=[0]))
    assert acknowledged(1500, 1600, events=single) == {}
    grown = (*single, isr(0, time_ms=2000), leads(1, 0, 2000, replicas=[0, 1]))
    assert acknowledged(1500, 1600, events=grown) == {}, "one replica was all there was then"
    assert acknowledged(2500, 2600, events=grown) == GUILTY


def test_where_the_setting_is_not_known_nothing_is_judged_and_that_is_said() -> None:
    silent = {name: value for name, value in leads(0).items() if name != "min_insync_replicas"}
    for events in ((isr(0), silent), (isr(0),), ()):
        result = judged(1500, 1600, events=events)
        assert (found(result), is_judged(result)) == ({}, False)
    assert is_judged(judged(1500, 1600, events=SHRUNK))
    assert is_judged(judged(1500, 1600, events=(isr(0, 1, 2), leads(0))))
    assert is_judged(judged(1500, 1600, events=(), acks="1"))


def test_a_topic_that_was_made_again_is_not_judged_by_what_led_before() -> None:
    """The last leader of a deleted topic writes no end of its leadership; the new topic's leader has another id."""
    old = (isr(0, 1, 2, source=1), leads(4, 1, topic_id="old"))
    new = (isr(0, time_ms=1000), leads(0, 0, 1000, topic_id="new"))
    assert acknowledged(1500, 1600, events=(*old, *new)) == GUILTY
    same = (*old, isr(0, time_ms=1000), leads(0, 0, 1000, topic_id="old"))
    assert Kind.ACKNOWLEDGED_BELOW_MIN_ISR not in acknowledged(1500, 1600, events=same), "not a higher epoch"


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


# Restores


def restore(time_ms: int = 0, taken_ms: int = 0) -> dict[str, Any]:
    return {"kind": "restore", "source": "lab", "time_ms": time_ms, "taken_ms": taken_ms, "snapshot": "s"}


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ((leads(3),), (leads(1),)),
        ((leads(1),), (leads(1, source=2),)),
        ((leads(0), high_watermark(0, 9)), (leads(0), high_watermark(2, 3))),
        ((entry(0, 0), entry(2, 5)), (entry(1, 7),)),
        ((leads(1, topic_id="old"), follows(1, source=1)), (leads(0, source=1, topic_id="older"),)),
    ],
)
def test_what_lies_before_a_restore_is_not_judged_with_what_comes_after(
    before: tuple[Any, ...], after: tuple[Any, ...]
) -> None:
    assert of(*before, restore(), *after) == {}


def test_what_was_wrong_before_a_restore_stays_wrong() -> None:
    assert of(leads(3), follows(2), restore(), leads(1)) == {Kind.EPOCH_BACK: 1}
    assert of(leads(3), restore(), leads(2), follows(1)) == {Kind.EPOCH_BACK: 1}


def test_a_restore_ends_every_leadership() -> None:
    """Else the ISR of a leader that a restore took away would convict, or acquit, later acknowledgements."""
    events = (isr(0), leads(1), restore(time_ms=10), isr(0, 1, time_ms=20), leads(0, time_ms=20))
    acknowledged = sent(0, invoked_us=12_000_000, completed_us=12_000_100)
    assert found(report([acknowledged], log(kept(0)), events=events)) == {}


# A clean election below the high watermark of an earlier epoch (KAFKA-14139)


def elected(epoch: int, leader: int = 0, strategy: str = "offline") -> dict[str, Any]:
    return event("election", source=9, strategy=strategy, leader=leader, leader_epoch=epoch, isr=[leader])


COMMITTED = (elected(1), leads(1, log_end_offset=0), high_watermark(0, 15))


@pytest.mark.parametrize(
    ("later", "times"),
    [
        ((elected(2, -1), elected(3), STARTING, leads(3, log_end_offset=0)), 1),
        ((elected(2, 1), leads(2, source=1, log_end_offset=14)), 1),
        ((elected(2, 1), leads(2, source=1, log_end_offset=15)), 0),
        # A new leader's high watermark merely lags behind (KIP-101).
        ((elected(2, 1), leads(2, source=1, log_end_offset=20), high_watermark(3, 15, source=1)), 0),
        ((elected(2, 1, "unclean"), leads(2, source=1, log_end_offset=3)), 0),
        ((elected(2, 1, "unclean"), elected(3), leads(3, log_end_offset=3)), 0),
        # Records committed by a leader of an unclean election count again.
        (
            (
                elected(2, 1, "unclean"),
                leads(2, source=1, log_end_offset=3),
                high_watermark(0, 3, source=1),
                elected(3),
                leads(3, log_end_offset=2),
            ),
            1,
        ),
        # The election of epoch 2 is in no event log: it may have been unclean.
        ((elected(3), leads(3, log_end_offset=0)), 0),
        ((leads(2, log_end_offset=0),), 0),
        ((elected(2), leads(2)), 0),
        ((restore(), elected(2), leads(2, log_end_offset=0)), 0),
        ((elected(0, strategy="initial"), leads(0, log_end_offset=0)), 0),
        ((elected(2), leads(2, topic_id="another", log_end_offset=0)), 0),
    ],
)
def test_a_cleanly_elected_leader_has_all_that_was_committed(later: tuple[Any, ...], times: int) -> None:
    first = (COMMITTED[0], leads(1, topic_id="one", log_end_offset=0), COMMITTED[2])
    assert of(*first, *later) == ({Kind.LEADER_BELOW_HIGH_WATERMARK: times} if times else {})


def test_a_loss_by_a_clean_election_is_reported_with_both_ends() -> None:
    result = report(None, events=(*COMMITTED, elected(2), leads(2, time_ms=7, log_end_offset=4)))
    (example,) = result.tallies[Kind.LEADER_BELOW_HIGH_WATERMARK].examples
    assert example.offset == 4
    assert example.message == (
        "broker-0, elected cleanly, began epoch 2 with a log that ends at 4, below the high watermark 15 of broker-0 "
        "in epoch 1, at 7 ms"
    )
    assert not result.is_balanced
