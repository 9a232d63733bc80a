"""The checker is tested as it tests: one small history for each kind of anomaly, and an innocent twin of it.

A stage is no cluster: logs, high watermarks and ZooKeeper's state are set by hand, and the checker looks. One called by
no name stays unnoticed, so each kind is asked for by name. The accountant, which judges the clients' book, has tests
of its own; here it is asked whether the book gets to it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from tidegauge.cluster_metadata import Leadership
from tidegauge.errors import ErrorCode
from tidegauge_broker.replica.effects import LeadershipChanged
from tidegauge_broker.replica.messages import ACKS_ALL, CoreSettings, TopicRules
from tidegauge_proof.simulator import checker
from tidegauge_proof.simulator.checker import Checker, Violation
from tidegauge_proof.simulator.clients import Clients
from tidegauge_proof.simulator.memory_broker import AT
from tidegauge_proof.simulator.memory_log import MemoryLog, header_of
from tidegauge_proof.simulator.world import World

Records = list[tuple[int, int]]
A, B, C = (0, 0), (0, 1), (0, 2)
"""Records 0, 1 and 2, of epoch 0."""


class Stage:
    """Brokers 1 and 2, or more; 1 leads in epoch 0, all are in the ISR."""

    def __init__(self, *logs: Records, min_isr: int = 1, may_lose: bool = False) -> None:
        self.checker = Checker(min_isr, may_lose=may_lose)
        self.checker.world = self  # type: ignore[assignment]  # a stage has what the checker looks at
        self.clients = Clients()
        self.produced = [self.clients.send(ACKS_ALL, 1) for _ in range(5)]
        self.brokers: dict[int, Any] = {}
        for broker_id, records in enumerate(logs, 1):
            log = MemoryLog.of(records)
            partition = SimpleNamespace(
                leader_role=object() if broker_id == 1 else None,
                high_watermark=0,
                log_end_offset=log.log_end_offset,
                leader_epoch=0,
            )
            core = SimpleNamespace(following=SimpleNamespace(rounds=()))
            self.brokers[broker_id] = SimpleNamespace(
                broker_id=broker_id, incarnation=1, log=log, partition=partition, core=core, led_epoch=None
            )
        self.replicas = tuple(self.brokers)
        self.state_now = Leadership(1, 0, self.replicas, recovering=False, partition_epoch=0, controller_epoch=1)

    def commit(self, broker_id: int, high_watermark: int) -> None:
        self.brokers[broker_id].partition.high_watermark = high_watermark
        self.checker.look_at(self.brokers[broker_id])

    def append(self, broker_id: int, epoch: int, number: int) -> None:
        broker = self.brokers[broker_id]
        broker.log.append_new(epoch, number)
        broker.partition.log_end_offset = broker.log.log_end_offset
        self.checker.look_at(broker)

    def cut(self, broker_id: int, offset: int, *, power: bool = False) -> None:
        broker = self.brokers[broker_id]
        if power:
            self.checker.loses_power(broker, offset)
        broker.log.truncate_to(offset)
        broker.partition.log_end_offset = offset
        broker.partition.high_watermark = min(broker.partition.high_watermark, offset)
        broker.incarnation += power
        if power:
            self.checker.check_isr()
        else:
            self.checker.look_at(broker)

    def lead(self, broker_id: int, epoch: int) -> None:
        partition = self.brokers[broker_id].partition
        partition.leader_role, partition.leader_epoch = object(), epoch
        self.checker.look_at(self.brokers[broker_id])

    def report(self, broker_id: int, epoch: int, *, leads: bool = True) -> None:
        """Notify a broker's coordinators, and look."""
        self.checker.reports_leaderships = True
        self.checker.leadership_changed(self.brokers[broker_id], LeadershipChanged(AT, leads, epoch))
        self.checker.look_at(self.brokers[broker_id])

    def write(self, **changes: Any) -> None:
        version = self.state_now.partition_epoch + 1
        self.state_now = replace(self.state_now, **{"partition_epoch": version, **changes})
        self.checker.look_at_state()

    def acknowledge(self, number: int, offset: int) -> None:
        result: Any = SimpleNamespace(base_offset=offset)
        self.clients.responded(self.produced[number], ErrorCode.NONE, offset, at_once=False)
        self.checker.acknowledged(self.brokers[1], self.produced[number], result)

    def read(self, broker_id: int, asked: int, first: int) -> None:
        log = self.brokers[broker_id].log
        response: Any = SimpleNamespace(records=log.read(first, first + 1, 1))
        self.checker.consumed(self.brokers[broker_id], asked, response)

    def complain(self) -> None:
        words = self.clients.complaint(self.brokers[1].log, self.checker.lost_numbers)
        if words:
            raise Violation("ClientHistory", words)

    def end_in_order(self, invariant: str = "Converges") -> None:
        for broker_id in self.brokers:
            self.commit(broker_id, self.brokers[broker_id].log.log_end_offset)
        self.checker.converged(invariant)


