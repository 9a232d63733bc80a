"""``tidegauge report``: the figures that the Spark job has too (the long test of both is in test_spark_session.py)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st
from tests.replication_events import killed_leader, random_events

from tidegauge.replication_report import text_of
from tidegauge_lab.cli.report import report
from tidegauge_lab.local.cluster import LocalCluster
from tidegauge_lab.replication_figures import figures_of


def test_a_killed_leader_in_figures() -> None:
    """0 is killed at 1000, 1 leads from 1400 with itself alone, 2 is back at 1900; 2500 to 3000 there is no leader."""
    found = figures_of(killed_leader(), 2)
    [partition] = found["partitions"]
    assert partition == {
        "topic": "t",
        "partition": 0,
        "leader_changes": 2,
        "leaderless_ms": 400 + 500,
        "under_min_isr_ms": 500,
        "smallest_isr": 1,
        "hw_lag": {"p50": 0.0, "p95": 10.0, "p99": 10.0, "max": 10},
    }
    assert found["elections"] == [
        {"broker": broker, "elections": 1, "by_strategy": {kind: 1}}
        for broker, kind in ((0, "initial"), (1, "offline"), (2, "offline"))
    ]
    assert found["truncations"] == [{"broker": 2, "truncations": 1, "records": 2}]
    assert (found["events"], found["from_ms"], found["to_ms"]) == (14, 0, 4000)
    assert text_of(found).splitlines()[-1] == "broker 2 truncated 1 time, 2 records"


def test_a_lag_counts_as_long_as_it_lasted() -> None:
    """A lag of 10 records for 900 of 1000 ms is the median and nine tenths, whatever the last 100 ms show."""
    at = {"source": "broker-0", "topic": "t", "partition": 0}
    events = [
        at | {"time_ms": 0, "kind": "role", "role": "leader", "leader": 0, "leader_epoch": 0},
        at | {"time_ms": 0, "sequence": 1, "kind": "high_watermark", "new": 0},
        at | {"time_ms": 0, "sequence": 2, "kind": "log_end_offset", "new": 10},
        at | {"time_ms": 900, "sequence": 3, "kind": "high_watermark", "new": 10},
        at | {"time_ms": 1000, "sequence": 4, "kind": "log_end_offset", "new": 12},
    ]
    [found] = figures_of(events, 2)["partitions"]
    assert found["hw_lag"] == {"p50": 10.0, "p95": 10.0, "p99": 10.0, "max": 10}
    assert (found["leaderless_ms"], found["smallest_isr"]) == (0, None)


_JUNK = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
    max_leaves=4,
)
_NAMES = (
    "time_ms",
    "sequence",
    "source",
    "kind",
    "topic",
    "partition",
    "leader",
    "leader_epoch",
    "isr",
    "new",
    "broker",
)


@given(st.integers(0, 10_000), st.lists(st.tuples(st.integers(0, 200), st.sampled_from(_NAMES), _JUNK), max_size=8))
def test_no_event_stops_the_report(seed: int, changes: list[tuple[int, str, Any]]) -> None:
    """A directory's event logs may be a stranger's."""
    events = random_events(seed)
    for place, name, value in changes:
        events[place % len(events)][name] = value
    assert text_of(figures_of(events, 2))


def test_the_verb_reads_a_directory_and_names_a_topic_that_is_not_there(tmp_path: Path) -> None:
    made = LocalCluster.create(tmp_path / "c")
    made.logs.mkdir(parents=True, exist_ok=True)
    lines = [json.dumps(one) for one in killed_leader()]
    (made.logs / "broker-0.events.jsonl").write_text("\n".join([*lines, "{", ""]), encoding="utf-8")
    asked = ["--dir", str(made.directory)]
    done = CliRunner().invoke(report, [*asked, "-o", "json"])
    assert json.loads(done.output) == figures_of(killed_leader(), 2)
    refused = CliRunner().invoke(report, [*asked, "--topic", "orders"])
    assert refused.exit_code == 1
    assert "the event logs name no topic orders; topics that they name: t" in refused.output
