"""The shells around share groups: the share coordinator's, the group coordinator's states, and the requests between."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from tests.unit.server.test_group_runner import NOW_MS, Log, Replicas, halted, turns

from tidegauge.control import Endpoint
from tidegauge.errors import ErrorCode
from tidegauge.partition import TopicPartition
from tidegauge.settings import parse_broker_settings
from tidegauge.share_groups import (
    SHARE_STATE_TOPIC,
    AlterShareOffsets,
    AlterShareOffsetsResult,
    InitializeShareState,
    ListSharePartitions,
    ListSharePartitionsResult,
    ReadShareState,
    ReadShareSummary,
    SharePartitionKey,
    ShareStateResult,
    StateBatch,
    WriteShareState,
)
from tidegauge_broker.coordinator.consumer_group.topics import TopicDescription
from tidegauge_broker.coordinator.effects import PruneLog
from tidegauge_broker.replica.messages import DeleteRecordsResult
from tidegauge_broker.server.coordinators.group_runner import GroupRunner
from tidegauge_broker.server.coordinators.share_runner import ShareRunner
from tidegauge_broker.server.event_log_writer import EventLogWriter
from tidegauge_broker.server.service.caller import Caller
from tidegauge_broker.server.service.share_group_service import (
    Latest,
    ShareGroupService,
    ShareOffset,
    ShareOffsets,
    TopicShareOffsets,
    is_key,
    key_of,
)

TOPIC = bytes(15) + b"t"
KEY = SharePartitionKey("g", TOPIC, 0)
AT = TopicPartition(SHARE_STATE_TOPIC, 0)
T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
CALLER = Caller("c", "PLAINTEXT")


class ShareReplicas(Replicas):
    """The replicas of a partition of __share_group_state, which note the pruned offsets."""

    def __init__(self) -> None:
        super().__init__()
        self.log = Log()
        self.logs = {AT: self.log}
        self.deleted: list[Any] = []
        self.error = ErrorCode.NONE

    def is_committed(self, at: TopicPartition, end: int) -> bool:
        return at == AT and end >= 0

    def leads(self, at: TopicPartition) -> bool:
        return at.partition == 0

    async def delete_records(self, wanted: Sequence[Any], timeout_ms: int) -> list[DeleteRecordsResult]:
        assert timeout_ms > 0
        self.deleted += wanted
        return [DeleteRecordsResult(AT, self.error, "why")]


def settings(**more: str) -> Any:
    values, _ = parse_broker_settings(
        {
            "broker.id": "0",
            "zookeeper.connect": "z:1",
            "offsets.topic.num.partitions": "1",
            "share.coordinator.state.topic.num.partitions": "1",
            "tidegauge.zookeeper.group.protocols": "classic,share",
            **more,
        }
    )
    return values


def event_log() -> EventLogWriter:
    return EventLogWriter(None, "broker-0", lambda: NOW_MS, asyncio.get_running_loop().call_later)


@pytest.fixture
async def world() -> Any:
    replicas: Any = ShareReplicas()
    runner = ShareRunner(settings(), replicas, event_log(), lambda: NOW_MS, halted)
    runner.topics_sent({"t": TopicDescription("t", TOPIC, ((), ()))})
    yield runner, replicas
    await runner.close()


async def elected(runner: Any, at: TopicPartition = AT) -> None:
    runner.leadership_changed(at, leads=True, leader_epoch=3)
    await turns()


async def test_a_state_is_written_read_and_loaded_again(world: tuple[ShareRunner, ShareReplicas]) -> None:
    """A write's response waits for its commit; another election reads the log to its end (CoordinatorRuntime)."""
    runner, replicas = world
    assert (await runner.request(ReadShareState(KEY))).error is ErrorCode.NOT_COORDINATOR
    await elected(runner)
    begun = runner.request(InitializeShareState(KEY, 2))
    assert not begun.done()
    request = replicas.commit()
    assert (request.acks, request.from_coordinator, request.partitions[0].topic_partition) == (-1, True, AT)
    assert (await begun).error is ErrorCode.NONE
    written = runner.request(WriteShareState(KEY, 2, 0, 4, 1, (StateBatch(4, 4, 2, 1),)))
    replicas.commit()
    assert (await written).error is ErrorCode.NONE
    runner.leadership_changed(AT, leads=False, leader_epoch=4)
    await turns()
    assert (await runner.request(ReadShareSummary(KEY))).error is ErrorCode.NOT_COORDINATOR
    await elected(runner)
    read = await runner.request(ReadShareState(KEY))
    assert (read.state_epoch, read.start_offset, read.batches) == (2, 4, (StateBatch(4, 4, 2, 1),))


