"""Whether a topic may be created, and what it will look like: Kafka's checks, in its order, in its words.

Source: ZkAdminManager.createTopics, AdminZkClient.validateTopicCreate (kafka-behaviour 8.13, 11.1).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from tidegauge.control import Endpoint
from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.partition import topic_name_problem, topic_names_collide
from tidegauge.settings import Values, parse_topic_settings
from tidegauge_controller.admin import NewTopic
from tidegauge_controller.decisions.assignment import assign_replicas


def plan_assignment(
    topic: NewTopic, brokers: Sequence[Endpoint], settings: Values, *, start: int, shift: int
) -> dict[int, tuple[int, ...]]:
    """The replicas of each partition: as given, or by Kafka's algorithm with the broker's defaults.

    Raises:
        TidegaugeError: the counts are illegal, or given together with an assignment.
    """
    has_counts = topic.partition_count is not None or topic.replication_factor is not None
    if has_counts and topic.assignment:
        raise TidegaugeError(
            ErrorCode.INVALID_REQUEST,
            "Both numPartitions or replicationFactor and replicasAssignments were set. "
            "Both cannot be used at the same time.",
        )
    if topic.assignment:
        return {partition: tuple(replicas) for partition, replicas in enumerate(topic.assignment)}
    partition_count = topic.partition_count
    replication_factor = topic.replication_factor
    return assign_replicas(
        brokers,
        settings.integer("num.partitions") if partition_count is None else partition_count,
        settings.integer("default.replication.factor") if replication_factor is None else replication_factor,
        start=start,
        shift=shift,
    )


def check_new_topic(
    topic: NewTopic,
    assignment: Mapping[int, Sequence[int]],
    *,
    existing: Collection[str],
    marked_for_deletion: Collection[str],
) -> None:
    """Check name, assignment and settings.

    Raises:
        TidegaugeError: with Kafka's sentence.
    """
    problem = topic_name_problem(topic.name)
    if problem is not None:
        raise TidegaugeError(ErrorCode.INVALID_TOPIC_EXCEPTION, problem)
    if topic.name in marked_for_deletion:
        raise TidegaugeError(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{topic.name}' is marked for deletion.")
    if topic.name in existing:
        raise already_exists(topic.name)
    colliding = sorted(other for other in existing if topic_names_collide(topic.name, other))
    if colliding:
        raise TidegaugeError(
            ErrorCode.INVALID_TOPIC_EXCEPTION,
            f"Topic '{topic.name}' collides with existing topics: {', '.join(colliding)}",
        )
    check_assignment(assignment)
    parse_topic_settings(topic.configs)


def already_exists(name: str) -> TidegaugeError:
    """The refusal of a second topic of this name."""
    return TidegaugeError(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{name}' already exists.")


def check_assignment(assignment: Mapping[int, Sequence[int]]) -> None:
    """All partitions with equally many replicas, none twice. Whether the brokers exist is not checked, as in Kafka.

    Raises:
        TidegaugeError: INVALID_REPLICA_ASSIGNMENT.
    """
    if len({len(replicas) for replicas in assignment.values()}) != 1:
        raise TidegaugeError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT, "All partitions should have the same number of replicas"
        )
    for replicas in assignment.values():
        if len(set(replicas)) != len(replicas) or not replicas:
            shown = ", ".join(f"{partition}: {list(members)}" for partition, members in sorted(assignment.items()))
            raise TidegaugeError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"Duplicate replica assignment found: {shown}")