def claims_more(stage: Stage, log_end_offset: int) -> None:
    stage.brokers[1].partition.log_end_offset = log_end_offset
    stage.commit(1, 1)


def goes_back(stage: Stage, *, lives: int) -> None:
    stage.commit(1, 2)
    stage.brokers[1].incarnation += lives
    stage.commit(1, 1)


def differs(stage: Stage, offset: int) -> None:
    """1 has committed A and B; 2 out of the ISR has A and C."""
    stage.write(isr=(1,))
    stage.commit(1, 2)
    stage.commit(2, offset)


def leaves_behind(stage: Stage, isr: tuple[int, ...]) -> None:
    stage.write(isr=isr)
    stage.commit(1, 2)


def two_lead(stage: Stage, epoch: int) -> None:
    stage.lead(1, 0)
    stage.lead(2, epoch)


def resigns(stage: Stage, *, still: bool) -> None:
    """1 reports that it leads, then that it does not; is it so?"""
    stage.report(1, 0)
    if not still:
        stage.brokers[1].partition.leader_role = None
    stage.report(1, 1, leads=False)


def says_nothing(stage: Stage, broker_id: int) -> None:
    """1 reports that it leads; then it or broker 2, which reported nothing, leads in epoch 1."""
    stage.report(1, 0)
    stage.lead(broker_id, 1)


def two_report(stage: Stage, epoch: int) -> None:
    """1 reports that it gained epoch 0 and lost it, 2 that it gained an epoch."""
    stage.report(1, 0)
    stage.brokers[1].partition.leader_role = None
    stage.report(1, 1, leads=False)
    stage.checker._leaders.clear()
    stage.brokers[2].partition.leader_role = object()
    stage.brokers[2].partition.leader_epoch = epoch
    stage.report(2, epoch)


def goes_offline(stage: Stage, led_epoch: int | None) -> None:
    stage.brokers[1].partition = None
    stage.brokers[1].led_epoch = led_epoch
    stage.brokers[1].broker = SimpleNamespace(is_running=True)
    stage.checker.look_at(stage.brokers[1])


def falls(stage: Stage, epoch: int) -> None:
    stage.append(1, 3, 1)
    stage.append(1, epoch, 2)


def acknowledges(stage: Stage, number: int) -> None:
    stage.commit(1, 1)
    stage.acknowledge(number, 0)


def reads(stage: Stage, asked: int, first: int) -> None:
    stage.commit(1, 2)
    stage.read(1, asked, first)


def forgets(stage: Stage, lost: int) -> None:
    """Records 0 to 4 were sent; so many acknowledged ones are not in the log."""
    for number in range(2 + lost):
        stage.clients.responded(stage.produced[number], ErrorCode.NONE, number, at_once=False)
    stage.complain()


def cuts_inside(stage: Stage, offset: int) -> None:
    batch = stage.clients.send(ACKS_ALL, 3)
    stage.brokers[1].log.append(header_of(batch.data)._replace(base_offset=2, leader_epoch=0), batch.data)
    stage.brokers[1].log.truncate_to(offset)


