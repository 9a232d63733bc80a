"""Creation and deletion of topics, and placement of replicas, as KRaft's controller decides them."""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import Any

import pytest
from tests.unit.metadata.cluster_world import World, directory

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge_controller.metadata.decisions.placement import Placer
from tidegauge_controller.metadata.decisions.topics import (
    PartitionsToAdd,
    TopicToCreate,
    create_partitions,
    create_topics,
    delete_topics,
)
from tidegauge_controller.metadata.image import UNASSIGNED

BAD_ASSIGNMENT = ErrorCode.INVALID_REPLICA_ASSIGNMENT
REFUSED: list[tuple[TopicToCreate, ErrorCode, str]] = [
    (
        TopicToCreate("__cluster_metadata", 1, 1),
        ErrorCode.INVALID_REQUEST,
        "Creation of internal topic __cluster_metadata is prohibited.",
    ),
    (
        TopicToCreate("", 1, 1),
        ErrorCode.INVALID_TOPIC_EXCEPTION,
        "Topic name is invalid: the empty string is not allowed",
    ),
    (TopicToCreate("cc.d", 1, 1), ErrorCode.TOPIC_ALREADY_EXISTS, "Topic 'cc.d' already exists."),
    (
        TopicToCreate("cc_d", 1, 1),
        ErrorCode.INVALID_TOPIC_EXCEPTION,
        "Topic 'cc_d' collides with existing topic: cc.d",
    ),
    (
        TopicToCreate("t", 1, 1, configs=[("a", None), ("b", None)]),
        ErrorCode.INVALID_CONFIG,
        "Null value not supported for topic configs: a,b",
    ),
    (
        TopicToCreate("t", 1, 1, configs=[("no.such", "1")]),
        ErrorCode.INVALID_CONFIG,
        "Unknown topic config name: no.such",
    ),
    (
        TopicToCreate("t", 1, 1, configs=[("segment.bytes", "1048575")]),
        ErrorCode.INVALID_CONFIG,
        "Invalid value 1048575 for configuration segment.bytes: Value must be at least 1048576",
    ),
    (
        TopicToCreate("t", -1, 2, [(0, [0])]),
        ErrorCode.INVALID_REQUEST,
        "A manual partition assignment was specified, but replication factor was not set to -1.",
    ),
    (
        TopicToCreate("t", 2, -1, [(0, [0])]),
        ErrorCode.INVALID_REQUEST,
        "A manual partition assignment was specified, but numPartitions was not set to -1.",
    ),
    (
        TopicToCreate("t", assignment=[(0, [0]), (0, [1])]),
        BAD_ASSIGNMENT,
        "Found multiple manual partition assignments for partition 0",
    ),
    (
        TopicToCreate("t", assignment=[(0, [])]),
        BAD_ASSIGNMENT,
        "The manual partition assignment includes an empty replica list.",
    ),
    (
        TopicToCreate("t", assignment=[(0, [77, 0])]),
        BAD_ASSIGNMENT,
        "The manual partition assignment includes broker 77, but no such broker is registered.",
    ),
    (
        TopicToCreate("t", assignment=[(0, [1, 1])]),
        BAD_ASSIGNMENT,
        "The manual partition assignment includes the broker 1 more than once.",
    ),
    (
        TopicToCreate("t", assignment=[(0, [0, 1]), (1, [0])]),
        BAD_ASSIGNMENT,
        "The manual partition assignment includes a partition with 1 replica(s), but this is not consistent with "
        "previous partitions, which have 2 replica(s).",
    ),
    (
        TopicToCreate("t", assignment=[(0, [2])]),
        BAD_ASSIGNMENT,
        "All brokers specified in the manual partition assignment for partition 0 are fenced or in controlled "
        "shutdown.",
    ),
    (
        TopicToCreate("t", assignment=[(1, [0])]),
        BAD_ASSIGNMENT,
        "partitions should be a consecutive 0-based integer sequence",
    ),
    (
        TopicToCreate("t", 1, 0),
        ErrorCode.INVALID_REPLICATION_FACTOR,
        "Replication factor must be larger than 0, or -1 to use the default value.",
    ),
    (
        TopicToCreate("t", 0, 1),
        ErrorCode.INVALID_PARTITIONS,
        "Number of partitions was set to an invalid non-positive value.",
    ),
    (
        TopicToCreate("t", 1, 9),
        ErrorCode.INVALID_REPLICATION_FACTOR,
        "Unable to replicate the partition 9 time(s): The target replication factor of 9 cannot be reached because "
        "only 3 broker(s) are registered or some brokers have all their log directories cordoned.",
    ),
]


