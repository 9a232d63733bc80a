"""Lists made of what each broker coordinates (``merged_lists``)."""

from __future__ import annotations

import pytest

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.kafka.messages.list_groups import ListGroupsResponse
from tidegauge.partition import TopicPartition
from tidegauge_client.merged_lists import merged

WHOLE = ListGroupsResponse()
LOADING = ListGroupsResponse(error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
SILENT = TidegaugeError(ErrorCode.REQUEST_TIMED_OUT, "late")


def test_a_list_of_all_brokers_is_whole() -> None:
    found = merged({0: WHOLE, 1: WHOLE}, "groups", [])
    assert (found.whole(), found.missing(), found.lacks_parts) == ([(0, WHOLE), (1, WHOLE)], "", False)


def test_each_part_that_is_missing_is_named_and_the_others_are_there() -> None:
    """Rules 1 and 2."""
    found = merged({0: WHOLE, 1: SILENT, 2: LOADING}, "groups", [TopicPartition("__consumer_offsets", 3)])
    assert found.lacks_parts
    assert [broker for broker, _ in found.parts] == [0, 2]
    assert found.missing() == (
        "Broker 1 does not respond; the groups that it coordinates, if there are any, are missing; "
        "Broker 2 can't list all groups that it coordinates now (COORDINATOR_LOAD_IN_PROGRESS); some may be missing; "
        "__consumer_offsets-3 has no leader; the groups held there, if there are any, are missing"
    )
    with pytest.raises(TidegaugeError, match="Broker 1 does not respond") as lacking:
        found.whole()
    assert lacking.value.code is ErrorCode.BROKER_NOT_AVAILABLE


def test_of_many_partitions_without_a_leader_the_first_are_named() -> None:
    many = [TopicPartition("t", index) for index in range(5)]
    assert merged({}, "groups", many).missing().startswith("t-0, t-1, t-2 and 2 more have no leader")


def test_a_broker_that_refuses_makes_the_list_fail() -> None:
    refused = TidegaugeError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "not allowed")
    with pytest.raises(TidegaugeError, match="not allowed"):
        merged({0: WHOLE, 1: refused}, "groups", []).missing()
