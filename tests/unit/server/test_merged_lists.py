"""A list that several brokers make: who is missing, and how long the others are waited for (merged_lists.py)."""

from __future__ import annotations

from typing import Any

import pytest

from tidegauge.errors import ErrorCode
from tidegauge.v1 import common_pb2
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


def test_a_complete_list_has_no_error() -> None:
    assert merged_lists.status_of({0: common_pb2.Status(), 1: common_pb2.Status()}, "groups") == common_pb2.Status()


def test_each_broker_whose_part_is_missing_is_named() -> None:
    statuses = {
        0: to_status(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS),
        1: common_pb2.Status(),
        2: merged_lists.no_response(2, "groups"),
    }
    found = merged_lists.status_of(statuses, "groups")
    assert ErrorCode.of(found.error) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "it is retried: it will be there soon"
    assert found.message == (
        "Broker 0 can't list its groups now (COORDINATOR_LOAD_IN_PROGRESS); they are missing; "
        "Broker 2 does not respond; its groups are missing"
    )
