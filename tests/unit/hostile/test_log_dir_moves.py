"""AlterReplicaLogDirs at a broker: checks and their order, and what a move goes through.

``ReplicaManager.alterReplicaLogDirs``, ``ReplicaAlterLogDirsThread``, KIP-113.
"""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hostile_broker import NOW_MS, TOPIC_ID, HostileBroker
from tests.unit.hostile.test_hostile_requests import batch as record_batch
from tests.waiting import until_async

from tidegauge.cluster_metadata import PartitionState
from tidegauge.control import (
    ControlHeader,
    Endpoint,
    LeaderAndIsrPartition,
    LeaderAndIsrRequest,
    StopReplicaPartition,
    StopReplicaRequest,
)
from tidegauge.errors import ErrorCode
from tidegauge.groups import OffsetCommit, OffsetCommitResult, OffsetFetch, OffsetToCommit
from tidegauge.partition import TopicPartition
from tidegauge.record_batch import iterate_headers
from tidegauge.settings import topic_values
from tidegauge_broker.coordinator.led_partitions import ShardState
from tidegauge_broker.log.files import Disk
from tidegauge_broker.log.manager import LogManager
from tidegauge_broker.replica.messages import LogOnDisk, ProducePartition, ProduceRequest
from tidegauge_broker.replica.quota import UNLIMITED
from tidegauge_broker.server.replication.log_dir_moves import MoveLimits
from tidegauge_broker.server.replication.log_dir_views import log_on_disk

HEADER = ControlHeader(0, 1, 1)
AT = TopicPartition("t", 0)
OFFSETS = TopicPartition("__consumer_offsets", 0)


class Moving(HostileBroker):
    """A broker with three log directories whose moves the test holds up with the quota."""

    def __init__(self, **settings: str) -> None:
        super().__init__(log_directories=3, **settings)
        self.rate = UNLIMITED
        moves: Any = self.replicas.moves
        self.clock_ms = NOW_MS
        moves._limits = MoveLimits(lambda: self.rate, 1)
        moves._quota._rate = lambda: self.rate
        moves._now_ms = lambda: self.clock_ms

    @property
    def paths(self) -> list[str]:
        return [str(path) for path in self.logs.directories]

    @property
    def home(self) -> str:
        return str(self.logs.logs[AT].log_directory.path)

    @property
    def others(self) -> list[str]:
        return [path for path in self.paths if path != self.home]

    async def alter(self, path: str, at: TopicPartition = AT) -> ErrorCode:
        return (await self.service.alter_replica_log_dirs({at: path}))[at]

    def produce(self, count: int = 1) -> None:
        for _ in range(count):
            future = self.replicas.produce(ProduceRequest(1, 0, [ProducePartition(AT, record_batch())]))
            assert future.result()[0].error is ErrorCode.NONE

    async def hold(self, count: int = 3) -> None:
        """Begin a move and let it copy one batch only: the burst that the quota allows."""
        self.produce(count)
        self.rate = 1
        assert await self.alter(self.others[0]) is ErrorCode.NONE
        await self.until(lambda: self.logs.futures.logs[AT].log_end_offset == 1)

    async def until(self, holds: Any) -> None:
        async def check() -> bool:
            return bool(holds())

        await until_async(check)

    async def end(self) -> None:
        await self.replicas.moves.close()
        (self.abandon if self.logs.offline_directories else self.close)()

    def shown(self) -> dict[str, tuple[int, bool]]:
        """Offset lag and whether it is a future log, by directory."""
        return {
            view.path: (view.replicas[AT].offset_lag, view.replicas[AT].is_future)
            for view in self.service.describe_log_directories()
            if AT in view.replicas
        }


class Restarted(Moving):
    """Another broker process after it, with the same log directories, or some of them."""

    def __init__(self, before: Moving, left: Sequence[str] = (), **settings: str) -> None:
        self._left = [path for path in before.logs.directories if not left or str(path) in left]
        super().__init__(**settings)

    def _open_logs(self, *, now_ms: int = NOW_MS) -> LogManager:
        self._directories = self._left
        return super()._open_logs(now_ms=now_ms)


