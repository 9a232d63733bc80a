"""The input and the result of an assignor. Source: GroupSpec, MemberSubscription, GroupAssignment of Kafka."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

Partitions = tuple[tuple[bytes, tuple[int, ...]], ...]
"""Partitions by topic id, in the order in which Kafka writes them into a record."""


class AssignmentError(Exception):
    """No assignment can be computed; the request gets UNKNOWN_SERVER_ERROR and nothing changes."""


class Member(NamedTuple):
    """A member as assignors see it.

    Attributes:
        topics: ids of the topics that it is subscribed to and that exist.
        target: its current target assignment, not what it owns, in the iteration order of Java's maps.
        instance_id: of a static member.
    """

    topics: tuple[bytes, ...]
    target: Partitions
    instance_id: str | None = None


class GroupToAssign(NamedTuple):
    """A group whose target assignment is to be computed.

    Attributes:
        members: by member id, in the iteration order of Java's HashMap.
        partition_counts: of the subscribed topics, by id.
        is_homogeneous: whether all members have the same subscription (SubscriptionType).
        assignable: the partitions that may be assigned, by topic id; None: all (a share group's are initialized first).
    """

    members: Mapping[str, Member]
    partition_counts: Mapping[bytes, int]
    is_homogeneous: bool
    assignable: Mapping[bytes, frozenset[int]] | None = None


Assignor = Callable[[GroupToAssign], dict[str, Partitions]]
"""Returns the members' targets; a member without partitions may be missing."""
