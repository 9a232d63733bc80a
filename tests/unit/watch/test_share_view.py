"""Share partitions as the page shows them (watch/share_view.py): which record is where, at which broker."""

from __future__ import annotations

from dataclasses import replace

from tidegauge.partition import TopicPartition
from tidegauge_client.share_views import BrokerShares, KeptShare, LedShare, Records
from tidegauge_lab.watch.facts import BrokerFacts
from tidegauge_lab.watch.share_view import shares_of
from tidegauge_lab.watch.view import difference

AT = TopicPartition("orders", 0)
LED = LedShare(
    *("q", AT, "active", 3, 2, 4, 8, 1),
    (
        Records(4, 5, "acquired", 2, "m-1", 900),
        Records(6, 6, "acknowledged", 1, "m-1", is_being_written=True),
        Records(7, 7, "available", 1),
    ),
    high_watermark=12,
    last_stable_offset=10,
)
KEPT = KeptShare("q", AT, 0, 2, 3, 4, 0)
PARTITIONS = {"orders-0": {"leader": 1}}


def broker(number: int, *led: LedShare, kept: tuple[KeptShare, ...] = (), silent: bool = False) -> BrokerFacts:
    return BrokerFacts(number, "b:1", "up", shares=None if silent else BrokerShares(led, kept))


def test_records_are_shown_by_state_with_what_is_durable() -> None:
    found = shares_of([broker(0, kept=(KEPT,)), broker(1, LED)], PARTITIONS)
    assert list(found) == ["q/orders-0"]
    one = found["q/orders-0"]
    assert (one["broker"], one["leads"], one["start"], one["end"], one["readable"]) == (1, True, 4, 8, 12)
    assert one["durableStart"] == 4
    assert [(two["first"], two["last"], two["state"], two["member"], two["writing"]) for two in one["records"]] == [
        (4, 5, "acquired", "m-1", False),
        (6, 6, "acknowledged", "m-1", True),
        (7, 7, "available", None, False),
    ]


def test_without_a_written_start_none_is_durable_and_readers_of_committed_records_end_at_the_stable_offset() -> None:
    begun = replace(LED, reads_committed=True)
    found = shares_of([broker(0, kept=(replace(KEPT, start_offset=-1),)), broker(1, begun)], PARTITIONS)
    assert (found["q/orders-0"]["durableStart"], found["q/orders-0"]["readable"]) == (None, 10)


def test_a_former_leader_that_still_serves_is_shown_beside() -> None:
    found = shares_of([broker(0, replace(LED, leader_epoch=2)), broker(1, LED)], PARTITIONS)
    assert {name: (one["leads"], one["leaderEpoch"]) for name, one in found.items()} == {
        "q/orders-0": (True, 3),
        "q/orders-0 at broker 0": (False, 2),
    }


def test_of_a_broker_that_does_not_respond_nothing_is_shown() -> None:
    assert shares_of([broker(0), broker(1, silent=True)], PARTITIONS) == {}


def test_a_lock_that_runs_down_changes_nothing() -> None:
    """The page is sent what changed; a time that is left would change with every look."""
    later = replace(LED, records=(replace(LED.records[0], lock_left_ms=100), *LED.records[1:]))
    before, after = ({"shares": shares_of([broker(1, one)], PARTITIONS)} for one in (LED, later))
    assert difference(before, after) == {}
    done = replace(LED, records=LED.records[1:], start_offset=6)
    assert list(difference(before, {"shares": shares_of([broker(1, done)], PARTITIONS)})) == ["shares"]
