"""Conditions on a consumer group, for tests and scenarios; the actual state, in a sentence. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

from tidegauge.counted import counted
from tidegauge.groups import GROUP_STATES
from tidegauge.partition import TopicPartition
from tidegauge_client.admin import LATEST, Admin
from tidegauge_client.admin_groups import GroupDescription, MemberDescription
from tidegauge_client.group_tables import OffsetRow, offset_rows
from tidegauge_client.kafka_brokers import on_kafka_brokers


@dataclass(frozen=True, slots=True)
class GroupCondition:
    """A condition on a consumer group; None: anything.

    Attributes:
        state: Empty, PreparingRebalance, CompletingRebalance, Stable or Dead (unknown to its coordinator); of a
            consumer group (KIP-848) Assigning and Reconciling, too.
        members: how many.
        generation: this one or a later one; of a consumer group its epoch.
        lag: at most so many offsets over all partitions that the group reads or has offsets of (``OffsetRow.unread``);
            a partition without a committed offset counts as not read.
        assignment: the partitions of members, by client.id or group.instance.id; other members are not looked at.
        committed: offsets by partition; other partitions are not looked at.
        is_exact: the generation, the epochs and the lag are these, not at least and at most.
        epochs: member epochs of members of a consumer group, these or later ones, by client.id or group.instance.id.
    """

    state: str | None = None
    members: int | None = None
    generation: int | None = None
    lag: int | None = None
    assignment: Mapping[str, Collection[TopicPartition]] | None = None
    committed: Mapping[TopicPartition, int] | None = None
    is_exact: bool = False
    epochs: Mapping[str, int] | None = None

    def __post_init__(self) -> None:
        if self.state is not None and self.state not in GROUP_STATES:
            raise ValueError(f"{self.state!r} is no state of a group; there are {', '.join(GROUP_STATES)}")

    @property
    def needs_offsets(self) -> bool:
        """Whether committed offsets are looked at."""
        return self.lag is not None or self.committed is not None

    def problem(self, group: GroupDescription, rows: Sequence[OffsetRow] = ()) -> str | None:
        """Return the violated part of the condition; None if it holds."""
        return next(chain(self._group_problems(group), self._offset_problems(group, rows)), None)

    def _group_problems(self, group: GroupDescription) -> Iterator[str]:
        name = f"group {group.group_id}"
        if self.state is not None and group.state != self.state:
            yield f"{name} is {group.state}" + (f": {group.reason}" if group.reason else "")
        if self.members is not None and len(group.members) != self.members:
            yield f"{name} has {counted(len(group.members), 'member')}"
        if self.generation is not None and (
            group.generation < self.generation or (self.is_exact and group.generation != self.generation)
        ):
            yield f"{name} is in generation {group.generation}"
        for member in {**(self.assignment or {}), **(self.epochs or {})}:
            found = [one for one in group.members if member in {one.client_id, one.group_instance_id}]
            if not found:
                yield f"{name} has no member {member}"
            for one in found:
                yield from self._member_problems(member, one)

    def _member_problems(self, name: str, member: MemberDescription) -> Iterator[str]:
        partitions = (self.assignment or {}).get(name)
        if partitions is not None and set(member.assignment) != set(partitions):
            yield f"{name} reads {', '.join(map(str, member.assignment)) or 'no partition'}"
        epoch = (self.epochs or {}).get(name)
        if epoch is None:
            return
        if member.reconciliation is None:
            yield f"{name} is a member of a classic group, and has no epoch"
            return
        found = member.reconciliation.epoch
        if found < epoch or (self.is_exact and found != epoch):
            yield f"{name} has member epoch {found}"

    def _offset_problems(self, group: GroupDescription, rows: Sequence[OffsetRow]) -> Iterator[str]:
        name = f"group {group.group_id}"
        by_partition = {row.topic_partition: row for row in rows if row.topic_partition is not None}
        for at, offset in (self.committed or {}).items():
            current = by_partition[at].current_offset if at in by_partition else None
            if current != offset:
                yield f"{name} has committed {'no offset' if current is None else f'offset {current}'} of {at}"
        if self.lag is None:
            return
        unknown = next((at for at, row in by_partition.items() if row.lag is None), None)
        if unknown is not None:
            yield f"{name} has no known lag in {unknown}"
            return
        lag = sum(row.unread or 0 for row in by_partition.values())
        if lag > self.lag or (self.is_exact and lag != self.lag):
            yield f"{name} lags by {counted(lag, 'offset')}"

    @property
    def text(self) -> str:
        """Return the condition in words."""
        parts = {
            "state": self.state,
            "members": self.members,
            "generation": self.generation,
            "lag": self.lag,
            "member epochs": None
            if self.epochs is None
            else " ".join(f"{member}:{epoch}" for member, epoch in self.epochs.items()),
            "assignment": None if self.assignment is None else _in_words(self.assignment),
            "committed": None
            if self.committed is None
            else " ".join(f"{at}@{offset}" for at, offset in self.committed.items()),
        }
        return ", ".join(f"{name} {value}" for name, value in parts.items() if value is not None)


def _in_words(assignment: Mapping[str, Collection[TopicPartition]]) -> str:
    return " ".join(f"{member}:{'+'.join(map(str, at)) or '-'}" for member, at in assignment.items())


async def look_at_group(
    admin: Admin, group_id: str, condition: GroupCondition, timeout_ms: float
) -> GroupDescription | str:
    """Return the group if the condition holds, else the actual state.

    Raises:
        TidegaugeError: the coordinator does not respond.
    """
    group = await admin.describe_group(group_id, timeout_ms=timeout_ms)
    rows = await offset_rows_of(admin, group) if condition.needs_offsets else []
    return condition.problem(group, rows) or group


async def offset_rows_of(admin: Admin, group: GroupDescription) -> list[OffsetRow]:
    """Return a group's partitions, read or committed, with their high watermarks."""
    committed = await admin.committed_offsets(group.group_id)
    partitions = {*committed, *(at for member in group.members for at in member.assignment)}
    elsewhere = on_kafka_brokers(await admin.metadata({at.topic for at in partitions})) if partitions else {}
    asked = [at for at in partitions if at not in elsewhere]  # the lag of the others is unknown
    ends = await admin.list_offsets(dict.fromkeys(asked, LATEST)) if asked else {}
    return offset_rows(group, committed, {at: one.offset for at, one in ends.items()})
