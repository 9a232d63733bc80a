"""Share partitions at one leader after the other, with the share coordinator that they write to (KIP-932).

Random histories, in which leaders and share coordinators die and responses are lost, hold what a member may rely on: a
record that was accepted or rejected with success is never delivered again. Each record is delivered. A leader delivers
a record at most as often as the limit says. A leader of a former epoch writes nothing. With any of these rules taken
away (``MUTANTS``) they do not.
"""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Callable

import pytest
from tests.unit.coordinator.share_state.harness import KEY, ShareHarness
from tests.unit.share.driver import ACCEPT, LOCK_MS, RELEASE, Driver, log_of

from tidegauge.errors import ErrorCode
from tidegauge.share_groups import InitializeShareState, ReadShareState, WriteShareState
from tidegauge_broker.coordinator.share_state import deciding
from tidegauge_broker.share.acknowledging import Acknowledgement
from tidegauge_broker.share.effects import Dropped, WriteState
from tidegauge_broker.share.partition import PartitionState
from tidegauge_broker.share.settings import AcquireMode, ShareSettings
from tidegauge_broker.share.states import Delivery, RecordState

LIMIT = 3


class Leader(Driver):
    """A leader that loads the share coordinator's state."""

    def __init__(self, coordinator: ShareHarness, epoch: int, sizes: list[int]) -> None:
        read = coordinator.ask(ReadShareState(KEY, epoch))
        assert read.error is ErrorCode.NONE
        self.coordinator = coordinator
        settings = ShareSettings(LOCK_MS, LIMIT, auto_offset_reset="earliest")
        start_offset = max(read.start_offset, 0)
        super().__init__(log_of(*sizes), settings, epoch, holds=True, start_offset=start_offset, state=read.batches)

    def write_all(self) -> None:
        held, self.held = self.held, []
        for write in held:
            self.take(self.share.state_written(write.write_id, self.persist(write)))

    def persist(self, write: WriteState) -> ErrorCode:
        request = WriteShareState(
            KEY, write.state_epoch, write.leader_epoch, write.start_offset, write.complete_count, write.batches
        )
        return self.coordinator.ask(request).error


class History:
    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.sizes = [self.random.randint(1, 6) for _ in range(6)]
        self.coordinator = ShareHarness(updates_per_snapshot=self.random.choice((2, 500)))
        self.coordinator.ask(InitializeShareState(KEY, 2))
        self.epoch = 1
        self.leader = Leader(self.coordinator, 1, self.sizes)
        self.done: set[int] = set()
        self.ever: set[int] = set()
        self.delivered: dict[int, int] = {}
        self.pending: dict[int, set[int]] = {}

    def play(self, steps: int) -> None:
        acts = {
            self.fetch: 12,
            self.acknowledge: 12,
            self.write: 8,
            self.wait: 4,
            self.change_leader: 2,
            self.lose_responses: 1,
            self.change_coordinator: 1,
        }
        for act in self.random.choices(list(acts), list(acts.values()), k=steps):
            act()

    def fetch(self) -> None:
        mode = self.random.choice(list(AcquireMode))
        for first, last, _ in self.leader.fetch(self.random.choice("ab"), self.random.randint(1, 9), 3, mode):
            for offset in range(first, last + 1):
                assert offset not in self.done, f"{offset} was delivered after its acknowledgement had succeeded"
                self.ever.add(offset)
                self.delivered[offset] = self.delivered.get(offset, 0) + 1
                assert self.delivered[offset] <= LIMIT

    def acknowledge(self) -> None:
        states = self.leader.states()
        acquired = [offset for offset, (state, _) in states.items() if state == 1]
        if not acquired:
            return
        first = self.random.choice(acquired)
        last = first + self.random.randint(0, 3)
        kind = self.random.choice((ACCEPT, RELEASE, 3))
        for member in "ab":
            response = self.leader.acknowledge_all([Acknowledgement(first, last, (kind,))], member)
            if response is None and kind != RELEASE:
                self.pending[self.leader.writes[-1].write_id] = set(range(first, last + 1))

    def write(self) -> None:
        held = [write.write_id for write in self.leader.held]
        self.leader.write_all()
        for write_id in held:
            self.done |= self.pending.pop(write_id, set())

    def lose_responses(self) -> None:
        """The states are written, and the leader hears of it never: its persister gives up."""
        held, self.leader.held = self.leader.held, []
        for write in held:
            assert self.leader.persist(write) is ErrorCode.NONE
            self.pending.pop(write.write_id, None)
            self.leader.take(self.leader.share.state_written(write.write_id, ErrorCode.COORDINATOR_NOT_AVAILABLE))

    def change_coordinator(self) -> None:
        """Let another broker load the log of __share_group_state; unwritten requests are sent there."""
        before = self.coordinator.coordinator.state_of(KEY)
        self.coordinator = self.leader.coordinator = self.coordinator.successor()
        assert self.coordinator.coordinator.state_of(KEY) == before, "what is loaded is what was in force"

    def wait(self) -> None:
        self.leader.pass_ms(self.random.choice((1, LOCK_MS)))

    def change_leader(self) -> None:
        former = self.leader
        self.epoch += 1
        self.delivered, self.pending = {}, {}
        self.leader = Leader(self.coordinator, self.epoch, self.sizes)
        before = self.coordinator.coordinator.state_of(KEY)
        while former.held:
            write = former.held.pop()
            assert former.persist(write) is ErrorCode.FENCED_LEADER_EPOCH
            effects = former.share.state_written(write.write_id, ErrorCode.FENCED_LEADER_EPOCH)
            if any(effect == Dropped() for effect in effects):
                assert former.share.state is PartitionState.FENCED
        assert self.coordinator.coordinator.state_of(KEY) == before, "a former leader has changed nothing"


