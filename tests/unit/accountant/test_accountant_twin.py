"""The near-linear accountant finds what a dumb quadratic one finds, on whatever books."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from quadratic_twin import count_all, differing_offsets, innocent_orders
from small_books import event, found, isr, leads, report
from tests.examples import examples

from tidegauge_client.sent_record import SentRecord
from tidegauge_lab.accountant.books import CommittedLog, KeptRecord, Kind, Mark
from tidegauge_lab.accountant.min_isr import MARGIN_US, Verdict, isr_times
from tidegauge_lab.accountant.replicas import differences

CONTENTS = st.sampled_from([b"a", b"b", b"c"])
KEYS = st.sampled_from([None, b"k"])


@st.composite
def histories(draw: st.DrawFn) -> list[SentRecord]:
    """Few values, timestamps and offsets, so that everything collides; numbers rise within a producer."""
    records: list[SentRecord] = []
    numbers = {"p": 0, "q": 0}
    for _ in range(draw(st.integers(0, 8))):
        producer = draw(st.sampled_from(["p", "q"]))
        outcome = draw(st.sampled_from(["ok", "ok", "ok", "info", "fail"]))
        invoked_us = draw(st.integers(0, 6))
        records.append(
            SentRecord(
                producer,
                numbers[producer],
                draw(KEYS),
                draw(CONTENTS),
                draw(st.integers(0, 1)),
                draw(st.sampled_from(["all", "1", "0"])),
                True,
                invoked_us,
                outcome,
                invoked_us + draw(st.integers(0, 3)),
                draw(st.integers(0, 1)) if outcome == "ok" else draw(st.integers(-1, 1)),
                draw(st.integers(0, 5)) if outcome == "ok" else -1,
                "",
            )
        )
        numbers[producer] += 1
    return records


@st.composite
def committed_logs(draw: st.DrawFn) -> list[CommittedLog]:
    logs = []
    for partition in range(2):
        start = draw(st.integers(0, 2))
        records = [
            KeptRecord(offset, draw(KEYS), draw(CONTENTS), draw(st.integers(0, 1)), 0)
            for offset in range(start, start + draw(st.integers(0, 4)))
            if draw(st.integers(0, 5))  # now and then a hole
        ]
        end = draw(st.integers(records[-1].offset + 1 if records else start, 7))
        logs.append(CommittedLog(partition, start, end, records))
    return logs


@settings(max_examples=examples(300), deadline=None)
@given(histories(), committed_logs())
def test_the_accountant_finds_what_its_twin_finds(history: list[SentRecord], logs: list[CommittedLog]) -> None:
    result = report(history, *logs)
    assert found(result) == dict(count_all(history, logs))
    for account in result.accounts.values():
        assert account.acknowledged == sum((account.kept, account.lost, account.lost_tail, account.deleted))


@st.composite
def histories_of_equals(draw: st.DrawFn) -> tuple[list[SentRecord], list[CommittedLog]]:
    """Records of two contents and one timestamp, most of unknown outcome, and a log of the same two contents."""
    content = [KeptRecord(at, None, draw(CONTENTS), 0, 0) for at in range(draw(st.integers(1, 4)))]
    numbers = {"p": 0, "q": 0}
    records: list[SentRecord] = []
    for _ in range(draw(st.integers(1, 5))):
        producer = draw(st.sampled_from(["p", "q"]))
        invoked_us = draw(st.integers(0, 6))
        offset = draw(st.sampled_from([-1, -1, *range(len(content))]))
        records.append(
            SentRecord(
                producer, numbers[producer], None, draw(CONTENTS) if offset < 0 else content[offset].value, 0, "all",
                True, invoked_us, "info" if offset < 0 else "ok", invoked_us + draw(st.integers(0, 3)),
                -1 if offset < 0 else 0, offset, "",
            )
        )  # fmt: skip
        numbers[producer] += 1
    return records, [CommittedLog(0, 0, len(content), content)]


@settings(max_examples=examples(500), deadline=None)
@given(histories_of_equals())
def test_no_order_is_convicted_that_some_reading_of_the_log_acquits(
    books: tuple[list[SentRecord], list[CommittedLog]],
) -> None:
    history, logs = books
    result = found(report(history, *logs))
    if Kind.REORDERED in result or Kind.REORDERED_IN_REAL_TIME in result:
        assert not innocent_orders(history, logs)


@st.composite
def marks(draw: st.DrawFn) -> list[Mark]:
    made, at = [], 0
    for _ in range(draw(st.integers(0, 5))):
        at += draw(st.sampled_from([0, 0, 0, 1]))
        length = draw(st.integers(1, 3))
        made.append(Mark(at, at + length, draw(st.integers(0, 1)), draw(st.integers(0, 1))))
        at += length
    return made


@settings(max_examples=examples(300), deadline=None)
@given(marks(), marks(), st.integers(0, 5), st.integers(0, 12))
def test_differences_are_found_and_begin_where_the_twin_sees_the_first(
    one: list[Mark], other: list[Mark], begin: int, end: int
) -> None:
    twin = differing_offsets(one, other, begin, end)
    reported = list(differences(one, other, begin, end))
    assert bool(reported) == bool(twin)
    if twin:
        assert reported[0][0] == min(twin)
    covered = {
        offset
        for _, ours, theirs in reported
        for mark in (ours, theirs)
        if mark is not None
        for offset in range(max(begin, mark.base_offset), min(end, mark.next_offset))
    }
    assert twin <= covered, "no difference is left out"


@st.composite
def leaderships(draw: st.DrawFn) -> list[dict[str, Any]]:
    """Two brokers that lead in turns, with the ISR and the setting they have; a step is a second."""
    events: list[dict[str, Any]] = []
    for second in range(draw(st.integers(1, 8))):
        source = draw(st.integers(0, 1))
        what = draw(st.sampled_from(["lead", "isr", "start", "set"]))
        ids = range(draw(st.integers(1, 3)))
        least = draw(st.integers(1, 3))
        if what == "lead":
            role = leads(second, source, second * 1000, min_insync_replicas=draw(st.sampled_from([least, None])))
            events += [isr(*ids, source=source, time_ms=second * 1000), role]
        elif what == "start":
            events.append(event("broker", source, second * 1000, state="starting"))
        elif what == "set":
            change = event("min_insync_replicas", source, second * 1000, resource="t", new=least)
            events.append({name: value for name, value in change.items() if name != "topic"})
        elif any(e["kind"] == "role" and e["source"] == f"broker-{source}" for e in events):
            events.append(isr(*ids, source=source, time_ms=second * 1000))
    return events


def leaders_at(events: list[dict[str, Any]], time_us: int) -> list[bool | None]:
    """Of each broker that leads at a time, whether enough replicas are in sync; None: not known. Step by step."""
    sizes: dict[str, int] = {}
    settings_of: dict[str, int | None] = {}
    for one in events:
        if one["time_ms"] * 1000 > time_us:
            break
        source = one["source"]
        if one["kind"] == "broker":
            sizes.pop(source, None)
            settings_of.pop(source, None)
        elif one["kind"] == "isr":
            sizes[source] = len(one["new"])
        elif one["kind"] == "role":
            sizes, settings_of = {source: sizes[source]}, {source: one["min_insync_replicas"]}
        elif source in sizes and source in settings_of:
            settings_of[source] = one["new"]
    known = {source: settings_of.get(source) for source in sizes}
    return [None if least is None else sizes[source] >= least for source, least in known.items()]


@settings(max_examples=examples(500), deadline=None)
@given(leaderships(), st.integers(0, 9_000), st.integers(0, 3_000))
def test_times_below_min_isr_are_those_of_the_twin(events: list[dict[str, Any]], begin_ms: int, length_ms: int) -> None:
    begin_us, end_us = begin_ms * 1000, (begin_ms + length_ms) * 1000
    looked_at = [begin_us - MARGIN_US, end_us + MARGIN_US, *(one["time_ms"] * 1000 for one in events)]
    moments = [at for at in looked_at if begin_us - MARGIN_US <= at <= end_us + MARGIN_US]
    all_leaders = [leaders_at(events, at) for at in moments]
    seen = {leader for leaders in all_leaders for leader in leaders}
    if True in seen:
        expected = Verdict.INNOCENT
    elif None in seen or not seen:
        expected = Verdict.NOT_JUDGED
    else:
        expected = Verdict.GUILTY if all(all_leaders) else Verdict.INNOCENT
    times = isr_times("t", events).get(0)
    assert (Verdict.NOT_JUDGED if times is None else times.verdict(begin_us, end_us)) == expected
