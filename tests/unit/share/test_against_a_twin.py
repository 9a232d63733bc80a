"""Random histories: the share partition agrees with a twin that keeps every offset by itself (KIP-932).

The twin does not know which records an acquisition takes, only which it may take; everything else it predicts.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

import pytest
from tests.unit.share.driver import LOCK_MS, RELEASE, RENEW, Driver, log_of

from tidegauge.errors import ErrorCode
from tidegauge_broker.share import batches
from tidegauge_broker.share.acknowledging import Acknowledgement
from tidegauge_broker.share.batches import RECORDWISE
from tidegauge_broker.share.settings import AcquireMode, ShareSettings

AVAILABLE, ACQUIRED, ACKNOWLEDGED, ARCHIVED = 0, 1, 2, 4
AFTER = {0: ARCHIVED, 1: ACKNOWLEDGED, 2: AVAILABLE, 3: ARCHIVED}
LIMIT = 4


@dataclass
class Record:
    state: int
    count: int
    member: str | None = None
    deadline_ms: int | None = None
    before: tuple[int, str | None] | None = None
    is_archived_for_good: bool = False


class Twin:
    def __init__(self) -> None:
        self.records: dict[int, Record] = {}
        self.start = 0

    def acquired(self, first: int, last: int, count: int, member: str, now_ms: int) -> None:
        for offset in range(first, last + 1):
            record = self.records.setdefault(offset, Record(AVAILABLE, 0))
            assert (record.state, record.before) == (AVAILABLE, None), f"{offset} was not available"
            assert record.count + 1 == count <= LIMIT
            self.records[offset] = Record(ACQUIRED, count, member, now_ms + LOCK_MS)

    def accepts(self, batch: Acknowledgement, member: str) -> bool:
        about = range(max(batch.first_offset, self.start), batch.last_offset + 1)
        has = (self.records.get(offset) for offset in about)
        return all(one is not None and (one.state, one.member) == (ACQUIRED, member) for one in has)

    def begin(self, offset: int, kind: int, now_ms: int) -> bool:
        record = self.records[offset]
        if kind == RENEW:
            record.deadline_ms = now_ms + LOCK_MS
            return False
        record.before = record.state, record.member
        record.state = AFTER[kind]
        record.member = None
        if record.state == AVAILABLE and record.count >= LIMIT:
            record.state = ARCHIVED
        return True

    def end(self, offset: int, *, succeeded: bool, now_ms: int) -> None:
        record = self.records[offset]
        assert record.before is not None
        before, record.before = record.before, None
        if not succeeded and not record.is_archived_for_good:
            if record.deadline_ms is not None and record.deadline_ms <= now_ms:
                is_archived = record.count >= LIMIT or offset < self.start
                record.state, record.deadline_ms = ARCHIVED if is_archived else AVAILABLE, None
            else:
                record.state, record.member = before
        if record.state != ACQUIRED:
            record.deadline_ms = None

    def time_out(self, now_ms: int) -> None:
        for offset, record in self.records.items():
            if record.state == ACQUIRED and record.deadline_ms is not None and record.deadline_ms <= now_ms:
                is_archived = offset < self.start or record.count >= LIMIT
                self.records[offset] = Record(ARCHIVED if is_archived else AVAILABLE, record.count)

    def move_log_start(self, offset: int) -> None:
        for one, record in self.records.items():
            if self.start <= one < offset and record.state == AVAILABLE:
                record.state, record.member, record.is_archived_for_good = ARCHIVED, None, True
        self.start = max(self.start, offset)


class History:
    """One random history of three members."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        sizes = [self.random.randint(1, 9) for _ in range(12)]
        self.end = sum(sizes)
        settings = ShareSettings(LOCK_MS, LIMIT, max_record_locks=self.random.choice((10, 30, 2000)))
        self.share = Driver(log_of(*sizes), settings)
        self.share.holds = True
        self.twin = Twin()
        self.pending: dict[int, list[int]] = {}

    def step(self) -> None:
        act = self.random.choices(
            (self.fetch, self.acknowledge, self.written, self.release, self.wait, self.log_start),
            (6, 8, 6, 1, 2, 0.3),
        )[0]
        act()
        self.check()

    def member(self) -> str:
        return self.random.choice("abc")

    def fetch(self) -> None:
        member, mode = self.member(), self.random.choice(list(AcquireMode))
        wanted = self.random.randint(1, 20)
        acquired = self.share.fetch(member, wanted, self.random.randint(1, 10), mode)
        for first, last, count in acquired:
            self.twin.acquired(first, last, count, member, self.share.now_ms)
        if mode is AcquireMode.RECORD_LIMIT:
            assert sum(last - first + 1 for first, last, _ in acquired) <= wanted

    def acknowledge(self) -> None:
        member = self.member()
        held = [offset for offset, one in self.twin.records.items() if one.member == member]
        batches = []
        first = self.random.choice(held) if held and self.random.random() < 0.9 else self.random.randint(0, self.end)
        for _ in range(self.random.randint(1, 2)):
            last = first + self.random.randint(0, 6)
            kinds = [self.random.randint(0, 4) for _ in range(last - first + 1)]
            types = tuple(kinds) if self.random.random() < 0.5 else (kinds[0],)
            batches.append(Acknowledgement(first, last, types))
            first = last + 1
        is_accepted = all(self.twin.accepts(batch, member) for batch in batches)
        before = len(self.share.held)
        response = self.share.acknowledge_all(batches, member)
        if not is_accepted:
            assert response in {ErrorCode.INVALID_RECORD_STATE, ErrorCode.INVALID_REQUEST}
            assert len(self.share.held) == before
            # A renewal before the refused batch has counted already.
            self.renewed_only(batches, member)
            return
        begun = [
            offset
            for batch in batches
            for offset in range(max(batch.first_offset, self.twin.start), batch.last_offset + 1)
            if self.twin.begin(offset, batch.type_of(offset), self.share.now_ms)
        ]
        assert response is (None if begun else ErrorCode.NONE)
        if begun:
            self.pending[self.share.writes[-1].write_id] = begun

    def renewed_only(self, batches: list[Acknowledgement], member: str) -> None:
        deadlines = {
            offset: delivery.lock.deadline_ms
            for batch in self.share.share.window.in_flight
            for first, last, delivery in batch.runs()
            for offset in range(first, last + 1)
            if delivery.lock is not None
        }
        for batch in batches:
            for offset in range(batch.first_offset, batch.last_offset + 1):
                record = self.twin.records.get(offset)
                if record is not None and record.member == member and batch.type_of(offset) == RENEW:
                    assert deadlines[offset] in {record.deadline_ms, self.share.now_ms + LOCK_MS}
                    record.deadline_ms = deadlines[offset]

    def written(self) -> None:
        succeeded = self.random.random() < 0.7
        begun = [offset for write in self.share.held for offset in self.pending.pop(write.write_id, ())]
        self.share.written(ErrorCode.NONE if succeeded else ErrorCode.COORDINATOR_NOT_AVAILABLE)
        for offset in begun:
            self.twin.end(offset, succeeded=succeeded, now_ms=self.share.now_ms)

    def release(self) -> None:
        member = self.member()
        held = [offset for offset, one in self.twin.records.items() if one.member == member]
        before = len(self.share.held)
        self.share.release(member)
        for offset in held:
            self.twin.begin(offset, RELEASE, self.share.now_ms)
            if offset < self.twin.start:
                self.twin.records[offset].state = ARCHIVED
        if held:
            assert len(self.share.held) == before + 1
            self.pending[self.share.writes[-1].write_id] = held

    def wait(self) -> None:
        self.share.pass_ms(self.random.choice((1, 100, LOCK_MS // 2, LOCK_MS)))
        self.twin.time_out(self.share.now_ms)

    def log_start(self) -> None:
        offset = self.twin.start + self.random.randint(0, 5)
        self.share.share.log_start_moved(offset)
        self.twin.move_log_start(offset)

    def check(self) -> None:
        window, records = self.share.share.window, self.twin.records
        assert window.start_offset >= self.twin.start, "the start offset never falls"
        self.twin.start = window.start_offset
        shown = self.share.states()
        for offset, (state, count) in shown.items():
            known = records.get(offset)
            if known is not None:
                assert (state, count) == (known.state, known.count), offset
            else:  # behind the last record that a limit allowed, in the same batch
                assert (state, count) in {(AVAILABLE, 0)} | ({(ARCHIVED, 0)} if offset < self.twin.start else set())
        for offset, record in records.items():
            if offset >= window.start_offset:
                assert offset in shown
            elif record.state == AVAILABLE:
                raise AssertionError(f"{offset} is available, and below the start offset")
        terminal = [one for one, (state, _) in shown.items() if state in {ACKNOWLEDGED, ARCHIVED}]
        assert window.complete_count == sum(offset >= window.start_offset for offset in terminal)
        # A batch that the log start has reached into is acquired as a whole, as Kafka does.
        available = [one for one, (state, _) in shown.items() if state == AVAILABLE]
        free = [one for one in available if one not in records or records[one].before is None]
        if free:
            assert self.share.share.next_fetch_offset() == min(free)


@pytest.mark.parametrize("recordwise", [1, RECORDWISE], ids=["runs", "records"])
@pytest.mark.parametrize("seed", range(150))
def test_the_partition_and_the_twin_agree_after_every_step(
    seed: int, recordwise: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether the records of a split batch are kept each for itself, or in runs, as in a very long one."""
    monkeypatch.setattr(batches, "RECORDWISE", recordwise)
    history = History(seed)
    for _ in range(120):
        history.step()