@pytest.fixture
async def broker() -> Any:
    made = Moving()
    await made.begin()
    yield made
    await made.end()


def become(
    leader_epoch: int, at: TopicPartition = AT, *, is_new: bool = False, topic_id: str = TOPIC_ID
) -> LeaderAndIsrRequest:
    state = PartitionState(
        topic_partition=at,
        topic_id=topic_id,
        controller_epoch=1,
        leader=0,
        leader_epoch=leader_epoch,
        isr=(0,),
        partition_epoch=leader_epoch,
        replicas=(0, 1),
    )
    return LeaderAndIsrRequest(HEADER, (LeaderAndIsrPartition(state, is_new),), (Endpoint(0, "127.0.0.1", 9092),))


def values_of(broker: HostileBroker) -> Any:
    async def values(_topic: str) -> Any:
        return topic_values({}, broker._layers.live)

    return values


async def test_a_replica_moves_and_serves_on(broker: Moving) -> None:
    broker.produce(5)
    before, target = broker.home, broker.others[0]
    assert await broker.alter(target) is ErrorCode.NONE
    await broker.until(lambda: broker.home == target)
    assert broker.shown() == {target: (0, False)}
    assert before != target
    broker.produce()
    assert broker.check_logs()[AT] == 6
    assert await broker.alter(target) is ErrorCode.NONE, "it is there already"
    assert not broker.logs.futures.logs


async def test_the_checks_and_their_order(broker: Moving) -> None:
    unknown, unhosted = TopicPartition("nope", 0), TopicPartition("t", 7)
    long = TopicPartition("t" * 230, 0)
    there = broker.others[0]
    assert await broker.alter("/nowhere", long) is ErrorCode.INVALID_TOPIC_EXCEPTION, "the name comes first"
    assert await broker.alter("/nowhere") is ErrorCode.LOG_DIR_NOT_FOUND
    assert await broker.alter("/nowhere", unknown) is ErrorCode.LOG_DIR_NOT_FOUND
    assert await broker.alter(there, unknown) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    known: Any = broker.metadata
    known.knows = lambda _at: True
    assert await broker.alter(there, unhosted) is ErrorCode.REPLICA_NOT_AVAILABLE
    broker.logs.directory_at(there).offline = True
    assert await broker.alter(there) is ErrorCode.KAFKA_STORAGE_ERROR
    assert await broker.alter(broker.others[1]) is ErrorCode.KAFKA_STORAGE_ERROR, (
        "no future log is created while any log directory is offline"
    )
    assert not broker.logs.futures.logs


async def test_an_offline_replica_does_not_move(broker: Moving) -> None:
    target = broker.others[0]
    broker.replicas._executor.fail([AT])
    assert await broker.alter(target) is ErrorCode.KAFKA_STORAGE_ERROR


async def test_one_partition_of_a_request_does_not_hold_up_another(broker: Moving) -> None:
    broker.produce()
    target = broker.others[0]
    wanted = {TopicPartition("nope", 0): target, AT: target, TopicPartition("t", 9): "/nowhere"}
    errors = await broker.service.alter_replica_log_dirs(wanted)
    assert [error.name for error in errors.values()] == ["UNKNOWN_TOPIC_OR_PARTITION", "NONE", "LOG_DIR_NOT_FOUND"]
    await broker.until(lambda: broker.home == target)


async def test_the_directory_is_remembered_for_a_replica_that_comes_later(broker: Moving) -> None:
    """REPLICA_NOT_AVAILABLE is no refusal: kafka-reassign-partitions sends this before the replica exists."""
    late = TopicPartition("late", 0)
    for path in reversed(broker.paths):
        await broker.alter(path, late)
    await broker.replicas.control.leader_and_isr(become(1, late, is_new=True), values_of(broker))
    assert str(broker.logs.logs[late].log_directory.path) == broker.paths[0]


async def test_a_move_in_progress_is_shown_with_its_lag(broker: Moving) -> None:
    await broker.hold(4)
    assert broker.shown() == {broker.home: (0, False), broker.others[0]: (3, True)}


