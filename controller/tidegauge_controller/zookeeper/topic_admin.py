"""Topics as the admin changes them: znodes are written, then the controller's work on them is awaited.

As in Kafka this is no event of the controller: settings, topic and deletion marker are written without a check of the
controller epoch, and whichever controller sees them finishes the work. The response comes when this broker's own
metadata shows the result, or it is REQUEST_TIMED_OUT, though the change may still happen. Added partitions are written
expecting the version that was read, where Kafka writes unconditionally: of two concurrent requests the second sees the
first. A request over more topics than can be written within its timeout (at least ``LEAST_WRITING_MS``) is responded to
then: topics without a turn have REQUEST_TIMED_OUT, and nothing is written for them. Kafka writes everything, however
    long that takes, and waits after that. A write that has begun completes even if the client's connection ends
    meanwhile.
Source: ZkAdminManager, AdminZkClient, DelayedCreatePartitions.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Protocol

from tidegauge.cluster_metadata import new_uuid
from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.partition import TopicPartition, topic_name_problem
from tidegauge.settings import Values
from tidegauge.znodes import (
    BROKER_TOPICS,
    DELETE_TOPICS,
    MalformedZnode,
    TopicNode,
    delete_topic_path,
    encode_config,
    topic_config_path,
    topic_path,
)
from tidegauge_controller.admin import NOT_CONTROLLER, Mutate, NewPartitions, NewTopic, TopicOutcome, unlimited
from tidegauge_controller.rules.topics import (
    already_exists,
    check_new_topic,
    plan_assignment,
    plan_new_partitions,
)
from tidegauge_controller.zookeeper.client import (
    BadVersion,
    Closed,
    NodeExists,
    NoNode,
    SessionExpired,
    ZooKeeper,
    ZooKeeperError,
)
from tidegauge_controller.zookeeper.decisions.context import ControllerContext
from tidegauge_controller.zookeeper.stop_at import StopAt

LOG = logging.getLogger(__name__)
TIMED_OUT = "The request timed out."
LEAST_WRITING_MS = 10_000
"""Minimum time in which a request's topics are written, so that a short timeout ends only the wait, as in Kafka."""
Change = Callable[[], Awaitable[str]]
"""Changes one topic; returns its id if it is a new one, else nothing."""


class MetadataView(Protocol):
    """The broker's metadata cache, fed by UpdateMetadata."""

    def leader_of(self, tp: TopicPartition, /) -> int | None:
        """Return the leader's broker id, or None for unknown partitions too."""
        ...

    def knows_topic(self, topic: str, /) -> bool:
        """Return whether the cache has the topic."""
        ...

    async def wait_changed(self, timeout_ms: int, /) -> None:
        """Return at the next change, or when the timeout has passed."""
        ...


def _refused(topic: str, problem: TidegaugeError | ZooKeeperError) -> TopicOutcome:
    """Return the outcome of a refused topic; the others of its request continue.

    Without its session a broker is no controller, and a client asks the next one; what it asks again may be there.
    """
    if isinstance(problem, TidegaugeError):
        return TopicOutcome(topic, problem.code, problem.message)
    LOG.warning("Topic %s could not be changed: %r", topic, problem)
    if isinstance(problem, SessionExpired | Closed):
        return TopicOutcome(topic, ErrorCode.NOT_CONTROLLER, NOT_CONTROLLER)
    return TopicOutcome(topic, ErrorCode.UNKNOWN_SERVER_ERROR, f"ZooKeeper did not take the change: {problem}")


def _node(topic: str, data: bytes) -> TopicNode:
    """Return a topic's znode, which any ZooKeeper client may have written.

    Raises:
        TidegaugeError: UNKNOWN_SERVER_ERROR, it cannot be read.
    """
    try:
        return TopicNode.decode(topic, data)
    except MalformedZnode as problem:
        raise TidegaugeError(ErrorCode.UNKNOWN_SERVER_ERROR, f"The topic's znode cannot be read: {problem}") from None