GUILTY_AND_INNOCENT: list[tuple[str, Callable[[], Stage], Callable[[Stage], None], Callable[[Stage], None]]] = [
    ("HwLeLeo", lambda: Stage([A, B], [A, B]), lambda s: s.commit(1, 3), lambda s: s.commit(1, 2)),
    ("HwLeLeo", lambda: Stage([A, B], [A, B]), lambda s: claims_more(s, 3), lambda s: claims_more(s, 2)),
    ("HwMonotone", lambda: Stage([A, B], [A, B]), lambda s: goes_back(s, lives=0), lambda s: goes_back(s, lives=1)),
    ("LogMatchingHw", lambda: Stage([A, B], [A, C]), lambda s: differs(s, 2), lambda s: differs(s, 1)),
    ("StrongIsr", lambda: Stage([A, B], [A]), lambda s: leaves_behind(s, (1, 2)), lambda s: leaves_behind(s, (1,))),
    ("StrongIsr", lambda: Stage([A, B], [A, C]), lambda s: leaves_behind(s, (1, 2)), lambda s: leaves_behind(s, (1,))),
    ("OneLeaderPerEpoch", lambda: Stage([A], [A]), lambda s: two_lead(s, 0), lambda s: two_lead(s, 1)),
    ("LeadershipReported", lambda: Stage([A]), lambda s: s.report(1, 0, leads=False), lambda s: s.report(1, 0)),
    ("LeadershipReported", lambda: Stage([A]), lambda s: resigns(s, still=True), lambda s: resigns(s, still=False)),
    ("LeadershipReported", lambda: Stage([A], [A]), lambda s: says_nothing(s, 2), lambda s: says_nothing(s, 1)),
    ("LeadershipReported", lambda: Stage([A], [A]), lambda s: two_report(s, 0), lambda s: two_report(s, 1)),
    ("LeadershipReported", lambda: Stage([A]), lambda s: goes_offline(s, 0), lambda s: goes_offline(s, None)),
    ("EpochsMonotone", lambda: Stage([A], [A]), lambda s: falls(s, 2), lambda s: falls(s, 3)),
    ("LeaderInIsr", lambda: Stage([A], [A]), lambda s: s.write(isr=(2,)), lambda s: s.write(isr=(1,))),
    ("LeaderInIsr", lambda: Stage([A], [A]), lambda s: s.write(isr=(1, 7)), lambda s: s.write(isr=(2, 1))),
    ("LeaderInIsr", lambda: Stage([A], [A]), lambda s: s.write(leader=-1, isr=()), lambda s: s.write(leader=-1)),
    ("EpochLaw", lambda: Stage([A], [A]), lambda s: s.write(leader_epoch=-2), lambda s: s.write(leader_epoch=1)),
    (
        "EpochLaw",
        lambda: Stage([A], [A]),
        lambda s: (s.write(), s.write(leader=2))[1],
        lambda s: (s.write(), s.write(leader=2, leader_epoch=1))[1],
    ),
    ("AckedIsCommitted", lambda: Stage([A], [A]), lambda s: acknowledges(s, 1), lambda s: acknowledges(s, 0)),
    ("AckedIsCommitted", lambda: Stage([A], [A]), lambda s: s.acknowledge(0, 0), lambda s: acknowledges(s, 0)),
    (
        "MinIsr",
        lambda: Stage([A], [A], min_isr=2),
        lambda s: (s.write(isr=(1,)), s.append(1, 0, 1), s.commit(1, 2))[2],
        lambda s: s.commit(1, 1),
    ),
    ("ConsumerSeesCommitted", lambda: Stage([A, B, C], [A, B]), lambda s: reads(s, 2, 2), lambda s: reads(s, 1, 1)),
    ("ConsumerSeesCommitted", lambda: Stage([A, B, C], [A, B]), lambda s: reads(s, 1, 0), lambda s: reads(s, 0, 0)),
    ("ClientHistory", lambda: Stage([A, B], [A, B]), lambda s: forgets(s, 1), lambda s: forgets(s, 0)),
    (
        "ClientHistory",
        lambda: Stage([A, B, A], [A, B]),
        lambda s: s.complain(),
        lambda s: (s.brokers[1].log.truncate_to(2), s.complain())[1],
    ),
    (
        "Converges",
        lambda: Stage([A, B], [A, B]),
        lambda s: (s.write(isr=(1,)), s.end_in_order())[1],
        lambda s: s.end_in_order(),
    ),
    (
        "Proceeds",
        lambda: Stage([A, B], [A, B]),
        lambda s: (s.write(isr=(1,)), s.end_in_order("Proceeds"))[1],
        lambda s: s.end_in_order("Proceeds"),
    ),
    (
        "Converges",
        lambda: Stage([A], [A, B]),
        lambda s: (s.write(isr=(1,)), s.commit(1, 1), s.write(isr=(1, 2)), s.checker.converged())[3],
        lambda s: (s.brokers[2].log.truncate_to(1), s.cut(2, 1), s.end_in_order())[2],
    ),
]


