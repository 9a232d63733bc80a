"""Share partitions at their leader: loaded, fetched from, waited for, acknowledged, timed out and dropped (KIP-932).

Each test says which rule of ``SharePartitionManager`` or ``DelayedShareFetch`` it holds.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from kafka_cluster import TOPIC
from share_partitions import (
    ACCEPT,
    AT,
    KEY,
    LOCK_MS,
    PARTITION,
    REJECT,
    RELEASE,
    RENEW,
    TOPIC_ID_BYTES,
    ShareBroker,
    acquired,
)

from tidegauge.errors import ErrorCode
from tidegauge.partition import TopicPartition
from tidegauge.partition_state import ReplicaStop
from tidegauge.record_batch import iterate_headers
from tidegauge.share_groups import SharePartitionKey, StateBatch
from tidegauge_broker.replica.effects import LeadershipChanged
from tidegauge_broker.replica.messages import RecordsToDelete
from tidegauge_broker.server.share.led import Led
from tidegauge_broker.share.sessions import PartitionId, SessionKey
from tidegauge_broker.share.settings import AcquireMode, ShareSettings

A, B = SessionKey("g", "a"), SessionKey("g", "b")


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[ShareBroker]:
    made = ShareBroker(tmp_path, 3)
    await made.start()
    yield made
    await made.close()


# Loading


async def test_the_first_fetch_reads_the_state_in_the_leaders_epoch(broker: ShareBroker) -> None:
    """SharePartitionManager.getOrCreateSharePartition: later fetches find it loaded."""
    broker.produce(3)
    task = broker.begin_fetch()
    assert acquired(await task) == [(0, 2, 1)]
    await broker.fetch("b")
    assert [(one.key, one.leader_epoch) for one in broker.states.reads] == [(KEY, 1)]


async def test_a_fetch_waits_for_the_state_and_no_longer_than_it_may(broker: ShareBroker) -> None:
    """Its time is over before the state is read: the response is empty, without an error."""
    broker.produce(3)
    broker.states.held.clear()
    assert await broker.service.fetch(broker.wanted(wait_ms=0)) == {}
    waiting = broker.begin_fetch()
    await broker.until(lambda: broker.partitions.get(KEY).waiting)
    broker.states.held.set()
    assert acquired(await waiting) == [(0, 2, 1)]
    assert len(broker.states.reads) == 1


@pytest.mark.parametrize(
    ("read", "shown"),
    [
        (ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.NOT_LEADER_OR_FOLLOWER),
        (ErrorCode.INVALID_REQUEST, ErrorCode.UNKNOWN_SERVER_ERROR),
    ],
)
async def test_a_state_that_cannot_be_read_is_an_error_when_the_time_is_over(
    broker: ShareBroker, read: ErrorCode, shown: ErrorCode
) -> None:
    """A client would try again at once otherwise: Kafka took 303 ms of a maximum wait of 300 ms. The next one reads."""
    broker.produce(3)
    broker.states.errors = [read]
    waiting = broker.begin_fetch()
    await broker.until(lambda: broker.states.reads and not len(broker.partitions))
    assert not waiting.done()
    assert await broker.fetch("b", wait_ms=5) == [(0, 2, 1)]
    waiting.cancel()
    broker.partitions.drop(KEY, "Test")
    broker.states.errors = [read]
    late = await broker.late()
    assert late[PARTITION].error is shown


async def test_a_group_without_a_start_offset_begins_where_its_settings_say(broker: ShareBroker) -> None:
    """SharePartition.startOffsetDuringInitialization: latest is the high watermark; nothing is written until later."""
    broker.produce(3)
    broker.settings = ShareSettings(auto_offset_reset="latest")
    hosted = await broker.open()
    assert await broker.fetch() == []
    broker.produce(2)
    assert await broker.fetch() == [(3, 4, 1)]
    assert (hosted.core.window.start_offset, broker.states.writes) == (3, [])


async def test_a_duration_without_a_later_record_is_no_offset(broker: ShareBroker) -> None:
    """ShareFetchUtils.offsetForTimestamp: OFFSET_NOT_AVAILABLE."""
    broker.settings = ShareSettings(auto_offset_reset="by_duration:PT1S")
    found = await broker.late()
    assert found[PARTITION].error is ErrorCode.OFFSET_NOT_AVAILABLE


async def test_a_state_that_was_read_is_taken_up(broker: ShareBroker) -> None:
    broker.produce(10)
    broker.states.start_offset = 2
    broker.states.batches = (StateBatch(2, 3, 2, 1), StateBatch(4, 5, 0, 3))
    await broker.open()
    assert await broker.fetch(mode=AcquireMode.RECORD_LIMIT, max_records=2) == [(4, 4, 4)]


async def test_a_partition_that_this_broker_does_not_lead_is_an_error_at_once(broker: ShareBroker) -> None:
    """ShareFetch.errorInAllPartitions; beside a partition without an error it is given with that one's records."""
    broker.produce(1)
    only = broker.wanted(wait_ms=60_000, partitions=(9,))
    found = await broker.service.fetch(only)
    assert found[PartitionId(TOPIC_ID_BYTES, 9)].error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    both = await broker.service.fetch(broker.wanted(wait_ms=60_000, partitions=(9, 0)))
    assert both[PartitionId(TOPIC_ID_BYTES, 9)].error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert acquired(both) == [(0, 0, 1)]


