"""The task that drives a quorum's node: the order of its effects, its disk, and its end (KafkaRaftClient.poll)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from tests.unit.raft.driven_node import driven, voters_in_log

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge_broker.log.files import StorageError
from tidegauge_broker.server.quorum.driver import QuorumDriver
from tidegauge_controller.raft import effects, events
from tidegauge_controller.raft.messages import DescribeQuorumRequest, DescribeQuorumResponse, Response
from tidegauge_controller.raft.values import Batch, ElectionState, OffsetAndEpoch


class FakeStore:
    """A disk that notes its calls, and fails if a test says so."""

    def __init__(self) -> None:
        self.done: list[str] = []
        self.fails: dict[str, Exception] = {}
        self.snapshots = None

    def _do(self, what: str) -> None:
        self.done.append(what)
        if what.split(maxsplit=1)[0] in self.fails:
            raise self.fails[what.split(maxsplit=1)[0]]

    def persist(self, election: ElectionState, *_: object) -> None:
        self._do(f"persist {election.epoch} {election.leader_id}")

    def append(self, batch: Batch) -> None:
        self._do(f"append {batch.base_offset}")

    def flush(self) -> None:
        self._do("flush")

    def note_epochs(self, _epochs: object) -> None:
        pass

    def install(self, snapshot: OffsetAndEpoch) -> None:
        self._do(f"install {snapshot.offset}")


class Noting:
    """An observer that notes in the same list as the disk."""

    def __init__(self, done: list[str]) -> None:
        self._done = done
        self.leads = asyncio.Event()

    def state_changed(self, effect: effects.StateChanged) -> None:
        self._done.append(effect.state)

    def high_watermark_moved(self, effect: effects.HighWatermarkMoved) -> None:
        self._done.append(f"committed {effect.high_watermark}")

    def leadership_changed(self, effect: effects.LeadershipChanged) -> None:
        if effect.leader_id == 0:
            self.leads.set()

    def proposal_decided(self, effect: Any) -> None:
        del effect


class Clock:
    """Every look is a second later, so that no deadline is waited for."""

    def __init__(self) -> None:
        self._now_ms = 0

    def __call__(self) -> int:
        self._now_ms += 1000
        return self._now_ms


async def no_peer(_: effects.Send) -> Response:
    raise TidegaugeError(ErrorCode.NETWORK_EXCEPTION, "there is no other node")


@pytest.fixture
def store() -> Iterator[FakeStore]:
    return FakeStore()


@pytest.fixture
async def alone(store: FakeStore) -> AsyncIterator[tuple[QuorumDriver, Noting]]:
    """The driver of the only voter of a quorum, not started."""
    observer, clock = Noting(store.done), Clock()
    node = driven(0, voters_in_log(0), bootstrap=True).node
    with ThreadPoolExecutor(1) as pool:
        driver = QuorumDriver(node, store, no_peer, (observer,), clock, clock, pool)  # type: ignore[arg-type]
        yield driver, observer
        await driver.stop()


async def test_a_vote_is_on_the_disk_before_the_node_stands_and_a_record_before_it_is_committed(
    store: FakeStore, alone: tuple[QuorumDriver, Noting]
):
    """Persist, then act: PersistElection blocks the node, and a single voter commits only what its disk has."""
    driver, observer = alone
    driver.start()
    await observer.leads.wait()
    wanted = ["persist 1 None", "Candidate", "persist 1 0", "Leader", "append 0", "flush", "committed 3"]
    assert [one for one in store.done if one in wanted] == wanted


async def test_a_request_gets_the_response_of_the_node(alone: tuple[QuorumDriver, Noting]):
    driver, observer = alone
    driver.start()
    await observer.leads.wait()
    response: asyncio.Future[Response] = asyncio.get_running_loop().create_future()
    driver.request(DescribeQuorumRequest(), lambda found, _read: response.set_result(found))
    found = await response
    assert isinstance(found, DescribeQuorumResponse)
    assert (found.leader_id, found.high_watermark) == (0, 3)


async def test_the_only_voter_shuts_down_at_once(alone: tuple[QuorumDriver, Noting]):
    """KafkaRaftClient.maybeCompleteShutdown: no one could take its leadership over."""
    driver, observer = alone
    driver.start()
    await observer.leads.wait()
    await driver.shut_down(60.0)
    assert driver.ended.is_set()
    assert driver.failure is None


@pytest.mark.parametrize(
    ("what", "problem"),
    [
        ("persist", OSError(28, "No space left on device")),
        ("append", StorageError("No space left on device")),
        ("flush", StorageError("No space left on device")),
    ],
)
async def test_a_disk_that_refuses_ends_the_node_with_the_reason(
    what: str, problem: Exception, store: FakeStore, alone: tuple[QuorumDriver, Noting]
):
    """After a failed write or sync the disk's content is unknown: the node must not vote or count on it."""
    driver, observer = alone
    store.fails[what] = problem
    driver.start()
    await driver.ended.wait()
    assert driver.failure is not None
    assert "No space left on device" in driver.failure
    assert not observer.leads.is_set()
    assert not any(one.startswith("committed") for one in store.done)


async def test_a_damaged_snapshot_of_the_leader_does_not_end_the_node(
    store: FakeStore, alone: tuple[QuorumDriver, Noting], caplog: pytest.LogCaptureFixture
):
    """The disk that is damaged is another one's; a refusal of this one's disk ends the node as ever."""
    driver, _ = alone
    snapshot = OffsetAndEpoch(7, 1)
    store.fails["install"] = TidegaugeError(ErrorCode.CORRUPT_MESSAGE, "no footer")
    for _ in range(2):
        assert await driver._carry_out(effects.InstallSnapshot(snapshot)) == events.SnapshotRefused(snapshot)
    [record] = caplog.records
    assert "The snapshot 7-1 that the leader sent is damaged: no footer. The log stays as it is" in record.message
    store.fails["install"] = StorageError("No space left on device")
    with pytest.raises(StorageError):
        await driver._carry_out(effects.InstallSnapshot(snapshot))
