"""Event logs that a stranger has made: lines that make no sense are left out, or shown by their kind."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import examples

from tidegauge import event_log
from tidegauge_lab.local.fault_log import next_sequence
from tidegauge_lab.timeline.moment import ClusterMoment
from tidegauge_lab.timeline.reading import Timeline
from tidegauge_lab.timeline.words import line

NAMES = [
    "time_ms",
    "logical_time",
    "sequence",
    "topic",
    "partition",
    "group",
    "old",
    "new",
    "epochs",
    "leader",
    "isr",
    "replicas",
    "state",
    "broker",
    "role",
    "leader_epoch",
    "action",
    "fault",
    "cause",
    "strategy",
    "members",
    "reason",
]
LEAVES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**70), 2**70),
    st.floats(),
    st.text(max_size=5),
    st.lists(st.integers(), max_size=2),
)
VALUES = LEAVES | st.dictionaries(st.text(max_size=3), LEAVES, max_size=2)
EVENTS = st.fixed_dictionaries(
    {
        "kind": st.sampled_from(sorted(event_log.KINDS)) | VALUES,
        "source": st.sampled_from(["broker-0", "lab"]) | VALUES,
    },
    optional=dict.fromkeys(NAMES, VALUES),
).map(json.dumps)
LINES = st.lists(EVENTS | st.text(max_size=20) | st.just("[" * 5000), max_size=6)


@settings(max_examples=examples(200), deadline=None)
@given(LINES)
def test_any_lines_are_read_ordered_and_worded(tmp_path_factory: pytest.TempPathFactory, lines: list[str]) -> None:
    """No line stops a reader: the verb ``timeline``, the page, or the lab that goes on with the numbers."""
    logs = tmp_path_factory.getbasetemp() / "hostile-logs"
    logs.mkdir(exist_ok=True)
    path = logs / event_log.file_name("broker-0")
    path.write_text("".join(f"{one}\n" for one in lines), encoding="utf-8", errors="replace")
    events = event_log.read_directory(logs)
    timeline = Timeline(logs)
    try:
        assert sorted(map(json.dumps, timeline.written())) == sorted(map(json.dumps, events))
    finally:
        timeline.close()
    assert events == sorted(events, key=event_log.causal_key)
    moment = ClusterMoment()
    for event in events:
        assert line(event)
        moment.apply(event)
    json.dumps(moment.view())
    assert next_sequence(path.read_bytes()) > 0


@pytest.mark.parametrize(
    "event",
    [{"time_ms": "x"}, {"time_ms": {}}, {"time_ms": 10**18}, {"logical_time": None}, {"sequence": True}, {"kind": 1}],
)  # fmt: skip
def test_an_event_that_can_not_be_put_in_order_is_left_out(event: Any) -> None:
    assert event_log.read_line(json.dumps(event)) is None


def test_a_line_that_is_nested_too_deeply_is_left_out(tmp_path: Path) -> None:
    """Python's reader of JSON raises RecursionError, which is no ValueError."""
    assert event_log.read_line("[" * 100_000) is None
