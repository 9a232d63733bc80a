"""The output of ``list-groups`` and ``describe-group``: the tables and sentences of kafka-consumer-groups.sh. Pure.

Source: ConsumerGroupCommand.ConsumerGroupService of Kafka 3.9 (printOffsets, printMembers, printStates,
shouldPrintMemberState); for consumer groups (KIP-848) Kafka 4.3's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tidegauge.lazy_dataclasses import dataclass
from tidegauge.partition import TopicPartition, partitions_by_topic
from tidegauge_client.admin_groups import GroupDescription, ListedGroup, MemberDescription, OffsetAndMetadata

MISSING = "-"
_LEAST_WIDTH = 15
_COORDINATOR_WIDTH = 25
_WIDE = 20


@dataclass(frozen=True, slots=True)
class OffsetRow:
    """A partition that a group has committed an offset of or reads, or (None) a member that reads none.

    Attributes:
        end_offset: the high watermark; None if no leader tells it.
    """

    topic_partition: TopicPartition | None
    current_offset: int | None
    end_offset: int | None
    member: MemberDescription | None

    @property
    def lag(self) -> int | None:
        """Return the end offset minus the committed one; None if unknown.

        It is negative where the committed offset is beyond the end, as after an unclean election.
        """
        if self.current_offset is None or self.end_offset is None:
            return None
        return self.end_offset - self.current_offset

    @property
    def unread(self) -> int | None:
        """Return the number of unread offsets: the lag, at least 0; None: unknown.

        Sums are made of it: a committed offset beyond one partition's end makes up for no record of another one.
        """
        return None if self.lag is None else max(0, self.lag)


def offset_rows(
    group: GroupDescription,
    committed: Mapping[TopicPartition, OffsetAndMetadata],
    end_offsets: Mapping[TopicPartition, int],
) -> list[OffsetRow]:
    """Return a group's partitions, members' first, and the members without any."""
    reader = {at: member for member in group.members for at in member.assignment}
    rows = [
        OffsetRow(at, committed[at].offset if at in committed else None, end_offsets.get(at), reader.get(at))
        for at in sorted({*reader, *committed}, key=lambda at: (at not in reader, at))
    ]
    return rows + [OffsetRow(None, None, None, member) for member in group.members if not member.assignment]


def state_sentence(group: GroupDescription) -> str | None:
    """Return the sentence before a group's table; None for a stable group."""
    match group.state:
        case "Dead":
            return f"Consumer group '{group.group_id}' does not exist."
        case "Empty":
            return f"Consumer group '{group.group_id}' has no active members."
        case "PreparingRebalance" | "CompletingRebalance" | "Assigning" | "Reconciling":
            return f"Warning: Consumer group '{group.group_id}' is rebalancing."
    return None


def offsets_table(group_id: str, rows: Sequence[OffsetRow]) -> list[str]:
    """Return the lines of ``--offsets``."""
    header = ["GROUP", "TOPIC", "PARTITION", "CURRENT-OFFSET", "LOG-END-OFFSET", "LAG", "CONSUMER-ID", "HOST"]
    cells = [
        [
            group_id,
            MISSING if row.topic_partition is None else row.topic_partition.topic,
            MISSING if row.topic_partition is None else str(row.topic_partition.partition),
            _number(row.current_offset),
            _number(row.end_offset),
            _number(row.lag),
            MISSING if row.member is None else row.member.member_id,
            MISSING if row.member is None else row.member.host,
            MISSING if row.member is None else row.member.client_id,
        ]
        for row in rows
    ]
    table = [[*header, "CLIENT-ID"], *cells]
    widths = [width_of(table, 0), width_of(table, 1), 10, 15, 15, 15, width_of(table, 6), width_of(table, 7)]
    return lines_of(table, widths)


def members_table(group: GroupDescription, *, verbose: bool) -> list[str]:
    """Return the lines of ``--members``; ``verbose`` adds each one's partitions."""
    has_instances = any(member.group_instance_id is not None for member in group.members)
    header = ["GROUP", "CONSUMER-ID", *(["GROUP-INSTANCE-ID"] if has_instances else []), "HOST", "CLIENT-ID"]
    header += ["#PARTITIONS", *(_verbose_header(group) if verbose else [])]
    cells = []
    for member in group.members:
        row = [group.group_id, member.member_id, *([member.group_instance_id or MISSING] if has_instances else [])]
        row += [member.host, member.client_id, str(len(member.assignment))]
        cells.append([*row, *(_verbose_cells(group, member) if verbose else [])])
    table = [header, *cells]
    named = 5 if has_instances else 4
    widths = [width_of(table, place) for place in range(named)]
    if verbose and group.is_consumer_group:
        least = [_LEAST_WIDTH, _LEAST_WIDTH, _WIDE, _LEAST_WIDTH]
        widths += [max(width, width_of(table, named + place)) for place, width in enumerate(least)]
    elif verbose:
        widths.append(_LEAST_WIDTH)
    return lines_of(table, widths)


def _verbose_header(group: GroupDescription) -> list[str]:
    if not group.is_consumer_group:
        return ["ASSIGNMENT"]
    return ["CURRENT-EPOCH", "CURRENT-ASSIGNMENT", "TARGET-EPOCH", "TARGET-ASSIGNMENT"]