def with_a_fenced_broker() -> World:
    world = World()
    world.create("cc.d", [0])
    world.fence(2)
    return world


@pytest.mark.parametrize(("topic", "error", "sentence"), REFUSED)
def test_a_topic_is_refused(topic: TopicToCreate, error: ErrorCode, sentence: str) -> None:
    """ReplicationControlManager.createTopics and createTopic, ControllerApis.createTopics."""
    world = with_a_fenced_broker()
    decision = create_topics(world.view, [topic], world.random)
    assert [(one.error, one.message) for one in decision.response] == [(error, sentence)]
    assert decision.records == []


def test_a_topic_that_is_refused_leaves_the_others() -> None:
    world = World()
    wanted = [TopicToCreate("a", 1, 1), TopicToCreate("b", 0, 1), TopicToCreate("c", 1, 1), TopicToCreate("c", 1, 1)]
    decision = create_topics(world.view, wanted, world.random)
    assert [(one.name, one.message) for one in decision.response] == [
        ("c", "Duplicate topic name."),
        ("a", ""),
        ("b", "Number of partitions was set to an invalid non-positive value."),
    ]
    world.take(decision)
    assert list(world.view.image.topic_ids) == ["a"]


def test_a_topic_with_defaults_is_placed_and_may_be_validated_only() -> None:
    world = World(num_partitions=4, default_replication_factor=2)
    validated = create_topics(world.view, [TopicToCreate("t")], world.random, validate_only=True)
    assert validated.records == []
    decision = create_topics(world.view, [TopicToCreate("t")], world.random)
    (result,) = decision.response
    assert (result.partition_count, result.replication_factor, decision.atomic) == (4, 2, True)
    world.take(decision)
    assert result.topic_id == world.topic_id()
    states = [world.state("t", partition) for partition in range(4)]
    assert all(len(set(state.replicas)) == 2 and state.isr == state.replicas for state in states)
    assert all(state.leader == state.replicas[0] for state in states)


def test_a_fenced_replica_is_assigned_but_not_in_sync() -> None:
    world = with_a_fenced_broker()
    world.create("t", [2, 1])
    assert (world.state().replicas, world.state().isr, world.state().leader) == ((2, 1), (1,), 1)


def test_a_new_replica_has_its_brokers_only_directory_or_none_yet() -> None:
    world = World([0])
    world.create("t", [0])
    assert world.state().directories == (directory(0),)
    world = World([0], directories=2)
    world.create("t", [0])
    assert world.state().directories == (UNASSIGNED,)


def test_a_request_for_too_many_partitions_is_refused_as_a_whole() -> None:
    world = World()
    wanted = [TopicToCreate("a", 6_000, 1), TopicToCreate("b", 4_001, 1)]
    with pytest.raises(TidegaugeError, match="Excessively large number of partitions per request") as refusal:
        create_topics(world.view, wanted, world.random)
    assert refusal.value.code is ErrorCode.POLICY_VIOLATION
    with pytest.raises(TidegaugeError, match="Unable to perform excessively large batch operation"):
        create_topics(world.view, [TopicToCreate("a", 10_000, 1)], world.random)