async def test_the_quota_holds_a_move_up_until_it_is_raised(broker: Moving) -> None:
    """replica.alter.log.dirs.io.max.bytes.per.second counts as the other replication quotas do."""
    await broker.hold()
    target = broker.others[0]
    for _ in range(20):
        await asyncio.sleep(0)
    assert broker.logs.futures.logs[AT].log_end_offset == 1
    broker.rate = UNLIMITED
    await broker.until(lambda: broker.home == target)


async def test_another_destination_replaces_the_one_before(broker: Moving) -> None:
    await broker.hold()
    first, second = broker.others
    assert await broker.alter(second) is ErrorCode.NONE
    assert broker.logs.futures.logs[AT].log_directory is broker.logs.directory_at(second)
    broker.rate = UNLIMITED
    await broker.until(lambda: broker.home == second)
    assert not [path for path in broker.logs.directory_at(first).path.iterdir() if path.name.endswith("-future")]


async def test_the_current_directory_as_destination_ends_a_move(broker: Moving) -> None:
    await broker.hold()
    home = broker.home
    assert await broker.alter(home) is ErrorCode.NONE
    assert not broker.logs.futures.logs
    assert broker.shown() == {home: (0, False)}


async def test_records_that_come_during_the_move_are_moved_too(broker: Moving) -> None:
    await broker.hold()
    target = broker.others[0]
    broker.produce(3)
    broker.rate = UNLIMITED
    await broker.until(lambda: broker.home == target)
    assert broker.check_logs()[AT] == 6


async def test_a_coordinator_loads_on_where_its_partition_has_moved_to(broker: Moving) -> None:
    """To read on in the former log, which is closed and renamed by then, would take its log directory offline."""
    for offset in range(20):
        committed = await broker.runner.request(OffsetCommit("g", (OffsetToCommit(AT, offset),)))
        assert committed == OffsetCommitResult({AT: ErrorCode.NONE})
    current = broker.logs.logs[OFFSETS]
    target = next(path for path in broker.paths if path != str(current.log_directory.path))
    broker.rate = 1
    assert await broker.alter(target, OFFSETS) is ErrorCode.NONE
    runner: Any = broker.runner
    runner._chunk_bytes = 1
    runner.leadership_changed(OFFSETS, leads=False, leader_epoch=4)
    runner.leadership_changed(OFFSETS, leads=True, leader_epoch=5)
    for _ in range(5):
        await asyncio.sleep(0)
    assert runner.coordinator.shard_states() == {0: ShardState.LOADING}
    broker.logs.futures.copy(current, 1 << 20)
    broker.logs.replace_with_future(OFFSETS, current.log_end_offset)
    assert runner.coordinator.shard_states() == {0: ShardState.LOADING}
    await broker.until(lambda: runner.coordinator.shard_states() != {0: ShardState.LOADING})
    assert runner.coordinator.shard_states() == {0: ShardState.ACTIVE}
    assert broker.logs.offline_directories == []
    assert (await broker.runner.request(OffsetFetch("g", (AT,)))).offsets[AT].offset == 19


async def test_the_destination_fails(broker: Moving) -> None:
    """ReplicaManager.handleLogDirFailure: the future replica is dropped, the current one is served on."""
    await broker.hold()
    home, target = broker.home, broker.logs.directory_at(broker.others[0])
    target.failed(OSError(5, "Input/output error"), "testing")
    broker.replicas.report_failures()
    assert not broker.logs.futures.logs
    broker.produce()
    assert broker.home == home


async def test_a_replica_in_a_failed_directory_is_reported_without_size_and_place(broker: Moving) -> None:
    """ReplicaManager.describeLogDirs: a failed directory has KAFKA_STORAGE_ERROR and no replicas."""
    broker.produce(3)
    assert log_on_disk(broker.logs, AT).log_dir == broker.home
    broker.logs.logs[AT].log_directory.failed(OSError(5, "Input/output error"), "testing")
    broker.replicas.report_failures()
    assert log_on_disk(broker.logs, AT) == LogOnDisk()
    assert broker.shown() == {}


