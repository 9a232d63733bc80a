"""Topics as the admin changes them: the order of writes, the refusals, the effect of lost responses."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from memory_zookeeper import MemoryZooKeeper, Term

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.partition import TopicPartition
from tidegauge.settings import parse_broker_settings
from tidegauge.znodes import (
    CONFIG,
    DELETE_TOPICS,
    TopicNode,
    decode_config,
    delete_topic_path,
    topic_config_path,
    topic_path,
)
from tidegauge_controller.admin import NewPartitions, NewTopic, TopicOutcome
from tidegauge_controller.zookeeper import topic_admin
from tidegauge_controller.zookeeper.client import BadVersion, NodeExists, NoNode, SessionExpired, ZooKeeperError
from tidegauge_controller.zookeeper.decisions.steps import ZnodeStat
from tidegauge_controller.zookeeper.decisions.topic_events import process_topic_change
from tidegauge_controller.zookeeper.stop_at import STEPS
from tidegauge_controller.zookeeper.topic_admin import TopicAdmin

NONE = ErrorCode.NONE


class Session:
    """ZooKeeper as the admin handler sees it. A response may be lost: the request is then sent once more."""

    def __init__(self, zookeeper: MemoryZooKeeper) -> None:
        self.zookeeper = zookeeper
        self.lost_responses = 0

    def _node(self, path: str) -> Any:
        if path not in self.zookeeper.nodes:
            raise NoNode(path)
        return self.zookeeper.nodes[path]

    async def get(self, path: str) -> tuple[bytes, ZnodeStat]:
        node = self._node(path)
        return node.data or b"", ZnodeStat(node.czxid, node.mzxid, node.version, 0)

    async def exists(self, path: str) -> ZnodeStat | None:
        return (await self.get(path))[1] if path in self.zookeeper.nodes else None

    async def children(self, path: str) -> list[str]:
        return self.zookeeper.children(path) or []

    async def create(self, path: str, data: bytes | None) -> str:
        if path in self.zookeeper.nodes:
            raise NodeExists(path)
        self.zookeeper.create(path, data)
        return await self._maybe_again(self.create, path, data) or path

    async def set(self, path: str, data: bytes, version: int = -1) -> None:
        if version not in {-1, self._node(path).version}:
            raise BadVersion(path)
        self.zookeeper.set(path, data)
        await self._maybe_again(self.set, path, data, version)

    async def _maybe_again(self, request: Any, *arguments: Any) -> Any:
        if self.lost_responses > 0:
            self.lost_responses -= 1
            return await request(*arguments)
        return None


class Cache:
    """The broker's metadata: what the controller has sent it."""

    def __init__(self) -> None:
        self.leaders: dict[TopicPartition, int] = {}

    def leader_of(self, tp: TopicPartition) -> int | None:
        return self.leaders.get(tp)

    def knows_topic(self, topic: str) -> bool:
        return any(at.topic == topic for at in self.leaders)

    async def wait_changed(self, timeout_ms: int) -> None:
        raise AssertionError(f"nothing changes here, not in {timeout_ms} ms either")


class Stage:
    def __init__(self, **settings: str) -> None:
        self.zookeeper = MemoryZooKeeper()
        for broker_id in (0, 1, 2):
            self.zookeeper.register_broker(broker_id)
        self.term = Term(self.zookeeper).start()
        self.session: Any = Session(self.zookeeper)
        self.cache = Cache()
        self.steps: list[str] = []
        values, _ = parse_broker_settings({name.replace("_", "."): value for name, value in settings.items()})
        self.admin = TopicAdmin(self.session, values, self.cache, lambda count: bytes(range(count)), self.steps.append)

    async def create(self, topic: NewTopic) -> TopicOutcome:
        (outcome,) = await self.admin.create(self.term.context, [topic], timeout_ms=0)
        self.settle()
        return outcome

    async def grow(self, wanted: NewPartitions) -> TopicOutcome:
        (outcome,) = await self.admin.add_partitions(self.term.context, [wanted], timeout_ms=0)
        return outcome

    async def delete(self, name: str) -> TopicOutcome:
        (outcome,) = await self.admin.delete([name], timeout_ms=0)
        return outcome

    def settle(self) -> None:
        """The controller sees the topics, and tells this broker."""
        self.term.run(process_topic_change(self.term.context))
        self.cache.leaders = {at: state.leader for at, state in self.term.context.leadership.items()}

    def topic(self, name: str) -> TopicNode:
        return TopicNode.decode(name, self.zookeeper.nodes[topic_path(name)].data)


