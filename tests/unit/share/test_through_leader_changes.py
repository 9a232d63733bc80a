"""Share partitions at one leader after the other, with the share coordinator that they write to (KIP-932).

Random histories hold what a member may rely on: a record that was accepted or rejected with success is never delivered
again; a leader delivers a record at most as often as the limit says; a leader of a former epoch writes nothing.
"""

from __future__ import annotations

import random

import pytest
from tests.unit.coordinator.share_state.harness import KEY, ShareHarness
from tests.unit.share.driver import ACCEPT, LOCK_MS, RELEASE, Driver, log_of

from tidegauge.errors import ErrorCode
from tidegauge.share_groups import InitializeShareState, ReadShareState, WriteShareState
from tidegauge_broker.share.acknowledging import Acknowledgement
from tidegauge_broker.share.effects import Dropped, WriteState
from tidegauge_broker.share.partition import PartitionState
from tidegauge_broker.share.settings import AcquireMode, ShareSettings

LIMIT = 3


class Leader(Driver):
    """A leader whose state is that of the share coordinator."""

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
        self.delivered: dict[int, int] = {}
        self.pending: dict[int, set[int]] = {}

    def fetch(self) -> None:
        mode = self.random.choice(list(AcquireMode))
        for first, last, _ in self.leader.fetch(self.random.choice("ab"), self.random.randint(1, 9), 3, mode):
            for offset in range(first, last + 1):
                assert offset not in self.done, f"{offset} was delivered after its acknowledgement had succeeded"
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

    def wait(self) -> None:
        self.leader.pass_ms(self.random.choice((1, LOCK_MS)))

    def change_leader(self) -> None:
        former = self.leader
        self.epoch += 1
        self.delivered, self.pending = {}, {}
        self.leader = Leader(self.coordinator, self.epoch, self.sizes)
        state = self.coordinator.coordinator.state_of(KEY)
        while former.held:
            write = former.held.pop()
            assert former.persist(write) is ErrorCode.FENCED_LEADER_EPOCH
            effects = former.share.state_written(write.write_id, ErrorCode.FENCED_LEADER_EPOCH)
            if any(effect == Dropped() for effect in effects):
                assert former.share.state is PartitionState.FENCED
        assert self.coordinator.coordinator.state_of(KEY) == state, "a former leader has changed nothing"


@pytest.mark.parametrize("seed", range(60))
def test_acknowledgements_that_succeeded_hold_through_changes_of_leaders(seed: int) -> None:
    history = History(seed)
    acts = (history.fetch, history.acknowledge, history.write, history.wait, history.change_leader)
    for _ in range(150):
        history.random.choices(acts, (6, 6, 4, 2, 1))[0]()
    # Whatever is left is delivered and accepted in the end. The start may wait before records that were completed under
    # a former leader, until there are records behind them (SharePartition.findLastOffsetAcknowledgedAndMetadata).
    history.change_leader()
    leader, end = history.leader, sum(history.sizes)
    for _ in range(20 * end):
        acquired = leader.fetch("a")
        for first, last, _ in acquired:
            assert leader.acknowledge(first, last, ACCEPT) is None
            leader.write_all()
        if not acquired:
            break
    window = leader.share.window
    assert window.start_offset + window.complete_count == end
    assert {state for state, _ in leader.states().values()} <= {2, 4}