async def test_a_directory_that_can_not_be_looked_at_does_not_hide_the_others(broker: Moving) -> None:
    """ReplicaManager.describeLogDirs catches what fails for each directory; the broker may not know of it yet."""
    shutil.move(broker.others[0], f"{broker.others[0]}-unmounted")
    views = {view.path: view for view in broker.service.describe_log_directories()}
    shutil.move(f"{broker.others[0]}-unmounted", broker.others[0])
    assert views[broker.others[0]].error is ErrorCode.UNKNOWN_SERVER_ERROR
    assert [views[path].error for path in (broker.home, broker.others[1])] == [ErrorCode.NONE] * 2
    assert AT in views[broker.home].replicas


async def test_the_current_directory_fails(broker: Moving) -> None:
    """The replica is offline; its copy lacks records, so it does not take its place."""
    await broker.hold()
    broker.logs.logs[AT].log_directory.failed(OSError(5, "Input/output error"), "testing")
    broker.replicas.report_failures()
    broker.rate = UNLIMITED
    assert not broker.replicas.moves.copied
    assert AT in broker.logs.futures.logs
    assert await broker.alter(broker.others[0]) is ErrorCode.KAFKA_STORAGE_ERROR
    assert (await broker.replicas.control.leader_and_isr(become(9), values_of(broker))).partitions[
        AT
    ] is not ErrorCode.NONE


async def test_a_stopped_replica_is_copied_no_longer_until_it_is_hosted_again(broker: Moving) -> None:
    await broker.hold()
    target = broker.others[0]
    stop = StopReplicaRequest(HEADER, (StopReplicaPartition(AT, None, False),))
    await broker.replicas.control.stop_replica(stop)
    broker.rate = UNLIMITED
    assert not broker.replicas.moves.copied
    assert AT in broker.logs.futures.logs
    await broker.replicas.control.leader_and_isr(become(5), values_of(broker))
    await broker.until(lambda: broker.home == target)


async def test_deletion_ends_a_move(broker: Moving) -> None:
    await broker.hold()
    stop = StopReplicaRequest(HEADER, (StopReplicaPartition(AT, None, True),))
    assert (await broker.replicas.control.stop_replica(stop)).partitions == {AT: ErrorCode.NONE}
    assert AT not in broker.logs.logs
    assert not broker.logs.futures.logs
    assert not broker.replicas.moves.copied


async def test_a_copy_that_can_not_be_deleted_keeps_the_topic_from_being_forgotten(broker: Moving) -> None:
    """LogManager.asyncDelete handles both logs; without the error the topic's deletion would end, and the copy stay."""
    await broker.hold()
    home: Any = broker.logs.futures.logs[AT].log_directory

    class FullDisk(Disk):
        def rename(self, path: Path, to: Path) -> None:
            raise OSError(5, "Input/output error")

    home.disk = FullDisk()
    stop = StopReplicaRequest(HEADER, (StopReplicaPartition(AT, None, True),))
    response = await broker.replicas.control.stop_replica(stop)
    assert response.partitions == {AT: ErrorCode.KAFKA_STORAGE_ERROR}
    assert home.offline
    assert AT not in broker.logs.logs


async def test_a_fenced_stop_ends_no_move(broker: Moving) -> None:
    """ReplicaManager.stopReplicas takes the copies of those that it stops from their fetcher, and no other."""
    await broker.replicas.control.leader_and_isr(become(5), values_of(broker))
    await broker.hold()
    target = broker.others[0]
    stop = StopReplicaRequest(HEADER, (StopReplicaPartition(AT, 4, False),))
    response = await broker.replicas.control.stop_replica(stop)
    assert response.partitions == {AT: ErrorCode.FENCED_LEADER_EPOCH}
    broker.rate = UNLIMITED
    await broker.until(lambda: broker.home == target or not broker.replicas.moves.copied)
    assert broker.home == target