# Waiting


async def test_a_fetch_waits_for_an_append_and_for_as_many_bytes_as_it_wants(broker: ShareBroker) -> None:
    """DelayedShareFetch.isMinBytesSatisfied; over all its partitions."""
    await broker.open()
    waiting = broker.begin_fetch(min_bytes=100, partitions=(0, 1))
    broker.produce(1)
    await broker.turns()
    assert not waiting.done()
    broker.produce(1, partition=1)
    found = await waiting
    assert (acquired(found), acquired(found, 1)) == ([(0, 0, 1)], [(0, 0, 1)])


async def test_a_fetch_gives_what_there_is_when_its_time_is_over(broker: ShareBroker) -> None:
    await broker.open()
    broker.produce(1)
    assert await broker.fetch(min_bytes=1 << 20, wait_ms=0) == [(0, 0, 1)]


async def test_a_fetch_waits_for_records_that_another_member_releases(broker: ShareBroker) -> None:
    broker.produce(3)
    await broker.open()
    assert await broker.fetch("b") == [(0, 2, 1)]
    waiting = broker.begin_fetch()
    await broker.turns()
    assert not waiting.done()
    assert await broker.acknowledge(0, 1, RELEASE, member="b") is ErrorCode.NONE
    assert acquired(await waiting) == [(0, 1, 2)]


async def test_a_fetch_waits_for_locks_that_time_out(broker: ShareBroker) -> None:
    """AcquisitionLockTimerTask: the records given back are written, and the wait does not depend on that."""
    broker.produce(3)
    await broker.open()
    assert await broker.fetch("b") == [(0, 2, 1)]
    waiting = broker.begin_fetch()
    await broker.turns()
    broker.states.held.clear()
    broker.now_ms += LOCK_MS
    broker.partitions.tick()
    assert acquired(await waiting) == [(0, 2, 2)]
    await broker.until(lambda: broker.written == [(0, [(0, 2, 0, 1)])])


async def test_locks_of_one_partition_time_out_at_a_time_and_none_before_its_deadline(broker: ShareBroker) -> None:
    for one in range(2):
        broker.produce(2, partition=one)
    await broker.service.fetch(broker.wanted(wait_ms=5, partitions=(0, 1)))
    first, second = (broker.partitions.get(SharePartitionKey("g", TOPIC_ID_BYTES, one)) for one in range(2))
    assert first is not None
    assert second is not None
    broker.now_ms += LOCK_MS - 1
    broker.partitions.tick()
    assert [one.core.next_deadline_ms() for one in (first, second)] == [1000 + LOCK_MS] * 2
    broker.now_ms += 1
    broker.partitions.tick()
    assert sum(one.core.next_deadline_ms() is None for one in (first, second)) == 1
    broker.partitions.tick()
    assert [one.core.next_deadline_ms() for one in (first, second)] == [None, None]