async def test_settings_come_first_then_the_topic_and_the_time_is_over_before_it_has_leaders() -> None:
    stage = Stage(num_partitions="2", default_replication_factor="3")
    outcome = await stage.create(NewTopic("orders", configs={"retention.ms": "5"}))
    assert (outcome.error, outcome.message) == (ErrorCode.REQUEST_TIMED_OUT, "The request timed out.")
    assert tuple(stage.steps) == STEPS["creation"][:2]
    assert decode_config(stage.zookeeper.nodes[topic_config_path("orders")].data) == {"retention.ms": "5"}
    node = stage.topic("orders")
    assert (len(node.assignment), {len(replicas) for replicas in node.assignment.values()}) == (2, {3})
    assert node.topic_id == outcome.topic_id


class Refusing:
    """A session with ZooKeeper in which requests about a topic fail; what asks for a whole list does not."""

    def __init__(self, session: Any, topic: str, problem: Exception) -> None:
        self._session = session
        self._topic = topic
        self._problem = problem

    def __getattr__(self, name: str) -> Any:
        request = getattr(self._session, name)

        async def asked(path: str, *arguments: Any, **named: Any) -> Any:
            if path.endswith(f"/{self._topic}"):
                raise self._problem
            return await request(path, *arguments, **named)

        return asked


@pytest.mark.parametrize(
    ("problem", "error"),
    [
        (ZooKeeperError("MarshallingError"), ErrorCode.UNKNOWN_SERVER_ERROR),
        (SessionExpired("the session ended"), ErrorCode.NOT_CONTROLLER),
    ],
)
async def test_a_topic_that_zookeeper_does_not_take_has_an_error_of_its_own(
    problem: Exception, error: ErrorCode
) -> None:
    """The request goes on with the others, and each has a result; a broker without a session is no controller."""
    names = ("a", "bad", "c")
    stage = Stage()
    for name in names:
        await stage.create(NewTopic(name))
    existing = stage.session
    empty = Stage()
    empty.session = empty.admin._zookeeper = Refusing(empty.session, "bad", problem)
    created = await empty.admin.create(empty.term.context, [NewTopic(name) for name in names], timeout_ms=0)
    assert [one.error for one in created] == [ErrorCode.REQUEST_TIMED_OUT, error, ErrorCode.REQUEST_TIMED_OUT]
    stage.admin._zookeeper = Refusing(existing, "bad", problem)
    grown = await stage.admin.add_partitions(stage.term.context, [NewPartitions(name, 2) for name in names], 0)
    assert [one.error for one in grown] == [ErrorCode.REQUEST_TIMED_OUT, error, ErrorCode.REQUEST_TIMED_OUT]
    deleted = await stage.admin.delete(names, timeout_ms=0)
    assert [one.error for one in deleted] == [ErrorCode.REQUEST_TIMED_OUT, error, ErrorCode.REQUEST_TIMED_OUT]


@pytest.mark.parametrize("lost_responses", [0, 1])
async def test_a_creation_whose_responses_get_lost_succeeds_all_the_same(lost_responses: int) -> None:
    stage = Stage()
    stage.cache.leaders = {TopicPartition("orders", 0): 0}
    stage.cache.knows_topic = lambda _topic: False  # type: ignore[method-assign]  # notified while the request ran
    stage.session.lost_responses = lost_responses  # of the settings' creation
    assert (await stage.create(NewTopic("orders", assignment=[[0, 1]]))).error is NONE
    stage = Stage()
    stage.cache.leaders = {TopicPartition("orders", 0): 0}
    stage.cache.knows_topic = lambda _topic: False  # type: ignore[method-assign]  # the same
    stage.zookeeper.create(topic_config_path("orders"), b"left by a controller that died")
    stage.session.lost_responses = 2 * lost_responses  # of the settings, and of the topic itself
    assert (await stage.create(NewTopic("orders", assignment=[[0, 1]]))).error is NONE
    assert decode_config(stage.zookeeper.nodes[topic_config_path("orders")].data) == {}


async def test_what_exists_or_goes_is_not_created_again() -> None:
    stage = Stage()
    await stage.create(NewTopic("orders", assignment=[[0, 1]]))
    again = await stage.create(NewTopic("orders", assignment=[[0, 1]]))
    assert (again.error, again.message) == (ErrorCode.TOPIC_ALREADY_EXISTS, "Topic 'orders' already exists.")
    stage.zookeeper.create(delete_topic_path("going"), None)
    going = await stage.create(NewTopic("going", assignment=[[0, 1]]))
    assert (going.error, going.message) == (ErrorCode.TOPIC_ALREADY_EXISTS, "Topic 'going' is marked for deletion.")
    assert stage.zookeeper.children(f"{CONFIG}/topics") == ["orders"], "a refusal writes nothing"


