"""The order of an ISR's members in AlterPartition, as a leader of Kafka 4.3.1 has it.

The rows are what Scala 2.13.18 returns for ``Partition.prepareIsrExpand`` and ``prepareIsrShrink``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import pytest

from tidegauge.control import IsrProposal
from tidegauge.kafka.kraft.messages import alter_partition as kafka
from tidegauge.partition import TopicPartition
from tidegauge_broker.server.cluster.kraft.isr_order import order_of_expansion, order_of_shrinking
from tidegauge_broker.server.cluster.kraft.requests import KRaftRequests

TOPIC_ID = "AAAAAAAAAAAAAAAAAAAAAQ"


@pytest.mark.parametrize(
    ("isr", "joiner", "expected"),
    [
        ([1, 2], 0, [0, 1, 2]),
        ([74, 24, 6], 69, [24, 74, 69, 6]),
        ([3, 7, 0, 8, 10, 18], 17, [0, 17, 18, 3, 7, 8, 10]),
        ([11, 8, 6, 17, 3], 5, [17, 3, 5, 6, 8, 11]),
        ([15, 3, 8, 18, 4], 21, [18, 3, 4, 21, 8, 15]),
        ([121060, 186575], 176225, [176225, 121060, 186575]),
        ([2047, 56003], 179963, [179963, 56003, 2047]),
    ],
)
def test_an_isr_that_grows_is_listed_in_the_order_of_a_table_made_for_it(
    isr: list[int], joiner: int, expected: list[int]
) -> None:
    assert order_of_expansion([*isr, joiner]) == expected


@pytest.mark.parametrize(
    ("members", "expected"),
    [
        ([2, 0], [0, 2]),
        ([74, 24, 6], [6, 24, 74]),
        ([98, 52, 42], [98, 52, 42]),
        ([19, 11, 6, 18, 5], [18, 19, 5, 6, 11]),
        ([182919, 3199, 163482], [182919, 163482, 3199]),
    ],
)
def test_an_isr_that_shrinks_is_listed_in_the_order_of_a_table_that_was_filled(
    members: list[int], expected: list[int]
) -> None:
    assert order_of_shrinking(members) == expected


def test_a_table_of_sixteen_grows_with_its_twelfth_member() -> None:
    """``mutable.HashSet`` grows at three quarters: member 16 comes before 1 in sixteen places, after it in 32."""
    assert order_of_shrinking([16, *range(1, 11)]) == [16, *range(1, 11)]
    assert order_of_shrinking([16, *range(1, 12)]) == [*range(1, 12), 16]


class Channel:
    """A controller whose response names no partition."""

    def __init__(self) -> None:
        self.members: list[tuple[int, int]] = []

    async def request(self, _: int, message: kafka.AlterPartitionRequest, *__: Any, **___: Any) -> Any:
        [topic] = message.topics
        [one] = topic.partitions
        self.members = [(member.broker_id, member.broker_epoch) for member in one.new_isr_with_epochs]
        return kafka.AlterPartitionResponse()


@pytest.mark.parametrize(
    ("new_isr", "joiner_epoch", "sent"),
    [
        ((2, 1, 0), 77, [(0, 77), (1, 11), (2, 12)]),
        ((9, 3, 1), 77, [(1, 77), (9, 19), (3, 13)]),
        ((9, 3, 1), -1, [(1, 11), (3, 13), (9, 19)]),
    ],
)
async def test_each_member_keeps_its_broker_epoch_in_that_order(
    new_isr: Sequence[int], joiner_epoch: int, sent: list[tuple[int, int]]
) -> None:
    """The last member of a proposal is the one that joins; its epoch is its fetch's (KIP-903)."""
    channel: Any = Channel()
    requests = KRaftRequests(2, lambda: 5, lambda member: 10 + member, channel, *cast("Any", (None,) * 3), 1.0)
    proposal = IsrProposal(TopicPartition("t", 0), TOPIC_ID, 3, tuple(new_isr), 4, joiner_epoch=joiner_epoch)
    assert await requests.alter_partition([proposal]) == {}
    assert channel.members == sent
