"""The groups of one broker, with and without its Lab service (group_observation.py), and their lines in ``status``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import grpc
import grpc.aio
import pytest

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.groups import partition_of
from tidegauge.kafka import apis
from tidegauge.kafka.messages.describe_groups import DescribedGroup, DescribeGroupsResponse
from tidegauge.kafka.messages.list_groups import ListedGroup, ListGroupsResponse
from tidegauge.kafka.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
)
from tidegauge.security import PLAIN
from tidegauge.v1 import lab_pb2
from tidegauge_client.channels import Channels
from tidegauge_client.kafka_wire import KafkaWire
from tidegauge_lab.cli.cluster_lines import group_line
from tidegauge_lab.group_observation import observed_groups

OBSERVED = lab_pb2.ObservedGroup(group_id="a", partition=7)
NETWORK = TidegaugeError(ErrorCode.NETWORK_EXCEPTION, "no connection")


class Broker(Channels):
    """Responds to the methods that it has, and notes their names; others are UNIMPLEMENTED."""

    def __init__(self, **methods: Callable[[Any], Any] | grpc.StatusCode) -> None:
        super().__init__()
        self._methods = methods
        self.asked: list[str] = []

    def channel(self, address: str) -> Any:
        assert address == "b:1"
        return self

    def unary_unary(self, path: str, **_: Any) -> Any:
        name = path.rpartition("/")[2]

        async def call(request: Any, timeout: float) -> Any:  # noqa: ASYNC109 - as gRPC calls it
            assert timeout > 0
            self.asked.append(name)
            method = self._methods.get(name, grpc.StatusCode.UNIMPLEMENTED)
            if isinstance(method, grpc.StatusCode):
                raise grpc.aio.AioRpcError(method, grpc.aio.Metadata(), grpc.aio.Metadata())
            return method(request)

        return call

    def unary_stream(self, path: str, **options: Any) -> Any:
        return self.unary_unary(path, **options)

    stream_unary = stream_stream = unary_stream


class Kafka(KafkaWire):
    """A broker's listener for Kafka clients, with two groups; ``failing``: the APIs that have no response."""

    def __init__(self, *failing: int) -> None:
        super().__init__(PLAIN, {})
        self._failing = failing
        self.asked: list[int] = []

    async def ask(self, address: str, key: int, message: Any, timeout_ms: float, **_: Any) -> Any:
        assert (address, timeout_ms) == ("b:9", 1_000)
        self.asked.append(key)
        if key in self._failing:
            raise NETWORK
        if key == apis.LIST_GROUPS:
            return ListGroupsResponse(groups=[ListedGroup("a"), ListedGroup("b")])
        if key == apis.DESCRIBE_GROUPS:
            return DescribeGroupsResponse(
                groups=[DescribedGroup(0, None, one, "Stable", "consumer") for one in message.groups]
            )
        assert isinstance(message, OffsetFetchRequest)
        assert all(one.topics is None for one in message.groups), "of all partitions"
        topics = [OffsetFetchResponseTopics("t", partitions=[OffsetFetchResponsePartitions(0, 5, -1, None)])]
        return OffsetFetchResponse(groups=[OffsetFetchResponseGroup(one.group_id, topics) for one in message.groups])


async def test_the_lab_service_is_asked_first_and_alone() -> None:
    """No fault that is set for a group's request is used up by one who only looks."""
    broker, kafka = Broker(ObserveGroups=lambda _: lab_pb2.ObserveGroupsResponse(groups=[OBSERVED])), Kafka()
    assert await observed_groups(broker, "b:1", kafka, "b:9", 10) == [OBSERVED]
    assert (broker.asked, kafka.asked) == (["ObserveGroups"], [])


async def test_a_broker_without_the_lab_is_asked_as_an_admin_client_asks_it() -> None:
    """Three requests over Kafka's protocol, however many groups there are."""
    kafka = Kafka()
    found = await observed_groups(Broker(), "b:1", kafka, "b:9", 10)
    stable = lab_pb2.GroupDescription(state="Stable", protocol_type="consumer", generation=-1)
    committed = lab_pb2.CommittedOffset(topic="t", partition=0, offset=5, leader_epoch=-1)
    assert found == [
        lab_pb2.ObservedGroup(group_id=name, description=stable, partition=partition_of(name, 10), offsets=[committed])
        for name in ("a", "b")
    ]
    assert kafka.asked == [apis.LIST_GROUPS, apis.DESCRIBE_GROUPS, apis.OFFSET_FETCH]


@pytest.mark.parametrize(
    ("methods", "failing", "address"),
    [
        ({"ObserveGroups": grpc.StatusCode.DEADLINE_EXCEEDED}, (), "b:9"),
        ({}, (apis.LIST_GROUPS,), "b:9"),
        ({}, (apis.DESCRIBE_GROUPS,), "b:9"),
        ({}, (), None),
    ],
)
async def test_a_broker_that_does_not_respond_is_unknown_not_without_groups(
    methods: dict[str, Any], failing: tuple[int, ...], address: str | None
) -> None:
    assert await observed_groups(Broker(**methods), "b:1", Kafka(*failing), address, 10) is None


def test_a_group_is_a_line_of_the_status() -> None:
    known = {"group": "app", "state": "Stable", "generation": 2, "members": [{}], "lag": 12, "coordinator": 1}
    group = known | {"lagIsPart": False}
    assert group_line(group) == "Group app  Stable, generation 2, 1 member, lag 12, coordinator: broker 1"
    part = "Group app  Stable, generation 2, 1 member, lag at least 12, coordinator: broker 1"
    assert group_line(group | {"lagIsPart": True}) == part, "of a partition without a leader it is not known"
    unknown = group | {"members": [], "lag": None}
    assert group_line(unknown) == "Group app  Stable, generation 2, 0 members, coordinator: broker 1"
