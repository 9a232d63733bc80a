"""Creation and deletion of topics, and new partitions, with Kafka's checks in its order.

Source: ``ReplicationControlManager.createTopics``, ``createTopic``, ``createPartitions``, ``deleteTopics``;
``ControllerApis.createTopics``, ``deleteTopics``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from tidegauge.cluster_metadata import new_uuid
from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.kafka.kraft.record_types import MetadataRecord
from tidegauge.kafka.metadata_records.remove_topic_record import RemoveTopicRecord
from tidegauge.kafka.metadata_records.topic_record import TopicRecord
from tidegauge.kafka.topic_ids import topic_id_bytes
from tidegauge.partition import METADATA_TOPIC, topic_name_problem, topic_names_collide
from tidegauge.settings.kraft_topic import parse_kraft_topic_settings
from tidegauge_controller.admin import Mutate, repeated_names, unlimited
from tidegauge_controller.metadata.decisions.configs import new_topic_records
from tidegauge_controller.metadata.decisions.placement import Placer, Randomness
from tidegauge_controller.metadata.decisions.topic_checks import (
    bad_assignment,
    check_manual_assignment,
    check_record_count,
)
from tidegauge_controller.metadata.decisions.view import MAX_RECORDS_PER_REQUEST, ClusterView, Decision
from tidegauge_controller.metadata.image import PartitionRegistration, TopicImage
from tidegauge_controller.metadata.records import made
from tidegauge_controller.metadata.snapshot import partition_record

DEFAULT = -1
"""A count for which the controller's default is taken."""
Wanted = TypeVar("Wanted", "TopicToCreate", "PartitionsToAdd")


@dataclass(frozen=True, slots=True)
class TopicToCreate:
    """A topic of a CreateTopics request.

    Attributes:
        partition_count, replication_factor: -1: the default, or as the assignment has it.
        assignment: pairs of a partition's index and its replicas; empty: the controller places the replicas.
        configs: pairs of names and values; a request may name one twice.
    """

    name: str
    partition_count: int = DEFAULT
    replication_factor: int = DEFAULT
    assignment: Sequence[tuple[int, Sequence[int]]] = ()
    configs: Sequence[tuple[str, str | None]] = ()


@dataclass(frozen=True, slots=True)
class TopicResult:
    """The outcome for one topic of a request."""

    name: str
    error: ErrorCode = ErrorCode.NONE
    message: str = ""
    topic_id: str = ""
    partition_count: int = -1
    replication_factor: int = -1

    @classmethod
    def refused(cls, name: str, problem: TidegaugeError, topic_id: str = "") -> TopicResult:
        """Return the outcome of a topic that was refused."""
        return cls(name, problem.code, problem.message, topic_id)


def create_topics(
    view: ClusterView,
    topics: Sequence[TopicToCreate],
    random: Randomness,
    mutate: Mutate = unlimited,
    *,
    validate_only: bool = False,
) -> Decision[list[TopicResult]]:
    """Create topics, all records in one batch; a topic that is refused leaves the others.

    Raises:
        TidegaugeError: POLICY_VIOLATION, the request asks for too many partitions or records.
    """
    _check_total(view, topics)
    return _each_topic(topics, lambda topic: _create_topic(view, topic, random, mutate), validate_only=validate_only)