@pytest.mark.parametrize(
    ("name", "stage", "guilty", "innocent"),
    GUILTY_AND_INNOCENT,
    ids=[f"{place}-{row[0]}" for place, row in enumerate(GUILTY_AND_INNOCENT)],
)
def test_an_anomaly_is_named_and_its_twin_is_acquitted(
    name: str, stage: Callable[[], Stage], guilty: Callable[[Stage], None], innocent: Callable[[Stage], None]
):
    with pytest.raises(Violation) as broken:
        guilty(stage())
    assert broken.value.invariant == name
    innocent(stage())


def test_every_kind_has_its_small_history():
    kinds = {row[0] for row in GUILTY_AND_INNOCENT} | {"WholeBatches", "FailsAlone"}
    stated = {
        line.split("|")[1].strip()
        for line in (checker.__doc__ or "").splitlines()
        if line.startswith("| ") and not line.startswith("| name")
    }
    assert kinds == stated


def test_a_truncation_inside_a_batch_is_named_and_one_at_its_border_is_not():
    with pytest.raises(AssertionError, match="WholeBatches"):
        cuts_inside(Stage([A, B], [A, B]), 3)
    cuts_inside(Stage([A, B], [A, B]), 2)


def test_a_replica_that_goes_offline_by_no_fault_of_its_own_is_named():
    """And one whose directory fails is not, nor is one whose log meets a defect."""

    def two_directories() -> World:
        settings = CoreSettings(replica_lag_time_max_ms=2000)
        return World((1, 2), settings, TopicRules(), Checker(), Checker(), directories=2)

    world = two_directories()
    world.brokers[1].executor.fail([AT])
    with pytest.raises(Violation, match="FailsAlone"):
        world.brokers[1].execute([])
    world = two_directories()
    world.fail_directory(1, world.brokers[1].replica.directory, 0)
    world.produce(1, ACKS_ALL, 1, 5_000)
    assert world.brokers[1].executor.failed == {AT}
    assert world.brokers[1].partition is None
    assert world.partitions[1].brokers[1].partition is not None
    world = two_directories()
    world.brokers[1].replica.writes_left = 0
    world.produce(1, ACKS_ALL, 1, 5_000)
    assert world.brokers[1].executor.failed == {AT}


# Where histories may lose


def lossy() -> Stage:
    """Three in-sync replicas with two committed records, both acknowledged."""
    stage = Stage([A, B], [A, B], [A, B], may_lose=True)
    stage.commit(1, 2)
    stage.acknowledge(0, 0)
    stage.acknowledge(1, 1)
    return stage


def test_a_member_that_lost_records_to_power_is_excused_and_nothing_is_lost():
    stage = lossy()
    stage.cut(2, 1, power=True)
    assert stage.checker.lost == []


def test_a_member_that_truncates_them_itself_is_not():
    with pytest.raises(Violation, match="StrongIsr"):
        lossy().cut(2, 1)


def test_a_member_that_had_them_again_is_excused_no_longer():
    stage = lossy()
    stage.cut(2, 1, power=True)
    stage.append(2, *B)
    with pytest.raises(Violation, match="StrongIsr"):
        stage.cut(2, 1)


def test_the_last_in_sync_copy_takes_records_with_it_by_name():
    stage = lossy()
    stage.write(isr=(2,), leader=2, leader_epoch=1)
    stage.cut(2, 1, power=True)
    assert stage.checker.lost == [
        "1 from offset 1 on, with the last in-sync copy, on broker 2; acknowledged with acks=all: records 1"
    ]
    assert stage.checker.lost_numbers == {1}


