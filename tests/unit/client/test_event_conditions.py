"""``wait --event`` and ``--truncated``: which event is meant, and logs that grow while they are read."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from tidegauge.partition import TopicPartition
from tidegauge_client.cli.wait import wait
from tidegauge_client.event_conditions import EventCondition, EventWatch, wait_for_event

AT = TopicPartition("orders", 0)


def event(kind: str, source: str = "broker-1", **fields: Any) -> dict[str, Any]:
    return {"time_ms": 5_000, "source": source, "kind": kind, **fields}


TRUNCATES = event("truncation", topic="orders", partition=0, old=3, new=1)
BEGINS_AGAIN = event("truncation", topic="orders", partition=0, old=3, new=8, log_start_offset=8)
ELECTION = event("election", topic="orders", partition=1, leader=2)
KILL = event("fault", "lab", action="kill", broker=2)


@pytest.mark.parametrize(
    ("condition", "fitting"),
    [
        (EventCondition("truncation", AT, truncates=True), [TRUNCATES]),
        (EventCondition("truncation", AT), [TRUNCATES, BEGINS_AGAIN]),
        (EventCondition("truncation", AT, 1, truncates=True), [TRUNCATES]),
        (EventCondition("truncation", AT, 2, truncates=True), []),
        (EventCondition("truncation", TopicPartition("orders", 1), truncates=True), []),
        (EventCondition("election"), [ELECTION]),
        (EventCondition("fault", broker=2), [KILL]),
        (EventCondition("fault", AT), []),
        (EventCondition("election", since_ms=5_000), [ELECTION]),
        (EventCondition("election", since_ms=5_001), []),
    ],
)
def test_the_event_that_is_meant(condition: EventCondition, fitting: list[dict[str, Any]]) -> None:
    events = [TRUNCATES, BEGINS_AGAIN, ELECTION, KILL]
    assert [one for one in events if condition.fits(one)] == fitting


def write(logs: Path, *events: dict[str, Any], end: str = "\n") -> None:
    with (logs / "broker-1.events.jsonl").open("a") as file:
        file.write("\n".join(map(json.dumps, events)) + end)


def test_a_log_is_followed_from_where_it_was_read(tmp_path: Path) -> None:
    watch = EventWatch(tmp_path, EventCondition("truncation", AT, truncates=True))
    assert watch.look() == "no event log holds such an event of orders-0"
    write(tmp_path, ELECTION, BEGINS_AGAIN)
    assert (
        watch.look() == "no event log holds such an event of orders-0; the last truncation of orders-0 is of broker-1"
    )
    write(tmp_path, TRUNCATES, end="")
    assert watch.look() is not None, "the line is not complete"
    write(tmp_path, end="\n")
    assert watch.look() is None
    assert watch.found == TRUNCATES
    watch.close()


def test_an_event_of_before_is_not_waited_for(tmp_path: Path) -> None:
    write(tmp_path, TRUNCATES)
    assert asyncio.run(wait_for_event(tmp_path, EventCondition("truncation"), 0)) == (TRUNCATES, "")
    found, problem = asyncio.run(wait_for_event(tmp_path, EventCondition("election"), 0))
    assert found is None
    assert problem == "no event log holds such an event of the cluster"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--event", "election", "--hw", "orders-0=1"], "exactly one of"),
        (["--truncated", "orders-0", "--event", "election"], "exactly one of"),
        (["--hw", "orders-0=1", "--broker", "1"], "go with --truncated or --event"),
        (["--truncated", "orders-0", "--partition", "orders-0"], "goes with --event"),
        (["--event", "nonsense"], "nonsense"),
    ],
)
def test_what_contradicts_itself_is_a_usage_error(arguments: list[str], words: str) -> None:
    result = CliRunner().invoke(wait, arguments)
    assert result.exit_code == 2
    assert words in result.output


def test_the_event_logs_of_a_cluster_at_an_address_are_not_at_hand(tmp_path: Path) -> None:
    arguments = ["--event", "election", "-b", "127.0.0.1:1", "--dir", str(tmp_path)]
    result = CliRunner().invoke(wait, arguments)
    assert result.exit_code == 1
    assert "name its directory with --dir" in result.output
