"""Faults of a broker's wall clock: what it shows while one is in force, and afterwards."""

import pytest

from tidegauge.errors import TidegaugeError
from tidegauge.faults.messages import to_message
from tidegauge.faults.model import time_ms
from tidegauge.faults.table import INJECT_DISK, SKEW_CLOCK
from tidegauge_broker.log.lab_disk import DiskFaults
from tidegauge_broker.server.lab.fault_table import FaultTable
from tidegauge_broker.server.lab.wall_clock import LabWallClock

NOW_MS = 1_700_000_000_000
HOUR_MS = 3_600_000


def table() -> FaultTable:
    return FaultTable(1, DiskFaults(sleep=lambda _: None), LabWallClock(lambda: NOW_MS))


def skew(faults: FaultTable, **values: object) -> int:
    return faults.set(to_message(SKEW_CLOCK.wanted(values))).fault_id


@pytest.mark.parametrize(
    ("values", "at_once_ms", "an_hour_later_ms"),
    [
        ({"offset_ms": 5}, NOW_MS + 5, NOW_MS + HOUR_MS + 5),
        ({"offset_ms": -HOUR_MS}, NOW_MS - HOUR_MS, NOW_MS),
        ({"set_to": "2001-09-09T01:46:40Z"}, 10**12, 10**12 + HOUR_MS),
        ({"set_to": "2001-09-09T03:46:40+02:00", "frozen": True}, 10**12, 10**12),
        ({"frozen": True}, NOW_MS, NOW_MS),
        ({"frozen": True, "offset_ms": 7}, NOW_MS + 7, NOW_MS + 7),
        ({"set_to": "1970-01-01T00:00:00Z"}, 0, HOUR_MS),
    ],
)
def test_what_the_clock_shows(values, at_once_ms, an_hour_later_ms):
    faults = table()
    skew(faults, **values)
    assert faults.clock.shown_ms(NOW_MS) == at_once_ms
    assert faults.clock.shown_ms(NOW_MS + HOUR_MS) == an_hour_later_ms


def test_the_clock_never_shows_a_time_before_1970():
    """A negative timestamp means that a record has none (RecordBatch.NO_TIMESTAMP)."""
    faults = table()
    skew(faults, offset_ms=-NOW_MS - 1)
    assert faults.clock.shown_ms(NOW_MS) == 0


def test_a_broker_has_one_clock_so_a_second_fault_replaces_the_first():
    faults = table()
    skew(faults, offset_ms=5)
    second = skew(faults, frozen=True)
    assert [one.fault_id for one in faults.listed()] == [second]
    assert faults.clock.shown_ms(NOW_MS + 1) == NOW_MS


def test_the_end_of_the_fault_gives_the_machines_time_back():
    faults = table()
    disk = faults.set(to_message(INJECT_DISK.wanted({"delay_ms": 1})))
    number = skew(faults, offset_ms=5)
    faults.clear([disk.fault_id])
    assert faults.clock.shown_ms(NOW_MS) == NOW_MS + 5
    faults.clear([number])
    assert faults.clock.shown_ms(NOW_MS) == NOW_MS


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({}, "say what the clock shows: give offset_ms or set_to, or frozen"),
        ({"offset_ms": 1, "set_to": "2030-01-01T00:00:00Z"}, "give offset_ms or set_to, at most one of both"),
        ({"set_to": "tomorrow"}, "set_to is a time such as 2030-01-01T00:00:00Z, not 'tomorrow'"),
        ({"set_to": "2030-01-01T00:00:00"}, "set_to is a time such as"),
        ({"set_to": "1900-01-01T00:00:00Z"}, "set_to is a time such as"),
        ({"offset_ms": 10**14}, "offset_ms is at most"),
    ],
)
def test_a_clock_that_cannot_be_is_refused_before_anything_changes(values, words):
    faults = table()
    with pytest.raises(TidegaugeError, match=words):
        skew(faults, **values)
    assert faults.listed() == []
    assert faults.clock.shown_ms(NOW_MS) == NOW_MS


@pytest.mark.parametrize("value", [None, 5, "", "2030", "9999-12-31T23:59:60Z"])
def test_what_is_no_time(value):
    assert time_ms(value) is None
