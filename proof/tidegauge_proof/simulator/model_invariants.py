"""The invariants of the public models of Kafka replication, stated over a cluster that can be seen whole.

Notation: HW and LEO are exclusive. A presumed leader is any replica that believes it leads, however stale. Replicas
are compared record by record; a record that a power loss took from some replica counts in no comparison below the HW.

| name | statement |
|---|---|
| HwLeLeo | HW <= LEO at every replica |
| LeaderInIsrOrNone | the controller's leader is none, or in its ISR |
| WeakIsr | for every presumed leader L, every replica in L's own ISR holds L's records below L's HW |
| StrongIsr | for every presumed leader L, every replica in the controller's ISR holds L's records below L's HW |
| LogMatchingHw | two replicas have the same record at every offset below the smaller of their HWs |
| LogMatchingRaft | the same offset and epoch at two replicas: the same record there and at all offsets below |
| FollowerPrefixOfLeader | a follower that has reconciled in its leader's epoch agrees with it at all common offsets |
| EpochsMonotone | record epochs never fall along a log |

Source: hachikuji/kafka-specification (WeakIsr, StrongIsr); the others are additions. LeaderInIsr and TypeOk as
published cannot be checked: the first is false before there is a leader, the second compares record and number.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import combinations, pairwise
from typing import NamedTuple


class Record(NamedTuple):
    """One record: the epoch that wrote it, and what tells it from all others."""

    epoch: int
    name: object


@dataclass(slots=True)
class ReplicaImage:
    """One replica. ``isr`` is set if it believes that it leads, ``leader`` if it follows.

    Attributes:
        reconciled: whether it has found out, in its current epoch, where its log and the leader's part.
    """

    broker_id: int
    records: Sequence[Record]
    high_watermark: int
    leader_epoch: int = -1
    isr: Collection[int] | None = None
    leader: int | None = None
    reconciled: bool = False


@dataclass(slots=True)
class ClusterImage:
    """All replicas, and what the controller holds."""

    replicas: dict[int, ReplicaImage]
    leader: int | None
    isr: Collection[int]
    lost_by_power: Collection[Record] = field(default_factory=frozenset)

    def broken(self) -> Iterator[str]:
        """Return the names of the invariants that do not hold."""
        for name, holds in INVARIANTS.items():
            if not holds(self):
                yield name

    def differ(self, one: ReplicaImage, other: ReplicaImage, end: int) -> bool:
        """Whether they differ below an offset, apart from records lost with power."""
        mine, theirs = one.records[:end], other.records[:end]
        if mine == theirs and len(mine) == end:
            return False
        for offset in range(end):
            here = mine[offset] if offset < len(mine) else None
            there = theirs[offset] if offset < len(theirs) else None
            if here != there and here not in self.lost_by_power and there not in self.lost_by_power:
                return True
        return False


def _hw_le_leo(image: ClusterImage) -> bool:
    return all(0 <= replica.high_watermark <= len(replica.records) for replica in image.replicas.values())


def _leader_in_isr(image: ClusterImage) -> bool:
    return image.leader is None or image.leader in image.isr


def _isr_holds(image: ClusterImage, leader: ReplicaImage, isr: Collection[int]) -> bool:
    return not any(image.differ(leader, image.replicas[member], leader.high_watermark) for member in isr)


def _weak_isr(image: ClusterImage) -> bool:
    return all(_isr_holds(image, one, one.isr) for one in image.replicas.values() if one.isr is not None)


def _strong_isr(image: ClusterImage) -> bool:
    return all(_isr_holds(image, one, image.isr) for one in image.replicas.values() if one.isr is not None)


def _log_matching_hw(image: ClusterImage) -> bool:
    return not any(
        image.differ(one, other, min(one.high_watermark, other.high_watermark))
        for one, other in combinations(image.replicas.values(), 2)
    )


def _log_matching_raft(image: ClusterImage) -> bool:
    for one, other in combinations(image.replicas.values(), 2):
        parted = False
        for mine, theirs in zip(one.records, other.records, strict=False):
            parted = parted or mine != theirs
            if parted and mine.epoch == theirs.epoch:
                return False
    return True


def _follower_prefix(image: ClusterImage) -> bool:
    for replica in image.replicas.values():
        leader = None if replica.leader is None else image.replicas[replica.leader]
        if leader is None or leader.isr is None or leader.leader_epoch != replica.leader_epoch:
            continue
        common = min(len(leader.records), len(replica.records))
        if replica.reconciled and list(leader.records[:common]) != list(replica.records[:common]):
            return False
    return True


def _epochs_monotone(image: ClusterImage) -> bool:
    return all(
        one.epoch <= other.epoch for replica in image.replicas.values() for one, other in pairwise(replica.records)
    )


INVARIANTS = {
    "HwLeLeo": _hw_le_leo,
    "LeaderInIsrOrNone": _leader_in_isr,
    "WeakIsr": _weak_isr,
    "StrongIsr": _strong_isr,
    "LogMatchingHw": _log_matching_hw,
    "LogMatchingRaft": _log_matching_raft,
    "FollowerPrefixOfLeader": _follower_prefix,
    "EpochsMonotone": _epochs_monotone,
}
"""All of them, by name. The last three hold over power losses too: who loses records writes no more in that epoch."""
