"""The output of ``describe-group`` for share groups (KIP-932): the tables and sentences of kafka-share-groups.sh. Pure.

Source: ShareGroupCommand.ShareGroupService of Kafka 4.3 (printOffsets, printMembers, printStates).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tidegauge.partition import TopicPartition
from tidegauge_client.group_descriptions import GroupDescription
from tidegauge_client.group_tables import MISSING, group_json, lines_of, named_assignment, width_of
from tidegauge_client.share_groups import ShareOffset

_NUMBER_WIDTH = 10
_OFFSET_WIDTH = 13
_STATE_WIDTH = 15
_COORDINATOR_WIDTH = 25


def share_state_sentence(group: GroupDescription) -> str | None:
    """Return the sentence before a group's table; None for one with members."""
    return f"Share group '{group.group_id}' has no active members." if group.state == "Empty" else None


def share_offsets_table(group_id: str, offsets: Mapping[TopicPartition, ShareOffset]) -> list[str]:
    """Return the lines of ``--offsets``."""
    table = [
        ["GROUP", "TOPIC", "PARTITION", "START-OFFSET", "LAG"],
        *(
            [group_id, at.topic, str(at.partition), _number(one.start_offset), _number(one.lag)]
            for at, one in offsets.items()
        ),
    ]
    return lines_of(table, [width_of(table, 0), width_of(table, 1), _NUMBER_WIDTH, _OFFSET_WIDTH])


def share_members_table(group: GroupDescription, *, verbose: bool) -> list[str]:
    """Return the lines of ``--members``; ``verbose`` adds each one's epoch."""
    header = ["GROUP", "CONSUMER-ID", "HOST", "CLIENT-ID", "#PARTITIONS", *(["MEMBER-EPOCH"] if verbose else [])]
    cells = [
        [
            *(group.group_id, member.member_id, member.host, member.client_id, str(len(member.assignment))),
            *([str(member.reconciliation.epoch if member.reconciliation else MISSING)] if verbose else []),
            named_assignment(member.assignment),
        ]
        for member in group.members
    ]
    table = [[*header, "ASSIGNMENT"], *cells]
    widths = [*(width_of(table, place) for place in range(4)), 12, *([_OFFSET_WIDTH] if verbose else [])]
    return lines_of(table, widths)


def share_state_table(group: GroupDescription, address: str, *, verbose: bool) -> list[str]:
    """Return the lines of ``--state``; ``verbose`` adds the group's epochs."""
    epochs = [("GROUP-EPOCH", group.generation), ("ASSIGNMENT-EPOCH", group.assignment_epoch)] if verbose else []
    table = [
        ["GROUP", "COORDINATOR (ID)", "STATE", *(name for name, _ in epochs), "#MEMBERS"],
        [
            *(group.group_id, f"{address} ({group.coordinator})", group.state),
            *(str(epoch) for _, epoch in epochs),
            str(len(group.members)),
        ],
    ]
    widths = [width_of(table, 0), max(_COORDINATOR_WIDTH, width_of(table, 1)), _STATE_WIDTH]
    return lines_of(table, [*widths, *(max(12, len(name) + 1) for name, _ in epochs)])


def share_group_json(
    group: GroupDescription, address: str, offsets: Mapping[TopicPartition, ShareOffset]
) -> dict[str, Any]:
    """Return everything about a group for ``-o json``; its offsets are start offsets."""
    rows = [
        {"topic": at.topic, "partition": at.partition, "start_offset": one.start_offset, "lag": one.lag}
        for at, one in offsets.items()
    ]
    return group_json(group, address, ()) | {"assignment_epoch": group.assignment_epoch, "offsets": rows}


def _number(value: int | None) -> str:
    return MISSING if value is None else str(value)
