"""Replica assignment: Kafka's AdminUtils, rack-unaware and rack-aware (KIP-36).

Holds the examples in AdminUtils' own comments (five brokers; six brokers in three racks), the growth of a topic, and by
properties that every assignment is legal and even. Each of these breaks a test: no shift after a round, a follower on
the leader's broker, racks ignored.
"""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from memory_zookeeper import MemoryZooKeeper, Term

from tidegauge.assignment import assign_replicas, rack_alternated
from tidegauge.control import Endpoint
from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.settings import parse_broker_settings
from tidegauge_controller.admin import NewTopic
from tidegauge_controller.rules.topics import plan_assignment

RACKS = {0: "rack1", 1: "rack3", 2: "rack3", 3: "rack2", 4: "rack2", 5: "rack1"}


def brokers(*ids: int, racks: dict[int, str] | None = None) -> list[Endpoint]:
    return [Endpoint(i, "127.0.0.1", 19000 + i, (racks or {}).get(i)) for i in ids]


def test_the_example_of_five_brokers():
    assigned = assign_replicas(brokers(0, 1, 2, 3, 4), 10, 3, start=0, shift=0)
    assert assigned == {
        0: (0, 1, 2),
        1: (1, 2, 3),
        2: (2, 3, 4),
        3: (3, 4, 0),
        4: (4, 0, 1),
        5: (0, 2, 3),
        6: (1, 3, 4),
        7: (2, 4, 0),
        8: (3, 0, 1),
        9: (4, 1, 2),
    }


@pytest.mark.parametrize(
    ("start", "shift", "first"),
    [
        (0, 0, [(0, 1, 2), (1, 2, 3), (2, 3, 4)]),
        (1, 0, [(1, 2, 3), (2, 3, 4), (3, 4, 0)]),
        (0, 1, [(0, 2, 3), (1, 3, 4), (2, 4, 0)]),
        (4, 2, [(4, 2, 3), (0, 3, 4), (1, 4, 0)]),
        (0, 3, [(0, 4, 1), (1, 0, 2), (2, 1, 3)]),
        (5, 5, [(0, 1, 2), (1, 2, 3), (2, 3, 4)]),  # random numbers count modulo the number of brokers
    ],
)
def test_start_and_shift(start: int, shift: int, first: list[tuple[int, ...]]):
    assigned = assign_replicas(brokers(0, 1, 2, 3, 4), 3, 3, start=start, shift=shift)
    assert list(assigned.values()) == first


def test_positions_count_not_ids():
    assert assign_replicas(brokers(7, 3, 9), 3, 2, start=0, shift=0) == {0: (7, 3), 1: (3, 9), 2: (9, 7)}


def test_a_growing_topic_goes_on_as_if_it_had_been_made_so():
    """The shift grows where the partition number is a multiple of the number of brokers, from there on."""
    whole = assign_replicas(brokers(0, 1, 2), 7, 2, start=1, shift=1)
    more = assign_replicas(brokers(0, 1, 2), 4, 2, start=1, shift=1, first_partition=3)
    assert list(more) == [3, 4, 5, 6]
    assert {p: whole[p] for p in more} == more


def test_one_broker():
    assert assign_replicas(brokers(4), 3, 1, start=9, shift=9) == {0: (4,), 1: (4,), 2: (4,)}


@pytest.mark.parametrize(
    ("partitions", "factor", "error", "sentence"),
    [
        (0, 1, ErrorCode.INVALID_PARTITIONS, "Number of partitions must be larger than 0."),
        (-1, 1, ErrorCode.INVALID_PARTITIONS, "Number of partitions must be larger than 0."),
        (1, 0, ErrorCode.INVALID_REPLICATION_FACTOR, "Replication factor must be larger than 0."),
        (
            1,
            3,
            ErrorCode.INVALID_REPLICATION_FACTOR,
            "Replication factor: 3 larger than available brokers: 2.",
        ),
    ],
)
def test_illegal_counts(partitions: int, factor: int, error: ErrorCode, sentence: str):
    with pytest.raises(TidegaugeError) as refused:
        assign_replicas(brokers(0, 1), partitions, factor, start=0, shift=0)
    assert (refused.value.code, refused.value.message) == (error, sentence)


def test_racks_take_turns():
    """Racks by name, the brokers of each by id."""
    assert rack_alternated(RACKS) == [0, 3, 1, 5, 4, 2]
    assert rack_alternated({1: "b", 2: "b", 3: "b", 4: "a"}) == [4, 1, 2, 3]


def test_the_example_of_three_racks():
    """AdminUtils' own: the second round begins with [0, 4, 2] instead of [0, 3, 1]."""
    assigned = assign_replicas(brokers(*range(6), racks=RACKS), 7, 3, start=0, shift=0)
    assert assigned == {
        0: (0, 3, 1),
        1: (3, 1, 5),
        2: (1, 5, 4),
        3: (5, 4, 2),
        4: (4, 2, 0),
        5: (2, 0, 3),
        6: (0, 4, 2),
    }


def test_more_replicas_than_racks_use_every_rack_first():
    racks = {0: "a", 1: "a", 2: "a", 3: "b"}
    for replicas in assign_replicas(brokers(*racks, racks=racks), 8, 3, start=1, shift=2).values():
        assert 3 in replicas
        assert len(set(replicas)) == 3


def test_all_brokers_or_none_have_a_rack():
    with pytest.raises(TidegaugeError, match="Not all brokers have rack information"):
        assign_replicas(brokers(0, 1, 2, racks={0: "a", 1: "b"}), 1, 2, start=0, shift=0)


@settings(max_examples=150, deadline=None)
@given(data=st.data(), count=st.integers(1, 8), partitions=st.integers(1, 30), has_racks=st.booleans())
def test_every_assignment_is_legal_and_even(data: st.DataObject, count: int, partitions: int, has_racks: bool):
    factor = data.draw(st.integers(1, count))
    start, shift = data.draw(st.integers(0, 20)), data.draw(st.integers(0, 20))
    racks = {i: data.draw(st.sampled_from("abc")) for i in range(count)} if has_racks else {}
    assigned = assign_replicas(brokers(*range(count), racks=racks), partitions, factor, start=start, shift=shift)
    assert list(assigned) == list(range(partitions))
    for replicas in assigned.values():
        assert len(set(replicas)) == len(replicas) == factor
        assert set(replicas) <= set(range(count))
        if racks:
            assert len({racks[i] for i in replicas}) == min(factor, len(set(racks.values())))
    leaders = Counter(replicas[0] for replicas in assigned.values())
    assert max(leaders.values()) - min(leaders[i] for i in range(count)) <= 1


def test_the_racks_of_registered_brokers_spread_a_topics_replicas():
    """From the znode's rack to the assignment: no partition has two replicas in one of three racks."""
    zookeeper = MemoryZooKeeper()
    for broker_id, rack in RACKS.items():
        zookeeper.register_broker(broker_id, rack)
    term = Term(zookeeper).start()
    defaults, _ = parse_broker_settings({})
    topic = NewTopic("orders", 12, 3)
    for start in range(6):
        planned = plan_assignment(topic, term.context.endpoints(), defaults, start=start, shift=start)
        assert {len({RACKS[replica] for replica in replicas}) for replicas in planned.values()} == {3}
        assert Counter(replicas[0] for replicas in planned.values()) == dict.fromkeys(RACKS, 2)