def _each_topic(
    topics: Sequence[Wanted],
    decide: Callable[[Wanted], tuple[Sequence[MetadataRecord], TopicResult]],
    *,
    validate_only: bool,
) -> Decision[list[TopicResult]]:
    """Decide about each topic of a request by itself; one that it names twice is refused.

    Raises:
        TidegaugeError: POLICY_VIOLATION, that takes too many records.
    """
    repeated = repeated_names(topic.name for topic in topics)
    records: list[MetadataRecord] = []
    results: list[TopicResult] = []
    for name in dict.fromkeys(topic.name for topic in topics if topic.name in repeated):
        problem = TidegaugeError(ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
        results.append(TopicResult.refused(name, problem))
    for topic in topics:
        if topic.name in repeated:
            continue
        try:
            of_topic, result = decide(topic)
        except TidegaugeError as problem:
            results.append(TopicResult.refused(topic.name, problem))
            continue
        records += of_topic
        check_record_count(records)
        results.append(result)
    return Decision([] if validate_only else records, results, atomic=True)


def _check_total(view: ClusterView, topics: Sequence[TopicToCreate]) -> None:
    default = view.settings.num_partitions
    total = 0
    for topic in topics:
        count = default if topic.partition_count == DEFAULT else topic.partition_count
        total += len(topic.assignment) or max(count, 0)
    if total > MAX_RECORDS_PER_REQUEST:
        raise TidegaugeError(ErrorCode.POLICY_VIOLATION, "Excessively large number of partitions per request.")


def _create_topic(
    view: ClusterView, topic: TopicToCreate, random: Randomness, mutate: Mutate
) -> tuple[list[MetadataRecord], TopicResult]:
    """Return the records of one topic: the topic, its settings, its partitions."""
    _check_name(view, topic.name)
    configs = _checked_configs(topic)
    partitions = _manual(view, topic) if topic.assignment else _placed(view, topic, random)
    mutate(len(partitions))
    topic_id = new_uuid(random.randbytes(16))
    records = [
        made(TopicRecord(topic.name, topic_id_bytes(topic_id))),
        *new_topic_records(view, topic.name, configs),
        *(partition_record(topic_id, index, state) for index, state in sorted(partitions.items())),
    ]
    factor = len(next(iter(partitions.values())).replicas)
    return records, TopicResult(
        topic.name, topic_id=topic_id, partition_count=len(partitions), replication_factor=factor
    )


def _check_name(view: ClusterView, name: str) -> None:
    if name == METADATA_TOPIC:
        raise TidegaugeError(ErrorCode.INVALID_REQUEST, f"Creation of internal topic {METADATA_TOPIC} is prohibited.")
    problem = topic_name_problem(name)
    if problem is not None:
        raise TidegaugeError(ErrorCode.INVALID_TOPIC_EXCEPTION, problem)
    if name in view.image.topic_ids:
        raise TidegaugeError(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{name}' already exists.")
    if "." in name or "_" in name:
        for other in view.image.topic_ids:
            if topic_names_collide(name, other):
                raise TidegaugeError(
                    ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic '{name}' collides with existing topic: {other}"
                )


def _checked_configs(topic: TopicToCreate) -> Mapping[str, str]:
    nulls = [name for name, value in topic.configs if value is None]
    if nulls:
        raise TidegaugeError(ErrorCode.INVALID_CONFIG, f"Null value not supported for topic configs: {','.join(nulls)}")
    configs = {name: value for name, value in topic.configs if value is not None}
    parse_kraft_topic_settings(configs)
    return configs


def _manual(view: ClusterView, topic: TopicToCreate) -> dict[int, PartitionRegistration]:
    """Return the partitions of a topic with an assignment of its own."""
    for value, name in ((topic.replication_factor, "replication factor"), (topic.partition_count, "numPartitions")):
        if value != DEFAULT:
            raise TidegaugeError(
                ErrorCode.INVALID_REQUEST,
                f"A manual partition assignment was specified, but {name} was not set to -1.",
            )
    partitions: dict[int, PartitionRegistration] = {}
    factor = None
    for index, replicas in topic.assignment:
        if index in partitions:
            raise bad_assignment(f"Found multiple manual partition assignments for partition {index}")
        check_manual_assignment(view, replicas, factor)
        factor = len(replicas)
        partitions[index] = _new_partition(view, replicas, index)
    if set(partitions) != set(range(len(partitions))):
        raise bad_assignment("partitions should be a consecutive 0-based integer sequence")
    return partitions


def _placed(view: ClusterView, topic: TopicToCreate, random: Randomness) -> dict[int, PartitionRegistration]:
    """Return the partitions of a topic whose replicas the controller places."""
    if topic.replication_factor < DEFAULT or topic.replication_factor == 0:
        raise TidegaugeError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            "Replication factor must be larger than 0, or -1 to use the default value.",
        )
    if topic.partition_count < DEFAULT or topic.partition_count == 0:
        raise TidegaugeError(
            ErrorCode.INVALID_PARTITIONS, "Number of partitions was set to an invalid non-positive value."
        )
    settings = view.settings
    count = settings.num_partitions if topic.partition_count == DEFAULT else topic.partition_count
    factor = topic.replication_factor
    factor = settings.default_replication_factor if factor == DEFAULT else factor
    try:
        placed = Placer(view.image, random).place(count, factor)
    except TidegaugeError as problem:
        raise TidegaugeError(
            problem.code, f"Unable to replicate the partition {factor} time(s): {problem.message}"
        ) from None
    return {index: _placed_partition(view, replicas) for index, replicas in enumerate(placed)}


def _new_partition(view: ClusterView, replicas: Sequence[int], index: int) -> PartitionRegistration:
    """Return a new partition: the active replicas are the ISR.

    The first of them leads.
    """
    made_partition = _registration(view, replicas)
    if made_partition is None:
        raise bad_assignment(
            f"All brokers specified in the manual partition assignment for partition {index} are fenced or in "
            "controlled shutdown."
        )
    return made_partition


def _placed_partition(view: ClusterView, replicas: Sequence[int]) -> PartitionRegistration:
    found = _registration(view, replicas)
    assert found is not None, "a placed partition's first replica is not fenced"
    return found


def _registration(view: ClusterView, replicas: Sequence[int]) -> PartitionRegistration | None:
    isr = tuple([replica for replica in replicas if view.is_active(replica)])
    if not isr:
        return None
    directories = tuple([view.directory_for_new_replicas(replica) for replica in replicas])
    return PartitionRegistration(tuple(replicas), directories, isr, isr[0])


@dataclass(frozen=True, slots=True)
class PartitionsToAdd:
    """A topic of a CreatePartitions request; without an assignment (None) the controller places the replicas."""

    name: str
    total_count: int
    assignment: Sequence[Sequence[int]] | None = None


def create_partitions(
    view: ClusterView,
    topics: Sequence[PartitionsToAdd],
    random: Randomness,
    mutate: Mutate = unlimited,
    *,
    validate_only: bool = False,
) -> Decision[list[TopicResult]]:
    """Add partitions to topics, all records in one batch.

    Raises:
        TidegaugeError: POLICY_VIOLATION, that takes too many records.
    """

    def decide(topic: PartitionsToAdd) -> tuple[Sequence[MetadataRecord], TopicResult]:
        return _added_partitions(view, topic, random, mutate), TopicResult(topic.name)

    return _each_topic(topics, decide, validate_only=validate_only)


def _added_partitions(
    view: ClusterView, wanted: PartitionsToAdd, random: Randomness, mutate: Mutate
) -> list[MetadataRecord]:
    topic = view.topic_of(wanted.name)
    if topic is None:
        raise TidegaugeError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    count = len(topic.partitions)
    _check_increase(wanted, count)
    added = wanted.total_count - count
    if added > MAX_RECORDS_PER_REQUEST:
        raise TidegaugeError(ErrorCode.POLICY_VIOLATION, "Excessively large number of partitions per request.")
    mutate(added)
    factor = len(topic.partitions[0].replicas)
    states: list[PartitionRegistration] = []
    if wanted.assignment is None:
        states = [_placed_partition(view, one) for one in Placer(view.image, random).place(added, factor)]
    else:
        for at, replicas in enumerate(wanted.assignment):
            check_manual_assignment(view, replicas, factor)
            states.append(_new_partition(view, replicas, count + at))
    return [partition_record(topic.topic_id, count + at, state) for at, state in enumerate(states)]


def _check_increase(wanted: PartitionsToAdd, count: int) -> None:
    if wanted.total_count == count:
        raise TidegaugeError(ErrorCode.INVALID_PARTITIONS, f"Topic already has {count} partition(s).")
    if wanted.total_count < count:
        raise TidegaugeError(
            ErrorCode.INVALID_PARTITIONS,
            f"The topic {wanted.name} currently has {count} partition(s); {wanted.total_count} would not be an "
            "increase.",
        )
    added = wanted.total_count - count
    if wanted.assignment is not None and len(wanted.assignment) != added:
        raise bad_assignment(
            f"Attempted to add {added} additional partition(s), but only {len(wanted.assignment)} assignment(s) were "
            "specified."
        )


def delete_topics(
    view: ClusterView, names: Sequence[str], topic_ids: Sequence[str], mutate: Mutate = unlimited
) -> Decision[list[TopicResult]]:
    """Delete topics by their names or ids, all records in one batch.

    A topic that the request has twice is refused, by name and by id too. Replicas are deleted by their brokers, when
    they learn of it; nothing waits for them.
    """
    ids_of_names = {name: view.image.topic_ids.get(name) for name in names}
    repeated = repeated_names(names) | repeated_names(topic_ids)
    repeated |= set(topic_ids).intersection(ids_of_names.values())
    records: list[MetadataRecord] = []
    results: list[TopicResult] = []
    for name, topic_id in ids_of_names.items():
        unknown = TidegaugeError(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "This server does not host this topic-partition."
        )
        is_repeated = name in repeated or topic_id in repeated
        duplicate = "Duplicate topic name." if is_repeated else ""
        results.append(_deleted(view, name, topic_id, duplicate, unknown, mutate, records))
    for topic_id in dict.fromkeys(topic_ids):
        unknown = TidegaugeError(ErrorCode.UNKNOWN_TOPIC_ID, "This server does not host this topic ID.")
        duplicate = "Duplicate topic id." if topic_id in repeated else ""
        results.append(_deleted(view, "", topic_id, duplicate, unknown, mutate, records))
    return Decision(records, results, atomic=True)


def _deleted(
    view: ClusterView,
    name: str,
    topic_id: str | None,
    duplicate: str,
    unknown: TidegaugeError,
    mutate: Mutate,
    records: list[MetadataRecord],
) -> TopicResult:
    """Return the outcome for one topic, and add its record."""
    topic: TopicImage | None = None if topic_id is None else view.image.topics.get(topic_id)
    try:
        if duplicate:
            raise TidegaugeError(ErrorCode.INVALID_REQUEST, duplicate)
        if topic is None:
            raise unknown
        mutate(len(topic.partitions))
    except TidegaugeError as problem:
        return TopicResult.refused(name, problem, topic_id or "")
    records.append(made(RemoveTopicRecord(topic_id_bytes(topic.topic_id))))
    return TopicResult(topic.name, topic_id=topic.topic_id)