@pytest.mark.parametrize("seed", range(60))
def test_acknowledgements_that_succeeded_hold_through_changes_of_leaders(seed: int) -> None:
    history = History(seed)
    history.play(150)
    # Remaining records are delivered and accepted in the end. The start may wait before records that were completed
    # under a former leader, until there are records behind them (SharePartition.findLastOffsetAcknowledgedAndMetadata).
    history.change_leader()
    leader, end = history.leader, sum(history.sizes)
    for _ in range(20 * end):
        acquired = leader.fetch("a")
        for first, last, _ in acquired:
            history.ever.update(range(first, last + 1))
            assert leader.acknowledge(first, last, ACCEPT) is None
            leader.write_all()
        if not acquired:
            break
    window = leader.share.window
    assert window.start_offset + window.complete_count == end
    assert {state for state, _ in leader.states().values()} <= {2, 4}
    assert history.ever == set(range(end)), "each record was delivered"


def _never_older(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(deciding, "_is_older", lambda *_: False)


def _reads_change_nothing(patch: pytest.MonkeyPatch) -> None:
    read = deciding._read

    def without_change(request: ReadShareState, given: deciding.Given) -> deciding.Decision:
        return deciding.Decision(read(request, given).result)

    patch.setitem(deciding._DECISIONS, ReadShareState, without_change)


def _success_before_the_write(patch: pytest.MonkeyPatch) -> None:
    def at_once(leader: Leader) -> None:
        held, leader.held = leader.held, []
        for write in held:
            leader.take(leader.share.state_written(write.write_id, ErrorCode.NONE))

    patch.setattr(Leader, "write_all", at_once)


def _accepted_records_are_not_written(patch: pytest.MonkeyPatch) -> None:
    persist = Leader.persist

    def without_them(leader: Leader, write: WriteState) -> ErrorCode:
        kept = tuple(one for one in write.batches if one.state != RecordState.ACKNOWLEDGED)
        return persist(leader, dataclasses.replace(write, batches=kept))

    patch.setattr(Leader, "persist", without_them)


def _deliveries_are_not_counted(patch: pytest.MonkeyPatch) -> None:
    acquire = Delivery.acquire

    def uncounted(delivery: Delivery, member_id: str) -> None:
        acquire(delivery, member_id)
        delivery.delivery_count = 1

    patch.setattr(Delivery, "acquire", uncounted)


def _nothing_is_archived_at_the_limit(patch: pytest.MonkeyPatch) -> None:
    give_back, roll_back = Delivery.give_back, Delivery.roll_back
    patch.setattr(Delivery, "give_back", lambda delivery, state, _: give_back(delivery, state, 1000))
    patch.setattr(Delivery, "roll_back", lambda delivery, _: roll_back(delivery, 1000))


def _the_start_passes_available_records(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(RecordState, "is_terminal", property(lambda state: state is not RecordState.ACQUIRED))


MUTANTS = [
    _never_older,
    _reads_change_nothing,
    _success_before_the_write,
    _accepted_records_are_not_written,
    _deliveries_are_not_counted,
    _nothing_is_archived_at_the_limit,
    _the_start_passes_available_records,
]


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.__name__.strip("_"))
def test_without_a_rule_a_history_is_found_that_breaks_a_guarantee(
    mutant: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    mutant(monkeypatch)
    for seed in range(60):
        try:
            test_acknowledgements_that_succeeded_hold_through_changes_of_leaders(seed)
        except AssertionError:
            return
    pytest.fail("no history has broken anything")
