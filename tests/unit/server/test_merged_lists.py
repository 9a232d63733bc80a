"""A list that several brokers make: who is missing, and how long the others are waited for (merged_lists.py)."""

from __future__ import annotations

from typing import Any

import grpc
import grpc.aio
import pytest

from tidegauge.control import Endpoint
from tidegauge.errors import ErrorCode
from tidegauge.partition import TopicPartition
from tidegauge.v1 import common_pb2, groups_pb2
from tidegauge_broker.server.wire.grpc import merged_lists
from tidegauge_broker.server.wire.grpc.forwarding import to_status


class Caller:
    """What a call knows of its deadline."""

    def __init__(self, left_seconds: float | None) -> None:
        self._left_seconds = left_seconds

    def time_remaining(self) -> float | None:
        return self._left_seconds


@pytest.mark.parametrize(("left", "limit"), [(None, 5.0), (60.0, 5.0), (5.0, 3.0), (0.0, 0.0)])
def test_the_others_are_waited_for_less_long_than_the_caller_waits(left: float | None, limit: float) -> None:
    """Else the caller gives up first, and has nothing, where it could have what the live brokers list."""
    caller: Any = Caller(left)
    assert merged_lists.timeout_seconds(caller) == limit


def test_a_broker_is_silent_towards_the_one_that_has_asked_it() -> None:
    """Another one may reach it: the broker that the client asked may be the one that is partitioned."""
    words = "Broker 2 does not respond to broker 1; the groups that it coordinates, if there are any, are missing"
    assert merged_lists.no_response(2, 1, "groups").message == words


def test_a_complete_list_has_no_error() -> None:
    assert merged_lists.status_of({0: common_pb2.Status(), 1: common_pb2.Status()}, "groups") == common_pb2.Status()


def test_each_broker_whose_part_is_missing_is_named() -> None:
    statuses = {
        0: to_status(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS),
        1: common_pb2.Status(),
        2: merged_lists.no_response(2, 0, "groups"),
    }
    found = merged_lists.status_of(statuses, "groups")
    assert ErrorCode.of(found.error) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "it is retried: it will be there soon"
    assert found.message == (
        "Broker 0 can't list all groups that it coordinates now (COORDINATOR_LOAD_IN_PROGRESS); some may be missing; "
        "Broker 2 does not respond to broker 0; the groups that it coordinates, if there are any, are missing"
    )


@pytest.mark.parametrize(
    ("leaderless", "words"),
    [
        ((3,), "o-3 has no leader; the groups held there, if there are any, are missing"),
        ((3, 4), "o-3 and o-4 have no leader; the groups held there, if there are any, are missing"),
        ((1, 2, 3, 4), "o-1, o-2, o-3 and 1 more have no leader; the groups held there, if there are any, are missing"),
    ],
)
def test_what_a_partition_without_a_leader_holds_is_missing_and_the_list_says_so(
    leaderless: tuple[int, ...], words: str
) -> None:
    """Rule 2: no broker lists it, so that all lists together looked complete."""
    partitions = [TopicPartition("o", index) for index in leaderless]
    found = merged_lists.status_of({0: common_pb2.Status()}, "groups", partitions)
    assert (ErrorCode.of(found.error), found.message) == (ErrorCode.BROKER_NOT_AVAILABLE, words)


def own_list(group_id: str) -> groups_pb2.ListGroupsResponse:
    return groups_pb2.ListGroupsResponse(groups=[groups_pb2.ListedGroup(group_id=group_id)])


async def test_what_the_others_list_is_there_though_one_of_them_does_not_respond() -> None:
    """Rule 1; and rules 3 and 4: each is asked with a part of the caller's time, and waits for its channel."""
    asked: list[tuple[str, dict[str, Any]]] = []

    def method_at(address: str) -> Any:
        async def method(_request: Any, **how: Any) -> groups_pb2.ListGroupsResponse:
            asked.append((address, how))
            if address == "b:2":
                nothing = grpc.aio.Metadata()
                raise grpc.aio.AioRpcError(grpc.StatusCode.DEADLINE_EXCEEDED, nothing, nothing)
            return own_list("of-another")

        return method

    caller: Any = Caller(5.0)
    others = [Endpoint(1, "a", 1), Endpoint(2, "b", 2)]
    parts, status = await merged_lists.gather((0, own_list("own")), others, method_at, None, caller, "groups", [])
    assert [one.groups[0].group_id for one in parts] == ["own", "of-another"]
    assert status == merged_lists.no_response(2, 0, "groups")
    how = {"timeout": 3.0, "wait_for_ready": True}
    assert asked == [("a:1", how), ("b:2", how)]
