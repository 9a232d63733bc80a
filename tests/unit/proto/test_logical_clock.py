"""The logical clock: a cause has a smaller stamp than its effect, whatever the wall clocks say (Lamport 1978)."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from tidegauge.event_log import causal_key
from tidegauge.logical_clock import LogicalClock

PROCESSES = 3
steps = st.lists(
    st.one_of(
        st.tuples(st.just("event"), st.integers(0, PROCESSES - 1), st.just(0)),
        st.tuples(st.just("message"), st.integers(0, PROCESSES - 1), st.integers(0, PROCESSES - 1)),
        st.tuples(st.just("wall clock"), st.integers(0, PROCESSES - 1), st.integers(-50, 50)),
    ),
    max_size=40,
)


@settings(max_examples=100)
@given(steps)
def test_an_event_that_happened_before_another_has_the_smaller_stamp(walk):
    """Against vector clocks, which know exactly what happened before what; wall clocks jump both ways."""
    wall = [100] * PROCESSES
    clocks = [LogicalClock(lambda at=at: wall[at]) for at in range(PROCESSES)]
    vectors = [[0] * PROCESSES for _ in range(PROCESSES)]
    events: list[tuple[list[int], int]] = []
    for kind, at, other in walk:
        if kind == "event":
            vectors[at][at] += 1
            events.append((list(vectors[at]), clocks[at].tick()))
        elif kind == "message":
            clocks[other].receive(clocks[at].value)
            vectors[other] = [max(pair) for pair in zip(vectors[other], vectors[at], strict=True)]
        else:
            wall[at] += other
    for vector, stamp in events:
        for later, later_stamp in events:
            if vector != later and all(mine <= theirs for mine, theirs in zip(vector, later, strict=True)):
                assert stamp < later_stamp


def test_the_floor_orders_what_no_message_connects():
    """An election that ZooKeeper brought about comes after the death that caused it."""
    wall = [5_000]
    died, elected = LogicalClock(lambda: wall[0]), LogicalClock(lambda: wall[0])
    death = died.tick()
    wall[0] += 1
    assert death < elected.tick()


def test_a_stamp_stays_exact_in_any_json_reader():
    year_2200_us = 230 * 366 * 86_400 * 1_000_000
    assert LogicalClock(lambda: year_2200_us).tick() < 2**53


def test_events_are_sorted_by_cause_and_older_files_by_their_wall_clock():
    leader = {"time_ms": 2_000, "logical_time": 2_000_000, "source": "broker-1", "sequence": 9}
    follower = {"time_ms": 1_500, "logical_time": 2_000_001, "source": "broker-0", "sequence": 4}
    without = {"time_ms": 1_999, "source": "broker-2", "sequence": 1}
    assert sorted([follower, leader, without], key=causal_key) == [without, leader, follower]
