"""Internal topics are created on first use with settings of their own (AutoTopicCreationManager)."""

from __future__ import annotations

import asyncio

from tidegauge.errors import ErrorCode
from tidegauge.groups import OFFSETS_TOPIC
from tidegauge.settings import parse_broker_settings
from tidegauge_broker.server.metadata import auto_topics
from tidegauge_broker.server.metadata.auto_topics import AutoTopics, offsets_topic, share_state_topic, user_topic
from tidegauge_controller.admin import NewTopic


def test_the_topic_of_offsets_is_compacted_and_replicated_exactly_as_set() -> None:
    """GroupCoordinator.offsetsTopicConfigs; the replication factor does not fall back to fewer brokers."""
    values, _ = parse_broker_settings(
        {
            "broker.id": "0",
            "zookeeper.connect": "z:1",
            "offsets.topic.num.partitions": "7",
            "offsets.topic.replication.factor": "2",
            "offsets.topic.segment.bytes": "1048576",
            "default.replication.factor": "5",
        }
    )
    topic = offsets_topic(values)
    assert (topic.name, topic.partition_count, topic.replication_factor) == ("__consumer_offsets", 7, 2)
    assert dict(topic.configs) == {
        "cleanup.policy": "compact",
        "segment.bytes": "1048576",
        "compression.type": "producer",
    }


def test_a_topic_of_a_user_has_what_this_broker_sets_or_the_controllers_defaults() -> None:
    """DefaultAutoTopicCreationManager of 4.3: ``KafkaConfig.originals`` of the broker come before the controller's."""
    own = {"broker.id": "0", "zookeeper.connect": "z:1"}
    for given, expected in (
        ({}, (None, None)),
        ({"num.partitions": "5"}, (5, None)),
        ({"num.partitions": "1", "default.replication.factor": "2"}, (1, 2)),
    ):
        values, _ = parse_broker_settings({**own, **given})
        topic = user_topic("t", values)
        assert (topic.name, topic.partition_count, topic.replication_factor) == ("t", *expected)
        assert not topic.configs


def test_the_states_of_share_groups_are_kept_and_not_compacted() -> None:
    """ShareCoordinatorService.shareGroupStateTopicConfigs: the coordinator itself deletes needless records."""
    values, _ = parse_broker_settings(
        {"broker.id": "0", "zookeeper.connect": "z:1", "share.coordinator.state.topic.num.partitions": "7"}
    )
    topic = share_state_topic(values)
    assert (topic.name, topic.partition_count, topic.replication_factor) == ("__share_group_state", 7, 3)
    assert topic.configs == {
        "cleanup.policy": "delete",
        "compression.type": "producer",
        "min.insync.replicas": "2",
        "retention.ms": "-1",
        "segment.bytes": "104857600",
    }


def test_the_defaults_are_kafkas() -> None:
    """Fifty partitions of three replicas."""
    values, _ = parse_broker_settings({"broker.id": "0", "zookeeper.connect": "z:1"})
    topic = offsets_topic(values)
    assert (topic.partition_count, topic.replication_factor) == (50, 3)
    assert topic.configs["segment.bytes"] == "104857600"


class SlowController:
    """Refuses every topic, when the test lets it."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.responds = asyncio.Event()

    async def ask(self, topic: NewTopic) -> tuple[ErrorCode, str]:
        self.asked.append(topic.name)
        await self.responds.wait()
        return ErrorCode.INVALID_REPLICATION_FACTOR, "too few brokers"


async def turns() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


def names_of(count: int) -> list[str]:
    return [f"t{number}" for number in range(count)]


async def test_however_many_topics_a_client_names_the_controller_gets_a_few_requests_at_a_time() -> None:
    """A Metadata request may name a hundred thousand; an internal topic, which all groups wait for, does not wait."""
    controller = SlowController()
    values, _ = parse_broker_settings({})
    topics = AutoTopics(controller.ask, values)
    wanted = names_of(2 * auto_topics.MAX_WAITING)
    for name in (*wanted, OFFSETS_TOPIC):
        topics.create(name)
    await turns()
    assert controller.asked == [*wanted[: auto_topics.MAX_IN_FLIGHT], OFFSETS_TOPIC]
    assert len(topics._waiting) == auto_topics.MAX_WAITING
    controller.responds.set()
    while topics._in_flight:
        await turns()
    assert controller.asked[-1] == wanted[auto_topics.MAX_IN_FLIGHT + auto_topics.MAX_WAITING - 1], "each had its turn"
    assert len(topics._refusals) <= auto_topics._MAX_REFUSALS


async def test_a_broker_that_stops_creates_none_of_those_that_wait() -> None:
    controller = SlowController()
    values, _ = parse_broker_settings({})
    topics = AutoTopics(controller.ask, values)
    for name in names_of(50):
        topics.create(name)
    await turns()
    await topics.close()
    assert len(controller.asked) == auto_topics.MAX_IN_FLIGHT
    assert not topics._in_flight
