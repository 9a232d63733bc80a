"""Coordinators are notified of every leadership of their partitions that their broker gains or loses, and of no other.

Kafka: RequestHandlerHelper.onLeadershipChange calls ``onElection`` where Partition.makeLeader says that the leader is
new, and ``onResignation`` where Partition.makeFollower says so or a StopReplica deletes the replica.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
from lone_broker import ME, OTHER, LoneBroker, broker_of, produce, role

from tidegauge.control import NO_LEADER, ControlHeader, StopReplicaPartition, StopReplicaRequest
from tidegauge.errors import ErrorCode
from tidegauge.partition import TopicPartition
from tidegauge_broker.log.files import StorageError
from tidegauge_broker.replica.effects import Effect, LeadershipChanged, WriteEpochs
from tidegauge_broker.replica.leader import Leader
from tidegauge_broker.replica.messages import CoreSettings
from tidegauge_broker.replica.partition import Partition
from tidegauge_broker.replica.roles import Role

OFFSETS = TopicPartition("__consumer_offsets", 7)
OTHERS = TopicPartition("__consumer_offsets", 8)
STATE = TopicPartition("__transaction_state", 3)
ORDERS = TopicPartition("orders", 0)


def gained(at: TopicPartition, epoch: int) -> LeadershipChanged:
    return LeadershipChanged(at, leads=True, leader_epoch=epoch)


def lost(at: TopicPartition, epoch: int) -> LeadershipChanged:
    return LeadershipChanged(at, leads=False, leader_epoch=epoch)


def leading(*partitions: TopicPartition, epoch: int = 4) -> LoneBroker:
    """Return a broker leading partitions since an epoch, its reports cleared."""
    broker = broker_of(*partitions)
    role(broker, ME, epoch)
    broker.leaderships.clear()
    return broker


def stop(broker: LoneBroker, *partitions: TopicPartition, delete: bool, epoch: int | None = None) -> None:
    request = StopReplicaRequest(ControlHeader(0, 1, 1), [StopReplicaPartition(at, epoch, delete) for at in partitions])
    broker.execute(broker.control_requests.stop_replica(request)[1])


def failing(kind: type[Effect], at: TopicPartition) -> Callable[[Effect | None, TopicPartition], None]:
    def faulty(effect: Effect | None, where: TopicPartition) -> None:
        if where == at and type(effect) is kind:
            raise StorageError("the disk is full")

    return faulty


def breaks(*_: object, **__: object) -> None:
    raise ValueError("a defect")


def test_a_new_leader_of_an_internal_partition_says_so_with_its_epoch() -> None:
    broker = broker_of(OFFSETS, STATE, ORDERS)
    role(broker, ME, 4)
    assert broker.leaderships == [gained(OFFSETS, 4), gained(STATE, 4)], "of an ordinary topic nobody needs to know"


def test_the_change_is_reported_after_the_state_has_moved_and_behind_the_log_effects() -> None:
    """Persist, then notify: the epoch is on disk before a coordinator reads the log."""
    broker = broker_of(OFFSETS)
    done: list[str] = []
    broker.faulty = lambda effect, _: done.append(type(effect).__name__)
    broker.leadership_changed = lambda _: done.append(broker.core.partition(OFFSETS).role.value)  # type: ignore[method-assign]
    role(broker, ME, 4)
    assert done == ["WriteEpochs", "leader"]


def test_a_later_epoch_of_the_same_leader_is_no_news() -> None:
    """As in Kafka, which keeps the takeover's coordinator epoch."""
    broker = leading(OFFSETS)
    role(broker, ME, 5, isr=[ME])
    assert broker.leaderships == []
    role(broker, OTHER, 6)
    assert broker.leaderships == [lost(OFFSETS, 6)]


@pytest.mark.parametrize("missed", [(), (99,)], ids=["missed", "of a broker that seems dead"])
def test_an_epoch_between_two_of_the_same_leader_may_have_been_anothers(missed: tuple[int, ...]) -> None:
    """A coordinator begins again with the new epoch: the other leader's markers may have had one above the old.

    Not as in Kafka, where its own markers are refused from then on (TRANSACTION_COORDINATOR_FENCED).
    """
    broker = leading(OFFSETS, STATE)
    for leader in missed:
        role(broker, leader, 5, isr=[99, ME])
    role(broker, ME, 6)
    assert broker.leaderships == [change(at, 6) for at in (OFFSETS, STATE) for change in (lost, gained)]
    role(broker, ME, 7)
    assert broker.leaderships[4:] == [], "the next epoch is no news"
    role(broker, OTHER, 8)
    assert broker.leaderships[4:] == [lost(OFFSETS, 8), lost(STATE, 8)]


def test_a_follower_gains_nothing_and_a_former_leader_loses_once() -> None:
    broker = broker_of(OFFSETS)
    role(broker, OTHER, 4)
    role(broker, OTHER, 5)
    assert broker.leaderships == []
    role(broker, ME, 6)
    role(broker, OTHER, 7)
    role(broker, OTHER, 8)
    role(broker, ME, 9)
    assert broker.leaderships == [gained(OFFSETS, 6), lost(OFFSETS, 7), gained(OFFSETS, 9)]


@pytest.mark.parametrize("leader", [NO_LEADER, 99], ids=["none", "dead"])
def test_a_leader_that_hears_of_no_live_successor_stays_one(leader: int) -> None:
    """Its state has not moved: it stays as before until there is a leader to follow."""
    broker = leading(OFFSETS)
    role(broker, leader, 5, isr=[99, ME])
    assert broker.core.partition(OFFSETS).role is Role.LEADER
    assert broker.leaderships == []