def refuse_mutations(count: int) -> None:
    raise TidegaugeError(ErrorCode.THROTTLING_QUOTA_EXCEEDED, f"{count} mutations are too many")


def test_mutation_quotas_refuse_what_was_checked_before() -> None:
    world = World()
    world.create("t", [0], [1])
    created = create_topics(
        world.view, [TopicToCreate("u", 3, 1), TopicToCreate("v", 0, 1)], world.random, refuse_mutations
    )
    assert [one.message for one in created.response] == [
        "3 mutations are too many",
        "Number of partitions was set to an invalid non-positive value.",
    ]
    grown = create_partitions(world.view, [PartitionsToAdd("t", 5)], world.random, refuse_mutations)
    assert [one.message for one in grown.response] == ["3 mutations are too many"]
    deleted = delete_topics(world.view, ["t"], [], refuse_mutations)
    assert [one.message for one in deleted.response] == ["2 mutations are too many"]
    assert created.records + grown.records + deleted.records == []


ADDITIONS = [
    (PartitionsToAdd("x", 2), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "This broker does not know the topic-partition."),
    (PartitionsToAdd("t", 2), ErrorCode.INVALID_PARTITIONS, "Topic already has 2 partition(s)."),
    (
        PartitionsToAdd("t", 1),
        ErrorCode.INVALID_PARTITIONS,
        "The topic t currently has 2 partition(s); 1 would not be an increase.",
    ),
    (
        PartitionsToAdd("t", 4, [[0, 1]]),
        BAD_ASSIGNMENT,
        "Attempted to add 2 additional partition(s), but only 1 assignment(s) were specified.",
    ),
    (
        PartitionsToAdd("t", 3, [[0]]),
        BAD_ASSIGNMENT,
        "The manual partition assignment includes a partition with 1 replica(s), but this is not consistent with "
        "previous partitions, which have 2 replica(s).",
    ),
    (
        PartitionsToAdd("t", 3, [[2, 2]]),
        BAD_ASSIGNMENT,
        "The manual partition assignment includes the broker 2 more than once.",
    ),
    (PartitionsToAdd("t", 20_000), ErrorCode.POLICY_VIOLATION, "Excessively large number of partitions per request."),
]


@pytest.mark.parametrize(("wanted", "error", "sentence"), ADDITIONS)
def test_an_addition_of_partitions_is_refused(wanted: PartitionsToAdd, error: ErrorCode, sentence: str) -> None:
    """ReplicationControlManager.createPartitions."""
    world = World()
    world.create("t", [0, 1], [1, 2])
    decision = create_partitions(world.view, [wanted], world.random)
    assert [(one.error, one.message) for one in decision.response] == [(error, sentence)]
    assert decision.records == []


def test_partitions_are_added_with_the_replication_factor_of_the_first() -> None:
    world = World()
    world.create("t", [0, 1], [1, 2])
    wanted = [PartitionsToAdd("t", 4), PartitionsToAdd("u", 2), PartitionsToAdd("u", 3)]
    decision = create_partitions(world.view, wanted, world.random)
    assert [(one.name, one.message) for one in decision.response] == [("u", "Duplicate topic name."), ("t", "")]
    world.take(decision)
    assert len(world.state("t", 3).replicas) == 2


def test_topics_are_deleted_by_name_or_id_but_not_by_both() -> None:
    world = World()
    for name in ("a", "b", "c"):
        world.create(name, [0])
    ids = [world.topic_id("b"), world.topic_id("c"), "AAAAAAAAAAAAAAAAAAAAAA"]
    decision = delete_topics(world.view, ["a", "c", "x", "x", "y"], ids)
    assert [(one.name, one.error, one.message) for one in decision.response] == [
        ("a", ErrorCode.NONE, ""),
        ("c", ErrorCode.INVALID_REQUEST, "Duplicate topic name."),
        ("x", ErrorCode.INVALID_REQUEST, "Duplicate topic name."),
        ("y", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "This server does not host this topic-partition."),
        ("b", ErrorCode.NONE, ""),
        ("", ErrorCode.INVALID_REQUEST, "Duplicate topic id."),
        ("", ErrorCode.UNKNOWN_TOPIC_ID, "This server does not host this topic ID."),
    ]
    world.take(decision)
    assert list(world.view.image.topic_ids) == ["c"]