async def test_a_copy_of_a_deleted_topic_does_not_replace_the_log_of_the_topic_that_has_its_name_now(
    broker: Moving,
) -> None:
    """The destination fails, so the topic's deletion leaves the copy there; a restart finds it again.

    Leader epochs can't tell the two topics apart; the topic's id does (LogManager.getOrCreateLog).
    """
    deletion = StopReplicaRequest(HEADER, (StopReplicaPartition(AT, None, True),))
    await broker.replicas.control.stop_replica(deletion)
    deleted_topic = become(3, is_new=True, topic_id="deletedtopicdeletedtop")
    await broker.replicas.control.leader_and_isr(deleted_topic, values_of(broker))
    await broker.hold()
    copy = broker.logs.futures.logs[AT].directory
    broker.logs.directory_at(str(copy.parent)).failed(OSError(5, "Input/output error"), "testing")
    broker.replicas.report_failures()
    await broker.replicas.control.stop_replica(deletion)
    await broker.replicas.control.leader_and_isr(become(3, is_new=True), values_of(broker))
    broker.produce(5)
    home = broker.home
    broker.logs.close({}, clean=False)
    again = Restarted(broker)
    assert AT in again.logs.futures.logs, "the copy lies there still"
    await again.begin()
    await again.until(lambda: not again.replicas.moves.copied)
    assert again.logs.logs[AT].topic_id == TOPIC_ID
    assert (again.home, again.logs.logs[AT].log_end_offset) == (home, 5)
    assert not again.logs.futures.logs
    assert not copy.exists(), "it is renamed, to be removed"
    await again.end()


async def test_a_log_that_is_created_beside_its_copy_stays(broker: Moving) -> None:
    """Its disk was lost and is removed from log.dirs, so the destination is where the log is created again.

    The copy can't take its place there: a rename onto a directory that exists would take the log directory offline.
    """
    await broker.hold()
    target = broker.others[0]
    broker.logs.logs[AT].log_directory.failed(OSError(5, "Input/output error"), "testing")
    broker.logs.close({}, clean=False)
    again = Restarted(broker, [target])
    assert AT in again.logs.futures.logs
    await again.begin()
    again.produce()
    await again.until(lambda: not again.replicas.moves.copied)
    assert not again.logs.offline_directories
    assert not again.logs.futures.logs
    again.produce()
    assert again.check_logs()[AT] == 2
    await again.end()


@pytest.mark.parametrize("is_noted", [True, False], ids=["checkpoint", "killed"])
async def test_a_copy_from_before_a_compaction_begins_again(broker: Moving, *, is_noted: bool) -> None:
    """Its log directory is offline while the log is compacted, and back after another start.

    The broker may have been killed before the cleaner checkpoint was written.

    Records that compaction has removed since must not come back with the copy, perhaps without the tombstone of them.
    """
    await broker.hold()
    home, target = broker.home, broker.others[0]
    broker.logs.directory_at(target).failed(OSError(5, "Input/output error"), "testing")
    broker.replicas.report_failures()
    broker.logs.close({}, clean=False)
    alone = Restarted(broker, [home], **{"log.cleanup.policy": "compact"})
    log: Any = alone.logs.logs[AT]
    log._roll(log.log_end_offset)
    cleaning = alone.logs.compaction.next_to_clean({AT: 3})
    assert cleaning is not None
    (group,) = cleaning.map_keys()
    assert cleaning.replace(group, cleaning.write(group))
    if is_noted:
        alone.logs.compaction.note_cleaned(cleaning)
    left = log.read(0, 3, 1 << 20, at_least_one_batch=True)
    assert [header.base_offset for header in iterate_headers(left)] == [2], "all three have the same key"
    alone.abandon()
    again = Restarted(broker, **{"log.cleanup.policy": "compact"})
    assert again.logs.futures.logs[AT].log_end_offset == 1
    await again.begin()
    await again.until(lambda: not again.replicas.moves.copied)
    assert again.home == target
    assert again.logs.logs[AT].read(0, 3, 1 << 20, at_least_one_batch=True) == left
    await again.replicas.moves.close()
    again.abandon()


async def test_a_log_that_cannot_be_read_stops_its_move_alone(broker: Moving) -> None:
    """AbstractFetcherThread marks the partition as failed; the current log is served as far as it can be."""
    await broker.hold()
    home = broker.home
    log = broker.logs.logs[AT]
    data = bytearray(log.segments[0].path.read_bytes())
    broken: Any = broker.logs.futures.logs[AT]
    broken.append_as_follower = None
    broker.rate = UNLIMITED
    await broker.until(lambda: not broker.replicas.moves.copied)
    assert broker.home == home
    assert log.segments[0].path.read_bytes() == data
    assert broker.shown()[home] == (0, False)