async def test_a_renewed_lock_holds_longer(broker: ShareBroker) -> None:
    broker.produce(2)
    await broker.open()
    await broker.fetch()
    broker.now_ms += LOCK_MS - 1
    assert await broker.acknowledge(0, 1, RENEW) is ErrorCode.NONE
    broker.now_ms += LOCK_MS - 1
    broker.partitions.tick()
    assert await broker.fetch("b") == []
    broker.now_ms += 1
    broker.partitions.tick()
    assert await broker.fetch("b") == [(0, 1, 2)]


async def test_two_that_wait_get_different_records_of_one_append(broker: ShareBroker) -> None:
    """The second one looks when the first is served: Kafka locks the share partition for each of them in turn."""
    await broker.open()
    first = broker.begin_fetch("a", max_records=1, mode=AcquireMode.RECORD_LIMIT)
    second = broker.begin_fetch("b", max_records=1, mode=AcquireMode.RECORD_LIMIT)
    await broker.turns()
    broker.produce(2)
    assert sorted(acquired(await first) + acquired(await second)) == [(0, 0, 1), (1, 1, 1)]


async def test_a_fetch_whose_caller_leaves_waits_for_nothing(broker: ShareBroker) -> None:
    hosted = await broker.open()
    waiting = broker.begin_fetch()
    await broker.until(lambda: hosted.waiting)
    waiting.cancel()
    await asyncio.wait([waiting])
    assert not hosted.waiting
    assert broker.broker.replicas.core.waiting_operations()["Fetch"] == 0


async def test_a_request_without_records_or_bytes_is_responded_to_at_once(broker: ShareBroker) -> None:
    """SharePartitionManager.processShareFetch; below 0 bytes PartitionMaxBytesStrategy throws."""
    broker.produce(1)
    assert await broker.service.fetch(broker.wanted(max_records=0, wait_ms=60_000)) == {}
    assert broker.states.reads == []


# Acquisitions


async def test_records_are_the_batches_that_have_what_was_acquired(broker: ShareBroker) -> None:
    """ShareFetchUtils.maybeSliceFetchRecords: batches are never divided, and those around are left out."""
    broker.produce(2, 2, 2, 2)
    await broker.open()
    found = await broker.service.fetch(broker.wanted(max_records=4))
    assert acquired(found) == [(0, 3, 1)]
    assert [(one.base_offset, one.last_offset) for one in iterate_headers(found[PARTITION].records)] == [(0, 1), (2, 3)]
    exact = await broker.service.fetch(broker.wanted(max_records=1, mode=AcquireMode.RECORD_LIMIT))
    assert [one.base_offset for one in iterate_headers(exact[PARTITION].records)] == [4]


async def test_the_maximum_number_of_records_is_over_all_partitions_in_their_turn(broker: ShareBroker) -> None:
    """ShareFetchUtils.processFetchResponse."""
    for one in range(3):
        broker.produce(2, partition=one)
    found = await broker.service.fetch(
        broker.wanted(max_records=3, mode=AcquireMode.RECORD_LIMIT, partitions=(2, 0, 1), wait_ms=5)
    )
    assert [acquired(found, one) for one in (2, 0, 1)] == [[(0, 1, 1)], [(0, 0, 1)], []]


async def test_a_read_below_the_log_start_moves_the_start_and_gives_nothing(broker: ShareBroker) -> None:
    """OFFSET_OUT_OF_RANGE is no error for the client: it fetches again."""
    broker.produce(2, 2)
    hosted = await broker.open()
    await broker.broker.replicas.delete_records([RecordsToDelete(AT, 2)], 1000)
    found = await broker.service.fetch(broker.wanted())
    assert (found[PARTITION].error, acquired(found)) == (ErrorCode.NONE, [])
    assert hosted.core.window.start_offset == 2
    assert await broker.fetch() == [(2, 3, 1)]