def placed(world: World, partitions: int, factor: int, seed: int = 0) -> list[tuple[int, ...]]:
    return Placer(world.view.image, Random(seed)).place(partitions, factor)


def test_placement_is_even_over_brokers() -> None:
    """StripedReplicaPlacer: each broker leads once before one leads twice."""
    world = World([0, 1, 2, 3])
    for seed in range(20):
        found = placed(world, 8, 3, seed)
        assert all(len(set(replicas)) == 3 for replicas in found)
        assert set(Counter(replicas[0] for replicas in found).values()) == {2}
        assert Counter(sum(found, ())) == dict.fromkeys(range(4), 6)


def test_placement_is_shuffled_so_that_assignments_are_not_repeated() -> None:
    """After as many partitions as there are unfenced brokers; with one broker there is nothing to shuffle."""
    assert len(set(placed(World([0, 1, 2, 3]), 40, 3))) > 12
    assert placed(World([0]), 3, 1) == [(0,)] * 3


def racks(*names: str | None, fenced: tuple[int, ...] = ()) -> World:
    world = World([])
    for broker_id, name in enumerate(names):
        world.register(broker_id, rack=name)
        if broker_id not in fenced:
            world.heartbeat(broker_id)
    return world


def test_placement_takes_one_replica_of_each_rack() -> None:
    world = racks("a", "a", "b", "b", "c", "c")
    for seed in range(20):
        for replicas in placed(world, 6, 3, seed):
            assert {broker_id // 2 for broker_id in replicas} == {0, 1, 2}


def test_placement_gives_a_rack_a_second_replica_when_all_have_one() -> None:
    world = racks("a", "a", "b", "b")
    for replicas in placed(world, 8, 3):
        assert len(set(replicas)) == 3
        assert len({broker_id // 2 for broker_id in replicas}) == 2


def test_placement_makes_no_fenced_broker_leader_and_prefers_others_within_a_rack() -> None:
    world = racks("a", "a", "b", fenced=(0, 2))
    for seed in range(20):
        for replicas in placed(world, 4, 2, seed):
            assert replicas == (1, 2)
    world = racks(None, None, None, fenced=(0,))
    for replicas in placed(world, 6, 2):
        assert set(replicas) == {1, 2}


PLACELESS: list[tuple[dict[str, Any], int, str]] = [
    ({}, 0, "Invalid replication factor 0: the replication factor must be positive."),
    (
        {"fenced": (0, 1)},
        1,
        "All brokers are currently fenced, or have all their log directories cordoned.",
    ),
    (
        {},
        3,
        "The target replication factor of 3 cannot be reached because only 2 broker(s) are registered or some brokers "
        "have all their log directories cordoned.",
    ),
]


@pytest.mark.parametrize(("options", "factor", "sentence"), PLACELESS)
def test_placement_is_refused(options: dict[str, Any], factor: int, sentence: str) -> None:
    with pytest.raises(TidegaugeError) as refusal:
        placed(racks(None, None, **options), 1, factor)
    assert (refusal.value.code, refusal.value.message) == (ErrorCode.INVALID_REPLICATION_FACTOR, sentence)


def test_placement_passes_over_brokers_that_shut_down_or_are_cordoned() -> None:
    world = World([0, 1, 2])
    world.create("t", [1])
    world.heartbeat(1, want_shut_down=True)
    world.heartbeat(2, cordoned_log_dirs=(directory(2),))
    assert placed(world, 3, 1) == [(0,)] * 3