async def test_needless_records_are_deleted_and_a_failure_is_only_logged(
    world: tuple[ShareRunner, ShareReplicas], caplog: pytest.LogCaptureFixture
) -> None:
    """ShareCoordinatorService.performRecordPruning."""
    runner, replicas = world
    runner._carry_out([PruneLog(0, 7)])
    await turns()
    assert [(one.topic_partition, one.before_offset) for one in replicas.deleted] == [(AT, 7)]
    replicas.error = ErrorCode.NOT_LEADER_OR_FOLLOWER
    runner._carry_out([PruneLog(0, 9)])
    await turns()
    assert "was not pruned till offset 9: why" in caplog.text


async def test_after_a_shutdown_requests_are_refused(world: tuple[ShareRunner, ShareReplicas]) -> None:
    runner, _ = world
    await elected(runner)
    runner.shut_down()
    assert (await runner.request(ReadShareState(KEY))).error is ErrorCode.COORDINATOR_NOT_AVAILABLE


class States:
    """A persister that notes requests and responds with one result."""

    def __init__(self, result: ShareStateResult | None = None) -> None:
        self.result = result or ShareStateResult()
        self.asked: list[Any] = []

    async def initialize_state(self, request: Any) -> ShareStateResult:
        self.asked.append(request)
        return self.result

    read_summary = delete_state = initialize_state


async def test_the_group_coordinator_begins_states_through_the_persister() -> None:
    """GroupCoordinatorService.persisterInitialize: the state epoch is the group's, the start offset as asked for."""
    replicas: Any = Replicas()
    runner = GroupRunner(settings(), replicas, event_log(), lambda: NOW_MS, halted)
    persister: Any = States(ShareStateResult(ErrorCode.FENCED_STATE_EPOCH))
    runner.persister = persister
    runner.topics_sent({"t": TopicDescription("t", TOPIC, ((), ()))})
    await elected(runner, TopicPartition("__consumer_offsets", 0))
    try:
        altered = runner.request(AlterShareOffsets("g", {"t": {0: 7}}))
        replicas.commit()
        await turns()
        assert persister.asked == [InitializeShareState(KEY, 1, 7)]
        result = await altered
        assert isinstance(result, AlterShareOffsetsResult)
        assert result.partitions["t"][0].error is ErrorCode.FENCED_STATE_EPOCH
        listed = await runner.request(ListSharePartitions("g"))
        assert listed == ListSharePartitionsResult(partitions={}), "a failure leaves it as it was, being initialized"
    finally:
        await runner.close()


class Metadata:
    """A cluster of two brokers with the topic t."""

    def __init__(self) -> None:
        self.topics = {"t": TOPIC}
        self.leader: int | None = 1

    def partitions(self, topic: str) -> Mapping[int, Any]:
        return {0: None} if topic == SHARE_STATE_TOPIC and self.knows_topic(topic) else {}

    def knows_topic(self, topic: str) -> bool:
        return topic in self.topics

    def leader_of(self, at: TopicPartition) -> int | None:
        return self.leader

    def endpoint(self, broker_id: int) -> Endpoint | None:
        return Endpoint(broker_id, "h", 9092 + broker_id)

    def named(self, topic_id: bytes) -> str | None:
        return next((name for name, one in self.topics.items() if one == topic_id), None)

    def id_of(self, topic: str) -> bytes:
        return self.topics.get(topic, bytes(16))


class Around:
    """A share group service with what it was asked."""

    def __init__(self, runner: Any = None, *, is_proven: bool = True) -> None:
        self.metadata = Metadata()
        self.created: list[str] = []
        self.is_proven = is_proven
        self.groups = SimpleNamespace(request=self._listed)
        self.listed = ListSharePartitionsResult(partitions={TOPIC: frozenset({1, 0}), b"x" * 16: frozenset({0})})
        parts: Any = (runner, self.groups, self.metadata, self.created.append, self._proven, Latest, "")
        self.service = ShareGroupService(*parts)
        self.states = self.service.persister = States()  # type: ignore[assignment]
        self.ends: dict[TopicPartition, Latest] = {}
        self.service.latest = self

    async def _proven(self, at: TopicPartition) -> bool:
        assert at == AT
        return self.is_proven

    async def _listed(self, request: Any) -> ListSharePartitionsResult:
        assert request == ListSharePartitions("g")
        return self.listed

    async def of(self, partitions: Iterable[TopicPartition]) -> Mapping[TopicPartition, Latest]:
        return {at: self.ends[at] for at in partitions}


