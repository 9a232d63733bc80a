"""The groups of one broker, with and without its Lab service (group_observation.py), and their lines in ``status``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import grpc
import grpc.aio
import pytest

from tidegauge.groups import partition_of
from tidegauge.v1 import groups_pb2, lab_pb2
from tidegauge_client.channels import Channels
from tidegauge_lab.cli.cluster import group_line
from tidegauge_lab.group_observation import observed_groups

OBSERVED = lab_pb2.ObservedGroup(group_id="a", partition=7)
STABLE = groups_pb2.DescribeGroupResponse(state="Stable", generation=3)
COMMITTED = groups_pb2.CommittedOffset(topic="t", partition=0, offset=5)


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


def listed(request: groups_pb2.ListGroupsRequest) -> groups_pb2.ListGroupsResponse:
    assert request.own_groups_only
    return groups_pb2.ListGroupsResponse(groups=[groups_pb2.ListedGroup(group_id=one) for one in ("a", "b")])


def described(request: groups_pb2.DescribeGroupRequest) -> groups_pb2.DescribeGroupResponse:
    assert request.forwarded, "a coordinator that has moved meanwhile forwards nothing"
    return STABLE


def fetched(request: groups_pb2.FetchOffsetsRequest) -> groups_pb2.FetchOffsetsResponse:
    assert request.forwarded
    assert request.all_partitions
    return groups_pb2.FetchOffsetsResponse(offsets=[COMMITTED])


async def test_the_lab_service_is_asked_first_and_alone() -> None:
    """No fault that is set for a group's request is used up by one who only looks."""
    broker = Broker(ObserveGroups=lambda _: lab_pb2.ObserveGroupsResponse(groups=[OBSERVED]), ListGroups=listed)
    assert await observed_groups(broker, "b:1", 10) == [OBSERVED]
    assert broker.asked == ["ObserveGroups"]


async def test_a_broker_without_the_lab_is_asked_as_an_admin_client_asks_it() -> None:
    broker = Broker(ListGroups=listed, DescribeGroup=described, FetchOffsets=fetched)
    found = await observed_groups(broker, "b:1", 10)
    assert found == [
        lab_pb2.ObservedGroup(group_id=name, description=STABLE, partition=partition_of(name, 10), offsets=[COMMITTED])
        for name in ("a", "b")
    ]


@pytest.mark.parametrize(
    "methods",
    [
        {"ObserveGroups": grpc.StatusCode.DEADLINE_EXCEEDED, "ListGroups": listed},
        {"ListGroups": grpc.StatusCode.UNAVAILABLE},
        {"ListGroups": listed, "DescribeGroup": grpc.StatusCode.UNAVAILABLE, "FetchOffsets": fetched},
    ],
)
async def test_a_broker_that_does_not_respond_is_unknown_not_without_groups(methods: dict[str, Any]) -> None:
    assert await observed_groups(Broker(**methods), "b:1", 10) is None


def test_a_group_is_a_line_of_the_status() -> None:
    known = {"group": "app", "state": "Stable", "generation": 2, "members": [{}], "lag": 12, "coordinator": 1}
    group = known | {"lagIsPart": False}
    assert group_line(group) == "Group app  Stable, generation 2, 1 member, lag 12, coordinator: broker 1"
    part = "Group app  Stable, generation 2, 1 member, lag at least 12, coordinator: broker 1"
    assert group_line(group | {"lagIsPart": True}) == part, "of a partition without a leader it is not known"
    unknown = group | {"members": [], "lag": None}
    assert group_line(unknown) == "Group app  Stable, generation 2, 0 members, coordinator: broker 1"