def test_a_stale_request_moves_nothing() -> None:
    broker = leading(OFFSETS)
    assert role(broker, OTHER, 3) == {OFFSETS: ErrorCode.STALE_CONTROLLER_EPOCH}
    stop(broker, OFFSETS, delete=True, epoch=3)
    assert broker.leaderships == []


def test_a_deleted_replica_leads_no_more_and_one_that_is_stopped_stays_as_it_is() -> None:
    """KafkaApis.handleStopReplicaRequest resigns where ``deletePartition`` is set."""
    broker = leading(OFFSETS, OTHERS, STATE)
    stop(broker, OFFSETS, delete=False, epoch=4)
    assert broker.leaderships == []
    stop(broker, OTHERS, STATE, delete=True)
    assert broker.leaderships == [lost(OTHERS, 4), lost(STATE, 4)]
    stop(broker, OTHERS, delete=True)
    assert broker.leaderships == [lost(OTHERS, 4), lost(STATE, 4)], "it was deleted before"


def test_a_deleted_replica_that_comes_again_is_gained_again() -> None:
    broker = leading(OFFSETS)
    stop(broker, OFFSETS, delete=True)
    role(broker, ME, 0)
    assert broker.leaderships == [lost(OFFSETS, 4), gained(OFFSETS, 0)]


def test_a_directory_that_goes_offline_takes_the_leaderships_with_it() -> None:
    broker = leading(OFFSETS, OTHERS)
    broker.execute(broker.core.log_dir_failed([OFFSETS]))
    broker.execute(broker.core.log_dir_failed([OFFSETS]))
    assert broker.leaderships == [lost(OFFSETS, 4)]


def test_a_leadership_whose_epoch_could_not_be_written_is_neither_gained_nor_lost() -> None:
    broker = broker_of(OFFSETS, OTHERS)
    broker.faulty = failing(WriteEpochs, OFFSETS)
    role(broker, ME, 4)
    assert broker.leaderships == [gained(OTHERS, 4)]
    assert broker.core.partition(OFFSETS).role is Role.OFFLINE


def test_a_leadership_is_lost_though_the_step_that_loses_it_fails() -> None:
    """The other effects of a failed replica are dropped; a coordinator must hear all the same that it is none."""
    broker = leading(OFFSETS)
    broker.partitions = (OFFSETS, OTHERS)
    broker.home_of = lambda _: "the only one"
    broker.faulty = failing(WriteEpochs, OTHERS)
    step: list[Effect] = []
    broker.execute = step.extend  # type: ignore[method-assign, assignment]
    role(broker, ME, 5, of=[OTHERS])
    role(broker, OTHER, 5, of=[OFFSETS])
    del broker.execute
    broker.execute(step)
    assert {broker.core.partition(at).role for at in broker.partitions} == {Role.OFFLINE}
    assert broker.leaderships == [lost(OFFSETS, 5)]


def test_the_observer_hears_in_the_same_step_of_what_it_gains_and_loses_with_a_directory() -> None:
    """Two partitions share a directory; the second one's write fails when the first is reported already."""
    broker = broker_of(OFFSETS, OTHERS)
    broker.home_of = lambda _: "the only one"
    broker.faulty = failing(WriteEpochs, OTHERS)
    role(broker, ME, 4)
    assert broker.leaderships == [gained(OFFSETS, 4), lost(OFFSETS, 4)]


def test_a_leader_with_a_defect_leads_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    broker = leading(OFFSETS, OTHERS)
    broker.survives_defects = True
    monkeypatch.setattr(Leader, "maybe_shrink", breaks)
    broker.execute(broker.core.tick(broker.now_ms + 60_000))
    assert broker.leaderships == [lost(OFFSETS, 4), lost(OTHERS, 4)]


def test_a_takeover_that_ends_in_a_defect_is_not_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    broker = broker_of(OFFSETS)
    broker.survives_defects = True
    monkeypatch.setattr(Leader, "maybe_advance_high_watermark", breaks)
    role(broker, ME, 4)
    assert broker.core.partition(OFFSETS).role is Role.OFFLINE
    assert broker.leaderships == []


def test_a_resignation_that_ends_in_a_defect_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    broker = leading(OFFSETS)
    broker.survives_defects = True
    monkeypatch.setattr(Partition, "adopt", breaks)
    role(broker, OTHER, 5)
    assert broker.leaderships == [lost(OFFSETS, 4)]


def test_parked_requests_end_after_the_loss_is_reported() -> None:
    """So a coordinator that gets NOT_LEADER_OR_FOLLOWER for its append knows already why."""
    broker = broker_of(ORDERS)
    broker.settings = CoreSettings(coordinator_topics={ORDERS.topic})
    broker.start(1)
    broker.metadata.live = frozenset({ME, OTHER})
    role(broker, ME, 4)
    token = produce(broker, ORDERS, acks=-1)
    order: list[str] = []
    broker.leadership_changed = lambda change: order.append(f"leads {change.leads}")  # type: ignore[method-assign]
    broker.respond_to_produce = lambda what, _: order.append(f"response {what is token}")  # type: ignore[method-assign]
    role(broker, OTHER, 5)
    assert order == ["leads False", "response True"]


def test_an_observer_that_fails_takes_nothing_offline() -> None:
    broker = broker_of(OFFSETS, STATE)
    broker.survives_defects = True
    broker.leadership_changed = breaks  # type: ignore[method-assign]
    role(broker, ME, 4)
    assert [broker.core.partition(at).role for at in (OFFSETS, STATE)] == [Role.LEADER, Role.LEADER]
    assert [failure[0] for failure in broker.failures] == ["LeadershipChanged", "LeadershipChanged"]
    assert broker.lost == []
