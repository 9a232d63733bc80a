"""This broker's standing fetch to one leader, and the partitions to look at before the next round.

A round asks for every partition that follows a leader and is ready, thousands perhaps, of which few have changed since
the round before. A partition's request *stands* until the partition is among those to look at: a response has
named it, it has begun to follow, its round was lost, or the replica has changed in a field of its fetch
(``Partition.mark_changed``). All standing requests are in flight together, and taken back together.

A round in which only some partitions may take part (``admits``), and one that asks where epochs end, is made by
``Rounds`` from each partition for itself; the requests of its partitions no longer stand.
Source: LeaderEndPoint.buildFetch and FetchSessionHandler, which look at every partition.
"""

from __future__ import annotations

from collections.abc import Collection
from operator import attrgetter
from typing import TYPE_CHECKING

from tidegauge_broker.replica.messages import EpochRound, FetchPartition, FetchRound, Wait

if TYPE_CHECKING:
    from tidegauge.partition import TopicPartition
    from tidegauge_broker.replica.follower import Follower
    from tidegauge_broker.replica.partition import Partition

_place = attrgetter("place")


class StandingRounds:
    """The partitions that follow one leader, and its rounds.

    Attributes:
        followed: the partitions, in the order of the next round.
        in_flight: the number of the round for the standing requests, until it is taken back; None: there is none.
    """

    __slots__ = ("_asked", "_last_number", "_last_place", "_left_out", "_to_look_at", "followed", "in_flight")

    def __init__(self) -> None:
        self.followed: dict[TopicPartition, Partition] = {}
        self.in_flight: int | None = None
        self._asked: dict[TopicPartition, FetchPartition] = {}
        """The requests of the latest of these rounds, of partitions that follow since, in their order."""
        self._to_look_at: dict[TopicPartition, None] = {}
        self._left_out: dict[TopicPartition, None] = {}
        """Partitions of the latest of these rounds that the next leaves out, unless they begin to follow again."""
        self._last_number = 0
        self._last_place = 0

    def begin(self, partition: Partition) -> None:
        """Let a partition take part from now on."""
        at = partition.topic_partition
        self.followed[at] = partition
        self._to_look_at[at] = None
        self.move_to_the_end(partition)

    def end(self, partition: Partition) -> bool:
        """Let a partition take part no longer; return whether it did."""
        at = partition.topic_partition
        if self.followed.pop(at, None) is None:
            return False
        self._to_look_at.pop(at, None)
        if self._asked.pop(at, None) is not None:
            self._left_out[at] = None
        if partition.follower_role is not None:
            partition.follower_role.standing = None
        return True

    def move_to_the_end(self, partition: Partition) -> None:
        """Let all other partitions come first from the next round on."""
        at, role = partition.topic_partition, partition.follower_role
        assert role is not None
        self._last_place += 1
        role.place = self._last_place
        self.followed[at] = self.followed.pop(at)
        if at in self._asked:
            self._asked[at] = self._asked.pop(at)

    def look_at(self, at: TopicPartition) -> None:
        """Look at a partition before the next round; the standing requests stay in flight."""
        self._to_look_at[at] = None

    def next(self, number: int, leader: int, now_ms: int) -> FetchRound | EpochRound | Wait:
        """Return the next round over all ready partitions, now in flight.

        None of these rounds may be in flight.
        """
        assert self.in_flight is None, "I7"
        if not self._to_look_at and not self._asked:
            return Wait(None)
        ready: list[Follower] = []
        truncating: list[Follower] = []
        others: list[Follower] = []
        wake_ms: int | None = None
        for role in self._in_order(self._to_look_at):
            if role.is_ready(now_ms):
                (truncating if role.truncating else ready).append(role)
                continue
            others.append(role)
            if role.in_flight is None and not role.failed:
                wake_ms = role.delayed_until_ms if wake_ms is None else min(wake_ms, role.delayed_until_ms)
        if truncating:
            return EpochRound(number, leader, [role.ask_epoch(number) for role in truncating])
        self._leave_out(others)
        if not ready and not self._asked:
            return Wait(wake_ms)
        first_fetches = {role.partition.topic_partition for role in ready if not role.has_fetched}
        changed = self._ask(ready, first_fetches)
        follows, self._last_number = self._last_number, number
        left_out, self._left_out = [at for at in self._left_out if at not in self._asked], {}
        self.in_flight = number
        return FetchRound(number, leader, list(self._asked.values()), first_fetches, follows, changed, left_out)

    def _in_order(self, partitions: Collection[TopicPartition]) -> list[Follower]:
        """Return the roles of following partitions, in the next round's order."""
        followed = self.followed
        found = [followed.get(at) for at in partitions]
        roles = [one.follower_role for one in found if one is not None and one.follower_role is not None]
        if len(roles) > 1:
            roles.sort(key=_place)
        return roles

    def _leave_out(self, roles: list[Follower]) -> None:
        """Ask for these no longer; those that have not failed are looked at again before the next round."""
        self._to_look_at.clear()
        for role in roles:
            if not role.failed:
                self._to_look_at[role.partition.topic_partition] = None
            role.standing = None
            if self._asked.pop(role.partition.topic_partition, None) is not None:
                self._left_out[role.partition.topic_partition] = None

    def _ask(self, roles: list[Follower], first_fetches: Collection[TopicPartition]) -> list[FetchPartition]:
        """Let these requests stand; return those that differ from the round before."""
        asked = self._asked
        changed: list[FetchPartition] = []
        is_in_order = True
        for role in roles:
            wanted = role.stand(self)
            at = wanted.topic_partition
            before = asked.get(at)
            if before is None:
                is_in_order = False
            if before != wanted or at in first_fetches:
                asked[at] = wanted
                changed.append(wanted)
        if not is_in_order:
            self._asked = {at: asked[at] for at in self.followed if at in asked}
        return changed

    def take_back(self, named: Collection[TopicPartition] | None = None) -> list[Follower]:
        """Take back the round in flight; return the roles of its requests, which no longer stand, in order.

        Args:
            named: the partitions that the response names; None: all.
        """
        number, self.in_flight = self.in_flight, None
        assert number is not None, "I7"
        roles = [role for role in self._in_order(self._asked if named is None else named) if role.standing is not None]
        for role in roles:
            role.in_flight = number
        return roles