@pytest.mark.parametrize("lost_responses", [0, 1])
async def test_partitions_are_added_once_even_if_the_response_gets_lost(lost_responses: int) -> None:
    stage = Stage()
    await stage.create(NewTopic("orders", assignment=[[0, 1]]))
    stage.session.lost_responses = lost_responses
    outcome = await stage.grow(NewPartitions("orders", 3, assignment=[[1, 2], [2, 0]]))
    assert outcome.error is ErrorCode.REQUEST_TIMED_OUT, "written; nobody has told of leaders yet"
    assert dict(stage.topic("orders").assignment) == {0: (0, 1), 1: (1, 2), 2: (2, 0)}
    assert stage.zookeeper.nodes[topic_path("orders")].version == 1


async def test_partitions_of_what_is_not_there_or_goes() -> None:
    stage = Stage()
    missing = await stage.grow(NewPartitions("orders", 3))
    assert (missing.error, missing.message) == (
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        "The topic 'orders' does not exist.",
    )
    await stage.create(NewTopic("orders", assignment=[[0, 1]]))
    stage.zookeeper.create(delete_topic_path("orders"), None)
    going = await stage.grow(NewPartitions("orders", 3))
    assert (going.error, going.message) == (ErrorCode.INVALID_TOPIC_EXCEPTION, "The topic is queued for deletion.")


@pytest.mark.parametrize("name", ["..", "orders/partitions", "../../controller", "", "a\0b"])
async def test_what_is_no_name_of_a_topic_never_becomes_a_path(name: str) -> None:
    """ZooKeeper's client rejects some of these; others would be other znodes."""
    stage = Stage()
    await stage.create(NewTopic("orders", assignment=[[0, 1]]))
    refused = await stage.grow(NewPartitions(name, 3))
    assert (refused.error, refused.message) == (
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        f"The topic '{name}' does not exist.",
    )


async def test_a_deletion_is_a_marker_made_once() -> None:
    stage = Stage()
    unknown = await stage.delete("orders")
    assert unknown.error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    await stage.create(NewTopic("orders", assignment=[[0, 1]]))
    for _ in range(2):
        assert (await stage.delete("orders")).error is ErrorCode.REQUEST_TIMED_OUT
    assert stage.zookeeper.children(DELETE_TOPICS) == ["orders"]
    disabled = Stage(delete_topic_enable="false")
    await disabled.create(NewTopic("orders", assignment=[[0, 1]]))
    refused = await disabled.delete("orders")
    assert (refused.error, refused.message) == (ErrorCode.TOPIC_DELETION_DISABLED, "Topic deletion is disabled.")
    assert disabled.zookeeper.children(DELETE_TOPICS) == []


