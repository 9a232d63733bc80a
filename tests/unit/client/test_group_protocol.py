"""The bytes of ConsumerProtocol, and Kafka's assignors."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.partition import TopicPartition
from tidegauge_client.group.assignors import ASSIGNORS, assign
from tidegauge_client.group.consumer_protocol import (
    MemberSubscription,
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
)

SUBSCRIPTION = bytes.fromhex("0003 00000001 000174 ffffffff 00000000 ffffffff ffff")
"""A Java consumer's subscription to t, in a group record of Kafka 3.9.1."""
ASSIGNMENT = bytes.fromhex("0003 00000001 000174 00000001 00000000 ffffffff")
"""Its assignment, t-0."""


def reads(*topics: str, instance: str | None = None) -> MemberSubscription:
    return MemberSubscription(topics, group_instance_id=instance)


def numbers(assigned: dict[str, list[TopicPartition]]) -> dict[str, list[str]]:
    return {member: [str(at) for at in partitions] for member, partitions in assigned.items()}


def test_the_bytes_are_those_of_the_java_consumer() -> None:
    assert encode_subscription(reads("t")) == SUBSCRIPTION
    assert encode_assignment([TopicPartition("t", 0)]) == ASSIGNMENT
    assert decode_subscription(SUBSCRIPTION) == reads("t")
    assert decode_assignment(ASSIGNMENT) == (TopicPartition("t", 0),)


def test_topics_are_written_in_order() -> None:
    """A subscription whose bytes differ rebalances the group (ConsumerProtocol.serializeSubscription sorts)."""
    assert encode_subscription(reads("b", "a")) == encode_subscription(reads("a", "b"))


def test_older_and_newer_versions_are_read() -> None:
    old = bytes.fromhex("0000 00000001 000174 ffffffff")
    newer = bytes.fromhex("0009") + SUBSCRIPTION[2:] + b"more"
    assert decode_subscription(old) == decode_subscription(newer) == reads("t")
    assert decode_assignment(b"") == ()


@given(st.binary(max_size=40))
def test_bytes_that_are_no_subscription_have_an_error_of_their_own(data: bytes) -> None:
    for decode in (decode_subscription, decode_assignment):
        assert _error(decode, data) in {None, ErrorCode.INCONSISTENT_GROUP_PROTOCOL}


def _error(decode: Callable[[bytes], object], data: bytes) -> ErrorCode | None:
    try:
        decode(data)
    except TidegaugeError as problem:
        return problem.code
    return None


_PARTITIONS = st.lists(st.builds(TopicPartition, st.sampled_from(["a", "b", "c"]), st.integers(0, 9)), unique=True)


@given(_PARTITIONS, st.integers(-1, 99), st.none() | st.text(max_size=5))
def test_what_is_written_is_read(owned: list[TopicPartition], generation: int, rack: str | None) -> None:
    subscription = MemberSubscription(("a", "b"), b"data", tuple(sorted(owned)), generation, rack)
    assert decode_subscription(encode_subscription(subscription)) == subscription
    assert sorted(decode_assignment(encode_assignment(owned))) == sorted(owned)


def test_range_gives_the_first_members_one_more_of_each_topic() -> None:
    assigned = assign("range", {"t": 3, "u": 3}, {"b": reads("t", "u"), "a": reads("t", "u")})
    assert numbers(assigned) == {"b": ["t-2", "u-2"], "a": ["t-0", "t-1", "u-0", "u-1"]}


def test_round_robin_deals_all_partitions_over_all_topics() -> None:
    """RoundRobinAssignor's own examples: equal subscriptions, and different ones."""
    equal = assign("roundrobin", {"t0": 3, "t1": 3}, {"C0": reads("t0", "t1"), "C1": reads("t0", "t1")})
    assert numbers(equal) == {"C0": ["t0-0", "t0-2", "t1-1"], "C1": ["t0-1", "t1-0", "t1-2"]}
    members = {"C0": reads("t0"), "C1": reads("t0", "t1"), "C2": reads("t0", "t1", "t2")}
    different = assign("roundrobin", {"t0": 1, "t1": 2, "t2": 3}, members)
    assert numbers(different) == {"C0": ["t0-0"], "C1": ["t1-0"], "C2": ["t1-1", "t2-0", "t2-1", "t2-2"]}


def test_static_members_come_first_by_instance_id() -> None:
    """KIP-345 (AbstractPartitionAssignor.MemberInfo): a member's new id does not move its partitions."""
    members = {"a-dynamic": reads("t"), "z-2": reads("t", instance="i1"), "y-9": reads("t", instance="i2")}
    assert numbers(assign("range", {"t": 3}, members)) == {"a-dynamic": ["t-2"], "z-2": ["t-0"], "y-9": ["t-1"]}


def test_topics_that_do_not_exist_and_an_unknown_assignor() -> None:
    for protocol in ASSIGNORS:
        assert assign(protocol, {}, {"a": reads("t")}) == {"a": []}
    with pytest.raises(TidegaugeError, match="'sticky'"):
        assign("sticky", {"t": 1}, {"a": reads("t")})


@given(
    st.sampled_from(ASSIGNORS),
    st.dictionaries(st.sampled_from("tuv"), st.integers(1, 7)),
    st.dictionaries(st.text("abc", min_size=1, max_size=3), st.sets(st.sampled_from("tuvw")), min_size=1),
)
def test_each_partition_has_one_reader_who_is_subscribed(
    protocol: str, partitions: dict[str, int], topics: dict[str, set[str]]
) -> None:
    members = {member: reads(*sorted(wanted)) for member, wanted in topics.items()}
    assigned = assign(protocol, partitions, members)
    given_out = [at for found in assigned.values() for at in found]
    wanted_by_any = set().union(*topics.values())
    assert sorted(given_out) == [
        TopicPartition(topic, index)
        for topic in sorted(partitions)
        if topic in wanted_by_any
        for index in range(partitions[topic])
    ]
    assert all(at.topic in topics[member] for member, found in assigned.items() for at in found)
    if protocol == "range":
        for topic in partitions:
            counts = [sum(at.topic == topic for at in assigned[m]) for m in members if topic in topics[m]]
            assert not counts or max(counts) - min(counts) <= 1
