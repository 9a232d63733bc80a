"""Assign replicas of new partitions to brokers: Kafka's algorithm, with its two random numbers as arguments.

Without racks, partition p's first replica goes to broker (p + start) mod n; the others follow at a distance that grows
by one each time the leaders have wrapped around, so that the followers of one broker's partitions spread. With racks,
 the brokers are interleaved by rack and a broker is skipped while its rack holds a replica and another does not.
Source: org.apache.kafka.admin.AdminUtils.assignReplicasToBrokers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tidegauge.control import Endpoint
from tidegauge.errors import ErrorCode, TidegaugeError


def assign_replicas(
    brokers: Sequence[Endpoint],
    partition_count: int,
    replication_factor: int,
    *,
    start: int,
    shift: int,
    first_partition: int = 0,
) -> dict[int, tuple[int, ...]]:
    """Return the replicas of each new partition, the preferred leader first.

    Args:
        brokers: the live brokers, in the order that ``start`` counts.
        partition_count: how many partitions to assign.
        replication_factor: replicas of each partition.
        start: any number; position of the first leader (modulo the number of brokers).
        shift: any number; the distance of the first follower (modulo the number of brokers).
        first_partition: index of the first partition, where a topic grows.

    Raises:
        TidegaugeError: INVALID_PARTITIONS, INVALID_REPLICATION_FACTOR, or INVALID_REQUEST (some brokers lack a rack).
    """
    if partition_count <= 0:
        raise TidegaugeError(ErrorCode.INVALID_PARTITIONS, "Number of partitions must be larger than 0.")
    if replication_factor <= 0:
        raise TidegaugeError(ErrorCode.INVALID_REPLICATION_FACTOR, "Replication factor must be larger than 0.")
    if replication_factor > len(brokers):
        raise TidegaugeError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"Replication factor: {replication_factor} larger than available brokers: {len(brokers)}.",
        )
    count = len(brokers)
    racks = {broker.broker_id: broker.rack for broker in brokers if broker.rack is not None}
    if racks and len(racks) < count:
        raise TidegaugeError(
            ErrorCode.INVALID_REQUEST, "Not all brokers have rack information for replica rack aware assignment."
        )
    order = rack_alternated(racks) if racks else [broker.broker_id for broker in brokers]
    start, shift = start % count, shift % count
    assigned: dict[int, tuple[int, ...]] = {}
    for partition in range(first_partition, first_partition + partition_count):
        if partition > 0 and partition % count == 0:
            shift += 1
        first = (partition + start) % count
        if racks:
            assigned[partition] = _rack_aware(order, racks, first, shift, replication_factor)
        else:
            others = (order[_follower(first, shift, j, count)] for j in range(replication_factor - 1))
            assigned[partition] = (order[first], *others)
    return assigned


def _follower(first: int, shift: int, index: int, count: int) -> int:
    """Return the position of a partition's follower ``index``, other than the first replica's."""
    return (first + 1 + (shift + index) % (count - 1)) % count


def rack_alternated(racks: Mapping[int, str]) -> list[int]:
    """Return the brokers, racks taking turns: racks by name, brokers by id (KIP-36)."""
    by_rack: dict[str, list[int]] = {}
    for broker_id in sorted(racks):
        by_rack.setdefault(racks[broker_id], []).append(broker_id)
    queues = [by_rack[rack] for rack in sorted(by_rack)]
    longest = max(len(queue) for queue in queues)
    return [queue[turn] for turn in range(longest) for queue in queues if turn < len(queue)]


def _rack_aware(
    order: Sequence[int], racks: Mapping[int, str], first: int, shift: int, replication_factor: int
) -> tuple[int, ...]:
    rack_count = len(set(racks.values()))
    replicas = [order[first]]
    used_racks = {racks[order[first]]}
    step = 0
    while len(replicas) < replication_factor:
        broker_id = order[_follower(first, shift * rack_count, step, len(order))]
        step += 1
        rack_is_free = racks[broker_id] not in used_racks or len(used_racks) == rack_count
        if rack_is_free and broker_id not in replicas:
            replicas.append(broker_id)
            used_racks.add(racks[broker_id])
    return tuple(replicas)