async def test_topics_that_there_is_no_time_to_write_have_timed_out_and_leave_no_trace(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A request over very many topics has its response in time, in place of minutes later."""
    stage = Stage()
    await stage.create(NewTopic("old", partition_count=1, replication_factor=1))
    monkeypatch.setattr(topic_admin, "LEAST_WRITING_MS", -1)
    before = dict(stage.zookeeper.nodes)
    names = ["a", "b"]
    created = await stage.admin.create(stage.term.context, [NewTopic(name) for name in names], timeout_ms=-1)
    grown = await stage.admin.add_partitions(stage.term.context, [NewPartitions("old", 2)], timeout_ms=-1)
    deleted = await stage.admin.delete(["old"], timeout_ms=-1)
    assert [outcome.name for outcome in created] == names
    assert {outcome.error for outcome in [*created, *grown, *deleted]} == {ErrorCode.REQUEST_TIMED_OUT}
    assert stage.zookeeper.nodes == before


async def test_a_short_timeout_ends_the_wait_and_not_the_writing() -> None:
    """ZkAdminManager writes every topic before it looks at the timeout."""
    stage = Stage()
    created = await stage.admin.create(
        stage.term.context, [NewTopic(name, partition_count=1, replication_factor=1) for name in "ab"], timeout_ms=0
    )
    assert [(outcome.name, outcome.error) for outcome in created] == [
        (name, ErrorCode.REQUEST_TIMED_OUT) for name in "ab"
    ]
    assert {topic_path(name) for name in "ab"} <= set(stage.zookeeper.nodes)


class Mutations:
    """A quota that takes some mutations and refuses the rest (KIP-599)."""

    def __init__(self, takes: int) -> None:
        self.taken: list[Any] = []
        self._takes = takes

    def __call__(self, what: Any) -> None:
        if len(self.taken) >= self._takes:
            raise TidegaugeError(ErrorCode.THROTTLING_QUOTA_EXCEEDED, "The throttling quota has been exceeded.")
        self.taken.append(what)


async def test_an_exhausted_quota_refuses_topics_one_by_one_and_nothing_is_written_for_them() -> None:
    """ZkAdminManager.createTopics: the quota is asked after all checks, right before the topic is written."""
    stage, quota = Stage(), Mutations(1)
    wanted = [NewTopic("a", 2, 1), NewTopic("replicated", 3, 9), NewTopic("b", 3, 1), NewTopic("empty", 0, 1)]
    outcomes = await stage.admin.create(stage.term.context, wanted, 0, quota)
    assert [outcome.error for outcome in outcomes] == [
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.INVALID_REPLICATION_FACTOR,
        ErrorCode.THROTTLING_QUOTA_EXCEEDED,
        ErrorCode.INVALID_PARTITIONS,
    ]
    assert outcomes[2].message == "The throttling quota has been exceeded."
    assert quota.taken == [2], "the partitions of the topic; what is refused for another reason takes nothing"
    assert stage.zookeeper.children(f"{CONFIG}/topics") == ["a"]


async def test_added_partitions_and_deletions_are_mutations_and_checks_are_none() -> None:
    """Added partitions count, once also where the write is repeated; of a deletion the topic says how many."""
    stage, quota = Stage(), Mutations(2)
    await stage.create(NewTopic("orders", assignment=[[0, 1]]))
    context, wanted = stage.term.context, [NewPartitions("orders", 3, assignment=[[1, 2], [2, 0]])]
    await stage.admin.create(context, [NewTopic("checked", 2, 1)], 0, quota, validate_only=True)
    await stage.admin.add_partitions(context, wanted, 0, quota, validate_only=True)
    assert quota.taken == []
    stage.session.lost_responses = 1
    await stage.admin.add_partitions(context, wanted, 0, quota)
    await stage.admin.delete(["orders", "unknown"], 0, quota)
    assert quota.taken == [2, "orders"]
    assert stage.zookeeper.children(DELETE_TOPICS) == ["orders"]
    [grown] = await stage.admin.add_partitions(context, [NewPartitions("orders", 9)], 0, quota)
    assert grown.error is ErrorCode.INVALID_TOPIC_EXCEPTION


async def test_a_refused_deletion_or_growth_leaves_the_topic_as_it_is() -> None:
    stage, quota = Stage(), Mutations(0)
    await stage.create(NewTopic("orders", assignment=[[0, 1]]))
    [deleted] = await stage.admin.delete(["orders"], 0, quota)
    [grown] = await stage.admin.add_partitions(stage.term.context, [NewPartitions("orders", 2, [[0, 1]])], 0, quota)
    assert deleted.error is grown.error is ErrorCode.THROTTLING_QUOTA_EXCEEDED
    assert len(stage.topic("orders").assignment) == 1
    assert not stage.zookeeper.children(DELETE_TOPICS)


class Slow:
    """A session that responds when the test says so."""

    def __init__(self, session: Any) -> None:
        self.session = session
        self.responds = asyncio.Event()

    def __getattr__(self, name: str) -> Any:
        request = getattr(self.session, name)

        async def asked(*arguments: Any, **named: Any) -> Any:
            await self.responds.wait()
            return await request(*arguments, **named)

        return asked


NEW = [NewTopic("a", 1, 1, configs={"retention.ms": "5"}), NewTopic("b", 1, 1)]


@pytest.mark.parametrize(
    ("begin", "is_done"),
    [
        (lambda stage: stage.admin.create(stage.term.context, NEW, 0), lambda stage: bool(stage.topic("b"))),
        (
            lambda stage: stage.admin.add_partitions(
                stage.term.context, [NewPartitions("old", 2), NewPartitions("older", 2)], 0
            ),
            lambda stage: len(stage.topic("older").assignment) == 2,
        ),
        (
            lambda stage: stage.admin.delete(["old", "older"], 0),
            lambda stage: stage.zookeeper.children(DELETE_TOPICS) == ["old", "older"],
        ),
    ],
)
async def test_what_has_begun_is_written_also_where_the_connection_ends(
    begin: Callable[[Stage], Coroutine[Any, Any, Any]], is_done: Callable[[Stage], bool]
) -> None:
    """Else settings are left without their topic, and the rest of the request undone: Kafka handles all of it."""
    stage = Stage()
    for name in ("old", "older"):
        await stage.create(NewTopic(name, 1, 1))
    slow: Any = Slow(stage.session)
    stage.admin._zookeeper = slow
    asking = asyncio.ensure_future(begin(stage))
    for _ in range(5):
        await asyncio.sleep(0)
    asking.cancel()
    await asyncio.wait({asking})
    assert asking.cancelled()
    slow.responds.set()
    for _ in range(50):
        await asyncio.sleep(0)
    assert is_done(stage)
