"""Offsets of the Spark source: Kafka's JSON shape, and Spark's pro-rata rate limit."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.partition import TopicPartition
from tidegauge_spark.offsets import (
    TriggerDelay,
    epochs_from_json,
    from_json,
    offsets_alone,
    parse_assignment,
    parse_offsets,
    rate_limit,
    require_all,
    to_json,
    to_stored,
    topic_ids_from_json,
)

ORDERS = [TopicPartition("orders", index) for index in range(12)]
partitions = st.builds(TopicPartition, st.sampled_from(["a", "b.c"]), st.integers(0, 11))
positions = st.dictionaries(partitions, st.integers(0, 2**62), max_size=8)


def test_json_shape_is_kafkas_and_sorted_by_partition_number() -> None:
    """JsonUtils.partitionOffsets: 2 comes before 10, topics sorted; equal offsets are equal text."""
    offsets = {ORDERS[10]: 5, ORDERS[2]: 0, TopicPartition("a", 0): 7}
    assert json.dumps(to_json(offsets)) == '{"a": {"0": 7}, "orders": {"2": 0, "10": 5}}'


@settings(max_examples=60)
@given(positions)
def test_json_round_trip(offsets: dict[TopicPartition, int]) -> None:
    assert from_json(json.loads(json.dumps(to_json(offsets)))) == offsets


def test_parse_knows_earliest_and_latest() -> None:
    assert parse_offsets("startingOffsets", '{"orders":{"0":23,"1":-2,"2":-1}}') == {
        ORDERS[0]: 23,
        ORDERS[1]: -2,
        ORDERS[2]: -1,
    }


@pytest.mark.parametrize(
    "text",
    [
        "earlist",
        "[]",
        '{"orders":5}',
        '{"orders":{"x":1}}',
        '{"orders":{"0":-3}}',
        '{"orders":{"0":"1"}}',
        '{"orders":{"0":true}}',
        '{"orders":{"0":1.5}}',
        '{"a b":{}}',
    ],
)
def test_bad_offsets_are_refused_with_the_option_named(text: str) -> None:
    with pytest.raises(
        TidegaugeError, match=r'startingOffsets: Expected e\.g\. \{"topicA":\{"0":23,"1":-1\}'
    ) as caught:
        parse_offsets("startingOffsets", text)
    assert caught.value.code is ErrorCode.INVALID_REQUEST


def test_assignment() -> None:
    assert parse_assignment('{"orders":[2,0,2]}') == (ORDERS[0], ORDERS[2])
    for bad in ('{"orders":0}', '{"orders":[-1]}', '{"orders":["0"]}', "{}", '{"orders":[]}'):
        with pytest.raises(TidegaugeError, match=r"assign: Expected e\.g\. .\"topicA\":\[0,1\]"):
            parse_assignment(bad)


def test_specific_offsets_must_name_every_partition() -> None:
    """Spark: "you must specify all TopicPartitions"."""
    with pytest.raises(TidegaugeError, match=r"must specify all TopicPartitions\. Missing: orders-1"):
        require_all("startingOffsets", [ORDERS[0]], ORDERS[:2])
    with pytest.raises(TidegaugeError, match="does not read: orders-2"):
        require_all("startingOffsets", ORDERS[:3], ORDERS[:2])
    require_all("startingOffsets", ORDERS[:2], ORDERS[:2])


def test_rate_limit_is_pro_rata() -> None:
    """KafkaMicroBatchStream.rateLimit: shares by backlog, floor above one record, ceiling below."""
    start = {ORDERS[0]: 100, ORDERS[1]: 0, ORDERS[2]: 7}
    until = {ORDERS[0]: 1000, ORDERS[1]: 100, ORDERS[2]: 8}
    assert rate_limit(100, start, until) == {ORDERS[0]: 100 + 89, ORDERS[1]: 9, ORDERS[2]: 8}


def test_rate_limit_leaves_a_partition_that_went_backwards_to_the_planner() -> None:
    assert rate_limit(10, {ORDERS[0]: 50}, {ORDERS[0]: 40}) == {ORDERS[0]: 40}


@settings(max_examples=100)
@given(st.integers(1, 10**6), st.dictionaries(partitions, st.tuples(st.integers(0, 10**9), st.integers(0, 10**9))))
def test_rate_limit_progresses_and_stays_in_bounds(limit: int, backlog: dict[TopicPartition, tuple[int, int]]) -> None:
    """Every backlog moves, none passes its end, and the sum is above the limit by less than one each."""
    start = {partition: begin for partition, (begin, _) in backlog.items()}
    until = {partition: begin + size for partition, (begin, size) in backlog.items()}
    ends = rate_limit(limit, start, until)
    assert ends.keys() == until.keys()
    for partition, end in ends.items():
        assert start[partition] <= end <= until[partition]
        assert end > start[partition] or until[partition] == start[partition]
    assert sum(ends[one] - start[one] for one in ends) <= limit + len(ends)


def test_epochs_and_topic_ids_are_stored_beside_the_offsets_under_a_key_each() -> None:
    stored = to_stored({ORDERS[0]: 5, ORDERS[1]: 0}, {ORDERS[0]: 3}, {"orders": "AbC"})
    assert stored == {
        "orders": {"0": 5, "1": 0},
        "__epochs": {"orders": {"0": 3}},
        "__topic_ids": {"orders": "AbC"},
    }
    assert topic_ids_from_json(stored) == {"orders": "AbC"}
    assert from_json(stored) == {ORDERS[0]: 5, ORDERS[1]: 0}
    assert epochs_from_json(stored) == {ORDERS[0]: 3}
    assert offsets_alone(stored) == {"orders": {"0": 5, "1": 0}}
    assert to_stored({ORDERS[0]: 5}, {}, {}) == {"orders": {"0": 5}}
    assert topic_ids_from_json({"orders": {"0": 5}}) == {}


@pytest.mark.parametrize("name", ["__epochs", "__topic_ids"])
def test_a_topic_of_that_name_is_read_as_any_other(name: str) -> None:
    odd = TopicPartition(name, 0)
    stored = to_stored({odd: 5}, {odd: 3}, {name: "AbC"})
    assert stored[name] == {"0": 5}
    stored = to_stored({odd: 5}, {}, {})
    assert from_json(stored) == {odd: 5}
    assert topic_ids_from_json(stored) == {}
    assert epochs_from_json(stored) == {}


def test_a_batch_waits_for_enough_records_but_not_for_ever() -> None:
    """minOffsetsPerTrigger, maxTriggerDelay (KafkaMicroBatchStream.delayBatch): the first batch never waits."""
    delay = TriggerDelay(10, 1000)
    start, few, enough = {ORDERS[0]: 0}, {ORDERS[0]: 4, ORDERS[1]: 5}, {ORDERS[0]: 5, ORDERS[1]: 5}
    assert not delay.waits(start, few, now_ms=0)
    assert delay.waits(start, few, now_ms=999)
    assert not delay.waits(start, enough, now_ms=999)
    assert delay.waits(start, few, now_ms=1500)
    assert not delay.waits(start, few, now_ms=1999)