def test_the_first_one_who_asks_for_a_coordinator_creates_the_topic() -> None:
    around = Around()
    assert (around.service.coordinator_of(KEY), around.created) == (None, [SHARE_STATE_TOPIC])
    around.metadata.topics[SHARE_STATE_TOPIC] = b"s" * 16
    assert around.service.coordinator_of(KEY) == 1
    endpoint = around.service.coordinator_endpoint(CALLER, str(KEY))
    assert endpoint is not None
    assert endpoint.port == 9093
    around.metadata.leader = None
    assert around.service.coordinator_endpoint(CALLER, str(KEY)) is None
    assert around.created == [SHARE_STATE_TOPIC]


@pytest.mark.parametrize("text", ["", "g", "g:t", "g:AAAA:0", f"g:{'A' * 22}:", f"g:{'A' * 22}:x", f" :{'A' * 22}:0"])
def test_a_malformed_key_names_no_share_partition(text: str) -> None:
    """SharePartitionKey.validate; a group's id may contain colons."""
    assert not is_key(text)
    key = SharePartitionKey("a:b", TOPIC, 3)
    assert key_of(str(key)) == key


async def test_a_state_is_given_out_only_by_a_proven_leader(world: tuple[ShareRunner, ShareReplicas]) -> None:
    """A coordinator that was replaced must not have a leader begin where its successor has already been."""
    runner, replicas = world
    await elected(runner)
    begun = runner.request(InitializeShareState(KEY, 2))
    replicas.commit()
    await begun
    around = Around(runner)
    assert (await around.service.ask(ReadShareState(KEY))).error is ErrorCode.NONE
    around.is_proven = False
    assert (await around.service.ask(ReadShareState(KEY))).error is ErrorCode.NOT_COORDINATOR
    assert (await around.service.ask(ReadShareSummary(KEY))).error is ErrorCode.NONE, "it is for descriptions only"


async def test_the_lag_is_what_is_not_done_below_the_high_watermark() -> None:
    """GroupCoordinatorService.computeShareGroupLagAndBuildResponse: end - start offset - completed records."""
    around = Around()
    around.states.result = ShareStateResult(leader_epoch=5, start_offset=4, complete_count=2)  # type: ignore[attr-defined]
    around.ends = {T0: Latest(10), T1: Latest(-1, ErrorCode.LEADER_NOT_AVAILABLE)}
    found = await around.service.describe_offsets("g", None)
    (topic,) = found.topics
    first, second = topic.partitions
    assert (topic.topic, first) == ("t", ShareOffset(0, 4, 5, 4))
    assert (second.error, second.lag) == (ErrorCode.LEADER_NOT_AVAILABLE, -1)


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        (ShareStateResult(start_offset=-1, leader_epoch=2), ShareOffset(0, -1, 2)),
        (ShareStateResult(start_offset=4, complete_count=-1), ShareOffset(0, 4, 0)),
        (ShareStateResult(ErrorCode.INVALID_REQUEST), ShareOffset(0)),
    ],
)
async def test_without_a_start_offset_there_is_no_lag(state: ShareStateResult, expected: ShareOffset) -> None:
    """shouldComputeSharePartitionLag; a state that cannot be read is absence of data, not an error."""
    around = Around()
    around.states.result = state  # type: ignore[attr-defined]
    found = await around.service.describe_offsets("g", {"t": [0], "nosuch": [3]})
    assert found.topics == [
        TopicShareOffsets("t", TOPIC, [expected]),
        TopicShareOffsets("nosuch", bytes(16), [ShareOffset(3)]),
    ]


async def test_a_group_that_another_broker_coordinates_has_its_error() -> None:
    around = Around()
    around.listed = ListSharePartitionsResult(ErrorCode.NOT_COORDINATOR)
    assert await around.service.describe_offsets("g", None) == ShareOffsets(ErrorCode.NOT_COORDINATOR)


@pytest.mark.parametrize(
    ("group_id", "wanted"),
    [("g", {"t": [0, -1]}), ("g", {"t": [-(2**31)], "nosuch": [0]}), ("g", {"t": []}), ("", {"t": [0]})],
)
async def test_share_partitions_that_cannot_exist_fail_their_group_at_once(group_id: str, wanted: Any) -> None:
    """DefaultStatePersister.validate: no state is asked for, so that nothing waits for a coordinator."""
    around = Around()
    found = await around.service.describe_offsets(group_id, wanted)
    assert (found.error, found.topics) == (ErrorCode.UNKNOWN_SERVER_ERROR, [])
    assert found.message is not None
    assert around.states.asked == []


async def test_odd_partitions_of_a_topic_that_does_not_exist_fail_nothing() -> None:
    """GroupCoordinatorService.describeShareGroupOffsets: what the persister is not asked for is not looked at."""
    found = await Around().service.describe_offsets("", {"nosuch": [-1]})
    assert found == ShareOffsets(topics=[TopicShareOffsets("nosuch", bytes(16), [ShareOffset(-1)])])
