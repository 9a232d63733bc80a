"""Merged lines of high watermark and log end offset: a sample of the truth, and HW <= LEO at every line."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tidegauge.merged_offsets import CHANGES, HIGH_WATERMARK, LOG_END_OFFSET, MergedOffsets

REPLICAS = 3
TAKE = "take"
ACTIONS = st.lists(
    st.one_of(
        st.just((TAKE, 0, 0)),
        st.tuples(st.sampled_from([LOG_END_OFFSET, HIGH_WATERMARK]), st.integers(0, REPLICAS - 1), st.integers(1, 9)),
    ),
    max_size=120,
)


def history(actions: list[tuple[str, int, int]]) -> list[dict[str, Any] | None]:
    """Make events of replicas that obey the rule: logs grow, high watermarks move below their ends; None: take now."""
    ends, marks = [0] * REPLICAS, [0] * REPLICAS
    events: list[dict[str, Any] | None] = []
    for kind, replica, amount in actions:
        values = ends if kind == LOG_END_OFFSET else marks
        old = values[replica]
        if kind == TAKE:
            events.append(None)
            continue
        # A follower's high watermark may also fall: to a new leader's, which learnt it a round late.
        new = old + amount if kind == LOG_END_OFFSET else min(ends[replica], max(0, old + amount - 2))
        if new != old:
            values[replica] = new
            time = len(events) + 1
            events.append(
                {"kind": kind, "source": replica, "old": old, "new": new, "time_ms": time, "logical_time": time}
            )
    return events


def merged(events: list[dict[str, Any] | None]) -> list[dict[str, Any]]:
    """Merge all events into lines; the rest is taken at the end."""
    runs = MergedOffsets()
    lines: list[dict[str, Any]] = []
    for event in [*events, None]:
        if event is None:
            lines += runs.take()
            assert not runs
        else:
            runs.add(event["source"], event)
    return lines


@given(ACTIONS)
def test_no_line_shows_a_high_watermark_above_the_log_end_offset(actions: list[tuple[str, int, int]]) -> None:
    shown = {(kind, replica): 0 for kind in (LOG_END_OFFSET, HIGH_WATERMARK) for replica in range(REPLICAS)}
    for line in merged(history(actions)):
        replica = line["source"]
        assert line["old"] == shown[line["kind"], replica], "each line goes on where the last one of its kind ended"
        shown[line["kind"], replica] = line["new"]
        assert shown[HIGH_WATERMARK, replica] <= shown[LOG_END_OFFSET, replica]


@given(ACTIONS)
def test_each_line_is_a_change_that_happened_and_none_is_forgotten(actions: list[tuple[str, int, int]]) -> None:
    events = [event for event in history(actions) if event is not None]
    lines = merged(history(actions))
    happened = {(event["time_ms"], event["kind"], event["source"], event["new"]) for event in events}
    assert all((line["time_ms"], line["kind"], line["source"], line["new"]) in happened for line in lines)
    assert [line["time_ms"] for line in lines] == sorted(line["time_ms"] for line in lines)
    assert sum(line.get(CHANGES, 1) for line in lines) == len(events)
    for kind in (LOG_END_OFFSET, HIGH_WATERMARK):
        for replica in range(REPLICAS):
            of_events = [event["new"] for event in events if (event["kind"], event["source"]) == (kind, replica)]
            of_lines = [line["new"] for line in lines if (line["kind"], line["source"]) == (kind, replica)]
            assert of_lines[-1:] == of_events[-1:]


@given(ACTIONS)
def test_a_run_of_any_length_is_three_lines_of_a_replica_at_most(actions: list[tuple[str, int, int]]) -> None:
    lines = merged([event for event in history(actions) if event is not None])
    for replica in range(REPLICAS):
        kinds = [line["kind"] for line in lines if line["source"] == replica]
        assert kinds.count(LOG_END_OFFSET) <= 2
        assert kinds.count(HIGH_WATERMARK) <= 1


@given(ACTIONS)
def test_merging_again_what_was_merged_is_the_same_as_merging_all_at_once(actions: list[tuple[str, int, int]]) -> None:
    """The sequence diagram merges the lines that the event log writer has merged."""
    events = history(actions)
    at_once = merged([event for event in events if event is not None])
    again = merged(list(merged(events)))
    ends = [{(line["kind"], line["source"]): line["new"] for line in lines} for lines in (at_once, again)]
    assert ends[0] == ends[1]
    assert sum(line.get(CHANGES, 1) for line in at_once) == sum(line.get(CHANGES, 1) for line in again)
