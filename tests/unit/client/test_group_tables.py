"""The tables and sentences of kafka-consumer-groups.sh (ConsumerGroupCommand of Kafka 3.9)."""

from __future__ import annotations

import struct
from typing import Any

import pytest

from tidegauge.partition import TopicPartition
from tidegauge_client.admin_groups import (
    GroupDescription,
    ListedGroup,
    MemberDescription,
    OffsetAndMetadata,
)
from tidegauge_client.group_descriptions import Reconciliation, assigned_partitions
from tidegauge_client.group_tables import (
    group_json,
    list_table,
    members_table,
    offset_rows,
    offsets_table,
    state_sentence,
    state_table,
)

ORDERS_0, ORDERS_1, OLD_0 = TopicPartition("orders", 0), TopicPartition("orders", 1), TopicPartition("old", 0)
READER = MemberDescription("reader-1", None, "app", "/127.0.0.1", (ORDERS_0, ORDERS_1))
IDLE = MemberDescription("idle-2", "rack-a", "app", "/127.0.0.1", ())


def group(state: str = "Stable", members: tuple[MemberDescription, ...] = (READER, IDLE)) -> GroupDescription:
    return GroupDescription("g", state, "consumer", "range", members, 1, 7, "", ())


def rows() -> Any:
    committed = {ORDERS_0: OffsetAndMetadata(5), OLD_0: OffsetAndMetadata(2)}
    return offset_rows(group(), committed, {ORDERS_0: 9, ORDERS_1: 4})


def test_partitions_of_members_come_first_then_orphans_then_idle_members() -> None:
    """A partition without a commit has no lag, nor has one whose end is unknown."""
    found = rows()
    assert [(row.topic_partition, row.current_offset, row.end_offset, row.lag) for row in found] == [
        (ORDERS_0, 5, 9, 4),
        (ORDERS_1, None, 4, None),
        (OLD_0, 2, None, None),
        (None, None, None, None),
    ]
    assert [row.member for row in found] == [READER, READER, None, IDLE]


def test_the_table_of_offsets_has_kafkas_columns() -> None:
    header, first, *rest = offsets_table("g", rows())
    assert header.split() == [
        "GROUP",
        "TOPIC",
        "PARTITION",
        "CURRENT-OFFSET",
        "LOG-END-OFFSET",
        "LAG",
        "CONSUMER-ID",
        "HOST",
        "CLIENT-ID",
    ]
    assert first.split() == ["g", "orders", "0", "5", "9", "4", "reader-1", "/127.0.0.1", "app"]
    assert rest[1].split() == ["g", "old", "0", "2", "-", "-", "-", "-", "-"]
    assert header.index("TOPIC") == first.index("orders") == 16


def test_members_show_an_instance_id_where_one_has_it_and_partitions_with_verbose() -> None:
    header, first, second = members_table(group(), verbose=True)
    assert header.split() == [
        "GROUP",
        "CONSUMER-ID",
        "GROUP-INSTANCE-ID",
        "HOST",
        "CLIENT-ID",
        "#PARTITIONS",
        "ASSIGNMENT",
    ]
    assert first.split() == ["g", "reader-1", "-", "/127.0.0.1", "app", "2", "orders(0,1)"]
    assert second.split() == ["g", "idle-2", "rack-a", "/127.0.0.1", "app", "0", "-"]
    header, first = members_table(group(members=(READER,)), verbose=False)
    assert header.split() == ["GROUP", "CONSUMER-ID", "HOST", "CLIENT-ID", "#PARTITIONS"]
    assert first.split() == ["g", "reader-1", "/127.0.0.1", "app", "2"]


def test_the_state_names_the_coordinator() -> None:
    header, line = state_table(group(), "127.0.0.1:19093")
    assert header.split() == ["GROUP", "COORDINATOR", "(ID)", "ASSIGNMENT-STRATEGY", "STATE", "#MEMBERS"]
    assert line.split() == ["g", "127.0.0.1:19093", "(1)", "range", "Stable", "2"]


@pytest.mark.parametrize(
    ("state", "sentence"),
    [
        ("Dead", "Consumer group 'g' does not exist."),
        ("Empty", "Consumer group 'g' has no active members."),
        ("PreparingRebalance", "Warning: Consumer group 'g' is rebalancing."),
        ("CompletingRebalance", "Warning: Consumer group 'g' is rebalancing."),
        ("Stable", None),
    ],
)
def test_a_group_that_is_not_stable_is_announced(state: str, sentence: str | None) -> None:
    assert state_sentence(group(state)) == sentence


def test_a_list_with_states_has_two_columns() -> None:
    lines = list_table([ListedGroup("g", "consumer", "Stable", "classic", 0)])
    assert [line.split() for line in lines] == [["GROUP", "STATE"], ["g", "Stable"]]


def test_json_has_generation_lag_and_parked_members() -> None:
    found = group_json(group(), "127.0.0.1:19093", rows())
    assert (found["generation"], found["coordinator"]) == (7, {"id": 1, "address": "127.0.0.1:19093"})
    assert [one["lag"] for one in found["offsets"]] == [4, None, None]
    assert [one["is_parked"] for one in found["members"]] == [False, False]


def test_an_assignment_is_read_as_the_consumer_protocol_writes_it() -> None:
    """ConsumerProtocolAssignment; what cannot be read shows no partition."""
    data = struct.pack(">hi", 3, 2)
    data += struct.pack(">h", 6) + b"orders" + struct.pack(">iii", 2, 1, 0)
    data += struct.pack(">h", 3) + b"old" + struct.pack(">ii", 1, 0) + struct.pack(">i", -1)
    assert assigned_partitions(data) == (OLD_0, ORDERS_0, ORDERS_1)
    assert assigned_partitions(b"") == ()
    assert assigned_partitions(data[:-9]) == ()


def test_members_of_a_consumer_group_have_the_columns_of_kafkas_tool_of_4_3() -> None:
    """ConsumerGroupCommand.printMembers of Kafka 4.3.1, as it printed a group of one member."""
    partitions = tuple(TopicPartition("t4", one) for one in range(4))
    member = MemberDescription(
        "jJ38HyFfR2W4dFVvUekV2A",
        None,
        "cliA",
        "/127.0.0.1",
        partitions,
        reconciliation=Reconciliation(2, "STABLE", target=partitions),
    )
    described = GroupDescription(
        *("cli-consumer", "Stable", "consumer", "uniform", (member,), 1, 2, "", ()),
        group_type="consumer",
        assignment_epoch=2,
    )
    assert [line.rstrip() for line in members_table(described, verbose=True)] == [
        "GROUP           CONSUMER-ID            HOST            CLIENT-ID       #PARTITIONS     CURRENT-EPOCH   "
        "CURRENT-ASSIGNMENT   TARGET-EPOCH    TARGET-ASSIGNMENT",
        "cli-consumer    jJ38HyFfR2W4dFVvUekV2A /127.0.0.1      cliA            4               2               "
        "t4:0,1,2,3           2               t4:0,1,2,3",
    ]
    assert [line.split()[-3:] for line in state_table(described, "127.0.0.1:9092", verbose=True)] == [
        ["GROUP-EPOCH", "TARGET-ASSIGNMENT-EPOCH", "#MEMBERS"],
        ["2", "2", "1"],
    ]
    assert state_table(described, "127.0.0.1:9092")[0].split()[-1] == "#MEMBERS"
    found = group_json(described, "127.0.0.1:9092", [])
    assert (found["type"], found["generation"], found["assignment_epoch"]) == ("consumer", 2, 2)
    assert (found["members"][0]["epoch"], found["members"][0]["state"]) == (2, "STABLE")
