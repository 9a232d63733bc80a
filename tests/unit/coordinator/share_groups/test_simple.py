"""``simple`` gives the assignments of Kafka's own classes in chains of joins and leaves (KIP-932)."""

import gzip
import json
from pathlib import Path

import pytest

from tidegauge.kafka.topic_ids import topic_id_bytes
from tidegauge_broker.coordinator.consumer_group.assignors.java_order import copied_set, java_set, order_in_copied_set
from tidegauge_broker.coordinator.consumer_group.assignors.subscription import GroupToAssign, Member
from tidegauge_broker.coordinator.share_group import simple

STORED = gzip.decompress((Path(__file__).parent / "assignments_of_kafka.jsonl.gz").read_bytes()).decode()
CHAINS = [json.loads(line) for line in STORED.splitlines()]
TOPIC = bytes(range(16))


@pytest.mark.parametrize("chain", CHAINS, ids=lambda chain: f"{chain['assignor']}-{chain['case']}")
def test_each_step_of_a_chain_has_kafkas_assignment_in_kafkas_order(chain):
    ids = {name: topic_id_bytes(text) for name, text in chain["topicIds"].items()}
    names = {topic_id: name for name, topic_id in ids.items()}
    counts = {ids[name]: partitions for name, partitions in chain["partitions"].items()}
    former = {}
    for step in chain["steps"]:
        targets = {
            member: tuple((ids[name], tuple(partitions)) for name, partitions in target)
            for member, target in step["beforeOrder"].items()
        }
        for member, target in former.items():
            if member in targets:  # what Kafka iterates is what the records of the step before bring back
                again = [(topic, tuple(copied_set(dict(target)[topic]))) for topic in java_set(dict(target))]
                assert tuple(again) == targets[member]
        members = {
            member: Member(tuple(ids[name] for name in java_set(step["members"][member])), targets.get(member, ()))
            for member in step["order"]
        }
        former = simple.assign(GroupToAssign(members, counts, step["homogeneous"]))
        shown = {
            member: {names[topic]: sorted(partitions) for topic, partitions in target if partitions}
            for member, target in former.items()
        }
        assert shown == step["after"]


def test_there_are_chains_with_equal_and_with_different_subscriptions():
    assert {step["homogeneous"] for chain in CHAINS for step in chain["steps"]} == {True, False}
    assert len(CHAINS) == 20


def assigned(members, *, partitions=2, assignable=None):
    return simple.assign(GroupToAssign(members, {TOPIC: partitions}, is_homogeneous=True, assignable=assignable))


def test_only_initialized_partitions_are_assigned():
    members = {"a": Member((TOPIC,), ())}
    assert assigned(members, assignable={}) == {"a": ()}
    assert assigned(members, assignable={TOPIC: frozenset({1})}) == {"a": ((TOPIC, (1,)),)}


def test_with_more_members_than_partitions_each_member_has_one():
    members = {name: Member((TOPIC,), ()) for name in "abc"}
    found = assigned(members, partitions=2)
    sizes = sorted(sum(len(partitions) for _, partitions in target) for target in found.values())
    assert sizes == [1, 1, 2]


def test_a_group_without_members_has_no_assignment():
    assert simple.assign(GroupToAssign({}, {}, is_homogeneous=True)) == {}


def test_some_topics_of_a_subscription_have_the_order_that_they_have_among_all():
    """A member may name very many topics that do not exist; what it costs depends on those that do."""
    names = sorted(f"n{number}" for number in range(3_000))
    for known in (names, names[::7], names[5:6], []):
        among_all = [name for name in copied_set(names) if name in set(known)]
        assert order_in_copied_set(known, len(names)) == among_all
