"""Checks of the group consumer before it contacts a broker, and the properties of ``consume --group``."""

from __future__ import annotations

import inspect

import pytest

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.partition import TopicPartition
from tidegauge_client.bootstrap import SecurityArguments
from tidegauge_client.cli.group_properties import parse_properties
from tidegauge_client.consumer import Consumer, ConsumerArguments
from tidegauge_client.group.group_consumer import GroupConsumer

SERVER = "127.0.0.1:1"


def test_every_setting_of_the_consumer_is_one_of_the_group_consumer() -> None:
    own = {name for name, one in inspect.signature(Consumer).parameters.items() if one.kind is one.KEYWORD_ONLY}
    assert own == ConsumerArguments.__annotations__.keys() - SecurityArguments.__annotations__.keys()


@pytest.mark.parametrize(
    ("settings", "error"),
    [
        ({"group_id": " "}, ErrorCode.INVALID_GROUP_ID),
        ({"heartbeat_interval_ms": 10_000, "session_timeout_ms": 10_000}, ErrorCode.INVALID_CONFIG),
        ({"partition_assignment_strategy": ["sticky"]}, ErrorCode.INVALID_CONFIG),
        ({"partition_assignment_strategy": []}, ErrorCode.INVALID_CONFIG),
    ],
)
async def test_settings_are_checked_before_anything_is_contacted(settings: dict[str, object], error: ErrorCode) -> None:
    with pytest.raises(TidegaugeError) as raised:
        GroupConsumer(SERVER, **{"group_id": "g", **settings})  # type: ignore[arg-type]
    assert raised.value.code is error


async def test_before_it_is_started_it_is_no_member_and_commits_nothing() -> None:
    consumer = GroupConsumer(SERVER, "g", group_instance_id="i")
    assert consumer.group_metadata() == ("g", -1, "", "i")
    assert consumer.subscription() == set()
    with pytest.raises(TidegaugeError, match="not running"):
        await consumer.commit_sync()
    consumer.assign([TopicPartition("t", 0)])
    assert consumer.assignment() == [TopicPartition("t", 0)]


def test_properties_have_kafkas_names() -> None:
    found = parse_properties(
        [
            "group.instance.id=i",
            "session.timeout.ms=6000",
            "enable.auto.commit=False",
            "partition.assignment.strategy=org.apache.kafka.clients.consumer.RoundRobinAssignor,range,"
            "org.apache.kafka.clients.consumer.CooperativeStickyAssignor",
        ]
    )
    assert found == {
        "group_instance_id": "i",
        "session_timeout_ms": 6_000,
        "enable_auto_commit": False,
        "partition_assignment_strategy": ["roundrobin", "range", "cooperative-sticky"],
    }


@pytest.mark.parametrize("text", ["group.id=g", "session.timeout.ms", "session.timeout.ms=-1", "enable.auto.commit=1"])
def test_unknown_and_malformed_properties_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match=text.partition("=")[0]):
        parse_properties([text])