def test_without_the_mode_the_same_is_a_violation():
    stage = Stage([A, B], [A, B])
    stage.commit(1, 2)
    stage.write(isr=(2,), leader=2, leader_epoch=1)
    with pytest.raises(Violation, match="StrongIsr"):
        stage.cut(2, 1, power=True)


def test_who_still_has_what_is_lost_is_forgiven_and_who_differs_otherwise_is_not():
    stage = lossy()
    stage.write(isr=(2,), leader=2, leader_epoch=1)
    stage.cut(2, 1, power=True)
    stage.append(2, 1, 4)
    stage.commit(2, 2)
    stage.commit(3, 2)  # B, which is lost
    assert len(stage.checker.committed) == 2
    stage.cut(3, 1)
    stage.append(3, 1, 3)
    with pytest.raises(Violation, match="LogMatchingHw"):
        stage.commit(3, 2)


def test_what_enters_the_isr_again_in_time_was_not_lost():
    stage = lossy()
    stage.write(isr=(2,), leader=2, leader_epoch=1)
    stage.cut(2, 1, power=True)
    stage.write(isr=(2, 3))
    assert stage.checker.lost == []
    assert len(stage.checker.committed) == 2


def test_if_only_the_first_of_it_enters_again_the_rest_stays_lost():
    """A joiner had lost some in a power loss of its own (seed 3,142,149 of histories that may lose)."""
    stage = lossy()
    stage.write(isr=(2,), leader=2, leader_epoch=1)
    stage.cut(3, 1, power=True)
    stage.cut(2, 0, power=True)
    assert stage.checker.lost_numbers == {0, 1}
    stage.write(isr=(2, 3))
    assert stage.checker.lost == [
        "1 from offset 1 on, with the last in-sync copy, on broker 2; acknowledged with acks=all: records 1"
    ]
    assert stage.checker.lost_numbers == {1}
    assert len(stage.checker.committed) == 1
    with pytest.raises(Violation, match="StrongIsr"):
        stage.cut(3, 0)


def test_what_is_found_again_takes_its_own_line_away():
    """And no later one: that a former leader acknowledged what seemed lost."""
    stage = lossy()
    stage.write(isr=(2,), leader=2, leader_epoch=1)
    stage.cut(2, 1, power=True)
    stage.commit(1, 2)
    stage.acknowledge(1, 1)
    stage.write(isr=(2, 3))
    assert stage.checker.lost == ["acknowledged with acks=all by broker 1, on top of what is lost: 1 at offset 1"]


def former_leader(*, power: bool) -> Stage:
    """3 has reported B to 1, lost it, and leads a later epoch, in which another record was committed at its place."""
    stage = Stage([A, B], [A], [A, B], may_lose=True)
    stage.commit(1, 1)
    stage.write(isr=(2, 3), leader=3, leader_epoch=1)
    stage.cut(3, 1, power=power)
    stage.lead(3, 1)
    for broker_id in (3, 2):
        stage.append(broker_id, 1, 3)
    stage.commit(3, 2)
    return stage


def test_what_a_former_leader_commits_on_the_word_of_an_ended_incarnation_is_lost_by_name():
    """A report was on its way to a leader that was paused (seed 3,011,530 of histories that may lose)."""
    stage = former_leader(power=True)
    stage.commit(1, 2)
    stage.acknowledge(1, 1)
    assert stage.checker.lost == [
        "1 from offset 1 on, which broker 1 commits in a former epoch on the word of a replica "
        "that has lost them since",
        "acknowledged with acks=all by broker 1, on top of what is lost: 1 at offset 1",
    ]
    assert stage.checker.lost_numbers == {1}


def test_without_a_power_loss_or_by_the_present_leader_the_same_is_a_violation():
    with pytest.raises(Violation, match="LogMatchingHw"):
        former_leader(power=False).commit(1, 2)
    stage = former_leader(power=True)
    stage.brokers[1].partition.leader_epoch = 2
    with pytest.raises(Violation, match="LogMatchingHw"):
        stage.commit(1, 2)
