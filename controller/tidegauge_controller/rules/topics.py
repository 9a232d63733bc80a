"""Checks on topics to be created or extended, and their assignments: Kafka's checks, in its order, in its words.

Source: ZkAdminManager.createTopics and createPartitions, AdminZkClient.validateTopicCreate and
createNewPartitionsAssignment.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from tidegauge.assignment import assign_replicas
from tidegauge.cluster_metadata import TopicAssignment
from tidegauge.control import Endpoint
from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.partition import topic_name_problem, topic_names_collide
from tidegauge.settings import Values, parse_topic_settings
from tidegauge_controller.admin import NewPartitions, NewTopic

MOST_PARTITIONS = 10_000
"""Maximum number of partitions that a request may add to one topic: planning them must not stop the controller."""


def _check_count(count: int) -> None:
    """Reject too many partitions, as Kafka does since KAFKA-17870.

    Raises:
        TidegaugeError: POLICY_VIOLATION.
    """
    if count > MOST_PARTITIONS:
        raise TidegaugeError(
            ErrorCode.POLICY_VIOLATION,
            f"Excessively large number of partitions per request: {count}; at most {MOST_PARTITIONS} are made at once",
        )


def plan_assignment(
    topic: NewTopic, brokers: Sequence[Endpoint], settings: Values, *, start: int, shift: int
) -> dict[int, tuple[int, ...]]:
    """Return each partition's replicas: as given, or by Kafka's algorithm.

    Broker defaults apply to counts that are not given.

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
    _check_count(partition_count or 0)
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
    """Return the error for a second topic of this name."""
    return TidegaugeError(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{name}' already exists.")


def check_assignment(assignment: Mapping[int, Sequence[int]]) -> None:
    """Check that all partitions have equally many replicas, none twice. As in Kafka the brokers need not exist.

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


def plan_new_partitions(
    wanted: NewPartitions, topic: TopicAssignment, brokers: Sequence[Endpoint]
) -> dict[int, tuple[int, ...]]:
    """Return the replicas of the partitions to be added to a topic.

    Args:
        wanted: the request.
        topic: the topic's assignment as it is.
        brokers: the live brokers, by id.

    Raises:
        TidegaugeError: REASSIGNMENT_IN_PROGRESS, INVALID_PARTITIONS, INVALID_REPLICA_ASSIGNMENT, BROKER_NOT_AVAILABLE
            or what ``assign_replicas`` rejects, in Kafka's words.
    """
    if any(topic.adding_replicas.values()) or any(topic.removing_replicas.values()):
        raise TidegaugeError(
            ErrorCode.REASSIGNMENT_IN_PROGRESS,
            f"A partition reassignment is in progress for the topic '{wanted.name}'.",
        )
    count = len(topic.assignment)
    added = wanted.total_count - count
    if added < 0:
        raise TidegaugeError(
            ErrorCode.INVALID_PARTITIONS,
            f"Topic currently has {count} partitions, which is higher than the requested {wanted.total_count}.",
        )
    _check_count(added)
    if added == 0:
        raise TidegaugeError(ErrorCode.INVALID_PARTITIONS, f"Topic already has {count} partitions.")
    first = topic.assignment[0]
    if wanted.assignment:
        planned = {count + index: tuple(replicas) for index, replicas in enumerate(wanted.assignment)}
        _check_added_assignment(planned, added, len(first), {broker.broker_id for broker in brokers})
        return planned
    # The position of the first partition's preferred leader among the brokers; as in Kafka both numbers are this one.
    start = next((index for index, broker in enumerate(brokers) if broker.broker_id >= first[0]), 0)
    return assign_replicas(brokers, added, len(first), start=start, shift=start, first_partition=count)


def _check_added_assignment(
    planned: Mapping[int, Sequence[int]], added: int, replication_factor: int, live: Collection[int]
) -> None:
    """Check the assignment of added partitions: unlike at a topic's creation the brokers must be live."""
    refused = ErrorCode.INVALID_REPLICA_ASSIGNMENT
    unknown = sorted({replica for replicas in planned.values() for replica in replicas} - set(live))
    if unknown:
        raise TidegaugeError(refused, f"Unknown broker(s) in replica assignment: {_listed(unknown)}.")
    if len(planned) != added:
        raise TidegaugeError(
            refused,
            f"Increasing the number of partitions by {added} but {len(planned)} assignments provided.",
        )
    for partition, replicas in planned.items():
        if not replicas:
            raise TidegaugeError(refused, f"Cannot have replication factor of 0 for partition id {partition}.")
        if len(set(replicas)) != len(replicas):
            raise TidegaugeError(
                refused,
                f"Duplicate brokers not allowed in replica assignment: {_listed(replicas)} "
                f"for partition id {partition}.",
            )
    uneven = {p: len(replicas) for p, replicas in planned.items() if len(replicas) != replication_factor}
    if uneven:
        raise TidegaugeError(
            refused,
            f"Inconsistent replication factor between partitions, partition 0 has {replication_factor} while "
            f"partitions [{_listed(uneven)}] have replication factors [{_listed(uneven.values())}], respectively.",
        )


def _listed(numbers: Iterable[int]) -> str:
    return ", ".join(str(number) for number in numbers)