def _verbose_cells(group: GroupDescription, member: MemberDescription) -> list[str]:
    how_far = member.reconciliation
    if how_far is None:
        return [_assignment(member.assignment)]
    return [
        str(how_far.epoch),
        named_assignment(member.assignment),
        str(group.assignment_epoch),
        named_assignment(how_far.target),
    ]


def named_assignment(partitions: Sequence[TopicPartition]) -> str:
    """Return partitions as Kafka 4.3's tool does: ``orders:0,1;payments:0``."""
    by_topic = partitions_by_topic(sorted(partitions)).items()
    return ";".join(f"{topic}:{','.join(map(str, found))}" for topic, found in by_topic) or MISSING


def _assignment(partitions: Sequence[TopicPartition]) -> str:
    """Return partitions as Kafka's tool does: ``orders(0,1), payments(0)``."""
    by_topic = partitions_by_topic(sorted(partitions)).items()
    return ", ".join(f"{topic}({','.join(map(str, found))})" for topic, found in by_topic) or MISSING


def state_table(group: GroupDescription, address: str, *, verbose: bool = False) -> list[str]:
    """Return the lines of ``--state``.

    Args:
        group: the group.
        address: the coordinator's.
        verbose: whether the epochs of a consumer group are shown.
    """
    epochs = [("GROUP-EPOCH", group.generation), ("TARGET-ASSIGNMENT-EPOCH", group.assignment_epoch)]
    shown = epochs if verbose and group.is_consumer_group else []
    coordinator = f"{address} ({group.coordinator})"
    table = [
        ["GROUP", "COORDINATOR (ID)", "ASSIGNMENT-STRATEGY", "STATE", *(name for name, _ in shown), "#MEMBERS"],
        [
            *(group.group_id, coordinator, group.protocol_name, group.state),
            *(str(epoch) for _, epoch in shown),
            str(len(group.members)),
        ],
    ]
    widths = [max(_COORDINATOR_WIDTH, len(cell)) for cell in table[1][:2]]
    return lines_of(table, [*widths, _WIDE, _WIDE, *(max(_LEAST_WIDTH, len(name)) for name, _ in shown)])


def list_table(groups: Sequence[ListedGroup], *, types: bool = False, states: bool = True) -> list[str]:
    """Return the lines of ``list-groups`` with ``--type``, ``--state`` or both."""

    def row(name: str, group_type: str, state: str) -> list[str]:
        return [name, *([group_type] if types else []), *([state] if states else [])]

    table = [row("GROUP", "TYPE", "STATE"), *(row(one.group_id, one.group_type.title(), one.state) for one in groups)]
    return lines_of(table, [width_of(table, place) for place in range(len(table[0]) - 1)])


def group_json(group: GroupDescription, address: str, rows: Sequence[OffsetRow]) -> dict[str, Any]:
    """Return everything about a group for ``-o json``."""
    return {
        "group": group.group_id,
        "state": group.state,
        "protocol_type": group.protocol_type,
        "protocol": group.protocol_name,
        "type": group.group_type,
        "generation": group.generation,
        "assignment_epoch": group.assignment_epoch if group.is_consumer_group else None,
        "coordinator": {"id": group.coordinator, "address": address},
        "last_rebalance_reason": group.reason,
        "members": [
            {
                "member_id": member.member_id,
                "group_instance_id": member.group_instance_id,
                "client_id": member.client_id,
                "host": member.host,
                "assignment": [{"topic": at.topic, "partition": at.partition} for at in member.assignment],
                "is_parked": member.member_id in group.parked_members,
                **reconciliation_json(member),
            }
            for member in group.members
        ],
        "offsets": [
            {
                "topic": row.topic_partition.topic,
                "partition": row.topic_partition.partition,
                "current_offset": row.current_offset,
                "log_end_offset": row.end_offset,
                "lag": row.lag,
                "member_id": None if row.member is None else row.member.member_id,
            }
            for row in rows
            if row.topic_partition is not None
        ],
    }


def reconciliation_json(member: MemberDescription) -> dict[str, Any]:
    """Return a consumer group member's progress to its target; else empty."""
    how_far = member.reconciliation
    if how_far is None:
        return {}
    return {
        "epoch": how_far.epoch,
        "state": how_far.state or None,
        "is_classic": how_far.is_classic,
        "target": [str(at) for at in how_far.target],
        "revoking": [str(at) for at in how_far.revoking],
        "awaited": [{"partition": str(at), "member_id": holder} for at, holder in how_far.awaited],
        "revocation_age_ms": how_far.revocation_age_ms,
        "revocation_left_ms": how_far.revocation_left_ms,
    }


def _number(value: int | None) -> str:
    return MISSING if value is None else str(value)


def width_of(table: Sequence[Sequence[str]], column: int) -> int:
    """Return the width of a column: its longest cell's, at least 15."""
    return max(_LEAST_WIDTH, *(len(row[column]) for row in table))


def lines_of(table: Sequence[Sequence[str]], widths: Sequence[int]) -> list[str]:
    """Return the lines of a table; the last column is not padded."""
    return [
        " ".join([*(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=False)), *row[len(widths) :]])
        for row in table
    ]
