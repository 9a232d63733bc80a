"""Topics as the admin creates and deletes them: znodes written, then a wait for what the controller makes of them.

As in Kafka this is no event of the controller: settings, topic and deletion marker are written without a check of the
controller epoch, and whichever controller sees them finishes the work. The answer comes when this broker's own
metadata shows the result, or REQUEST_TIMED_OUT, though it may still happen.
Source: ZkAdminManager, AdminZkClient, DelayedCreatePartitions (kafka-behaviour 8.13, 8.16).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Protocol

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.partition import TopicPartition
from tidegauge.settings import Values
from tidegauge.znodes import (
    BROKER_TOPICS,
    DELETE_TOPICS,
    TopicNode,
    delete_topic_path,
    encode_config,
    new_uuid,
    topic_config_path,
    topic_path,
)
from tidegauge_controller.admin import NewTopic, TopicOutcome
from tidegauge_controller.decisions.context import ControllerContext
from tidegauge_controller.decisions.topics import already_exists, check_new_topic, plan_assignment
from tidegauge_controller.zookeeper import NodeExists, NoNode, ZooKeeper

TIMED_OUT = "The request timed out."


class MetadataView(Protocol):
    """What the broker's metadata cache shows, fed by UpdateMetadata."""

    def leader_of(self, tp: TopicPartition, /) -> int | None:
        """The leader's broker id; None while there is none or the partition is unknown."""
        ...

    def knows_topic(self, topic: str, /) -> bool:
        """Whether the cache has the topic."""
        ...

    async def wait_changed(self, timeout_ms: int, /) -> None:
        """Return at the next change, or when the time is over."""
        ...


class TopicAdmin:
    """Creates and deletes topics for the active controller."""

    def __init__(
        self, zookeeper: ZooKeeper, settings: Values, metadata: MetadataView, random_bytes: Callable[[int], bytes]
    ) -> None:
        self._zookeeper = zookeeper
        self._settings = settings
        self._metadata = metadata
        self._random_bytes = random_bytes

    async def create(
        self, context: ControllerContext, topics: Sequence[NewTopic], timeout_ms: int
    ) -> list[TopicOutcome]:
        """Create topics, each for itself."""
        outcomes: list[TopicOutcome] = []
        partitions: dict[str, list[TopicPartition]] = {}
        for topic in topics:
            try:
                topic_id, partitions[topic.name] = await self._create(context, topic)
            except TidegaugeError as refusal:
                outcomes.append(TopicOutcome(topic.name, refusal.code, refusal.message))
            else:
                outcomes.append(TopicOutcome(topic.name, topic_id=topic_id))
        everything = [at for created in partitions.values() for at in created]
        await self._until(lambda: all(self._metadata.leader_of(at) is not None for at in everything), timeout_ms)
        return [
            self._late(outcome)
            if outcome.error is ErrorCode.NONE
            and any(self._metadata.leader_of(at) is None for at in partitions[outcome.name])
            else outcome
            for outcome in outcomes
        ]

    @staticmethod
    def _late(outcome: TopicOutcome) -> TopicOutcome:
        return TopicOutcome(outcome.name, ErrorCode.REQUEST_TIMED_OUT, TIMED_OUT, outcome.topic_id)

    async def _create(self, context: ControllerContext, topic: NewTopic) -> tuple[str, list[TopicPartition]]:
        if self._metadata.knows_topic(topic.name):
            raise already_exists(topic.name)
        brokers = context.endpoints()
        start, shift = (int.from_bytes(self._random_bytes(4), "big") for _ in range(2))
        assignment = plan_assignment(topic, brokers, self._settings, start=start, shift=shift)
        check_new_topic(
            topic,
            assignment,
            existing=await self._zookeeper.children(BROKER_TOPICS),
            marked_for_deletion=await self._zookeeper.children(DELETE_TOPICS),
        )
        await self._write_config(topic)
        topic_id = new_uuid(self._random_bytes(16))
        try:
            await self._zookeeper.create(topic_path(topic.name), TopicNode(assignment, topic_id).encode())
        except NodeExists:
            # Another creation was quicker, or this very one had succeeded before its answer was lost.
            data, _ = await self._zookeeper.get(topic_path(topic.name))
            if TopicNode.decode(topic.name, data).topic_id != topic_id:
                raise already_exists(topic.name) from None
        return topic_id, [TopicPartition(topic.name, partition) for partition in sorted(assignment)]

    async def _write_config(self, topic: NewTopic) -> None:
        data = encode_config(topic.configs)
        path = topic_config_path(topic.name)
        try:
            await self._zookeeper.set(path, data)
        except NoNode:
            await self._zookeeper.create(path, data)

    async def delete(self, names: Sequence[str], timeout_ms: int) -> list[TopicOutcome]:
        """Mark topics for deletion and wait until they are gone from the metadata."""
        outcomes: list[TopicOutcome] = []
        for name in names:
            try:
                await self._mark(name)
            except TidegaugeError as refusal:
                outcomes.append(TopicOutcome(name, refusal.code, refusal.message))
            else:
                outcomes.append(TopicOutcome(name))
        marked = [outcome.name for outcome in outcomes if outcome.error is ErrorCode.NONE]
        await self._until(lambda: not any(self._metadata.knows_topic(name) for name in marked), timeout_ms)
        return [
            self._late(outcome)
            if outcome.error is ErrorCode.NONE and self._metadata.knows_topic(outcome.name)
            else outcome
            for outcome in outcomes
        ]

    async def _mark(self, name: str) -> None:
        if not self._settings.flag("delete.topic.enable"):
            raise TidegaugeError(ErrorCode.TOPIC_DELETION_DISABLED, "Topic deletion is disabled.")
        if await self._zookeeper.exists(topic_path(name)) is None:
            raise TidegaugeError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "This server does not host this topic-partition."
            )
        try:
            await self._zookeeper.create(delete_topic_path(name), None)
        except NodeExists:
            raise TidegaugeError(
                ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic {name} is already marked for deletion"
            ) from None

    async def wait_for_leaders(self, leaders: Mapping[TopicPartition, int], timeout_ms: int) -> list[TopicPartition]:
        """Wait until the metadata shows these leaders; answers the partitions that do not."""

        def missing() -> Iterable[TopicPartition]:
            return (at for at, leader in leaders.items() if self._metadata.leader_of(at) != leader)

        await self._until(lambda: not any(True for _ in missing()), timeout_ms)
        return list(missing())

    async def _until(self, condition: Callable[[], bool], timeout_ms: int) -> None:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_ms / 1000
        while not condition():
            remaining_ms = int((deadline - loop.time()) * 1000)
            if remaining_ms <= 0:
                return
            await self._metadata.wait_changed(remaining_ms)