class TopicAdmin:
    """Creates, extends and deletes topics for the active controller."""

    def __init__(
        self,
        zookeeper: ZooKeeper,
        settings: Values,
        metadata: MetadataView,
        random_bytes: Callable[[int], bytes],
        stop_at: StopAt,
    ) -> None:
        self._zookeeper = zookeeper
        self._settings = settings
        self._metadata = metadata
        self._random_bytes = random_bytes
        self._stop_at = stop_at
        self._writing: set[asyncio.Task[None]] = set()

    async def create(
        self,
        context: ControllerContext,
        topics: Sequence[NewTopic],
        timeout_ms: int,
        mutate: Mutate = unlimited,
        *,
        validate_only: bool = False,
    ) -> list[TopicOutcome]:
        """Create topics, each by itself; ``validate_only``: say what would become of them, and write nothing."""
        deadline, written_until = self._deadlines(timeout_ms)
        partitions: dict[str, list[TopicPartition]] = {}

        async def create(topic: NewTopic) -> str:
            topic_id, created = await self._create(context, topic, mutate, validate_only=validate_only)
            partitions[topic.name] = created
            return topic_id

        outcomes = await self._each([(topic.name, partial(create, topic)) for topic in topics], written_until)
        return await self._until_led(outcomes, partitions, deadline)

    async def _each(self, changes: Sequence[tuple[str, Change]], until: float) -> list[TopicOutcome]:
        """Change topics one after the other, each by itself.

        Args:
            changes: by topic, in the order of the request.
            until: when no further change begins, in seconds of the event loop's clock.
        """
        outcomes: list[TopicOutcome] = []

        async def write() -> None:
            for name, change in changes:
                if self._is_over(until):
                    outcomes.append(TopicOutcome(name, ErrorCode.REQUEST_TIMED_OUT, TIMED_OUT))
                    continue
                try:
                    outcomes.append(TopicOutcome(name, topic_id=await change()))
                except (TidegaugeError, ZooKeeperError) as refusal:
                    outcomes.append(_refused(name, refusal))

        await self._to_its_end(write())
        return outcomes

    async def _to_its_end(self, work: Coroutine[Any, Any, None]) -> None:
        """Write what a request asks for, also where its connection ends: in Kafka a request that has begun is handled.

        Else settings would be left without their topic, and the rest of the request undone.
        """
        task = asyncio.get_running_loop().create_task(work, name="topic-admin")
        self._writing.add(task)
        task.add_done_callback(self._writing.discard)
        await asyncio.shield(task)

    async def _until_led(
        self, outcomes: Sequence[TopicOutcome], partitions: Mapping[str, Sequence[TopicPartition]], deadline: float
    ) -> list[TopicOutcome]:
        """Wait until these partitions have leaders in the metadata; a topic that lacks one has timed out."""

        def leaderless(topic: str) -> bool:
            return any(self._metadata.leader_of(at) is None for at in partitions.get(topic, ()))

        await self._until(lambda: not any(leaderless(topic) for topic in partitions), deadline)
        return [
            self._late(outcome) if outcome.error is ErrorCode.NONE and leaderless(outcome.name) else outcome
            for outcome in outcomes
        ]

    @staticmethod
    def _late(outcome: TopicOutcome) -> TopicOutcome:
        return TopicOutcome(outcome.name, ErrorCode.REQUEST_TIMED_OUT, TIMED_OUT, outcome.topic_id)

    async def _create(
        self, context: ControllerContext, topic: NewTopic, mutate: Mutate, *, validate_only: bool
    ) -> tuple[str, list[TopicPartition]]:
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
        if validate_only:
            return "", []
        mutate(len(assignment))
        await self._write_config(topic)
        self._stop_at("CreateTopics/create config")
        topic_id = new_uuid(self._random_bytes(16))
        try:
            await self._zookeeper.create(topic_path(topic.name), TopicNode(assignment, topic_id).encode())
        except NodeExists:
            # Another creation was faster, or this very one had succeeded before its response was lost.
            data, _ = await self._zookeeper.get(topic_path(topic.name))
            if _node(topic.name, data).topic_id != topic_id:
                raise already_exists(topic.name) from None
        self._stop_at("CreateTopics/create topic")
        return topic_id, [TopicPartition(topic.name, partition) for partition in sorted(assignment)]

    async def _write_config(self, topic: NewTopic) -> None:
        data = encode_config(topic.configs)
        path = topic_config_path(topic.name)
        try:
            await self._zookeeper.set(path, data)
        except NoNode:
            try:
                await self._zookeeper.create(path, data)
            except NodeExists:  # another creation, or this one before its response was lost
                await self._zookeeper.set(path, data)

    async def add_partitions(
        self,
        context: ControllerContext,
        topics: Sequence[NewPartitions],
        timeout_ms: int,
        mutate: Mutate = unlimited,
        *,
        validate_only: bool = False,
    ) -> list[TopicOutcome]:
        """Add partitions to topics, each by itself; ``validate_only``: write nothing."""
        deadline, written_until = self._deadlines(timeout_ms)
        partitions: dict[str, list[TopicPartition]] = {}

        async def add(topic: NewPartitions) -> str:
            partitions[topic.name] = await self._add_partitions(context, topic, mutate, validate_only=validate_only)
            return ""

        outcomes = await self._each([(topic.name, partial(add, topic)) for topic in topics], written_until)
        return await self._until_led(outcomes, partitions, deadline)

    async def _add_partitions(
        self, context: ControllerContext, topic: NewPartitions, mutate: Mutate, *, validate_only: bool
    ) -> list[TopicPartition]:
        unknown = TidegaugeError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{topic.name}' does not exist.")
        if topic_name_problem(topic.name) is not None:
            raise unknown  # its path would be none, or another znode's
        if topic.name in await self._zookeeper.children(DELETE_TOPICS):
            raise TidegaugeError(ErrorCode.INVALID_TOPIC_EXCEPTION, "The topic is queued for deletion.")
        grown: TopicNode | None = None
        added: dict[int, tuple[int, ...]] = {}
        while True:
            try:
                data, stat = await self._zookeeper.get(topic_path(topic.name))
            except NoNode:
                raise unknown from None
            node = _node(topic.name, data)
            if grown is not None and node.encode() == grown.encode():
                break  # written, though the response was lost with the connection
            added = plan_new_partitions(topic, node, context.endpoints())
            if validate_only:
                return []
            if grown is None:
                mutate(len(added))
            grown = TopicNode({**node.assignment, **added}, node.topic_id, node.adding_replicas, node.removing_replicas)
            try:
                await self._zookeeper.set(topic_path(topic.name), grown.encode(), stat.version)
            except BadVersion:
                continue
            break
        self._stop_at("CreatePartitions/set topic")
        return [TopicPartition(topic.name, partition) for partition in sorted(added)]

    async def delete(
        self, names: Sequence[str], timeout_ms: int, mutate: Callable[[str], None] = unlimited
    ) -> list[TopicOutcome]:
        """Mark topics for deletion and wait until the metadata no longer shows them."""
        deadline, written_until = self._deadlines(timeout_ms)

        async def mark(name: str) -> str:
            await self._mark(name, mutate)
            return ""

        outcomes = await self._each([(name, partial(mark, name)) for name in names], written_until)
        marked = [outcome.name for outcome in outcomes if outcome.error is ErrorCode.NONE]
        await self._until(lambda: not any(self._metadata.knows_topic(name) for name in marked), deadline)
        return [
            self._late(outcome)
            if outcome.error is ErrorCode.NONE and self._metadata.knows_topic(outcome.name)
            else outcome
            for outcome in outcomes
        ]

    async def _mark(self, name: str, mutate: Callable[[str], None]) -> None:
        if not self._settings.flag("delete.topic.enable"):
            raise TidegaugeError(ErrorCode.TOPIC_DELETION_DISABLED, "Topic deletion is disabled.")
        if not self._metadata.knows_topic(name):
            raise TidegaugeError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "This server does not host this topic-partition."
            )
        mutate(name)
        if await self._zookeeper.exists(topic_path(name)) is None:
            raise TidegaugeError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Topic `{name}` to delete does not exist")
        # Marked already: the deletion is awaited all the same, as in Kafka.
        with contextlib.suppress(NodeExists):
            await self._zookeeper.create(delete_topic_path(name), None)
        self._stop_at("DeleteTopics/create marker")

    async def wait_for_leaders(self, leaders: Mapping[TopicPartition, int], timeout_ms: int) -> list[TopicPartition]:
        """Wait until the metadata shows these leaders; return the partitions that do not have them."""

        def missing() -> Iterable[TopicPartition]:
            return (at for at, leader in leaders.items() if self._metadata.leader_of(at) != leader)

        await self._until(lambda: not any(True for _ in missing()), self._deadlines(timeout_ms)[0])
        return list(missing())

    @staticmethod
    def _deadlines(timeout_ms: int) -> tuple[float, float]:
        """Return the event loop's deadlines of the wait and the writing."""
        now = asyncio.get_running_loop().time()
        return now + timeout_ms / 1000, now + max(timeout_ms, LEAST_WRITING_MS) / 1000

    @staticmethod
    def _is_over(deadline: float) -> bool:
        return asyncio.get_running_loop().time() >= deadline

    async def _until(self, condition: Callable[[], bool], deadline: float) -> None:
        loop = asyncio.get_running_loop()
        while not condition():
            remaining_ms = int((deadline - loop.time()) * 1000)
            if remaining_ms <= 0:
                return
            await self._metadata.wait_changed(remaining_ms)