async def test_a_start_beyond_the_log_is_responded_to_at_once_and_empty(broker: ShareBroker) -> None:
    """Seen at Kafka 4.3.1 after AlterShareGroupOffsets to 1000: DelayedShareFetch.isMinBytesSatisfied is true then."""
    broker.produce(2)
    broker.states.start_offset = 1000
    await broker.open()
    found = await asyncio.wait_for(broker.service.fetch(broker.wanted(wait_ms=60_000)), 30)
    assert (found[PARTITION].error, acquired(found)) == (ErrorCode.NONE, [])


async def test_a_start_beyond_what_can_be_read_is_no_wait_either(
    broker: ShareBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The high watermark of a new leader, or the last stable offset, may be below the next offset."""
    broker.produce(2)
    broker.states.start_offset = 2
    await broker.open()
    monkeypatch.setattr(Led, "readable_end", lambda *_, **__: 1)
    found = await asyncio.wait_for(broker.service.fetch(broker.wanted(wait_ms=60_000)), 30)
    assert (found[PARTITION].error, acquired(found)) == (ErrorCode.NONE, [])


async def test_a_topic_of_the_same_name_is_another_one(broker: ShareBroker) -> None:
    """ReplicaManager.readFromLog: INCONSISTENT_TOPIC_ID."""
    broker.produce(1)
    other = PartitionId(b"another topic id", 0)
    wanted = broker.wanted(wait_ms=5)
    found = await broker.service.fetch(type(wanted)("g", "a", 5, 1, 1 << 20, wanted.wanted, {other: AT}))
    assert found[other].error is ErrorCode.INCONSISTENT_TOPIC_ID


# Acknowledgements and their writes


async def test_an_acknowledgement_is_responded_to_when_it_is_written(broker: ShareBroker) -> None:
    broker.produce(3)
    await broker.open()
    await broker.fetch()
    broker.states.held.clear()
    task = asyncio.create_task(broker.acknowledge(0, 2, ACCEPT, REJECT, RELEASE))
    await broker.until(lambda: broker.states.writes)
    assert not task.done()
    broker.states.held.set()
    assert await task is ErrorCode.NONE
    assert broker.written == [(0, [(0, 0, 2, 1), (1, 1, 4, 1), (2, 2, 0, 1)])]
    write = broker.states.writes[0]
    assert (write.state_epoch, write.leader_epoch, write.complete_count) == (2, 1, 2)


async def test_states_are_written_one_after_the_other(broker: ShareBroker) -> None:
    """A write that is retried must not come after a later one, which would move the start offset back."""
    broker.produce(1, 1)
    await broker.open()
    await broker.fetch(batch_size=1)
    broker.states.held.clear()
    tasks = [asyncio.create_task(broker.acknowledge(one, one, ACCEPT)) for one in range(2)]
    await broker.turns()
    assert broker.written == [(0, [(0, 0, 2, 1)])]
    broker.states.held.set()
    assert [await one for one in tasks] == [ErrorCode.NONE] * 2
    assert broker.written[1] == (0, [(1, 1, 2, 1)])


async def test_a_write_that_fails_is_rolled_back(broker: ShareBroker) -> None:
    """SharePartition.rollbackOrProcessStateUpdates: the member still has its record, and may try again."""
    broker.produce(1)
    await broker.open()
    await broker.fetch()
    broker.states.errors = [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS]
    assert await broker.acknowledge(0, 0, ACCEPT) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert await broker.fetch("b") == []
    assert await broker.acknowledge(0, 0, ACCEPT) is ErrorCode.NONE


async def test_writes_behind_one_that_reached_no_coordinator_share_its_error(broker: ShareBroker) -> None:
    broker.produce(1, 1)
    await broker.open()
    await broker.fetch(batch_size=1)
    broker.states.held.clear()
    tasks = [asyncio.create_task(broker.acknowledge(one, one, ACCEPT)) for one in range(2)]
    await broker.turns()
    broker.states.errors = [ErrorCode.NOT_COORDINATOR]
    broker.states.held.set()
    assert [await one for one in tasks] == [ErrorCode.COORDINATOR_NOT_AVAILABLE] * 2
    assert len(broker.states.writes) == 1


@pytest.mark.parametrize("error", [ErrorCode.FENCED_STATE_EPOCH, ErrorCode.FENCED_LEADER_EPOCH])
async def test_a_fenced_write_drops_the_share_partition(broker: ShareBroker, error: ErrorCode) -> None:
    """SharePartitionManager.fencedSharePartitionHandler: the next fetch reads the state again."""
    broker.produce(1)
    await broker.open()
    await broker.fetch()
    broker.states.errors = [error]
    assert await broker.acknowledge(0, 0, ACCEPT) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert broker.partitions.get(KEY) is None
    assert await broker.fetch(wait_ms=5) == [(0, 0, 1)]


async def test_an_acknowledgement_of_what_is_not_loaded_has_no_outcome(broker: ShareBroker) -> None:
    assert broker.service.acknowledge(A, PARTITION, []) is None


# Sessions and leaderships that end


async def test_a_session_that_ends_releases_what_its_member_has(broker: ShareBroker) -> None:
    """SharePartitionManager.releaseSession: the delivery counts; other members keep theirs."""
    broker.produce(1, 1)
    await broker.open()
    broker.session()
    broker.session("b", "d")
    await broker.fetch(max_records=1, batch_size=1)
    assert await broker.fetch("b", max_records=1, batch_size=1) == [(1, 1, 1)]
    broker.service.release(A)
    await broker.until(lambda: broker.written == [(0, [(0, 0, 0, 1)])])
    assert await broker.fetch("b", max_records=1, batch_size=1) == [(0, 0, 2)]
    assert broker.service.session_partitions(A) == ()


async def test_a_connection_that_closes_ends_its_sessions_and_the_last_one_drops_the_group(broker: ShareBroker) -> None:
    """ShareSessionCache.ClientConnectionDisconnectListener: a release is written although its partition is dropped."""
    broker.produce(1)
    await broker.open()
    broker.session()
    broker.session("b", "d")
    await broker.fetch()
    broker.service.connection_closed("c")
    await broker.until(lambda: broker.written == [(0, [(0, 0, 0, 1)])])
    assert broker.partitions.get(KEY) is not None
    assert await broker.fetch("b") == [(0, 0, 2)]
    broker.service.connection_closed("unknown")
    broker.service.connection_closed("d")
    assert broker.partitions.get(KEY) is None
    await broker.until(lambda: broker.written[1:] == [(0, [(0, 0, 0, 2)])])


async def test_a_group_is_dropped_when_a_member_that_has_left_closes_its_connection(broker: ShareBroker) -> None:
    await broker.open()
    broker.session()
    broker.service.release(A)
    assert broker.partitions.get(KEY) is not None
    broker.service.connection_closed("c")
    assert broker.partitions.get(KEY) is None


async def test_a_session_of_a_later_connection_survives_the_former_one(broker: ShareBroker) -> None:
    """SessionKeyAndState.markStale: a member that reconnects opens its session again."""
    broker.session()
    broker.session(connection="d")
    broker.service.connection_closed("c")
    assert broker.service.session_partitions(A) == (PARTITION,)


async def test_a_leadership_that_is_lost_drops_the_share_partitions(broker: ShareBroker) -> None:
    """SharePartitionListener.onBecomingFollower: a fetch that waits ends empty, the next one has the error."""
    hosted = await broker.open()
    await broker.open("other")
    waiting = broker.begin_fetch()
    await broker.until(lambda: hosted.waiting)
    broker.service.leadership_changed(AT, leads=True)
    assert len(broker.partitions) == 2
    broker.service.leadership_changed(AT, leads=False)
    assert len(broker.partitions) == 0
    broker.produce(1)
    await broker.turns()
    assert not waiting.done()
    waiting.cancel()


async def test_settings_of_a_group_take_effect_at_once(broker: ShareBroker) -> None:
    broker.produce(3)
    hosted = await broker.open()
    broker.settings = ShareSettings(record_lock_duration_ms=70)
    await broker.fetch()
    assert hosted.core.next_deadline_ms() == broker.now_ms + 70
    assert broker.service.lock_duration_ms("g") == 70


async def test_a_defect_costs_its_share_partition_alone(
    broker: ShareBroker, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Rule 3 of server/share/partitions.py: all that waits for a response has one."""
    for one in range(2):
        broker.produce(1, partition=one)
    hosted = await broker.open()
    await broker.fetch()
    broker.states.held.clear()
    task = asyncio.create_task(broker.acknowledge(0, 0, ACCEPT))
    await broker.until(lambda: broker.states.writes)
    monkeypatch.setattr(hosted.core, "acquire", lambda *_: 1 // 0)
    monkeypatch.setattr(hosted.core, "state_written", lambda *_: 1 // 0)
    broker.produce(1)
    broker.states.held.set()
    assert await task is ErrorCode.UNKNOWN_SERVER_ERROR
    assert broker.partitions.get(KEY) is None
    assert "which is a defect" in caplog.text
    found = await broker.service.fetch(broker.wanted("b", partitions=(1, 0), wait_ms=5))
    assert acquired(found, 1) == [(0, 0, 1)]


async def test_a_leadership_that_is_watched_is_reported_when_it_ends_and_no_longer_when_it_is_not(
    broker: ShareBroker,
) -> None:
    """Leaderships.watch: the broker's own topics are not coordinators'."""
    core = broker.broker.replicas.core
    await broker.open()
    assert core.watch_leadership(TopicPartition(TOPIC, 1)) == [LeadershipChanged(TopicPartition(TOPIC, 1), True, 1)]
    assert core.watch_leadership(AT) == [], "the share partition watches it"
    stops = [ReplicaStop(TopicPartition(TOPIC, one), 1, True) for one in (1, 2)]
    _, effects = core.stop([*stops, ReplicaStop(AT, 1, True)], report=lambda *_: None)
    lost = [one for one in effects if isinstance(one, LeadershipChanged)]
    assert [(one.topic_partition.partition, one.leads) for one in lost] == [(1, False), (0, False)]


async def test_a_leadership_is_watched_no_longer_than_there_is_a_share_partition(broker: ShareBroker) -> None:
    core = broker.broker.replicas.core
    await broker.open()
    await broker.open("other")
    broker.partitions.drop_group("g")
    broker.partitions.drop_group("other")
    _, effects = core.stop([ReplicaStop(AT, 1, True)], report=lambda *_: None)
    assert not [one for one in effects if isinstance(one, LeadershipChanged)]


async def test_below_share_version_1_all_that_is_in_flight_is_forgotten_and_nothing_is_written(
    broker: ShareBroker,
) -> None:
    """SharePartitionManager.onShareVersionToggle: acquired records are available when the state is loaded again."""
    broker.produce(3)
    await broker.open()
    broker.session()
    assert await broker.fetch() == [(0, 2, 1)]
    broker.service.levels_changed({"share.version": 1, "group.version": 1})
    assert (len(broker.partitions), len(broker.service.sessions)) == (1, 1)
    broker.service.levels_changed({"group.version": 1})
    assert (len(broker.partitions), len(broker.service.sessions)) == (0, 0)
    await broker.turns()
    assert broker.written == []
    await broker.open()
    assert await broker.fetch("b") == [(0, 2, 1)]
