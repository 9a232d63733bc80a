"""The shell of the group coordinator: leadership, loading in the background, appends, unawaited responses."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.groups import (
    JoinGroup,
    JoinGroupResult,
    OffsetCommit,
    OffsetCommitResult,
    OffsetFetch,
    OffsetFetchResult,
    OffsetToCommit,
    Protocol,
    TxnOffsetCommit,
)
from tidegauge.partition import TopicPartition
from tidegauge.settings import parse_broker_settings
from tidegauge_broker.coordinator.committing import Committing
from tidegauge_broker.replica.messages import ProduceRequest, ProduceResult
from tidegauge_broker.server.coordinators.group_runner import GroupRunner
from tidegauge_broker.server.event_log_writer import EventLogWriter

AT = TopicPartition("__consumer_offsets", 0)
ORDERS = TopicPartition("orders", 0)
NOW_MS = 1_700_000_000_000


class Log:
    """The log of the one partition: its batches, and perhaps a disk that refuses."""

    log_start_offset = 0

    def __init__(self) -> None:
        self.batches: list[bytes] = []
        self.refuses = False

    @property
    def log_end_offset(self) -> int:
        return len(self.batches)

    def read(self, offset: int, _end_offset: int, _max_bytes: int, *, at_least_one_batch: bool) -> bytes:
        assert at_least_one_batch
        if self.refuses:
            raise TidegaugeError(ErrorCode.KAFKA_STORAGE_ERROR, "the disk refuses")
        batch = bytearray(self.batches[offset])
        batch[:8] = offset.to_bytes(8, "big")
        return bytes(batch)


class Replicas:
    """Appends wait until the test commits them."""

    def __init__(self) -> None:
        self.log = Log()
        self.logs = {AT: self.log}
        self.appends: list[tuple[ProduceRequest, asyncio.Future[Sequence[ProduceResult]]]] = []

    def is_committed(self, at: TopicPartition, end: int) -> bool:
        return at == AT and end >= 0

    def leads(self, at: TopicPartition) -> bool:
        return at == AT

    def produce(self, request: ProduceRequest) -> asyncio.Future[Sequence[ProduceResult]]:
        future: asyncio.Future[Sequence[ProduceResult]] = asyncio.get_running_loop().create_future()
        self.appends.append((request, future))
        return future

    def commit(self, error: ErrorCode = ErrorCode.NONE) -> ProduceRequest:
        """End the oldest append."""
        request, future = self.appends.pop(0)
        offset = self.log.log_end_offset
        self.log.batches.append(bytes(request.partitions[0].records))
        future.set_result([ProduceResult(AT, error, "", offset)])
        return request


def halted(problem: Exception) -> None:
    raise AssertionError("the broker would halt") from problem


@pytest.fixture
async def world() -> Any:
    values, _ = parse_broker_settings(
        {"broker.id": "0", "zookeeper.connect": "z:1", "offsets.topic.num.partitions": "1"}
    )
    replicas: Any = Replicas()
    events = EventLogWriter(None, "broker-0", lambda: NOW_MS, asyncio.get_running_loop().call_later)
    runner = GroupRunner(values, replicas, events, lambda: NOW_MS, halted)
    yield runner, replicas
    await runner.close()


async def turns() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


async def elected(runner: GroupRunner, leader_epoch: int = 3) -> None:
    runner.leadership_changed(AT, leads=True, leader_epoch=leader_epoch)
    await turns()


def commit(offset: int = 5) -> OffsetCommit:
    return OffsetCommit("g", (OffsetToCommit(ORDERS, offset),))


async def fetched(runner: GroupRunner) -> OffsetFetchResult:
    result = await runner.request(OffsetFetch("g"))
    assert isinstance(result, OffsetFetchResult)
    return result


class Broken:
    """A coordinator whose every decision fails."""

    def handle(self, *_: object) -> Any:
        raise RuntimeError("a defect")

    def is_large(self, *_: object) -> bool:
        return False

    def next_deadline_ms(self) -> None:
        return None


async def test_a_defect_in_what_all_groups_share_halts(world: Any) -> None:
    """docs/adr/0023: what belongs to no group cannot be taken out of service."""
    runner, _ = world
    await elected(runner)
    runner.coordinator = Broken()
    with pytest.raises(AssertionError, match="the broker would halt"):
        runner.partitions_deleted([ORDERS], {})


async def test_a_defect_in_a_groups_decision_fails_its_requests_and_is_logged(
    world: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """docs/adr/0023: the group is out of service, with a traceback in the log; others are served, the broker lives."""
    runner, replicas = world
    await elected(runner)
    commits = Committing.commit

    def broken(self: Committing, group: Any, request: OffsetCommit, token: object) -> None:
        commits(self, group, request, token)
        if request.group_id == "g":
            raise RuntimeError("a defect")

    monkeypatch.setattr(Committing, "commit", broken)
    assert (await runner.request(commit())).partitions == {ORDERS: ErrorCode.UNKNOWN_SERVER_ERROR}
    assert replicas.appends == [], "nothing of the decision is carried out"
    assert (await fetched(runner)).error is ErrorCode.UNKNOWN_SERVER_ERROR
    (defect,) = [record for record in caplog.records if record.exc_info]
    assert "A decision about 'g' failed" in defect.getMessage()
    assert "Group 'g' (__consumer_offsets-0) is out of service" in caplog.text
    other = runner.request(OffsetCommit("h", (OffsetToCommit(ORDERS, 5),)))
    replicas.commit()
    assert (await other).partitions == {ORDERS: ErrorCode.NONE}


async def test_only_the_leader_of_the_partition_coordinates(world: Any) -> None:
    runner, _ = world
    assert (await fetched(runner)).error is ErrorCode.NOT_COORDINATOR
    await elected(runner)
    assert (await fetched(runner)).error is ErrorCode.NONE
    runner.leadership_changed(AT, leads=False, leader_epoch=4)
    assert (await fetched(runner)).error is ErrorCode.NOT_COORDINATOR, "a change is taken up before a later request"


async def test_it_loads_in_the_background_and_rejects_meanwhile(world: Any) -> None:
    """COORDINATOR_LOAD_IN_PROGRESS until the log is read to its end, then the offsets are known."""
    runner, replicas = world
    loads: list[float] = []
    runner.loaded = loads.append
    await elected(runner)
    for offset in (5, 6):
        future = runner.request(commit(offset))
        replicas.commit()
        await future
    runner.leadership_changed(AT, leads=False, leader_epoch=4)
    runner.leadership_changed(AT, leads=True, leader_epoch=5)
    assert (await fetched(runner)).error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert len(loads) == 1
    await turns()
    assert (await fetched(runner)).offsets[ORDERS].offset == 6
    assert len(loads) == 2


async def test_a_log_that_cannot_be_read_leaves_the_partition_without_a_coordinator(world: Any) -> None:
    """The records read may not be the latest; CoordinatorRuntime, CoordinatorState.FAILED."""
    runner, replicas = world
    replicas.log.batches.append(b"")
    replicas.log.refuses = True
    loads: list[float] = []
    runner.loaded = loads.append
    await elected(runner)
    assert await fetched(runner) == OffsetFetchResult(ErrorCode.NOT_COORDINATOR)
    assert loads == [], "a load that failed has no time"


async def test_a_commit_is_acknowledged_when_its_append_is_committed(world: Any) -> None:
    """acks=-1 with offsets.commit.timeout.ms, as an internal client."""
    runner, replicas = world
    await elected(runner)
    future = runner.request(commit())
    await turns()
    assert not future.done()
    request = replicas.commit()
    await turns()
    assert future.result() == OffsetCommitResult({ORDERS: ErrorCode.NONE})
    assert (request.acks, request.timeout_ms, request.from_coordinator) == (-1, 5_000, True)
    assert request.partitions[0].topic_partition == AT


async def test_an_append_that_fails_is_an_error_of_the_commit(world: Any) -> None:
    runner, replicas = world
    await elected(runner)
    future = runner.request(commit())
    replicas.commit(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    await turns()
    assert future.result() == OffsetCommitResult({ORDERS: ErrorCode.NOT_COORDINATOR})
    assert (await fetched(runner)).offsets == {}


async def test_a_response_that_no_request_awaits_is_dropped(world: Any, caplog: pytest.LogCaptureFixture) -> None:
    """The connection of a request has closed: its commit counts all the same."""
    runner, replicas = world
    await elected(runner)
    future = runner.request(commit())
    future.cancel()
    replicas.commit()
    await turns()
    assert (await fetched(runner)).offsets[ORDERS].offset == 5
    assert [record for record in caplog.records if record.levelname == "ERROR"] == []


async def test_parked_requests_are_completed_when_the_leadership_is_lost(world: Any) -> None:
    runner, _ = world
    await elected(runner)
    join = JoinGroup("g", "", 10_000, 10_000, "consumer", (Protocol("range", b""),), requires_known_member_id=False)
    future = runner.request(join)
    await turns()
    assert not future.done(), "the initial rebalance waits for more members"
    runner.leadership_changed(AT, leads=False, leader_epoch=4)
    await turns()
    result = future.result()
    assert isinstance(result, JoinGroupResult)
    assert result.error is ErrorCode.NOT_COORDINATOR


async def test_a_verification_that_fails_unexpectedly_is_an_error_of_its_request(world: Any) -> None:
    """A request without an outcome would wait for its client's timeout, and the guard of its group with it."""
    runner, _ = world
    await elected(runner)

    async def verify(_effect: object) -> Any:
        raise RuntimeError("defect")

    runner.verify = verify
    response = runner.request(TxnOffsetCommit("id", "g", 1, 0, (OffsetToCommit(ORDERS, 5),)))
    await turns()
    assert (await response).partitions == {ORDERS: ErrorCode.UNKNOWN_SERVER_ERROR}
