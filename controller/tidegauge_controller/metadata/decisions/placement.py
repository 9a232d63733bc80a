"""Placement of replicas in stripes over racks and brokers; randomness is an argument.

Each partition's leader comes from the next rack, on an unfenced broker; its other replicas from the racks in turn, on
unfenced brokers while there are any. After as many partitions as there are unfenced brokers the orders are shuffled,
so that assignments are not repeated.
Source: ``StripedReplicaPlacer``, ``ClusterControlManager.UsableBrokerIterator``.
"""

from __future__ import annotations

from typing import Any, Protocol

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge_controller.metadata.image import MetadataImage, RegisteredBroker


class Randomness(Protocol):
    """The source of random choices, such as Python's ``Random``."""

    def randrange(self, stop: int, /) -> int:
        """Return a number from 0 to ``stop`` - 1."""
        ...

    def shuffle(self, items: list[object], /) -> None:
        """Bring a list into a random order."""
        ...

    def randbytes(self, count: int, /) -> bytes:
        """Return random bytes."""
        ...


class _Stripe:
    """Brokers that are taken in turn; each round begins one broker later."""

    def __init__(self, brokers: list[int], random: Randomness) -> None:
        self.brokers = sorted(brokers)
        self._offset = random.randrange(len(self.brokers)) if self.brokers else 0
        self._taken = 0
        self._round = 0

    def take(self, number: int) -> int | None:
        """Return the next broker in a round, or None if all were taken."""
        if not self.brokers:
            return None
        if number != self._round:
            self._round, self._taken = number, 0
            self._offset = (self._offset + 1) % len(self.brokers)
        if self._taken >= len(self.brokers):
            return None
        broker = self.brokers[(self._taken + self._offset) % len(self.brokers)]
        self._taken += 1
        return broker

    def shuffle(self, random: Randomness) -> None:
        _shuffle(self.brokers, random)


class _Rack:
    """The brokers of a rack, unfenced and fenced."""

    def __init__(self, brokers: list[RegisteredBroker], random: Randomness) -> None:
        self.fenced = _Stripe([one.broker_id for one in brokers if one.fenced], random)
        self.unfenced = _Stripe([one.broker_id for one in brokers if not one.fenced], random)

    def take(self, number: int) -> int | None:
        found = self.unfenced.take(number)
        return self.fenced.take(number) if found is None else found


class Placer:
    """Places the partitions of one request.

    Args:
        image: of the cluster.
        random: for start offsets and shuffles.
    """

    def __init__(self, image: MetadataImage, random: Randomness) -> None:
        usable = [one for one in image.brokers.values() if _is_usable(one)]
        by_rack: dict[tuple[bool, str], list[RegisteredBroker]] = {}
        for broker in usable:
            by_rack.setdefault((broker.rack is not None, broker.rack or ""), []).append(broker)
        self._racks = [_Rack(by_rack[name], random) for name in sorted(by_rack)]
        self._random = random
        self._usable = len(usable)
        self._unfenced = sum(not one.fenced for one in usable)
        self._round = 0
        self._offset = random.randrange(len(self._racks)) if self._racks else 0

    def place(self, partitions: int, replication_factor: int) -> list[tuple[int, ...]]:
        """Return the replicas of some partitions, the leader first.

        Raises:
            TidegaugeError: INVALID_REPLICATION_FACTOR.
        """
        problem = None
        if replication_factor <= 0:
            problem = f"Invalid replication factor {replication_factor}: the replication factor must be positive."
        elif self._unfenced == 0:
            problem = "All brokers are currently fenced, or have all their log directories cordoned."
        elif replication_factor > self._usable:
            problem = (
                f"The target replication factor of {replication_factor} cannot be reached because only {self._usable} "
                "broker(s) are registered or some brokers have all their log directories cordoned."
            )
        if problem is not None:
            raise TidegaugeError(ErrorCode.INVALID_REPLICATION_FACTOR, problem)
        return [self._place(replication_factor) for _ in range(partitions)]

    def _place(self, replication_factor: int) -> tuple[int, ...]:
        if self._round == self._unfenced and self._unfenced > 1:
            _shuffle(self._racks, self._random)
            for rack in self._racks:
                rack.unfenced.shuffle(self._random)
                rack.fenced.shuffle(self._random)
            self._round = 0
        if self._offset == len(self._racks):
            self._offset = 0
        of_leader = self._offset
        while (leader := self._racks[of_leader].unfenced.take(self._round)) is None:
            of_leader = (of_leader + 1) % len(self._racks)
        replicas = [leader]
        at = self._offset
        skips_leaders_rack = True
        while len(replicas) < replication_factor:
            # The leader's rack is passed over once, since it has one replica already.
            is_passed_over = skips_leaders_rack and at == of_leader
            found = None if is_passed_over else self._racks[at].take(self._round)
            skips_leaders_rack = skips_leaders_rack and not is_passed_over
            at = (at + 1) % len(self._racks)
            if found is not None:
                replicas.append(found)
        self._round += 1
        self._offset += 1
        return tuple(replicas)


def _is_usable(broker: RegisteredBroker) -> bool:
    """Whether new replicas may be placed at a broker: fenced, yes; shutting down or all cordoned, no."""
    if broker.in_controlled_shutdown:
        return False
    cordoned = broker.cordoned_log_dirs or ()
    return not broker.log_dirs or any(directory not in cordoned for directory in broker.log_dirs)


def _shuffle(items: list[Any], random: Randomness) -> None:
    random.shuffle(items)
