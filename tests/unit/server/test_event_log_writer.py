"""The event log keeps every change, in order; only high watermark and log end offset are merged for a moment."""

from __future__ import annotations

import json
from pathlib import Path

from tidegauge.event_log import read_events
from tidegauge.logical_clock import LogicalClock
from tidegauge.partition import TopicPartition
from tidegauge_broker.server.event_log_writer import EventLogWriter

AT = TopicPartition("orders", 0)


class Timers:
    def __init__(self) -> None:
        self.waiting = []

    def __call__(self, _seconds, call):
        self.waiting.append(call)

    def ring(self) -> None:
        waiting, self.waiting = self.waiting, []
        for call in waiting:
            call()


def writer(path: Path, timers: Timers, max_bytes: int = 1_000_000) -> EventLogWriter:
    ticks = iter(range(1, 100_000))
    return EventLogWriter(path, "broker-1", lambda: next(ticks), timers, max_bytes)


def test_changes_of_the_high_watermark_are_merged_from_the_first_old_to_the_last_new(tmp_path):
    timers = Timers()
    log = writer(tmp_path / "events.jsonl", timers)
    for old in range(3):
        log.note("high_watermark", "Fetch", {"old": old, "new": old + 1}, AT)
    assert list(read_events(tmp_path / "events.jsonl")) == []
    timers.ring()
    (event,) = read_events(tmp_path / "events.jsonl")
    assert (event["old"], event["new"], event["topic"], event["partition"]) == (0, 3, "orders", 0)


def test_any_other_event_is_written_at_once_behind_what_was_merged_before_it(tmp_path):
    log = writer(tmp_path / "events.jsonl", Timers())
    log.note("log_end_offset", "Produce", {"old": 0, "new": 5}, AT)
    log.note("role", "LeaderAndIsr", {"role": "follower", "leader": 2, "leader_epoch": 7}, AT)
    events = list(read_events(tmp_path / "events.jsonl"))
    assert [event["kind"] for event in events] == ["log_end_offset", "role"]
    assert [event["sequence"] for event in events] == [1, 2]


def test_a_full_file_moves_away_and_only_two_are_kept(tmp_path):
    path = tmp_path / "events.jsonl"
    log = writer(path, Timers(), max_bytes=400)
    for epoch in range(12):
        log.note("epoch", "LeaderAndIsr", {"leader_epoch": epoch, "start_offset": epoch}, AT)
    log.close()
    assert sorted(p.name for p in tmp_path.iterdir()) == ["events.jsonl", "events.jsonl.1"]
    assert path.stat().st_size <= 400
    assert list(read_events(path))[-1]["leader_epoch"] == 11


def test_a_write_that_fails_ends_the_event_log_and_not_the_broker(tmp_path, caplog):
    (tmp_path / "taken").write_text("a file, no folder")
    log = writer(tmp_path / "taken" / "events.jsonl", Timers())
    log.note("broker", "Lifecycle", {"state": "starting"})
    log.note("broker", "Lifecycle", {"state": "registered"})
    assert caplog.text.count("can't be written") == 1


def test_each_line_is_one_json_object_with_the_common_fields(tmp_path):
    log = writer(tmp_path / "events.jsonl", Timers())
    log.note("controller", "Election", {"state": "elected", "controller_epoch": 4})
    (line,) = (tmp_path / "events.jsonl").read_text().splitlines()
    assert json.loads(line) == {
        "time_ms": 1,
        "logical_time": 2000,
        "sequence": 1,
        "source": "broker-1",
        "kind": "controller",
        "cause": "Election",
        "state": "elected",
        "controller_epoch": 4,
    }


def test_a_merged_line_has_the_times_and_the_cause_of_its_last_change_and_counts_its_changes(tmp_path):
    """So the line is true at its time; earlier events of another process come before it."""
    timers, clock = Timers(), LogicalClock(lambda: 0)
    log = EventLogWriter(tmp_path / "events.jsonl", "broker-1", lambda: 1, timers, logical_clock=clock)
    log.note("log_end_offset", "Produce", {"old": 0, "new": 1}, AT)
    clock.receive(40)
    log.note("log_end_offset", "FetchResponse", {"old": 1, "new": 2}, AT)
    timers.ring()
    log.note("epoch", "LeaderAndIsr", {"leader_epoch": 0, "start_offset": 0}, AT)
    merged, epoch = read_events(tmp_path / "events.jsonl")
    assert (merged["logical_time"], merged["changes"], epoch["logical_time"]) == (41, 2, 42)
    assert (merged["old"], merged["new"], merged["cause"]) == (0, 2, "FetchResponse")
    assert "changes" not in epoch


def test_a_run_that_begins_with_the_high_watermark_never_shows_it_above_the_log_end_offset(tmp_path):
    """A replica's high watermark is at most its log end offset (docs/replication.md), in the event log too."""
    timers = Timers()
    log = writer(tmp_path / "events.jsonl", timers)
    log.note("log_end_offset", "Produce", {"old": 0, "new": 2}, AT)
    timers.ring()
    log.note("high_watermark", "Fetch", {"old": 0, "new": 2}, AT)
    log.note("log_end_offset", "Produce", {"old": 2, "new": 4}, AT)
    log.note("high_watermark", "Fetch", {"old": 2, "new": 4}, AT)
    log.note("log_end_offset", "Produce", {"old": 4, "new": 5}, AT)
    log.note("log_end_offset", "Produce", {"old": 5, "new": 6}, AT)
    timers.ring()
    lines = [(event["kind"], event["old"], event["new"]) for event in read_events(tmp_path / "events.jsonl")]
    assert lines == [
        ("log_end_offset", 0, 2),
        ("log_end_offset", 2, 4),
        ("high_watermark", 0, 4),
        ("log_end_offset", 4, 6),
    ]
