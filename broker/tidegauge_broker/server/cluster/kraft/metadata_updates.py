"""The difference between two images, as a change of a broker's view of its cluster. Pure.

Rules (``KRaftMetadataCache``):
    1. A broker counts as alive while it is not fenced; what clients see of a partition follows from that.
    2. Any live broker may be called the controller: requests to it are forwarded.
    3. A replica whose log directory is not among the online ones of its broker's registration is offline.
Source: ``org.apache.kafka.image.TopicsDelta``, ``KRaftMetadataCache.getPartitionMetadata``.
"""

from __future__ import annotations

from collections.abc import Iterator

from tidegauge.listeners import SECURITY_PROTOCOL_IDS, Listener
from tidegauge.metadata_update import Endpoint, ReportedPartition
from tidegauge.partition import partition_named
from tidegauge.partition_state import PartitionState
from tidegauge_controller.metadata.image import MetadataImage, PartitionRegistration, RegisteredBroker, TopicImage
from tidegauge_controller.metadata.sorted_map import SortedMap, differences

_PROTOCOLS = {number: name for name, number in SECURITY_PROTOCOL_IDS.items()}
"""Security protocols by Kafka's numbers (``SecurityProtocol``)."""
_NO_PARTITIONS: SortedMap[int, PartitionRegistration] = SortedMap()


def endpoint_of(broker: RegisteredBroker, among_brokers: str) -> Endpoint:
    """Return a broker's address on a listener, with all its listeners.

    Without that listener it is the first one's.
    """
    listeners = tuple(Listener(one.name, one.host, one.port) for one in broker.endpoints)
    at = next((one for one in listeners if one.name == among_brokers), listeners[0] if listeners else None)
    protocols = {one.name: _PROTOCOLS.get(one.security_protocol, "PLAINTEXT") for one in broker.endpoints}
    host, port = ("", 0) if at is None else (at.host, at.port)
    return Endpoint(broker.broker_id, host, port, broker.rack, listeners, protocols)


def live_brokers(image: MetadataImage, among_brokers: str) -> list[Endpoint]:
    """Return the brokers that are alive, by id; rule 1."""
    return [endpoint_of(one, among_brokers) for one in image.brokers.values() if not one.fenced]


def fenced_brokers(image: MetadataImage, among_brokers: str) -> list[Endpoint]:
    """Return the brokers that are registered and not alive, by id."""
    return [endpoint_of(one, among_brokers) for one in image.brokers.values() if one.fenced]


def leaving_brokers(image: MetadataImage) -> frozenset[int]:
    """Return the brokers that are in their controlled shutdown."""
    return frozenset(one.broker_id for one in image.brokers.values() if one.in_controlled_shutdown)


def changed_partitions(old: MetadataImage, new: MetadataImage) -> Iterator[ReportedPartition]:
    """Yield the partitions of which clients see something else; those that were deleted come first.

    Args:
        old: what the metadata cache has.
        new: what it is to have.
    """
    return _all(old, new) if _directories(old) != _directories(new) else _changed(old, new)


def _directories(image: MetadataImage) -> dict[int, tuple[str, ...]]:
    return {broker.broker_id: broker.log_dirs for broker in image.brokers.values()}


def _changed(old: MetadataImage, new: MetadataImage) -> Iterator[ReportedPartition]:
    """Yield the partitions that changed; a topic may have been created again under its name."""
    deleted: list[ReportedPartition] = []
    there: list[ReportedPartition] = []
    for _, was, topic in differences(old.topics, new.topics):
        before = _NO_PARTITIONS if was is None else was.partitions
        after = _NO_PARTITIONS if topic is None else topic.partitions
        for partition, previous, current in differences(before, after):
            if current is not None and topic is not None:
                there.append(_reported(new, topic, partition, current))
            elif previous is not None and was is not None:
                deleted.append(ReportedPartition(_state(was, partition, previous, new), deleted=True))
    yield from deleted
    yield from there


def _all(old: MetadataImage, new: MetadataImage) -> Iterator[ReportedPartition]:
    """Yield the partitions that were deleted, and all others: log directories decide which replicas are offline."""
    yield from (one for one in _changed(old, new) if one.deleted)
    for topic, partition, registration in new.all_partitions():
        yield _reported(new, topic, partition, registration)


def _reported(
    image: MetadataImage, topic: TopicImage, partition: int, registration: PartitionRegistration
) -> ReportedPartition:
    offline = tuple(
        replica
        for replica, directory in zip(registration.replicas, registration.directories, strict=True)
        if (broker := image.brokers.get(replica)) is not None and not broker.has_online_directory(directory)
    )
    state = _state(topic, partition, registration, image)
    return ReportedPartition(state, offline, last_known_elr=registration.last_known_elr)


def _state(
    topic: TopicImage, partition: int, registration: PartitionRegistration, image: MetadataImage
) -> PartitionState:
    return PartitionState(
        partition_named(topic.name, partition),
        topic.topic_id,
        image.provenance.epoch,
        registration.leader,
        registration.leader_epoch,
        registration.isr,
        registration.partition_epoch,
        registration.replicas,
        registration.adding,
        registration.removing,
        registration.recovering,
        registration.elr,
    )
