"""The output of describe-group for share groups: the tables of kafka-share-groups.sh, as recorded from 4.3.1."""

from __future__ import annotations

import pytest

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.kafka.messages.describe_share_group_offsets import (
    DescribeShareGroupOffsetsResponse,
    DescribeShareGroupOffsetsResponseGroup,
    DescribeShareGroupOffsetsResponsePartition,
    DescribeShareGroupOffsetsResponseTopic,
)
from tidegauge.kafka.messages.share_group_describe import (
    Assignment,
    DescribedGroup,
    Member,
    ShareGroupDescribeResponse,
    TopicPartitions,
)
from tidegauge.partition import TopicPartition
from tidegauge_client.admin_groups import ListedGroup
from tidegauge_client.coordinators import Coordinator
from tidegauge_client.group_tables import list_table
from tidegauge_client.share_group_tables import (
    share_group_json,
    share_members_table,
    share_offsets_table,
    share_state_sentence,
    share_state_table,
)
from tidegauge_client.share_groups import ShareOffset, described_share_group, described_share_offsets, share_group_of

S1 = TopicPartition("s1", 0)
MEMBER = Member(
    "6Ez1LekGRia9QoTtqaIHCA", None, 3, "cliS", "/127.0.0.1", ["s1"], Assignment([TopicPartitions(bytes(16), "s1", [0])])
)
GROUP = DescribedGroup(0, None, "cli-share", "Stable", 3, 3, "simple", [MEMBER])
AT = Coordinator(1, "127.0.0.1:9092")


class Wire:
    """A coordinator that responds with one message."""

    def __init__(self, response: object) -> None:
        self.response = response

    async def ask(self, *_: object) -> object:
        return self.response


def test_the_tables_are_those_of_kafkas_tool() -> None:
    group = share_group_of(GROUP, 1)
    assert share_state_sentence(group) is None
    header, row = share_offsets_table("cli-share", {S1: ShareOffset(None, None)})
    assert header == "GROUP           TOPIC           PARTITION  START-OFFSET  LAG"
    assert row == "cli-share       s1              0          -             -"
    header, row = share_members_table(group, verbose=False)
    assert header == "GROUP           CONSUMER-ID            HOST            CLIENT-ID       #PARTITIONS  ASSIGNMENT"
    assert row == "cli-share       6Ez1LekGRia9QoTtqaIHCA /127.0.0.1      cliS            1            s1:0"
    header, row = share_state_table(group, "127.0.0.1:9092", verbose=True)
    assert header == (
        "GROUP           COORDINATOR (ID)          STATE           GROUP-EPOCH  ASSIGNMENT-EPOCH  #MEMBERS"
    )
    assert row == "cli-share       127.0.0.1:9092 (1)        Stable          3            3                 1"


def test_json_has_start_offsets_and_epochs() -> None:
    found = share_group_json(share_group_of(GROUP, 1), "h:1", {S1: ShareOffset(4, 6)})
    assert (found["type"], found["generation"], found["assignment_epoch"]) == ("share", 3, 3)
    assert found["offsets"] == [{"topic": "s1", "partition": 0, "start_offset": 4, "lag": 6}]
    assert [one["epoch"] for one in found["members"]] == [3]


def test_types_are_shown_where_they_are_asked_for() -> None:
    listed = [ListedGroup("q", "share", "Empty", "share", 1), ListedGroup("c", "consumer", "Stable", "classic", 0)]
    assert [line.split() for line in list_table(listed, types=True, states=False)] == [
        ["GROUP", "TYPE"],
        ["q", "Share"],
        ["c", "Classic"],
    ]
    assert [line.split() for line in list_table(listed, types=True)][1] == ["q", "Share", "Empty"]


@pytest.mark.parametrize("error", [ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.UNSUPPORTED_VERSION])
async def test_a_group_of_another_type_is_no_share_group(error: ErrorCode) -> None:
    """kafka-share-groups is refused with UNSUPPORTED_VERSION where share.version is 0."""
    failed = ShareGroupDescribeResponse(groups=[DescribedGroup(error, group_id="g")])
    wire = Wire(failed)
    assert await described_share_group(wire, "g", AT, 1.0) is None  # type: ignore[arg-type]
    wire.response = ShareGroupDescribeResponse(groups=[DescribedGroup(ErrorCode.NOT_COORDINATOR, group_id="g")])
    with pytest.raises(TidegaugeError):
        await described_share_group(wire, "g", AT, 1.0)  # type: ignore[arg-type]


async def test_a_start_offset_that_is_not_set_yet_has_no_lag() -> None:
    partition = DescribeShareGroupOffsetsResponsePartition
    topic = DescribeShareGroupOffsetsResponseTopic("s1", bytes(16), [partition(1, 4, 0, 6), partition(0, -1, 0, -1)])
    response = DescribeShareGroupOffsetsResponse(groups=[DescribeShareGroupOffsetsResponseGroup("g", [topic])])
    found = await described_share_offsets(Wire(response), "g", AT, 1.0)  # type: ignore[arg-type]
    assert found == {S1: ShareOffset(None, None), TopicPartition("s1", 1): ShareOffset(4, 6)}
