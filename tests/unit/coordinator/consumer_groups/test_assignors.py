"""``uniform`` and ``range`` give the assignments of Kafka's own classes in chains of joins and leaves."""

import json

import pytest
from tests.unit.coordinator.consumer_groups.golden import stored

from tidegauge.kafka.topic_ids import topic_id_bytes
from tidegauge_broker.coordinator.consumer_group.assignors import range_assignor, uniform
from tidegauge_broker.coordinator.consumer_group.assignors.java_order import JavaMap, copied_set, hash_of, java_set
from tidegauge_broker.coordinator.consumer_group.assignors.subscription import GroupToAssign, Member

CHAINS = [json.loads(line) for line in stored("assignments_of_kafka.jsonl.gz").decode().splitlines()]
ASSIGNORS = {"uniform": uniform.assign, "range": range_assignor.assign}


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
            member: Member(
                tuple(ids[name] for name in java_set(step["members"][member])),
                targets.get(member, ()),
                step["instances"].get(member),
            )
            for member in step["order"]
        }
        former = ASSIGNORS[chain["assignor"]](GroupToAssign(members, counts, step["homogeneous"]))
        shown = {
            member: {names[topic]: sorted(partitions) for topic, partitions in target}
            for member, target in former.items()
        }
        assert shown == step["after"]


def test_there_are_chains_of_both_assignors_with_equal_and_with_different_subscriptions():
    kinds = {(chain["assignor"], step["homogeneous"]) for chain in CHAINS for step in chain["steps"]}
    assert kinds == {(name, homogeneous) for name in ASSIGNORS for homogeneous in (True, False)}


def test_java_hashes_strings_numbers_and_topic_ids():
    assert hash_of("ab") == 97 * 31 + 98
    assert hash_of(17) == 17
    assert hash_of(bytes(7) + b"\x01" + bytes(8)) == 1


def test_a_small_set_of_numbers_iterates_by_slots():
    """A java.util.HashSet of 3 and 17 in a table of 16 iterates 17 first."""
    assert list(java_set([3, 17])) == [17, 3]
    assert list(java_set(range(13))) == list(range(13))


def test_a_key_that_is_computed_goes_to_the_head_of_its_slot_and_one_that_is_put_to_the_tail():
    computed: JavaMap[int, str] = JavaMap()
    put: JavaMap[int, str] = JavaMap()
    for key in (1, 17, 33):
        computed.compute_if_absent(key, str)
        put.put(key, "")
    assert list(computed) == [33, 17, 1]
    assert list(put) == [1, 17, 33]


def test_the_members_of_a_group_without_topics_get_nothing():
    group = GroupToAssign({"a": Member((), ()), "b": Member((), ())}, {}, is_homogeneous=True)
    assert uniform.assign(group) == {"a": (), "b": ()}
    assert range_assignor.assign(group) == {"a": (), "b": ()}
    assert uniform.assign(GroupToAssign({}, {}, is_homogeneous=True)) == {}
