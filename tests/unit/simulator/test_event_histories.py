"""Random histories of the real core, as the brokers' event logs have them: what an instrument shows of them is true.

A healthy history must be judged healthy: the timeline shows no high watermark above a log end, and the accountant finds
nothing in the events.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from functools import cache
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from tidegauge.event_log import read_events
from tidegauge.partition import TopicPartition
from tidegauge_broker.server.event_log_writer import EventLogWriter
from tidegauge_lab.accountant.books import Findings, Kind
from tidegauge_lab.accountant.epochs import check_events
from tidegauge_proof.simulator.simulation import history_of, replay_schedule
from tidegauge_proof.simulator.swarm import MAY_LOSE, MUST_SURVIVE

SEEDS = range(12)
STEPS = 400
LOSING_SEEDS = (0, 5, 10)
"""Histories with a power loss in which a replica that was the last member of the ISR comes back with a shorter log."""
Event = dict[str, Any]


@cache
def events_of(seed: int, power: str) -> list[Event]:
    """A whole history's events, in the order in which they happened."""
    schedule = history_of(seed, STEPS, power=power).schedule
    history = replay_schedule(seed, tuple(schedule), power=power, tells=True)
    assert history.violation is None
    return history.events


def check_offsets(events: Iterable[Event]) -> int:
    """HW <= LEO of each replica after each event; what a broker that starts again holds is unknown. Returns the lines
    after which both were known."""
    ends: dict[tuple[str, str, int], int] = {}
    marks: dict[tuple[str, str, int], int] = {}
    checked = 0
    for event in events:
        source, kind = event["source"], event["kind"]
        if kind == "broker" and event.get("state") == "starting":
            for known in (ends, marks):
                for replica in [one for one in known if one[0] == source]:
                    del known[replica]
        if "topic" not in event:
            continue
        replica = (source, event["topic"], event["partition"])
        if kind in {"log_end_offset", "truncation"}:
            ends[replica] = event["new"]
        elif kind == "high_watermark":
            marks[replica] = event["new"]
        if replica in ends and replica in marks:
            assert marks[replica] <= ends[replica], event
            checked += 1
    return checked


def as_written(events: Iterable[Event], source: str, path: Path, dice: random.Random) -> Iterator[Event]:
    """A broker's events through its writer, whose time to write comes at random."""
    due: list[Any] = []
    moments = count(1)
    writer = EventLogWriter(path, source, lambda: next(moments), lambda _, flush: due.append(flush))
    common = ("source", "kind", "cause", "topic", "partition", "time_ms")
    for event in events:
        if event["source"] != source:
            continue
        at = TopicPartition(event["topic"], event["partition"]) if "topic" in event else None
        fields = {name: value for name, value in event.items() if name not in common}
        writer.note(event["kind"], event.get("cause", ""), fields, at)
        if due and dice.random() < 0.1:
            due.pop()()
    writer.close()
    yield from read_events(path)


@pytest.mark.parametrize("power", [MUST_SURVIVE, MAY_LOSE])
@pytest.mark.parametrize("seed", SEEDS)
def test_no_event_shows_a_high_watermark_above_the_log_end_offset(seed: int, power: str, tmp_path: Path) -> None:
    """Neither as the core notes them, nor as the event log merges them."""
    events = events_of(seed, power)
    assert check_offsets(events) > 0
    for source in ("broker-1", "broker-2"):
        lines = list(as_written(events, source, tmp_path / source, random.Random(seed)))
        assert check_offsets(lines) > 0
        assert [line["sequence"] for line in lines] == list(range(1, len(lines) + 1))
        assert [line["logical_time"] for line in lines] == sorted(line["logical_time"] for line in lines)


@pytest.mark.parametrize("seed", SEEDS)
def test_the_accountant_finds_nothing_in_the_events_of_a_healthy_history(seed: int) -> None:
    findings = Findings()
    check_events("orders", events_of(seed, MUST_SURVIVE), findings)
    assert {kind: tally.examples for kind, tally in findings.tallies.items()} == {}


@pytest.mark.parametrize("seed", LOSING_SEEDS)
def test_the_accountant_finds_what_a_power_loss_takes_from_a_cleanly_elected_leader(seed: int) -> None:
    """KAFKA-14139: nothing else is wrong with such a history, and no broker reports it."""
    findings = Findings()
    check_events("orders", events_of(seed, MAY_LOSE), findings)
    assert set(findings.tallies) == {Kind.LEADER_BELOW_HIGH_WATERMARK}
